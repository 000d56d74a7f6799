"""Texts for users and models use the usual words: those below are ours, or name no one in particular.

The same holds for the pages of docs/, and for the docstrings and comments of the modules that are read most.

`python -m tests.texts` prints all texts, to be read from top to bottom. Names that others rely on (events, fields,
settings, options) are not texts.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.texts import ROOT, SOURCE, Text, texts

BANNED = {
    "nobody": "say which caller, agent or process is meant, or that there is none",
    "whoever": "say who is meant",
    "somebody": "say who is meant",
    "everybody": "say who is meant",
    "anybody": "say who is meant",
    "sweeps?|sweepers?|sweeping": "a process enforces time limits",
    "the (whole )?watch": "Allswell, the store, all work, or what is really meant",
    "pools?": "ready",
    "lanes?": "tasks of one role and the same services",
    "spreads?|spreading": "tasks that wait for it are updated",
    "divine": "a human is asked",
    "torn": "incomplete",
    "(?<!there )is none": "is not one",
    "left alone": "not called, not touched",
    r"call(s|ed|ing)? (it |\{…\} )?off": "cancel",
    "in good order": "normally",
    "(?<!there )is no (id|URL|number|request|key|kind|state)": "is not a …",
    "mend(s|ed|ing)?": "fix",
}
KEPT = {
    ("interfaces/cli/commands/completion.py", "mend"): "a part of a shell script",
}
NOT_IN_PAGES = "nobody|whoever|somebody|everybody|anybody|sweeps?|sweeping|in the pool|torn|called off|told|tells"
FOR_DEVELOPERS = {"architecture.md", "threat-model.md"}
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in FOR_DEVELOPERS)]
NOT_IN_COMMENTS = "[Nn]obody|[Ww]hoever|[Ss]omebody|[Ee]verybody|[Aa]nybody|torn|told|(?<!there )is none"
READ_MOST = [
    "errors.py",
    "store/port.py",
    "actions",
    "views",
    "engine/*.py",
    "engine/access",
    "engine/status",
    "domain/rules",
    "domain/task",
    "domain/lease",
    "domain/mesh",
    "domain/service",
    "runtime/supervisor",
    "runtime/process/*.py",
    "interfaces/cli/app.py",
    "interfaces/cli/context.py",
]


@pytest.mark.parametrize("word", BANNED)
def test_no_text_has_a_word_that_a_stranger_would_stumble_over(word: str) -> None:
    found = [
        text for text in texts() if re.search(rf"\b({word})\b", text.words, re.IGNORECASE) and not _is_kept(text, word)
    ]
    assert [f"{text.path}:{text.line}: {text.words[:120]}" for text in found] == [], BANNED[word]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_for_users_has_such_a_word(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert re.findall(rf"[^.\n]*\b(?:{NOT_IN_PAGES})\b[^.\n]*", prose, re.IGNORECASE) == []


@pytest.mark.parametrize("place", READ_MOST)
def test_no_comment_of_what_is_read_most_has_such_a_word(place: str) -> None:
    paths = [path for top in SOURCE.glob(place) for path in ([top] if top.is_file() else sorted(top.rglob("*.py")))]
    assert paths
    found = [
        f"{path.relative_to(SOURCE)}: {sentence}"
        for path in paths
        for sentence in _sentences(re.sub(r"`\w+`", "", path.read_text(encoding="utf-8")))
        if re.search(rf"\b({NOT_IN_COMMENTS})\b", sentence)
    ]
    assert found == []


def _sentences(source: str) -> Iterator[str]:
    """Those of its docstrings and comments, each in one line."""
    texts = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = "\n".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)
    for text in (*texts, comments):
        yield from re.split(r"(?<=[.:!?])\s", " ".join(text.split()))


def _is_kept(text: Text, word: str) -> bool:
    if text.words in ("the watch is closed", "the watch is not open") or "watch was closed" in text.words:
        return True  # the object that `allswell.open()` gives is called so
    return (text.path, word) in KEPT


def test_the_list_of_texts_has_every_kind() -> None:
    paths = {text.path for text in texts()}
    assert len(texts()) > 4_000
    assert {"engine/status/verdict.py", "interfaces/web/templates/front.html", "interfaces/mcp/tools.py"} <= paths
    assert any(text.words.startswith("Run any command,") for text in texts()), "help pages"

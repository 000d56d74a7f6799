"""Texts for users and models use the usual words: those below are ours, or name no one in particular.

`python -m tests.texts` prints all texts, to be read from top to bottom. Names that others rely on (events, fields,
settings, options) are not texts.
"""

import re

import pytest

from tests.texts import Text, texts

BANNED = {
    "nobody": "say which caller, agent or process is meant, or that there is none",
    "whoever": "say who is meant",
    "somebody": "say who is meant",
    "everybody": "say who is meant",
    "anybody": "say who is meant",
    "sweeps?|sweepers?|sweeping": "a process enforces time limits",
    "the watch": "Allswell, the store, or what is really meant",
    "in the pool|to the pool": "ready",
    "divine": "a human is asked",
    "torn": "incomplete",
    "(?<!there )is none": "is not one",
    "left alone": "not called, not touched",
    "called? (it )?off": "cancel",
    "in good order": "normally",
    "(?<!there )is no (id|URL|number|request|key|kind|state)": "is not a …",
    "mend(s|ed|ing)?": "fix",
}
KEPT = {
    ("interfaces/cli/commands/completion.py", "mend"): "a part of a shell script",
}
ALL = list(texts())


@pytest.mark.parametrize("word", BANNED)
def test_no_text_has_a_word_that_a_stranger_would_stumble_over(word: str) -> None:
    found = [
        text for text in ALL if re.search(rf"\b({word})\b", text.words, re.IGNORECASE) and not _is_kept(text, word)
    ]
    assert [f"{text.path}:{text.line}: {text.words[:120]}" for text in found] == [], BANNED[word]


def _is_kept(text: Text, word: str) -> bool:
    if text.words in ("the watch is closed", "the watch is not open") or "watch was closed" in text.words:
        return True  # the object that `allswell.open()` gives is called so
    return (text.path, word) in KEPT


def test_the_list_of_texts_has_every_kind() -> None:
    paths = {text.path for text in ALL}
    assert len(ALL) > 4_000
    assert {"engine/status/verdict.py", "interfaces/web/templates/front.html", "interfaces/mcp/tools.py"} <= paths
    assert any(text.words.startswith("Run any command,") for text in ALL), "help pages"

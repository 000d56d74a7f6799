"""Every text of ours that a user or a model can read, with its place: `python -m tests.texts [FOLDER…] > texts.md`.

It is for reading from top to bottom, as a stranger would. Texts are the strings of the source that hold a sentence or a
part of one, the docstrings of commands (their help pages), and what the templates of the page say. What is put into a
text when it is used is shown as `{…}`. Queries, patterns and the like are left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "allswell"
LEFT_OUT = ("testing/", "store/sqlite/", "store/postgres/", "store/memory/")
"""What users test with, and statements."""
_WORDS = re.compile(r"[A-Za-z’']{2,}[,;:]? +(?:[“`({]?[A-Za-z{—–]{1,})")
_NO_TEXT = re.compile(
    r"^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|PRAGMA|BEGIN|LISTEN|NOTIFY|SET|FROM|WHERE|AND|ORDER|LIMIT)\b"
    r"|\(\?|\\[sdwbS]|^--|^- c |^noqa"
)


class Text(NamedTuple):
    """A text, and where it is."""

    path: str
    line: int
    words: str


@cache
def texts() -> tuple[Text, ...]:
    """All of them, by folder and file."""
    return tuple(_read())


def _read() -> Iterator[Text]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(LEFT_OUT):
            yield from _of_module(name, ast.parse(path.read_text(encoding="utf-8")))
    for path in sorted(SOURCE.rglob("*.html")):
        yield from _of_page(str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8"))


def _of_module(name: str, tree: ast.Module) -> Iterator[Text]:
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            seen.add(id(node.value))  # a docstring, or a comment below a name
        elif isinstance(node, ast.JoinedStr):
            seen.update(id(part) for part in node.values)
    found = [Text(name, *one) for one in _help(name, tree)]
    for node in ast.walk(tree):
        if id(node) in seen or not isinstance(node, (ast.Constant, ast.JoinedStr)):
            continue
        words = _written(node)
        if _WORDS.search(words) and not _NO_TEXT.search(words):
            found.append(Text(name, node.lineno, words))
    yield from sorted(found, key=lambda text: text.line)


def _help(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings of commands: functions that have an option, or are called as one."""
    if not name.startswith("interfaces/cli/"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and re.search(r"\b(Option|Argument|Json|Store)\b", ast.dump(node.args)):
            words = ast.get_docstring(node) or ""
            if words and not node.name.startswith("_"):
                yield node.lineno, " ".join(words.split())


def _written(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_written(part) if isinstance(part, ast.Constant) else "{…}" for part in node.values)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[tuple[int, str]] = []

    def handle_data(self, data: str) -> None:
        """What stands between two tags."""
        if _WORDS.search(data):
            self.texts.append((self.getpos()[0], data.strip()))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What is shown beside something, or in its place."""
        shown = ("title", "placeholder", "aria-label", "alt")
        self.texts += [(self.getpos()[0], value) for name, value in attrs if name in shown and value]


def _of_page(name: str, source: str) -> Iterator[Text]:
    source = re.sub(r"\{\{.*?\}\}", "{…}", re.sub(r"\{[%#].*?[%#]\}", "", source))
    page = _Page()
    page.feed(source)
    return (Text(name, line, words) for line, words in page.texts)


def main(folders: list[str]) -> None:
    """Write them as Markdown, a file below each other."""
    before = ""
    for text in texts():
        if folders and not text.path.startswith(tuple(folders)):
            continue
        if text.path != before:
            before = text.path
            sys.stdout.write(f"\n## {before}\n\n")
        sys.stdout.write(f"- {text.line}: {' '.join(text.words.split())}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

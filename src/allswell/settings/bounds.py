"""How much a settings file may hold before it is read at all.

The reader of TOML in the standard library takes a minute for a name of a thousand parts, and the whole stack for a list
of a thousand lists. No settings are like that, so a file that is gets a clear answer instead of a long wait. What is
looked at here is seen in one pass over the text, with strings and comments left out.
"""

from __future__ import annotations

import re
from itertools import pairwise

LARGEST = 1 << 18
"""Characters."""
DEEPEST = 32
"""Lists and tables inside each other."""
MOST_PARTS = 16
"""Of a dotted name."""
LONGEST_WORD = 200
"""Of a name or a number outside quotes."""

_HIDDEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*(?:"{3,5}|$)'  # one that does not end hides all the rest
    r"|'''(?:[^']|'(?!''))*(?:'{3,5}|$)"
    r'|"(?:[^"\\\n]|\\[^\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
_BRACKET = re.compile(r"[\[\]{}]")
_BETWEEN = re.compile(r"[=\n{},\[\]]")
_WORD = re.compile(r"[\w+\-]+")


def too_much(text: str) -> tuple[int, str] | None:
    """The line at which a file asks too much of its reader, and what it is; None if it does not."""
    bare = _HIDDEN.sub(_lines_only, text)
    depth = 0
    for found in _BRACKET.finditer(bare):
        depth = max(depth + (1 if found[0] in "[{" else -1), 0)
        if depth > DEEPEST:
            return _line(bare, found.start()), f"more than {DEEPEST} lists or tables inside each other"
    ends = [-1, *(found.start() for found in _BETWEEN.finditer(bare)), len(bare)]
    for before, end in pairwise(ends):
        if bare.count(".", before + 1, end) >= MOST_PARTS:
            return _line(bare, end), f"a name of more than {MOST_PARTS} parts"
    for found in _WORD.finditer(bare):
        if found.end() - found.start() > LONGEST_WORD:
            return _line(bare, found.start()), f"a name or number of more than {LONGEST_WORD} characters"
    return None


def _lines_only(found: re.Match[str]) -> str:
    """In place of a string or a comment: nothing but the ends of its lines."""
    return "\n" * found[0].count("\n")


def _line(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1

"""How things look: short times, tables that fit the terminal, colour where it is wanted, and nothing that bites.

Whatever an agent said is data: control characters, terminal escapes and invisible marks are shown as what they are.
Tables are made by hand and in one pass, because ten thousand rows must come at once.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import NamedTuple, TextIO, TypeVar, cast

import msgspec

from allswell.domain.duration import felt
from allswell.domain.values import hide
from allswell.errors import Refused

# How wide text is on a terminal, and how it is made to fit: cut where it is one of many, broken where it is prose.
#
# A terminal counts columns, not characters: an ideograph takes two, a mark on a letter none, and a colour none at all.

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = re.compile(r"(?:\x1b\[[0-9;]*m)*[^\x1b](?:\x1b\[0m)?")
_WORD = re.compile(r"\s*\S+")
LEAST = 20
"""However narrow the terminal is, lines are not made shorter than this."""


def columns(stream: TextIO | None = None) -> int | None:
    """How wide the terminal is; None where nobody looks, and nothing needs cutting."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdigit() and int(given) else os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in ("Mn", "Me") for character in text)


def cut(text: str, width: int) -> str:
    """Text that takes at most so many columns; what is left out is marked."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1] if width_of(text) - width < 8 else text[: -(width_of(text) - width) // 2]
    return text + "…"


def wrapped(text: str, room: int) -> list[str]:
    """One line of text on as many as it needs: broken between words, and within one that is wider than a line."""
    room = max(room, LEAST)
    if len(text) <= room and text.isascii():
        return [text]
    lines: list[str] = []
    line, used = "", 0
    for word in _WORD.findall(text):
        size = _seen(word)
        if used + size <= room:
            line, used = line + word, used + size
            continue
        bare = word.lstrip() if line else word
        size = _seen(bare)
        if size <= room:
            lines.append(line)
            line, used = bare, size
            continue
        pieces = _broken(word, room - used, room)  # it must be broken anyway: so it begins where there is room
        lines += [(line + pieces[0]).rstrip(), *pieces[1:-1]]
        line, used = pieces[-1], _seen(pieces[-1])
    return [*lines, line] if line or not lines else lines


def _seen(text: str) -> int:
    return width_of(_COLOUR.sub("", text) if "\x1b" in text else text)


def _broken(word: str, first: int, room: int) -> list[str]:
    """A word in pieces, the first of which fits into what its line has left."""
    pieces = [""]
    used, most = 0, first
    for shown in _SHOWN.findall(word):
        size = _seen(shown)
        if used + size > most:
            pieces.append("")
            used, most = 0, room
        pieces[-1] += shown
        used += size
    return pieces if len(pieces) > 1 else ["", *pieces]


_WILD = re.compile(r"[^\x20-\x7e]")
_WILD_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ESCAPED = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
STYLES = {
    "held": "36",
    "ready": "32",
    "waiting": "33",
    "delayed": "2",
    "done": "2;32",
    "failed": "1;31",
    "cancelled": "2",
    "skipped": "2",
    "split": "2",
    "nowhere": "1;31",
    "working": "32",
    "spawning": "36",
    "quiet": "33",
    "stalled": "1;31",
    "dead": "2",
    "idle": "2",
    "unknown": "2",
    "not running": "2",
    "stopped": "33",
    "waiting for a human": "33",
    "waiting for an agent": "33",
    "waiting for a limit": "33",
    "waiting for the provider": "33",
    "dim": "2",
    "bold": "1",
    "warn": "33",
    "typed": "36",
}
GAP = "  "


def _tamed(found: re.Match[str]) -> str:
    character = found.group()
    if unicodedata.category(character) not in _ESCAPED:
        return character
    code = ord(character)
    return {"\n": "⏎", "\t": " "}.get(character, f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def plain(text: str) -> str:
    """Text on one line, with everything that a terminal would act upon written out."""
    return _WILD.sub(_tamed, text)


def escaped_in_json(text: str) -> str:
    """The same JSON: controls and signs of direction, which stand in its strings alone, are written as JSON escapes."""
    return _WILD_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def block(text: str, indent: str = "") -> str:
    """Text on lines of its own, just as harmless; at a terminal, wrapped to its width."""
    lines = [plain(line) for line in text.splitlines()]
    room = columns()
    if room is not None:
        lines = [part for line in lines for part in wrapped(line, room - len(indent))]
    return "\n".join(indent + line for line in lines)


def harmless(text: str) -> str:
    """Text with its own line breaks and nothing else that a terminal would act upon."""
    return "\n".join(map(plain, text.splitlines()))


def sentence(text: str) -> str:
    """Words of ours, harmless and perhaps painted already; at a terminal, broken to its width."""
    room = columns()
    return text if room is None else "\n".join(wrapped(text, room))


def coloured() -> bool:
    """Whether colour is wanted: on a terminal, unless NO_COLOR says otherwise."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """Text in a style, where colour is wanted."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style in STYLES and text and coloured() else text


def nearer(path: str) -> str:
    """A path as seen from here, where that is shorter."""
    with suppress(OSError):
        relative = os.path.relpath(path) if path.startswith("/") else path
        return relative if len(relative) < len(path) else path
    return path


def as_json(value: object) -> str:
    """A value as JSON on lines of its own."""
    from allswell.timing.moment import to_json

    return msgspec.json.format(to_json(value), indent=2).decode()


def short(length: int) -> str:
    """A length of time in whole seconds and at most two units: `40s`, `1m 58s`, `2h`."""
    return felt(length // 1_000 * 1_000) if length >= 1_000 else "0s"


def when(moment: int, now: int) -> str:
    """A moment as seen from now: `2m ago`, `in 3m`, `now`."""
    away = moment - now
    if abs(away) < 1_000:
        return "now"
    return f"in {short(away)}" if away > 0 else f"{short(-away)} ago"


class Column(NamedTuple):
    """A column of a table; one with `least` may be cut down to so many characters."""

    title: str
    least: int | None = None
    right: bool = False
    spare: bool = False
    """Left out altogether where the terminal is too narrow for all."""


def table(columns_: Sequence[Column], rows: Sequence[Sequence[str]], *, styled: int | None = None) -> str:
    """Rows under titles, as wide as the terminal allows; columns without any content are left out.

    The cells of the column `styled` are painted in the style of their own name.
    """
    kept = [place for place in range(len(columns_)) if any(row[place] for row in rows)]
    heads = [columns_[place] for place in kept]
    cells = [[plain(row[place]) for place in kept] for row in rows]
    natural = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    widths = [max(width, len(head.title)) for width, head in zip(natural, heads, strict=True)]
    if _over(widths) > 0:
        staying = [place for place, head in enumerate(heads) if not head.spare]
        kept, heads, widths = [kept[n] for n in staying], [heads[n] for n in staying], [widths[n] for n in staying]
        cells = [[row[place] for place in staying] for row in cells]
    widths = _fitted(heads, widths)
    painting = kept.index(styled) if styled in kept and coloured() else None
    lines = [paint(_line([head.title for head in heads], heads, widths), "dim")]
    for row in cells:
        fitted = [cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        if painting is None:
            lines.append(_line(fitted, heads, widths))
        else:
            padded = [_pad(cell, width, head) for cell, width, head in zip(fitted, widths, heads, strict=True)]
            padded[painting] = paint(padded[painting], row[painting])
            lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)


def _over(widths: Sequence[int]) -> int:
    """By how many columns a line of these widths is too long for the terminal."""
    room = columns()
    return 0 if room is None else sum(widths) + len(GAP) * (len(widths) - 1) - room


def _fitted(heads: Sequence[Column], natural: Sequence[int]) -> list[int]:
    """Widths that fit the terminal: the widest column that may be cut gives way first."""
    widths = list(natural)
    for _ in range(_over(widths)):
        able = [place for place, head in enumerate(heads) if head.least is not None and widths[place] > head.least]
        if not able:
            break
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _pad(cell: str, width: int, head: Column) -> str:
    blank = " " * (width - width_of(cell))
    return blank + cell if head.right else cell + blank


def _line(cells: Sequence[str], heads: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [_pad(cell, width, head) for cell, width, head in zip(cells, widths, heads, strict=True)]
    return GAP.join(padded).rstrip()


def pairs(listed: Sequence[tuple[str, str]]) -> str:
    """Names and values below each other, values broken to the terminal's width; those without content are left out."""
    shown = [(name, value) for name, value in listed if value]
    width = max((len(name) for name, _ in shown), default=0)
    indent = "\n" + " " * (width + len(GAP))
    room = columns()
    lines = []
    for name, value in shown:
        parts = value.split("\n")
        if room is not None:
            parts = [part for line in parts for part in wrapped(line, room - width - len(GAP))]
        lines.append(f"{paint(name.ljust(width), 'dim')}{GAP}{indent.join(parts)}")
    return "\n".join(lines)


# Prose on a terminal: sentences broken to its width, in colour where that is wanted.

WIDEST = 100
"""Longer lines than this are hard to read, however wide the terminal is."""


_USUAL = 80
"""How wide terminals usually are."""


def width() -> int:
    """How long a line may be."""
    return min(columns() or WIDEST, WIDEST)


def page_width() -> int:
    """How long a line of a page may be that is read elsewhere, too: where nobody looks, as long as $COLUMNS says."""
    given = os.environ.get("COLUMNS", "")
    asked = int(given) if given.isdigit() and given.isascii() and len(given) < 6 else 0
    return min(columns() or asked or _USUAL, WIDEST)


def prose(text: str, *, indent: str = "", further: str | None = None) -> str:
    """A sentence on as many lines as it needs."""
    rest = indent if further is None else further
    first, *more = wrapped(text, width() - max(len(indent), len(rest)))
    return "\n".join([indent + first, *(rest + line for line in more)])


def headed(title: str, lines: list[str]) -> str:
    """Lines under a title; nothing where there are none."""
    return "\n".join([paint(title, "bold"), *lines]) if lines else ""


# Commands that are printed for people to type: whatever the command line prints of them has passed here.
#
# A command typed as it was printed must be about the same store. The folder in which somebody types gives one; where
# another was meant, by `--store` or by `$ALLSWELL_STORE`, the printed command names it. A password is never printed:
# the variable is named where it holds one.

VARIABLE = "ALLSWELL_STORE"
STORELESS = ("audit-agent", "build-agent", "check", "completion", "demo", "drill", "graph", "help", "init", "trust")
"""Commands that look into no store."""
_FIELDS = ("command", "look", "next", "ahead", "recover", "resume", "merge")
"""What a field of a shape is called that holds a command."""
_QUOTED = re.compile(r"`(allswell(?: [^`\n]*)?)`")
_GIVEN: ContextVar[str | None] = ContextVar("the store that was given", default=None)

T = TypeVar("T")


def use_store(url: str | None) -> None:
    """From here on printed commands are about this store; None: about what the folder gives, or the environment."""
    _GIVEN.set(url)


def typed_here(command: str) -> str:
    """A command of ours as it is to be typed here; others are left as they are."""
    words = command.split(" ", 2)
    if words[0] != "allswell" or (len(words) > 1 and words[1] in STORELESS):
        return command
    flag = _flag()
    if not flag or "--store" in command or "--help" in command:
        return command
    before, sign, behind = command.partition(" -- ")
    return f"{before} {flag}{sign}{behind}"


def in_words(text: str) -> str:
    """A text with every command in backticks as it is to be typed here."""
    return _QUOTED.sub(lambda found: f"`{typed_here(found[1])}`", text) if "`allswell" in text else text


def typed_in(shape: T) -> T:
    """A shape of the engine's, with each command in it as it is to be typed here."""
    return cast("T", _typed_in(shape)) if _flag() else shape


def _typed_in(value: object, name: str = "") -> object:
    if isinstance(value, str):
        return typed_here(value) if name in _FIELDS else value
    if isinstance(value, (tuple, list)):
        return type(value)(_typed_in(one, name) for one in value)
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: _typed_in(one, name) for name, one in found.items()}
        return msgspec.structs.replace(value, **changed)
    return value


def _flag() -> str:
    """What says which store is meant; empty where the folder gives it."""
    given, around = _GIVEN.get(), os.environ.get(VARIABLE)
    url = given or around
    if not url:
        return ""

    if hide(url) != url:
        return f'--store "${VARIABLE}"' if url == around else f"--store {shlex.quote(hide(url))}"
    if url.startswith("sqlite:"):
        from allswell.store.sqlite.paths import locate

        with suppress(Refused):  # it names no file: whoever opens it is told
            url = f"sqlite:///{locate(url)}"  # whoever types it may be somewhere else by then
    return f"--store {shlex.quote(url)}"

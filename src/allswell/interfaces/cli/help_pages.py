"""Help pages: of the whole command line, of the commands that begin with the same word, and of one command.

They are made from the declarations when they are asked for, for the width of the terminal; where nobody looks, for 80
columns or $COLUMNS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from allswell.interfaces.cli.options import Parameter, parameters
from allswell.interfaces.cli.parser import usage
from allswell.interfaces.cli.registry import GROUPS, NAME, OTHER_NAMES, CliCommand, Commands
from allswell.interfaces.cli.rendering import page_width, paint, width_of, wrapped

_INDENT = "  "
_LEFT = 28
"""How wide the left column of a list may be; what is wider stands on a line of its own."""
_EXIT_CODES = (
    "Exit codes: 0 fine, 1 failed, 2 used wrongly, 3 needs a human, 4 lease lost, 5 nothing to claim,"
    " 75 store unavailable, 124 timed out."
)
_TIMES = "TIME is written 90s, 15m or 1h 30m; a bare number is seconds."
Row = tuple[str, str]


def of_all(every: Commands, bare: CliCommand) -> str:
    """The page of the whole command line."""
    parts = [_used(f"{NAME} [OPTIONS] COMMAND …"), *_prose(bare.paragraphs)]
    parts.append(_listed("Options", _options(parameters(bare.function))))
    parts += _grouped(every.named.values())
    others = [f"`{name}` is `{f'{NAME} {ours}'.rstrip()}`" for name, ours in OTHER_NAMES.items()]
    more = [f"`{NAME} COMMAND --help` tells all about a command. Other names: {', '.join(others)}.", _EXIT_CODES]
    parts += [_examples(bare), *_prose(more)]
    return _page(parts)


def of_group(every: Commands, words: Sequence[str]) -> str:
    """The page of the commands that begin with these words."""
    parts = [_used(" ".join([NAME, *words, "COMMAND …"]))]
    parts += _grouped(map(every.get, every.below(words)))
    return _page([*parts, *_prose([f"`{' '.join([NAME, *words, 'COMMAND --help'])}` tells all about a command."])])


def of_one(every: Commands, command: CliCommand) -> str:
    """The page of one command."""
    known = parameters(command.function)
    parts = [_used(usage(command, known)), *_prose(command.paragraphs)]
    parts.append(_listed("Arguments", [(one.metavar, _explained(one)) for one in known if not one.declared.names]))
    parts.append(_listed("Options", _options(known)))
    parts += _grouped(map(every.get, every.below(command.name.split())))
    timed = [_TIMES] if any(one.timed for one in known) else []
    return _page([*parts, *_prose(timed), _examples(command)])


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _used(line: str) -> str:
    first, *more = wrapped(line, page_width() - len("Usage: "))
    return "\n".join([f"{paint('Usage:', 'bold')} {first}", *(" " * len("Usage: ") + rest for rest in more)])


def _prose(paragraphs: Iterable[str]) -> list[str]:
    room = page_width() - len(_INDENT)
    return ["\n".join(_INDENT + line for line in wrapped(text, room)) for text in paragraphs]


def _grouped(commands: Iterable[CliCommand]) -> list[str]:
    found = list(commands)
    left = max((len(one.name) for one in found), default=0)
    rows = {group: [(one.name, one.summary) for one in found if one.group == group] for group in GROUPS}
    return [_listed(group, some, left) for group, some in rows.items()]


def _options(known: Sequence[Parameter]) -> list[Row]:
    rows = [(_names(one), _explained(one)) for one in known if one.declared.names]
    return [*rows, ("-h, --help", "Show this page.")]


def _names(one: Parameter) -> str:
    short = [name for name in one.declared.names if not name.startswith("--")]
    long = [name for name in one.declared.names if name.startswith("--")]
    names = ", ".join([*short, *long]) if short else " " * 4 + ", ".join(long)
    if one.declared.bare is not None:
        return f"{names}[={one.metavar}]"
    return names if one.flag else f"{names} {one.metavar}"


def _explained(one: Parameter) -> str:
    """What its help says, and what else there is to know about its values."""
    default = one.shown_default
    known = [
        one.bounds,
        f"default: {default}" if default else "",
        f"environment: {one.declared.envvar}" if one.declared.envvar else "",
    ]
    more = "; ".join(part for part in known if part)
    return f"{one.declared.help} [{more}]" if more else one.declared.help


def _listed(title: str, rows: Sequence[Row], left: int = 0) -> str:
    """Rows in two columns under a title; nothing where there are none."""
    left = left or min(max((width_of(name) for name, _ in rows), default=0), _LEFT)
    indent = " " * (len(_INDENT) + left + 2)
    lines = [paint(f"{title}:", "bold")] if rows else []
    for name, text in rows:
        first, *more = wrapped(text, page_width() - len(indent))
        if width_of(name) > left:
            lines.append(_INDENT + paint(name, "typed"))
            lines.append(indent + first)
        else:
            lines.append(_INDENT + paint(name, "typed") + " " * (left - width_of(name) + 2) + first)
        lines += [indent + line for line in more]
    return "\n".join(lines)


def _examples(command: CliCommand) -> str:
    """Lines to type, as they are; what is said behind one is quieter, and goes below it where there is no room."""
    if not command.examples:
        return ""
    lines = [paint("Examples:", "bold")]
    for example in command.examples:
        typed, gap, said = re.match(r"(.*?)(\s{2,}|$)(.*)", example).groups()  # type: ignore[union-attr]
        if len(_INDENT) + width_of(example) <= page_width():
            lines.append(_INDENT + typed + gap + paint(said, "dim"))
        else:
            lines += [_INDENT + line for line in wrapped(typed, page_width() - len(_INDENT))]
            lines += [_INDENT * 3 + paint(said, "dim")] if said else []
    return "\n".join(lines)

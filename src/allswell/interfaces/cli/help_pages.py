"""Help pages: of the first day, of all commands, of the commands that begin with the same word, of one, and of a topic.

Those of commands are made from the declarations when they are asked for, for the width of the terminal; without one,
for 80 columns or $COLUMNS. A topic is a page of docs/, which the wheel carries beside this module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.interfaces.cli.options import Parameter, parameters
from allswell.interfaces.cli.parser import usage
from allswell.interfaces.cli.registry import FIRST_DAY, GROUPS, LONGEST, NAME, OTHER_NAMES, CliCommand, Commands
from allswell.interfaces.cli.rendering import cut, page_width, paint, width_of, wrapped

_INDENT = "  "
_LEFT = 28
"""How wide the left column of a list may be; what is wider stands on a line of its own."""
_EXIT_CODES = (
    "Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 needs a human, 4 lease lost, 5 nothing to claim,"
    " 75 store not reachable, 124 timed out."
)
_TIMES = "TIME is written 90s, 15m or 1h 30m; a bare number is seconds."
Row = tuple[str, str]


TOPICS: Mapping[str, tuple[str, str]] = {
    "tutorial": ("tutorial.md", "Ten minutes: a task is rescued."),
    "recipes": ("how-to.md", "How to do this and that."),
    "running": ("run.md", "One command under `allswell run`."),
    "fleet": ("supervisor.md", "Agents under `allswell up`: how they are set up, limits, accounts, prompts."),
    "coding-agents": ("agents.md", "Claude Code and others: plugins for them."),
    "flows": ("flows.md", "Steps that wait for each other, in a YAML file."),
    "flows-python": ("flows-python.md", "The same in Python."),
    "server": ("server.md", "`allswell serve`: the page, HTTP, keys, hooks."),
    "agent-tools": ("mcp.md", "Tools for Claude Code, Codex and other MCP clients."),
    "notifications": ("sinks.md", "Webhooks, alerts and Notion: [sinks.NAME]."),
    "requests": ("mesh.md", "Agents that ask other agents."),
    "builds": ("builds.md", "Agents in a chat that build a project together."),
    "queues": ("worker.md", "Handlers for messages of a PostgreSQL queue."),
    "limits": ("check.md", "Limits that contradict each other, found before anything runs."),
    "deadlines": ("scopes.md", "Deadlines in Python."),
    "guards": ("guards.md", "Retries and circuit breakers in Python."),
    "snapshots": ("snapshots.md", "How uncommitted work is kept."),
    "processes": ("processes.md", "How a command is really ended."),
    "states": ("states.md", "The states of a task."),
    "settings": ("reference/settings.md", "Every setting of allswell.toml."),
    "event-kinds": ("reference/events.md", "Every kind of event."),
    "errors": ("reference/errors.md", "Every error, and what to do about it."),
    "security": ("threat-model.md", "What an agent or another user can and cannot do."),
    "glossary": ("glossary.md", "What the words mean."),
}
"""Pages that `allswell help TOPIC` shows: the file below docs/, and what it is about."""
_SHIPPED = Path(__file__).with_name("docs")
_IN_TREE = Path(__file__).parents[4] / "docs"


def asked_for(every: Commands, bare: CliCommand, words: Sequence[str]) -> str | None:
    """What `allswell help WORDS` shows; None where the words name commands, whose own pages are shown then."""
    if not words or words[0].startswith("-"):
        return of_first_day(every, bare)
    if list(words) == ["all"]:
        return of_all(every, bare)
    if list(words) == ["topics"]:
        return _page([_listed("Topics", _topics()), *_prose([f"`{NAME} help TOPIC` shows one."])])
    name = words[0].casefold()
    if every.find(words)[0] is not None or every.below(words[:1]) or name in OTHER_NAMES:
        return None
    if name not in TOPICS:
        near = nearest(name, [*TOPICS, *every.names, "all", "topics"])
        meant = f"; did you mean `{NAME} help {near}`?" if near else ""
        hint = f"`{NAME} help topics` lists topics, `{NAME} help all` commands"
        raise Refused("usage", f"no such topic or command: {cut(name, LONGEST)!r}{meant}", where="TOPIC", hint=hint)
    return of_topic(name)


def of_topic(name: str) -> str:
    """A page of docs/, as it is written; at a terminal, laid out for it."""
    file, _ = TOPICS[name]
    place = _SHIPPED if _SHIPPED.is_dir() else _IN_TREE
    try:
        text = (place / file).read_text(encoding="utf-8")
    except OSError as error:
        raise Refused("no_file", f"the page {file} cannot be read: {error.strerror}", where="TOPIC") from None
    named = {Path(path).name: topic for topic, (path, _) in TOPICS.items()}
    text = re.sub(r"<!--.*?-->\n*", "", text)
    text = re.sub(r"^!\[.*?\]\(.*?\)\n\n?", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"\[([^\]]*)\]\((?![a-z]+://)(?:[\w.-]+/)*([\w.-]*)(?:#[^)]*)?\)",  # to another page, or within this one
        lambda link: _reference(link[1], named.get(link[2])),
        text,
    )
    if not sys.stdout.isatty():
        return text
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(width=page_width(), highlight=False)
    with console.capture() as captured:
        console.print(Markdown(text, hyperlinks=False))
    return captured.get()


def _reference(text: str, topic: str | None) -> str:
    """A link to another page, as a reader at a terminal can follow it."""
    if topic is None:
        return text
    return f"`{NAME} help {topic}`" if text.endswith(".md") else f"{text} (`{NAME} help {topic}`)"


def _topics() -> list[Row]:
    return [(name, about) for name, (_, about) in TOPICS.items()]


def of_first_day(every: Commands, bare: CliCommand) -> str:
    """The page that `allswell --help` shows: what it is, and the commands of the first day."""
    rows = [(name, every.get(name).summary) for name in FIRST_DAY]
    more = (
        f"`{NAME} help all` lists every command, `{NAME} help COMMAND` explains one, `{NAME} help topics` lists guides."
    )
    return _page(
        [
            _used(f"{NAME} [OPTIONS] COMMAND …"),
            *_prose(bare.paragraphs),
            _listed("Commands of the first day", rows),
            _listed("Options", _options(parameters(bare.function))),
            _examples(bare),
            *_prose([more]),
        ]
    )


def of_all(every: Commands, bare: CliCommand) -> str:
    """The page of the whole command line: `allswell help all`."""
    parts = [_used(f"{NAME} [OPTIONS] COMMAND …"), *_prose(bare.paragraphs)]
    parts.append(_listed("Options", _options(parameters(bare.function))))
    parts += _grouped(every.named.values())
    parts.append(_listed("Topics of `allswell help TOPIC`", _topics()))
    others = [f"`{name}` is `{f'{NAME} {ours}'.rstrip()}`" for name, ours in OTHER_NAMES.items()]
    more = [f"`{NAME} COMMAND --help` explains a command. Other names: {', '.join(others)}.", _EXIT_CODES]
    parts += [_examples(bare), *_prose(more)]
    return _page(parts)


def of_group(every: Commands, words: Sequence[str]) -> str:
    """The page of the commands that begin with these words."""
    parts = [_used(" ".join([NAME, *words, "COMMAND …"]))]
    parts += _grouped(map(every.get, every.below(words)))
    return _page([*parts, *_prose([f"`{' '.join([NAME, *words, 'COMMAND --help'])}` explains a command."])])


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

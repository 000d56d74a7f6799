"""`init`, `config`, `doctor`, `trust`: what is set and where, whether all is well, which folders are trusted."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, CliExit, agrees, can_ask, remark, write
from allswell.interfaces.cli.options import Argument, Option, Storeless
from allswell.interfaces.cli.registry import RUNNING, UPKEEP, Commands
from allswell.interfaces.cli.rendering import (
    Column,
    as_json,
    block,
    columns,
    nearer,
    paint,
    pairs,
    plain,
    sentence,
    table,
    typed_in,
    wrapped,
)

if TYPE_CHECKING:
    from allswell.settings import SettingRow, Settings
    from allswell.settings.first_file import KnownAgent
    from allswell.views.checkup import CheckupShape


_STYLES = {"ok": "ready", "wait": "dim", "warn": "warn", "bad": "failed"}
_NAME_WIDTH = 11
_WIDE = 140
"""From this width on, a table has room for descriptions."""


def add_to(app: Commands) -> None:
    """Register the commands of this group."""
    app.add(
        RUNNING,
        "init",
        init,
        "allswell init              asks two questions at most",
        "allswell init --yes        asks nothing",
        "allswell init --dry-run    shows what it would write",
        "allswell init claude       installs the plugin for Claude Code",
        "allswell init codex        installs the plugin for Codex",
    )
    app.add(
        UPKEEP,
        "trust",
        trust,
        "allswell trust                 shows the settings and the store of this folder, and asks",
        "allswell trust --yes           asks nothing: you have read it",
        "allswell trust --below ~/src   all projects there, now and later",
        "allswell trust --remove        takes it back",
        "allswell trust --list          what you trust on this machine",
    )
    app.add(
        UPKEEP,
        "config",
        config,
        "allswell config agent_timeout",
        "allswell config roles.critic",
        "allswell config --schema > allswell.schema.json",
    )
    app.add(UPKEEP, "doctor", doctor)


def config(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Explain one setting, or those of one table.", of=("setting",))
    ] = None,
    *,
    schema: Annotated[bool, Option("--schema", help="Print a JSON Schema for allswell.toml.")] = False,
    context: CliContext,
) -> None:
    """Show every setting with its value, its default and where it comes from."""
    if schema:
        from allswell.settings.schema import schema as made

        write(as_json(made()) + "\n")
        return
    from allswell.settings import look
    from allswell.views.settings import SettingsShape

    settings = look(flags=_flags(context)).without("all", "figures", "agents", "sinks")
    rows = settings.explain() if name is None else _named(settings, name)
    words = _all if name is None else _rows if len(rows) > 1 else _one
    context.say(SettingsShape(rows, settings.files, settings.strangers), lambda: words(settings, rows))


def doctor(*, context: CliContext) -> None:
    """Check everything, and say what to type for each problem.

    Exit code 0: fine, or only waiting; 1: something is broken; 3: a human must act; 75: the store cannot be reached. 1
    wins over 3. `allswell` alone has the same exit codes.
    """
    import asyncio

    from allswell.settings import look
    from allswell.views.checkup import CheckupShape, load_checkup

    settings = look(flags=_flags(context))
    settings.check_trusted()
    if settings.store.startswith("http"):
        found = asyncio.run(context.ask("/doctor", CheckupShape))
    else:
        found = typed_in(asyncio.run(load_checkup(settings.store, settings, context.folder)))
    context.say(found, lambda: _report(found))
    raise CliExit(found.exit)


def _flags(context: CliContext) -> dict[str, str]:
    return {} if context.store is None else {"store": context.store}


# --- settings ---------------------------------------------------------------------------------------------------------


def _named(settings: Settings, name: str) -> list[SettingRow]:
    from allswell.settings.load import hint
    from allswell.settings.schema import PER_ROLE

    rows = settings.explain()
    exact = [row for row in rows if row.name == name] or [row for row in rows if row.name.startswith(f"{name}.")]
    if exact:
        return exact
    for setting in PER_ROLE:  # what a role has not of its own, it inherits
        role = name.removeprefix("roles.").removesuffix(f".{setting}")
        if role and name == f"roles.{role}.{setting}":
            return [settings.explain_one(setting, role)]
    raise Refused("unknown_setting", f"no such setting: {name!r}; {hint(name)}", where=name)


def _one(settings: Settings, rows: Sequence[SettingRow]) -> str:
    from allswell.settings.schema import PER_ROLE

    (row,) = rows
    written = row.shown if row.kind in ("count", "share") and row.value is not None else f'"{row.shown}"'
    bare = re.fullmatch(r"[a-z0-9_]*", row.role)
    place, _, key = row.name.rpartition(".")
    place = place if bare else place.replace(row.role, f'"{row.role}"')
    ways = [f"{key} = {written} in allswell.toml" + (f", below [{place}]" if place else "")]
    if bare:  # a variable's name cannot say every role's
        ways.append(f"or {row.env}={shlex.quote(row.shown)}")
    roles = [settings.explain_one(row.name, role) for role in settings.known_roles() if row.name in PER_ROLE]
    own = [f"{one.name.split('.')[1]} {one.shown}" for one in roles if one.shown != row.shown]
    told = [
        ("", row.description),
        ("from", _origin(row)),
        ("default", row.shown_default),
        ("roles", ", ".join(own)),
        ("set it", "\n".join(map(plain, ways))),
    ]
    return f"{paint(plain(row.name), 'bold')} = {plain(row.shown)}\n{pairs(told)}"


def _all(settings: Settings, rows: Sequence[SettingRow]) -> str:
    store = next(row for row in rows if row.name == "store")
    above = [("store", f"{plain(store.shown)} ({plain(_origin(store))})")]
    above += [("file", plain(nearer(file))) for file in settings.files]
    above += [("note", f"{plain(name)} is not a setting, and is ignored") for name in settings.strangers]
    return f"{pairs(above)}\n\n" + _rows(settings, [row for row in rows if row.name != "store"])


def _rows(_: Settings, rows: Sequence[SettingRow]) -> str:
    """A table; what was set stands out, and a wide terminal has room for what each is for."""
    wide = _width() >= _WIDE
    heads = [Column("setting"), Column("value"), Column("default"), Column("from", 12), Column("what it is for", 20)]
    cells = [(row.name, row.shown, row.shown_default, _origin(row), row.description if wide else "") for row in rows]
    title, *lines = table(heads, cells).splitlines()
    marked = [line if row.source == "default" else paint(line, "bold") for row, line in zip(rows, lines, strict=True)]
    return "\n".join([title, *marked])


def _origin(row: SettingRow) -> str:
    """Where a value comes from, as short as it can be said."""
    return nearer(row.where) if row.where else row.source


# --- the check-up -----------------------------------------------------------------------------------------------------


def _report(found: CheckupShape) -> str:
    indent = " " * (6 + _NAME_WIDTH + 2)
    lines: list[str] = []
    for finding in found.findings:
        room = max(_width() - len(indent), 20)
        first, *rest = wrapped(plain(finding.says), room)
        mark = "wait" if finding.level == "waiting" else finding.verdict
        lines.append(f"{paint(mark.ljust(6), _STYLES[mark])}{finding.title:{_NAME_WIDTH}}  {first}")
        lines += [indent + line for line in rest]
        if finding.next is not None:
            lines.append(f"{indent}→ {paint(plain(finding.next), 'bold')}")
    return "\n".join([*lines, "", found.headline])


def _width() -> int:
    return columns() or 100


# `init`: the first settings of a project, from the agents that are on this machine.

_MOST = 20
"""Of an agent at once; more is for somebody who knows why."""


def init(
    client: Annotated[
        Literal["claude", "codex"] | None,
        Argument(metavar="CLIENT", help="Install the plugin for this program of yours, instead: claude or codex."),
    ] = None,
    *,
    agent: Annotated[
        list[str] | None, Option("--agent", metavar="NAME", help="Only this agent; repeatable. Default: you are asked.")
    ] = None,
    yes: Annotated[
        bool, Option("--yes", "-y", help="Ask nothing: use every agent that is found, one of each.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be written, and write nothing.")] = False,
    tools: Annotated[
        bool, Option("--tools", help="With CLIENT: give all its sessions our tools, to work off the queue.")
    ] = False,
    undo: Annotated[bool, Option("--undo", help="Remove the plugin for CLIENT again.")] = False,
    context: Storeless,
) -> None:
    """Set up this folder: find agents on this machine, and write allswell.toml.

    Each agent gets a working tree of its own for every task, and is ended when it shows no progress for ten minutes.
    Nothing is overwritten. In a git repository the folder .allswell/ is added to .gitignore.

    With CLIENT, the plugin for that program is installed for your user: Allswell hears from its sessions.
    """
    if client is not None:
        _plug_in(context, client, tools=tools, dry_run=dry_run, undo=undo)
        return
    if undo or tools:
        flag = "--undo" if undo else "--tools"
        raise Refused(
            "needs_client", f"{flag} is about a plugin: name its program", where=flag, hint="`allswell init claude`"
        )
    from importlib.util import find_spec

    from allswell.runtime.workspace.git import find_top, head_of
    from allswell.settings import first_file
    from allswell.settings.trust import trust_file
    from allswell.views.commands import InitShape

    here = Path.cwd()
    first_file.check_place(here)
    top = find_top(here.resolve())
    asks = not yes and not context.json and not agent and sys.stdin.isatty() and sys.stdout.isatty()
    found = _chosen(first_file.agents_on(None), agent or [], asks=asks)
    at_once = _how_many() if asks and found else 1
    has_commit = top is not None and head_of(top) is not None
    has_tools = find_spec("mcp") is not None
    text = first_file.written(found, worktree=has_commit, concurrency=at_once, tools=has_tools)
    ignoring = None if top is None or first_file.ignores_state(top) else top / ".gitignore"
    path = here / first_file.NAME
    if not dry_run:
        first_file.write(here, text)
        trust_file(path)
        if ignoring is not None and (why := first_file.ignore_state(ignoring.parent)) is not None:
            remark(f"allswell: {plain(str(ignoring))} is left as it is: {why}; add the line {first_file.IGNORED}")
            ignoring = None
    names = [one.name for one in found]
    added = None if ignoring is None else str(ignoring)
    context.say(InitShape(str(path), names, text, dry_run, added))
    if not context.json:
        _tell(path, names, text, added, dry_run=dry_run)


def _plug_in(context: CliContext, client: str, *, tools: bool, dry_run: bool, undo: bool) -> None:
    """Install the plugin for a program of the user's, or remove it."""
    from allswell.interfaces.plugin.install import install, plan_for, uninstall
    from allswell.views.commands import PluginShape

    plan = plan_for(client, tools=tools)
    changed = not undo
    if not dry_run:
        changed = uninstall(plan) if undo else bool(install(plan) or True)
    path = plain(str(plan.folder))
    lines = [f"{path} is removed" if changed else f"nothing was installed at {path}"]
    if dry_run:
        lines = [f"{path} would be removed"] if undo else [f"{path} would have these files:"]
        lines += [] if undo else [f"\n{name}\n{block(text)}" for name, text in plan.files.items()]
        lines += [f"{plain(shlex.join(command))} would be run" for command in (plan.remove if undo else plan.install)]
    elif not undo:
        lines = [f"{paint('The plugin', 'bold')} is written to {path}: sessions that begin from now on have it"]
        lines += [plan.then] if plan.then else []
        lines += [f"undo: allswell init {client} --undo"]
    shape = PluginShape(client, str(plan.folder), {} if undo else plan.files, undo, dry_run, changed)
    context.say(shape, "\n".join(lines))


def _chosen(found: list[KnownAgent], wanted: list[str], *, asks: bool) -> list[KnownAgent]:
    """The agents that are set up: those that were named, or those that were found, or some of them."""
    from allswell.settings.first_file import KNOWN

    if wanted:
        known = {one.name: one for one in KNOWN}
        for name in wanted:
            if name not in known:
                listed = ", ".join(known)
                text = f"--agent: nothing is known of {plain(name)!r}; known are: {listed}"
                raise Refused(
                    "unknown_agent", text, where="--agent", hint="write its entry by hand: `allswell help fleet`"
                )
        return [known[name] for name in dict.fromkeys(wanted)]
    if not asks or len(found) < 2:
        return found
    names = ", ".join(one.name for one in found)
    there = {one.name: one for one in found}
    while True:
        answer = _asked(f"Which agents should take tasks? {names} [all] ").replace(",", " ").split()
        if not answer or answer == ["all"]:
            return found
        if all(name in there for name in answer):
            return [there[name] for name in dict.fromkeys(answer)]
        unknown = " and ".join(plain(name) for name in answer if name not in there)
        write(sentence(f"{unknown} was not found here.") + "\n")


def _how_many() -> int:
    """How many of each at once; asked until it is such a number."""
    while True:
        answer = _asked("How many of each at once? [1] ")
        if not answer:
            return 1
        if answer.isdecimal() and 1 <= int(answer) <= _MOST:
            return int(answer)
        write(f"From 1 to {_MOST}.\n")


def _asked(question: str) -> str:
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline(200).strip()


def _tell(path: Path, names: list[str], text: str, ignored: str | None, *, dry_run: bool) -> None:
    """What was done, and what to type next."""
    if dry_run:
        write(f"{sentence(f'{plain(str(path))} would be:')}\n\n{block(text)}\n")
        if ignored is not None:
            write(f"\n{sentence(f'.allswell/ would be added to {plain(ignored)}')}\n")
        return
    agents = " and ".join(names) if names else "no agent was found on PATH: edit it"
    write(f"{paint('allswell.toml', 'bold')} is written: {agents}\n")
    if ignored is not None:
        write(sentence(f".allswell/ is added to {plain(ignored)}") + "\n")
    nexts = (
        [("allswell check", "check it")]
        if not names
        else [
            ('allswell submit "write the changelog"', "submit a task"),
            ("allswell up", "start the agents; Ctrl-C stops"),
            ("allswell", "what runs, and what needs you"),
        ]
    )
    wide = max(len(command) for command, _ in nexts)
    write("\nNext:\n" + "".join(f"  {paint(command.ljust(wide), 'typed')}  {what}\n" for command, what in nexts))


# `trust`: use settings and a store that came with a folder; and the question about them.

_LINES_MOST = 12
_LINE_MOST = 500


def _folder(name: str) -> Path:
    try:
        here = Path(name).resolve()
        if here.is_dir():
            return here
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links in a circle
        pass
    raise Refused("no_folder", f"{plain(name)} is not a folder", where="FOLDER")


def trust(
    folder: Annotated[str, Argument(metavar="FOLDER", help="The folder. Default: this one.")] = ".",
    *,
    yes: Annotated[bool, Option("--yes", "-y", help="Ask nothing: you have read it.")] = False,
    below: Annotated[bool, Option("--below", help="Trust everything below the folder, now and later.")] = False,
    remove: Annotated[bool, Option("--remove", help="Stop trusting this folder.")] = False,
    listed: Annotated[bool, Option("--list", help="List what you trust, and change nothing.")] = False,
    context: Storeless,
) -> None:
    """Allow the settings and the store that came with a folder.

    A cloned repository can bring an allswell.toml that names commands, or a store with keys of its author. Neither is
    used before you have agreed. Settings are asked about again when what they say has changed, a store when another
    database lies in its place. What `init`, `submit` or `run` make is trusted already. ALLSWELL_TRUST=PATH[:PATH]
    trusts folders with all that lies below them, for CI and services.
    """
    from allswell.settings.trust import distrust, known_paths, trust_folder, waiting_for_trust
    from allswell.views.commands import TrustedShape

    here = _folder(folder)
    if listed:
        paths = known_paths()
        context.say(TrustedShape(paths), "\n".join(map(plain, paths)) or "You have trusted nothing yet.")
        return
    from allswell.runtime.process.identity import is_inside_any

    if is_inside_any():
        text = "`trust` is for humans, and this runs inside an attempt; `allswell ask` asks a human"
        raise Refused("not_human", text, where="trust")
    if remove:
        paths = known_paths(here)
        for path in paths:
            distrust(Path(path))
        context.say(TrustedShape(paths), _told(paths, "is not trusted any more", "Nothing here was trusted."))
        return
    if below:
        agreed = yes or _agrees(here, ["everything below it, now and later"])
        if agreed:
            trust_folder(here)
        paths, waiting = [str(here)] if agreed else [], True
    else:
        waiting = bool(waiting_for_trust(here))
        paths = _trusted(here, asks=not yes)
    otherwise = "Nothing was trusted." if waiting else "Nothing here needs to be trusted."
    context.say(TrustedShape(paths), _told(paths, "is trusted", otherwise))


def _told(paths: Sequence[str], what: str, otherwise: str) -> str:
    return "\n".join(sentence(f"{plain(path)} {what}") for path in paths) or otherwise


def ask_for_trust(here: Path) -> bool:
    """Ask somebody at a terminal about what came with a folder; whether it was trusted."""
    return bool(_trusted(here, asks=True))


def _trusted(here: Path, *, asks: bool) -> list[str]:
    """Trust what waits for it in a folder and above, each after a question if it is to be asked; their paths."""
    from allswell.settings.trust import waiting_for_trust

    agreed = [one for one in waiting_for_trust(here) if not asks or _agrees(one.path, one.says)]
    for one in agreed:
        one.trust()
    return [str(one.path) for one in agreed]


def _agrees(path: Path, lines: Sequence[str]) -> bool:
    if not can_ask():
        text = f"{plain(str(path))} is not trusted yet, and there is no terminal to ask you"
        raise Refused("untrusted", text, where=str(path), hint="read it, then type `allswell trust --yes`")
    remark(
        f"{plain(str(path))} may have come with this folder. It says, among other things:"
        if lines
        else plain(str(path))
    )
    for line in lines[:_LINES_MOST]:
        shown = plain(line)
        more = f" … {len(shown) - _LINE_MOST} more characters" if len(shown) > _LINE_MOST else ""
        remark(f"  {shown[:_LINE_MOST]}{more}")
    if len(lines) > _LINES_MOST:
        remark(f"  and {len(lines) - _LINES_MOST} more lines like these: read the file before you agree")
    return agrees("Trust it?")

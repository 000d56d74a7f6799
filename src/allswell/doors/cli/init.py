"""`init`: the first settings of a project, from the agents that are on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.frame import Frame, remark, write
from allswell.doors.cli.options import Json, Option
from allswell.doors.cli.render import block, paint, plain, sentence
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.settings.first_file import KnownAgent

_MOST = 20
"""Of an agent at once; more is for somebody who knows why."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        RUNNING,
        "init",
        init,
        "allswell init              asks two questions at most",
        "allswell init --yes        asks nothing",
        "allswell init --dry-run    shows what it would write",
    )


def init(
    agent: Annotated[
        list[str] | None, Option("--agent", metavar="NAME", help="Only this one; repeatable. Default: you are asked.")
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Ask nothing: every agent that is found, one of each.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be written, and write nothing.")] = False,
    json: Json = False,
) -> None:
    """Set this folder up: find the agents on this machine, and write allswell.toml.

    Each agent gets a working tree of its own for every task, and is ended when it shows no progress for ten minutes.
    Nothing is overwritten. In a git repository the folder .allswell/ is added to .gitignore.
    """
    from allswell.doors.shapes.first_file import InitShape
    from allswell.runtime.repository import find_top, head_of
    from allswell.settings import first_file

    frame = Frame(None, json=json)
    here = Path.cwd()
    first_file.check_place(here)
    top = find_top(here.resolve())
    asks = not yes and not json and not agent and sys.stdin.isatty() and sys.stdout.isatty()
    found = _chosen(first_file.agents_on(None), agent or [], asks=asks)
    at_once = _how_many() if asks and found else 1
    text = first_file.written(found, worktree=top is not None and head_of(top) is not None, concurrency=at_once)
    ignoring = None if top is None or first_file.ignores_state(top) else top / ".gitignore"
    path = here / first_file.NAME
    if not dry_run:
        first_file.write(here, text)
        if ignoring is not None and (why := first_file.ignore_state(ignoring.parent)) is not None:
            remark(f"allswell: {plain(str(ignoring))} is left as it is: {why}; add the line {first_file.IGNORED}")
            ignoring = None
    names = [one.name for one in found]
    added = None if ignoring is None else str(ignoring)
    frame.say(InitShape(str(path), names, text, dry_run, added))
    if not json:
        _tell(path, names, text, added, dry_run=dry_run)


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
                    "unknown_agent", text, where="--agent", hint="write its entry by hand, see docs/supervisor.md"
                )
        return [known[name] for name in dict.fromkeys(wanted)]
    if not asks or len(found) < 2:
        return found
    names = ", ".join(one.name for one in found)
    there = {one.name: one for one in found}
    while True:
        answer = _asked(f"Which agents shall take tasks? {names} [all] ").replace(",", " ").split()
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
        [("allswell check", "read it once more")]
        if not names
        else [
            ('allswell submit "write the changelog"', "hand work over"),
            ("allswell up", "let the agents take it; Ctrl-C stops"),
            ("allswell", "how things stand"),
        ]
    )
    wide = max(len(command) for command, _ in nexts)
    write("\nNext:\n" + "".join(f"  {paint(command.ljust(wide), 'typed')}  {what}\n" for command, what in nexts))

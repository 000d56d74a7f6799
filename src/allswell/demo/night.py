"""One night: six tasks, three agents, and everything that can go wrong with them in half a minute.

One crashes (kill -9), one hangs (SIGSTOP) and comes back too late, one dawdles past its limit, one call fails, one
needs a human. Every task ends done all the same, once, and what happened can be looked at afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import allswell
from allswell.demo.faces import Face, Lines, Screen
from allswell.demo.fleet import AGENTS, TASKS, Fleet
from allswell.domain.task import ENDS, Attempt
from allswell.engine.explaining.standing import state_of
from allswell.engine.explaining.words import listed

if TYPE_CHECKING:
    from allswell.domain.journal import Entry

LIMIT_SECONDS = 55
_POLICY = allswell.Policy(timeout=5_000, checkpoint_interval=4_000, checkpoint_timeout=1_000)
_WENT = {"lease_lapsed": "went silent", "agent_timeout": "ran past its limit", "asked": "asked, and was answered"}


class NightOutcome(msgspec.Struct, frozen=True):
    """What became of the night."""

    tasks: int
    lost: int
    duplicated: int
    unaccounted: int
    killed: int
    refused: int
    rescued: tuple[str, ...]
    """What was saved, a sentence each."""

    @property
    def well(self) -> bool:
        """Whether nothing was lost, doubled or forgotten."""
        return not (self.lost or self.duplicated or self.unaccounted)

    @property
    def verdict(self) -> str:
        """The night in a sentence."""
        kept = f"lost {self.lost}, duplicated {self.duplicated}, unaccounted for {self.unaccounted}"
        figures = f"{self.tasks} tasks, {len(self.rescued)} rescued, {kept}"
        return f"{'All’s well' if self.well else 'All is not well; please report this'}: {figures}."


def play(keep: str | None = None, *, plain: bool = False, json: bool = False) -> bool:
    """Play the night and tell how it ended, in words or as one JSON document; whether all is well."""
    folder = Path(keep).resolve() if keep else Path(tempfile.mkdtemp(prefix="allswell-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise allswell.Refused("bad_folder", f"{folder} cannot be used: {error.strerror}", where="--keep") from None
    store = folder / f"demo-{time.strftime('%Y%m%d-%H%M%S')}.db"
    url = f"sqlite:///{store}"
    outcome, page = asyncio.run(_play(url, plain=plain, json=json))
    file = store.with_suffix(".html")
    file.write_text(page, encoding="utf-8")
    if json:
        from allswell.doors.shapes.night import NightShape

        told = NightShape(**msgspec.structs.asdict(outcome), well=outcome.well, timeline=str(file), store=url)
        print(msgspec.json.encode(told).decode())
        return outcome.well
    from allswell.doors.cli.ink import prose

    print()
    print("  Rescued:")
    for line in outcome.rescued:
        print(prose(line, indent="    ", further="      "))
    print(f"\n  {outcome.verdict}")
    print(f"\n  The night as a picture:\n    {file.as_uri()}")
    print(f'  Ask about any task, for example:\n    allswell why "fix the flaky test" --store sqlite:///{store}')
    return outcome.well


async def _play(url: str, *, plain: bool, json: bool) -> tuple[NightOutcome, str]:
    from allswell.doors.cli.keys import at_a_terminal, keyboard

    keys: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    face: Face = Lines(quiet=json)
    if at_a_terminal() and not plain and not json:
        from rich.console import Console

        screen = Screen(Console(highlight=False))
        face, keys = screen, keyboard(screen.pressed)
    async with allswell.open(url) as watch:
        with keys, face:
            night = Night(watch, Fleet(url), face)
            await night.pass_by()
        return await _told(night)


class Night:
    """The night as it goes."""

    def __init__(self, watch: allswell.Watch, fleet: Fleet, face: Face) -> None:
        self.watch = watch
        self.fleet = fleet
        self.face = face
        self.names: dict[str, str] = {}
        self.entries: list[Entry] = []

    async def pass_by(self) -> None:
        """Hand the tasks over, let the fleet work, answer what is asked, until everything has ended."""
        tasks = [{"name": name, "payload": {"temper": temper}, "policy": _POLICY} for name, temper in TASKS]
        ids = await self.watch.submit_many(tasks)
        self.names = {id_: name for id_, (name, _) in zip(ids, TASKS, strict=True)}
        try:
            for agent in AGENTS:
                await self.fleet.start(agent)
            until = time.monotonic() + LIMIT_SECONDS
            while time.monotonic() < until:
                await self._hear()
                await self._answer()
                await self.fleet.tend()
                if await self._look():
                    break
                await asyncio.sleep(0.1)
        finally:
            await self.fleet.stop()
        await self._hear()

    async def _hear(self) -> None:
        after = self.entries[-1].position if self.entries else allswell.Position()
        async for entry in self.watch.events(after=after):
            self.entries.append(entry)
            self.face.told(entry, self.names.get(entry.event.task or "", ""), self.entries[0].at)
            if entry.event.kind == "lease_lapsed":
                asyncio.get_running_loop().call_later(1.5, self.fleet.wake)

    async def _answer(self) -> None:
        for question in await self.watch.questions():
            answer = self.face.ask(question)
            if answer is not None:
                await self.watch.answer(question.id, "reply", answer, by="you")

    async def _look(self) -> bool:
        """Show how everything stands; whether it has all ended."""
        rows = [row for id_ in self.names if (row := await self.watch.task(id_)) is not None]
        self.face.show([(state_of(row) or "nowhere", row) for row in rows])
        return all(row.task.state in {end.value for end in ENDS} for row in rows)


async def _told(night: Night) -> tuple[NightOutcome, str]:
    """What became of every task, and the page that shows it."""
    from allswell.doors.cli.timeline import Night as Picture
    from allswell.doors.cli.timeline import page

    watch = night.watch
    rows = [row for id_ in night.names if (row := await watch.task(id_)) is not None]
    attempts = [attempt for id_ in night.names for attempt in await watch.attempts(id_)]
    done = Counter(attempt.task for attempt in attempts if attempt.outcome == "done")
    outcome = NightOutcome(
        len(night.names),
        len(night.names) - sum(row.task.state == "done" for row in rows),
        sum(count - 1 for count in done.values()),
        len(await watch.unaccounted()),
        night.fleet.killed,
        sum(attempt.late is not None for attempt in attempts),
        tuple(_rescued(night.names, attempts)),
    )
    questions = await watch.questions(open_only=False)
    tasks = [row.task for row in rows]
    title = f"One night: {len(tasks)} tasks, {len(AGENTS)} agents"
    picture = Picture(title, outcome.verdict, outcome.well, tasks, attempts, questions, night.entries)
    return outcome, page(picture)


def _rescued(names: dict[str, str], attempts: Sequence[Attempt]) -> list[str]:
    """What would have been lost without a watch, a sentence each."""
    told = []
    for id_, name in names.items():
        mine = [attempt for attempt in attempts if attempt.task == id_]
        if not mine or mine[-1].outcome != "done" or len(mine) == 1:
            continue
        before = [f"{one.agent} {_WENT.get(one.outcome, 'failed')}" for one in mine[:-1]]
        late = " What came back too late was refused, and kept." if any(one.late is not None for one in mine) else ""
        told.append(f"“{name}”: {listed(before)}; {mine[-1].agent} finished it.{late}")
    return told

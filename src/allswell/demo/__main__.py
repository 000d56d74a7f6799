"""Run the demo: `python -m allswell.demo [--keep DIR]`.

Six tasks go to three agents, each a real process. One crashes (kill -9), one hangs (SIGSTOP) and comes back too late,
one dawdles past its limit, one call fails, one needs a human. Every task ends done all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import allswell
from allswell.domain.task import ENDS
from allswell.store.port import Entry

TASKS = (
    ("write the changelog", "honest"),
    ("refactor the parser", "crashes"),
    ("fix the flaky test", "hangs"),
    ("summarise 400 issues", "dawdles"),
    ("call the model", "errs"),
    ("migrate the database", "asks"),
)
AGENTS = ("ada", "bob", "cyd")
ANSWER = "The one in schema public."
LIMIT_SECONDS = 60

_WORDS = {
    "task_submitted": "is on the list",
    "task_claimed": "is held by {agent} (token {token})",
    "task_checked_in": "{agent}: {note}",
    "task_completed": "is done by {agent}",
    "task_retried": "{agent} failed ({message}); next try in {delay_ms} ms",
    "lease_lapsed": "{agent} went silent: its lease is over",
    "agent_timeout": "{agent} reached its limit of {elapsed_ms} ms",
    "task_returned": "is back in the pool ({reason})",
    "task_ready": "can be claimed ({reason})",
    "late_result": "{agent} came back with token {token}: refused, and kept",
    "question_asked": "asks a human: {text}",
    "question_answered": "was answered: {choice}",
}
_MARKS = {
    "task_completed": "✓",
    "lease_lapsed": "✗",
    "agent_timeout": "✗",
    "task_retried": "✗",
    "late_result": "✋",
    "question_asked": "?",
}


class Fleet:
    """The agents' processes; one that dies is started again under the same name."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.killed = 0

    async def start(self, name: str) -> None:
        """Start an agent."""
        command = [sys.executable, "-m", "allswell.demo.agent", self._url, name]
        quiet = asyncio.subprocess.DEVNULL
        self._running[name] = await asyncio.create_subprocess_exec(*command, stdin=quiet, stderr=quiet)

    async def tend(self) -> None:
        """Replace agents that died."""
        for name, process in list(self._running.items()):
            if process.returncode is not None:
                self.killed += process.returncode == -signal.SIGKILL
                await self.start(name)

    def wake(self) -> None:
        """Let a stopped agent go on, as a laptop's lid would: it still believes it holds its task."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """End them all."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def say(entry: Entry, started: int, names: dict[allswell.TaskId, str]) -> None:
    """One event as a line."""
    event = entry.event
    words = _WORDS.get(event.kind)
    if words is None or event.task is None:
        return
    text = words.format(agent=event.agent, token=event.token, **event.data)
    mark = _MARKS.get(event.kind, " ")
    print(f"{(entry.at - started) / 1000:6.2f} s  {mark} {names[event.task]:<22} {text}", flush=True)


async def play(url: str) -> int:
    """The night, and the morning after; the exit code says whether all is well."""
    policy = allswell.Policy(timeout=5_000, checkpoint_interval=4_000, checkpoint_timeout=1_000)
    async with allswell.open(url) as watch:
        tasks = [{"name": name, "payload": {"temper": temper}, "policy": policy} for name, temper in TASKS]
        ids = await watch.submit_many(tasks)
        names = {id_: name for id_, (name, _) in zip(ids, TASKS, strict=True)}
        fleet = Fleet(url)
        for agent in AGENTS:
            await fleet.start(agent)
        until = time.monotonic() + LIMIT_SECONDS
        position, started = allswell.Position(), 0
        try:
            while time.monotonic() < until:
                async for entry in watch.events(after=position):
                    position, started = entry.position, started or entry.at
                    say(entry, started, names)
                    if entry.event.kind == "lease_lapsed":
                        asyncio.get_running_loop().call_later(1.5, fleet.wake)
                    if entry.event.kind == "question_asked":
                        question = str(entry.event.data["question"])
                        await asyncio.sleep(1)
                        await watch.answer(question, "reply", ANSWER, by="you")
                await fleet.tend()
                counts = await watch.counts()
                if not counts.keys() - {end.value for end in ENDS}:
                    break
                await asyncio.sleep(0.1)
            return await tell(watch, ids, names, fleet.killed)
        finally:
            await fleet.stop()


async def tell(
    watch: allswell.Watch, ids: list[allswell.TaskId], names: dict[allswell.TaskId, str], killed: int
) -> int:
    """What became of every task."""
    print()
    states = []
    done: Counter[str] = Counter()
    for id_ in ids:
        row = await watch.task(id_)
        attempts = await watch.attempts(id_)
        done.update(attempt.task for attempt in attempts if attempt.outcome == "done")
        state = "lost" if row is None else row.task.state
        states.append(state)
        story = ", ".join(f"{attempt.agent} {attempt.outcome}" for attempt in attempts)
        print(f"  {names[id_]:<22} {state:<6} {story}")
    lost = sum(state != "done" for state in states)
    doubled = sum(count - 1 for count in done.values())
    unaccounted = len(await watch.unaccounted())
    print(f"\n  {len(ids)} tasks, {killed} agent killed; lost {lost}, duplicated {doubled}, unaccounted {unaccounted}.")
    well = not (lost or doubled or unaccounted)
    print("  All's well." if well else "  All is not well: please report this.")
    return 0 if well else 1


def main() -> int:
    """Read the command line and play."""
    options = argparse.ArgumentParser(prog="allswell.demo", description=__doc__)
    options.add_argument("--keep", metavar="DIR", help="keep the store in this folder, to look at it afterwards")
    chosen = options.parse_args()
    if chosen.keep:
        return asyncio.run(play(f"sqlite:///{Path(chosen.keep).resolve() / 'demo.db'}"))
    with tempfile.TemporaryDirectory(prefix="allswell-demo-") as folder:
        return asyncio.run(play(f"sqlite:///{folder}/demo.db"))


if __name__ == "__main__":
    sys.exit(main())

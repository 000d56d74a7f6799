"""A fleet for a while, one agent in five misbehaving, its supervisor killed now and then: what was lost, what is left.

    python -m tests.runtime.supervisor.soak --agents 200 --seconds 300          the full figure (make soak)
    python -m tests.runtime.supervisor.soak --agents 20 --kills 50              kill -9 at random moments

The supervisor is `allswell up` in a process of its own; everything about it is measured from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from allswell import Policy, Watch, make_watch
from allswell.domain.receipts.receipt import receipt_id
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.model import TaskFilter
from allswell.runtime.receipts import StateDir
from allswell.store.sqlite import SqliteStore

STANDIN = Path(__file__).with_name("standin.py")
GOOD = (
    "claude:init,sleep:{0},claude:tool,sleep:{0},claude:result",
    "codex:start,sleep:{0},checkin:half:0.5,sleep:{0},codex:done",
    "plain:working,sleep:{0},plain:done",
)
BAD = (
    "claude:init,hang",
    "spin",
    "crash:1",
    "crash:0",
    "flood:5,crash:2",
    "stubborn,hang",
    "daemon,crash:3",
    "write:half.txt,torn:torn.txt",
    "daemon,stubborn,spin",
)
WELL = ("done", "released", "asked", "parked")
FEW = 20
"""Agents for which tasks take the times below; for more they take longer, so that as many begin in a second."""


def brief(scale: float) -> Policy:
    """Limits that bite within a soak."""
    return Policy(
        timeout=round(6_000 * scale),
        checkpoint_interval=round(2_500 * scale),
        checkpoint_timeout=500,
        timeout_escalation=2,
        recovery_grace=4_000,
        retry=RetryPolicy(backoff=200, retries=1),
    )


def drain(policy: Policy) -> float:
    """Seconds in which whatever misbehaves ends in front of a human, once it has a slot.

    A task that hangs may time out, or be found stalled, each one time less than would ask a human, and once more. Its
    slot is free once others have run out of their time; and nobody is the only one on this machine.
    """
    attempts = 2 * (policy.timeout_escalation - 1) + 1
    return ((attempts + 1) * ((policy.timeout or 0) + policy.recovery_grace)) / 1_000 + 30


LONG = Policy(timeout=600_000, checkpoint_interval=300_000, retry=RetryPolicy(backoff=100, retries=1))


class Found(msgspec.Struct):
    """What a soak came to."""

    agents: int
    seconds: float
    tasks: int = 0
    done: int = 0
    attempts: int = 0
    bad_ends: int = 0
    lost: int = 0
    duplicated: int = 0
    orphans: int = 0
    without_receipt: int = 0
    twice_at_once: int = 0
    unfinished: int = 0
    kills: int = 0
    would_not_stop: bool = False
    """Whether the supervisor had to be killed at the end."""
    memory_mb: float = 0.0
    cpu_share: float = 0.0
    """Of one processor, by the supervisor's own process, all its threads and the kernel's work for it, while all of its
    agents are at work."""
    reapers_share: float = 0.0
    """The same by the warden and its reapers, which are left out above; looked at now and then: at least this."""
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)


def reapers_of(script: str) -> dict[tuple[str, str], float]:
    """Processor seconds of the reapers above those who run a script, and of their warden, by number and start."""
    seen: dict[str, list[str]] = {}
    ours: set[str] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(") ")
                seen[entry.name] = [name, *rest.split()]
                if script in (entry / "cmdline").read_text():
                    ours.add(entry.name)
    reapers = {seen[pid][2] for pid in ours if pid in seen}
    wardens = {seen[pid][2] for pid in reapers if pid in seen}
    tick = os.sysconf("SC_CLK_TCK")
    return {
        (pid, fields[20]): (int(fields[12]) + int(fields[13])) / tick
        for pid, fields in seen.items()
        if pid in reapers | wardens and fields[0].startswith("allswell-")
    }


class Soak:
    """One soak in a folder of its own."""

    def __init__(self, folder: Path, agents: int, seconds: float, kills: int, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.found = Found(agents, seconds)
        self.kills = kills
        self.scale = max(agents / FEW, 1.0)
        self.home = StateDir(folder / ".allswell")
        self.script = folder / f"standin-{os.getpid()}-{seed}.py"
        shutil.copy(STANDIN, self.script)
        command = [sys.executable, "-I", "-S", str(self.script), "{payload}"]
        (folder / "allswell.toml").write_text(
            f"[agents.crew]\ncommand = {json.dumps(command)}\nconcurrency = {agents}\ngrace = 800\n"
            '[fleet]\nstop = "2s"\nlease = "5s"\n'
        )
        self.up: subprocess.Popen[bytes] | None = None
        self._cpu = 0.0
        self._lived = 0.0
        self._all_at_work = (0.0, 0.0)
        """When every agent had its first task, and what the supervisor had spent by then; it has to start, too."""
        self._reapers: dict[tuple[str, str], float] = {}
        self._look_at_reapers = 0.0

    def start(self) -> None:
        """Start the supervisor."""
        with (self.folder / "up.log").open("ab") as log:
            self.up = subprocess.Popen(
                [sys.executable, "-m", "allswell", "up", "--json"],
                cwd=self.folder,
                env={**os.environ, "ALLSWELL_TRUST": str(self.folder)},  # the settings were written just now, by us
                stdout=log,
                stderr=log,
            )
        self._began = time.monotonic()

    def measure(self) -> None:
        """Look at the supervisor's own use."""
        if self.up is None:
            return
        try:
            fields = Path(f"/proc/{self.up.pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{self.up.pid}/status").read_text()
        except OSError:
            return
        self._cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self._lived = time.monotonic() - self._began
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        self.found.memory_mb = max(self.found.memory_mb, int(peak.split()[1]) / 1_024)
        if time.monotonic() >= self._look_at_reapers:
            self._look_at_reapers = time.monotonic() + 5
            self._reapers |= reapers_of(str(self.script))

    def running(self) -> Counter[tuple[str, str]]:
        """The tasks that processes of ours are at, with their tokens."""
        seen: Counter[tuple[str, str]] = Counter()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if str(self.script).encode() not in (entry / "cmdline").read_bytes():
                    continue
                env = dict(
                    pair.split(b"=", 1) for pair in (entry / "environ").read_bytes().split(b"\0") if b"=" in pair
                )
            except OSError:
                continue
            seen[env.get(b"ALLSWELL_TASK", b"?").decode(), env.get(b"ALLSWELL_TOKEN", b"?").decode()] += 1
        return seen

    def part(self) -> str:
        """What a task is: one in five misbehaves."""
        if self.chance.random() < 0.2:
            return self.chance.choice(BAD)
        return self.chance.choice(GOOD).format(round(self.chance.uniform(0.2, 2.0) * self.scale, 2))

    async def run(self) -> Found:
        """Feed, disturb, drain, stop, count."""
        (self.folder / ".allswell").mkdir(exist_ok=True)
        store = SqliteStore(self.folder / ".allswell" / "allswell.db")
        async with make_watch(store, sweeping=False) as watch:
            self.start()
            try:
                ids = await (self._killing(watch) if self.kills else self._feeding(watch))
                self._note_shares()
                await self._drained(watch, ids)
            finally:
                self.measure()
                await self._stop()
            await self._count(watch, ids)
        return self.found

    def _note_shares(self) -> None:
        """Since all are at work, and while they are: the drain, with fewer and fewer of them, would make it less."""
        self.measure()
        began, spent = self._all_at_work
        self.found.cpu_share = (self._cpu - spent) / max(self._lived - began, 0.001)
        self.found.reapers_share = sum(self._reapers.values()) / max(self._lived, 0.001)

    async def _feeding(self, watch: Watch) -> list[str]:
        ids: list[str] = []
        end = time.monotonic() + self.found.seconds
        while time.monotonic() < end:
            counts = await watch.counts()
            policy = brief(self.scale)
            wanted = max(self.found.agents // 2 - counts.get("ready", 0), 0)
            if wanted:
                ids += await watch.submit_many(
                    [{"name": f"n{len(ids) + n}", "payload": self.part(), "policy": policy} for n in range(wanted)]
                )
            self.measure()
            if self._all_at_work == (0.0, 0.0) and counts.get("held", 0) >= self.found.agents:
                self._all_at_work = (self._lived, self._cpu)
            await asyncio.sleep(0.5)
        return ids

    async def _killing(self, watch: Watch) -> list[str]:
        """Kill the supervisor at random moments, and look all the time whether anything runs twice."""
        good = [f"claude:init,sleep:{self.chance.uniform(0.1, 1.0):.2f},claude:result" for _ in range(self.kills * 8)]
        tasks = [{"name": f"n{number}", "payload": part, "policy": LONG} for number, part in enumerate(good)]
        ids = [str(id_) for id_ in await watch.submit_many(tasks)]
        for _ in range(self.kills):
            pause = time.monotonic() + self.chance.uniform(0.3, 3.0)
            while time.monotonic() < pause:
                self._check_twice()
                await asyncio.sleep(0.05)
            if self.up is not None:
                self.up.send_signal(signal.SIGKILL)
                self.up.wait()
            self.found.kills += 1
            self.start()
        return ids

    def _check_twice(self) -> None:
        tasks = Counter(task for task, _ in self.running())
        self.found.twice_at_once += sum(1 for count in tasks.values() if count > 1)

    async def _drained(self, watch: Watch, ids: list[str]) -> None:
        """Until every task has ended or waits for a human; as long as that can take, which the policy says."""
        end = time.monotonic() + drain(brief(self.scale))
        while time.monotonic() < end:
            counts = await watch.counts()
            if not any(counts.get(state) for state in ("ready", "held", "delayed")):
                return
            if self.kills:
                self._check_twice()
            self.measure()
            await asyncio.sleep(0.2)

    async def _stop(self) -> None:
        if self.up is not None:
            self.up.send_signal(signal.SIGTERM)
            try:
                self.up.wait(30)
            except subprocess.TimeoutExpired:
                self.up.kill()
                self.up.wait()
                self.found.would_not_stop = True
        end = time.monotonic() + 10
        while self.running() and time.monotonic() < end:
            await asyncio.sleep(0.1)
        self.found.orphans = sum(self.running().values())

    async def _count(self, watch: Watch, ids: list[str]) -> None:
        found = self.found
        found.tasks = len(ids)
        outcomes: Counter[str] = Counter()
        after = ""
        rows = []
        while page := await watch.tasks(TaskFilter(after=after, limit=1_000)):
            rows += page
            after = page[-1].task.id
        known = {row.task.id: row for row in rows}
        for id_ in ids:
            row = known.get(id_)  # type: ignore[call-overload]
            if row is None:
                found.lost += 1
                continue
            found.done += row.task.state == "done"
            if row.task.state == "open" and not row.waits:
                found.unfinished += 1
            for attempt in await watch.attempts(id_):
                found.attempts += 1
                outcomes[attempt.outcome.partition(":")[0]] += 1
                if attempt.outcome not in WELL:
                    found.bad_ends += 1
                    if self.home.receipts.find(receipt_id(attempt.task, attempt.token)) is None:
                        found.without_receipt += 1
        completed: Counter[str] = Counter()
        async for entry in watch.events():
            if entry.event.kind == "task_completed" and entry.event.task is not None:
                completed[entry.event.task] += 1
        found.duplicated = sum(count - 1 for count in completed.values())
        found.outcomes = dict(outcomes)


def soak(folder: Path, *, agents: int, seconds: float = 30, kills: int = 0, seed: int = 1) -> Found:
    """Soak a fleet in a folder."""
    return asyncio.run(Soak(folder, agents, seconds, kills, seed).run())


def main() -> int:
    """From the command line; the exit code says whether everything held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="allswell-soak-") as folder:
        found = soak(Path(folder), **vars(given))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    broken = (found.lost, found.duplicated, found.orphans, found.without_receipt, found.twice_at_once, found.unfinished)
    return 1 if any(broken) or found.would_not_stop or found.memory_mb > 250 else 0


if __name__ == "__main__":
    sys.exit(main())

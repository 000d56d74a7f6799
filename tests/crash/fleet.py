"""The processes of a storm: started, stopped, killed, replaced; and read, to see whether work goes on."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from subprocess import PIPE, Popen, TimeoutExpired
from sys import executable

import msgspec

from allswell.testing.proxy import Proxy
from tests.crash.stormclock import StormClock

ROOT = Path(__file__).parents[2]


class _Told(msgspec.Struct):
    at: int
    fate: str = ""


class Worker:
    """One place in the fleet: a process, and the next one when it was killed."""

    def __init__(self, number: int, url: str, folder: Path, clock: Path, proxy: Proxy | None) -> None:
        self.name = f"w{number}"
        self.proxy = proxy
        self.clock = StormClock(clock)
        self._clock_path = clock
        self._url = url
        self._folder = folder
        self._life = 0
        self._read: dict[Path, int] = {}
        self.stopped = False
        self.process = self._start()

    def _start(self) -> Popen[str]:
        self._life += 1
        name = f"{self.name}-{self._life}"
        history = self._folder / f"{name}.jsonl"
        command = [executable, "-m", "tests.crash.crew", self._url, name, str(history), str(self._clock_path), name]
        with (self._folder / f"{self.name}.log").open("a") as log:
            return Popen(command, stdin=PIPE, stderr=log, text=True, cwd=ROOT)

    def kill(self) -> None:
        """SIGKILL, and a new process in its place."""
        self.process.send_signal(SIGKILL)
        self.process.communicate()
        self.process = self._start()

    def stop(self) -> None:
        """SIGSTOP: from outside it seems dead, from inside no time passes."""
        os.kill(self.process.pid, SIGSTOP)
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, SIGCONT)
        self.stopped = False

    @property
    def at_work(self) -> bool:
        """Whether this very process has had anything acknowledged yet; a fresh one is still starting."""
        history = self._folder / f"{self.name}-{self._life}.jsonl"
        return not self.stopped and history.exists() and b'"fate":"done"' in history.read_bytes()

    def crashed(self) -> str | None:
        """What it said when it ended of its own accord, which it must not."""
        if self.process.poll() is None:
            return None
        said = (self._folder / f"{self.name}.log").read_text()[-2_000:]
        return f"{self.name} ended with {self.process.returncode}: {said}"

    def finish(self, patience: float) -> str | None:
        """Let it finish what it holds; what went wrong, if anything did."""
        try:
            self.process.communicate("stop\n", timeout=patience)
        except TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return f"{self.name} did not come to its end within {patience:g} s"
        return None if self.process.returncode == 0 else self.crashed()

    def acknowledged_after(self, moment: int) -> int | None:
        """When it was first told after this moment that something is done, if it was."""
        for path in sorted(self._folder.glob(f"{self.name}-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + bool(whole)
            for line in whole.split(b"\n") if whole else ():
                told = msgspec.json.decode(line, type=_Told)
                if told.fate == "done" and told.at >= moment:
                    return told.at
        return None


def recovery(workers: Iterable[Worker], moment: int, patience: float) -> dict[str, float | None]:
    """How many seconds after a moment each worker had something acknowledged again; None: not within patience."""
    left = {worker.name: worker for worker in workers}
    took: dict[str, float | None] = dict.fromkeys(left)
    until = time.monotonic() + patience
    while left and time.monotonic() < until:
        for name, worker in list(left.items()):
            at = worker.acknowledged_after(moment)
            if at is not None:
                took[name] = (at - moment) / 1e9
                del left[name]
        time.sleep(0.01)
    return took


def some(chance: random.Random, workers: list[Worker]) -> list[Worker]:
    """One of them, or all."""
    return workers if chance.random() < 0.3 else [chance.choice(workers)]

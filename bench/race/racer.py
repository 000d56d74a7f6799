"""One process of a contestant, spoken to line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from race.entries import Entry

_SCRIPTS = Path(__file__).parent / "contestants"
_PATIENCE = 300.0


class Broken(Exception):
    """A contestant did not answer; its own words are in the message."""


class Racer:
    """A running contestant; its process is gone when the block ends."""

    def __init__(self, entry: Entry, python: Path, place: str, **more: object) -> None:
        self._what = f"{entry.name} ({entry.on})"
        settings = json.dumps({**entry.settings, **more})
        self._process = subprocess.Popen(
            [python, _SCRIPTS / f"{entry.script}_racer.py", place, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # some start workers of their own: all of them end together
        )
        self._errors: list[str] = []
        self._reading = threading.Thread(target=self._read_errors, daemon=True)
        self._reading.start()
        self.hear("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        if kind is None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        self._kill()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.send(do, **arguments)
        return self.hear("took")

    def send(self, do: str, **arguments: object) -> None:
        """Send a command; its answer comes with `hear`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._break()

    def hear(self, key: str, *, patience: float = _PATIENCE) -> dict[str, Any]:
        """The next answer that has this key."""
        assert self._process.stdout is not None
        bell = threading.Timer(patience, self._kill)
        bell.start()
        try:
            for line in self._process.stdout:
                said: dict[str, Any] = json.loads(line)
                if key in said:
                    return said
        finally:
            bell.cancel()
        self._break()
        raise AssertionError

    def end(self) -> None:
        """End it whatever it does: a watcher listens to nobody."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._kill()

    def _kill(self) -> None:
        """SIGKILL whatever is left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _break(self) -> None:
        self._kill()
        self._reading.join(2)
        words = "".join(self._errors[-12:]) or "nothing"
        raise Broken(f"{self._what} broke off and said:\n{words}") from None


def interpreter(entry: Entry, where: Path) -> Path | None:
    """The Python that an entry runs with; None if its packages cannot be had."""
    return Path(sys.executable) if entry.environment is None else entry.environment.python(where)

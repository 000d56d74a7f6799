"""Real commands for the tests of the warden, and a way to find who lives that does not rely on what is tested.

Every process of a tree carries a variable of the test's own, `TAG`; who carries it is looked up in /proc.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from allswell.runtime.process import Handle, WardenCommand, allowed_environment, checked_argv, find_program, start
from tests import patience

ROOT = Path(__file__).parents[3]

IGNORING = "trap '' TERM; sleep 600 & touch ready; while :; do sleep 600; done"
STOPPED = "sleep 600 & kill -STOP $!; (trap '' TERM; touch ready; kill -STOP $$; sleep 600)"
SETSID = "setsid sh -c \"trap '' TERM; touch ready; while :; do sleep 600; done\" & sleep 600"
DOUBLE = "(setsid sh -c \"trap '' TERM; (sleep 600 & exit) & touch ready; while :; do sleep 600; done\" &); sleep 600"
# Thirty-one processes that ignore TERM; and one that is never found where it was, for each forks the next and ends.
BOMB = """
bomb() { trap '' TERM; [ $1 -le 0 ] && exec sleep 600; bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; }
hop() { [ $1 -le 0 ] && exec sleep 600; hop $(($1 - 1)) & }
trap '' TERM; (hop 1500) & bomb 4 & touch ready; while :; do sleep 600; done
"""
KINDS = {"ignoring": IGNORING, "stopped": STOPPED, "setsid": SETSID, "double": DOUBLE, "bomb": BOMB}


@dataclass
class Scene:
    """Commands in a folder; all that they start carries one tag."""

    folder: Path
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    handles: list[Handle] = field(default_factory=list)
    files: ExitStack = field(default_factory=ExitStack)

    def command(
        self, *argv: str, cap: int = 65_536, grace_ms: int = 300, live: tuple[int, int] | None = None
    ) -> WardenCommand:
        env = allowed_environment({"TAG": self.tag})
        words = checked_argv(argv)
        self.stdout, self.stderr = (
            self.files.enter_context(tempfile.TemporaryFile(dir=self.folder))  # noqa: SIM115
            for _ in range(2)
        )
        return WardenCommand(
            argv=words,
            path=find_program(words[0], str(self.folder), env),
            cwd=str(self.folder),
            env=env,
            stdout=self.stdout.fileno(),
            stderr=self.stderr.fileno(),
            live=live,
            cap=cap,
            grace_ms=grace_ms,
        )

    def start(self, *argv: str, cap: int = 65_536, grace_ms: int = 300, live: tuple[int, int] | None = None) -> Handle:
        handle = start(self.command(*argv, cap=cap, grace_ms=grace_ms, live=live))
        self.handles.append(handle)
        return handle

    def shell(self, script: str, *, grace_ms: int = 300) -> Handle:
        """Started, and as far as its `touch ready`, if it has one."""
        handle = self.start("sh", "-c", script, grace_ms=grace_ms)
        if "touch ready" in script:
            until((self.folder / "ready").exists)
            (self.folder / "ready").unlink()
        return handle

    def living(self) -> list[int]:
        return tagged(self.tag)


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    made = Scene(folder)
    with made.files:
        yield made
        for handle in made.handles:
            handle.close()


@contextmanager
def hanging(folder: Path) -> Iterator[Path]:
    """A program whose start hangs, as on a file server that does not answer: a file lease keeps it from being read.

    Once the lease is given back, the start goes on; the kernel takes it back after 45 seconds.
    """
    program = folder / "hanging"
    program.write_text("#!/bin/sh\necho $$ >> began\nexec sleep 600\n")
    program.chmod(0o755)
    handle = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # which nobody heeds
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield program
    finally:
        os.close(handle)


def tagged(tag: str) -> list[int]:
    """Every process that carries a tag and is no zombie."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            carries = f"TAG={tag}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if carries and state(int(entry.name)) not in "ZX":
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended meanwhile, or is not ours
    return found


def state(pid: int) -> str:
    """The kernel's letter for a process; X if it is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def until(reached: Callable[[], object], seconds: float = patience.SECONDS) -> float:
    """Poll for what other processes do; how long it took."""
    began = time.monotonic()
    while not reached():
        assert time.monotonic() < began + seconds, "it did not happen"
        time.sleep(0.002)
    return time.monotonic() - began


def proportional_kb(pid: int) -> int:
    """The memory of a process, shared pages divided by who shares them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def setting(name: str, usual: int) -> int:
    return int(os.environ.get(name, usual))

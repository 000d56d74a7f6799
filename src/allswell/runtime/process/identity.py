"""What is written down about a process tree, so that a later process can recognise it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from allswell.domain.agents.status import Survivor, short_command
from allswell.runtime.host import boot_id
from allswell.runtime.process.apart.tree import lives, look, read, start_of, state_of

MARKER = "ALLSWELL_MARKER"
"""The variable by which every process of a tree can be known, as long as it is not unset."""


class TreeRecord(msgspec.Struct, frozen=True):
    """One process tree. A number means nothing without the boot, the namespace and the start time beside it."""

    boot_id: str
    pid_namespace: str
    marker: str
    pid: int = 0
    """The command; 0 if it was not known yet."""
    start: int = 0
    """When it started, in clock ticks since boot."""
    reaper: int = 0
    reaper_start: int = 0
    warden: int = 0
    """Who forked the reaper, and gets those below it should it be killed."""
    warden_start: int = 0


def pid_namespace() -> str:
    """What tells our process numbers from those of other containers."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"


def new_record(marker: str) -> TreeRecord:
    """A record of a tree that is about to start."""
    return TreeRecord(boot_id(), pid_namespace(), marker)


# What was seen of a tree while it was watched, and who of it still runs.

_SESSIONS = 10_000
"""How many sessions of one tree are remembered; the oldest are forgotten first."""


class TreeMarks:
    """What was seen of a tree while it was watched."""

    def __init__(self) -> None:
        self._processes: dict[int, int] = {}
        """Start times by number, as of the last look: while the reaper lives, these are all."""
        self._sessions: dict[int, int] = {}
        """Start times of the leaders of its sessions; 0 where the leader was not seen."""

    def see(self, processes: Iterable[tuple[int, int]]) -> None:
        """Note numbers and start times; an empty look says only that no process was left to look for."""
        seen = dict(processes)
        for pid, start in seen.items():
            if self._processes.get(pid) == start:
                continue
            fields = state_of(pid)
            if fields is not None and int(fields[19]) == start:
                session = int(fields[3])
                self._sessions[session] = start_of(session)
        while len(self._sessions) > _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        if seen:
            self._processes = seen

    def fits(self, pid: int, start: int, session: int) -> bool:
        """Whether a process was seen, or is in a session that was.

        The number of a session is given to no other process for as long as a process is in it, so the session is
        another one only if its leader is.
        """
        if self._processes.get(pid) == start:
            return True
        known = self._sessions.get(session)
        if known is None:
            return False
        leader = look(session)
        return leader is None or leader.state in "ZX" or leader.start == known


def survivors_of(pids: Iterable[int], start: int | None = None) -> tuple[Survivor, ...]:
    """Processes with what tells them from others, and their commands; those that are no more are left out.

    With `start`, those too that have started at another moment: they are others with the same number.
    """
    found = []
    for pid in pids:
        seen = look(pid)
        if seen is not None and seen.state not in "ZX" and start in (None, seen.start):
            line = read(f"/proc/{pid}/cmdline").replace(b"\0", b" ") or read(f"/proc/{pid}/comm")
            found.append(Survivor(pid, seen.start, short_command(line.decode("utf-8", "replace"))))
    return tuple(found)


# Whose child a process is, up to the first: how it is known that a caller runs inside an attempt.
#
# A reaper is a subreaper, so a process that is left by its parent (a double fork, a daemon) becomes its child: every
# process that a command started, however, has the reaper above it. Variables can be unset and paths guessed; parents
# cannot be chosen.

_FOLDER = Path(__file__).parent
"""The warden is started with this folder as an argument, and reapers are forks of it (handle.py)."""
_LOOKS = 4
"""Who loses a parent while we look has another one the next time."""


def ancestry(pid: int) -> dict[int, int]:
    """A process and all above it, each with its start time; empty if it is no more."""
    for _ in range(_LOOKS):
        found: dict[int, int] = {}
        above = pid
        while above > 0 and (seen := look(above)) is not None and above not in found:
            found[above] = seen.start
            above = seen.parent
        if above == 0 or pid not in found:  # the first of all has no parent; nor has who came from outside a container
            return found
    return {}


def _is_marked(marker: str) -> bool:
    """Whether we, or a process above us, carry the marker of a tree.

    For a sandbox with process numbers of its own, out of which no parents can be seen.
    """
    sign = f"{MARKER}={marker}".encode()
    return any(sign in read(f"/proc/{one}/environ").split(b"\0") for one in ancestry(os.getpid()))


def is_inside_any() -> bool:
    """Whether this process runs inside an attempt of any store: a reaper of ours, or a marker, is above it."""
    for pid in ancestry(os.getpid()):
        marked = any(one.startswith(f"{MARKER}=".encode()) for one in read(f"/proc/{pid}/environ").split(b"\0"))
        if marked or (pid != os.getpid() and str(_FOLDER).encode() in read(f"/proc/{pid}/cmdline").split(b"\0")):
            return True
    return False


def is_inside(record: TreeRecord, pid: int | None = None) -> bool:
    """Whether a process, or this one, is of the tree that was recorded, and the tree still has its reaper."""
    if not record.reaper or record.boot_id != boot_id():
        return False
    if record.pid_namespace != pid_namespace():
        return pid is None and _is_marked(record.marker)  # its numbers mean something else here
    return ancestry(os.getpid() if pid is None else pid).get(record.reaper) == record.reaper_start


# The holder of a flow: this very process, distinguishable from every other, so that it can be seen whether it has died.
#
# The name of the holder says machine and process number for people, and what makes the number mean anything for us: the
# moment of its start, and a short print of the boot and the pid namespace. A holder of the same boot and namespace
# whose process is not there any more is certainly dead, and its flow can be taken up at once. Of any other holder
# nothing is known from here: its hold must lapse.

_HOLDER = re.compile(r".*:([0-9]+)\.([0-9]+)\.([0-9a-f]{8})", re.DOTALL)
_HOST_MOST = 60


@cache
def _here() -> str:
    """What tells this boot of this machine, and this pid namespace, from all others."""
    return blake2b(f"{boot_id()} {pid_namespace()}".encode(), digest_size=4).hexdigest()


def this_process() -> str:
    """The name under which this process holds flows."""
    host = "".join(letter if letter.isprintable() else "?" for letter in socket.gethostname())[:_HOST_MOST]
    return f"{host}:{os.getpid()}.{start_of(os.getpid())}.{_here()}"


def is_dead(holder: str) -> bool:
    """Whether it is certain that the process of this name is gone."""
    return _runs(holder) is False


def is_alive(holder: str) -> bool:
    """Whether it is certain that the process of this name is there."""
    return _runs(holder) is True


def _runs(holder: str) -> bool | None:
    """Whether a process of this machine is there; None where that cannot be known from here."""
    found = _HOLDER.fullmatch(holder)
    if found is None or found[3] != _here() or pid_namespace() == "unknown":
        return None
    return lives(int(found[1]), int(found[2]))

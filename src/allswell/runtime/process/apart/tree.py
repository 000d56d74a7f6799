"""All processes below a process, and signals that reach every one of them.

A process that leaves its session (`setsid`) or its parent (a double fork) is still below the nearest subreaper, so the
tree is read from the kernel's own lists of children. Such a list may be out of date as soon as it has been read. So a
tree is **frozen** first: all its processes are sent SIGSTOP, again and again until a look finds no new one. A process
with a pending SIGSTOP forks no more (the kernel breaks the fork off), so the last look saw all of them. Before a signal
is sent, the process's start time is checked behind a pidfd, so no other process that has got the number is hit.

A process that was sent SIGSTOP has not stopped yet: it stops when its system call ends, and a big write takes time.
`come_to_rest` waits until all have stopped, for callers that must be sure that nothing is written any more.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

_FREEZES = 40
"""How often a tree that keeps forking is looked at; then those found are signalled, and the caller has to repeat it."""
_LOOK_AGAIN = 0.002
_SHORT = 2_048
"""Bytes. /proc gives whole entries, as many as fit into a page, and none is longer than half a page: a piece that is
shorter than this was the last one."""
_HAS_LISTS = os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - pathlib is as big as all of this


class ProcessSeen(NamedTuple):
    """A process as it was found."""

    state: str
    """A letter of the kernel: R, S, D, T (stopped), Z (zombie) and others."""
    parent: int
    start: int
    """When it started, in clock ticks since boot: with its number, what tells it from all others."""


def read(path: str) -> bytes:
    """A file of /proc, or nothing where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = []
        while piece := os.read(handle, 4_096):
            pieces.append(piece)
            if len(piece) < _SHORT:
                break
        return b"".join(pieces)
    except OSError:  # it ended while we read
        return b""
    finally:
        os.close(handle)


def state_of(pid: int) -> list[bytes] | None:
    """What the kernel says of a process in its `stat`, from the state on; None if it is no more."""
    line = read(f"/proc/{pid}/stat")
    # The name stands in parentheses and may contain anything, spaces and parentheses too.
    return line[line.rindex(b")") + 2 :].split() if line else None


def look(pid: int) -> ProcessSeen | None:
    """A process as it is now; None if it is no more."""
    fields = state_of(pid)
    return None if fields is None else _seen(fields)


def start_of(pid: int) -> int:
    """When a process started; 0 if it is no more."""
    seen = look(pid)
    return 0 if seen is None else seen.start


def lives(pid: int, start: int) -> bool:
    """Whether a process still runs that started at this moment; a zombie does not, nor another with its number."""
    seen = look(pid) if pid else None
    return seen is not None and seen.start == start and seen.state not in "ZX"


def _seen(fields: list[bytes]) -> ProcessSeen:
    return ProcessSeen(fields[0].decode(), int(fields[1]), int(fields[19]))


def below(root: int) -> dict[int, ProcessSeen]:
    """Every process below another, zombies too, parents before their children."""
    return {pid: _seen(fields) for pid, fields in states_below(root).items()}


def states_below(root: int, *, quick: bool = False) -> dict[int, list[bytes]]:
    """The same, with all that the kernel says of each.

    A quick look believes that a process with one thread has got no second one since: good enough to see how things are.
    """
    found: dict[int, list[bytes]] = {}
    level = [(root, 0)]
    lists = None if _HAS_LISTS else _by_parent()
    while level:
        following = []
        for parent, threads in level:
            for pid in _children(parent, threads) if lists is None else lists.get(parent, []):
                fields = state_of(pid)
                # Checked again: since its parent named it, it may have ended, and its number may be somebody else's.
                if fields is not None and pid not in found and ((above := int(fields[1])) == root or above in found):
                    found[pid] = fields
                    following.append((pid, int(fields[17]) if quick else 0))
        level = following
    return found


def threads_of(pid: int, count: int = 0) -> list[str]:
    """The numbers of a process's threads; where there is certainly one, it is its own."""
    if count == 1:
        return [str(pid)]
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []


def _children(pid: int, threads: int) -> list[int]:
    """Whom a process has started; each of its threads has a list of its own."""
    lists = [read(f"/proc/{pid}/task/{thread}/children") for thread in threads_of(pid, threads)]
    return [int(child) for one in lists for child in one.split()]


def _by_parent() -> dict[int, list[int]]:
    """For kernels without those lists: everybody by parent."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        seen = look(int(name)) if name.isdigit() else None
        if seen is not None:
            found.setdefault(seen.parent, []).append(int(name))
    return found


def send(pid: int, start: int, number: int) -> bool:
    """Signal a process, if it is still the one that was seen; returns whether the signal was sent."""
    try:
        handle = os.pidfd_open(pid)
    except AttributeError:  # a Python built for kernels older than 5.3
        handle = -1
    except OSError:
        return False
    try:
        seen = look(pid)
        if seen is None or seen.start != start:
            return False
        if handle == -1:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:  # it has just ended, or belongs to another user
        return False
    finally:
        if handle != -1:
            os.close(handle)
    return True


def freeze(root: int, spared: frozenset[int] = frozenset()) -> dict[int, ProcessSeen]:
    """Send SIGSTOP to all processes below one, except `spared` and those below them; returns them, without zombies."""
    found: dict[int, ProcessSeen] = {}
    told: set[int] = set()
    for _ in range(_FREEZES):
        found = living(root, spared)
        new = [pid for pid in found if pid not in told]
        if not new:  # all were sent SIGSTOP before this look, and none of them forks any more
            break
        for pid in new:
            send(pid, found[pid].start, signal.SIGSTOP)
        told.update(new)
    return found


def come_to_rest(found: dict[int, ProcessSeen], seconds: float) -> dict[int, ProcessSeen]:
    """Wait until processes that were sent SIGSTOP have stopped; returns those that have not ended meanwhile.

    It waits for `seconds` at most, because a process stops only when its wait in the kernel is over: a parent whose
    child was stopped between `vfork` and `exec` waits until that child goes on, and one that writes to a disk that
    hangs waits for the disk.
    """
    end = time.monotonic() + seconds
    while True:
        living = {
            pid: now
            for pid, seen in found.items()
            if (now := look(pid)) is not None and now.start == seen.start and now.state not in "ZX"
        }
        if all(now.state in "Tt" for now in living.values()) or time.monotonic() >= end:
            return living
        time.sleep(_LOOK_AGAIN)


def signal_all(root: int, number: int, spared: frozenset[int] = frozenset()) -> int:
    """Freeze a tree, signal all its processes and let them go on, so that they can obey; returns how many."""
    found = freeze(root, spared)
    for pid, seen in found.items():
        send(pid, seen.start, number)
    if number != signal.SIGKILL:  # which needs no waking
        thaw(found)
    return len(found)


def thaw(found: dict[int, ProcessSeen]) -> None:
    """Continue stopped processes, children first: so no parent that runs again finds a child of its own stopped."""
    for pid, seen in reversed(found.items()):
        send(pid, seen.start, signal.SIGCONT)


def living(root: int, spared: frozenset[int] = frozenset()) -> dict[int, ProcessSeen]:
    """All processes below one, except `spared` and those below them, without zombies."""
    found: dict[int, ProcessSeen] = {}
    left_out = set(spared)
    for pid, seen in below(root).items():
        if pid in left_out or seen.parent in left_out:
            left_out.add(pid)
        elif seen.state not in "ZX":
            found[pid] = seen
    return found

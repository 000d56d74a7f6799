"""What is left of a process tree whose supervisor is gone: found by its record, and ended only where that is certain.

Reapers end their trees when the supervisor dies, so there is nothing left unless somebody killed the reaper and the
warden too. Then the tree is known by the marker in the environment of its processes. A process number alone proves
nothing: it is looked at behind a pidfd, with its start time. Certain are those that carry the marker, and those below
them or below the reaper. Where the number and the start time are right and the marker cannot be seen, or where we would
end ourselves, nothing is signalled: it is reported.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allswell.runtime.boot import boot_id
from allswell.runtime.warden.apart.tree import ProcessSeen, below, look, read, send
from allswell.runtime.warden.record import MARKER, Record, pid_namespace

_KILLING = 5.0
"""Seconds of killing after which those who still live are reported."""
_SWEEP = 0.02


class LeftOver(msgspec.Struct, frozen=True):
    """What is left of a tree."""

    processes: tuple[int, ...] = ()
    """Those that are certainly of the tree, and live."""
    doubts: tuple[str, ...] = ()
    """What a human should look at; nothing was done about it."""

    @property
    def nothing(self) -> bool:
        """Whether the tree is gone, without a doubt."""
        return not self.processes and not self.doubts


def find_left_over(record: Record) -> LeftOver:
    """Look for what is left; nothing is signalled."""
    found, doubts = _search(record)
    return LeftOver(tuple(found), doubts)


def end_left_over(record: Record, *, grace_ms: int = 5_000, also: Sequence[str] = ()) -> LeftOver:
    """End what is certainly of the tree: TERM, grace, KILL; what is left then, and every doubt.

    `also` are variables that its processes must carry beside the marker, where the record itself may be made up.
    """
    found, doubts = _search(record, also)
    if found and grace_ms > 0:
        for number in (signal.SIGTERM, signal.SIGCONT):
            for pid, seen in found.items():
                send(pid, seen.start, number)
        _wait_for(found, grace_ms / 1_000)
    end = time.monotonic() + _KILLING
    while time.monotonic() < end:
        found, doubts = _search(record, also)
        if not found:
            break
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid, seen in found.items():
                send(pid, seen.start, number)
        _wait_for(found, _SWEEP)
    return LeftOver(tuple(found), doubts)


def _search(record: Record, also: Sequence[str] = ()) -> tuple[dict[int, ProcessSeen], tuple[str, ...]]:
    if record.boot_id != boot_id():
        return {}, ()  # no process outlives its boot
    if record.pid_namespace != pid_namespace():
        text = f"the tree ran in another pid namespace ({record.pid_namespace}), where its numbers mean something else"
        return {}, (f"{text}; look for {MARKER}={record.marker} there",)
    ourselves = _line_of(os.getpid())
    wanted = {f"{MARKER}={record.marker}".encode(), *(variable.encode() for variable in also)}
    certain: dict[int, ProcessSeen] = {}
    doubts: list[str] = []
    for pid in _everybody():
        seen = look(pid)
        if seen is None or seen.state in "ZX":
            continue
        is_reaper = pid == record.reaper and seen.start == record.reaper_start
        if is_reaper and also and not _is_of(pid, wanted):
            doubts.append(f"process {pid} is the reaper of another tree than the one that is looked for")
            continue
        if is_reaper or wanted <= _variables(pid):
            if pid in ourselves:
                doubts.append(f"process {pid} carries the tree's marker, and is this process or one around it")
                continue
            certain.update({pid: seen} if not is_reaper else {})
            certain.update({child: one for child, one in below(pid).items() if one.state not in "ZX"})
    main = look(record.pid) if record.pid and record.pid not in certain else None
    if main is not None and main.start == record.start and main.state not in "ZX" and record.pid not in ourselves:
        text = f"process {record.pid} started when the command did, and does not show the marker {MARKER}"
        doubts.append(f"{text}; it is left alone: look at it (ps -p {record.pid} -f) and end it if it is the one")
    return {pid: seen for pid, seen in certain.items() if pid not in ourselves}, tuple(doubts)


def _everybody() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _variables(pid: int) -> set[bytes]:
    return set(read(f"/proc/{pid}/environ").split(b"\0"))


def _is_of(reaper: int, wanted: set[bytes]) -> bool:
    """Whether a reaper's tree is the one that carries these: somebody in it does, or nobody carries any marker."""
    carried = [_variables(pid) for pid in below(reaper)]
    marked = [one for one in carried if any(variable.startswith(f"{MARKER}=".encode()) for variable in one)]
    return not marked or any(wanted <= one for one in marked)


def _line_of(pid: int) -> set[int]:
    """A process and those it comes from."""
    line: set[int] = set()
    while pid > 0 and pid not in line:
        line.add(pid)
        seen = look(pid)
        pid = 0 if seen is None else seen.parent
    return line


def _wait_for(found: dict[int, ProcessSeen], seconds: float) -> None:
    """Until all of them have ended, at most so long."""
    end = time.monotonic() + seconds
    poll = select.poll()
    handles: list[int] = []
    waiting: set[int] = set()
    try:
        for pid, seen in found.items():
            try:
                handle = os.pidfd_open(pid)
            except OSError:
                continue
            handles.append(handle)
            now = look(pid)
            if now is not None and now.start == seen.start:
                poll.register(handle, select.POLLIN)
                waiting.add(handle)
        while waiting and (left := end - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1_000 + 0.5):
                poll.unregister(handle)
                waiting.discard(handle)
    finally:
        for handle in handles:
            os.close(handle)

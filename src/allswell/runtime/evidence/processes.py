"""A look at a process tree: what each of it has used so far, from /proc."""

from __future__ import annotations

import os

from allswell.domain.evidence import Process
from allswell.runtime.warden.apart.tree import read, state_of, states_below, threads_of

_THREADS = 64
"""Threads of one process that are asked how long they waited."""
_TICK_MS = 1_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10


def look_at(reaper: int) -> dict[tuple[int, int], Process]:
    """Everybody below a reaper, by number and start time; the reaper stands for those it has buried."""
    found: dict[tuple[int, int], Process] = {}
    own = state_of(reaper)
    if own is None:
        return found
    for pid, fields in {reaper: own, **states_below(reaper, quick=True)}.items():
        user, system, ended_user, ended_system = (int(field) * _TICK_MS for field in fields[11:15])
        used = 0 if pid == reaper else user + system + _waited(pid, int(fields[17]))
        written = 0 if pid == reaper else _written(pid)
        found[pid, int(fields[19])] = Process(used, ended_user + ended_system, written)
    return found


def _waited(pid: int, threads: int) -> int:
    """Milliseconds that a process stood in line for a processor: on a busy machine wanting to work is work."""
    lines = [read(f"/proc/{pid}/task/{thread}/schedstat").split() for thread in threads_of(pid, threads)[:_THREADS]]
    return sum(int(fields[1]) for fields in lines if len(fields) > 1) // 1_000_000


def _written(pid: int) -> int:
    """Bytes that a process has written to anything; 0 where the kernel does not tell."""
    for line in read(f"/proc/{pid}/io").split(b"\n"):
        if line.startswith(b"wchar:"):
            return int(line[6:])
    return 0

"""Processor time of a server and all its children, read off /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of_family(pid: int) -> float:
    """Seconds of processor time that a process and its children have used, those already gone included."""
    return (_ticks(pid, ended_children=True) + sum(_ticks(child) for child in _children(pid))) / _TICKS


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def _ticks(pid: int, *, ended_children: bool = False) -> int:
    fields = _stat(pid)
    return sum(map(int, fields[11 : 15 if ended_children else 13]))


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s `stat` from the third on; none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []

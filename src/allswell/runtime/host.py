"""What tells this boot of this machine from all others: moments and process numbers mean nothing beyond it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import TracebackType
from typing import Self

import msgspec

from allswell.domain.duration import Duration
from allswell.domain.scopes import BootId, positive
from allswell.timing.loops import refuse_other_loops


@cache
def boot_id() -> BootId:
    """The kernel's own id of this boot; "here" where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as told:  # noqa: PTH123 - read at every start
            return BootId(told.read().strip())
    except OSError:
        return BootId("here")


# How many files this process may have open: each attempt takes a few, and a shell's usual limit is 1024.
#
# The soft limit is raised to the hard one where a process watches commands or serves connections. What it starts under
# the warden gets the soft limit that we were started with: some programs go through all descriptors up to it, and
# others break with more.

PER_ATTEMPT = 8
"""Descriptors that one attempt takes here: its socket, both streams and their files, its note, its reaper, and one."""
_OTHERS = 64
"""For the store, its listeners, and what is read meanwhile."""
_MOST = 1 << 18
"""What is asked for where there is no hard limit."""

_before: int | None = None


def raise_limit() -> int:
    """Let this process open as many files as it may, however often this is called; how many that is."""
    global _before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if _before is None and wanted > soft != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _before, soft = soft, wanted
    return _MOST if soft == resource.RLIM_INFINITY else soft


def soft_limit_of_commands() -> int:
    """The soft limit for what we start: the one that we were started with; 0: as it is."""
    return _before or 0


def attempts_that_fit() -> tuple[int, int]:
    """How many attempts can run at once beside what is open already, and the limit that says so."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = _MOST if soft == resource.RLIM_INFINITY else soft
    try:
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:
        used = _OTHERS
    return max((soft - used - _OTHERS) // PER_ATTEMPT, 1), soft


# What a supervisor knows stays in its own process.
#
# Its environment and its memory hold keys and the store's password, and Linux lets every process of the same user read
# both in /proc. A supervisor marks itself as one that is not to be dumped: then only root can. The mark ends with the
# next `exec`, so the warden, the reapers and the agents are as readable as ever, which settling what is left of a
# killed supervisor needs. It is for programs of ours alone: a library has no business to change its host.
#
# A process that we start can be read until it has marked itself, and an agent of the same user can end it as often as
# it likes to see it started again. So it begins with nothing that could be a secret (`harmless`), and gets the rest by
# a pipe.

_PR_SET_DUMPABLE = 4
_HARMLESS = frozenset(("HOME", "LANG", "LANGUAGE", "PATH", "TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV"))
_HARMLESS_BEGIN = ("GLIBC_", "LC_", "LD_", "MALLOC_", "PYTHON")


def harmless(environ: Mapping[str, str]) -> dict[str, str]:
    """What of an environment a process must have to start at all: everybody may know it."""
    return {name: value for name, value in environ.items() if name in _HARMLESS or name.startswith(_HARMLESS_BEGIN)}


def packed(environ: Mapping[str, str], *, but: Collection[str] = ()) -> bytes:
    """An environment as it goes through a pipe, whatever bytes are in it."""
    return b"\0".join(os.fsencode(f"{name}={value}") for name, value in environ.items() if name not in but)


def take_over(environment: bytes) -> None:
    """Make an environment that came through a pipe this process's own."""
    for entry in environment.split(b"\0") if environment else ():
        name, _, value = os.fsdecode(entry).partition("=")
        os.environ[name] = value


def keep_to_ourselves() -> None:
    """Let no other process of this user read our environment or our memory; where that cannot be, nothing happens."""
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return  # no Linux: there is no /proc to read it in, either
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


# A thread that notices when an event loop does not turn, and says where it stands.
#
# Deadlines on a loop fire when the loop turns. Code that blocks it (a sync call, a long computation) makes all of them
# late, and nothing on the loop can tell. So a thread beside it asks now and then for a sign of life, and reports once
# for every time that none comes within the limit, with the stack of the thread that is stuck. It costs the loop one
# callback per half of the limit. It reports and does nothing else: a blocked thread cannot be interrupted.

log = logging.getLogger(__name__)


class BlockedLoop(msgspec.Struct, frozen=True):
    """A loop that does not turn."""

    seconds: float
    """For how long it has not, when it was noticed."""
    stack: str
    """Where its thread stands."""


def _warn(found: BlockedLoop) -> None:
    log.warning("the event loop has not turned for %.1f s; its thread stands at\n%s", found.seconds, found.stack)


class LoopWatchdog:
    """`async with LoopWatchdog("1s"): …` reports every time that the loop stands still for so long."""

    def __init__(self, limit: float | Duration = 1_000, *, on_blocked: Callable[[BlockedLoop], None] = _warn) -> None:
        self._limit = positive(limit, where="limit") / 1_000
        self._on_blocked = on_blocked
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("This watchdog was started before; make a new one.")
        refuse_other_loops()
        watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=watched, name="allswell-watchdog", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._answered.set()  # the thread ends at once; nobody waits for it

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._stop.wait(self._limit / 2):
            self._answered.clear()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                return  # the loop is closed
            if not self._answered.wait(self._limit) and not self._stop.is_set():
                self._report(time.monotonic() - asked, thread)
                while not self._answered.wait(self._limit) and not loop.is_closed():
                    pass  # once for each time that it stands still

    def _report(self, seconds: float, thread: int) -> None:
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to see another thread's stack
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(its thread has ended)\n"
        try:
            self._on_blocked(BlockedLoop(seconds, stack))
        except Exception:
            log.exception("what was to be told of a blocked loop failed")

"""What is left of a process tree that its reaper did not see to the end: found by its marks, and ended where certain.

Reapers end their trees on an order and when the supervisor dies, so nothing is left unless the reaper was stopped or
killed. The process that does that usually runs in the tree itself. So the reaper and the warden are continued first:
they do what is still theirs to do. Then the tree is known by

- the marker in the environment of its processes, and those below them or below the reaper;
- what was seen of it while it was watched (`TreeMarks`): numbers with start times, and sessions. Only the supervisor
  that watched has these: they take the place of a marker that was taken away;
- the warden, to which all below a killed reaper come: its children that are no reapers.

A process number alone proves nothing: it is looked at behind a pidfd, with its start time. Where the number and the
start time are right and no mark can be seen, or where we would end ourselves, nothing is signalled: it is reported.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import multiprocessing.util
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.agents.status import Survivor
from allswell.errors import Refused
from allswell.runtime.host import boot_id
from allswell.runtime.process.apart.tree import ProcessSeen, below, lives, living, look, read, send, start_of, state_of
from allswell.runtime.process.identity import MARKER, TreeMarks, TreeRecord, pid_namespace, survivors_of

_KILLING = 5.0
"""Seconds of killing after which those who still live are reported."""
_SWEEP = 0.02
_CALM = 3
"""Looks in a row that must find no process: one that forks and ends, again and again, can be missed by a single
look."""


class LeftoverTree(msgspec.Struct, frozen=True):
    """What is left of a tree."""

    processes: tuple[int, ...] = ()
    """Those that are certainly of the tree, and live."""
    doubts: tuple[str, ...] = ()
    """What a human should look at; nothing was done about it."""
    proven: bool = False
    """Whether the process that inherits all of the tree (its reaper, or the warden) lives and has no children."""

    @property
    def nothing(self) -> bool:
        """Whether the tree is gone, without a doubt."""
        return not self.processes and not self.doubts


def working_in(folder: str, record: TreeRecord) -> tuple[Survivor, ...]:
    """Processes in or below a folder that began after a tree did, and are not ourselves: a remark, and no proof."""
    top, ourselves, found = os.path.realpath(folder), _line_of(os.getpid()), []
    for pid in _everybody():
        try:
            there = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - Path resolves nothing here
        except OSError:
            continue
        seen = look(pid)
        inside = there == top or there.startswith(f"{top}/")
        if inside and pid not in ourselves and seen is not None and seen.start >= record.reaper_start > 0:
            found.append(pid)
    return survivors_of(found)


def wake(record: TreeRecord) -> None:
    """Continue the reaper and the warden of a tree, if they were stopped: only the tree itself would do that."""
    if record.boot_id != boot_id() or record.pid_namespace != pid_namespace():
        return
    for pid, start in ((record.warden, record.warden_start), (record.reaper, record.reaper_start)):
        seen = look(pid) if pid else None
        if seen is not None and seen.state == "T" and seen.start == start:
            send(pid, start, signal.SIGCONT)


def find_left_over(record: TreeRecord) -> LeftoverTree:
    """Look for what is left; nothing is signalled."""
    found, doubts = _search(record)
    return LeftoverTree(tuple(found), doubts, not found and _is_proof(record))


def end_left_over(
    record: TreeRecord, *, grace_ms: int = 5_000, also: Sequence[str] = (), marks: TreeMarks | None = None
) -> LeftoverTree:
    """End what is certainly of the tree: TERM, grace, KILL; what is left then, and every doubt.

    `also` are variables that its processes must carry beside the marker, where the record itself may be made up.
    `marks` are those of a supervisor that has watched the tree itself.
    """
    doubts: tuple[str, ...] = ()

    def search() -> dict[int, ProcessSeen]:
        nonlocal doubts
        wake(record)
        found, doubts = _search(record, also, marks)
        return found

    found = end_found(search, grace_ms=grace_ms)
    return LeftoverTree(tuple(found), doubts, not found and _is_proof(record))


def end_found(search: Callable[[], dict[int, ProcessSeen]], *, grace_ms: int) -> dict[int, ProcessSeen]:
    """End those whom a search finds, however often they fork: TERM, grace, KILL; who is left."""
    found = search()
    if found and grace_ms > 0:
        for number in (signal.SIGTERM, signal.SIGCONT):
            for pid, seen in found.items():
                send(pid, seen.start, number)
        _wait_for(found, grace_ms / 1_000)
    end, calm = time.monotonic() + _KILLING, 0
    while time.monotonic() < end:
        found = search()
        calm = 0 if found else calm + 1
        if calm == _CALM:
            break
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid, seen in found.items():
                send(pid, seen.start, number)
        if found:
            _wait_for(found, _SWEEP)
        else:
            time.sleep(_SWEEP)
    return found


def tagged(variable: str) -> dict[int, str]:
    """The processes whose environment had this variable when they began, and what it said."""
    start = f"{variable}=".encode()
    found = {pid: next((one for one in _variables(pid) if one.startswith(start)), b"") for pid in _everybody()}
    return {pid: said[len(start) :].decode("utf-8", "replace") for pid, said in found.items() if said}


def _search(
    record: TreeRecord, also: Sequence[str] = (), marks: TreeMarks | None = None
) -> tuple[dict[int, ProcessSeen], tuple[str, ...]]:
    if record.boot_id != boot_id():
        return {}, ()  # no process outlives its boot
    if record.pid_namespace != pid_namespace():
        text = f"the tree ran in another pid namespace ({record.pid_namespace}), where its numbers mean something else"
        return {}, (f"{text}; look for {MARKER}={record.marker} there",)
    ourselves = _line_of(os.getpid())
    wanted = {f"{MARKER}={record.marker}".encode(), *(variable.encode() for variable in also)}
    certain: dict[int, ProcessSeen] = {} if marks is None else _orphans(record)
    doubts: list[str] = []
    for pid in _everybody():
        fields = state_of(pid)
        if fields is None or fields[0] in (b"Z", b"X"):
            continue
        seen = ProcessSeen(fields[0].decode(), int(fields[1]), int(fields[19]))
        is_reaper = pid == record.reaper and seen.start == record.reaper_start
        if is_reaper and also and not _is_of(pid, wanted):
            doubts.append(f"process {pid} is the reaper of another tree than the one that is looked for")
            continue
        marked = marks is not None and marks.fits(pid, seen.start, int(fields[3]))
        if is_reaper or marked or wanted <= _variables(pid):
            if pid in ourselves:
                doubts.append(f"process {pid} carries the tree's marker, and is this process or one around it")
                continue
            certain.update({pid: seen} if not is_reaper else {})
            certain.update({child: one for child, one in below(pid).items() if one.state not in "ZX"})
    main = look(record.pid) if record.pid and record.pid not in certain else None
    if main is not None and main.start == record.start and main.state not in "ZX" and record.pid not in ourselves:
        text = f"process {record.pid} started when the command did, and does not show the marker {MARKER}"
        doubts.append(f"{text}; it was not ended: look at it (ps -p {record.pid} -f) and end it if it is the one")
    return {pid: seen for pid, seen in certain.items() if pid not in ourselves}, tuple(doubts)


def _orphans(record: TreeRecord) -> dict[int, ProcessSeen]:
    """The processes that came to the warden because their reaper was killed.

    They are all below it, except the reapers and those below them.

    Reapers are forks of the warden that have never started another program.
    """
    if not lives(record.warden, record.warden_start):
        return {}
    line = read(f"/proc/{record.warden}/cmdline")
    children = [pid for pid, seen in below(record.warden).items() if seen.parent == record.warden]
    reapers = frozenset(pid for pid in children if read(f"/proc/{pid}/cmdline") == line)
    found = living(record.warden, reapers)
    return {pid: seen for pid, seen in found.items() if seen.start >= record.reaper_start}


def _is_proof(record: TreeRecord) -> bool:
    """Whether no process can have escaped its inheritor; asked when none was seen."""
    if record.boot_id != boot_id():
        return True
    if record.pid_namespace != pid_namespace():
        return False
    return lives(record.reaper, record.reaper_start) or lives(record.warden, record.warden_start)


def _everybody() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _variables(pid: int) -> set[bytes]:
    return set(read(f"/proc/{pid}/environ").split(b"\0"))


def _is_of(reaper: int, wanted: set[bytes]) -> bool:
    """Whether a reaper's tree is the one that carries these: a process in it does, or no process carries any marker."""
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


# Processes that a function of Python starts in our own process, found again and ended when its call is over.
#
# A command runs under a reaper, which gets every process of its tree. A function that is called here (a `python` step
# of a flow, an async function as an agent) starts its processes from this process, beside those of every other call. So
# each call has a `Spawner` in effect, and what is started under it is tagged: the process is noted with its start time,
# and its environment names the call (`ALLSWELL_CALL`), which all that it starts inherit. A process that leaves its
# parent or its session is found by that.
#
# Python has no hook that could do this, so a few functions of its standard library are wrapped, once, before the first
# call: `subprocess.Popen` (which `asyncio` uses, too), `os.fork`, `os.posix_spawn`, `os.system` and what
# `multiprocessing` spawns with. Outside of such calls they do what they always do. Threads and thread pools hand the
# tag on.

VARIABLE = "ALLSWELL_CALL"
_SHARED = ("resource_tracker", "forkserver")
"""What `multiprocessing` starts once, for all that follow."""


class Spawner:
    """The processes of one call; it is put into effect with `spawner.set`, which all that the call does inherits."""

    def __init__(self, call: str) -> None:
        """`call` names it, as `<task>.<attempt>`."""
        self._call = call
        self._processes: dict[int, int] = {}
        """Start times by number."""
        self._closed = False

    @functools.cached_property
    def tag(self) -> str:
        """What its processes carry: which call they are of, and of which process, for when that has died."""
        caller = f"{pid_namespace()}.{os.getpid()}.{start_of(os.getpid())}"
        return f"{self._call}.{caller}.{os.urandom(8).hex()}"

    def admit(self) -> None:
        """Refuse another process when the call is over: it would not be ended."""
        if self._closed:
            raise Refused("call_over", "the call that starts this process is over: its time was up", where="process")

    def note(self, pid: int) -> None:
        """Note a process that was started just now."""
        self._processes[pid] = start_of(pid)
        if self._closed:  # it came just now
            end_found(self._living, grace_ms=0)

    def close(self) -> bool:
        """The call is over; whether it has started any process."""
        self._closed = True
        return bool(self._processes)

    def end(self, grace_ms: int) -> tuple[Survivor, ...]:
        """End those that still run: TERM, grace, KILL; who they were. It blocks."""
        left = survivors_of(self._living())
        if left:
            end_found(self._living, grace_ms=grace_ms)
        return left

    def _living(self) -> dict[int, ProcessSeen]:
        marked = (pid for pid, tag in tagged(VARIABLE).items() if tag == self.tag)
        return _with_those_below((*marked, *(pid for pid, start in self._processes.items() if lives(pid, start))))


def end_orphans(grace_ms: int) -> tuple[Survivor, ...]:
    """End what calls have left whose process has died before it could; who they were. It blocks."""
    left = survivors_of(_orphaned_spawns())
    if left:
        end_found(_orphaned_spawns, grace_ms=grace_ms)
    return left


def _orphaned_spawns() -> dict[int, ProcessSeen]:
    orphans = []
    for pid, tag in tagged(VARIABLE).items():
        with contextlib.suppress(ValueError):  # a tag that is not ours
            _, _, space, caller, start, _ = tag.rsplit(".", 5)
            if space == pid_namespace() and not lives(int(caller), int(start)):
                orphans.append(pid)
    return _with_those_below(orphans)


def _with_those_below(pids: Iterable[int]) -> dict[int, ProcessSeen]:
    """These processes and all below them that live, but for this process."""
    every: dict[int, ProcessSeen] = {}
    for pid in pids:
        if (seen := look(pid)) is not None:
            every |= {pid: seen, **below(pid)}
    every.pop(os.getpid(), None)
    return {pid: seen for pid, seen in every.items() if seen.state not in "ZX"}


spawner: contextvars.ContextVar[Spawner | None] = contextvars.ContextVar("allswell_spawner", default=None)


_STARTING = threading.RLock()
"""Held while a program or a copy of this process is started. `Popen` waits until all have closed a pipe that its
program closes by starting: a copy that another thread makes in between would keep it open, and `Popen`, which asyncio
calls in its loop, would wait for as long as the copy lives."""


def _tagged_popen(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: subprocess.Popen[Any], *args: object, **kwargs: object) -> None:  # noqa: N807 - it stands for it
        call = spawner.get()
        if call is None:
            with _STARTING:
                return init(self, *args, **kwargs)
        call.admit()
        bound = signature.bind(self, *args, **kwargs)
        given = bound.arguments.get("env")
        bound.arguments["env"] = {**(os.environ if given is None else given), VARIABLE: call.tag}
        with _STARTING:
            init(*bound.args, **bound.kwargs)
        call.note(self.pid)
        return None

    return __init__


def _tagged(start: Callable[..., int], env_at: int | None = None) -> Callable[..., int]:
    """A function that starts a process and gives its number, or 0 in the new process; `env_at` is its environment."""

    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> int:  # noqa: ANN401 - handed on
        call = spawner.get()
        shared = any(name in str(word) for word in args for name in _SHARED)
        if call is None or shared:
            return start(*args, **kwargs)
        call.admit()
        if env_at is not None and len(args) > env_at:
            args = (*args[:env_at], {**args[env_at], VARIABLE: call.tag}, *args[env_at + 1 :])
        pid = start(*args, **kwargs)
        if pid:
            call.note(pid)
        else:
            _become_its_own(call)
        return pid

    return started


def _forking(fork: Callable[[], int]) -> Callable[[], int]:
    @functools.wraps(fork)
    def forked() -> int:
        with _STARTING:  # the copy gives its own back, too
            return fork()

    return forked


def _become_its_own(call: Spawner) -> None:
    """In a copy of our process: its signals are not our loop's, and what it starts is tagged, too."""
    os.environ[VARIABLE] = call.tag
    with contextlib.suppress(ValueError, OSError):
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _system(system: Callable[[Any], int]) -> Callable[[Any], int]:
    @functools.wraps(system)
    def through_popen(command: Any) -> int:  # noqa: ANN401 - handed on
        if spawner.get() is None:
            return system(command)
        code = subprocess.call(command, shell=True)  # noqa: S602 - it is what `os.system` does
        return -code if code < 0 else code << 8

    return through_popen


def _handing_on(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(start)
    def started(self: threading.Thread) -> None:
        call = spawner.get()
        if call is not None:
            self.run = functools.partial(_in_effect, call, self.run)  # type: ignore[method-assign]
        start(self)

    return started


def _submitted(submit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(submit)
    def submitted(self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return submit(self, _in_effect, spawner.get(), function, *args, **kwargs)

    return submitted


def _in_effect(call: Spawner | None, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    before = spawner.set(call)
    try:
        return function(*args, **kwargs)
    finally:
        spawner.reset(before)


_installing = threading.Lock()
_installed = False


def install() -> None:
    """Wrap what starts processes, once."""
    global _installed  # noqa: PLW0603 - once in a process
    with _installing:
        if _installed:
            return
        _installed = True
        wrapped: list[tuple[object, str, Callable[..., Any]]] = [
            (subprocess.Popen, "__init__", _tagged_popen(subprocess.Popen.__init__)),
            (os, "fork", _tagged(_forking(os.fork))),
            (os, "posix_spawn", _tagged(os.posix_spawn, 2)),
            (os, "posix_spawnp", _tagged(os.posix_spawnp, 2)),
            (os, "system", _system(os.system)),
            (multiprocessing.util, "spawnv_passfds", _tagged(multiprocessing.util.spawnv_passfds)),
            (threading.Thread, "start", _handing_on(threading.Thread.start)),
            (ThreadPoolExecutor, "submit", _submitted(ThreadPoolExecutor.submit)),
        ]
        for holder, name, function in wrapped:
            setattr(holder, name, function)

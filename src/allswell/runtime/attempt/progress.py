"""Gathering an attempt's evidence while it runs: what it says, what it prints, what its processes and its folder show.

Looks are taken a few times within the idle limit, and not more often than they are cheap; those of several attempts
together (`SharedSampler`). Before an attempt is called idle, one more is taken (`look_now`): no verdict is older than
the moment it is given.

While somebody else works in the same folder, it is not looked at: a file does not say who wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

import msgspec

from allswell.domain.agents.conversation import is_noise
from allswell.domain.agents.cost import PRICES, Expense, Price
from allswell.domain.agents.denied import call_in_short
from allswell.domain.agents.evidence import (
    NOT_WORK,
    PROGRESS,
    Evidence,
    EvidenceKind,
    EvidenceState,
    ProcessSample,
    ProviderRefusal,
    TreeSample,
    at_work,
    in_one_folder,
)
from allswell.domain.agents.output import (
    AgentEvent,
    AgentLine,
    CheckpointTold,
    MessageUsage,
    ToolCall,
    ToolCallResult,
    usage_left,
)
from allswell.domain.agents.refusal import PRINTS_PLAIN, UsageLimit, from_plain
from allswell.domain.agents.repetition import Repetition, RepetitionFinder
from allswell.domain.agents.spending import UsageCounter
from allswell.domain.values import start_of
from allswell.errors import Refused, Unavailable
from allswell.runtime.agent_socket import ToolMessage
from allswell.runtime.attempt.launch import LaunchSpec
from allswell.runtime.attempt.output import OutputMultiplexer, OutputReader, StreamEcho, Streams
from allswell.runtime.attempt.record import InFlightRecord, under_way
from allswell.runtime.calls import in_time
from allswell.runtime.host import boot_id
from allswell.runtime.process.apart.tree import lives, read, state_of, states_below, threads_of
from allswell.runtime.process.identity import pid_namespace
from allswell.timing.clock import Clock

# Who else works in the folder of an attempt: what changes there is no proof of progress then
# (`domain.agents.evidence`).
#
# Those of this process are known by name, with the moment at which each came and went, so that one who came and went
# between two looks is not missed. Those of other processes on the same store are found by their notes in flight. What
# an attempt itself has put under watch (an agent that types `allswell run -- make`) is its own work, not a neighbour's.


@dataclass(frozen=True)
class WorkPlace:
    """Where one attempt works, and where it is noted."""

    note: str
    """The name of its note in flight."""
    folder: str
    notes: Path
    """The folder of all the notes of its store."""


def beside(place: WorkPlace, others: Mapping[str, InFlightRecord], tree: Container[int]) -> str | None:
    """One of other processes who works in the same folder, and is not of this attempt's own tree."""
    for name, flight in others.items():
        reaper = 0 if flight.record is None else flight.record.reaper
        if name != place.note and reaper not in tree and in_one_folder(flight.cwd, place.folder):
            return name
    return None


def _elsewhere(notes: Path, but: Container[str]) -> dict[str, InFlightRecord]:
    """Attempts of other processes that are under way; it reads files."""
    return {name: flight for name, flight in under_way(notes, but=but) if _lives(flight)}


def _lives(flight: InFlightRecord) -> bool:
    record = flight.record
    if record is None or record.boot_id != boot_id():
        return False
    if record.pid_namespace != pid_namespace():
        return True  # in a container: its numbers say nothing here, and the note is taken away when it ends
    return lives(record.reaper, record.reaper_start)


# Changes in the work: whether any file of a folder is not as it was at the last look.
#
# Names, sizes and times are compared, level by level and within bounds, so that what lies deep in a huge tree may be
# missed and what lies near the top is not. Ignored files count too: a compiler writes little else. Of git's own files
# only those that a commit or a checkout writes are looked at; what is ours never: neither the store, nor what this
# process itself has open, such as the file that it prints to (`allswell run -- … > log`).
#
# The first look comes when the attempt has begun already. What was written before it is found by its time (`begin`).

MOST = 50_000
"""Files looked at, and folders looked into."""
_NAMES_MOST = 32 << 20
"""Letters of their names, with the folders before them: those of two looks are held in memory."""
_GIT = ("HEAD", "logs/HEAD", "ORIG_HEAD", "MERGE_HEAD")
_STAMPS = 5
"""The clock that files are stamped with, which moves in steps of a few milliseconds: Linux calls it
CLOCK_REALTIME_COARSE, and Python has no name for it. What is stamped with a later step was written later."""

Print = tuple[int, int, int]
"""A file at one moment: when it was changed, its size, and when anything about it was changed, which nobody can set."""
Prints = Mapping[str, Print]
"""The files of a folder at one moment, by name."""


class FolderComparison:
    """One folder, compared with how it was at the last look."""

    def __init__(self, folder: str | os.PathLike[str], most: int = MOST, ours: str | None = None) -> None:
        self.folder = Path(folder)
        self._most = most
        self._ours = ours
        """How the path of a store's files begins: what changes there is not the work of whoever is watched."""
        self._before: Prints | None = None
        self._began: int | None = None

    @property
    def about(self) -> tuple[Path, str | None]:
        """The same for whoever looks at the same: they can share a look."""
        return self.folder, self._ours

    def begin(self) -> None:
        """From this moment on changes count, and none before it: the next look is a first one."""
        self._before = None
        self._began = time.clock_gettime_ns(_STAMPS)

    def changed(self, now: Prints) -> str | None:
        """What has changed since the last look, by name; at the first look, since `begin`. None if nothing has."""
        before, self._before = self._before, now
        if before is now:
            return None
        if before is None:
            began = self._began
            return None if began is None else next((name for name, seen in now.items() if seen[2] > began), None)
        for name, seen in now.items():
            if before.get(name) != seen:
                return name if name in before else f"{name} (new)"
        gone = next((name for name in before if name not in now), None) if len(now) < self._most else None
        return None if gone is None else f"{gone} (gone)"

    def look(self) -> Prints:
        """How the folder is now."""
        found: dict[str, Print] = {}
        open_here = _open_here()
        for name in _GIT:
            self._note(found, f".git/{name}")
        folders, looked, room = deque([""]), 0, _NAMES_MOST
        while folders and len(found) < self._most and looked < self._most and room > 0:
            place, looked = folders.popleft(), looked + 1
            try:
                with os.scandir(self.folder / place) as entries:
                    for entry in entries:
                        name = f"{place}{entry.name}"
                        room -= len(name)
                        if room < 0:
                            break
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in NOT_WORK:
                                folders.append(f"{name}/")
                        elif len(found) < self._most and not (self._ours and entry.path.startswith(self._ours)):
                            seen = entry.stat(follow_symlinks=False)
                            if (seen.st_dev, seen.st_ino) not in open_here:
                                found[name] = (seen.st_mtime_ns, seen.st_size, seen.st_ctime_ns)
            except OSError:
                continue  # it is gone, or not ours to read: neither is progress
        return found

    def _note(self, found: dict[str, Print], name: str) -> None:
        try:
            seen = (self.folder / name).stat()
        except OSError:
            return
        if stat.S_ISREG(seen.st_mode):
            found[name] = (seen.st_mtime_ns, seen.st_size, seen.st_ctime_ns)


def _open_here() -> set[tuple[int, int]]:
    """The files that this process has open: our own output, where it goes to a file, our logs, our store."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - hundreds of numbers, no paths
        try:
            seen = os.fstat(int(name))
        except OSError:
            continue  # it has just been closed
        if stat.S_ISREG(seen.st_mode):
            found.add((seen.st_dev, seen.st_ino))
    return found


# A look at a process tree: what each of it has used so far, from /proc.

_THREADS = 64
"""Threads of one process that are asked how long they waited."""
_TICK_MS = 1_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10


def look_at(reaper: int) -> dict[tuple[int, int], ProcessSample]:
    """Everybody below a reaper, by number and start time; the reaper stands for those it has buried."""
    found: dict[tuple[int, int], ProcessSample] = {}
    own = state_of(reaper)
    if own is None:
        return found
    for pid, fields in {reaper: own, **states_below(reaper, quick=True)}.items():
        user, system, ended_user, ended_system = (int(field) * _TICK_MS for field in fields[11:15])
        used = 0 if pid == reaper else user + system + _waited(pid, int(fields[17]))
        written = 0 if pid == reaper else _written(pid)
        found[pid, int(fields[19])] = ProcessSample(used, ended_user + ended_system, written)
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


# What the attempts of one process share, so that two hundred of them cost little more than twenty.
#
# Evidence is gathered for all of them together: one thread hears what they print (`output.OutputMultiplexer`), one walk
# through
# /proc looks at every tree whose turn it is, and a folder in which several work is looked at once for all of them. Who
# shares a folder with whom is known here, too.

_ON_THE_SECOND = 2.0
"""Seconds between two looks, from which on they are taken on the full second, together with those of others."""
_KEPT = 60.0
"""Seconds after which nobody wants a look any more."""

_NOTES = 1.0
"""Seconds for which it is believed who else is at work on this machine."""

T = TypeVar("T")
Tree = Mapping[tuple[int, int], ProcessSample]


class FolderState(NamedTuple):
    """A folder at one moment."""

    prints: Prints
    took: float
    """Seconds that the look took: whoever looks often should mind it."""


class SharedSampler:
    """Looks for many; made on the loop that they live on."""

    def __init__(self) -> None:
        self.room = OutputMultiplexer()
        self._loop = asyncio.get_running_loop()
        self._wanted: list[tuple[int, asyncio.Future[Tree]]] = []
        self._walking: asyncio.Task[None] | None = None
        self._folders: dict[object, tuple[float, asyncio.Future[FolderState]]] = {}
        """The last look at each folder, with the moment at which it began."""
        self._given_up: dict[object, threading.Event] = {}
        """The last look at each folder that did not answer, and whether it is over by now."""
        self._here: dict[str, WorkPlace] = {}
        """The attempts of this process, by note."""
        self._gone: list[tuple[float, WorkPlace]] = []
        """Those that have ended, with the moment of that, until all others have seen it."""
        self._notes: dict[object, tuple[float, asyncio.Future[dict[str, InFlightRecord]]]] = {}
        """Who else was at work, by the folder of the notes, with the moment at which that was read."""

    def close(self) -> None:
        """Nobody is watched from here any more."""
        self.room.close()

    async def pause(self, seconds: float) -> None:
        """Sleep for about so long, until a moment at which others look, too."""
        now = self._loop.time()
        await asyncio.sleep(seconds if seconds < _ON_THE_SECOND else math.floor(now + seconds) - now)

    async def look_at(self, reaper: int) -> Tree:
        """A process tree; all that are wanted at the same moment are read by one call of a thread."""
        wanted: asyncio.Future[Tree] = self._loop.create_future()
        self._wanted.append((reaper, wanted))
        if self._walking is None or self._walking.done():
            self._walking = self._loop.create_task(self._walk())
        return await wanted

    async def _walk(self) -> None:
        while self._wanted:
            turn, self._wanted = self._wanted, []
            reading = self._loop.run_in_executor(None, _read_all, [reaper for reaper, _ in turn])
            await asyncio.wait([reading])
            for number, (_, wanted) in enumerate(turn):
                if wanted.done():
                    continue  # its attempt has ended meanwhile
                error = reading.exception()
                if error is None:
                    wanted.set_result(reading.result()[number])
                else:
                    wanted.set_exception(error)

    async def look_at_work(self, look: FolderComparison, *, since: float) -> FolderState:
        """A folder as it was at some moment after `since`, on the loop's clock; `Unavailable` if it does not answer."""
        began, seen = self._folders.get(look.about, (-math.inf, None))
        if seen is None or began < since:
            began = self._loop.time()
            self._folders = {about: kept for about, kept in self._folders.items() if kept[0] > began - _KEPT}
            seen = asyncio.ensure_future(self._look_in_time(look))
            seen.add_done_callback(_noticed)
            self._folders[look.about] = (began, seen)
        return await asyncio.shield(seen)  # others may wait for the same

    async def _look_in_time(self, look: FolderComparison) -> FolderState:
        """Look at a folder; not again for as long as a look that was given up is not over."""
        given_up = self._given_up.get(look.about)
        if given_up is not None and not given_up.is_set():
            raise Unavailable(f"the folder {look.folder} does not answer")
        over = threading.Event()
        try:
            return await in_time(partial(_timed, look, over), LOOK_MOST, f"the folder {look.folder}")
        except Unavailable:
            self._given_up[look.about] = over
            raise

    def come(self, place: WorkPlace) -> None:
        """An attempt begins."""
        self._here[place.note] = place

    def leave(self, place: WorkPlace) -> None:
        """An attempt has ended."""
        now = self._loop.time()
        self._here.pop(place.note, None)
        self._gone = [(at, gone) for at, gone in self._gone if at >= now - _KEPT] + [(now, place)]

    async def neighbour(self, place: WorkPlace, tree: Tree, *, since: float) -> str | None:
        """Who works in the same folder as an attempt, or has since then, if anybody."""
        others = [*self._here.values(), *(gone for at, gone in self._gone if at >= since)]
        for other in others:
            if other.note != place.note and in_one_folder(other.folder, place.folder):
                return other.note
        began, notes = self._notes.get(place.notes, (-math.inf, None))
        if notes is None or self._loop.time() - began > _NOTES:
            notes = self._loop.run_in_executor(None, _elsewhere, place.notes, {*self._here})
            self._notes[place.notes] = (self._loop.time(), notes)
        return beside(place, await asyncio.shield(notes), [pid for pid, _ in tree])


def _read_all(reapers: list[int]) -> list[Tree]:
    return [look_at(reaper) for reaper in reapers]


def _noticed(seen: asyncio.Future[FolderState]) -> None:
    """Fetch its error, which asyncio would log otherwise: its waiters may all have been cancelled."""
    if not seen.cancelled():
        seen.exception()


def _timed(look: FolderComparison, over: threading.Event) -> FolderState:
    began = time.monotonic()
    try:
        return FolderState(look.look(), time.monotonic() - began)
    finally:
        over.set()


_QUOTED = 120
"""Characters of a line that are repeated."""
_SETTLE = 0.3
"""Seconds in which a checkpoint that is printed line by line comes to its end."""
_CHECKPOINT_MOST = 16_000
"""Characters of a checkpoint's end that are told."""
_SELDOM = 5.0
"""Seconds between two looks at the processes, at most."""
_OFTEN = 0.1
_WORK_SELDOM = 10.0
_WORK_SHARE = 50
"""A look at the folder may take this fraction of the time between two of them."""
LOOK_MOST = 10.0
"""Seconds for a look at the folder; then it does not answer, or is so large that its files are no evidence."""
_UNANSWERED = 2.0
"""Seconds that such a look counts for: the next one comes so many times `_WORK_SHARE` later."""
_FIRST = 1.0
"""Seconds by which the first look at the folder may be older than the attempt, if somebody else has taken one."""


@cache
def prices_here() -> Mapping[str, Price]:
    """What models cost, with the rows of the settings; they are loaded when a message is first priced."""
    from allswell.settings import look  # what else is wrong with the settings is for others to say

    with contextlib.suppress(Refused):  # the folder has gone
        return look().prices
    return PRICES


class ProgressMonitor:
    """What one attempt has shown so far."""

    def __init__(
        self,
        order: LaunchSpec,
        place: WorkPlace | None,
        clock: Clock,
        tell: Callable[[Evidence], None],
        tower: SharedSampler,
    ) -> None:
        self.standing = EvidenceState(clock.monotonic())
        self.session: tuple[str, str] | None = None
        """The agent's own session, where its protocol names it: dialect and id."""
        spent = order.warmth.spent
        self.meter = UsageCounter(prices_here, {} if spent is None else {order.warmth.session: spent})
        """What it has said of its cost; fed by the threads that read."""
        self._counting = threading.Lock()
        self._counted: Expense | None = None
        self.on_cost: Callable[[], None] | None = None
        """Called when it has said more of it."""
        self.on_tree: Callable[[Iterable[tuple[int, int]]], None] | None = None
        """Called with who is in the tree, by number and start time, after each look at it."""
        self.on_repetition: Callable[[Repetition | None], None] | None = None
        """Called when it goes round in a circle, after each round, and when it does so no more."""
        self.neighbour: str | None = None
        """Who works in the same folder, as of the last look: then files are no evidence."""
        self.streams: Streams | None = None
        """What it prints, once there is anything to print to."""
        self.silence = "it has printed nothing"
        """What is said of it where it has not been heard."""
        self._before_progress = (0, 0)
        """Lines and bytes that had been printed at the last proof of progress."""
        self._speaks = False
        """Whether it has spoken a protocol: then new lines are no evidence."""
        self._listeners = order.listeners
        self._reads_plain = order.listeners is not None or PurePath(order.argv[0]).name in PRINTS_PLAIN
        """Whether what it prints as plain text is listened to: some clients tell only so that they are refused."""
        self._finders: list[RepetitionFinder] = []
        """What finds circles in each of its streams; each is fed by the thread that reads it."""
        self._hook_finder = RepetitionFinder(order.limits.repeats)
        """The same in what a hook of its program reports; it is fed on the loop."""
        self._finders.append(self._hook_finder)
        self._repetition: Repetition | None = None
        self._repetition_accepted = False
        self._checkpoint = ""
        self._settling: asyncio.TimerHandle | None = None
        self._order = order
        self._clock = clock
        self._tell = tell
        self._tower = tower
        self._loop = asyncio.get_running_loop()
        self._place = place
        self._work = None if place is None else FolderComparison(place.folder, ours=order.store)
        self._work_seen = 0.0
        """When the folder was looked at last, on the loop's clock."""
        self._before: TreeSample | None = None
        idle = order.limits.idle
        self._every = _SELDOM if idle is None else min(max(idle / 8_000, _OFTEN), _SELDOM)
        self._work_every = _WORK_SELDOM if idle is None else min(max(idle / 4_000, _OFTEN), _WORK_SELDOM)
        self._looking = asyncio.Lock()

    def reader(self, source: int, echo: StreamEcho | None) -> OutputReader:
        """Reads one stream of it, and tells this monitor."""
        windowed = self._listeners is not None and self._listeners.context_window is not None
        also = (MessageUsage,) if windowed else ()
        said, new_line = partial(self._on_loop, self._hear_line), partial(self._on_loop, self._hear_new_line)
        finder = RepetitionFinder(self._order.limits.repeats)
        self._finders.append(finder)

        def fold(line: AgentLine) -> bool:
            found = finder.found
            for event in line.events:
                finder.hear(event)
            with self._counting:  # the other stream has a thread of its own
                self.meter.hear_line(line)
            return (found is None) is not (finder.found is None)

        return OutputReader(source, echo, said, new_line, plain=self._reads_plain, also=also, fold=fold)

    def _on_loop(self, hear: Callable[[T], None], what: T) -> None:
        """Hand on what a reader's thread has found."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and nobody wants to know any more
            self._loop.call_soon_threadsafe(hear, what)

    def heard(self, sign: EvidenceKind, what: str) -> None:
        """Note something; on the loop."""
        seen = self.standing.as_it_counts(Evidence(sign, self._clock.monotonic(), what[:500]))
        self.standing = self.standing.heard(seen)
        if seen.sign in PROGRESS and self.streams is not None:
            self._before_progress = self.streams.lines, self.streams.printed
        self._tell(seen)

    @property
    def printed_since(self) -> str:
        """What it has printed since its last proof of progress, in words: how many lines, and the last of them."""
        streams = self.streams
        if streams is None or not streams.printed:
            return self.silence
        if streams.speaks:
            words = streams.latest_words
            return streams.open_call or (
                f"the last that it said: “{start_of(words, _QUOTED)}”" if words else "it has said nothing"
            )
        lines, printed, last = streams.lines, streams.printed, streams.latest_words
        quote = f" “{start_of(last, _QUOTED)}”" if last else ""
        lines_before, printed_before = self._before_progress
        if printed == printed_before:
            return f"it has printed nothing since{quote}"
        count = lines - lines_before
        if not count:
            return f"it has printed part of a line since:{quote}"
        return f"it has printed {count:,} line{'' if count == 1 else 's'} since, the last{quote}"

    @property
    def doing(self) -> str:
        """The call of a tool that it has made, and that has brought nothing yet; empty if there is none."""
        return "" if self.streams is None else self.streams.open_call

    def _hear_new_line(self, text: str) -> None:
        refused = self._reads_plain and from_plain(text.encode()) is not None  # which is heard as what it is
        if not self._speaks and not refused and not is_noise(text):
            self.heard(EvidenceKind.LINE, f"“{text[:_QUOTED]}”")

    def _look_for_circles(self) -> None:
        """Have the state say whether it goes round in a circle, as its readers know by now."""
        found = next((finder.found for finder in self._finders if finder.found is not None), None)
        if self._repetition_accepted or found == self._repetition:
            return
        self._repetition = found
        self.standing = self.standing.repeating("" if found is None else found.words)
        if self.on_repetition is not None:
            self.on_repetition(found)

    @property
    def is_done(self) -> bool:
        """Whether its agent has reported that its turn ended well, and has done nothing since."""
        return self.streams is not None and self.streams.is_done

    def accept_repetition(self) -> None:
        """A human lets it go on: what it repeats counts as progress from now on."""
        self._repetition_accepted = True
        self._repetition = None
        self.standing = self.standing.repeating("")

    def _look_at_cost(self) -> None:
        """Have it told that it costs more, if it does."""
        if self.meter.total is not self._counted:
            self._counted = self.meter.total
            if self.on_cost is not None:
                self.on_cost()

    def _hear_line(self, said: AgentLine) -> None:
        self._look_for_circles()
        self._look_at_cost()
        self._speaks = self._speaks or bool(said.what)
        if said.session is not None:
            self.session = (said.dialect, said.session)
        for event in said.events:
            self._hear_event(event)
        if said.progress:
            self.heard(EvidenceKind.PROTOCOL, f"{said.dialect}: {said.what}")

    def hear_hook(self, used: ToolMessage) -> None:
        """A hook of its program reports a call of a tool; where its output is a protocol, that has told it already."""
        if self._speaks:
            return
        try:
            call_input = msgspec.json.decode(used.input)
            shown = call_in_short(used.name, call_input)
        except (msgspec.DecodeError, RecursionError):  # what could just be read may be too deep to show
            call_input, shown = None, used.name
        self._hook_finder.hear(ToolCall(used.call, used.name, call_input))
        self._hook_finder.hear(ToolCallResult(used.call, used.answer, is_error=used.failed))
        self._look_for_circles()
        self.heard(EvidenceKind.PROTOCOL, f"hook: {shown}")

    def _hear_event(self, event: AgentEvent) -> None:
        if isinstance(event, ProviderRefusal):
            self.refused(event)
        elif (listeners := self._listeners) is None:
            return
        elif isinstance(event, UsageLimit):
            listeners.limit(event)
        elif isinstance(event, CheckpointTold):
            self._hear_checkpoint(event.text)
        elif (left := usage_left(event, listeners.context_window)) is not None:
            listeners.usage(left)

    def _hear_checkpoint(self, text: str) -> None:
        """It may be printed line by line: what has come when no more comes is told."""
        self._checkpoint = text[-_CHECKPOINT_MOST:]
        if self._settling is not None:
            self._settling.cancel()
        self._settling = self._loop.call_later(_SETTLE, self._tell_checkpoint)

    def _tell_checkpoint(self) -> None:
        self._settling = None
        text, self._checkpoint = self._checkpoint, ""
        if text and self._listeners is not None:
            self._listeners.checkpoint(text)

    def refused(self, refusal: ProviderRefusal) -> None:
        """The provider has refused, and the client tries again by itself; on the loop."""
        self.standing = self.standing.refused(refusal, self._clock.monotonic())

    def spent(self, more: Expense) -> None:
        """It has said outright what it cost."""
        with self._counting:
            self.meter.add(more)
        self._look_at_cost()

    def begin(self) -> None:
        """The command is about to start: what changes from now on counts."""
        if self._work is not None and self._place is not None:
            self._tower.come(self._place)
            self._work_seen = self._loop.time()
            self._work.begin()

    def end(self) -> None:
        """It is over."""
        if self._settling is not None:
            self._settling.cancel()
            self._tell_checkpoint()
        if self._place is not None:
            self._tower.leave(self._place)

    async def watch(self, reaper: int, streams: Streams) -> None:
        """Look now and then, for as long as the attempt runs."""
        due_work, may_be_old = 0.0, min(self._work_every / 10, _FIRST)
        while True:
            now = self._loop.time()
            took = await self._look(reaper, streams, work_since=now - may_be_old if now >= due_work else None)
            if took is not None:
                due_work = now + max(self._work_every, took * _WORK_SHARE)
                may_be_old = self._work_every / 2
            await self._tower.pause(self._every)

    async def look_now(self, reaper: int, streams: Streams) -> None:
        """One more look at everything, before a verdict."""
        await self._look(reaper, streams, work_since=self._loop.time())

    async def _look(self, reaper: int, streams: Streams, *, work_since: float | None) -> float | None:
        """Look at the processes, and at the folder if wanted; the seconds that a look at the folder took."""
        async with self._looking:
            processes = await self._tower.look_at(reaper)
            if self.on_tree is not None:
                self.on_tree(processes)
            now = TreeSample(self._clock.monotonic(), processes, streams.printed, streams.new)
            streams.asked()
            self._look_for_circles()
            self._look_at_cost()
            before, self._before = self._before, now
            if before is not None:
                if now.printed > before.printed:
                    news = "" if now.new > before.new else ", nothing of it new"
                    self.heard(EvidenceKind.OUTPUT, f"{now.printed - before.printed} bytes{news}")
                working = at_work(before, now, self._order.limits.busy)
                if working is not None:
                    self.heard(EvidenceKind.PROCESS, working)
            return None if work_since is None else await self._look_at_work(work_since)

    async def last_look(self) -> None:
        """A look at the folder alone, when everybody has been stopped: what was written last was progress, too."""
        async with self._looking:
            await self._look_at_work(self._loop.time())

    async def _look_at_work(self, no_older: float) -> float | None:
        """Look at the folder, if it tells anything; the seconds that it took."""
        if self._work is None or self._place is None or self._before is None:
            return None
        since, self._work_seen = self._work_seen, self._loop.time()
        left, self.neighbour = (
            self.neighbour,
            await self._tower.neighbour(self._place, self._before.processes, since=since),
        )
        if left is not None or self.neighbour is not None:  # one who has left may have written until then
            self._work.begin()
            return 0.0
        try:
            seen = await self._tower.look_at_work(self._work, since=no_older)
        except Unavailable:  # which is no evidence; and limits are not judged meanwhile
            return _UNANSWERED
        changed = self._work.changed(seen.prints)
        if changed is not None:
            self.heard(EvidenceKind.WORK, f"{changed} changed" if not changed.endswith(")") else changed)
        return seen.took

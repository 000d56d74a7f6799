"""Settling what a dead supervisor left: the tree is gone or ended, its work kept, and a receipt says so.

Reapers end their trees when the supervisor dies, within the grace; a process that comes sooner helps (`end_left_over`
ends only what is certainly of the tree). A note is believed as far as the store agrees (`disagreement`). Then the
snapshot is taken and the receipt written, as the dead one would have. What follows for the task is the caller's to say:
its lease may still live, or be another's; `give_back` says what is usually meant.

An attempt that had ended, and whose supervisor could not reach the store, is not settled so: its note holds the report
for the store (`outcome.py`), and that is sent.

The process that settles may be killed too. So the note stays, locked, until the caller has said what follows and clears
it; who comes next finds it and does the same again, with the receipt that is there already.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.status import Survivor, Survivors, blocks, named, read_survivors, word_of
from allswell.domain.ids import AgentId, Millis, TaskId, Token, can_name, file_name
from allswell.domain.lease.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.receipts.receipt import End, Receipt, receipt_id
from allswell.domain.receipts.snapshot import SnapshotLimits
from allswell.domain.rules.event import Event
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable
from allswell.runtime.attempt.control import remove
from allswell.runtime.attempt.launch import AttemptOutcome
from allswell.runtime.attempt.outcome import repeat_left
from allswell.runtime.attempt.record import (
    AttemptRecorder,
    FlightFile,
    InFlightRecord,
    note_name,
    under_way,
    unwatched,
    work_folder,
)
from allswell.runtime.attempt.warm import session_in
from allswell.runtime.calls import in_time, wait_in_time
from allswell.runtime.host import boot_id
from allswell.runtime.process import end_left_over, survivors_of
from allswell.runtime.process.apart.tree import lives
from allswell.runtime.process.identity import is_inside, pid_namespace
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.files import read_file, remove_file, write_file
from allswell.store.views import Views
from allswell.timing.clock import Clock, SystemClock

# Whether the note that a dead supervisor left can be believed: the store must know of the attempt, and of its place.
#
# Notes lie in a folder that agents can write to. A note that an agent has made up could have us end foreign processes,
# or copy a foreign folder to where the agent can read it. So before anything is done about a note, what it says is
# compared: with its own name, with the attempts that the store has of its task, and its folder with the places at which
# that task can have been worked on. Processes are compared when they are looked for (`left_over`).
#
# A note that disagrees is left as it is, and reported: it may be of another store that shares our folder, or of agents
# whose settings have changed, and then another process knows more. Receipts lie there too: work goes back only to such
# a place.


class OrphanedTask(msgspec.Struct, frozen=True):
    """What the store knows about a task that a note names."""

    name: str
    holders: dict[Token, AgentId]
    """Who has held it, by token."""
    place: str | None = None
    """Where its payload says that it is worked on."""


class _StoreReply(msgspec.Struct):
    cwd: str = ""


class _Payload(msgspec.Struct):
    """As much as is wanted of what commands and steps of flows carry."""

    run: _StoreReply | str = ""
    folder: str = ""


async def known_of(views: Views, task: TaskId) -> OrphanedTask | None:
    """What the store knows of a task; None: nothing."""
    row = await views.view_task(task) if can_name(task) else None
    if row is None:
        return None
    holders = {past.token: past.agent for past in await views.view_attempts(task)}
    if row.lease is not None:
        holders[row.lease.token] = row.lease.agent
    if row.task.role not in (RUN_ROLE, STEP_ROLE):
        return OrphanedTask(row.task.name, holders)
    payload, _ = await views.view_payload(task)
    return OrphanedTask(row.task.name, holders, _place(payload))


def _place(payload: str | None) -> str | None:
    try:
        said = msgspec.json.decode(payload or "null", type=_Payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return (said.run.cwd if isinstance(said.run, _StoreReply) else said.folder) or None


def disagreement(
    file: str, flight: InFlightRecord, known: OrphanedTask | None, home: StateDir, places: Iterable[str]
) -> str | None:
    """What a note says that cannot be so, as the end of a sentence; None: it may be believed."""
    if file != note_name(flight.task, flight.attempt) or flight.attempt != flight.token:
        return f"is about another attempt than its name says ({flight.task}, attempt {flight.attempt})"
    if flight.record is None and flight.folder is None and not flight.report:
        return None  # nothing had begun: there is nothing to end, nothing to keep, and nothing to tell
    if known is None or flight.token not in known.holders:
        return f"names an attempt that the store does not know ({flight.task}, attempt {flight.attempt})"
    if (flight.name, flight.agent) != (known.name, known.holders[flight.token]):
        return f"names another holder or another task than the store does ({flight.agent}, {flight.name!r})"
    if flight.folder is not None and not is_place(flight.folder, flight.task, known, home, places):
        return f"names {flight.folder}, and this task was not run there, as far as is known"
    return None


def is_place(folder: str, task: TaskId, known: OrphanedTask | None, home: StateDir, places: Iterable[str]) -> bool:
    """Whether a task can have been worked on there: in its worktree, where its payload says, or at one of `places`."""
    there = Path(os.path.realpath(folder))
    own = Path(os.path.realpath(home.folder), home.worktrees.name, file_name(task))  # a link there is not ours
    if own in (there, *there.parents):
        return True
    usual = (*places, *(() if known is None or known.place is None else (known.place,)))
    return any(there in (real, work_folder(real)) for real in (Path(os.path.realpath(place)) for place in usual))


# Processes that still run after their attempt: noted in a file beside the store and in the store, until they are gone.
#
# The file is what keeps a folder from the next attempt on this machine: it is there when the store is away, and after a
# restart. The word in the store (domain/agents/status.py) is what every screen shows, and where a human frees folder
# and slot from any terminal. `reconcile` brings both up to date; a supervisor calls it as long as there are any, and
# every `allswell run` when it begins and when it ends.
#
# Agents can write to that folder, so nothing is ever signalled because of such a file: it is only looked whether the
# process that it names still runs.

_BIGGEST = 1 << 20


def still_running(left: Survivors) -> Survivors:
    """What is left of them now, as far as it can be seen from here: on another machine, what was said last."""
    if left.host != socket.gethostname():
        return left
    if left.boot_id != boot_id():
        return replace(left, processes=())
    if left.pid_namespace != pid_namespace():
        return left
    return replace(left, processes=tuple(one for one in left.processes if lives(one.pid, one.start)))


# --- in files ---------------------------------------------------------------------------------------------------------


def note_survivors(
    home: StateDir, flight: InFlightRecord, processes: tuple[Survivor, ...], clock: Clock | None = None
) -> Survivors:
    """Write down who still runs; what the file could not take, the caller still knows."""
    left = Survivors(
        flight.agent,
        flight.task,
        flight.name,
        flight.attempt,
        socket.gethostname(),
        boot_id(),
        pid_namespace(),
        processes,
        flight.folder or flight.cwd,
        Millis((clock or SystemClock()).wall()),
    )
    with contextlib.suppress(OSError):
        write_file(_path(home, left), msgspec.json.encode(left), make=True)
    return left


def noted(home: StateDir) -> Iterator[tuple[Path, Survivors]]:
    """Everything that is written down, with its file, whether or not it still runs."""
    try:
        paths = sorted(home.survivors.glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            left = read_survivors(read_file(path, _BIGGEST).decode("utf-8", "replace"))
        except OSError:
            continue
        if left is not None:
            yield path, left


def check_folder(home: StateDir, folder: str | os.PathLike[str] | None) -> None:
    """Refuse to begin in a folder in which processes of an earlier attempt still run."""
    if folder is None:
        return
    there = os.path.realpath(folder)
    for _, left in noted(home):
        now = still_running(left)
        if now.keeps and left.folder and os.path.realpath(left.folder) == there:
            raise Refused("survivors", f"the folder is in use: {blocks(now)}", where="folder")


def forget(home: StateDir, left: Survivors) -> None:
    """They are gone, or a human has freed what they keep."""
    with contextlib.suppress(OSError):
        remove_file(_path(home, left))


def _path(home: StateDir, left: Survivors) -> Path:
    return home.survivors / note_name(left.task, left.attempt)


# --- in the store -----------------------------------------------------------------------------------------------------


async def reconcile(watch: Watch, home: StateDir) -> list[Survivors]:
    """Bring files and store up to date; who still keeps a folder and a slot. While the store is away, files count."""
    kept = []
    for _, left in noted(home):
        now = still_running(left)
        try:
            freed = await _told(watch, left, now)
        except AllswellError:
            if now.keeps:
                kept.append(now)
            continue
        if now.keeps and not freed:
            kept.append(now)
        else:
            forget(home, left)
    return kept


async def _told(watch: Watch, left: Survivors, now: Survivors) -> bool:
    """Let the store know how things stand, if it does not; whether a human has freed what they keep."""
    key = word_of(left.holder)
    before = await watch.recall(key)
    known = read_survivors(before)
    same = known is not None and (known.task, known.attempt) == (left.task, left.attempt)
    if same and known is not None and known.freed_by:
        return True
    if (known if same else None) == now or (not same and not now.processes):
        return False
    if await watch.swap(key, before, msgspec.json.encode(now).decode()) and not (same and now.processes):
        kind, data = ("survivors_left", {"folder": now.folder}) if now.processes else ("survivors_gone", {})
        about = {"processes": named(left.processes), **data}
        await watch.notice(Event(kind, TaskId(left.task), None, AgentId(left.holder), data=about))
    return False


_ANSWERS, _ALL_ANSWERS = 10.0, 70.0
"""Seconds in which a folder must say what it is, and in which all of it must have been looked at."""
_LONGEST_GRACE = 60_000
"""Milliseconds that a note can have us wait."""


class OrphanedAttempt(msgspec.Struct, frozen=True):
    """An attempt that a dead supervisor left, settled."""

    flight: InFlightRecord
    receipt: Receipt
    path: Path | None
    note: FlightFile
    doubts: tuple[str, ...] = ()
    """Processes that may be of its tree and were left alone."""

    def clear(self) -> None:
        """What follows has been said: this need not be settled again."""
        self.note.remove()


Left = list[tuple[FlightFile, InFlightRecord]]
"""Notes whose supervisors are gone, locked by us, and what they say."""


async def settle_left(
    watch: Watch, home: StateDir, tell: Callable[[str], None], *, places: Iterable[str] = ()
) -> list[OrphanedAttempt]:
    """Settle what dead supervisors left in a home, as far as the store agrees with it; `tell` hears of the rest.

    `places` are folders in which the caller's agents work. The caller says what follows for each, then clears it.
    """
    believed: Left = []
    left = await asyncio.to_thread(left_behind, home)
    try:
        for note, flight in left:
            doubt = await _doubt(note, flight, await known_of(watch.views, flight.task), home, places)
            if doubt is not None:
                tell(f"nothing was done about {note.path}: it {doubt}; remove it if it is not needed")
                note.close()
            elif not flight.report or not await _repeat(watch, home, note, flight, tell):
                believed.append((note, flight))
    except BaseException:  # the store is away: the next process finds all of them
        for note, _ in left:
            note.close()
        raise
    return await asyncio.to_thread(settle, home, left=believed)


async def repeat_reports(
    watch: Watch, home: StateDir, tell: Callable[[str], None], *, places: Iterable[str] = ()
) -> None:
    """Send the reports that processes which are gone have left for the store; nothing else of theirs is settled."""
    for note, flight in await asyncio.to_thread(_unreported, home):
        try:
            known = await known_of(watch.views, flight.task)
            if await _doubt(note, flight, known, home, places) is None:
                await _repeat(watch, home, note, flight, tell)
        finally:
            note.close()


async def _doubt(
    note: FlightFile, flight: InFlightRecord, known: OrphanedTask | None, home: StateDir, places: Iterable[str]
) -> str | None:
    """What a note says that cannot be so, or cannot be looked at, since its folder does not answer."""
    look = partial(disagreement, note.path.name, flight, known, home, places)
    try:
        return await in_time(look, _ANSWERS, f"the folder {flight.folder}")
    except Unavailable as error:
        return f"cannot be believed: {error.message}"


def _unreported(home: StateDir) -> Left:
    """Notes in a home that hold a report, and whose supervisors are gone; nothing else is locked."""
    names = {name for name, flight in under_way(home.attempts) if flight.report}
    found = ((note, note.read()) for note in (unwatched(home.attempts, names) if names else ()))
    return [(note, flight) for note, flight in found if flight is not None]


async def _repeat(
    watch: Watch, home: StateDir, note: FlightFile, flight: InFlightRecord, tell: Callable[[str], None]
) -> bool:
    """Tell the store what a note holds; whether the attempt is over by that. Its note goes then."""
    held = watch.held(flight.task, flight.token, flight.agent)
    outcome = await repeat_left(held, flight, home)
    if outcome is None:
        return False
    tell(outcome)
    await asyncio.to_thread(_end_tree, flight)
    note.remove()
    return True


def _end_tree(flight: InFlightRecord) -> None:
    """End what is left of the tree of an attempt that has said its last word."""
    if flight.socket is not None:
        remove(Path(flight.socket))
    if flight.record is not None:
        end_left_over(flight.record, grace_ms=min(flight.grace, _LONGEST_GRACE), also=_about(flight))


def _about(flight: InFlightRecord) -> tuple[str, str]:
    """What every process of an attempt has in its environment."""
    return f"ALLSWELL_TASK={flight.task}", f"ALLSWELL_TOKEN={flight.token}"


def left_behind(home: StateDir) -> Left:
    """Every note in a home whose supervisor is gone; those that cannot be read are taken away."""
    found: Left = []
    for note in unwatched(home.attempts):
        flight = note.read()
        if flight is None:
            note.remove()
        else:
            found.append((note, flight))
    return found


def settle(home: StateDir, clock: Clock | None = None, *, left: Left | None = None) -> list[OrphanedAttempt]:
    """Settle these attempts, by default all whose supervisor is gone, without asking whether their notes are true.

    It blocks, for the grace of each and a snapshot. The caller says what follows for each, then clears it.
    """
    clock = clock or SystemClock()
    settled = []
    for note, flight in left_behind(home) if left is None else left:
        if flight.socket is not None:
            remove(Path(flight.socket))
        settled.append(_found(note, flight, home) or _settle(note, flight, home, clock))
    return settled


def _found(note: FlightFile, flight: InFlightRecord, home: StateDir) -> OrphanedAttempt | None:
    """What a process settled that was killed before it could clear it."""
    kept = home.receipts.find(receipt_id(flight.task, flight.attempt))
    if kept is None or kept.receipt.token != flight.token or kept.receipt.partial:
        return None
    return OrphanedAttempt(flight, kept.receipt, kept.path, note)


def _settle(note: FlightFile, flight: InFlightRecord, home: StateDir, clock: Clock) -> OrphanedAttempt:
    doubts: tuple[str, ...] = ()
    survivors: tuple[int, ...] = ()
    keeping = AttemptRecorder(flight, home, SnapshotLimits(timeout=10_000, git_timeout=10_000), clock)
    if flight.record is not None:
        left = end_left_over(flight.record, grace_ms=min(flight.grace, _LONGEST_GRACE), also=_about(flight))
        doubts, survivors = left.doubts, left.processes
        main = flight.record
        keeping.running = survivors_of(survivors) or survivors_of([main.pid], main.start)
        if keeping.running:
            note_survivors(home, flight, keeping.running, clock)
        looks: tuple[tuple[str, Callable[[], None]], ...] = (
            ("snapshot", partial(keeping.keep_work, "its supervisor died")),
            ("baseline", partial(keeping.note_folder, end=True)),
        )
        for about, look in looks:
            try:
                wait_in_time(look, _ALL_ANSWERS, f"the folder {flight.folder}")
            except Unavailable as error:
                keeping.warn(about, f"{error.message}, and was not waited for")
    for number, doubt in enumerate(doubts):
        keeping.warn(f"doubt {number}", doubt)
    began = "while it ran" if flight.record is not None else "before it had started"
    elapsed = max(clock.wall() - flight.began_at, 0)
    session = None if flight.stdout is None else session_in(Path(flight.stdout))
    ended = AttemptOutcome(End.ORPHANED, f"its supervisor died {began}", elapsed=elapsed, session=session)
    receipt = keeping.write(ended, partial=bool(survivors or doubts))
    return OrphanedAttempt(flight, receipt, keeping.path, note, doubts)


async def give_back(watch: Watch, left: OrphanedAttempt) -> bool:
    """Give back what a dead supervisor held, and let the journal know of the receipt.

    Whether there was an attempt at all: who was killed before it had the lease has left a note and nothing else.
    """
    flight, receipt = left.flight, left.receipt
    held = watch.held(flight.task, flight.token, flight.agent)
    try:
        await held.release(receipt.reason)
    except LeaseLost:
        if all(past.token != flight.token for past in await watch.attempts(flight.task)):
            return False
    except Refused:
        return False  # the task itself was never there
    with suppress(LeaseLost, Refused):
        await held.keep(receipt.id, receipt.status.value, str(left.path or ""))
    return True


# Whether this process runs inside an attempt at a task of a store, and what it may not do there then.
#
# Only humans decide: an agent that answers its own question, or calls off another's task, has taken a human's place.
# And a lease that has a supervisor is spoken for through its socket, by its own processes. Both are known by ancestry,
# not by variables, which any process can unset; and only for the store that the attempt is of: for another store, an
# agent is a caller like any other.


def attempt_around(home: StateDir, store: str) -> InFlightRecord | None:
    """The attempt that this process is of, if it is one of this store (its URL without a password)."""
    return next((flight for flight in _flights(home, store) if _is_ours(flight)), None)


def refuse_inside(home: StateDir, store: str, verb: str) -> None:
    """Refuse what only a human may do, if this process runs inside an attempt of this store."""
    flight = attempt_around(home, store)
    if flight is not None:
        text = (
            f"`{verb}` is for humans, and this runs inside attempt {flight.attempt} at {flight.name!r} ({flight.agent})"
        )
        raise Refused("not_human", f"{text}; `allswell ask` puts a question to one", where=verb)


def refuse_other(home: StateDir, store: str, task: str, token: int, holder: str | None) -> None:
    """Refuse to speak for another's lease, if this process runs inside an attempt of this store.

    A lease that has a supervisor is its own processes' alone; any other one is its holder's. An agent may claim further
    tasks under its own name, and speak for those.
    """
    held = [flight for flight in _flights(home, store) if (flight.task, flight.token) == (task, token)]
    if any(map(_is_ours, held)):
        return
    around = attempt_around(home, store)
    if around is None:
        return
    if held:
        text = (
            f"attempt {held[0].attempt} at {held[0].name!r} is {held[0].agent}'s: only its own processes speak for it"
        )
        raise Refused("not_yours", text, where="task")
    if holder is not None and holder != around.agent:
        text = f"{holder} holds {task}, and this runs inside an attempt of {around.agent}: only {holder} speaks for it"
        raise Refused("not_yours", text, where="task")


def refuse_name(home: StateDir, store: str, agent: str) -> None:
    """Refuse to claim or to answer as another agent, if this process runs inside an attempt of this store."""
    around = attempt_around(home, store)
    if around is not None and agent != around.agent:
        text = f"this runs inside an attempt of {around.agent}, and cannot claim or answer as {agent}"
        raise Refused("not_yours", text, where="agent")


def _flights(home: StateDir, store: str) -> Iterator[InFlightRecord]:
    for _, flight in under_way(Path(home.attempts)):
        if flight.store in ("", store):
            yield flight


def _is_ours(flight: InFlightRecord) -> bool:
    return flight.record is not None and is_inside(flight.record)

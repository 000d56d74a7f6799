"""What an attempt leaves behind: its work in a snapshot, and a receipt that says where everything is.

The same for an attempt that is being ended and for one whose supervisor died: all it needs stands in the flight's note.
Nothing here raises for what cannot be kept; it is listed as a warning, in the receipt and to the caller. All of it
blocks, so it is called from a thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import socket
import threading
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from allswell.domain.agents.evidence import EvidenceKind
from allswell.domain.agents.session import failures_after, resumed_by, spoilt
from allswell.domain.agents.status import Survivor
from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.domain.receipts.receipt import (
    CHANGES_UNTOLD,
    NOT_WRITTEN,
    AttemptRef,
    Change,
    Receipt,
    ResourceUse,
    Transcript,
    advise,
    receipt_of,
)
from allswell.domain.receipts.snapshot import ObjectName, Snapshot, SnapshotLimits
from allswell.domain.values import hide
from allswell.engine.lease import Lease
from allswell.errors import AllswellError, Unavailable
from allswell.runtime.attempt.launch import AttemptOutcome
from allswell.runtime.process import StreamEnd, TreeRecord
from allswell.runtime.receipts import StateDir, attempt_name
from allswell.runtime.workspace.files import create, open_there, own_folder, remove_file, write_all
from allswell.runtime.workspace.git import find_top
from allswell.timing.clock import Clock

if TYPE_CHECKING:
    from allswell.runtime.workspace.folder_snapshot import Progress


# The note of an attempt in flight: all that a later supervisor needs to settle it, should this one be killed.
#
# Its file is locked for as long as the supervisor lives; the kernel lets go of the lock when it dies, however it dies.
# So no process number has to be believed: the process that gets the lock knows that this attempt is not supervised any
# more.
#
# When the attempt has ended, its note carries the report for the store (`outcome.py`), and stays until the store has
# answered.

_BIGGEST = 16 << 20


class KeptCommand(msgspec.Struct, frozen=True):
    """A command that the store has not answered yet: its name, and its fields as JSON."""

    command: str
    about: msgspec.Raw


class InFlightRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt in flight."""

    task: TaskId
    name: str
    attempt: int
    token: Token
    agent: AgentId
    run: RunId | None = None
    argv: tuple[str, ...] = ()
    cwd: str = ""
    folder: str | None = None
    """Whose work is kept."""
    head: ObjectName | None = None
    """The commit that it stood on when the attempt began."""
    began_at: Millis
    """On this machine's wall clock."""
    grace: int = 0
    record: TreeRecord | None = None
    """The process tree; None before there is one."""
    stdout: str | None = None
    stderr: str | None = None
    socket: str | None = None
    """The folder of its socket."""
    resume: tuple[str, ...] = ()
    host: str = ""
    """The machine on which it runs."""
    account: str = ""
    """Whose usage limit it runs into."""
    session: str = ""
    """The agent's own session that it goes on with; empty: it began with a new one."""
    warm_failures: int = 0
    """How many attempts in a row had failed before that went on with it."""
    store: str = ""
    """Where its lease is from, without a password; empty in notes from before this was noted."""
    report: tuple[KeptCommand, ...] = ()
    """The report for the store, in this order; empty until there is something."""


def flight_of(lease: Lease, began_at: int, **more: Any) -> InFlightRecord:  # noqa: ANN401 - fields of the record
    """The record of an attempt under a lease."""
    return InFlightRecord(
        task=lease.task,
        name=lease.name,
        attempt=lease.attempt,
        token=lease.token,
        agent=lease.agent,
        run=lease.run,
        began_at=Millis(began_at),
        host=socket.gethostname(),
        store=hide(lease.store),
        **more,
    )


class FlightFile:
    """The file of a flight, locked by us."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    def write(self, flight: InFlightRecord) -> None:
        """Note how things stand; a kill in between leaves the old words or the new ones."""
        content = msgspec.json.encode(flight)
        # One write of a few hundred bytes: the kernel does not stop halfway through it.
        os.pwrite(self._handle, content + b"\n" + b" " * max(0, os.fstat(self._handle).st_size - len(content) - 1), 0)

    def replace(self, flight: InFlightRecord) -> None:
        """Note how things stand, whole and flushed to disk; `OSError` leaves the note as it was.

        Another file takes the name, locked before it has it: the note is never seen without its lock.
        """
        draft = f".{self.path.name}.tmp"
        with own_folder(self.path.parent) as inside:
            handle = create(draft, inside, flags=os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                write_all(handle, msgspec.json.encode(flight) + b"\n")
                os.fsync(handle)
                os.replace(draft, self.path.name, src_dir_fd=inside, dst_dir_fd=inside)
            except BaseException:
                os.close(handle)
                raise
            self.close()
            self._handle = handle
            os.fsync(inside)

    def read(self) -> InFlightRecord | None:
        """What was noted; None if nothing that can be read was."""
        try:
            size = min(os.fstat(self._handle).st_size, _BIGGEST)
            return msgspec.json.decode(os.pread(self._handle, size, 0), type=InFlightRecord)
        except msgspec.DecodeError:
            return None

    def remove(self) -> None:
        """The attempt is over and everything is kept."""
        with contextlib.suppress(OSError):
            remove_file(self.path)
        self.close()

    def close(self) -> None:
        """Let go of the lock."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1


def note_name(task: str, attempt: int) -> str:
    """What the note of an attempt is called."""
    return f"{attempt_name(task, attempt)}.json"


def take_off(folder: Path, flight: InFlightRecord) -> FlightFile:
    """Note an attempt before it begins; `OSError` if that cannot be."""
    path = folder / note_name(flight.task, flight.attempt)
    with own_folder(folder, make=True) as inside:
        handle = create(path.name, inside, flags=os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file = FlightFile(path, handle)
        file.write(flight)
    except BaseException:
        os.close(handle)
        raise
    return file


def under_way(folder: Path, but: Container[str] = ()) -> Iterator[tuple[str, InFlightRecord]]:
    """Every note that can be read, with its name, but for some; nothing is locked, and whose it is is not asked."""
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        if path.stem in but:
            continue
        try:
            with own_folder(folder) as inside:
                handle = open_there(path.name, inside)
        except OSError:
            continue  # it has just ended, or is not ours
        try:
            flight = FlightFile(path, handle).read()
        finally:
            os.close(handle)
        if flight is not None:
            yield path.stem, flight


def unwatched(folder: Path, only: Container[str] | None = None) -> Iterator[FlightFile]:
    """Every note whose supervisor is gone, or only those of these names, locked for us; the caller closes each."""
    try:
        paths = sorted(path for path in folder.glob("*.json") if only is None or path.stem in only)
    except OSError:
        return
    for path in paths:
        try:
            with own_folder(folder) as inside:
                handle = open_there(path.name, inside, flags=os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(handle).st_ino == path.lstat().st_ino
        except OSError:  # its supervisor lives, or has just removed it
            same = False
        if same:
            yield FlightFile(path, handle)
        else:
            os.close(handle)


class AttemptRecorder:
    """Keeps what one attempt leaves behind."""

    def __init__(self, flight: InFlightRecord, home: StateDir, limits: SnapshotLimits, clock: Clock) -> None:
        self.flight = flight
        self.snapshot: Snapshot | None = None
        self.receipt: Receipt | None = None
        self.path: Path | None = None
        """Where the receipt is; None if it could not be written."""
        self.running: tuple[Survivor, ...] = ()
        """The processes that still run of a tree whose end was not watched."""
        self.busy: Progress | None = None
        """How far the work has been kept, while that is being done."""
        self._progress: Progress | None = None
        self._home = home
        self._limits = limits
        self._clock = clock
        self._keeping_work = threading.Lock()
        self._changed: list[Change] = []
        self._warnings: dict[str, str] = {}
        """By what they are about, so that a second try takes back what the first one complained of."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be kept."""
        return tuple(self._warnings.values())

    def warn(self, about: str, text: str) -> None:
        """Note something that could not be done; `about` tells it from other complaints."""
        self._warnings[about] = text

    def count_changed(self) -> int | None:
        """How many files are not as they were when the command began; its end is noted with that. None: not known."""
        from allswell.runtime.workspace.baseline import count_changed, read_baseline

        flight = self.flight
        self.note_folder(end=True)
        if flight.folder is None or "baseline" in self._warnings:
            return None
        then, now = (read_baseline(self._home.baselines, flight.task, flight.attempt, end=end) for end in (False, True))
        try:
            return None if then is None or now is None else count_changed(then, now)
        except (AllswellError, OSError):
            return None

    def note_folder(self, *, end: bool = False) -> None:
        """Note what is in the folder before the command runs, so that it is known later what it changed.

        At its `end`, once the tree is gone, it is noted again: another may work there next.
        """
        flight, moment = self.flight, "end" if end else "beginning"
        if flight.folder is None:
            return
        from allswell.runtime.workspace.baseline import (
            take_baseline,  # a function in our own process has no folder to note
        )

        try:
            take_baseline(self._home.baselines, flight.folder, flight.task, flight.attempt, clock=self._clock, end=end)
        except (AllswellError, OSError) as error:
            self.warn("baseline", f"what was in {flight.folder} at the {moment} could not be noted: {error}")

    def keep_work(self, reason: str) -> None:
        """Snapshot the folder; if nothing has changed since the last time, that costs little and changes nothing."""
        flight = self.flight
        if flight.folder is None:
            return
        with self._keeping_work:  # an earlier call may have been given up, and not be over
            self._keep_work(flight.folder, reason)

    def _keep_work(self, folder: str, reason: str) -> None:
        from allswell.runtime.workspace.folder_snapshot import Progress
        from allswell.runtime.workspace.snapshot import changed_files, take  # most attempts end well, and need none

        flight = self.flight
        self._warnings.pop("snapshot", None)
        self.busy = self._progress = self._progress or Progress()
        try:
            kept = take(
                folder,
                flight.task,
                flight.attempt,
                reason=reason,
                limits=self._limits,
                clock=self._clock,
                since=flight.began_at,
                home=self._home.folder,
                progress=self._progress,
            )
        except (AllswellError, OSError) as error:
            self.warn("snapshot", f"the work in {folder} could not be kept: {error}")
            return
        finally:
            self.busy = None
        before, self.snapshot = self.snapshot, kept
        if before is None or kept.id != before.id:
            self._warnings.pop("changes", None)
            try:
                since = self._since_beginning()
                head = flight.head if kept.kind == "git" else None
                self._changed = changed_files(kept, head) if since is None else since
            except (AllswellError, OSError) as error:  # that the work is kept does not hang on what it is compared with
                self._changed = []
                self.warn("changes", f"{CHANGES_UNTOLD}: {error}")

    def _since_beginning(self) -> list[Change] | None:
        """What the attempt has changed, and not who was there before; None if not all of its beginning was noted."""
        from allswell.runtime.workspace.baseline import changes_since, read_baseline

        flight = self.flight
        then = read_baseline(self._home.baselines, flight.task, flight.attempt)
        if then is None or not then.whole:
            return None
        try:
            told = changes_since(then, limits=self._limits, clock=self._clock)
        except Unavailable:  # the folder is no repository any more: its snapshot says what it can
            return None
        return list(told.changed) if told.since == "began" else None

    def settled(self, ended: AttemptOutcome) -> AttemptOutcome:
        """The outcome with its final receipt, and with what could not be kept."""
        receipt = self.write(ended, partial=False)
        return dataclasses.replace(ended, receipt=receipt, receipt_path=self.path, warnings=self.warnings)

    def write(self, ended: AttemptOutcome, *, partial: bool) -> Receipt:
        """Write the receipt, in the place of an earlier one; a disk that is full costs the file and nothing else."""
        made = self._receipt(ended, partial=partial)
        self._warnings.pop("receipt", None)
        try:
            self.path = self._home.receipts.write(made)
        except OSError as error:
            self.path = None
            self.warn("receipt", f"{NOT_WRITTEN} to {self._home.receipts.folder}: {error.strerror}")
            made = msgspec.structs.replace(made, warnings=self.warnings)
        self.receipt = made
        return made

    def _receipt(self, ended: AttemptOutcome, *, partial: bool) -> Receipt:
        flight, result, standing = self.flight, ended.result, ended.standing
        began = 0 if standing is None else standing.began
        last = None if standing is None else standing.progress
        seen = [] if standing is None else [standing.last[sign] for sign in EvidenceKind if sign in standing.last]
        shown = tuple(msgspec.structs.replace(one, at=one.at - began) for one in seen)
        session = None if ended.session is None else f"{ended.session[0]}:{ended.session[1]}"
        own = None if ended.session is None else resumed_by(*ended.session)
        tried = AttemptRef(
            task=flight.task,
            name=flight.name,
            attempt=flight.attempt,
            token=flight.token,
            agent=flight.agent,
            run=flight.run,
            argv=flight.argv,
            cwd=flight.cwd,
            began_at=flight.began_at,
        )
        made = msgspec.structs.replace(
            receipt_of(tried, ended.end, ended.reason, ended.elapsed, self._changed),
            partial=partial,
            limit_ms=None if ended.limit is None else Millis(ended.limit),
            exit_code=None if result is None else result.exit_code,
            signal=None if result is None else result.signal,
            killed=result is not None and result.killed,
            survivors=tuple(one.pid for one in self.running) if result is None else result.survivors,
            running=self.running if result is None else result.running,
            proven=result is None or result.proven,
            last_evidence=None if last is None else msgspec.structs.replace(last, at=last.at - began),
            last_evidence_ms=None if last is None else Millis(max(began + ended.elapsed - last.at, 0)),
            evidence=shown,
            session=session,
            open_call=ended.open_call,
            host=flight.host,
            account=flight.account,
            no_resume=spoilt(
                None if ended.failure is None else ended.failure.error,
                repeats=standing is not None and bool(standing.repeats),
            ),
            warm_failures=failures_after(ended.end, went_on=bool(flight.session), before=flight.warm_failures),
            stdout=_transcript(flight.stdout, None if result is None else result.stdout),
            stderr=_transcript(flight.stderr, None if result is None else result.stderr),
            snapshot=self.snapshot,
            verification=ended.verification,
            used=None if result is None else ResourceUse(result.user_seconds, result.system_seconds, result.max_rss_kb),
            warnings=self.warnings,
        )
        return advise(made, resume=(*flight.resume, *((own,) if own is not None else ())))


def settled_alone(
    lease: Lease, home: StateDir, clock: Clock, ended: AttemptOutcome, *, argv: Sequence[str], cwd: str, began_at: int
) -> AttemptOutcome:
    """The outcome of an attempt of which nothing was watched or kept, with its receipt; it blocks."""
    flight = flight_of(lease, began_at, argv=tuple(argv), cwd=cwd)
    return AttemptRecorder(flight, home, SnapshotLimits(), clock).settled(ended)


def _transcript(path: str | None, printed: StreamEnd | None) -> Transcript | None:
    if path is None:
        return None
    if printed is not None:
        return Transcript(path, printed.bytes, printed.left_out) if printed.bytes else None
    try:
        return Transcript(path, Path(path).stat().st_size)
    except OSError:
        return None


def work_folder(folder: Path | None) -> Path | None:
    """What a snapshot of a folder takes: in a repository the whole working tree."""
    return None if folder is None else find_top(folder.resolve()) or folder

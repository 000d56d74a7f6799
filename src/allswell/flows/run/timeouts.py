"""What is kept when the time of a step runs out, in the order that the seed gives (F9, F10).

    1  a partial receipt with `status: "timeout"` and what is known at once
    2  buffered writes are flushed
    3  git status
    4  the transcript up to the interruption
    5  the receipt, replaced by the complete one
    6  a line in `timeouts.jsonl`, once it is certain what followed

Each is a file replaced as a whole or a line appended and flushed, so a crash between any two leaves what was there
before: tests/flows/run/test_cuts.py cuts at each of them. All of it blocks, and is called from a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.ids import TaskId
from allswell.domain.receipts.receipt import CHANGES_LISTED
from allswell.domain.receipts.snapshot import OmittedFile, Snapshot, SnapshotLimits, spell, unspell
from allswell.domain.receipts.step import (
    LISTED,
    Capture,
    ChangedPath,
    ContextForResume,
    FinalAction,
    LastKnownState,
    PartialArtifact,
    Phase,
    StepChanges,
    StepReceipt,
    StepStatus,
    TimeoutEvent,
    TimeoutRecord,
    WorkSpan,
    was_made_by,
)
from allswell.domain.scopes import ScopeKind
from allswell.engine.lease import Lease
from allswell.errors import AllswellError
from allswell.flows.run.folder import RunBase, flush, moment, partial
from allswell.flows.run.plan import MemberJob
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.baseline import Baseline, changes_since, forget_baseline, read_baseline, take_baseline
from allswell.runtime.workspace.files import open_plain, stamp
from allswell.runtime.workspace.git import Git, find_top, scratch_folder
from allswell.runtime.workspace.snapshot import changed_files, take
from allswell.runtime.workspace.survey import open_file
from allswell.timing.clock import Clock

# What attempts at steps changed: noted when one begins, looked at when it was cut off, compared when the run goes on.
#
# An attempt that runs a command notes by itself what is in its folder when it begins. A function's step does it here.
# It costs a call of git, or a walk through the folder, so a flow spends at most a tenth of its time on it: thousands of
# steps that are over in no time are not slowed down, and one that lasts has its note.

_SHARE = 10
"""Noting may take one part in so many of a flow's time, beside the first."""
_FREE = 1_000
"""Milliseconds that it may take in any case."""
_ASKED_MOST = 200
_LOOKED_AT = 5 * LISTED
_GIT = 10_000
_READ_MOST = 64 << 20
"""Bytes; a file above that is known again by its size and the kernel's time of its last change."""


class BaselineNotes:
    """Notes what is in the folder when steps of functions begin, as long as it does not cost too much."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._spent = 0

    async def note(
        self, aside: Callable[[Callable[[], Any]], Awaitable[Any]], job: MemberJob, task: TaskId, attempt: int
    ) -> bool:
        """Note it for one attempt, in a thread; nothing that goes wrong with it stops the attempt. Whether it was."""
        began = self._clock.monotonic()
        if self._spent > _FREE + (began - self._began) // _SHARE:
            return False
        with contextlib.suppress(AllswellError, OSError):
            place = StateDir(job.home).baselines
            await aside(lambda: take_baseline(place, job.folder, task, attempt, clock=self._clock))
        self._spent += self._clock.monotonic() - began
        return True

    @staticmethod
    def forget(job: MemberJob, task: TaskId, attempt: int) -> None:
        """The attempt has ended well: nobody will put back what it changed."""
        forget_baseline(StateDir(job.home).baselines, task, attempt)


def changes_of(then: Baseline, at: WorkSpan, *, folder: str, outputs: Iterable[str]) -> StepChanges | None:
    """What is not as it was noted when an attempt began; None where nobody can look. It blocks."""
    try:
        told = changes_since(then)
        every = [as_it_is(unspell(then.folder), change.how, change.path) for change in told.changed[:_LOOKED_AT]]
        files = [left for left in every if was_made_by(left, at.ended_at)]
        return StepChanges(
            step=at.step,
            number=at.number,
            task=TaskId(then.task),
            attempt=then.attempt,
            top=then.folder,
            began_at=at.began_at,
            ended_at=at.ended_at,
            gap=told.gap if told.since != "began" else "",
            outputs=tuple(_from_top(folder, then.folder, path) for path in outputs),
            files=tuple(files[:LISTED]),
            more=max(len(files) + len(told.changed) - len(every) - LISTED, 0),
        )
    except (AllswellError, OSError):
        return None


def begun(home: str | Path, task: TaskId, attempt: int) -> Baseline | None:
    """What was noted when an attempt began."""
    return read_baseline(StateDir(home).baselines, task, attempt)


def as_it_is(top: bytes, how: str, path: str) -> ChangedPath:
    """How a path stands now."""
    place = _path(top, path)
    try:
        status = place.lstat()
    except OSError:
        return ChangedPath("D", path, changed_at=_changed_at(place.parent))
    if stat.S_ISDIR(status.st_mode):
        return ChangedPath("D", path, changed_at=_changed_at(place.parent))
    digest = _digest(top, path) if status.st_size <= _READ_MOST else ""
    return ChangedPath(how, path, status.st_size, digest, status.st_ctime_ns // 1_000_000)


def _changed_at(folder: Path) -> int:
    """When something was last made or removed in a folder; of one that is gone itself, 0."""
    try:
        return folder.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _path(top: bytes, path: str) -> Path:
    return Path(os.fsdecode(top)) / os.fsdecode(unspell(path))


def _digest(top: bytes, path: str) -> str:
    """Of a file's bytes or a link's target; empty where it cannot be read."""
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        read = open_file(unspell(path), opened)
        if isinstance(read, OmittedFile):
            return ""
        digest = hashlib.sha256()
        for chunk in read.chunks:
            digest.update(chunk)
        return digest.hexdigest() if read.outcome() == "same" else ""
    finally:
        os.close(opened)


def is_as_left(top: bytes, left: ChangedPath) -> bool:
    """Whether nobody has touched a path since the attempt left it so."""
    now = as_it_is(top, left.how, left.path)
    if left.how == "D" or now.how == "D":
        return left.how == now.how
    if left.sha256:
        return (now.size, now.sha256) == (left.size, left.sha256)
    return (now.size, now.changed_at) == (left.size, left.changed_at)


def times_of(receipts: Iterable[StepReceipt]) -> list[WorkSpan]:
    """When attempts were at work, by their receipts."""
    return [WorkSpan(one.step_id, one.attempt, moment(one.started_at), moment(one.completed_at)) for one in receipts]


def owners(changes: Iterable[StepChanges], receipts: Iterable[StepReceipt], folder: str, top: str) -> dict[str, str]:
    """Whose output each declared path is: of steps that are done, and of those that were cut off."""
    found = {path: one.step for one in changes for path in one.outputs}
    for receipt in receipts:
        if receipt.status is StepStatus.DONE:
            found |= {_from_top(folder, top, one.path): receipt.step_id for one in receipt.artifacts}
    return found


def _from_top(folder: str, top: str, path: str) -> str:
    """A path that is told from the flow's folder, as changes have it."""
    whole = os.path.normpath(Path(folder).resolve() / path)
    return spell(os.fsencode(os.path.relpath(whole, os.fsdecode(unspell(top)))))


def from_folder(folder: str, top: str, path: str) -> str:
    """A path of changes as outputs are told: from the flow's folder, where it lies below it."""
    whole = _path(unspell(top), path)
    near = os.path.relpath(whole, Path(folder).resolve())
    return str(whole) if near.startswith("..") else near


def grown(then: Baseline, changes: StepChanges) -> list[ChangedPath]:
    """Files that are new, or larger than they were."""
    noted = {one.path: one.size for one in then.noted}
    asked = [left.path for left in changes.files if left.how == "M" and left.path not in noted]
    had = _sizes(then, asked[:_ASKED_MOST])
    return [
        left
        for left in changes.files
        if left.how == "A" or (left.how == "M" and left.size > noted.get(left.path, had.get(left.path, left.size)))
    ]


def _sizes(then: Baseline, paths: list[str]) -> dict[str, int]:
    """How large files were in the commit that the attempt began on."""
    if not paths or then.head is None:
        return {}
    top = unspell(then.folder)
    try:
        with scratch_folder() as scratch:
            git = Git(top, timeout=_GIT, scratch=scratch)
            lines = git.run("ls-tree", "-l", "-z", then.head, "--", *map(unspell, paths)).split(b"\0")
    except (AllswellError, OSError):
        return {}
    found = {}
    for line in lines:
        about, _, path = line.partition(b"\t")
        size = about.split()[-1:] or [b""]
        if size[0].isdigit():
            found[spell(path)] = int(size[0])
    return found


_KEEPING = SnapshotLimits(timeout=10_000, git_timeout=10_000)
_ARTIFACTS_LISTED = 100
_ROUNDED = 2
"""Milliseconds that a limit can seem to be early by, because what is left of it is rounded down."""


class TimeoutCut(msgspec.Struct, frozen=True):
    """Whose limit was reached."""

    scope: ScopeKind
    timeout_ms: int
    began: int
    """When what it bounds began, on the monotonic clock."""
    elapsed_ms: int | None = None
    """How long that took, where it is over already."""
    at: int | None = None
    """When it was reached, on the wall; None: now."""


class Capturing:
    """Keeps what is known of one attempt that was cut off."""

    def __init__(
        self,
        base: RunBase,
        job: MemberJob,
        lease: Lease,
        number: int,
        clock: Clock,
        last_good: Callable[[], str | None],
    ) -> None:
        self._lease = lease
        self.retry_count = number - 1
        """How often it had been tried before: the step, or the call inside it whose time was up."""
        self.job = job
        """With its values put in, once they are."""
        self._base = base
        self._task = lease.task
        self._attempt = lease.attempt
        self._number = number
        self._named = str(number)
        """Its timeout among those of its step."""
        self._clock = clock
        self._began_at = clock.wall()
        self._last_good = last_good
        self.capture: Capture | None = None
        self.phase = Phase.WORK
        self._changes: StepChanges | None = None

    def begin(self, cut: TimeoutCut, progress: str = "") -> None:
        """Say at once that the time has run out, with what is known (1)."""
        elapsed = self._clock.monotonic() - cut.began if cut.elapsed_ms is None else cut.elapsed_ms
        if 0 < cut.timeout_ms - elapsed <= _ROUNDED:
            elapsed = cut.timeout_ms
        at = self._clock.wall() if cut.at is None else cut.at
        event = TimeoutEvent(stamp(at), cut.scope, cut.timeout_ms, elapsed)
        state = LastKnownState(self.job.id, self.job.agent, self.phase, progress)
        context = ContextForResume(self._last_good(), (), None)
        self.capture = Capture("timeout", True, event, state, (), context)
        self._base.keep_capture(self.capture, self._named)

    def for_call(self, count: int) -> Capturing:
        """Keeps what is known of a call inside this attempt, the so-manieth whose time was up."""
        call = Capturing(self._base, self.job, self._lease, self._number, self._clock, self._last_good)
        call.phase, call._began_at, call._named = self.phase, self._began_at, f"{self._number}.{count}"
        return call

    def complete(self, snapshot: Snapshot | None, streams: Sequence[tuple[str, Path]]) -> None:
        """Flush, look, write the transcript, and replace the receipt by the complete one (2 to 5)."""
        capture = self.capture
        if capture is None:
            return
        folder = Path(self.job.folder)
        flush(folder, self.job.outputs)
        context = self.context(snapshot, streams)
        self.capture = msgspec.structs.replace(
            capture,
            partial=False,
            partial_artifacts=(*partial(folder, self.job.outputs), *self._undeclared()),
            context_for_resume=context,
        )
        self._base.keep_capture(self.capture, self._named)

    def context(self, snapshot: Snapshot | None, streams: Sequence[tuple[str, Path]]) -> ContextForResume:
        """What somebody who goes on needs: what it changed and did not commit, and the transcript."""
        changes = self._look()
        there = uncommitted(snapshot or self.snapshot("its state is kept"))
        if changes is not None and (there or not is_git(self.job.folder)):
            own = {left.path for left in changes.files}
            there = tuple(path for path in there if path in own) if is_git(self.job.folder) else tuple(sorted(own))
        path = self._transcript(streams)
        shown = None if path is None else self._base.shown(path)
        return ContextForResume(self._last_good(), there[:CHANGES_LISTED], shown)

    def _look(self) -> StepChanges | None:
        """What it changed, written down for whoever goes on."""
        then = begun(self.job.home, self._task, self._attempt)
        if then is not None:
            at = WorkSpan(self.job.id, self._number, self._began_at, self._clock.wall())
            outputs = [one.path for one in self.job.outputs]
            self._changes = changes_of(then, at, folder=self.job.folder, outputs=outputs)
        if self._changes is not None:
            self._base.keep_changes(self._changes)
        return self._changes

    def _undeclared(self) -> list[PartialArtifact]:
        """Files that it wrote without having said so: new ones, and those that have grown."""
        changes = self._changes
        then = None if changes is None else begun(self.job.home, self._task, self._attempt)
        if changes is None or then is None:
            return []
        found = [left for left in grown(then, changes) if left.path not in changes.outputs]
        return [
            PartialArtifact(
                from_folder(self.job.folder, changes.top, left.path), complete=False, bytes_written=left.size
            )
            for left in found[:_ARTIFACTS_LISTED]
        ]

    def snapshot(self, reason: str) -> Snapshot | None:
        """The work in the flow's folder on a recovery ref; None where it cannot be kept."""
        try:
            return take(
                self.job.folder,
                self._task,
                self._attempt,
                reason=reason,
                limits=_KEEPING,
                clock=self._clock,
                since=self._began_at,
                home=self.job.home,
            )
        except (AllswellError, OSError):
            return None

    def _transcript(self, streams: Sequence[tuple[str, Path]]) -> Path | None:
        """What was printed, a JSON object for each line: of this timeout, and as the latest of its step."""
        lines = []
        for name, path in streams:
            try:
                with open(open_plain(path), "rb") as stream:  # noqa: PTH123 - of a descriptor
                    text = stream.read().decode("utf-8", "replace")
            except OSError:
                continue
            lines += [msgspec.json.encode({"stream": name, "line": line}) for line in text.splitlines()]
        if not lines:
            return None
        own, latest = f"{self.job.id}.{self._named}-partial.jsonl", f"{self.job.id}-partial.jsonl"
        content = b"\n".join(lines) + b"\n"
        self._base.files.replace_all(self._base.llm, [(own, content), (latest, content)])
        return self._base.llm / own

    def close(self, action: FinalAction) -> None:
        """Add the line that says what followed (6)."""
        capture = self.capture
        if capture is None:
            return
        event = capture.timeout_event
        self._base.keep_timeout(
            TimeoutRecord(
                timestamp=event.timestamp,
                run_id=self.job.run,
                flow_key=self.job.flow,
                step_id=self.job.id,
                scope=event.scope,
                timeout_ms=event.timeout_ms,
                elapsed_ms=event.elapsed_ms,
                retry_count=self.retry_count,
                final_action=action,
                recovery_path=self._base.shown(self._base.capture_path(self.job.id, self._named)),
            )
        )


def uncommitted(snapshot: Snapshot | None) -> tuple[str, ...]:
    """The files that differ from what is committed, as git status would list them."""
    if snapshot is None:
        return ()
    try:
        return tuple(change.path for change in changed_files(snapshot))
    except (AllswellError, OSError):
        return ()


def is_git(folder: str) -> bool:
    """Whether there are commits to compare with."""
    return find_top(Path(folder).resolve()) is not None

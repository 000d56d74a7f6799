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

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from allswell.domain.capture import (
    Capture,
    ContextForResume,
    FinalAction,
    LastKnownState,
    PartialArtifact,
    Phase,
    TimeoutEvent,
    TimeoutLine,
)
from allswell.domain.deadline import ScopeKind
from allswell.domain.receipt import CHANGES_LISTED
from allswell.domain.snapshot import Snapshot
from allswell.domain.step_changes import AtWork, StepChanges
from allswell.engine.handle import Lease
from allswell.errors import AllswellError
from allswell.flows.run.artifacts import flush, partial
from allswell.flows.run.base import RunBase, stamp
from allswell.flows.run.changes import begun, changes_of, from_folder, grown
from allswell.flows.run.job import Job
from allswell.runtime.repository import find_top
from allswell.runtime.snapshot import Limits, changed_files, take
from allswell.timing.clock import Clock

_KEEPING = Limits(timeout=10_000, git_timeout=10_000)
_ARTIFACTS_LISTED = 100
_ROUNDED = 2
"""Milliseconds that a limit can seem to be early by, because what is left of it is rounded down."""


class Cut(msgspec.Struct, frozen=True):
    """Whose limit was reached."""

    scope: ScopeKind
    timeout_ms: int
    began: int
    """When what it bounds began, on the monotonic clock."""
    elapsed_ms: int | None = None
    """How long that took, where it is over already."""


class Capturing:
    """Keeps what is known of one attempt that was cut off."""

    def __init__(
        self, base: RunBase, job: Job, lease: Lease, number: int, clock: Clock, last_good: Callable[[], str | None]
    ) -> None:
        self.job = job
        """With its values put in, once they are."""
        self._base = base
        self._task = lease.task
        self._attempt = lease.attempt
        self._number = number
        self._clock = clock
        self._began_at = clock.wall()
        self._last_good = last_good
        self.capture: Capture | None = None
        self.phase = Phase.WORK
        self._changes: StepChanges | None = None

    def begin(self, cut: Cut, progress: str = "") -> None:
        """Say at once that the time has run out, with what is known (1)."""
        elapsed = self._clock.monotonic() - cut.began if cut.elapsed_ms is None else cut.elapsed_ms
        if 0 < cut.timeout_ms - elapsed <= _ROUNDED:
            elapsed = cut.timeout_ms
        event = TimeoutEvent(stamp(self._clock.wall()), cut.scope, cut.timeout_ms, elapsed)
        state = LastKnownState(self.job.id, self.job.agent, self.phase, progress)
        context = ContextForResume(self._last_good(), (), None)
        self.capture = Capture("timeout", True, event, state, (), context)
        self._base.keep_capture(self.capture, self._number)

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
        self._base.keep_capture(self.capture, self._number)

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
            at = AtWork(self.job.id, self._number, self._began_at, self._clock.wall())
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
        """What was printed, a JSON object for each line, as `llm/<step>-partial.jsonl`."""
        lines = []
        for name, path in streams:
            try:
                text = path.read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            lines += [msgspec.json.encode({"stream": name, "line": line}) for line in text.splitlines()]
        if not lines:
            return None
        path = self._base.llm / f"{self.job.id}-partial.jsonl"
        self._base.files.replace(path, b"\n".join(lines) + b"\n")
        return path

    def close(self, action: FinalAction) -> None:
        """Add the line that says what followed (6)."""
        capture = self.capture
        if capture is None:
            return
        event = capture.timeout_event
        self._base.keep_timeout(
            TimeoutLine(
                timestamp=event.timestamp,
                run_id=self.job.run,
                flow_key=self.job.flow,
                step_id=self.job.id,
                scope=event.scope,
                timeout_ms=event.timeout_ms,
                elapsed_ms=event.elapsed_ms,
                retry_count=self._number - 1,
                final_action=action,
                recovery_path=self._base.shown(self._base.capture_path(self.job.id, self._number)),
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

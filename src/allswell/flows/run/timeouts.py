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
    Phase,
    TimeoutEvent,
    TimeoutLine,
)
from allswell.domain.deadline import ScopeKind
from allswell.domain.snapshot import Snapshot
from allswell.errors import AllswellError
from allswell.flows.run.artifacts import flush, partial
from allswell.flows.run.base import RunBase, stamp
from allswell.flows.run.job import Job
from allswell.runtime.snapshot import Limits, changed_files, take
from allswell.timing.clock import Clock

_KEEPING = Limits(timeout=10_000, git_timeout=10_000)
_CHANGES_LISTED = 1_000


class Cut(msgspec.Struct, frozen=True):
    """Whose limit was reached."""

    scope: ScopeKind
    timeout_ms: int
    elapsed_ms: int


class Capturing:
    """Keeps what is known of one attempt's timeout."""

    def __init__(
        self, base: RunBase, job: Job, task: str, attempt: int, clock: Clock, last_good: Callable[[], str | None]
    ) -> None:
        self._base = base
        self._job = job
        self._task = task
        self._attempt = attempt
        self._clock = clock
        self._last_good = last_good
        self.capture: Capture | None = None
        self.phase = Phase.WORK

    def begin(self, cut: Cut, progress: str = "") -> None:
        """Say at once that the time has run out, with what is known (1)."""
        event = TimeoutEvent(stamp(self._clock.wall()), cut.scope, cut.timeout_ms, cut.elapsed_ms)
        state = LastKnownState(self._job.id, self._job.agent, self.phase, progress)
        context = ContextForResume(self._last_good(), (), None)
        self.capture = Capture("timeout", True, event, state, (), context)
        self._base.keep_capture(self.capture)

    def complete(self, snapshot: Snapshot | None, streams: Sequence[tuple[str, Path]]) -> None:
        """Flush, look, write the transcript, and replace the receipt by the complete one (2 to 5)."""
        capture = self.capture
        if capture is None:
            return
        folder = Path(self._job.folder)
        flush(folder, self._job.outputs)
        context = self.context(snapshot, streams, partial_name=True)
        self.capture = msgspec.structs.replace(
            capture,
            partial=False,
            partial_artifacts=partial(folder, self._job.outputs),
            context_for_resume=context,
        )
        self._base.keep_capture(self.capture)

    def context(
        self, snapshot: Snapshot | None, streams: Sequence[tuple[str, Path]], *, partial_name: bool
    ) -> ContextForResume:
        """What somebody who goes on needs: git status, and the transcript."""
        changes = uncommitted(snapshot or self.snapshot("its state is kept"))
        path = self._transcript(streams) if partial_name else None
        return ContextForResume(self._last_good(), changes, None if path is None else self._base.shown(path))

    def snapshot(self, reason: str) -> Snapshot | None:
        """The work in the flow's folder on a recovery ref; None where it cannot be kept."""
        try:
            return take(self._job.folder, self._task, self._attempt, reason=reason, limits=_KEEPING, clock=self._clock)
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
        path = self._base.llm / f"{self._job.id}-partial.jsonl"
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
                run_id=self._job.run,
                flow_key=self._job.flow,
                step_id=self._job.id,
                scope=event.scope,
                timeout_ms=event.timeout_ms,
                elapsed_ms=event.elapsed_ms,
                retry_count=self._attempt - 1,
                final_action=action,
                recovery_path=self._base.shown(self._base.capture_path(self._job.id)),
            )
        )


def uncommitted(snapshot: Snapshot | None) -> tuple[str, ...]:
    """The files that differ from what is committed, as git status would list them."""
    if snapshot is None:
        return ()
    try:
        return tuple(change.path for change in changed_files(snapshot)[:_CHANGES_LISTED])
    except (AllswellError, OSError):
        return ()

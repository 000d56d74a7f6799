"""What an attempt leaves behind: its work in a snapshot, and a receipt that says where everything is.

The same for an attempt that is being ended and for one whose supervisor died: all it needs stands in the flight's note.
Nothing here raises for what cannot be kept; it is listed as a warning, in the receipt and to the caller. All of it
blocks, so it is called from a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from allswell.domain.evidence import Sign, Standing
from allswell.domain.names import Millis
from allswell.domain.protocol import resumed_by
from allswell.domain.receipt import (
    CHANGES_UNTOLD,
    NOT_WRITTEN,
    Change,
    End,
    Receipt,
    Transcript,
    Tried,
    Used,
    Verification,
    advise,
    receipt_of,
)
from allswell.domain.retry import Failure
from allswell.domain.snapshot import Limits, Snapshot
from allswell.errors import AllswellError, Unavailable
from allswell.runtime.attempt.flight import Flight
from allswell.runtime.receipts import Home
from allswell.runtime.repository import find_top
from allswell.runtime.warden import Printed, Result
from allswell.timing.clock import Clock

if TYPE_CHECKING:
    from allswell.runtime.snapshot import Progress


class Ended(msgspec.Struct, frozen=True):
    """How the attempt is ending, as far as it is known."""

    end: End
    reason: str
    limit: int | None = None
    result: Result | None = None
    elapsed: int = 0
    standing: Standing | None = None
    session: tuple[str, str] | None = None
    """The agent's own session: dialect and id."""
    failure: Failure | None = None
    """What the agent itself says went wrong, where its last line does."""
    verification: Verification | None = None
    """What came of the verification of its work."""


class Keeping:
    """Keeps what one attempt leaves behind."""

    def __init__(self, flight: Flight, home: Home, limits: Limits, clock: Clock) -> None:
        self.flight = flight
        self.snapshot: Snapshot | None = None
        self.receipt: Receipt | None = None
        self.path: Path | None = None
        """Where the receipt is; None if it could not be written."""
        self.busy: Progress | None = None
        """How far the work has been kept, while that is being done."""
        self._progress: Progress | None = None
        self._home = home
        self._limits = limits
        self._clock = clock
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

    def note_beginning(self) -> None:
        """Note what is in the folder before the command runs, so that it can be told later what it changed."""
        self._note("beginning")

    def note_end(self) -> None:
        """Note what is in the folder once the tree is gone; somebody else may work there next."""
        self._note("end")

    def _note(self, moment: str) -> None:
        flight = self.flight
        if flight.folder is None:
            return
        from allswell.runtime.baseline import take_baseline  # a function in our own process has no folder to note

        place, end = self._home.baselines, moment == "end"
        try:
            take_baseline(place, flight.folder, flight.task, flight.attempt, clock=self._clock, end=end)
        except (AllswellError, OSError) as error:
            self.warn("baseline", f"what was in {flight.folder} at the {moment} could not be noted: {error}")

    def keep_work(self, reason: str) -> None:
        """Snapshot the folder; if nothing has changed since the last time, that costs little and changes nothing."""
        from allswell.runtime.snapshot import Progress, changed_files, take  # most attempts end well, and need none

        flight = self.flight
        if flight.folder is None:
            return
        self._warnings.pop("snapshot", None)
        self._warnings.pop("changes", None)
        self.busy = self._progress = self._progress or Progress()
        try:
            kept = take(
                flight.folder,
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
            self.warn("snapshot", f"the work in {flight.folder} could not be kept: {error}")
            return
        finally:
            self.busy = None
        before, self.snapshot = self.snapshot, kept
        if before is None or kept.id != before.id:
            try:
                since = self._since_beginning()
                head = flight.head if kept.kind == "git" else None
                self._changed = changed_files(kept, head) if since is None else since
            except (AllswellError, OSError) as error:  # that the work is kept does not hang on what it is compared with
                self._changed = []
                self.warn("changes", f"{CHANGES_UNTOLD}: {error}")

    def _since_beginning(self) -> list[Change] | None:
        """What the attempt has changed, and not who was there before; None if not all of its beginning was noted."""
        from allswell.runtime.baseline import changes_since, read_baseline

        flight = self.flight
        then = read_baseline(self._home.baselines, flight.task, flight.attempt)
        if then is None or not then.whole:
            return None
        try:
            told = changes_since(then, limits=self._limits, clock=self._clock)
        except Unavailable:  # the folder is no repository any more: its snapshot says what it can
            return None
        return list(told.changed) if told.since == "began" else None

    def write(self, ended: Ended, *, partial: bool) -> Receipt:
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

    def _receipt(self, ended: Ended, *, partial: bool) -> Receipt:
        flight, result, standing = self.flight, ended.result, ended.standing
        began = 0 if standing is None else standing.began
        last = None if standing is None else standing.progress
        seen = [] if standing is None else [standing.last[sign] for sign in Sign if sign in standing.last]
        shown = tuple(msgspec.structs.replace(one, at=one.at - began) for one in seen)
        session = None if ended.session is None else f"{ended.session[0]}:{ended.session[1]}"
        own = None if ended.session is None else resumed_by(*ended.session)
        tried = Tried(
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
            survivors=() if result is None else result.survivors,
            last_evidence=None if last is None else msgspec.structs.replace(last, at=last.at - began),
            last_evidence_ms=None if last is None else Millis(max(began + ended.elapsed - last.at, 0)),
            evidence=shown,
            session=session,
            stdout=_transcript(flight.stdout, None if result is None else result.stdout),
            stderr=_transcript(flight.stderr, None if result is None else result.stderr),
            snapshot=self.snapshot,
            verification=ended.verification,
            used=None if result is None else Used(result.user_seconds, result.system_seconds, result.max_rss_kb),
            warnings=self.warnings,
        )
        return advise(made, resume=(*flight.resume, *((own,) if own is not None else ())))


def _transcript(path: str | None, printed: Printed | None) -> Transcript | None:
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

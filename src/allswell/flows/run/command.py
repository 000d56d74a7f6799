"""A step that runs a command, its own or an agent's: one watched attempt, its work kept before anything is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from allswell.domain.model_usage import of_output
from allswell.domain.receipt import End, Receipt
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.step_receipt import StepStatus, Tokens
from allswell.engine.handle import Lease
from allswell.errors import Refused
from allswell.flows.run.job import PRINTED_MOST, Job
from allswell.flows.run.site import Site
from allswell.flows.run.timeouts import Capturing, Cut
from allswell.flows.run.work import Came, failed
from allswell.runtime.attempt import Attempt, Home, Order, Outcome, Receipts
from allswell.runtime.own_files import open_there, own_folder

_STATUS = {
    End.DONE: StepStatus.DONE,
    End.TIMEOUT: StepStatus.TIMEOUT,
    End.INTERRUPTED: StepStatus.INTERRUPTED,
    End.LEASE_LOST: StepStatus.LOST,
    End.CANCELLED: StepStatus.LOST,
    End.ASKED: StepStatus.ASKED,
    End.RELEASED: StepStatus.RELEASED,
}


class _Home(Home):
    """Where a step's attempt leaves things: its transcripts in the run's folder, the rest beside the store."""

    def __init__(self, folder: Path, receipts: Receipts, transcripts: Path) -> None:
        super().__init__(folder, receipts)
        self._transcripts = transcripts

    @property
    def transcripts(self) -> Path:
        """The run's `llm/`."""
        return self._transcripts


class _Receipts(Receipts):
    """Tells of a timeout before anything else is kept: the attempt writes its partial receipt first of all."""

    def __init__(self, folder: Path, capturing: Capturing, cut: Cut) -> None:
        super().__init__(folder)
        self._capturing = capturing
        self._cut = cut

    def write(self, receipt: Receipt) -> Path:
        """Keep a receipt; at a limit, the flow's own comes first."""
        if receipt.status is End.TIMEOUT and self._capturing.capture is None:
            last = "" if receipt.last_evidence is None else receipt.last_evidence.what
            self._capturing.begin(self._cut, last)
        return super().write(receipt)


class CommandWork:
    """One try at a command."""

    def __init__(
        self,
        job: Job,
        make_order: Callable[[], Order],
        lease: Lease,
        capturing: Capturing,
        cut: Cut,
        site: Site,
    ) -> None:
        self._job = job
        self._make_order = make_order
        self._lease = lease
        self._cut = cut
        self._site = site
        self._llm = site.base.llm
        home = Path(job.home)
        self._home = _Home(home, _Receipts(home / "receipts", capturing, cut), self._llm)
        self._attempt: Attempt | None = None
        self._stopped: tuple[str, bool] | None = None

    async def run(self) -> Came:
        """Run the command to its end, or to that of its time."""
        try:
            order = self._make_order()
        except Refused as error:
            return failed(error.message)
        self._attempt = Attempt(order, self._lease, self._home, clock=self._site.clock)
        if self._stopped is not None:
            self.stop(self._stopped[0], at_once=self._stopped[1])
        came = self._came(await self._attempt.run())
        stdout = dict(came.streams).get("stdout")
        if stdout is None:
            return came
        return msgspec.structs.replace(came, tokens=await self._site.aside(lambda: _tokens(stdout)))

    def stop(self, reason: str, *, at_once: bool) -> None:
        """Have the command ended; its work is kept first."""
        self._stopped = (reason, at_once)
        if self._attempt is not None:
            self._attempt.stop(reason, grace=0 if at_once else None)

    def progress(self) -> str:
        """The last proof of progress: what it said in a check-in, or what its protocol showed."""
        last = None if self._attempt is None else self._attempt.standing.progress
        return "" if last is None else last.what

    def _came(self, outcome: Outcome) -> Came:
        status = _STATUS.get(outcome.end, StepStatus.FAILED)
        streams = self._named()
        stdout = dict(streams).get("stdout")
        text = "" if stdout is None else _text(stdout)
        failure = None
        if outcome.end is End.UNVERIFIED:
            failure = None
        elif status is StepStatus.FAILED:
            failure = outcome.failure or Failure(ErrorClass.TRANSIENT, outcome.reason)
        late = status is StepStatus.LOST and outcome.by_itself
        if late and outcome.exit_code != 0:
            failure = Failure(ErrorClass.TRANSIENT, outcome.reason)
        if outcome.end is End.NOT_STARTED:
            failure = Failure(ErrorClass.VALIDATION, outcome.reason)
        kept = outcome.receipt
        return Came(
            status=status,
            error=None if status is StepStatus.DONE else outcome.reason,
            failure=failure,
            cut=self._cut if status is StepStatus.TIMEOUT else None,
            stdout=text[:PRINTED_MOST],
            printed_more=len(text) > PRINTED_MOST,
            exit_code=outcome.exit_code,
            streams=streams,
            snapshot=None if kept is None else kept.snapshot,
            recovery=outcome.receipt_path,
            said=outcome.said is not None,
            verification=outcome.verification,
            brought=outcome.brought,
            late=late,
        )

    def _named(self) -> tuple[tuple[str, Path], ...]:
        """The transcripts, under the names of the step and its attempt."""
        found = []
        for stream in ("stdout", "stderr"):
            path = self._llm / f"{self._lease.task}.{self._lease.attempt}.{stream}"
            named = self._llm / f"{self._job.id}-{self._job.tried + self._lease.attempt}.{stream}"
            try:
                path.replace(named)
            except OSError:
                continue
            found.append((stream, named))
        return tuple(found)


def _text(path: Path) -> str:
    """What a command printed, without its last line break, and a little more than may be used of it."""
    try:
        with own_folder(path.parent) as inside:
            handle = open_there(path.name, inside)
    except OSError:
        return ""
    try:
        content = os.pread(handle, 4 * PRINTED_MOST + 4, 0).decode("utf-8", "replace")
    finally:
        os.close(handle)
    return content.removesuffix("\n").removesuffix("\r").replace("\0", "�")


def _tokens(path: Path) -> Tokens | None:
    """What an agent has said of the tokens it used."""
    try:
        with path.open("rb") as lines:
            return of_output(lines)
    except OSError:
        return None

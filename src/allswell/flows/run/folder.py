"""RUN_BASE: the folder of one run, and every file in it.

    .allswell/runs/<run>/
      run.json                                   what runs here, where, and with which inputs
      lock                                       held by the process that runs it
      <flow>/
        flow.yaml                                the flow as it was started
        events.jsonl                             what happened, in order
        timeouts.jsonl                           every timeout (F10)
        receipts/<step>-<agent>-<attempt>.json   every attempt at a step
        receipts/<step>-timeout.json             the latest timeout of a step (F9)
        receipts/<step>.<attempt>-timeout.json   that of each attempt; of a call inside it, <step>.<attempt>.<n>-…
        changes/<step>-<attempt>.json            what an attempt that was cut off had changed
        llm/                                     transcripts

The store has the truth about tasks; what lies here is for people and for going on. Paths in files are told as seen from
the folder in which the flow runs, where they lie below it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.ids import file_name, is_file_name
from allswell.domain.receipts.step import Artifact, Capture, PartialArtifact, StepChanges, StepReceipt, TimeoutRecord
from allswell.errors import Refused, Unavailable
from allswell.flows.spec import OutputSpec
from allswell.runtime.workspace.files import (
    Files,
    open_folder,
    open_plain,
    open_there,
    own_folder,
    read,
    read_file,
    read_lines,
)
from allswell.store.files import make as make_state_folder

RUNS = "runs"
_RECORD = "run.json"
_CHANGES = "changes"
_LOCK = "lock"
_SOURCE_MOST = 64 << 20
_ENCODE = msgspec.json.Encoder()


class RunRecord(msgspec.Struct, frozen=True):
    """What a run's folder is about."""

    run: str
    """Names the folder; it is also the first of `runs`."""
    flow: str
    file: str
    """The flow's file, as an absolute path; empty where it came from standard input."""
    folder: str
    """Where its steps run."""
    inputs: dict[str, Any]
    runs: tuple[str, ...]
    """The runs of the store that it came to: a new one each time it is resumed after its end."""
    started_at: str
    announced: tuple[str, ...] = ()
    """What was to be said about it when it was loaded (F12)."""


class FlowEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `events.jsonl`."""

    timestamp: str
    event: str
    step_id: str = ""
    attempt: int = 0
    data: dict[str, Any] = {}


def _written(content: msgspec.Struct) -> bytes:
    return msgspec.json.format(_ENCODE.encode(content), indent=2) + b"\n"


def _name_of(receipt: StepReceipt) -> str:
    return f"{receipt.step_id}-{receipt.agent}-{receipt.attempt}.json"


def moment(stamped: str) -> int:
    """The moment that was written so, in milliseconds; 0 for what is none."""
    try:
        return round(datetime.fromisoformat(stamped).timestamp() * 1_000)
    except ValueError:
        return 0


class RunBase:
    """One run's folder."""

    def __init__(self, home: Path, record: RunRecord, files: Files | None = None) -> None:
        self.record = record
        self.files = files or Files()
        self.home = home
        self.path = home / RUNS / file_name(record.run)
        self.flow = self.path / record.flow
        self.receipts = self.flow / "receipts"
        self.llm = self.flow / "llm"
        self.source = self.flow / "flow.yaml"
        self.events = self.flow / "events.jsonl"
        self.timeouts = self.flow / "timeouts.jsonl"
        self.last_sign: int | None = None
        """When whoever ran it before gave its last sign of life, on the wall clock in ms; known once it is held."""

    def make(self, source: bytes) -> None:
        """Make the folder of a new run, the record last: a folder without one is no run."""
        try:
            make_state_folder(self.home)
            for folder in (self.receipts, self.llm):
                os.close(open_folder(folder, make=True))
        except OSError as error:
            raise Unavailable(f"the run's folder {self.path} cannot be made: {error.strerror}") from error
        self.files.replace(self.source, source)
        self.keep_record()

    def keep_record(self) -> None:
        """Write the record anew."""
        self._replace(self.path / _RECORD, self.record)

    def read_source(self) -> bytes:
        """The flow as it was started; `OSError` if the file is missing, a link, or none of ours: its steps are run."""
        return read_file(self.source, _SOURCE_MOST)

    def shown(self, path: Path) -> str:
        """A path as seen from the folder in which the flow runs."""
        try:
            return str(path.relative_to(self.record.folder))
        except ValueError:
            return str(path)

    # --- receipts -----------------------------------------------------------------------------------------------------

    def receipt_path(self, receipt: StepReceipt) -> Path:
        """The file of an attempt's receipt."""
        return self.receipts / _name_of(receipt)

    def keep_receipt(self, receipt: StepReceipt) -> None:
        """Write an attempt's receipt."""
        self._replace(self.receipt_path(receipt), receipt)

    def keep_receipts(self, receipts: Sequence[StepReceipt]) -> None:
        """Write receipts of several attempts."""
        self.files.replace_all(self.receipts, [(_name_of(one), _written(one)) for one in receipts])

    def capture_path(self, step: str, timeout: str = "") -> Path:
        """The file of one timeout (`<attempt>`, or `<attempt>.<call>` of a call inside it), or of a step's latest."""
        return self.receipts / (f"{step}.{timeout}-timeout.json" if timeout else f"{step}-timeout.json")

    def keep_capture(self, capture: Capture, timeout: str) -> None:
        """Write what is known of a timeout: for itself, and as the latest of its step."""
        step, content = capture.last_known_state.step_id, _written(capture)
        names = (self.capture_path(step, timeout).name, self.capture_path(step).name)
        self.files.replace_all(self.receipts, [(name, content) for name in names])

    def keep_changes(self, changes: StepChanges) -> None:
        """Write what an attempt changed."""
        folder = self.flow / _CHANGES
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise Unavailable(f"{folder} cannot be made: {error.strerror}") from error
        self._replace(folder / f"{changes.step}-{changes.number}.json", changes)

    def changes(self, step: str, attempt: int) -> StepChanges | None:
        """What an attempt changed, where that is known."""
        return read(self.flow / _CHANGES / f"{step}-{attempt}.json", StepChanges)

    def keep_timeout(self, line: TimeoutRecord) -> None:
        """Add a line to `timeouts.jsonl`."""
        self.files.append(self.timeouts, _ENCODE.encode(line))

    def keep_events(self, events: Sequence[FlowEvent]) -> None:
        """Add lines to `events.jsonl`."""
        self.files.append(self.events, *map(_ENCODE.encode, events))

    def capture(self, step: str) -> Capture | None:
        """A step's latest timeout, if it has had one."""
        return read(self.capture_path(step), Capture)

    def all_receipts(self) -> list[StepReceipt]:
        """Every attempt's receipt that can be read, the oldest first."""
        found = [
            receipt
            for path in self.receipts.glob("*.json")
            if not path.name.endswith("-timeout.json") and (receipt := read(path, StepReceipt)) is not None
        ]
        return sorted(found, key=lambda one: (one.completed_at, one.step_id, one.attempt))

    def all_timeouts(self) -> list[TimeoutRecord]:
        """Every timeout, in order."""
        return read_lines(self.timeouts, TimeoutRecord)

    def all_events(self) -> list[FlowEvent]:
        """What happened, in order."""
        return read_lines(self.events, FlowEvent)

    def _replace(self, path: Path, content: msgspec.Struct) -> None:
        self.files.replace(path, _written(content))

    # --- who runs it --------------------------------------------------------------------------------------------------

    def give_sign(self) -> None:
        """Say that somebody runs it, so that it can be told later until when."""
        with contextlib.suppress(OSError):
            os.utime(self.path / _LOCK)

    def is_running(self) -> bool:
        """Whether a process runs it now; nothing is written for it."""
        try:
            with own_folder(self.path) as inside:
                handle = open_there(_LOCK, inside)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the one process that runs it; `Refused` while another one does.

        The kernel lets go of the lock when its process dies, however it dies, so no process number is believed.
        """
        path = self.path / _LOCK
        try:
            with own_folder(self.path) as inside:
                handle = open_there(path.name, inside, flags=os.O_RDWR, make=True)
        except OSError as error:
            raise Unavailable(f"the run's folder {self.path} cannot be used: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                who = os.pread(handle, 64, 0).decode("ascii", "replace").strip()
                by = f" (process {who})" if who else ""
                text = f"the run {self.record.run} is running already{by}; wait for it, or stop it first"
                raise Refused("run_running", text, where="run") from None
            self.last_sign = os.fstat(handle).st_mtime_ns // 1_000_000
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)


def find_base(home: Path, run: str) -> RunBase:
    """The folder of a run, by the id of any of the store's runs that it came to."""
    record = None if not is_file_name(run) else _read_record(home / RUNS / run)
    if record is None:
        record = next((one for one in all_records(home) if run in one.runs), None)
    if record is not None:
        return RunBase(home, record)
    if is_file_name(run) and (home / RUNS / run).exists():
        text = f"the folder {home / RUNS / run} has no record that can be read; is it yours to read, and whole?"
        raise Refused("unreadable_run", text, where="run")
    raise Refused("unknown_run", f"there is no folder of a run {run} below {home / RUNS}", where="run")


def all_records(home: Path) -> list[RunRecord]:
    """Every run that has a folder, the newest first."""
    try:
        folders = sorted((home / RUNS).iterdir(), reverse=True)
    except OSError:
        return []
    found = [record for folder in folders if (record := _read_record(folder)) is not None]
    return sorted(found, key=lambda one: one.started_at, reverse=True)


def _read_record(folder: Path) -> RunRecord | None:
    """The record of a run; None if there is none, or one whose names would lead out of its folder."""
    record = read(folder / _RECORD, RunRecord)
    return record if record is not None and is_file_name(record.run) and is_file_name(record.flow) else None


# The files that a step leaves: looked for when it ends, measured, and known again when a run goes on.


def collect(folder: Path, outputs: tuple[OutputSpec, ...]) -> tuple[Artifact, ...]:
    """Every output of a step that has ended well; `Refused` where one is missing or lies outside."""
    return tuple(_measured(folder, output) for output in outputs)


def _measured(folder: Path, output: OutputSpec) -> Artifact:
    path = folder / output.path
    try:
        found = path.resolve(strict=True)
    except OSError:
        text = f"the step ended well and has not left its output {output.path}"
        raise Refused("no_output", text, where=output.path) from None
    if not found.is_relative_to(folder.resolve()):
        text = f"the output {output.path} is a link that leads outside the flow's folder, to {found}"
        raise Refused("bad_output", text, where=output.path)
    if not found.is_file():
        raise Refused("bad_output", f"the output {output.path} is not a file", where=output.path)
    digest, size = _digest(found)
    return Artifact(output.name, output.path, digest, size)


def _digest(path: Path) -> tuple[str, int]:
    import hashlib  # not by whoever only lists runs: OpenSSL takes its time

    with open(open_plain(path), "rb") as opened:  # noqa: PTH123 - of a descriptor
        digest = hashlib.file_digest(opened, "sha256")
        return digest.hexdigest(), opened.tell()


def changed(folder: Path, artifact: Artifact) -> str | None:
    """Why a file is not what a step left; None if it is."""
    try:
        digest, _ = _digest(folder / artifact.path)
    except OSError as error:
        return f"{artifact.path} is {'no file any more' if error.errno == errno.EINVAL else 'gone'}"
    return None if digest == artifact.sha256 else f"{artifact.path} is not what it was: its content has changed"


def partial(folder: Path, outputs: tuple[OutputSpec, ...]) -> tuple[PartialArtifact, ...]:
    """How far the outputs of a step that was cut off have come; whether one is complete nobody knows, so it is not."""
    found = []
    for output in outputs:
        try:
            size = (folder / output.path).stat().st_size
        except OSError:
            continue
        found.append(PartialArtifact(output.path, complete=False, bytes_written=size))
    return tuple(found)


def flush(folder: Path, outputs: tuple[OutputSpec, ...]) -> None:
    """Bring what was written of the outputs to the disk."""
    for output in outputs:
        try:
            handle = open_plain(folder / output.path)
        except OSError:
            continue
        try:
            os.fsync(handle)
        except OSError:
            pass
        finally:
            os.close(handle)

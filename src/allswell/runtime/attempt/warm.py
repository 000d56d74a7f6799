"""Whether an attempt goes on with its agent's own session: what is known of the last one, looked up for the rule.

The rule is in `domain/agents/session.py`. All that it needs stands in the last attempt's receipt, which lies beside the
store on the machine where that attempt ran: so it holds over every store, and another machine finds nothing to go on
with. Only the holder of the task's lease comes here, and only about the attempt before its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allswell.domain.agents.cost import Expense
from allswell.domain.agents.fleet import NEVER, AgentSpec, fill, places_in
from allswell.domain.agents.output import TurnEnded, parse
from allswell.domain.agents.session import (
    COLD,
    LaunchPlace,
    Warmth,
    program_of,
    programs_of,
    resumed,
    resuming_command,
    session_of,
    warm_or_cold,
)
from allswell.domain.ids import TaskId
from allswell.domain.receipts.receipt import End, Receipt, receipt_id
from allswell.engine.lease import Lease
from allswell.runtime.process import checked_cwd
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.files import open_plain

_BACK = 10
"""How many attempts that never began are looked past."""
_BEGINNING = 256 << 10
"""Bytes of a transcript in which the session is looked for: clients name it first."""
_END = 16 << 10
"""Bytes of the end of a stream in which a refusal is looked for."""
REFUSED = "its client has refused to go on with it"
"""Why an attempt is made once more, under the same lease, with a new session."""


def last_receipt(lease: Lease, home: StateDir, earlier: TaskId | None = None) -> Receipt | None:
    """The receipt of the last attempt that began; it may be that of an ended task whose work this one goes on with.

    None where it is not here: the attempt left none, ran elsewhere, or there was none.
    """
    for number in range(lease.attempt - 1, max(lease.attempt - 1 - _BACK, 0), -1):
        kept = home.receipts.find(receipt_id(lease.task, number))
        if kept is None:
            return None
        if kept.receipt.status is not End.NOT_STARTED or number == 1:
            return kept.receipt
    before = earlier or lease.granted.task.spec.retry_of
    return home.receipts.last_of(before) if before is not None and lease.attempt == 1 else None


def warmth_of_agent(spec: AgentSpec, folder: str, last: Receipt | None) -> tuple[Warmth, tuple[str, ...]]:
    """Whether an agent of a fleet goes on with its session, and the words of its command, with places to fill."""
    own = None if last is None else session_of(last.session)
    if own is None or not spec.argv or spec.resume == NEVER:
        return COLD, spec.argv
    command = resuming_command(spec, *own)
    place = LaunchPlace(
        programs_of(spec), checked_cwd(folder), socket.gethostname(), spec.limit_of(), resumes=command is not None
    )
    warmth = warm_or_cold(last, place)
    return (warmth, command) if warmth.session and command is not None else (warmth, spec.argv)


def warmth_of_command(
    argv: Sequence[str], spec: AgentSpec | None, lease: Lease, cwd: str, last: Receipt | None
) -> tuple[Warmth, tuple[str, ...]]:
    """The same for a command that is run as it was typed, with `MESSAGE` where its next message stands.

    `spec` is the agent of the settings that it is run as, if any.
    """
    own = None if last is None else session_of(last.session)
    if own is None or (spec is not None and spec.resume == NEVER):
        return COLD, tuple(argv)
    places = {
        **dict.fromkeys(("prompt", "handover"), MESSAGE),
        "name": lease.name,
        "task": lease.task,
        "attempt": str(lease.attempt),
        "agent": lease.agent,
        "role": lease.role,
        "folder": cwd,
        "session": own[1],
    }
    command = None
    if spec is None or not spec.resume:
        command = resumed(argv, *own, MESSAGE)
    elif places_in(spec.resume) <= places.keys():
        command = tuple(fill(word, places) for word in spec.resume)
    programs = (program_of(argv), *(() if spec is None else programs_of(spec)))
    account = "" if spec is None else spec.limit_of()
    warmth = warm_or_cold(last, LaunchPlace(programs, cwd, socket.gethostname(), account, resumes=command is not None))
    return (warmth, command) if warmth.session and command is not None else (warmth, tuple(argv))


def with_spent(warmth: Warmth, last: Receipt | None, home: StateDir) -> Warmth:
    """The same, with what the session had taken before: the totals of Codex count from the thread's beginning.

    The last total that the attempts before have printed counts; a turn that was cut off has printed none.
    """
    receipt = last
    for _ in range(_BACK):
        if receipt is None or not warmth.session or session_of(receipt.session) != ("codex", warmth.session):
            return warmth
        total = None if receipt.stdout is None else _last_total(Path(receipt.stdout.path))
        if total is not None:
            return msgspec.structs.replace(warmth, spent=total)
        kept = home.receipts.find(receipt_id(receipt.task, receipt.attempt - 1))
        receipt = None if kept is None else kept.receipt
    return warmth


def _last_total(transcript: Path) -> Expense | None:
    for line in reversed(_read(transcript, _END, at_end=True).split(b"\n")):
        for event in parse(line).events:
            if isinstance(event, TurnEnded) and event.goes_on and event.expense != Expense():
                return event.expense
    return None


MESSAGE = "\0"
"""Stands for the message among the words of a command: no word of one can hold it."""


def ends_of(receipt: Receipt) -> str:
    """The end of each stream of what an attempt printed, as far as it was kept."""
    kept = (stream for stream in (receipt.stdout, receipt.stderr) if stream is not None)
    return "\n".join(_read(Path(stream.path), _END, at_end=True).decode("utf-8", "replace") for stream in kept)


def session_in(transcript: Path) -> tuple[str, str] | None:
    """The dialect and the id of the session that an agent has named in what it printed; None if it has not."""
    for line in _read(transcript, _BEGINNING).split(b"\n")[:-1]:
        read = parse(line)
        if read.session:
            return read.dialect, read.session
    return None


def _read(path: Path, most: int, *, at_end: bool = False) -> bytes:
    try:
        with open(open_plain(path), "rb") as file:  # noqa: PTH123 - of a descriptor
            if at_end:
                file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
            return file.read(most)
    except OSError:
        return b""

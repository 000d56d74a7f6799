"""What must prove that a task is done, and how that stands (domain/verification.py)."""

from __future__ import annotations

from allswell.domain.listing import TaskRow
from allswell.domain.task import OPEN, State
from allswell.domain.verification import ACCEPTED, claims_to_be_done, failed_so_far, shown, verify_of
from allswell.engine.explaining.words import clean, typed


def stand_proof(row: TaskRow) -> list[str]:
    """Sentences about a task that somebody holds: whether they say that it is done, and what has failed."""
    command, said, lease = verify_of(row.task), row.task.record.said_done, row.lease
    if not command or lease is None:
        return []
    says = []
    checks, most = row.task.record.failed_checks, row.task.spec.policy.verify_attempts
    if checks:
        times = f"{failed_so_far(row.task)} of {most}"
        says.append(f"It was said to be done before, and `{clean(shown(command))}` failed ({checks[-1].why}), {times}.")
    if said is not None and said.token == lease.token:
        check, run = clean(shown(command)), typed("verify", row.task.id)
        says.append(f"{clean(lease.agent)} says that it is done; that counts once `{check}` has passed.")
        says.append(f"Its supervisor runs that; if it has none, you can: `{run}`.")
    return says


def verified_by(row: TaskRow) -> str:
    """What verifies a task, and how that stands, on a line; empty where its holder's word is enough."""
    task, command = row.task, verify_of(row.task)
    if not command:
        return ""
    parts = [shown(command)]
    if task.state != OPEN:
        ended = "accepted as it is" if task.record.reason == ACCEPTED else "passed"
        return f"{parts[0]}; {ended}" if task.state == State.DONE else parts[0]
    said, lease = task.record.said_done, row.lease
    claims = lease is not None and said is not None and said.token == lease.token
    if claims or (lease is None and row.waits and claims_to_be_done(task)):
        parts.append("said to be done")
    if task.record.failed_checks:
        most = task.spec.policy.verify_attempts
        parts.append(f"failed ({task.record.failed_checks[-1].why}), {failed_so_far(task)} of {most}")
    return "; ".join(parts)

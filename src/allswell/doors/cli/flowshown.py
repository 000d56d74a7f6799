"""A flow's run as `show` and `runs` tell it: its folder, its steps, and its timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.render import Column, pairs, plain, table

if TYPE_CHECKING:
    from pathlib import Path

    from allswell.domain.step_receipt import StepReceipt
    from allswell.flows.run.base import RunBase, RunRecord

_LISTED = 200


def flow_of(home: Path, run: str) -> RunBase | None:
    """The folder of a run, where it is a flow's."""
    from allswell.errors import Refused
    from allswell.flows.run.base import find_base

    try:
        return find_base(home, run)
    except Refused:
        return None


def flows_in(home: Path) -> dict[str, RunRecord]:
    """Which runs of the store are a flow's, and whose folder is theirs."""
    from allswell.flows.run.base import all_records

    return {run: record for record in all_records(home) for run in record.runs}


def words(base: RunBase) -> str:
    """A flow's run in words: where it is, and what each step has come to."""
    record = base.record
    facts = pairs(
        [
            ("flow", plain(record.flow)),
            ("file", plain(record.file)),
            ("folder", plain(record.folder)),
            ("inputs", plain(", ".join(f"{name}={value}" for name, value in record.inputs.items()))),
            ("files", base.shown(base.flow)),
            ("resumed", "" if len(record.runs) == 1 else f"{len(record.runs) - 1} times in a run of its own"),
            ("timeouts", _timeouts(base)),
        ]
    )
    receipts = base.all_receipts()
    if not receipts:
        return facts
    last: dict[str, StepReceipt] = {}
    spent: dict[str, int] = {}
    for one in receipts:
        last[one.step_id] = one
        spent[one.step_id] = spent.get(one.step_id, 0) + one.duration_ms
    rows = [_row(one, spent[name]) for name, one in list(last.items())[:_LISTED]]
    columns = (
        Column("STEP", 12),
        Column("LAST"),
        Column("ATTEMPT", None, right=True),
        Column("TOOK", None, right=True),
        Column("", 16),
    )
    more = f"\n… {len(last) - _LISTED:,} more" if len(last) > _LISTED else ""
    return f"{facts}\n\n{table(columns, rows)}{more}"


def _row(one: StepReceipt, spent: int) -> list[str]:
    from allswell.domain.duration import show

    return [one.step_id, one.status, str(one.attempt), show(spent), one.error or ""]


def _timeouts(base: RunBase) -> str:
    from collections import Counter

    counted = Counter((line.scope.value, line.final_action.value) for line in base.all_timeouts())
    return ", ".join(f"{count} of a {scope} ({action})" for (scope, action), count in counted.items())

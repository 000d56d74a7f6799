"""How the end of a command is told: the cause, the last line it printed, and one command to type next.

Who reads it has the command's own output above it, and wants to know three things. A failure that changed nothing needs
no more than the first of them; all the rest is in the receipt, one `allswell show` away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.domain.duration import felt
from allswell.domain.receipt import CHANGES_UNTOLD, HOW, NOT_WRITTEN, End
from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.frame import Frame, remark
from allswell.doors.cli.render import plain
from allswell.doors.cli.width import cut

if TYPE_CHECKING:
    from allswell.domain.receipt import Receipt
    from allswell.doors.cli.asked import Ran

_BY_ITSELF = (End.FAILED, End.SIGNALLED, End.LOST, End.NOT_STARTED)
_CAN_GO_ON = (End.TIMEOUT, End.IDLE, End.STALLED, End.INTERRUPTED, End.ORPHANED, End.RELEASED)
_NAMED = 12
"""Variables that are named."""
_LONGEST = 200
"""Characters of a line that are repeated."""


def tell(frame: Frame, ran: Ran, retries: int) -> None:
    """What happened, if it is worth a word; with --json, all of it as a document."""
    outcome = ran.outcome
    if frame.json:
        from allswell.doors.shapes.ran import RanShape

        place = None if ran.worktree is None else str(ran.worktree.path)
        frame.say(RanShape.of(outcome, ran.task, ran.state, ran.attempts, int(ran.code), place))
        return
    receipt = None if outcome is None else outcome.receipt
    warnings = () if outcome is None else outcome.warnings
    if receipt is not None and receipt.status is not End.DONE:
        first, *more = end_lines(receipt, attempts=ran.attempts, retries=retries, asked=ran.asked)
        remark(f"allswell: {first}")
        for line in more:
            what, sign, typed = line.partition(": ")
            remark(f"{what}{sign}{typed_here(typed)}")
        warnings = receipt.warnings
        if receipt.survivors:
            warnings = (*warnings, f"the kernel did not let us end {', '.join(map(str, receipt.survivors))}")
    if ran.held_back:
        named = ", ".join(ran.held_back[:_NAMED]) + (", …" if len(ran.held_back) > _NAMED else "")
        warnings = (*warnings, f"--clean-env kept back: {named} (-e NAME hands one on)")
    if ran.starved:
        warnings = (*warnings, "what was piped to it was too long to be kept for another try")
    if ran.untold is not None:
        warnings = (*warnings, f"the store could not be told how it ended: {ran.untold}")
    if ran.worktree is not None:
        warnings = (*warnings, f"the worktree {ran.worktree.path} is kept, on the branch {ran.worktree.branch}")
    for warning in warnings:
        remark(f"allswell: {plain(warning)}")


def end_lines(receipt: Receipt, *, attempts: int, retries: int, asked: bool) -> list[str]:
    """The end of a command, for whoever sat before it; `asked`: a human has to decide now."""
    lines = [_cause(receipt, attempts, retries)]
    if receipt.status in _BY_ITSELF and not _files(receipt) and not _untold(receipt) and not asked:
        return lines
    said = "" if receipt.status is End.UNVERIFIED else last_line(receipt)  # that was shown when it failed
    if said:
        lines.append(f"  it said: {said}")
    return [*lines, *(f"  {line}" for line in _next(receipt, asked=asked))]


def last_line(receipt: Receipt) -> str:
    """The last line that it printed on its standard error; where that was none, on its standard output."""
    return (last_lines(receipt, 1) or [""])[0]


def last_lines(receipt: Receipt, most: int) -> list[str]:
    """The last lines that it printed on the stream on which errors are told, if it printed any there."""
    from allswell.runtime.attempt.last_said import last_said

    return [cut(plain(line), _LONGEST) for line in last_said(receipt, most)]


def _cause(receipt: Receipt, attempts: int, retries: int) -> str:
    said = [f"{plain(receipt.name)} {HOW[receipt.status]} after {felt(receipt.elapsed_ms)}: {plain(receipt.reason)}"]
    if receipt.status in _BY_ITSELF:
        said.append("no retries asked for" if not retries else f"tried {attempts} times" if attempts > 1 else "")
    elif receipt.status in _CAN_GO_ON:
        said.append(_progress(receipt))
    said.append(kept(receipt))
    return "; ".join(part for part in said if part)


def _progress(receipt: Receipt) -> str:
    last, ago = receipt.last_evidence, receipt.last_evidence_ms
    if last is None or ago is None:
        return "" if receipt.status is End.IDLE else "it had given no proof of progress"
    return f"the last proof of progress was {felt(ago)} before: {plain(last.what)}"


def _files(receipt: Receipt) -> int:
    return len(receipt.changed) + receipt.changed_more


def _untold(receipt: Receipt) -> bool:
    return any(warning.startswith(CHANGES_UNTOLD) for warning in receipt.warnings)


def kept(receipt: Receipt) -> str:
    """What an attempt changed, and that it is kept; nothing where that cannot be told."""
    snapshot, count = receipt.snapshot, _files(receipt)
    if snapshot is None:
        return ""
    if not count and not _untold(receipt):
        return "it changed no file"
    part = "" if snapshot.whole else f" ({len(snapshot.left_out)} left out, {len(snapshot.torn)} torn)"
    files = f"{count} file{'' if count == 1 else 's'} changed, " if count else "its work is "
    return f"{files}kept in {plain(snapshot.name)}{part}"


def _next(receipt: Receipt, *, asked: bool) -> list[str]:
    """The one thing to type next; none where there is nothing to look at."""
    if asked:
        return ["answer: allswell questions"]
    resume = [line for line in receipt.advice.resume if line.startswith("allswell ")]
    if receipt.status in _CAN_GO_ON and resume:
        return [f"go on: {resume[0]}"]
    return [] if any(one.startswith(NOT_WRITTEN) for one in receipt.warnings) else [f"more: allswell show {receipt.id}"]

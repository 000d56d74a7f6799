"""`verify`: an operator runs what must pass before "done" counts; and what `done` does where it has to do that first.

The command runs in the folder of the attempt, if its receipt is here and names one, or in the present one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import DECIDING, Commands
from allswell.doors.cli.frame import Exit, Frame, remark
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import block, paint, plain, sentence
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.listing import TaskRow
    from allswell.domain.names import TaskId
    from allswell.domain.receipt import Verification
    from allswell.domain.verification import AfterCheck
    from allswell.doors.shapes.verification import VerificationShape
    from allswell.engine.held import Held
    from allswell.engine.watch import Watch

_LINES = 20
"""Lines of what it printed that are shown; `--json` and the receipt have more."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        DECIDING,
        "verify",
        verify,
        "allswell verify t_…                        run what must pass, where its attempt worked",
        "allswell verify t_… --folder ~/src/app",
    )


def verify(
    what: Annotated[str, Argument(metavar="TASK", help="A task that is said to be done.", of=("task",))],
    folder: Annotated[
        str | None, Option("--folder", "-C", metavar="DIR", help="Where to run it. Default: where the attempt worked.")
    ] = None,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who you are. Default: the user.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Run the command that verifies a task, and record its verdict.

    For work that somebody says is done and no supervisor has verified, or whose verification failed too often. Where it
    passes, the task is done, with what its holder brought. Exit code 1 where it does not.
    """
    from allswell.doors.cli.people import deciding
    from allswell.doors.shapes.verification import VerifiedShape

    frame = Frame(store, json=json)
    frame.for_humans("verify")

    async def work(watch: Watch) -> tuple[TaskRow, str, Verification, AfterCheck, str]:
        from allswell.domain.verification import shown, verify_of
        from allswell.engine.finding import find_task
        from allswell.runtime.attempt.by_hand import claim_to_verify, verify_for

        task = await find_task(watch.views, what)
        row, held = await claim_to_verify(watch, task)
        place = _folder(frame, folder, held)
        frame.hint(f"verifying: {plain(shown(verify_of(row.task)))}, in {plain(place)}")
        came, followed = await verify_for(watch, row, held, folder=place, env=environment(), by=deciding(by))
        # While somebody holds it, its supervisor may still be at work in its worktree.
        home = "" if row.lease is not None or not came.passed else await brought_home(frame, watch, task, came)
        return row, place, came, followed, home

    row, place, came, followed, home = frame.run(work)
    said = VerifiedShape.of(row.task.id, place, came, followed)
    name = paint(plain(row.task.name), "bold")
    frame.say(said, sentence(f"{told(came)}; {_stands(name, followed)}{home}"))
    if not came.passed:
        show_output(frame, came)
        frame.leave(Exit.FAILED)


async def brought_home(frame: Frame, watch: Watch, task: TaskId, came: Verification | None = None) -> str:
    """Put the work of a task that is done by a human's word on its branch, if its worktree is here; where it is."""
    from allswell.errors import AllswellError
    from allswell.runtime.receipts import Home
    from allswell.runtime.supervisor.accepted import bring_home_accepted

    row = None if frame.is_elsewhere else await watch.task(task)
    try:
        receipt = None if row is None else await bring_home_accepted(Home(frame.home), row.task, came)
    except (AllswellError, OSError) as error:
        return f"; its work stays in its worktree: {plain(str(error))}"
    if receipt is None or receipt.branch is None:
        return ""
    merge = f" → {receipt.advice.merge[0]}" if receipt.advice.merge else ""
    branch = receipt.branch
    return f"; its work is {f'on the branch {branch.name}' if branch.name else f'in {branch.worktree}'}{plain(merge)}"


def _folder(frame: Frame, given: str | None, held: Held) -> str:
    from allswell.domain.receipt import receipt_id
    from allswell.runtime.receipts import Home

    if given is not None:
        place = Path(given).expanduser()
        if not place.is_dir():
            raise Refused("no_directory", f"there is no folder {given}", where="--folder")
        return str(place.resolve())
    kept = Home(frame.home).receipts.find(receipt_id(held.task, held.token))
    known = "" if kept is None else kept.receipt.cwd
    return known if known and Path(known).is_dir() else str(Path.cwd())


def environment() -> dict[str, str]:
    """What the command gets that somebody has run by hand: all that they have, but for what is ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}


async def done_verified(frame: Frame, watch: Watch, held: Held, result: object) -> None:
    """Verify what its holder says is done, before it counts; where it is not, that is told, and the command ends."""
    from allswell.domain.audit import AfterAudit
    from allswell.domain.verification import shown, verify_of
    from allswell.runtime.attempt.by_hand import verify_own

    row = await watch.task(held.task)
    if row is not None:
        frame.hint(f"verifying first: {plain(shown(verify_of(row.task)))}")
    came, followed = await verify_own(watch, held, result, folder=str(Path.cwd()), env=environment())
    if came.passed:
        frame.hint(told(came))
        return
    if frame.json:
        from allswell.doors.shapes.verification import VerifiedShape

        frame.say(VerifiedShape.of(held.task, str(Path.cwd()), came, followed))
    show_output(frame, came)
    of = f"{followed.failed} of {followed.most}"
    mend = followed.follows is AfterAudit.MEND
    then = "you still hold it: mend it, and say done again" if mend else "a human decides now"
    frame.leave(Exit.FAILED if mend else Exit.NEEDS_HUMAN, f"not done: {told(came)}, {of}; {then}")


def tell_verified(frame: Frame, came: Verification, followed: AfterCheck) -> None:
    """What came of the verification of a command under watch, for whoever sits before it."""
    then = {"accept": "", "mend": f"; sent back, {followed.failed} of {followed.most}"}
    remark(f"allswell: {told(came)}{then.get(followed.follows.value, f', {followed.failed} of {followed.most}')}")
    if not came.passed:
        show_output(frame, came)


def told(came: Verification | VerificationShape) -> str:
    """How the command ended, in words."""
    from allswell.domain.duration import felt
    from allswell.domain.verification import shown

    how = f"passed in {felt(came.elapsed_ms)}" if came.passed else f"failed ({came.why})"
    return f"`{plain(shown(came.argv))}` {how}"


def show_output(frame: Frame, came: Verification) -> None:
    """The end of what it printed, for people, on standard error."""
    lines = came.output.strip().splitlines()[-_LINES:]
    if lines and not frame.json:
        remark(block("\n".join(lines), "  "))


def _stands(name: str, followed: AfterCheck) -> str:
    match followed.follows.value:
        case "accept":
            return f"{name} is done"
        case "mend":
            return f"{name} goes back to its agent ({followed.failed} of {followed.most})"
        case _:
            return f"{name} still waits for you: `allswell questions`"

"""`verify`: an operator runs what must pass before "done" counts; and what `done` does where it has to do that first.

The command runs in the folder of the attempt, if its receipt is here and names one, or in the present one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.domain.duration import felt
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, Exit
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import DECIDING, Commands
from allswell.interfaces.cli.rendering import block, paint, plain, sentence

if TYPE_CHECKING:
    from allswell.domain.lease.verification import AfterCheck
    from allswell.domain.receipts.receipt import Verification
    from allswell.domain.task.model import TaskRow
    from allswell.engine.lease import Held
    from allswell.engine.watch import Watch
    from allswell.views.attempt import VerificationShape

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
    what: Annotated[str, Argument(metavar="TASK", help="A task that was reported as done.", of=("task",))],
    folder: Annotated[
        str | None,
        Option("--folder", "-C", metavar="DIR", help="Folder to run it in. Default: the folder of the attempt."),
    ] = None,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who you are. Default: the user.")] = None,
    *,
    context: CliContext,
) -> None:
    """Run the command that verifies a task, and record the result.

    For work that was reported as done and was not verified, or whose verification failed too often. If the command
    passes, the task is done, with the result that was reported. If not, the exit code is 1.
    """
    from allswell.actions.operator import bring_home, human
    from allswell.views.attempt import VerifiedShape

    context.for_humans("verify")

    async def work(watch: Watch) -> tuple[TaskRow, str, Verification, AfterCheck, list[str]]:
        from allswell.domain.lease.verification import shown, verify_of
        from allswell.engine.lookup import find_task
        from allswell.runtime.attempt.verification import claim_to_verify, verify_for

        task = await find_task(watch.views, what)
        row, held = await claim_to_verify(watch, task)
        place, agent = _folder(context, folder, held)
        context.hint(f"verifying: {plain(shown(verify_of(row.task)))}, in {plain(place)}")
        came, followed = await verify_for(watch, row, held, agent=agent, folder=place, env=environment(), by=human(by))
        # While somebody holds it, its supervisor may still be at work in its worktree.
        accepted = row.lease is None and came.passed
        home = await bring_home(watch, context.home, task, came) if accepted else []
        return row, place, came, followed, home

    row, place, came, followed, home = context.run(work)
    said = VerifiedShape.of(row.task.id, place, came, followed)
    name = paint(plain(row.task.name), "bold")
    stands = f"{told(came)}; {_stands(name, followed)}"
    context.say(said, sentence(". ".join([stands, *map(plain, home)])))
    if not came.passed:
        show_output(context, came)
        context.leave(Exit.FAILED)


def _folder(context: CliContext, given: str | None, held: Held) -> tuple[str, tuple[str, ...]]:
    """Where to verify, and the command of the agent that worked there, as far as that is known."""
    from allswell.domain.receipts.receipt import receipt_id
    from allswell.runtime.receipts import StateDir

    if given is not None:
        place = Path(given).expanduser()
        if not place.is_dir():
            raise Refused("no_directory", f"there is no folder {given}", where="--folder")
        return str(place.resolve()), ()
    kept = StateDir(context.home).receipts.find(receipt_id(held.task, held.token))
    if kept is None or not kept.receipt.cwd or not Path(kept.receipt.cwd).is_dir():
        return str(Path.cwd()), ()
    return kept.receipt.cwd, kept.receipt.argv


def environment() -> dict[str, str]:
    """What the command gets that somebody has run by hand: all that they have, but for what is ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}


async def done_verified(context: CliContext, watch: Watch, held: Held, result: object) -> None:
    """Verify what its holder says is done, before it counts; where it is not, that is told, and the command ends."""
    from allswell.domain.lease.audit import AfterAudit
    from allswell.domain.lease.verification import shown, verify_of
    from allswell.runtime.attempt.verification import verify_own

    row = await watch.task(held.task)
    if row is not None:
        context.hint(f"verifying first: {plain(shown(verify_of(row.task)))}")
    came, followed = await verify_own(watch, held, result, folder=str(Path.cwd()), env=environment())
    if came.passed:
        context.hint(told(came))
        return
    if context.json:
        from allswell.views.attempt import VerifiedShape

        context.say(VerifiedShape.of(held.task, str(Path.cwd()), came, followed))
    show_output(context, came)
    of = f"{followed.failed} of {followed.most}"
    mend = followed.follows is AfterAudit.MEND
    then = "you still hold it: fix it, and report done again" if mend else "a human is asked now"
    context.leave(Exit.FAILED if mend else Exit.NEEDS_HUMAN, f"not done: {told(came)}, {of}; {then}")


def tell_verified(context: CliContext, came: Verification, followed: AfterCheck) -> None:
    """What came of the verification of a command under watch, for whoever sits before it."""
    count = f"{followed.failed} of {followed.most}"
    then = {"accept": "", "mend": f"; sent back, {count}"}.get(followed.follows.value, f", {count}")
    context.remark(f"allswell: {told(came)}{then}")
    if not came.passed:
        show_output(context, came)


def told(came: Verification | VerificationShape) -> str:
    """How the command ended, in words."""
    from allswell.domain.lease.verification import shown

    how = f"passed in {felt(came.elapsed_ms)}" if came.passed else f"failed ({came.why})"
    return f"`{plain(shown(came.argv))}` {how}"


def show_output(context: CliContext, came: Verification) -> None:
    """The end of what it printed, for people, on standard error."""
    lines = came.output.strip().splitlines()[-_LINES:]
    if lines:
        context.remark(block("\n".join(lines), "  "))


def _stands(name: str, followed: AfterCheck) -> str:
    match followed.follows.value:
        case "accept":
            return f"{name} is done"
        case "mend":
            return f"{name} goes back to its agent ({followed.failed} of {followed.most})"
        case _:
            return f"{name} still waits for you: `allswell questions`"

"""`verify`: an operator runs what must pass before "done" counts; and what `done` does where it has to do that first.

The command runs in the folder of the attempt, if its receipt is here and names one, or in the present one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, Exit
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import DECIDING, Commands
from allswell.interfaces.cli.rendering import block, plain

if TYPE_CHECKING:
    from allswell.actions.store_holder import StoreHolder
    from allswell.domain.lease.verification import AfterCheck
    from allswell.domain.receipts.receipt import Verification
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
    if folder is not None:
        place = Path(folder).expanduser()
        if not place.is_dir():
            raise Refused("no_directory", f"there is no folder {folder}", where="--folder")
        folder = str(place.resolve())

    def begins(command: str) -> None:
        context.hint(f"verifying: {plain(command)}")

    verified = context.decide("verify", lambda operator: operator.verify(what, folder, begins), by=by)
    context.show(verified)
    if not verified.shape.verification.passed:
        show_output(context, verified.shape.verification)
        context.leave(Exit.FAILED)


async def done_verified(context: CliContext, holder: StoreHolder, result: object) -> None:
    """Verify what its holder says is done, before it counts; where it is not, that is told, and the command ends."""
    verified = await holder.verify(
        result, str(Path.cwd()), lambda command: context.hint(f"verifying first: {plain(command)}")
    )
    came = verified.verification
    if came.passed:
        context.hint(plain(came.says))
        return
    if context.json:
        context.say(verified)
    show_output(context, came)
    of, mend = f"{verified.failed} of {verified.most}", verified.follows == "mend"
    then = "you still hold it: fix it, and report done again" if mend else "a human is asked now"
    context.leave(Exit.FAILED if mend else Exit.NEEDS_HUMAN, f"not done: {plain(came.says)}, {of}; {then}")


def tell_verified(context: CliContext, checked: Verification, followed: AfterCheck) -> None:
    """What came of the verification of a command under watch, for whoever sits before it."""
    from allswell.views.attempt import VerificationShape
    from allswell.views.fields import as_shape

    came = as_shape(checked, VerificationShape)
    count = f"{followed.failed} of {followed.most}"
    then = {"accept": "", "mend": f"; sent back, {count}"}.get(followed.follows.value, f", {count}")
    context.remark(f"allswell: {plain(came.says)}{then}")
    if not came.passed:
        show_output(context, came)


def show_output(context: CliContext, came: VerificationShape) -> None:
    """The end of what it printed, for people, on standard error."""
    lines = came.output.strip().splitlines()[-_LINES:]
    if lines:
        context.remark(block("\n".join(lines), "  "))

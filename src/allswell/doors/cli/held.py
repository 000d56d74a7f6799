"""Which lease a holder speaks about: named by options, or by the environment it was started in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.doors.cli.frame import Frame
    from allswell.engine.held import Held
    from allswell.engine.watch import Watch


async def hold_of(frame: Frame, watch: Watch, task: str | None, token: int | None, agent: str | None) -> Held:
    """The lease that the options or the environment name. An agent that is not named is who has had that token."""
    from allswell.engine.finding import find_holder, find_task

    if not task:
        raise Refused("no_task", "which task? give --task ID, or set ALLSWELL_TASK", where="task")
    if token is None:
        raise Refused("no_token", "which lease? give --token N as the claim said, or set ALLSWELL_TOKEN", where="token")
    found = await find_task(watch.views, task)
    frame.for_its_holder(found, token)
    return watch.held(found, token, agent or await find_holder(watch.views, found, token) or "unknown")

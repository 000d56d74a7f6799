"""Telling agents at work what other agents ask of them: each delivery once, in every way that an agent can hear.

It is heard as a check-in is asked for: by the answer to any call at the socket, by a line on its input, in its file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from allswell.domain.event import Event
from allswell.domain.inbox import InboxItem, told_to_agent
from allswell.domain.names import Millis
from allswell.engine.watch import Watch
from allswell.errors import AllswellError
from allswell.runtime.supervisor.attending import Attendance


class Mailbox:
    """The inboxes of a supervisor's agents."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._told: dict[tuple[str, int], dict[str, int]] = {}
        """For each attempt under way: the requests it has heard of, each with which delivery that was."""

    async def deliver(self, attended: Sequence[Attendance]) -> None:
        """Tell everybody at work what is new in its inbox."""
        self._told = {(one.lease.task, one.lease.token): self._known(one) for one in attended}
        if not attended:
            return
        inboxes = await self._watch.inboxes({one.lease.agent: _roles(one) for one in attended})
        now = await self._watch.now() if any(inboxes.values()) else Millis(0)
        for one in attended:
            mine = [item for item in inboxes[one.lease.agent] if item.request_id != one.lease.task]
            await self._tell(one, mine, now)

    def _known(self, one: Attendance) -> dict[str, int]:
        return self._told.get((one.lease.task, one.lease.token), {})

    async def _tell(self, one: Attendance, inbox: Sequence[InboxItem], now: Millis) -> None:
        run, lease, known = one.run, one.lease, self._known(one)
        if run is None:
            return
        run.inbox = tuple(item.request_id for item in inbox)
        for item in inbox:
            if known.get(item.request_id) == item.attempt:
                continue
            known[item.request_id] = item.attempt
            left = None if item.expires_at is None else max(item.expires_at - now, 0)
            told = {"request": item.request_id, "heard_by": ", ".join(run.ask(told_to_agent(item, left)))}
            with contextlib.suppress(AllswellError):
                await self._watch.notice(Event("request_told", lease.task, lease.run, lease.agent, lease.token, told))


def _roles(one: Attendance) -> tuple[str, ...]:
    """For which roles its agent may answer."""
    return tuple(dict.fromkeys(role for role in (one.slot.spec.role, one.lease.role) if role))

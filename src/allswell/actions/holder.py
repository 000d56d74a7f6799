"""What the holder of a lease can do: the verbs, whichever way it speaks.

A holder speaks to a watch (`store_holder.py`: a store on this machine, or a server behind HTTP) or through the socket
of its attempt (`socket_holder.py`). Command line, HTTP and MCP parse what was said, call a verb, and print its answer,
a struct of `views`. Nothing here is heavy to import: `allswell checkin` starts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from allswell.domain.task.model import OPEN

if TYPE_CHECKING:
    from allswell.domain.mesh.request import InboxItem
    from allswell.domain.question import Option
    from allswell.domain.service.retry import Failure
    from allswell.views.lease import LastWordShape, OrdersShape
    from allswell.views.message import AnswersShape, RequestedShape
    from allswell.views.question import QuestionShape


class RequestDraft(Struct, frozen=True, kw_only=True):
    """What one agent asks of another; lengths of time are milliseconds."""

    to: str
    text: str
    kind: str = ""
    """Empty: it is read off whom it is for."""
    payload: object = None
    timeout: int | None = None
    retries: int | None = None
    again: int | None = None
    role: str = ""
    blocks: bool = True
    """Whether the task waits for the answer where nobody gives one in time."""
    key: str | None = None
    """Under the same key a task asks it once."""


class AnswerSource(Protocol):
    """How questions and requests stand, and how to wait for news of them."""

    async def question(self, id_: str) -> QuestionShape:
        """A question as it stands; `Refused` if there is none that this caller may see."""
        ...

    async def requested(self, id_: str) -> RequestedShape:
        """A request as it stands; `Refused` if there is none of this caller's."""
        ...

    def clock(self) -> float:
        """Seconds that only ever grow."""
        ...

    def is_over(self) -> bool:
        """Whether nothing more will come: waiting ends."""
        ...

    async def news(self, within: float) -> None:
        """Wait until something may have changed, and at most so many seconds."""
        ...


class Holder(AnswerSource, Protocol):
    """One holder of one lease."""

    async def check_in(self, note: str, progress: float | None) -> OrdersShape:
        """Prove progress; the answer says how much time is left, and what came meanwhile."""
        ...

    async def done(self, result: object) -> LastWordShape:
        """The task is done; said again, it counts once."""
        ...

    async def fail(self, failure: Failure) -> LastWordShape:
        """This attempt failed; the error's class decides what follows."""
        ...

    async def release(self, reason: str, delay: int) -> LastWordShape:
        """Give the task back, for nobody to have it for so many milliseconds."""
        ...

    async def ask(self, text: str, options: Sequence[Option], *, hold: bool) -> QuestionShape:
        """Ask a human; without `hold` this attempt ends, and the task waits for the answer."""
        ...

    async def request(self, draft: RequestDraft) -> RequestedShape:
        """Ask another agent, and go on."""
        ...

    async def wait_for(self, request: RequestedShape, lease: int | None) -> RequestedShape:
        """Wait for what comes of a request; where it blocks the task, the next one is claimed, with `lease`."""
        ...


class AgentInbox(Protocol):
    """What other agents ask of one."""

    async def inbox(self, patience: float, *, mesh: bool) -> Sequence[InboxItem]:
        """What they ask, waiting so many seconds for what was not listed before; with `mesh`, of others."""
        ...

    async def respond(self, request: str, answer: object) -> None:
        """Answer a request; the first answer counts, and a late one too."""
        ...

    async def decline(self, request: str, reason: str) -> None:
        """Decline a request that is addressed to this agent; the asking agent learns of it at once."""
        ...


async def wait_for_answers(source: AnswerSource, ids: Sequence[str], patience: float | None) -> AnswersShape:
    """How these questions and requests stand, once something has come of one of them or after so many seconds."""
    from allswell.views.message import AnswersShape

    until = None if patience is None else source.clock() + patience
    while True:
        questions = [await source.question(id_) for id_ in ids if id_.startswith("q_")]
        requests = [await source.requested(id_) for id_ in ids if not id_.startswith("q_")]
        came = any(one.closed_at is not None for one in questions) or any(one.state != OPEN for one in requests)
        left = None if until is None else until - source.clock()
        if came or source.is_over() or (left is not None and left <= 0):
            return AnswersShape(questions, requests)
        await source.news(POLL if left is None else min(left, POLL))


POLL = 1.0
"""Seconds after which a caller that waits looks by itself, whatever it has heard."""

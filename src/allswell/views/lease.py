"""A lease, as its holder gets it: the claimed task, the answers to its calls, and requests between agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape
from allswell.views.question import QuestionShape

if TYPE_CHECKING:
    from allswell.domain.lease.claim import Granted
    from allswell.domain.mesh.request import InboxItem
    from allswell.domain.task.model import Handover, RequestAnswer, Task
    from allswell.engine.lease import HolderUpdate
    from allswell.engine.mesh import Requested
    from allswell.runtime.agent_socket import AgentNotice


class RequestAnswerShape(Struct, frozen=True):
    """What another agent has answered to a request of the task; `is_cut`: `result` is the beginning of its JSON.

    Where it has declined the request, `result` is why.
    """

    request_id: str
    summary: str
    to: str
    agent_id: str
    asked_at: Moment
    answered_at: Moment
    result: Any
    is_cut: bool
    declined: bool

    @classmethod
    def of(cls, answer: RequestAnswer) -> RequestAnswerShape:
        """An answer as the task knows it."""
        result: object = answer.text if answer.cut else Raw(answer.text.encode())
        asked, answered = moment(answer.asked_at), moment(answer.at)
        about = (answer.request, answer.summary, answer.to, answer.by, asked, answered)
        return cls(*about, result, answer.cut, answer.declined)


class HandoverShape(Struct, frozen=True):
    """What the attempt before leaves to this one, with what other agents have answered; `answer` is a human's."""

    reason: str
    agent_id: str
    message: str
    note: str
    progress: float | None
    answer: str
    answers: list[RequestAnswerShape]

    @classmethod
    def of(cls, left: Handover, answers: Sequence[RequestAnswer]) -> HandoverShape:
        """What was left."""
        answered = [*map(RequestAnswerShape.of, answers)]
        return as_shape(left, cls, agent_id=left.agent, answers=answered)


class NeedEndedShape(Struct, frozen=True):
    """A task that was needed and has ended without being done."""

    task: str = field(name="task_id")
    outcome: str
    reason: str
    human: bool
    name: str


class ClaimedTaskShape(Struct, frozen=True):
    """What is to be done."""

    task_id: str
    name: str
    role: str
    priority: int
    payload: Raw
    attempt: int
    run_id: str | None
    services: tuple[str, ...]
    notes: tuple[str, ...]
    needs_ended: tuple[NeedEndedShape, ...]
    """What it needed and did not get, where it runs all the same; `human` is whether the reason is a human's."""

    @classmethod
    def of(cls, task: Task, payload: str, attempt: int) -> ClaimedTaskShape:
        """A task with its payload, which is JSON."""
        return cls(
            task_id=task.id,
            name=task.name,
            role=task.role,
            priority=task.priority,
            payload=Raw(payload.encode()),
            attempt=attempt,
            run_id=task.run,
            services=task.spec.services,
            notes=task.record.notes,
            needs_ended=tuple(as_shape(one, NeedEndedShape) for one in task.record.needs_ended),
        )


class ClaimShape(Struct, frozen=True):
    """A task with the lease on it: every word about it carries the token."""

    task: ClaimedTaskShape
    token: int
    agent_id: str
    deadline: Moment | None
    """When its limit is reached; null: it has none, and nor has `remaining_ms` a number then."""
    remaining_ms: int | None
    renew_every_ms: int | None
    handover: HandoverShape | None

    @classmethod
    def of(cls, granted: Granted) -> ClaimShape:
        """What was granted."""
        lease, handover = granted.lease, granted.task.record.handover
        return cls(
            task=ClaimedTaskShape.of(granted.task, granted.payload, lease.token),
            token=lease.token,
            agent_id=lease.agent,
            deadline=moment(lease.limit_at),
            remaining_ms=None if lease.limit is None else lease.deadline - granted.told_at,
            renew_every_ms=lease.length,
            handover=None if handover is None else HandoverShape.of(handover, granted.task.record.answers),
        )


class NoClaimShape(Struct, frozen=True):
    """There is nothing to claim."""

    task: None


class ClaimsShape(Struct, frozen=True):
    """As many claims as were wanted, or as there were."""

    claims: list[ClaimShape]


# The answer to a holder's call: how much time is left, and what the holder should do now.


class AnsweredShape(Struct, frozen=True):
    """What was answered to a question."""

    question_id: str
    choice: str
    answer: str


class OrdersShape(Struct, frozen=True):
    """The answer to a check-in.

    `asked` says that a check-in is owed, `order` in which words it was asked for. `stop` says why the attempt is being
    ended: save what there is, and go. `answers` are those to questions that were asked while the work went on.
    `inbox` are requests of other agents that wait for an answer, `requests` what others have answered to requests that
    were not waited for. `handover` is what came before this attempt and what
    humans have said, in words, with the first check-in to a supervisor; else the claim had it. Without a limit
    `remaining_ms` and `deadline` are null.
    """

    remaining_ms: int | None
    deadline: Moment | None
    asked: bool
    stop: str | None
    order: str | None
    answers: list[AnsweredShape]
    inbox: list[str]
    handover: str
    requests: list[RequestAnswerShape]

    @classmethod
    def of(cls, news: HolderUpdate) -> OrdersShape:
        """What the store says; that an attempt is being ended is known to a supervisor alone."""
        orders = news.orders
        answers = [AnsweredShape(one.id, one.choice or "", one.answer) for one in news.answered]
        deadline = None if orders.remaining_ms is None else moment(orders.deadline)
        came = [*map(RequestAnswerShape.of, news.requests)]
        return cls(orders.remaining_ms, deadline, orders.asked, None, news.order, answers, list(news.inbox), "", came)

    @classmethod
    def told_by(cls, supervisor: AgentNotice) -> OrdersShape:
        """What a supervisor says to its agent."""
        told = supervisor
        order = None if "order" not in told.more else msgspec.json.decode(told.more["order"], type=str)
        answers = [AnsweredShape(one["question"], one["choice"], one["answer"]) for one in told.answers]
        return cls(
            told.remaining_ms,
            moment(told.deadline),
            told.checkin,
            told.stop,
            order,
            answers,
            list(told.inbox),
            told.handover,
            [*map(RequestAnswerShape.of, told.requests)],
        )


class LastWordShape(Struct, frozen=True):
    """The answer to a word that ends an attempt: where the task stands now.

    A holder that calls through a supervisor gets its orders, and no `state`.
    """

    task_id: str
    said: str
    state: str | None
    orders: OrdersShape | None


# Requests between agents: what was asked, what waits in an inbox, and what has come of it.

NEXT_TASK: Literal["next_task"] = "next_task"


class RequestedShape(Struct, frozen=True):
    """How a request to another agent stands; `result` is what came of it, or why nothing did.

    If no answer has come and the task waits for it now, it is `blocked`, `fallback` says what to do, and `next` is the
    task that was claimed instead, or null.
    """

    request_id: str
    state: str
    result: Any
    blocked: bool
    fallback: Literal["next_task"] | None
    next: ClaimShape | None
    kind: str | None
    """Null where it is not known here."""

    @classmethod
    def of(
        cls,
        request: str,
        state: str,
        result: object = None,
        following: Granted | None = None,
        kind: str | None = None,
    ) -> RequestedShape:
        """A request in this state; `following` is what was claimed where it is blocked."""
        blocked = state == "blocked"
        claimed = None if following is None else ClaimShape.of(following)
        shown, fallback = None if blocked else result, None if not blocked else NEXT_TASK
        return cls(request, state, shown, blocked, fallback, claimed, kind)

    @classmethod
    def waited_for(cls, ended: Requested) -> RequestedShape:
        """What came of a request that was waited for."""
        result = ended.answer if ended.state == "done" else ended.reason or None
        following = None if ended.next is None else ended.next.granted
        return cls.of(ended.request_id, ended.state, result, following, ended.kind)


# What an agent is asked by others.


class InboxItemShape(Struct, frozen=True):
    """A request that waits for an answer; `expires_at` is null where it is late already, and an answer still counts."""

    request_id: str
    kind: str
    sender: str = field(name="agent_id")
    to: str
    summary: str
    payload: Any
    task: str = field(name="task_id")
    attempt: int
    expires_at: Moment | None
    asked_at: Moment
    new: bool
    """Whether this delivery was not listed to the agent before."""


class InboxShape(Struct, frozen=True):
    """What an agent is asked, the oldest first; `agent_id` of each is who asks, `task_id` for which task.

    What is addressed to others, and may be answered by it, is another list.
    """

    requests: list[InboxItemShape]

    @classmethod
    def of(cls, items: Sequence[InboxItem]) -> InboxShape:
        """What is in an inbox."""
        return cls([as_shape(item, InboxItemShape) for item in items])


class RespondedShape(Struct, frozen=True):
    """A request that was answered, or declined."""

    request_id: str


# What has come of questions to humans and of requests to other agents.


class AnswersShape(Struct, frozen=True):
    """Questions and requests as they stand. One without an answer is open, and its answer is null or empty."""

    questions: list[QuestionShape]
    requests: list[RequestedShape]

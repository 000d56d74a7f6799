"""Holding work: claim it, check in on it, end it, ask about it. Every word about a lease names its task and token."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from allswell.domain.command import Claim
from allswell.domain.names import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, TaskId
from allswell.domain.question import Act, Option
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.task import State
from allswell.doors.http.call import Call
from allswell.doors.http.claiming import claimed
from allswell.doors.http.route import Route
from allswell.doors.http.tasks import Length
from allswell.doors.shapes.claim import ClaimShape, ClaimsShape
from allswell.doors.shapes.orders import LastWordShape, OrdersShape
from allswell.doors.shapes.question import QuestionShape
from allswell.doors.shapes.request import RequestedShape
from allswell.doors.shapes.task import stands
from allswell.engine import checking_in
from allswell.engine.finding import find_holder
from allswell.engine.held import Held
from allswell.errors import Refused
from allswell.remote.wire import WAIT_MOST

Wait = Annotated[int, Meta(ge=0, le=WAIT_MOST, description="Wait so many milliseconds.")]


class ClaimGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """Who claims, and what; without roles, whatever the key may claim for."""

    agent_id: Annotated[str, Meta(description="Who holds it; without, the agent of the key.")] | None = None
    roles: list[str] | None = None
    count: Annotated[int, Meta(ge=1, le=1_000)] = 1
    wait_ms: Wait = 0
    lease_ms: Annotated[int, Meta(ge=1, description="Checks in at least this often, or loses it.")] | None = None
    task_id: Annotated[str, Meta(description="This one or none.")] | None = None


async def claim_tasks(call: Call, given: ClaimGiven) -> ClaimsShape:
    """Take tasks to work on, waiting for the first if there is none.

    An Idempotency-Key makes a claim whose answer was lost safe to repeat: it is answered with the same leases.
    """
    agent = given.agent_id or (call.key.agents[0] if call.key.agents else "")
    if not agent:
        raise Refused("no_agent", "who claims? give agent_id", where="agent_id")
    claim = Claim(
        CommandId(call.command or NO_COMMAND),
        AgentId(agent),
        None if given.roles is None else tuple(given.roles),
        given.count,
        given.lease_ms,
        task=None if given.task_id is None else TaskId(given.task_id),
    )
    got = await claimed(call, claim, given.wait_ms)
    return ClaimsShape([ClaimShape.of(one) for one in got.granted])


async def held_by(call: Call, agent: str | None) -> Held:
    """The lease that a path names; an agent that is not named is who has, or had, that token."""
    task, token = call.named("task"), call.named("token")
    if not token.isascii() or not token.isdigit() or len(token) > 18:
        raise Refused("no_token", f"{token!r} is no token: a claim answers with a number", where="token")
    number = int(token)
    if agent is None:
        row = await call.watch.task(task)
        if row is None:
            raise Refused("unknown_task", f"there is no task {task!r}", where="task")
        agent = await find_holder(call.views, row.task.id, number) or next(iter(call.key.agents), "unknown")
    return call.watch.held(task, number, agent)


async def _last_word(call: Call, held: Held, said: str) -> LastWordShape:
    row = await call.watch.task(held.task)
    return LastWordShape(held.task, said, None if row is None else stands(row), None)


class CheckInGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """What was done since; without proof it only says that the holder lives."""

    note: str = ""
    progress: float | None = None
    proof: bool = True
    agent_id: str | None = None


async def check_in(call: Call, given: CheckInGiven) -> OrdersShape:
    """Prove progress; the answer says how much time is left, whether a check-in is owed, and what came meanwhile."""
    held = await held_by(call, given.agent_id)
    return OrdersShape.of(
        await checking_in.check_in(call.watch, held, given.note, progress=given.progress, proof=given.proof)
    )


class DoneGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """What it came to."""

    result: Any = None
    agent_id: str | None = None


async def finish(call: Call, given: DoneGiven) -> LastWordShape:
    """The task is done."""
    held = await held_by(call, given.agent_id)
    await held.complete(given.result, command=call.command)
    return LastWordShape(held.task, "done", State.DONE, None)  # it is; what else is true of it is not asked for


class FailGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """What went wrong; its class decides what follows."""

    message: str
    error_class: ErrorClass = ErrorClass.TRANSIENT
    retry_after_ms: Millis | None = None
    services: tuple[str, ...] = ()
    agent_id: str | None = None


async def fail(call: Call, given: FailGiven) -> LastWordShape:
    """This attempt failed; the error's class decides whether it is tried again."""
    held = await held_by(call, given.agent_id)
    failure = Failure(given.error_class, given.message, given.retry_after_ms, given.services)
    await held.fail(failure, command=call.command)
    return await _last_word(call, held, "fail")


class ReleaseGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and how long nobody gets it."""

    reason: str = "released"
    delay: Length = 0
    agent_id: str | None = None


async def release(call: Call, given: ReleaseGiven) -> LastWordShape:
    """Give the task back: neither a failure nor a timeout."""
    held = await held_by(call, given.agent_id)
    await held.release(given.reason, delay=given.delay, command=call.command)
    return await _last_word(call, held, "release")


class OptionGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to answer, and what it does."""

    key: str
    label: str
    act: Act = Act.RETRY


class AskGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """A question to a human; with `hold` the work goes on meanwhile."""

    text: str
    options: list[OptionGiven] = []
    hold: bool = False
    agent_id: str | None = None


async def ask(call: Call, given: AskGiven) -> QuestionShape:
    """Ask a human; unless `hold`, this attempt ends and the task waits for the answer."""
    held = await held_by(call, given.agent_id)
    options = [Option(one.key, one.label, one.act) for one in given.options]
    id_ = await held.ask(given.text, options, hold=given.hold, command=call.command)
    return await _question(call, id_)


class RequestGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """A focused request to an expert of a role; or, with `kind` and `to`, one that is delivered again to whom it is."""

    name: Annotated[str, Meta(description="What is asked, in a line.")]
    role: Annotated[str, Meta(description="Of a delegation, the expert's; else who else may answer.")] = ""
    kind: Annotated[str, Meta(description="delegation, handoff, status_check, collaboration or webhook.")] = (
        "delegation"
    )
    to: Annotated[str, Meta(description="An agent, role:ROLE, or an address; of all but a delegation.")] = ""
    payload: Any = None
    timeout: Length | None = None
    retries: Annotated[int, Meta(ge=0, le=1_000)] | None = None
    again: Length | None = None
    agent_id: str | None = None


async def request(call: Call, given: RequestGiven) -> RequestedShape:
    """Ask another agent, and keep working; what comes of it is shown under the lease's `requests`.

    With an Idempotency-Key it is asked once, however often it is sent.
    """
    held = await held_by(call, given.agent_id)
    if given.kind == "delegation":
        id_ = await held.delegate(
            given.role, given.name, payload=given.payload, timeout=given.timeout, key=call.command
        )
    else:
        id_ = await held.send_request(
            given.to,
            given.kind,
            given.name,
            payload=given.payload,
            timeout=given.timeout,
            retries=given.retries,
            again=given.again,
            role=given.role,
            key=call.command,
        )
    return RequestedShape(id_, "open", None, blocked=False, fallback=None, next=None)


class Patience(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait."""

    wait_ms: Wait = 0


async def show_question(call: Call, asked: Patience) -> QuestionShape:
    """Show a question; with `wait_ms`, once it is answered, or as it is when the time is up."""
    until = asyncio.get_running_loop().time() + call.patience(asked.wait_ms)
    id_ = QuestionId(call.named("question"))
    return await call.unless_gone(_answered(call, id_, until))


async def _answered(call: Call, id_: QuestionId, until: float) -> QuestionShape:
    from allswell.engine.signal import either

    loop = asyncio.get_running_loop()
    while True:
        news = call.watch.on_event()
        shown = await _question(call, id_)
        left = until - loop.time()
        if shown.closed_at is not None or left <= 0 or call.house.closing.is_set():
            return shown
        await either(news, min(left, 1.0))


async def _question(call: Call, id_: QuestionId) -> QuestionShape:
    question = await call.watch.question(id_)
    if question is None:
        raise Refused("unknown_question", f"there is no question {id_!r}", where="question")
    return QuestionShape.of(question)


_LEASE = "/tasks/{task}/leases/{token}"
ROUTES = (
    Route("POST", "/claims", claim_tasks, ClaimGiven, (ClaimsShape,)),
    Route("POST", f"{_LEASE}/checkin", check_in, CheckInGiven, (OrdersShape,)),
    Route("POST", f"{_LEASE}/done", finish, DoneGiven, (LastWordShape,)),
    Route("POST", f"{_LEASE}/fail", fail, FailGiven, (LastWordShape,)),
    Route("POST", f"{_LEASE}/release", release, ReleaseGiven, (LastWordShape,)),
    Route("POST", f"{_LEASE}/ask", ask, AskGiven, (QuestionShape,), status=201),
    Route("POST", f"{_LEASE}/request", request, RequestGiven, (RequestedShape,), status=201),
    Route("GET", "/questions/{question}", show_question, Patience, (QuestionShape,)),
)

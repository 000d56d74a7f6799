"""A holder that speaks to a watch: a store on this machine, or a server behind HTTP.

What ends an attempt, and what an agent answers, carries an id that is made of its content: said again, because the
first answer was lost, it counts once. A door whose callers bring such an id of their own hands it in (`command`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from allswell.actions.holder import RequestDraft, wait_for_answers
from allswell.domain.ids import QuestionId, TaskId
from allswell.domain.lease.verification import shown, verify_of
from allswell.domain.mesh.request import DELEGATION, InboxItem, check_delegation
from allswell.domain.question import Option
from allswell.domain.service.retry import Failure
from allswell.domain.task.model import OPEN, State
from allswell.engine.ids import command_of
from allswell.engine.lease import Held, check_in
from allswell.engine.lookup import find_holder
from allswell.engine.mesh import COMES_WITHIN
from allswell.engine.wakeup import Waiter, either
from allswell.errors import LeaseLost, Refused
from allswell.views.attempt import VerifiedShape
from allswell.views.lease import LastWordShape, OrdersShape, RequestedShape
from allswell.views.question import QuestionShape

if TYPE_CHECKING:
    from allswell.engine.watch import Watch


async def find_held(watch: Watch, task: str, token: int, agent: str | None, otherwise: str = "unknown") -> Held:
    """The lease of this task and token; without `agent`, in the name of the agent that has, or had, that token."""
    id_ = TaskId(task)
    holder = agent or await find_holder(watch.views, id_, token)
    if holder is None and await watch.task(id_) is None:
        hint = "give the task_id and the token of your claim"
        raise Refused("unknown_task", f"there is no task {task!r}, or it is not yours", where="task", hint=hint)
    return watch.held(id_, token, holder or otherwise)


class StoreAnswers:
    """How questions and requests stand on a watch.

    Where a request has blocked its task, the next one is claimed for its agent if `may_move_on` says so, with `lease`.
    """

    def __init__(self, watch: Watch, may_move_on: Callable[[str], bool], lease: int | None) -> None:
        self._watch = watch
        self._may_move_on = may_move_on
        self._lease = lease
        self._heard: Waiter | None = None

    async def question(self, id_: str) -> QuestionShape:
        """A question as it stands."""
        self.listen()
        question = await self._watch.question(QuestionId(id_))
        if question is None:
            hint = "give the question_id that ask answered"
            text = f"there is no question {id_!r}, or it is not yours"
            raise Refused("unknown_question", text, where="question", hint=hint)
        return QuestionShape.of(question)

    async def requested(self, id_: str) -> RequestedShape:
        """A request as it stands."""
        self.listen()
        row = await self._watch.task(id_)
        if row is None or row.task.spec.origin is None:
            hint = "give the request_id that request answered"
            text = f"there is no request {id_!r}, or it is not yours"
            raise Refused("unknown_request", text, where="request", hint=hint)
        task, origin = row.task, row.task.spec.origin
        kind = DELEGATION if task.spec.request is None else task.spec.request.kind
        if task.state == State.DONE:
            return RequestedShape.of(task.id, task.state, await self._watch.result(task.id), kind=kind)
        if task.state != OPEN:
            return RequestedShape.of(task.id, task.state, task.record.reason, kind=kind)
        if task.spec.request is None or not self._may_move_on(origin.agent):
            return RequestedShape.of(task.id, OPEN, kind=kind)
        held = self._watch.held(origin.task, origin.token, origin.agent)
        return RequestedShape.waited_for(await held.wait_for(id_, lease=self._lease, wait=0))

    def clock(self) -> float:
        """Seconds that only ever grow."""
        return asyncio.get_running_loop().time()

    def listen(self) -> None:
        """From before the look on: what is committed after it is heard."""
        if self._heard is None:
            self._heard = self._watch.on_event()

    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return False

    async def news(self, within: float) -> None:
        """Wait for the next event that any task has, and at most so long."""
        heard, self._heard = self._heard or self._watch.on_event(), None
        await either(heard, within)


class StoreHolder(StoreAnswers):
    """A `Holder` of one lease on a watch."""

    def __init__(self, watch: Watch, held: Held, command: str | None = None, lease: int | None = None) -> None:
        super().__init__(watch, lambda agent: agent == held.agent, lease)
        self._held = held
        self._command = command

    def _id(self, verb: str, *content: object) -> str:
        held = self._held
        return self._command or command_of(verb, held.task, held.token, held.agent, *content)

    async def check_in(self, note: str, progress: float | None, *, proof: bool = True) -> OrdersShape:
        """Prove progress, or without `proof` life alone."""
        return OrdersShape.of(await check_in(self._watch, self._held, note, progress=progress, proof=proof))

    async def done(self, result: object) -> LastWordShape:
        """The task is done."""
        await self._held.complete(result, command=self._id("done", msgspec.json.encode(result)))
        return LastWordShape(self._held.task, "done", State.DONE, None)

    async def verify(self, result: object, folder: str, begins: Callable[[str], None]) -> VerifiedShape:
        """Verify in this folder what it brings, before that counts; where that fails it goes on, as long as it may.

        `begins` is called with the command before that is run.
        """
        from allswell.runtime.attempt.verification import environment_by_hand, verify_alive

        held = self._held
        row = await self._watch.task(held.task)
        if row is None or row.lease is None or row.lease.token != held.token:
            raise LeaseLost(held.task, held.token, "no agent holds the task")
        begins(shown(verify_of(row.task)))
        came = await verify_alive(self._watch, row, held, folder, environment_by_hand())
        followed = await held.verified(
            passed=came.passed, why=came.why, said=came.output, elapsed=came.elapsed_ms, result=result, hold=True
        )
        return VerifiedShape.of(held.task, folder, came, followed)

    async def fail(self, failure: Failure) -> LastWordShape:
        """This attempt failed."""
        await self._held.fail(failure, command=self._id("fail", failure))
        return await self._ended("fail")

    async def release(self, reason: str, delay: int) -> LastWordShape:
        """Give the task back."""
        await self._held.release(reason, delay=delay, command=self._id("release", reason, delay))
        return await self._ended("release")

    async def _ended(self, verb: str) -> LastWordShape:
        row = await self._watch.task(self._held.task)
        return LastWordShape(self._held.task, verb, None if row is None else row.state, None)

    async def ask(self, text: str, options: Sequence[Option], *, hold: bool) -> QuestionShape:
        """Ask a human. A question that ends the attempt counts once; with `hold` each one is a new one."""
        command = self._command if hold else self._id("ask", text, list(options))
        id_ = await self._held.ask(text, options, hold=hold, command=command)
        return await self.question(id_)

    async def request(self, draft: RequestDraft) -> RequestedShape:
        """Ask another agent, and go on."""
        held = self._held
        kind = draft.kind or await held.kind_for(draft.to)
        if kind == DELEGATION:
            check_delegation(draft.to, draft.retries, draft.again, draft.role)
            id_ = await held.delegate(draft.to, draft.text, payload=draft.payload, timeout=draft.timeout, key=draft.key)
        else:
            id_ = await held.send_request(
                draft.to,
                kind,
                draft.text,
                waits=COMES_WITHIN if draft.blocks else 0,
                payload=draft.payload,
                timeout=draft.timeout,
                retries=draft.retries,
                again=draft.again,
                role=draft.role,
                key=draft.key,
                blocks=draft.blocks,
            )
        return RequestedShape.of(id_, OPEN, kind=kind)

    async def wait_for(self, request: RequestedShape, lease: int | None) -> RequestedShape:
        """Wait for what comes of a request, checking in meanwhile where it could block the task."""
        if request.kind == DELEGATION:
            return (await wait_for_answers(self, [request.request_id], None)).requests[0]
        return RequestedShape.waited_for(await self._held.wait_for(request.request_id, lease=lease))


class StoreInbox:
    """What other agents ask of one, on a watch."""

    def __init__(self, watch: Watch, agent: str, roles: Sequence[str], command: str | None = None) -> None:
        self._watch = watch
        self._agent = agent
        self._roles = roles
        self._command = command

    async def inbox(self, patience: float, *, mesh: bool) -> Sequence[InboxItem]:
        """What other agents ask, waiting so many seconds for what was not listed before."""
        return await self._watch.inbox(self._agent, roles=self._roles, wait=int(patience * 1_000), mesh=mesh)

    async def respond(self, request: str, answer: object) -> None:
        """Answer another agent; the first answer counts, and a late one too."""
        command = self._command or command_of("respond", request, self._agent, msgspec.json.encode(answer))
        await self._watch.respond(request, answer, agent=self._agent, roles=self._roles, command=command)

    async def decline(self, request: str, reason: str) -> None:
        """Decline what another agent asks; it learns of it at once."""
        command = self._command or command_of("decline", request, self._agent, reason)
        await self._watch.decline(request, reason, agent=self._agent, roles=self._roles, command=command)

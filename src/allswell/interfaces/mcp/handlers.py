"""What a tool call is carried out by. It translates: what may be done, and what follows, is decided behind the watch.

`WatchDesk` speaks to a watch as one key shows it, which passes the rules of access for each command and each look
(engine/access/gate.py). It keeps nothing between two calls: a lease is its task and its token, which every call
names, and
any server of the same store can answer any call. So nobody renews a lease in the background; the claim says how long
one lasts after each sign of its holder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import UNSET

from allswell.build.overview import why
from allswell.domain.access.key import Key
from allswell.domain.access.rights import check_agent, is_its_agent
from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.mesh.request import DELEGATION
from allswell.domain.question import Question, option_of
from allswell.domain.service.retry import Failure
from allswell.domain.task.model import OPEN, State
from allswell.domain.values import hide
from allswell.engine.access.gate import Gate
from allswell.engine.ids import command_of
from allswell.engine.lease import Held, check_in
from allswell.engine.lookup import find, find_holder, find_task
from allswell.engine.mesh import COMES_WITHIN
from allswell.engine.status.verdict import ANYWHERE, Viewpoint, look
from allswell.engine.wakeup import either
from allswell.engine.watch import Watch
from allswell.errors import Refused, Unavailable
from allswell.interfaces.mcp import arguments as given
from allswell.timing.scopes import remaining_ms
from allswell.views.explanation import ExplanationShape
from allswell.views.lease import ClaimShape, ClaimsShape, LastWordShape, OrdersShape
from allswell.views.message import AnswersShape, DeclinedShape, InboxShape, RequestedShape, RespondedShape
from allswell.views.question import QuestionShape
from allswell.views.status import StatusShape
from allswell.views.task import JoinedRunShape, SubmittedShape, stands

T = TypeVar("T")
_POLL = 1.0
"""Seconds after which somebody who waits looks by itself."""


class ToolDesk:
    """What tools call; a desk has those of them that its table of tools lists."""

    async def claim(self, said: given.ClaimToolParams) -> ClaimsShape:
        """Take a task."""
        _not_here(said)

    async def submit(self, said: given.SubmitToolParams) -> SubmittedShape:
        """Hand a task over."""
        _not_here(said)

    async def status(self, said: given.StatusToolParams) -> StatusShape | ExplanationShape:
        """How things stand."""
        _not_here(said)

    async def own_status(self) -> OrdersShape:
        """How much time is left, and what is asked."""
        _not_here(None)

    async def checkin(self, said: given.CheckInToolParams) -> OrdersShape:
        """Prove progress."""
        _not_here(said)

    async def done(self, said: given.DoneToolParams) -> LastWordShape:
        """The task is done."""
        _not_here(said)

    async def fail(self, said: given.FailToolParams) -> LastWordShape:
        """The attempt failed."""
        _not_here(said)

    async def release(self, said: given.ReleaseToolParams) -> LastWordShape:
        """The task is given back."""
        _not_here(said)

    async def ask(self, said: given.AskToolParams) -> QuestionShape:
        """A question to a human."""
        _not_here(said)

    async def answers(self, said: given.AnswersToolParams) -> AnswersShape:
        """What came of questions and requests."""
        _not_here(said)

    async def request(self, said: given.RequestToolParams) -> RequestedShape:
        """A request to another agent."""
        _not_here(said)

    async def inbox(self, said: given.InboxToolParams) -> InboxShape:
        """What other agents ask."""
        _not_here(said)

    async def respond(self, said: given.RespondToolParams) -> RespondedShape:
        """An answer to another agent."""
        _not_here(said)

    async def decline(self, said: given.DeclineToolParams) -> DeclinedShape:
        """A refusal of what another agent asks."""
        _not_here(said)


def _not_here(said: object) -> NoReturn:
    raise Refused("no_tool", f"this cannot be done here: {type(said).__name__}", where="tool")


def patience(wait_s: int) -> float:
    """How long may be waited, in seconds: as asked, but neither longer than a call may, nor than its caller has."""
    left = remaining_ms()
    most = float(given.WAIT_MOST) if left is None else min(given.WAIT_MOST, left * 0.9 / 1000)
    return max(0.0, min(float(wait_s), most))


class WatchDesk(ToolDesk):
    """Tools on a watch, as a key shows it; made for one call."""

    def __init__(self, gate: Gate, key: Key, home: Path, closing: asyncio.Event, place: Viewpoint = ANYWHERE) -> None:
        self._gate = gate
        self.key = key
        self.watch: Watch = gate.watch_for(key)
        """As the key shows it."""
        self.home = home
        self.place = place
        self._url = hide(gate.backend_for(key).store.url)
        self._closing = closing
        """Set when the server stops: whoever waits is let go."""

    # --- work ---------------------------------------------------------------------------------------------------------

    async def submit(self, said: given.SubmitToolParams) -> SubmittedShape:
        """Hand a task over."""
        fields = {name: getattr(said, name) for name in said.__struct_fields__ if name != "timeout_s"}
        if said.timeout_s is not UNSET:
            fields["timeout"] = said.timeout_s * 1_000
        if said.key is not UNSET:
            fields["key"] = f"{self.key.name}/{said.key}"
        wanted = {name: value for name, value in fields.items() if value is not UNSET}
        ids: list[TaskId] = []
        made = await self.watch.submit_all([wanted], told=ids.extend)
        runs = [JoinedRunShape(id_, name, name in made.opened) for name, id_ in made.runs.items()]
        return SubmittedShape(ids[0], said.name, runs)

    async def claim(self, said: given.ClaimToolParams) -> ClaimsShape:
        """Take a task, waiting for one if there is none."""
        leases = await self._unless_closing(
            self.watch.claim_many(
                1,
                agent=self._agent(said.agent),
                roles=None if said.role is UNSET else [said.role],
                wait=int(patience(said.wait_s) * 1_000),
                lease=said.lease_s * 1_000,
                task=None if said.task is UNSET else said.task,
            )
        )
        return ClaimsShape([ClaimShape.of(lease.granted) for lease in leases])

    def _agent(self, named: str) -> str:
        name = named or next(iter(self.key.agents), "")
        if not name:
            text = "which agent are you? Set `agent`: your name, the same in every call"
            raise Refused("no_agent", text, where="agent")
        check_agent(self.key, name)
        return name

    async def status(self, said: given.StatusToolParams) -> StatusShape | ExplanationShape:
        """Why a task stands where it stands, or how all of it does."""
        views = self.watch.views
        if said.task is UNSET:
            return StatusShape.of(self._url, await look(views, self.place))
        looked_up = find if said.task.startswith(("r_", "q_")) else find_task  # names are those of tasks here
        return ExplanationShape.of(
            await why(
                views, await looked_up(views, said.task), pause=self.place.pause, still_running=self.place.still_running
            ),
            None,
        )

    # --- holding ------------------------------------------------------------------------------------------------------

    async def _held(self, said: given.LeaseToolParams) -> Held:
        """The lease that a call names; who speaks is who has, or had, that token."""
        task = TaskId(said.task)
        holder = await find_holder(self.watch.views, task, said.token)
        if holder is None and await self.watch.task(task) is None:
            text = f"there is no task {said.task!r}, or it is not yours"
            raise Refused("unknown_task", text, where="task", hint="give the task_id and the token of your claim")
        return self.watch.held(task, said.token, holder or next(iter(self.key.agents), "unknown"))

    async def checkin(self, said: given.CheckInToolParams) -> OrdersShape:
        """Prove progress; the answer tells what the store knows that concerns the holder."""
        held = await self._held(said)
        progress = None if said.progress is UNSET else said.progress
        return OrdersShape.of(await check_in(self.watch, held, said.note, progress=progress))

    async def done(self, said: given.DoneToolParams) -> LastWordShape:
        """The task is done; said again, it counts once."""
        held = await self._held(said)
        await held.complete(said.result, command=_command("done", held, msgspec.json.encode(said.result)))
        return await self._last_word(held, "done")

    async def fail(self, said: given.FailToolParams) -> LastWordShape:
        """This attempt failed; the error's class decides what follows."""
        held = await self._held(said)
        after = None if said.retry_after_s is UNSET else Millis(said.retry_after_s * 1_000)
        failure = Failure(said.error_class, said.message, after, tuple(said.services))
        await held.fail(failure, command=_command("fail", held, failure))
        return await self._last_word(held, "fail")

    async def release(self, said: given.ReleaseToolParams) -> LastWordShape:
        """Give the task back."""
        held = await self._held(said)
        command = _command("release", held, said.reason, said.delay_s)
        await held.release(said.reason, delay=said.delay_s * 1_000, command=command)
        return await self._last_word(held, "release")

    async def _last_word(self, held: Held, verb: str) -> LastWordShape:
        row = await self.watch.task(held.task)
        return LastWordShape(held.task, verb, None if row is None else stands(row), None)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, said: given.AskToolParams) -> QuestionShape:
        """Ask a human. One that ends the attempt counts once, however often it is said."""
        held = await self._held(said)
        options = [option_of(one.key, one.label) for one in said.options]
        command = None if said.hold else _command("ask", held, said.text, options)
        id_ = await held.ask(said.text, options, hold=said.hold, command=command)
        return QuestionShape.of(await self._question(id_))

    async def answers(self, said: given.AnswersToolParams) -> AnswersShape:
        """How questions and requests stand; with patience, once something has come of one of them."""
        return await self._unless_closing(self._answers(said.ids, patience(said.wait_s)))

    async def _answers(self, ids: Sequence[str], wait: float) -> AnswersShape:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            news = self.watch.on_event()
            questions = [await self._question(id_) for id_ in ids if id_.startswith("q_")]
            requests = [await self._requested(id_) for id_ in ids if not id_.startswith("q_")]
            came = any(one.closed_at is not None for one in questions) or any(one.state != OPEN for one in requests)
            left = until - loop.time()
            if came or left <= 0:
                return AnswersShape([QuestionShape.of(one) for one in questions], requests)
            await either(news, min(left, _POLL))

    async def _question(self, id_: str) -> Question:
        found = await self.watch.question(QuestionId(id_))
        if found is None:
            text = f"there is no question {id_!r}, or it is not yours"
            raise Refused("unknown_question", text, where="ids", hint="give the question_id that ask answered")
        return found

    async def request(self, said: given.RequestToolParams) -> RequestedShape:
        """Ask another agent, and go on."""
        held = await self._held(said)
        timeout = None if said.timeout_s is UNSET else said.timeout_s * 1_000
        if said.kind == "delegation":
            if said.retries is not UNSET:
                raise Refused("bad_request", "a delegation is tried once: leave retries out", where="retries")
            id_ = await held.delegate(said.to, said.text, payload=said.payload, timeout=timeout)
        else:
            id_ = await held.send_request(
                said.to,
                said.kind,
                said.text,
                payload=said.payload,
                timeout=timeout,
                retries=None if said.retries is UNSET else said.retries,
                waits=COMES_WITHIN,
                blocks=said.blocks,
            )
        came = await self._unless_closing(self._answers([id_], patience(said.wait_s)))
        return came.requests[0]

    async def _requested(self, id_: str) -> RequestedShape:
        row = await self.watch.task(id_)
        if row is None or row.task.spec.origin is None:
            text = f"there is no request {id_!r}, or it is not yours"
            raise Refused("unknown_request", text, where="ids", hint="give the request_id that request answered")
        task, origin = row.task, row.task.spec.origin
        kind = DELEGATION if task.spec.request is None else task.spec.request.kind
        if task.state == State.DONE:
            return RequestedShape.of(task.id, task.state, await self.watch.result(task.id), kind=kind)
        if task.state != OPEN:
            return RequestedShape.of(task.id, task.state, task.record.reason, kind=kind)
        if task.spec.request is None or not is_its_agent(self.key, origin.agent):
            return RequestedShape.of(task.id, OPEN, kind=kind)
        held = self.watch.held(origin.task, origin.token, origin.agent)
        return RequestedShape.waited_for(await held.wait_for(id_, lease=given.LEASE * 1_000, wait=0))

    async def inbox(self, said: given.InboxToolParams) -> InboxShape:
        """What other agents ask, waiting for the first if there is nothing."""
        wait = int(patience(said.wait_s) * 1_000)
        agent = self._agent(said.agent)
        await self._gate.note(agent)
        looking = self.watch.inbox(agent, roles=said.roles, wait=wait, mesh=said.mesh)
        return InboxShape.of(await self._unless_closing(looking))

    async def respond(self, said: given.RespondToolParams) -> RespondedShape:
        """Answer a request; said again, it counts once."""
        agent = self._agent(said.agent)
        command = command_of("respond", said.request, agent, msgspec.json.encode(said.answer))
        await self.watch.respond(said.request, said.answer, agent=agent, roles=said.roles, command=command)
        return RespondedShape(said.request)

    async def decline(self, said: given.DeclineToolParams) -> DeclinedShape:
        """Decline a request; said again, it counts once."""
        agent = self._agent(said.agent)
        command = command_of("decline", said.request, agent, said.reason)
        await self.watch.decline(said.request, said.reason, agent=agent, roles=said.roles, command=command)
        return DeclinedShape(said.request)

    async def _unless_closing(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something, but no longer than server and key live; what had been claimed by then goes back."""
        working, closing = asyncio.ensure_future(work), asyncio.ensure_future(self._closing.wait())
        keyless = asyncio.ensure_future(self._gate.until_over(self.key))
        try:
            await asyncio.wait([working, closing, keyless], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                if keyless.done():
                    await keyless
                raise Unavailable("the server stops", hint="call again in a moment: it may be back by then")
            return await working
        finally:
            closing.cancel()
            keyless.cancel()
            if not working.done():
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await working


def _command(verb: str, held: Held, *content: object) -> str:
    return command_of(verb, held.task, held.token, held.agent, *content)

"""Requests between agents as programs ask, read and answer them; the rules are the core's (domain/request.py).

Who waits for an answer looks when something was told, and when the request goes on by itself; in between it proves on
behalf of its agent that the attempt is alive, since it is known what that waits for, and until when. When the last
delivery has expired it asks how the request stands, and is given something else to do if that has blocked its task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec

from allswell.domain.address import WEBHOOKS, agent_of, check_webhook, role_for, role_of
from allswell.domain.claim import Granted
from allswell.domain.command import MoveOn, NewTask, Respond, SendRequest
from allswell.domain.duration import Duration, parse
from allswell.domain.hold import Orders
from allswell.domain.inbox import InboxItem
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import AgentId, CommandId, Millis, TaskId, Token, is_request, request_id
from allswell.domain.plain_data import to_json
from allswell.domain.policy import DEFAULT, Policy
from allswell.domain.request import FIGURES, MeshFigures, check_kind
from allswell.domain.responding import RequestStands, is_for
from allswell.domain.task import KEPT, OPEN, RequestSpec, State
from allswell.domain.webhook_secret import secrets_for
from allswell.engine.backend import Backend
from allswell.engine.candidates import can_serve
from allswell.engine.ids import Ids, mark_for
from allswell.engine.known_agents import KnownAgents
from allswell.engine.signal import either
from allswell.errors import AllswellError, LeaseLost, Refused

if TYPE_CHECKING:
    from allswell.engine.handle import Lease

COMES_WITHIN = 2_000
"""Milliseconds that a caller which waits has to learn of the block itself, before it is made without it."""
_LIVES = 10.0
"""Seconds between two signs of life of a caller that waits."""
_PAGE = 100


class Requested(msgspec.Struct, frozen=True):
    """What came of a request."""

    request_id: TaskId
    state: str
    """`done`: answered. `blocked`: nobody has answered, and the task waits for it. `open`: it was not waited for."""
    answer: Any = None
    blocked: bool = False
    fallback: Literal["next_task"] | None = None
    """What to do where it is blocked."""
    next: Any = None
    """The lease on what to do instead, already claimed; None: there is nothing."""
    reason: str = ""
    """Why it came to nothing, where it has not blocked the task."""


class Wishes(TypedDict, total=False):
    """What a request may have beside whom it is for and what it is about."""

    again: Duration | None
    """Once it has blocked its task: after how long it is delivered anew."""
    kept: Duration | None
    """Once it has blocked its task: for how long a late answer is waited for; a week, if it is not set."""
    key: str | None
    """Under the same key a task asks it once."""
    payload: object
    retries: int | None
    """How often it is delivered again; as its kind, if it is not set."""
    role: str
    """Who else may answer once the mesh was asked; empty: everybody."""
    timeout: Duration | None
    """Of each delivery; that of its kind, if it is not set."""


class Caller(msgspec.Struct, frozen=True):
    """The attempt for which somebody asks."""

    task: TaskId
    token: Token
    agent: AgentId


class _Instead(msgspec.Struct, frozen=True):
    """What a caller wants to have where its request has blocked its task."""

    roles: tuple[str, ...] | None
    length: int | None
    claims: bool


class Mesh:
    """The requests of one watch."""

    def __init__(
        self,
        engine: Backend,
        ids: Ids,
        *,
        policies: Mapping[str, Policy] = {},
        figures: MeshFigures | None = None,
        hold: Callable[[Granted, float], Lease] | None = None,
    ) -> None:
        figures = figures or FIGURES
        self._engine = engine
        self._ids = ids
        self._policies = policies
        self._kinds, self._escalation = figures.kinds, figures.escalation
        self._private, self._secrets = figures.private_webhooks, figures.webhook_secrets
        self._known = None if figures.agents is None else KnownAgents(engine.store, figures.agents)
        self._hold = hold

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._policies.get(role) or self._policies.get("", DEFAULT)

    # --- asking -------------------------------------------------------------------------------------------------------

    def sending(
        self, caller: Caller, to: str, kind: str, summary: str, *, waits: int = 0, **wishes: Unpack[Wishes]
    ) -> SendRequest:
        """The command that asks; a caller that waits has `waits` ms to come when the last delivery has expired."""
        check_kind(kind)
        if kind not in self._kinds:
            raise Refused("bad_request", f"a {kind} is asked with `delegate`", where="kind")
        figures = self._kinds[kind]
        timeout, retries = wishes.get("timeout"), wishes.get("retries")
        again, kept = wishes.get("again"), wishes.get("kept")
        spec = RequestSpec(
            kind,
            to,
            figures.timeout if timeout is None else parse(timeout, where="timeout"),
            figures.retries if retries is None else retries,
            figures.timeout,
            waits,
            None if again is None else parse(again, where="again"),
            KEPT if kept is None else parse(kept, where="kept"),
            role=wishes.get("role", ""),
            escalate=self._escalation.after,
            remind=self._escalation.remind,
        )
        lane = role_for(to, kind)
        if lane == WEBHOOKS:
            check_webhook(to, private=self._private)
            if self._secrets is not None:
                secrets_for(to, self._secrets)
        payload, key = wishes.get("payload"), wishes.get("key")
        text = "null" if payload is None else to_json(payload, f"payload of {summary!r}")
        mark = self._ids.mark() if key is None else mark_for(key)
        new = NewTask(request_id(caller.task, mark), summary, role=lane, payload=text, policy=self.policy_for(lane))
        command = self._ids.command() if key is None else CommandId(f"ask.{new.id}")
        return SendRequest(command, caller.task, caller.token, caller.agent, new, spec)

    async def routed(self, said: SendRequest) -> SendRequest:
        """A request to a role, with those who are known to have it."""
        role = role_of(said.spec.to)
        if role is None:
            return said
        candidates = await can_serve(self._engine.store, role, said.agent)
        return msgspec.structs.replace(said, candidates=candidates)

    async def send(self, said: SendRequest, say: Callable[[SendRequest], Awaitable[object]]) -> TaskId:
        """Ask, unless nobody knows the agent that it is for; the id of the request."""
        to = agent_of(said.request.role)
        if self._known is not None and to is not None:
            await self._known.note(said.agent)
            await self._known.check(to)
        await say(said)
        return said.request.id

    async def wait(
        self,
        caller: Caller,
        request: TaskId,
        *,
        roles: Sequence[str] | None = None,
        length: int | None = None,
        claims: bool = True,
        checkin: Callable[[], Awaitable[Orders]] | None = None,
        renew: Callable[[], Awaitable[Orders]] | None = None,
    ) -> Requested:
        """Wait for the answer, or for the end of the schedule; with `claims`, something else is claimed then."""
        claim = _Instead(None if roles is None else tuple(roles), length, claims and self._hold is not None)
        loop = asyncio.get_running_loop()
        self._engine.hear()
        alive = loop.time()
        while True:
            news = self._engine.journal.listen()
            row = await self._row(request)
            stand = row.task.record.request
            assert stand is not None  # noqa: S101 - it is a request
            left = (stand.due - await self._now()) / 1_000
            if row.task.state != OPEN or stand.blocked_at is not None or not stand.waiting or left <= 0:
                ended = await self._how_it_stands(caller, row, claim)
                if ended is not None:
                    return ended
                left = 0.0
            if checkin is not None and renew is not None and loop.time() - alive >= _LIVES:
                alive = loop.time()
                await _show_life(checkin, renew)
            poll = self._engine.pace.follow_poll * (0.75 + self._engine.draw() / 2)
            await either(news, max(min(left, poll * 4, _LIVES), poll / 4))

    async def _how_it_stands(self, caller: Caller, row: TaskRow, instead: _Instead) -> Requested | None:
        """The end, where it has come; None: it is open, and delivered again."""
        request, stand = row.task.id, row.task.record.request
        if row.task.state != OPEN and (stand is None or stand.blocked_at is None):
            return await self._ended(row)
        sent = asyncio.get_running_loop().time()
        back = await self._engine.held_back()
        said = MoveOn(
            self._ids.command(),
            caller.task,
            caller.token,
            caller.agent,
            request,
            instead.roles,
            instead.length,
            back.runs,
            instead.claims and not back.everything,
        )
        answer = await self._engine.do(said)
        if isinstance(answer, RequestStands):
            return None if answer.state == OPEN else await self._ended(await self._row(request))
        granted = answer[0] if isinstance(answer, list) and answer else None
        lease = self._hold(granted, sent) if isinstance(granted, Granted) and self._hold is not None else None
        return Requested(request, "blocked", blocked=True, fallback="next_task", next=lease)

    async def is_exhausted(self, request: TaskId) -> bool | None:
        """Whether nobody has answered it, and it is about to block its task; None: it has ended, or has blocked it."""
        row = await self._row(request)
        stand = row.task.record.request
        if row.task.state != OPEN or stand is None or stand.blocked_at is not None:
            return None
        return not stand.waiting

    async def _ended(self, row: TaskRow) -> Requested:
        task = row.task
        if task.state != State.DONE:
            return Requested(task.id, task.state, reason=task.record.reason)
        _, result = await self._engine.store.view_payload(task.id)
        return Requested(task.id, task.state, None if result is None else msgspec.json.decode(result))

    async def _row(self, request: TaskId) -> TaskRow:
        row = await self._engine.store.view_task(request)
        if row is None or row.task.spec.request is None:
            raise Refused("unknown_request", f"there is no request {request}", where="request")
        return row

    async def _now(self) -> Millis:
        return (await self._engine.store.view_agenda()).now

    # --- answering ----------------------------------------------------------------------------------------------------

    async def inbox(self, agent: str, roles: Sequence[str] = (), *, wait: float = 0.0) -> list[InboxItem]:
        """What this agent can answer, the oldest first; with `wait`, so many seconds are waited for the first."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        if wait > 0:
            self._engine.hear()
        if self._known is not None:
            await self._known.note(agent)
        while True:
            news = self._engine.journal.listen()
            found = await self._inbox(agent, roles)
            left = until - loop.time()
            if found or left <= 0:
                return found
            await either(news, min(left, self._engine.pace.follow_poll * (0.75 + self._engine.draw() / 2) * 4))

    async def _inbox(self, agent: str, roles: Sequence[str]) -> list[InboxItem]:
        return (await self.inboxes({agent: roles}))[agent]

    async def inboxes(self, agents: Mapping[str, Sequence[str]]) -> dict[str, list[InboxItem]]:
        """What each of these agents, with its roles, can answer: one look for all of them."""
        rows: list[TaskRow] = []
        after = "m_"
        while is_request(after):
            page = await self._engine.store.view_tasks(TaskFilter(open=True, after=after, limit=_PAGE))
            rows += [row for row in page if is_request(row.task.id)]
            after = page[-1].task.id if len(page) == _PAGE else ""
        rows.sort(key=lambda row: (row.task.created_at, row.task.id))
        items: dict[TaskId, InboxItem] = {}
        found: dict[str, list[InboxItem]] = {}
        for agent, roles in agents.items():
            mine = found[agent] = []
            for row in rows:
                if self._is_asked(row, agent, roles):
                    if row.task.id not in items:
                        items[row.task.id] = await self._item(row)
                    mine.append(items[row.task.id])
        return found

    @staticmethod
    def _is_asked(row: TaskRow, agent: str, roles: Sequence[str]) -> bool:
        origin = row.task.spec.origin
        return origin is not None and origin.agent != agent and is_for(row.task, agent, roles)

    async def _item(self, row: TaskRow) -> InboxItem:
        task = row.task
        spec, stand, origin = task.spec.request, task.record.request, task.spec.origin
        assert spec is not None and stand is not None and origin is not None  # noqa: S101, PT018 - it is a request
        payload, _ = await self._engine.store.view_payload(task.id)
        return InboxItem(
            task.id,
            spec.kind,
            origin.agent,
            spec.to,
            task.name,
            None if payload is None else msgspec.json.decode(payload),
            origin.task,
            stand.attempt,
            stand.due if stand.waiting else None,
        )

    async def respond(
        self, request: str, answer: object = None, *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Answer a request; the first answer counts, also a late one."""
        id_ = self._ids.command() if command is None else CommandId(command)
        text = "null" if answer is None else to_json(answer, "answer")
        await self._engine.do(Respond(id_, TaskId(request), AgentId(agent), tuple(roles), text))


async def _show_life(checkin: Callable[[], Awaitable[Orders]], renew: Callable[[], Awaitable[Orders]]) -> None:
    """Prove that the attempt is alive, and answer for it where a check-in is owed."""
    with contextlib.suppress(LeaseLost):  # the request has blocked it: whoever waits learns of that next
        try:
            orders = await renew()
            if orders.asked:
                await checkin()
        except LeaseLost:
            raise
        except AllswellError:
            pass  # the store is away; it is asked again

"""Requests between agents as programs ask, read and answer them; the rules are the core's (domain/mesh/request.py).

A call that waits for an answer looks when it is woken, and when the request goes on by itself. In between it checks in
for its agent: the attempt is alive, since it is known what it waits for, and until when. When the last delivery has
expired it asks how the request stands, and is given something else to do if that has blocked its task.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec

from allswell.domain.access.key import PREFIX as KEYS
from allswell.domain.access.key import Key
from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, is_alive, read_all
from allswell.domain.agents.status import PRESENCE_PREFIX as SUPERVISORS
from allswell.domain.duration import LONGEST, Duration, parse
from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token, is_request, request_id
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders
from allswell.domain.lease.model import LeaseRow, is_asked
from allswell.domain.mesh.delivery import UNANSWERED
from allswell.domain.mesh.request import COLLABORATION, DELEGATION, FIGURES, WEBHOOK, InboxItem, MeshFigures, check_kind
from allswell.domain.mesh.respond import RequestStands, is_addressed_to, is_for
from allswell.domain.mesh.routing import agent_of, check_webhook, family, is_agent, names_of, role_for, role_of
from allswell.domain.notify.spec import secrets_for
from allswell.domain.rules.command import Decline, MoveOn, NewTask, NoteListed, Respond, SendRequest
from allswell.domain.task.model import DEFAULT, KEPT, OPEN, Policy, RequestSpec, State, TaskFilter, TaskRow, folded
from allswell.domain.task.submit import LISTED_MAX, WEBHOOKS
from allswell.domain.values import to_json
from allswell.engine.backend import Backend, Records
from allswell.engine.ids import Ids, mark_for
from allswell.engine.lookup import did_you_mean
from allswell.engine.wakeup import either
from allswell.errors import AllswellError, Refused
from allswell.store.views import Views

if TYPE_CHECKING:
    from allswell.engine.lease import Lease


# Who is known to be able to answer a request: whom of them to pass over, and whether they all wait, the core decides.
#
# Known are the slots of supervisors that are alive, and the holders of tasks: of the role that a request is for, or
# under the name of the agent that it is for. Other agents may have the role, too: an agent that this does not name may
# answer all the same.

_MOST = 1_000


async def can_answer(views: Views, request: SendRequest) -> tuple[AgentId, ...]:
    """The holders that are known to be able to answer a request, without the one who asks; of too many, none."""
    role, agent = role_of(request.spec.to), agent_of(request.request.role)
    if role is not None:
        holders = await can_serve(views, role)
    elif agent is not None:
        rows = await views.view_tasks(TaskFilter(text=folded(agent), states=("held",), limit=_MOST))
        known = [*(post.holder for post in await _posts(views)), *_holding(rows)]
        holders = {holder for holder in known if is_agent(holder, agent)}
    else:
        return ()
    others = tuple(AgentId(holder) for holder in sorted(holders - {request.agent}))
    return others if len(others) <= LISTED_MAX else ()


async def can_serve(views: Views, role: str) -> set[str]:
    """The holders that are known to have this role."""
    rows = await views.view_tasks(TaskFilter(role=role, states=("held",), limit=_MOST))
    return {*(post.holder for post in await _posts(views) if post.role in (None, role)), *_holding(rows)}


async def _posts(views: Views) -> list[AgentSlot]:
    """The slots of supervisors that are alive."""
    now = (await views.view_agenda()).now
    known = read_all((await views.view_kept(PRESENCE_PREFIX)).values())
    return [post for presence in known if is_alive(presence, now) for post in presence.posts]


def _holding(rows: Sequence[TaskRow]) -> list[AgentId]:
    return [row.lease.agent for row in rows if row.lease is not None]


# Which agents there are, as far as this can be known: so that a request to a mistyped name is refused.
#
# Known is an agent that is set up here, has a key, is in a supervisor's fleet, holds a task now, or has ever made a
# request or read its inbox: that is noted, once, under the agent's name.

_SEEN = "mesh.agent."
"""What is kept of an agent that was seen."""
_KNOWN_AGENTS_PAGE = 1_000


class KnownAgents:
    """The agents that a request can be for."""

    def __init__(self, store: Records, set_up: Collection[str]) -> None:
        self._store = store
        self._set_up = set_up
        self._noted: set[str] = set()
        self._checked: set[str] = set()

    async def note(self, agent: str) -> None:
        """This agent was here."""
        name = family(agent)
        if name and name not in self._noted and name.isprintable() and len(name) <= 200:  # else it is refused anyway
            await self._store.put(f"{_SEEN}{name}", "1")
            self._noted.add(name)

    async def check(self, to: str) -> None:
        """Refuse a name that no agent has."""
        if self._is_set_up(to):
            return
        known = await self._seen()
        if to not in known:
            near = did_you_mean(to, sorted(known | set(self._set_up))) or "; for any agent with a role, ask role:NAME"
            raise Refused(
                "unknown_agent", f"no agent is called {to!r}: not set up here, no key, never seen{near}", where="to"
            )
        self._checked.add(to)

    async def is_known(self, to: str) -> bool:
        """Whether an agent has this name, as far as that can be seen from here."""
        if self._is_set_up(to):
            return True
        with contextlib.suppress(Refused):
            return to in await self._seen()
        return False

    def _is_set_up(self, to: str) -> bool:
        return to in self._checked or any(is_agent(to, name) or is_agent(name, to) for name in self._set_up)

    async def _seen(self) -> set[str]:
        names = {word.removeprefix(_SEEN) for word in await self._store.view_kept(_SEEN)}
        for presence in read_all((await self._store.view_kept(SUPERVISORS)).values()):
            names |= {name for post in presence.posts for name in (post.agent, *names_of(post.holder))}
        for text in (await self._store.view_kept(KEYS)).values():
            names |= set(msgspec.json.decode(text, type=Key).agents)
        after = ""
        while True:
            page = await self._store.view_tasks(TaskFilter(states=("held",), after=after, limit=_KNOWN_AGENTS_PAGE))
            names |= {name for row in page if row.lease is not None for name in names_of(row.lease.agent)}
            if len(page) < _KNOWN_AGENTS_PAGE:
                return names
            after = page[-1].task.id


COMES_WITHIN = 2_000
"""Milliseconds that a caller which waits has to learn of the block itself, before it is made without it."""
_LIVES = 10.0
"""Seconds between two signs of life of a caller that waits."""
_PAGE = 100
_BEHIND_REQUESTS = "m`"
"""Behind the ids of all requests: other open tasks may be very many, and a key that is not shown them goes by all."""
POSTED = Policy(timeout=None, checkpoint_interval=LONGEST)
"""The policy of webhooks: what bounds the attempt to post one is the delivery's own time."""


class Requested(msgspec.Struct, frozen=True):
    """What came of a request."""

    request_id: TaskId
    state: str
    """`done`: answered. `blocked`: no answer came, and the task waits for it. `open`: it was not waited for."""
    answer: Any = None
    blocked: bool = False
    fallback: Literal["next_task"] | None = None
    """What to do where it is blocked."""
    next: Any = None
    """The lease on what to do instead, already claimed; None: there is nothing."""
    kind: str = ""
    reason: str = ""
    """Why it came to nothing, where it has not blocked the task."""


class RequestOptions(TypedDict, total=False):
    """What a request may have beside whom it is for and what it is about."""

    blocks: bool
    """Whether the task is taken from its holder and waits if no answer comes in time; the default is yes. Else the
    holder works on, and hears of the answer with a check-in."""
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
    """Which others may answer once the mesh was asked; empty: all."""
    timeout: Duration | None
    """Of each delivery; that of its kind, if it is not set."""


class Caller(msgspec.Struct, frozen=True):
    """The attempt for which the request is made."""

    task: TaskId
    token: Token
    agent: AgentId


class FallbackClaim(msgspec.Struct, frozen=True):
    """What a caller wants to have where its request has blocked its task."""

    roles: tuple[str, ...] | None = None
    """Of the task that is claimed then; None: as of the one that asks."""
    length: int | None = None
    """Of its lease, in milliseconds, as of a claim."""
    claims: bool = True
    """Whether anything is claimed."""


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

    async def kind_for(self, to: str) -> str:
        """What kind of request it is if only its receiver was given: one to a role is a delegation."""
        if "://" in to:
            return WEBHOOK
        known = role_of(to) is not None or (self._known is not None and await self._known.is_known(to))
        return COLLABORATION if known else DELEGATION

    # --- asking -------------------------------------------------------------------------------------------------------

    def sending(
        self, caller: Caller, to: str, kind: str, summary: str, *, waits: int = 0, **wishes: Unpack[RequestOptions]
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
            blocks=wishes.get("blocks", True),
        )
        lane = role_for(to, kind)
        if lane == WEBHOOKS:
            check_webhook(to, private=self._private)
            if self._secrets is not None:
                secrets_for(to, self._secrets)
        payload, key = wishes.get("payload"), wishes.get("key")
        text = "null" if payload is None else to_json(payload, f"payload of {summary!r}")
        mark = self._ids.mark() if key is None else mark_for(key)
        policy = POSTED if lane == WEBHOOKS else self.policy_for(lane)
        new = NewTask(request_id(caller.task, mark), summary, role=lane, payload=text, policy=policy)
        command = self._ids.command() if key is None else CommandId(f"ask.{new.id}")
        return SendRequest(command, caller.task, caller.token, caller.agent, new, spec)

    async def routed(self, said: SendRequest) -> SendRequest:
        """A request with those who are known to be able to answer it, as far as they can be seen from here."""
        with contextlib.suppress(Refused):
            return msgspec.structs.replace(said, candidates=await can_answer(self._engine.store, said))
        return said

    async def send(self, said: SendRequest, say: Callable[[SendRequest], Awaitable[object]]) -> TaskId:
        """Ask, unless the agent that it is for is unknown; the id of the request."""
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
        instead: FallbackClaim,
        *,
        patience: float | None = None,
        checkin: Callable[[], Awaitable[Orders]] | None = None,
        renew: Callable[[], Awaitable[Orders]] | None = None,
    ) -> Requested:
        """Wait for the answer, or for the end of the schedule; what is wanted `instead` is claimed then.

        With `patience` it is waited for so many seconds at most: then the request is answered for as `open`.
        """
        claim = msgspec.structs.replace(instead, claims=instead.claims and self._hold is not None)
        loop = asyncio.get_running_loop()
        self._engine.hear()
        until = math.inf if patience is None else loop.time() + patience
        held = True
        while True:
            news = self._engine.journal.listen()
            row = await self._row(request)
            stand = row.task.record.request
            assert stand is not None  # noqa: S101 - it is a request
            now = await self._now()
            left = (stand.due - now) / 1_000
            lease = await self._lease_of(caller) if held else None
            held, was_held = lease is not None, held
            is_over = row.task.state != OPEN or stand.blocked_at is not None
            if (
                not is_over
                and not stand.waiting
                and row.task.spec.request is not None
                and not row.task.spec.request.blocks
            ):
                return Requested(request, OPEN, kind=row.task.spec.request.kind, reason=UNANSWERED)
            if is_over or left <= 0 or (held and not stand.waiting) or held is not was_held:
                ended = await self._how_it_stands(caller, row, claim)
                if ended is not None:
                    return ended
                left = 0.0 if held else left
            if loop.time() >= until:
                return Requested(request, OPEN, kind=_kind(row))
            lives = _LIVES if lease is None else _lives(lease) / 1_000
            if lease is not None and checkin is not None and renew is not None:
                await _show_life(lease, now, checkin, renew)
            poll = self._engine.pace.follow_poll * (0.75 + self._engine.rng() / 2)
            pause = max(min(left, poll * 4, lives), min(poll / 4, lives))
            await either(news, min(pause, max(until - loop.time(), 0.0)))

    async def _how_it_stands(self, caller: Caller, row: TaskRow, instead: FallbackClaim) -> Requested | None:
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
        return Requested(request, "blocked", blocked=True, fallback="next_task", next=lease, kind=_kind(row))

    async def _lease_of(self, caller: Caller) -> LeaseRow | None:
        """The lease that asked; None once it is over, as another request of its own may have blocked its task."""
        row = await self._engine.store.view_task(caller.task)
        lease = None if row is None else row.lease
        return lease if lease is not None and lease.token == caller.token else None

    async def is_exhausted(self, request: TaskId) -> bool | None:
        """Whether it has no answer and is about to block its task; None: it has ended, or has blocked it."""
        row = await self._row(request)
        stand = row.task.record.request
        if row.task.state != OPEN or stand is None or stand.blocked_at is not None:
            return None
        return not stand.waiting and row.task.spec.request is not None and row.task.spec.request.blocks

    async def _ended(self, row: TaskRow) -> Requested:
        task = row.task
        if task.state != State.DONE:
            return Requested(task.id, task.state, kind=_kind(row), reason=task.record.reason)
        _, result = await self._engine.store.view_payload(task.id)
        return Requested(task.id, task.state, None if result is None else msgspec.json.decode(result), kind=_kind(row))

    async def _row(self, request: TaskId) -> TaskRow:
        row = await self._engine.store.view_task(request)
        if row is None or row.task.spec.request is None:
            raise Refused("unknown_request", f"there is no request {request}", where="request")
        return row

    async def _now(self) -> Millis:
        return (await self._engine.store.view_agenda()).now

    # --- answering ----------------------------------------------------------------------------------------------------

    async def inbox(
        self, agent: str, roles: Sequence[str] = (), *, wait: float = 0.0, mesh: bool = False
    ) -> list[InboxItem]:
        """What is addressed to this agent, the oldest first; with `mesh`, what is addressed to others and may answer.

        With `wait`, so many seconds are waited for a delivery that was not listed to it before.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        if wait > 0:
            self._engine.hear()
        if self._known is not None:
            await self._known.note(agent)
        while True:
            news = self._engine.journal.listen()
            found = [item for item in (await self.inboxes({agent: roles}))[agent] if item.mesh == mesh]
            fresh = [item for item in found if item.new]
            left = until - loop.time()
            if fresh or left <= 0:
                await self._listed(agent, fresh)
                return found
            await either(news, min(left, self._engine.pace.follow_poll * (0.75 + self._engine.rng() / 2) * 4))

    async def _listed(self, agent: str, items: Sequence[InboxItem]) -> None:
        """Note what was listed; a key that does not speak for the agent changes nothing by looking."""
        if items:
            said = NoteListed(self._ids.command(), tuple(item.request_id for item in items[:_PAGE]), AgentId(agent))
            with contextlib.suppress(AllswellError):
                await self._engine.do(said)

    async def inboxes(
        self, agents: Mapping[str, Sequence[str]], *, payloads: bool = True
    ) -> dict[str, list[InboxItem]]:
        """What each of these agents, with its roles, can answer: one look for all of them.

        Who looks every second does it without `payloads`: an agent may send megabytes in them.
        """
        rows: list[TaskRow] = []
        which = TaskFilter(open=True, after="m_", below=_BEHIND_REQUESTS, limit=_PAGE)
        while page := await self._engine.store.view_tasks(which):
            rows += page
            if len(page) < _PAGE:
                break
            which = msgspec.structs.replace(which, after=page[-1].task.id)
        rows.sort(key=lambda row: (row.task.created_at, row.task.id))
        now = await self._now() if rows else Millis(0)
        items: dict[TaskId, InboxItem] = {}
        found: dict[str, list[InboxItem]] = {}
        for agent, roles in agents.items():
            mine = found[agent] = []
            for row in rows:
                if self._is_asked(row, agent, roles):
                    if row.task.id not in items:
                        items[row.task.id] = await self._item(row, now, payload=payloads)
                    stand = row.task.record.request
                    item, mesh = items[row.task.id], not is_addressed_to(row.task, agent, roles)
                    new = stand is not None and agent not in stand.listed
                    mine.append(msgspec.structs.replace(item, mesh=mesh, new=new))
        return found

    @staticmethod
    def _is_asked(row: TaskRow, agent: str, roles: Sequence[str]) -> bool:
        origin = row.task.spec.origin
        return origin is not None and origin.agent != agent and is_for(row.task, agent, roles)

    async def _item(self, row: TaskRow, now: Millis, *, payload: bool) -> InboxItem:
        task = row.task
        spec, stand, origin = task.spec.request, task.record.request, task.spec.origin
        assert spec is not None and stand is not None and origin is not None  # noqa: S101, PT018 - it is a request
        text = (await self._engine.store.view_payload(task.id))[0] if payload else None
        return InboxItem(
            task.id,
            spec.kind,
            origin.agent,
            spec.to,
            task.name,
            None if text is None else msgspec.json.decode(text),
            origin.task,
            stand.attempt,
            stand.due if stand.waiting else None,
            task.created_at,
            max(now - task.created_at, 0),
        )

    async def respond(
        self, request: str, answer: object = None, *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Answer a request; the first answer counts, also a late one."""
        id_ = self._ids.command() if command is None else CommandId(command)
        text = "null" if answer is None else to_json(answer, "answer")
        await self._engine.do(Respond(id_, TaskId(request), AgentId(agent), tuple(roles), text))

    async def decline(
        self, request: str, reason: str = "", *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Decline a request that is addressed to this agent; the agent that asked learns of it at once."""
        id_ = self._ids.command() if command is None else CommandId(command)
        await self._engine.do(Decline(id_, TaskId(request), AgentId(agent), tuple(roles), reason))


def _kind(row: TaskRow) -> str:
    return DELEGATION if row.task.spec.request is None else row.task.spec.request.kind


def _lives(lease: LeaseRow) -> int:
    """Milliseconds between two signs of life of a caller that waits: soon enough for its lease."""
    limits = [limit // 3 for limit in (lease.idle, lease.length) if limit is not None]
    return max(min(int(_LIVES * 1_000), *limits), 1) if limits else int(_LIVES * 1_000)


async def _show_life(
    lease: LeaseRow, now: Millis, checkin: Callable[[], Awaitable[Orders]], renew: Callable[[], Awaitable[Orders]]
) -> None:
    """Prove that the attempt is alive, where that is due; that it waits is no idleness, and answers for it."""
    every = _lives(lease)
    proved = lease.granted_at if lease.checkin_at is None else lease.checkin_at
    owed = is_asked(lease, now) or (lease.idle is not None and now - proved >= every)
    if owed or now - lease.renewed_at >= every:
        with contextlib.suppress(AllswellError):  # it is lost, which is learnt next; or the store is away
            await (checkin() if owed else renew())


# Requests to a role that no known agent has: they are never refused, and `check` and `doctor` report them.

_UNSERVED_PAGE = 500


async def unserved_roles(views: Views, has_role: Callable[[str], bool]) -> dict[str, int]:
    """How many requests are open for each role that no agent has; `has_role` answers for the agents that are set up."""
    asked: Counter[str] = Counter()
    after = "m_"
    while is_request(after):
        page = await views.view_tasks(TaskFilter(open=True, after=after, limit=_UNSERVED_PAGE))
        specs = [row.task.spec.request for row in page if row.lease is None]
        asked.update(role for spec in specs if spec is not None and (role := role_of(spec.to)) is not None)
        after = page[-1].task.id if len(page) == _UNSERVED_PAGE else ""
    return {
        role: count for role, count in sorted(asked.items()) if not has_role(role) and not await can_serve(views, role)
    }

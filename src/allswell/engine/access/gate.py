"""A watch that is shown to callers from elsewhere: to each of them as its key allows.

The gate opens the watch once, for all of them. `admit` looks up the key that a caller shows, and remembers it for a
second: so every call does not cost a look into the store, and a key that was revoked in another process holds no
longer than that. One that is revoked through this gate is forgotten at once.
"""

# ruff: noqa: ARG002 - a look has the arguments of the one behind it

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from msgspec.structs import replace

from allswell.domain.access.key import Key, check_holds, check_key, parts_of
from allswell.domain.access.rights import (
    LOOKS,
    NO_POLICIES,
    Operation,
    admitted,
    check_act,
    check_told_of,
    check_uses,
    check_value,
    check_word,
    is_agents,
    is_its_agent,
    is_secret,
    may,
    refuse_sinks,
    sees_question,
    sees_task,
    service_of,
    with_figures,
)
from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.agents.quota import DEFAULT as QUOTA
from allswell.domain.agents.quota import Quota
from allswell.domain.ids import Millis, TaskId, task_of_question
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.cost import Spend
from allswell.domain.lease.holder import Orders
from allswell.domain.mesh.request import FIGURES, MeshFigures
from allswell.domain.mesh.routing import agent_of
from allswell.domain.notify.delivery import Delivery
from allswell.domain.question import NOTHING_HELD_BACK, PausedWork, Question
from allswell.domain.rules.command import CheckIn, Claim, Command, MoveOn, Notice, RecordStep, SendRequest
from allswell.domain.rules.event import Event, Position
from allswell.domain.rules.query import (
    Query,
    ViewAttempts,
    ViewExpenses,
    ViewKept,
    ViewPayload,
    ViewQuestion,
    ViewQuestions,
    ViewTask,
    ViewTasks,
    ViewValue,
)
from allswell.domain.service.breaker import DEFAULT as BREAKER
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.task.model import Attempt, Policy, State, TaskFilter, TaskRow, folded
from allswell.engine.access.keys import KeyQuota, Keyring, LinkService, LoginService
from allswell.engine.backend import Backend, Claimed, Records
from allswell.engine.budget import NO_BUDGETS, Budgets, hold_to_budgets
from allswell.engine.ids import Ids
from allswell.engine.mesh import KnownAgents, can_answer
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.store.views import Views

# What a key shows of what is kept: everything, one thing by its id, or an agent's own tasks and what it could claim.
#
# Who may look at what is decided in `domain/access/rights.py`. A list is not refused to an agent that may look at its
# own: the others are left out of it, so that a supervisor with an agent's key finds what it holds as it would
# elsewhere.

T = TypeVar("T")
_PAGE = 1_000
"""Tasks that are looked at together, however few are wanted: those of others may lie between them."""


class VisibleRecords(Views):
    """What is kept, as far as a key shows it.

    `LOOKS` says which rights a query takes. What more there is to it stands in the table `_narrowed`: which rows a key
    is shown whose right is for its own alone, and what of the watch's own words it is not shown.
    """

    def __init__(self, behind: Records, key: Key, quota: KeyQuota) -> None:
        self._behind = behind
        self._key = key
        self._quota = quota
        self._everything = may(key, Operation.LOOK)
        self._any_one = self._everything or may(key, Operation.LOOK_AT_ONE)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._behind.url

    async def view(self, query: Query[T]) -> T:
        """The answer to a query, as far as the key shows it."""
        if not self._everything:
            check_act(self._key, *LOOKS[type(query)])
        narrowed = self._narrowed.get(type(query))
        if narrowed is None:
            return await self._behind.view(query)
        answer: T = await narrowed(self, query)
        return answer

    # --- one thing ----------------------------------------------------------------------------------------------------

    async def _task(self, query: ViewTask) -> TaskRow | None:
        """One task; None too where it is another's."""
        row = await self._behind.view(query)
        return row if row is None or await self._sees(row) else None

    async def _payload(self, query: ViewPayload) -> tuple[str | None, str | None]:
        return await self._behind.view(query) if await self._may_see(query.task) else (None, None)

    async def _attempts(self, query: ViewAttempts) -> list[Attempt]:
        return await self._behind.view(query) if await self._may_see(query.task) else []

    async def _expenses(self, query: ViewExpenses) -> list[ExpenseRow]:
        return await self._behind.view(query) if await self._may_see(query.task) else []

    async def _question(self, query: ViewQuestion) -> Question | None:
        found = await self._behind.view(query)
        if found is None or sees_question(self._key, found) or await self._may_see(task_of_question(query.question)):
            return found
        return None

    async def _may_see(self, task: TaskId) -> bool:
        return self._any_one or await self.view_task(task) is not None

    async def _sees(self, row: TaskRow) -> bool:
        if sees_task(self._key, row):
            return True
        return sees_task(self._key, row, await self._behind.view_attempts(row.task.id))

    # --- lists --------------------------------------------------------------------------------------------------------

    async def _tasks(self, query: ViewTasks) -> list[TaskRow]:
        """Tasks by id, a page at a time; those of others are left out, and the page is filled up behind them."""
        if self._everything:
            return await self._behind.view(query)
        found: list[TaskRow] = []
        wanted = query.which.limit
        which = replace(query.which, limit=max(wanted, _PAGE))
        while True:
            page = await self._behind.view_tasks(which)
            found += [row for row in page if sees_task(self._key, row)]
            if len(page) < which.limit or len(found) >= wanted:
                return found[:wanted]
            which = replace(which, after=page[-1].task.id)

    async def _questions(self, query: ViewQuestions) -> list[Question]:
        found = await self._behind.view(query)
        return found if self._everything else [one for one in found if sees_question(self._key, one)]

    # --- the watch's own words ----------------------------------------------------------------------------------------

    async def _kept(self, query: ViewKept) -> dict[str, str]:
        """What the watch keeps about itself, but for keys."""
        kept = await self._behind.view(query)
        return {word: text for word, text in kept.items() if not is_secret(word)}

    async def _value(self, query: ViewValue) -> str | None:
        check_word(self._key, query.key, write=False)
        return await self._behind.view(query)

    _narrowed: ClassVar[Mapping[type[Query[Any]], Callable[[Any, Any], Awaitable[Any]]]] = {
        ViewTask: _task,
        ViewPayload: _payload,
        ViewAttempts: _attempts,
        ViewExpenses: _expenses,
        ViewQuestion: _question,
        ViewTasks: _tasks,
        ViewQuestions: _questions,
        ViewKept: _kept,
        ViewValue: _value,
    }

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        self._check_write(key, after)
        return await self._behind.compare_and_set(key, before, after)

    async def put(self, key: str, value: str) -> None:
        """Keep something under a key, whatever was there."""
        self._check_write(key, value)
        await self._behind.put(key, value)

    def _check_write(self, word: str, text: str) -> None:
        check_word(self._key, word, write=True)
        check_value(self._key, word, text)
        self._quota.written(self._key, len(text))

    # --- what sinks have to deliver -----------------------------------------------------------------------------------

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone: tried again, or dropped."""
        check_act(self._key, Operation.DECIDE)
        await self._behind.revise(changed, gone)

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """A sink's own doing."""
        raise refuse_sinks()

    async def forget(self, follower: str, sink: str) -> None:
        """A sink's own doing."""
        raise refuse_sinks()

    async def advance(self, follower: str, position: Position) -> None:
        """A sink's own doing."""
        raise refuse_sinks()


# A backend for one key: every command and every look passes the rules of access, whichever door it came by.
#
# A server has nothing else to give to a caller, so a route that forgets to ask has nothing to forget. What is decided
# is decided in `domain/access/rights.py`; here it is only asked.

C = TypeVar("C", bound=Command)


USED_FOR = 1_000
"""Milliseconds for which the services that a key's tasks use are remembered."""


class UsedServices:
    """The services that the tasks of agents' keys use, as they were last seen."""

    def __init__(self, behind: Backend) -> None:
        self._behind = behind
        self._seen: dict[str, tuple[int, frozenset[str]]] = {}

    def known(self, key: Key) -> frozenset[str]:
        """Those that were seen a moment ago."""
        at, services = self._seen.get(key.name, (0, frozenset()))
        return services if self._behind.clock.monotonic() - at < USED_FOR else frozenset()

    async def look(self, key: Key) -> frozenset[str]:
        """Those of the tasks that the key's agents hold now."""
        now = self._behind.clock.monotonic()
        services: set[str] = set()
        for agent in key.agents:
            which = TaskFilter(open=True, states=(State.HELD,), text=folded(agent))
            while rows := await self._behind.store.view_tasks(which):
                for row in rows:
                    if row.lease is not None and is_its_agent(key, row.lease.agent):
                        services.update(row.task.spec.services)
                if len(rows) < which.limit:
                    break
                which = replace(which, after=rows[-1].task.id)
        if len(self._seen) >= _KEYS_MOST:
            self._seen.clear()
        self._seen[key.name] = (now, frozenset(services))
        return frozenset(services)


_KEYS_MOST = 10_000


class Admitted:
    """What is behind it, as far as a key allows it."""

    def __init__(  # noqa: PLR0913 - each has a name
        self,
        behind: Backend,
        ids: Ids,
        key: Key,
        known: KnownAgents | None = None,
        policies: Mapping[str, Policy] = NO_POLICIES,
        budgets: Budgets = NO_BUDGETS,
        *,
        breaker: BreakerPolicy = BREAKER,
        used: UsedServices | None = None,
        quota: KeyQuota | None = None,
    ) -> None:
        self._behind = behind
        self._ids = ids
        self._budgets = budgets
        self._key = key
        self._policies = policies
        self._known = known
        """Who can be asked: looked up here, since a key need not show who there is."""
        self._breaker = breaker
        self._used = used or UsedServices(behind)
        self._quota = quota or KeyQuota(QUOTA, behind.clock)
        self.store = VisibleRecords(behind.store, key, self._quota)
        """What the key may look at; all else is as it is behind."""
        self.pace, self.clock, self.rng = behind.pace, behind.clock, behind.rng
        self.ready, self.journal, self.hear = behind.ready, behind.journal, behind.hear

    async def __aenter__(self) -> object:
        raise Bug("what is behind a key is opened once, for all keys")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Nothing goes on for a caller that has its answer."""
        work.close()
        raise Bug(f"{name} cannot be started for a key")

    async def sweep(self) -> bool:
        """What is due is seen to without callers."""
        return True

    # --- commands -----------------------------------------------------------------------------------------------------

    async def do(self, command: Command) -> object:
        """Have a command decided and committed, if the key allows it."""
        ready = await self._ready(command)
        if isinstance(ready, AllswellError):
            raise ready
        answer = await self._behind.do(ready)
        await self._hold_to_budgets([ready])
        return answer

    async def do_many(self, commands: Sequence[Command]) -> list[object]:
        """Have commands decided together; an answer or an error for each."""
        ready = [await self._ready(command) for command in commands]
        allowed = [one for one in ready if not isinstance(one, AllswellError)]
        refused = [one if isinstance(one, AllswellError) else None for one in ready]
        answers = await self._behind.do_many(allowed) if allowed else []
        await self._hold_to_budgets(allowed)
        return _placed(refused, answers)

    async def _hold_to_budgets(self, done: Sequence[Command]) -> None:
        """Hold what was spent to its limits here: callers may not see what others have spent.

        What they said is done by now; where a limit cannot be asked about, the next expense asks again.
        """
        for command in done:
            if isinstance(command, Spend):
                with contextlib.suppress(AllswellError):
                    row = await self._behind.store.view_task(command.task)
                    if row is not None:
                        await hold_to_budgets(self._behind, self._ids, row.task.role, row.task.run, self._budgets)

    async def check_in(self, command: CheckIn) -> Orders:
        """Renew a lease; the orders for its holder."""
        return await self._behind.check_in(self._noted(admitted(self._key, command)))

    async def check_in_many(self, commands: Sequence[CheckIn]) -> list[object]:
        """Renew leases together; orders or an error for each."""
        allowed, answers = self._sorted(commands)
        noted = [self._noted(one) for one in allowed]
        return _placed(answers, await self._behind.check_in_many(noted) if noted else [])

    def _noted(self, command: CheckIn) -> CheckIn:
        """A check-in as it is carried out; one beyond the quota has no note."""
        counted = self._quota.counted(self._key, command)
        return counted if isinstance(counted, CheckIn) else command

    async def claim(self, claim: Claim, *, wait: float = 0.0) -> Claimed:
        """Claim tasks, waiting up to `wait` seconds for the first to be there."""
        return await self._behind.claim(admitted(self._key, claim), wait=wait)

    async def claim_each(self, claims: Sequence[Claim]) -> tuple[list[list[Granted] | AllswellError], float]:
        """Claims that name their tasks, decided together: what was granted, or an error, for each; when it was sent."""
        allowed, refused = self._sorted(claims)
        if not allowed:
            return [error for error in refused if error is not None], asyncio.get_running_loop().time()
        granted, sent = await self._behind.claim_each(allowed)
        served = iter(granted)
        return [next(served) if error is None else error for error in refused], sent

    async def held_back(self) -> PausedWork:
        """What open questions hold back is asked here, for each command, and not by callers."""
        return NOTHING_HELD_BACK

    async def _ready(self, command: Command) -> Command | AllswellError:
        """The command as it is carried out, or what is wrong with it."""
        try:
            signed = admitted(self._key, await self._kept_back(command), self._policies)
            if (service := service_of(signed)) is not None and is_agents(self._key):
                await self._check_uses(service)
                signed = with_figures(signed, self._breaker)
            if isinstance(signed, Notice) and not may(self._key, Operation.DECIDE):
                await self._check_told_of(signed.event)
            signed = self._quota.counted(self._key, signed)
            if isinstance(signed, SendRequest) and self._known is not None:
                await self._known.note(signed.agent)
                if (to := agent_of(signed.request.role)) is not None:
                    await self._known.check(to)
            if isinstance(signed, SendRequest):  # a key need not show who there is
                signed = replace(signed, candidates=await can_answer(self._behind.store, signed))
        except AllswellError as error:
            return error
        return signed

    async def _check_uses(self, service: str) -> None:
        """Refuse a word on a service that no task of the key's uses; what it was seen to use a moment ago, it does."""
        if service not in self._used.known(self._key):
            check_uses(self._key, service, await self._used.look(self._key))

    async def _check_told_of(self, event: Event) -> None:
        """Refuse a notice of others' tasks and runs."""
        if event.task is not None or event.run is not None:
            row = None if event.task is None else await self.store.view_task(event.task)
            check_told_of(self._key, event, row)

    async def _kept_back(self, command: Command) -> Command:
        """A command that may claim something, kept from what open questions hold back here."""
        if isinstance(command, Claim):  # `claim` and `claim_each` ask what is held back
            text = "a claim comes alone or among claims, not among other commands"
            raise Refused("not_alone", text, where="commands")
        if not isinstance(command, MoveOn):
            return command
        back = await self._behind.held_back()
        return replace(command, outside=back.runs, claims=command.claims and not back.everything)

    async def record(self, step: RecordStep) -> None:
        """Have a step of a flow recorded."""
        await self._behind.record(admitted(self._key, step))

    def record_here(self, step: RecordStep) -> bool:
        """From elsewhere there is no short way."""
        return False

    def _sorted(self, commands: Sequence[C]) -> tuple[list[C], list[AllswellError | None]]:
        """The commands that the key allows, and for each of all of them what is wrong, or None."""
        allowed: list[C] = []
        errors: list[AllswellError | None] = []
        for command in commands:
            try:
                allowed.append(admitted(self._key, command, self._policies))
                errors.append(None)
            except AllswellError as error:
                errors.append(error)
        return allowed, errors


def _placed(refused: Sequence[AllswellError | None], answers: Sequence[object]) -> list[object]:
    served = iter(answers)
    return [next(served) if error is None else error for error in refused]


REMEMBERED = 1_000
"""Milliseconds."""
LOOKED_UP_EVERY = 2.0
"""Seconds after which the key of a call that lasts is looked up again."""
_MOST = 10_000


class Gate:
    """A watch for callers with keys."""

    def __init__(
        self,
        behind: Backend,
        ids: Ids,
        *,
        policies: Mapping[str, Policy] | None = None,
        mesh: MeshFigures = FIGURES,
        budgets: Budgets = NO_BUDGETS,
        breaker: BreakerPolicy = BREAKER,
        quota: Quota = QUOTA,
    ) -> None:
        self._behind = behind
        self._ids = ids
        self._policies = policies
        self._budgets = budgets
        self._breaker = breaker
        self._used = UsedServices(behind)
        self._quota = KeyQuota(quota, behind.clock)
        self._mesh = replace(mesh, agents=None)  # who can be asked is looked up here, and not by callers
        self._agents = None if mesh.agents is None else KnownAgents(behind.store, mesh.agents)
        self._known: dict[str, tuple[Key | None, int]] = {}
        """Keys by name, and when they were looked up, on this process's own clock."""
        self.watch = Watch(behind, ids, policies=policies, mesh=mesh)
        """The whole of it: for the server itself, and for no caller."""
        self.keyring = Keyring(self.watch)
        self.sessions = LoginService(self.watch)
        self.links = LinkService(self.watch)

    async def __aenter__(self) -> Self:
        await self.watch.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.watch.__aexit__(kind, error, trace)

    async def admit(self, shown: str) -> Key:
        """The key that was shown, if it is one and holds; otherwise `Refused`."""
        parts = parts_of(shown)
        if parts is None:
            raise Refused("bad_key", "this is not a key of Allswell's", where="Authorization")
        name, secret = parts
        remembered = self._remembered(name) is not None
        key = await self._find(name)
        try:
            return check_key(key, secret, Millis(self._behind.clock.wall()))
        except Refused:
            if remembered:  # or the time that an answer takes would tell which names are in use
                await self.keyring.find(name)
            raise

    async def until_over(self, key: Key) -> NoReturn:
        """For calls that last: `Refused` within seconds once this key was revoked, has run out or was made anew."""
        while True:
            await asyncio.sleep(LOOKED_UP_EVERY)
            if not key.hash:
                continue  # it stands for a caller on this machine, and is kept nowhere
            try:
                known = check_holds(await self._find(key.name), Millis(self._behind.clock.wall()))
            except Unavailable:
                continue  # the key holds until the store can be asked again
            if known.hash != key.hash:
                raise Refused("bad_key", "this key is not known here", where="Authorization")

    async def _find(self, name: str) -> Key | None:
        now = self._behind.clock.monotonic()
        known = self._remembered(name)
        if known is not None:
            return known[0]
        if len(self._known) >= _MOST:
            self._known.clear()
        found = await self.keyring.find(name)
        self._known[name] = (found, now)
        return found

    def _remembered(self, name: str) -> tuple[Key | None, int] | None:
        known = self._known.get(name)
        return known if known is not None and self._behind.clock.monotonic() - known[1] < REMEMBERED else None

    def forget(self, name: str) -> None:
        """Look this key up again: it was changed here."""
        self._known.pop(name, None)
        self.sessions.forget(name)

    def backend_for(self, key: Key) -> Backend:
        """Where the commands of a caller with this key go."""
        return Admitted(
            self._behind,
            self._ids,
            key,
            self._agents,
            self._policies or NO_POLICIES,
            self._budgets,
            breaker=self._breaker,
            used=self._used,
            quota=self._quota,
        )

    async def note(self, agent: str) -> None:
        """An agent was here, and can be asked from now on; the caller of this has checked its key."""
        if self._agents is not None:
            await self._agents.note(agent)

    def watch_for(self, key: Key) -> Watch:
        """The watch as a caller with this key has it; it lives as long as the gate is open."""
        return Watch(self.backend_for(key), self._ids, policies=self._policies, mesh=self._mesh)

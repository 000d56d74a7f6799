"""The gauge of a fleet: context and session thresholds at work (O6). Read, and say what follows.

The rule stands in `domain.agents.usage`. A source that fails, hangs or prints nonsense is bounded and logged once. It
changes nothing: without a figure, neither room nor want is assumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.fleet import AgentSpec, CompactionSpec, UsageSpec, accounts_of
from allswell.domain.agents.refusal import UsageLimit, WallTime
from allswell.domain.agents.usage import LONGEST_PAUSE, Act, Thresholds, Usage, UsageLevel, judge, read, tick
from allswell.domain.duration import show
from allswell.domain.ids import NO_COMMAND, AgentId, Millis, service_question_id
from allswell.domain.lease.claim import fits
from allswell.domain.question import Question
from allswell.domain.rules.command import Claim
from allswell.domain.service.calls import AGAIN
from allswell.domain.service.retry import RULES, ErrorClass
from allswell.domain.service.service import shut
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused
from allswell.runtime.agents.function import load_function
from allswell.runtime.calls import contained, run_in_thread
from allswell.runtime.run_tool import run_tool
from allswell.runtime.supervisor.dispatch import SupervisorPlan
from allswell.timing.scopes import Scope, run

_GRACE = 1_000
Collected = Mapping[str, Any]
"""Check-ins, by agent: the task, its name, and what was said."""


class UsageMonitor:
    """Watches the usage of one fleet."""

    def __init__(
        self,
        usage: UsageSpec,
        compaction: CompactionSpec,
        limits: Thresholds,
        *,
        level: UsageLevel,
        now: Callable[[], Awaitable[Millis]],
        act: Callable[[Act, Usage], Awaitable[None]],
        tell: Callable[[str], None],
    ) -> None:
        self.level = level
        self._usage = usage
        self._compaction = compaction
        self._limits = limits
        self._now = now
        self._act = act
        self.sessions: AccountSessions | None = None
        """Pauses the agents of one account; None: a session is the whole fleet's."""
        self._sessions: dict[str, UsageLevel] = {}
        """How accounts stand with their sessions; that one is paused is in the store, as its parking."""
        self._tell = tell
        self._complaint = ""
        self._reported: asyncio.Queue[Usage] = asyncio.Queue()
        self._contexts: dict[str, float] = {}
        """What is left of each context that was reported: by agent, or without one, for the source's."""

    def report(self, agent: str, usage: Usage | None) -> None:
        """What an agent says of itself, and None once it has ended, and its context with it; on the loop."""
        if usage is not None:
            self._reported.put_nowait(self._least(agent, usage))
        elif self._contexts.pop(agent, None) is not None:
            self._reported.put_nowait(Usage(min(self._contexts.values(), default=100.0)))

    def _least(self, agent: str, usage: Usage) -> Usage:
        """A reading, with the smallest of all contexts: who has room says nothing of who has none."""
        if usage.context is None:
            return usage
        self._contexts[agent] = usage.context
        return msgspec.structs.replace(usage, context=min(self._contexts.values()))

    async def work(self) -> None:
        """Read and act, for ever."""
        loop = asyncio.get_running_loop()
        has_source = bool(self._usage.command or self._usage.function)
        due = loop.time()
        while True:
            if has_source and loop.time() >= due:
                due = loop.time() + self._usage.every / 1_000
                usage = await self._read()
                if usage is not None:
                    account = usage.account or ("" if self.sessions is None else self.sessions.whose())
                    await self._take(self._least("", msgspec.structs.replace(usage, account=account)))
            await self._take(None)
            wait = min(due - loop.time(), 1.0) if has_source else 1.0
            try:
                async with asyncio.timeout(max(wait, 0.01)):
                    reported = await self._reported.get()
            except TimeoutError:
                continue
            await self._take(reported)

    async def _take(self, usage: Usage | None) -> None:
        """Do what follows from a reading, or from time alone; a store that is away is asked again with the next one."""
        if usage is None and not self.level.paused and not any(level.paused for level in self._sessions.values()):
            return
        try:
            now = await self._now()
            if usage is None:
                await self._tick_sessions(now)
            elif usage.account and self.sessions is not None:
                await self._take_session(self.sessions, usage, now)
                usage = Usage(usage.context)
            self.level, acts = tick(self.level, now) if usage is None else judge(self.level, usage, self._limits, now)
            for act in acts:
                await self._act(act, usage or Usage())
        except AllswellError as error:
            self._complain(f"the usage could not be reported: {error}")

    async def _take_session(self, sessions: AccountSessions, usage: Usage, now: Millis) -> None:
        """Do what follows for one account."""
        account, reading = usage.account, msgspec.structs.replace(usage, context=None)
        before = self._sessions.get(account)
        if before is None:  # after a restart it may be paused already
            until = await sessions.parked(account)
            before = UsageLevel() if until is None or until <= now else UsageLevel(paused=True, until=until, told=True)
            if not judge(UsageLevel(), reading, self._limits, now)[1]:
                before = UsageLevel()
        after, acts = judge(before, reading, self._limits, now)
        if after.until is not None and after.until != before.until:
            await sessions.park(account, after.until)  # before anything else: a restart now must not dispatch
        self._sessions[account] = after
        if "pause" in acts and after.until is not None:
            await sessions.paused(usage, after.until)
        elif "resume" in acts:
            await sessions.resumed(account, before.until or now)

    async def _tick_sessions(self, now: Millis) -> None:
        for account, before in list(self._sessions.items()):
            self._sessions[account], acts = tick(before, now)
            if acts and self.sessions is not None:
                await self.sessions.resumed(account, before.until or now)

    async def _read(self) -> Usage | None:
        try:
            usage = read(await self._ask())
        except TimeoutError:  # first: a tool's timeout is an error of ours, too, and tells how long it took
            self._complain(f"the usage source did not answer within {show(self._usage.timeout)}")
            return None
        except AllswellError as error:
            self._complain(str(error))
            return None
        except Exception as error:  # noqa: BLE001 - a source is foreign code; it may raise anything
            self._complain(f"the usage source failed: {error!r}")
            return None
        if self._complaint:
            self._tell("the usage source answers again")
        self._complaint = ""
        return usage

    async def _ask(self) -> object:
        if self._usage.command:
            return _decoded(await _printed(self._usage.command, self._usage.timeout))
        return await _called(self._usage.function, self._usage.timeout)

    def _complain(self, says: str) -> None:
        if says != self._complaint:
            self._complaint = says
            self._tell(says)

    async def compact(self, collected: Sequence[Collected]) -> tuple[str, str]:
        """Call the compaction hook with the check-ins that came: how that went, and in which words."""
        spec = self._compaction
        if not spec.command and not spec.function:
            return "none", "no [compaction] is set up; the check-ins are in the journal"
        try:
            if spec.command:
                said = await _printed(spec.command, spec.timeout, msgspec.json.encode({"checkpoints": list(collected)}))
                return "done", said.decode("utf-8", "replace")[-1_000:]
            return "done", str(await _called(spec.function, spec.timeout, list(collected)))[:1_000]
        except TimeoutError:
            return "timeout", f"it did not end within {show(spec.timeout)}"
        except AllswellError as error:
            return "failed", str(error)
        except Exception as error:  # noqa: BLE001 - the hook is foreign code
            return "failed", repr(error)[:1_000]


async def _printed(argv: Sequence[str], timeout: int, given: bytes | None = None) -> bytes:
    """What a command prints; its whole tree ends with the timeout."""
    result = await run_tool(list(argv), timeout, input=given)
    if not result.ok:
        text = f"{argv[0]} ended with {result.exit_code}: {result.stderr[-300:].strip()}"
        raise Refused("bad_usage", text, where="usage")
    return result.stdout.encode()


async def _called(path: str, timeout: int, *given: object) -> object:
    """What a function gives; a sync one is called in a thread, which is given up if it hangs."""
    function = contained(load_function(path))
    scope = Scope(timeout, kind="tool", name=path, grace_ms=_GRACE)
    if inspect.iscoroutinefunction(function):
        return await run(scope, function, *given)
    return await run_in_thread(scope, lambda: function(*given))


def _decoded(text: bytes) -> object:
    try:
        return msgspec.json.decode(text.strip() or b"null")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("bad_usage", f"the usage source printed no JSON: {error}", where="usage") from None


# When a usage limit ends, worked out from what the client printed: an instant, a wait, or a time on a wall clock.
#
# A time on a wall clock is that of the machine on which the client runs, unless it names a zone, and it is cut to the
# minute: a limit that ends at 18:19:42 is printed as "6:19 PM". So the account is used again when that minute is over.
# A client that is started a little too early prints a time that has just passed. That means now, and not tomorrow.

JUST_PAST = 10 * 60_000
"""A reset that lies no further back than this is one that the client was too early for."""
SOON = 60_000
"""Milliseconds after which an account is tried again whose reset has just passed."""
_MINUTE = 60_000


def wait_for(limit: UsageLimit, wall_ms: int, otherwise: int, zone: str = "") -> int:
    """How long an account is parked, in milliseconds; `otherwise` where the client printed no usable moment.

    `zone` is the time zone in which the client runs, if it is not that of this process.
    """
    if limit.at is None and limit.after is not None:
        return min(int(limit.after), LONGEST_PAUSE) or otherwise
    at = reset_at(limit, wall_ms, zone)
    if at is None:
        return otherwise
    return min(at - wall_ms, LONGEST_PAUSE) if at > wall_ms else SOON


def reset_at(limit: UsageLimit, wall_ms: int, zone: str = "") -> int | None:
    """The moment that the client named, which may have just passed; None where it named none that can be meant."""
    at = limit.at
    if at is None and limit.wall is not None:
        return _next(limit.wall, wall_ms, zone)
    return None if at is None or at <= wall_ms - JUST_PAST else int(at)


def _next(wall: WallTime, now_ms: int, zone: str) -> int | None:
    """The end of the minute that is meant, which may have just passed; None where there is no such moment."""
    try:
        named = wall.zone or zone
        # Without a zone the times are naive, which Python reads by the rules of this machine, summer time included.
        now = datetime.fromtimestamp(now_ms / 1_000, ZoneInfo(named) if named else None)
        candidates = [
            round(day.replace(fold=fold).timestamp() * 1_000) + _MINUTE for day in _days(wall, now) for fold in (0, 1)
        ]
    except (ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
        return None
    ahead = sorted(moment for moment in candidates if moment > now_ms - JUST_PAST)
    passed = not ahead or (not wall.year and ahead[0] - now_ms > LONGEST_PAUSE)  # next year's was not meant
    return None if passed else ahead[0]


def _days(wall: WallTime, now: datetime) -> list[datetime]:
    """The moments that a client may mean, the earliest first."""
    then = now.replace(hour=wall.hour, minute=wall.minute, second=0, microsecond=0)
    if not (wall.month and wall.day):
        return [then - timedelta(days=1), then, then + timedelta(days=1)]  # yesterday's just before midnight
    years = (wall.year,) if wall.year else (now.year - 1, now.year, now.year + 1)
    days = []
    for year in years:
        try:
            days.append(then.replace(year=year, month=wall.month, day=wall.day))
        except ValueError:  # the 29th of February, or a day that no year has
            continue
    return days


# The accounts of a supervisor's agents: parked while their provider refuses, held while a human is asked.
#
# A limit or a refused login is the whole account's, so what one attempt meets is reported to the store once, for all
# agents of that account, and no task spends an attempt on it:
#
#     park          until the reset that the client named (`reset_at`); the task goes back
#     hold back     while a client that meets a rate limit tries again by itself: nothing else is begun meanwhile
#     ask           about a refused login or a used-up quota; nothing is begun before the answer
#     ask as well   about a reset that was waited for and is named again, and about a limit that returns five times
#                   without an answer of the provider in between; the account is tried again by itself in any case

_WEEK = 6 * 86_400_000
_COUNTED = 1_000
"""The maximum number of waiting tasks that is counted for a message."""
_SAME = 5_000
"""Milliseconds by which two attempts that meet the same limit may name its end differently."""


class Accounts:
    """What one supervisor tells the store about the accounts of its agents."""

    def __init__(self, watch: Watch, plan: SupervisorPlan, on_closed: Callable[[], None] = lambda: None) -> None:
        """`on_closed` is called when an account is closed: no waiting slot shall begin a task with that one."""
        self._on_closed = on_closed
        self._watch = watch
        self._plan = plan
        self._limited: dict[str, int] = {}
        """How often each account was limited since its provider last answered."""
        self._told_until: dict[str, int] = {}
        """Until when each account is parked, as last reported."""
        self._held_back_to: dict[str, int] = {}
        """On our monotonic clock: until when each account is parked because a client tries again."""

    async def park(self, spec: AgentSpec, limit: UsageLimit) -> Millis:
        """Park the account of an agent that has met a limit; until when, on the store's clock."""
        account, zone, wall = spec.limit_of(), spec.env.get("TZ", ""), self._plan.clock.wall()
        delay = wait_for(limit, wall, self._plan.limit_pause, zone)
        now = await self._watch.now()
        times = self._limited.get(account, 0) + 1
        reset = reset_at(limit, wall, zone)
        if reset is not None and reset <= wall and await self._was_waited_for(account, reset - wall + now, now):
            delay = self._plan.limit_pause
            await self._ask_again(account, f"it named a reset that has passed, and is refused as before: {limit.said}")
        elif times >= RULES[ErrorClass.RATE_LIMIT].retries and times % RULES[ErrorClass.RATE_LIMIT].retries == 0:
            await self._ask_again(account, f"{times} times in a row: {limit.said}")
        await self._park(account, delay)
        self._limited[account] = times
        return Millis(now + delay)

    async def _park(self, account: str, delay: int) -> None:
        await self._watch.park(account, delay)
        self._on_closed()

    async def pause(self, account: str, until: Millis) -> None:
        """Begin nothing of an account until then: little of its session is left."""
        await self._park(account, max(until - await self._watch.now(), 0))

    async def parked(self, account: str) -> Millis | None:
        """Until when an account is parked, as the store has it."""
        row = (await self._watch.views.view_services()).get(account)
        return None if row is None else row.state.parked_until

    async def go_on(self, account: str, until: Millis) -> None:
        """End a pause that was to last until then; one that lasts longer is not the session's."""
        parked = await self.parked(account)
        if parked is not None and await self._watch.now() < parked <= until + _SAME:
            with contextlib.suppress(Refused):  # it was ended by hand, or a human is asked about the account
                await self._watch.unpark(account, self._plan.name)

    async def tell_parked(self, spec: AgentSpec, until: Millis) -> None:
        """Say until when an account is parked, and how many tasks wait for its agents; once for all that met it."""
        account = spec.limit_of()
        if until <= self._told_until.get(account, 0) + _SAME:
            return
        self._told_until[account] = until
        waiting = await self._waiting_for(account)
        wall = self._plan.clock.wall() + until - await self._watch.now()
        tasks = "1 task waits" if waiting == 1 else f"{waiting:,} tasks wait"
        self._plan.tell(f"account {account} is parked until {_on_the_clock(wall, self._plan.clock.wall())}, {tasks}")

    async def _waiting_for(self, account: str) -> int:
        """How many ready tasks the agents of an account would take, and those of no other account that is open."""
        services, now = await self._watch.views.view_services(), await self._watch.now()
        closed = {name for name, row in services.items() if shut(row, now) is not None}
        agents = [spec for spec in self._plan.fleet.agents.values() if spec.kind != "remote"]
        own = [spec for spec in agents if spec.limit_of() == account]
        others = [spec for spec in agents if spec.limit_of() not in closed]
        ready = await self._watch.tasks(TaskFilter(states=("ready",), limit=_COUNTED))
        roles = [row.task.role for row in ready]
        return sum(_takes(own, role) and not _takes(others, role) for role in roles)

    def answered(self, account: str) -> None:
        """The provider has answered an agent of this account."""
        self._limited.pop(account, None)

    async def hold_back(self, spec: AgentSpec, refusal: ProviderRefusal, at_least: int) -> None:
        """Begin nothing else of this account while a client waits for the end of a rate limit."""
        account, now = spec.limit_of(), self._plan.clock.monotonic()
        delay = max(refusal.delay or 0, at_least)
        if now + (refusal.delay or 0) >= self._held_back_to.get(account, 0):
            self._held_back_to[account] = now + delay
            await self._park(account, delay)

    async def ask(self, spec: AgentSpec, cause: ErrorClass, message: str) -> Question | None:
        """Ask one human about an account that is refused, and hold its agents back; the question that is open."""
        account = spec.limit_of()
        await self._watch.ask_for_help(account, cause, "refused", message, holds=True)
        self._on_closed()
        return await self._question(account, cause)

    async def _ask_again(self, account: str, message: str) -> None:
        await self._watch.ask_for_help(account, ErrorClass.RATE_LIMIT, AGAIN, message)
        question = await self._question(account, ErrorClass.RATE_LIMIT)
        if question is not None:
            self._plan.tell(f"{question.text} → allswell why {question.id}")

    async def _question(self, account: str, cause: ErrorClass) -> Question | None:
        row = (await self._watch.views.view_services()).get(account)
        number = None if row is None else row.causes.get(cause.value)
        return None if number is None else await self._watch.views.view_question(service_question_id(account, number))

    async def _was_waited_for(self, account: str, reset: int, now: int) -> bool:
        """Whether the account was parked until that reset, and is used again since."""
        waited = await self.parked(account)
        return waited is not None and reset <= waited <= now


class AccountSessions:
    """What a fleet does when little is left of the session of one of its accounts (O6)."""

    def __init__(
        self,
        accounts: Accounts,
        plan: SupervisorPlan,
        collect: Callable[[str, str], Awaitable[object]],
        notice: Callable[..., Awaitable[None]],
    ) -> None:
        self._accounts = accounts
        self._plan = plan
        self._collect = collect
        self._notice = notice
        self.parked = accounts.parked
        """Until when the store has an account parked."""
        self.park = accounts.pause
        """Dispatch nothing to the agents of an account until then."""

    def whose(self) -> str:
        """The account that the settings name for the usage source, or the only one that there is."""
        fleet = self._plan.fleet
        every = accounts_of(fleet)
        return fleet.usage.account or (every[0] if len(every) == 1 else "")

    async def paused(self, usage: Usage, until: Millis) -> None:
        """Its agents take nothing new, and say how far they are."""
        account = usage.account
        why = f"{usage.session:g} % of the session of {account} is left"
        self._plan.tell(f"{why}: collecting check-ins of its agents; they take nothing new until it is reset")
        await self._collect(why, account)
        await self._notice("session_paused", remaining=usage.session, until=until, account=account)

    async def resumed(self, account: str, until: Millis) -> None:
        """Its agents take tasks again."""
        await self._accounts.go_on(account, until)
        self._plan.tell(f"the session of {account} has room again: going on")
        await self._notice("session_resumed", account=account)


def _takes(agents: Sequence[AgentSpec], role: str) -> bool:
    return any(fits(Claim(NO_COMMAND, AgentId(spec.name), spec.roles()), role) for spec in agents)


def _on_the_clock(moment: int, now: int) -> str:
    """A moment as a clock here shows it: with the day, if that is not today, and the date, if it is no near day."""
    # To the second: a few milliseconds before the full minute are that minute.
    there, here = time.localtime(round(moment / 1_000)), time.localtime(now / 1_000)
    day = "" if there[:3] == here[:3] else "%a " if moment - now < _WEEK else "%d %b "
    return time.strftime(f"{day}%H:%M", there)

"""Guards: how a service is called so that it neither hangs, nor hammers, nor gives up too early.

    guard = allswell.guard("anthropic", attempt_timeout="30s")

    @guard                                          # functions, coroutines, generators of both kinds
    async def summarise(text: str) -> str: ...

    await guard.call(client.get, url)               # one call
    guard.call_sync(requests.get, url)

    async for attempt in guard:                     # a block that is repeated
        async with attempt:
            answer = await client.post(url)

    async with guard:                               # a block that runs once: everything but the retries
        ...

Outside in: the deadline, the rate-limit pause, the retries, the breaker, the attempt's timeout, the call.

The path of a call that goes well on the first try is short on purpose: a permit without a lock, a scope, the call. All
else is made when something went wrong (`call.py`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from msgspec.structs import replace

from allswell.domain import duration
from allswell.domain.duration import Duration
from allswell.domain.scopes import ScopeKind
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.classify import Classifier
from allswell.domain.service.guard import DEFAULT, GuardPolicy, RetryBudget
from allswell.domain.service.incident import Incident
from allswell.domain.task.submit import check_name
from allswell.errors import Refused
from allswell.runtime.call_timeouts import ATTEMPT
from allswell.runtime.calls import is_async, settled
from allswell.runtime.deadlines import limits
from allswell.runtime.guard.blocks import (
    AsyncAttempts,
    Attempts,
    GuardAttempt,
    Place,
    async_stream,
    call_blocking,
    sync_stream,
)
from allswell.runtime.guard.breakers import SHARED as SHARED_BREAKERS
from allswell.runtime.guard.breakers import AsyncBreakers, Breakers, InstantBreakers, breakers_of, inner_of
from allswell.runtime.guard.call import AsyncTrial, SyncTrial, probing
from allswell.timing.clock import Clock, SystemClock
from allswell.timing.scopes import Scope

if TYPE_CHECKING:
    from allswell.engine.sync import SyncWatch
    from allswell.engine.watch import Watch


# The policy of guards that name none: the figures of the settings, unless the program says otherwise.

_in_force: GuardPolicy | None = None


def usual_policy() -> GuardPolicy:
    """The policy in force; the settings are loaded when it is first asked for."""
    global _in_force  # noqa: PLW0603 - one set of settings for one process
    if _in_force is None:
        from allswell.settings import load

        settings = load()
        attempt, breaker = limits().timeout(ScopeKind.LLM_CALL), settings.breaker()
        lease = max(breaker.probe_lease, attempt)
        retry = settings.policy_for("").retry
        breaker = replace(breaker, probe_lease=lease)
        _in_force = GuardPolicy(attempt_timeout=attempt, retry=retry, breaker=breaker, patient=settings.patient)
    return _in_force


# Retry budgets: what the calls of this process may still spend on retries, service by service.


class RetryBudgets:
    """The tokens of each service that has a budget; to be used by any thread."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}
        self._lock = threading.Lock()

    def earn(self, service: str, budget: RetryBudget) -> None:
        """A call went well."""
        with self._lock:
            self._tokens[service] = min(self._left(service, budget) + budget.earn, budget.tokens)

    def spend(self, service: str, budget: RetryBudget) -> bool:
        """Pay for a retry; False if there is nothing left to pay with."""
        with self._lock:
            left = self._left(service, budget)
            if left < 1:
                return False
            self._tokens[service] = left - 1
            return True

    def _left(self, service: str, budget: RetryBudget) -> float:
        return self._tokens.get(service, float(budget.tokens))


SHARED = RetryBudgets()
"""The budgets of every guard that is not given others."""


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("allswell.guard")
Hook = Callable[[Incident], None]

_entered: ContextVar[tuple[GuardAttempt, ...]] = ContextVar("allswell_guards_entered", default=())
"""The blocks of `with guard:` around this one: a guard is shared, so what it is in the middle of is kept outside it."""


class GuardEnvironment(NamedTuple):
    """What a guard needs of the world; tests hand in their own."""

    breakers: Breakers = SHARED_BREAKERS
    async_breakers: AsyncBreakers | None = None
    budgets: RetryBudgets = SHARED
    clock: Clock = SystemClock()
    draw: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep


class Guard:
    """How calls to one service are made; made once, used by everybody, of any thread and loop."""

    def __init__(
        self,
        service: str,
        policy: GuardPolicy = DEFAULT,
        *,
        classifier: Classifier | None = None,
        on_incident: Hook | None = None,
        on: Place = "thread",
        around: GuardEnvironment | None = None,
    ) -> None:
        if on not in ("thread", "here"):
            raise Refused("bad_place", f"on must be 'thread' or 'here', not {on!r}", where="on")
        given: dict[str, object] = {"classifier": classifier, "on_incident": on_incident}
        for name, hook in given.items():
            if hook is not None and not callable(hook):
                raise Refused("bad_hook", f"{name} must be a function, not {hook!r}", where=name)
        given = {"service": service, "policy": policy}
        if not isinstance(given["service"], str) or not service.strip() or not service.isprintable():
            text = f"{service!r} cannot name a service; write a name such as 'anthropic'"
            raise Refused("bad_service", text, where="service")
        if not isinstance(given["policy"], GuardPolicy):
            raise Refused("bad_policy", f"policy must be a GuardPolicy, not {policy!r}", where="policy")
        around = GuardEnvironment() if around is None else around
        self.service = service
        self.policy = policy
        self.classifier = classifier
        self.on_incident = on_incident
        self.on = on
        """Where a function that blocks runs."""
        self.breakers = around.breakers
        self.awaited: AsyncBreakers = around.async_breakers or InstantBreakers(around.breakers)
        self.budgets = around.budgets
        self.clock = around.clock
        self.draw = around.draw
        self.sleep = around.sleep
        self._clean = self.awaited.clean
        self._limit = policy.attempt_timeout
        # Whether a first try needs nothing but a permit and a scope.
        self._plain = policy.timeout is None and policy.breaker is not None and policy.budget is None

    def __repr__(self) -> str:
        return f"<guard of {self.service}>"

    def tell(self, incident: Incident) -> None:
        """Log an incident and hand it to the hook; a hook that fails is logged and stops nothing."""
        log.log(logging.WARNING if incident.serious else logging.INFO, "%s", incident.words())
        if self.on_incident is not None:
            try:
                self.on_incident(incident)
            except Exception:
                log.exception("the hook of %r failed", self)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await a call, and repeat it as the policy allows; raises the last error if it fails for good."""
        service, clean = self.service, self._clean
        trial: AsyncTrial | None = None if self._plain else AsyncTrial(self)
        while True:
            permit = clean(service) if trial is None else None
            if permit is None:
                trial = trial or AsyncTrial(self)
                permit = await trial.admit()
            try:
                async with Scope(self._limit if trial is None else trial.limit(), kind=ATTEMPT, name=service):
                    if permit.probe:
                        with probing(permit):
                            result = await _to_await(function, function(*args, **kwargs))
                    else:
                        result = await _to_await(function, function(*args, **kwargs))
            except BaseException as error:
                trial = trial or AsyncTrial(self)
                pause = await trial.failed(error, permit)
                if pause is None:
                    raise
            else:
                if trial is not None or clean(service) is not permit:
                    await (trial or AsyncTrial(self)).succeeded(permit)
                return result
            await asyncio.sleep(pause)

    def call_sync(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a function that blocks: it runs in a thread that is given up at the attempt's limit.

        Of a guard made with `on="here"` it runs in the caller's own thread, where nothing can interrupt it: its limit
        is known to what it calls, and what it brings late, it has brought.
        """
        trial = SyncTrial(self)
        while True:
            permit = trial.admit()
            try:
                with probing(permit):
                    called = functools.partial(_called, function, args, kwargs)
                    result = call_blocking(self.on, trial.scope(), called)
            except BaseException as error:
                pause = trial.failed(error, permit)
                if pause is None:
                    raise
            else:
                trial.succeeded(permit)
                return result
            self.sleep(pause)

    def __call__(self, function: F) -> F:
        """Guard a function: a coroutine function, a plain one, or a generator of either kind."""
        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            def agenerate(*args: object, **kwargs: object) -> object:
                return async_stream(self, function, args, kwargs)

            wrapper: Callable[..., object] = agenerate
        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generate(*args: object, **kwargs: object) -> object:
                return sync_stream(self, function, args, kwargs)

            wrapper = generate
        elif is_async(function):

            @functools.wraps(function)
            async def acall(*args: object, **kwargs: object) -> object:
                return await self.call(function, *args, **kwargs)

            wrapper = acall
        elif callable(function):

            @functools.wraps(function)
            def call(*args: object, **kwargs: object) -> object:
                return self.call_sync(function, *args, **kwargs)

            wrapper = call
        else:
            raise Refused("bad_function", f"{function!r} cannot be called, so it cannot be guarded", where="function")
        return wrapper  # type: ignore[return-value]  # the same signature: functools.wraps

    # --- blocks -------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncAttempts:
        return AsyncAttempts(AsyncTrial(self))

    def __iter__(self) -> Attempts:
        return Attempts(SyncTrial(self))

    async def __aenter__(self) -> GuardAttempt:
        trial = AsyncTrial(self, single=True)
        attempt = GuardAttempt(trial)
        await attempt.__aenter__()
        _entered.set((*_entered.get(), attempt))
        return attempt

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *outer, attempt = _entered.get()
        _entered.set(tuple(outer))
        await attempt.__aexit__(kind, error, trace)

    def __enter__(self) -> GuardAttempt:
        trial = SyncTrial(self, single=True)
        attempt = GuardAttempt(trial)
        attempt.__enter__()
        _entered.set((*_entered.get(), attempt))
        return attempt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *outer, attempt = _entered.get()
        _entered.set(tuple(outer))
        attempt.__exit__(kind, error, trace)

    # --- transports ---------------------------------------------------------------------------------------------------

    def transport(self, inner: T) -> T:
        """The same httpx transport, sync or async, of `httpx` or `httpx2`, with this guard around every request."""
        from allswell.runtime.guard.transport import guarded

        return guarded(self, inner)


def _to_await(function: Callable[P, Awaitable[T]], made: Awaitable[T]) -> Awaitable[T]:
    """What an async function made, unless it is a result: then the function blocks, and did so on the loop."""
    given: object = made
    if not hasattr(given, "__await__") and not inspect.isawaitable(given):
        name = getattr(function, "__qualname__", repr(function))
        text = f"{name} returned {type(given).__name__}, which cannot be awaited; use guard.call_sync for what blocks"
        raise Refused("not_async", text, where="function")
    return made


def _called(function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    return settled(function(*args, **kwargs))


def guard(  # noqa: PLR0913 - each is a figure with a name
    service: str,
    policy: GuardPolicy | None = None,
    *,
    timeout: Duration | None = None,
    attempt_timeout: Duration | None = None,
    retries: int | Mapping[str, int] | None = None,
    breaker: BreakerPolicy | bool | None = True,
    budget: RetryBudget | None = None,
    patient: bool | None = None,
    classifier: Classifier | None = None,
    on_incident: Hook | None = None,
    on: Place = "thread",
    watch: Watch | SyncWatch | None = None,
) -> Guard:
    """A guard for calls to a service: with a whole policy, or with the figures that differ from the settings.

    Lengths of time are milliseconds or text such as "30s". `retries` is a number for every class that is retried at
    all, or one for single classes: `{"server": 5}`. `breaker=False` makes one without a breaker. With a `watch` that is
    open, breaker and rate-limit pause are shared by every process on its store.
    """
    figures: dict[str, object] = {}
    if timeout is not None:
        figures["timeout"] = duration.parse(timeout, where="timeout")
    if attempt_timeout is not None:
        figures["attempt_timeout"] = duration.parse(attempt_timeout, where="attempt_timeout")
    if isinstance(retries, Mapping):
        figures["retries"] = retries
    elif retries is not None:
        figures["retry"] = replace(usual_policy().retry, retries=retries)
    if not isinstance(breaker, bool):
        figures["breaker"] = breaker
    elif not breaker:
        figures["breaker"] = None
    if budget is not None:
        figures["budget"] = budget
    if patient is not None:
        figures["patient"] = patient
    if policy is not None and figures:
        text = f"give a whole policy or single figures ({', '.join(figures)}), not both"
        raise Refused("two_policies", text, where="policy")
    return Guard(
        service,
        replace(usual_policy(), **figures) if policy is None else policy,
        classifier=classifier,
        on_incident=on_incident,
        on=on,
        around=None if watch is None else _around(watch, service),
    )


def _around(watch: Watch | SyncWatch, service: str) -> GuardEnvironment:
    """The world as the guards of a watch have it; its store must be able to hold the name."""
    check_name(service, "service")

    inner = inner_of(watch)
    return GuardEnvironment(*breakers_of(watch), clock=inner.clock, draw=inner.draw)

"""`flow`, `step`, `llm_call` and `tool`: scopes with a default and a hard limit (F1), around blocks and functions.

    async with allswell.flow("build", timeout="20m"):    # a block of async code: interrupted at the deadline
        ...

    with allswell.step("plan"):                          # a block of sync code: checked, never interrupted by force
        ...

    @allswell.tool("grep", timeout="30s")                # a function, async or sync: its end is promised
    def grep(pattern: str) -> list[str]: ...

An async function is run as a task of its own, a sync one in a thread (or, with `on="process"`, in a process): both can
be given up when they do not stop within the grace. Each call has a scope of its own, made when it begins.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from allswell.domain.duration import Duration
from allswell.domain.rules.event import EXECUTE_TOOL, OPERATION, TOOL_NAME
from allswell.domain.scopes import DEFAULT, ScopeKind, ScopeLimits, label, limit_rules, own_limit
from allswell.errors import Refused
from allswell.runtime.calls import call_in_thread, is_async, run_in_thread, settled
from allswell.runtime.durable.step import DurableStep, Key, in_flow
from allswell.timing import scopes as timing
from allswell.timing.scopes import Scope
from allswell.timing.tracing import NOTHING, Traced, Value, is_wanted, traced

if TYPE_CHECKING:
    from allswell.engine.sync import SyncWatch
    from allswell.engine.watch import Watch
    from allswell.runtime.durable.flow import DurableFlow


# A scope that is seen from outside: the use of a tool is a span, from its beginning to its end.
#
# What the tool does inside goes on with its trace, and so do the processes that it starts. Where nobody wants spans,
# this is one look (timing/tracing.py).


class TracedScope(Scope):
    """A scope which, where it is a tool's, has a span."""

    __slots__ = ("_seen", "_span")

    def __init__(
        self, timeout: float | Duration | None, *, kind: str = "scope", name: str = "", grace_ms: int = DEFAULT.grace
    ) -> None:
        super().__init__(timeout, kind=kind, name=name, grace_ms=grace_ms)
        self._span: AbstractContextManager[Traced] | None = None
        self._seen = NOTHING

    def note(self, attributes: Mapping[str, Value | None]) -> None:
        """What is known by now of what is done inside."""
        self._seen.note(attributes)

    def _opened(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        opened = super()._opened(loop)
        if opened and self.kind == ScopeKind.TOOL and is_wanted():
            about: dict[str, Value | None] = {OPERATION: EXECUTE_TOOL, TOOL_NAME: self.name}
            self._span = traced(EXECUTE_TOOL, about, title=self.name)
            self._seen = self._span.__enter__()
        return opened

    def _leave(self, error: BaseException | None) -> None:
        if self._span is None:
            super()._leave(error)
            return
        ended_by = error
        try:
            super()._leave(error)
        except BaseException as raised:
            ended_by = raised
            raise
        finally:
            if ended_by is None and self.now() >= self.deadline:
                self._seen.failed(f"{label(self.kind, self.name)} reached its limit")
            self._span.__exit__(
                None if ended_by is None else type(ended_by),
                ended_by,
                None if ended_by is None else ended_by.__traceback__,
            )


# The limits that scopes go by in this process: those of the settings, unless the program says otherwise.

_in_force: ScopeLimits | None = None


def limits() -> ScopeLimits:
    """The limits in force; the settings are loaded when they are first asked for."""
    global _in_force  # noqa: PLW0603 - one set of settings for one process
    if _in_force is None:
        from allswell.settings import load

        _in_force = load().limits()
    return _in_force


def use_limits(given: ScopeLimits | None) -> None:
    """Let scopes go by these limits; None: by the settings, loaded anew when they are next asked for."""
    global _in_force  # noqa: PLW0603
    broken = [] if given is None else [rule.says for rule in limit_rules(given) if not rule.holds]
    if broken:
        raise Refused("bad_limits", "impossible limits: " + "; ".join(broken), where="limits")
    _in_force = given


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

Place = Literal["thread", "process", "here"]
Given = tuple[float | Duration | None, float | Duration | None, Place, Key | None]
_PLAIN: Given = (None, None, "thread", None)


class LimitedScope(TracedScope):
    """A scope of a known kind; also a decorator, which makes a fresh one for every call."""

    __slots__ = ("_given",)
    _given: Given

    def __init__(
        self,
        kind: ScopeKind,
        name: str,
        timeout: float | Duration | None,
        timeout_override: float | Duration | None,
        on: Place,
        key: Key | None = None,
    ) -> None:
        given: object = name
        if not isinstance(given, str):
            text = f"the name of a {kind} must be text, not {name!r}; as a decorator, write @allswell.{kind}()"
            raise Refused("bad_name", text, where="name")
        if on not in ("thread", "process", "here"):
            raise Refused("bad_place", f"on must be 'thread', 'process' or 'here', not {on!r}", where="on")
        figures = limits()
        own = own_limit(kind, timeout, timeout_override, limits=figures)
        super().__init__(own, kind=kind, name=name, grace_ms=figures.grace)
        self._given = (timeout, timeout_override, on, key)
        if self._given == _PLAIN:
            self._given = _PLAIN

    def __call__(self, function: F) -> F:
        """The function, bounded by a scope like this one at every call."""
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            text = f"{function.__qualname__} is a generator: its body runs in pieces, so put the scope inside it"
            raise Refused("generator", text, where="function")
        timeout, override, on, key = self._given
        kind, name = ScopeKind(self.kind), self.name or getattr(function, "__qualname__", "")

        figures, own = limits(), self.timeout_ms
        made = TracedScope if kind is ScopeKind.TOOL else Scope

        def fresh() -> Scope:
            nonlocal figures, own
            if figures is not limits():  # others are in force now
                figures = limits()
                own = own_limit(kind, timeout, override, limits=figures)
            scope = made(None, kind=kind, name=name, grace_ms=figures.grace)
            scope.timeout_ms = own  # looked at once, and not again at every call
            return scope

        step = DurableStep(name, function, key) if kind is ScopeKind.STEP else None
        if inspect.iscoroutinefunction(function):
            if on == "process":
                text = f"{name} is async: it runs as a task of its own, and cannot run on a process"
                raise Refused("bad_place", text, where="on")

            @functools.wraps(function)
            async def call_async(*args: object, **kwargs: object) -> object:
                flow = in_flow.get() if step is not None else None
                if flow is None or step is None:
                    return await timing.run(fresh(), function, *args, **kwargs)
                return await flow.call(step, lambda: timing.run(fresh(), function, *args, **kwargs), args, kwargs)

            return cast("F", call_async)

        @functools.wraps(function)
        def call_sync(*args: object, **kwargs: object) -> object:
            flow = in_flow.get() if step is not None else None
            if flow is None or step is None:
                return _call(fresh(), on, function, args, kwargs)
            return flow.call_sync(step, lambda: _call(fresh(), on, function, args, kwargs), args, kwargs)

        if on == "process":
            from allswell.runtime.process_calls import reference

            reference(function)
        return cast("F", call_sync)

    @property
    def on(self) -> Place:
        """Where a sync function runs."""
        return self._given[2]


def _call(
    scope: Scope, on: Place, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    if on == "process":
        from allswell.runtime.process_calls import call_in_process

        return call_in_process(scope, function, args, kwargs)
    if on == "here":
        with scope:
            return settled(function(*args, **kwargs))
    return call_in_thread(scope, lambda: settled(function(*args, **kwargs)))


@overload
async def run(
    scope: Scope, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
) -> T: ...
@overload
async def run(scope: Scope, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
async def run(scope: Scope, function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """Await a call inside a scope, async or sync; back at the latest when the scope's grace is over."""
    given: object = function
    if inspect.iscoroutine(given):
        given.close()
        text = "what is to run has been called already: give the function itself, and its arguments after it"
        raise Refused("not_callable", text, where="function")
    flow = in_flow.get()
    if flow is None or scope.kind != ScopeKind.STEP:
        return await _run(scope, function, args, kwargs)
    step = DurableStep(scope.name or getattr(function, "__qualname__", "step"), function)
    return await flow.call(step, lambda: _run(scope, function, args, kwargs), args, kwargs)


async def _run(
    scope: Scope, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    if is_async(function):
        return await timing.run(scope, cast("Callable[..., Awaitable[object]]", function), *args, **kwargs)
    if isinstance(scope, LimitedScope) and scope.on == "process":
        from allswell.runtime.process_calls import run_in_process

        return await run_in_process(scope, function, args, kwargs)
    return await run_in_thread(scope, lambda: settled(function(*args, **kwargs)))


@overload
def flow(
    name: str = "",
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    on: Place = "thread",
) -> LimitedScope: ...
@overload
def flow(
    name: str,
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    run_id: str,
    store: str | None = None,
    watch: Watch | SyncWatch | None = None,
) -> DurableFlow: ...
def flow(
    name: str = "",
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    on: Place = "thread",
    run_id: str | None = None,
    store: str | None = None,
    watch: Watch | SyncWatch | None = None,
) -> LimitedScope:
    """A whole flow with all its steps: 30 minutes unless it says otherwise, at most 45.

    With a `run_id` it is durable: the results of its steps are kept in the store (that of `allswell.open()` unless
    `store` or `watch` names another), and a step that is finished is not run again when the flow is.
    """
    if run_id is None:
        if store is not None or watch is not None:
            raise Refused(
                "no_run_id", "a flow that is kept in a store needs a run_id, to be found again", where="run_id"
            )
        return LimitedScope(ScopeKind.FLOW, name, timeout, timeout_override, on)
    from allswell.runtime.durable.flow import DurableFlow  # and with it the engine

    return DurableFlow(name, timeout, timeout_override, run_id=run_id, store=store, watch=watch)


def step(
    name: str = "",
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    on: Place = "thread",
    key: Key | None = None,
) -> LimitedScope:
    """One step of a flow: 10 minutes unless it says otherwise, at most 15.

    `key` makes of what the step is called with what tells its calls in one durable flow apart; by default all of it.
    """
    return LimitedScope(ScopeKind.STEP, name, timeout, timeout_override, on, key)


def llm_call(
    name: str = "",
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    on: Place = "thread",
) -> LimitedScope:
    """One call of a model: 2 minutes unless it says otherwise, at most 3."""
    return LimitedScope(ScopeKind.LLM_CALL, name, timeout, timeout_override, on)


def tool(
    name: str = "",
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    on: Place = "thread",
) -> LimitedScope:
    """One use of a tool: 5 minutes unless it says otherwise, at most 10."""
    return LimitedScope(ScopeKind.TOOL, name, timeout, timeout_override, on)

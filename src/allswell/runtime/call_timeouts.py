"""Timeouts inside a piece of work, told to whoever keeps a record of them (F9, F10).

A step may call a model that does not answer, and go on: a guard tries again, or the function takes another way. Who
wants to know of each such timeout puts a `CallTimeouts` into effect; every task and thread that is started inside
inherits it. Scopes tell it of themselves when their time is up, and guards what follows: another try, or none.

A timeout of which nobody has said what followed is one that the work has seen itself. Whether it went on or ended with
it is known when it has ended (`rest`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final

import msgspec

from allswell.domain.receipts.step import FinalAction
from allswell.domain.scopes import ScopeKind
from allswell.timing.scopes import Scope, ScopeTimeout, current, on_timeout

if TYPE_CHECKING:
    from allswell.runtime.guard.transport import HttpExchange

ATTEMPT: Final = "attempt"
"""The kind of scope that an attempt of a guard has: for the record, a call of a model."""
_DEEPEST = 8
"""Causes of an error that are looked at, one inside the other."""
_NAMES = ("ReadTimeout", "ConnectTimeout", "WriteTimeout", "PoolTimeout", "TimeoutException")
"""What a transport calls its own timeouts."""


class CallTimeout(msgspec.Struct):
    """One timeout."""

    scope: ScopeKind
    name: str
    timeout_ms: int
    elapsed_ms: int
    error: str
    at: int
    """When it was, on the wall."""
    step: str = ""
    """The step around it, where a scope says so."""
    retry_count: int = 0
    """How often the same call had been tried before."""
    action: FinalAction | None = None
    """What followed; None: that is not known yet."""
    is_kept: bool = False
    requests: list[Any] = msgspec.field(default_factory=list)
    """The exchanges that had no answer when it was: the request that hung."""


class CallTimeouts:
    """The timeouts of one piece of work, in order."""

    def __init__(
        self, keep: Callable[[CallTimeout], None], kinds: Collection[ScopeKind], wall: Callable[[], int]
    ) -> None:
        """`keep` is called with each of which it is known what followed, in whatever thread that is."""
        self._keep = keep
        self._wall = wall
        self._kinds = {ATTEMPT: ScopeKind.LLM_CALL, **{kind.value: kind for kind in kinds}}
        self._of_scope: dict[object, CallTimeout] = {}
        self._hanging: dict[object, list[HttpExchange]] = {}
        """Requests without an answer whose timeout is not known yet: by their error, or by the step around them."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether there was any."""
        return bool(self._of_scope)

    def begin(self) -> tuple[Token[CallTimeouts | None], Token[Callable[[ScopeTimeout], None] | None]]:
        """Put it into effect, until `end`."""
        return in_timeouts.set(self), on_timeout.set(self._heard)

    @staticmethod
    def end(tokens: tuple[Token[CallTimeouts | None], Token[Callable[[ScopeTimeout], None] | None]]) -> None:
        """What was in effect before is in effect again; what was started meanwhile keeps this."""
        in_timeouts.reset(tokens[0])
        on_timeout.reset(tokens[1])

    def _heard(self, late: ScopeTimeout) -> None:
        kind = self._kinds.get(late.scope.kind)
        if kind is None or late.report.capped_by is not None:  # then it is the limit of what is around it
            return
        report = late.report
        limit, elapsed = round(report.limit * 1_000), round(report.elapsed * 1_000)
        with self._lock:
            if late.scope not in self._of_scope:
                before = [one for one in self._of_scope.values() if (one.scope, one.name) == (kind, report.name)]
                made = CallTimeout(kind, report.name, limit, elapsed, str(late), self._wall())
                made.step, made.retry_count = _step_of(late.scope), len(before)
                made.requests = self._hanging.pop(late.scope, [])
                self._of_scope[late.scope] = made

    def unanswered(self, error: BaseException, exchange: HttpExchange) -> None:
        """A transport says which request an error has left without an answer; where that is a timeout, they belong."""
        known = self.of(error)
        with self._lock:
            if known is not None:
                known.requests.append(exchange)
            elif isinstance(error, (ScopeTimeout, asyncio.CancelledError)):  # it was cut off from outside
                self._hanging.setdefault(_step_around(current()), []).append(exchange)
            elif _is_timeout(error):
                self._hanging.setdefault(error, []).append(exchange)

    def followed(
        self, error: BaseException, service: str, *, retries: int, limit: int | None, elapsed: int, action: FinalAction
    ) -> None:
        """A guard says what follows an error, if that is a timeout; what it gives up is for its caller to see."""
        known = self.of(error)
        if known is None:
            if not _is_timeout(error):
                return
            text = f"{service} did not answer within {elapsed} ms"
            most = elapsed if limit is None else limit
            known = CallTimeout(ScopeKind.LLM_CALL, service, most, elapsed, text, self._wall(), _step_of(current()))
            with self._lock:
                known.requests = self._hanging.pop(error, [])
                self._of_scope[error] = known
        known.retry_count, known.action = retries, action
        if action is FinalAction.RETRY and not known.is_kept:
            known.is_kept = True
            self._keep(known)

    def of(self, error: BaseException) -> CallTimeout | None:
        """The timeout that an error is, or comes from."""
        one: BaseException | None = error
        for _ in range(_DEEPEST):
            if one is None:
                break
            known = self._of_scope.get(one.scope if isinstance(one, ScopeTimeout) else one)
            if known is not None:
                return known
            one = one.__cause__ or one.__context__
        return None

    def rest(self, ended_by: CallTimeout | None) -> None:
        """The work is over: keep those that it went on after, and not the one that it ended by."""
        for place, one in enumerate(list(self._of_scope.values())):
            if one.is_kept or one is ended_by:
                continue
            later = list(self._of_scope.values())[place + 1 :]
            again = any((other.scope, other.name) == (one.scope, one.name) for other in later)
            one.action = one.action or (FinalAction.RETRY if again else FinalAction.FAIL)
            one.is_kept = True
            self._keep(one)


def _step_around(scope: Scope | None) -> Scope | None:
    while scope is not None and scope.kind != ScopeKind.STEP:
        scope = scope.outer
    return scope


def _step_of(scope: Scope | None) -> str:
    step = _step_around(scope)
    return "" if step is None else step.name


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ in _NAMES


in_timeouts: ContextVar[CallTimeouts | None] = ContextVar("allswell_timeouts", default=None)
"""The record in effect."""

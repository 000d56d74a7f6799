"""Guards inside guards: they do not multiply, and they do not wait for themselves.

An error that a guard has given up on carries its mark, and no guard around it retries it or holds it against its own
service: the innermost guard owns the loop. It is marked only where a guard is around to read it, and unmarked by the
outermost, for one and the same object may be raised again (mocks do that).

Inside the probe of a service, a guard of the same service passes without asking: the probe is out, and this is it. That
ends with the probe, also for tasks that were started inside it and live on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from allswell.domain.breaker import Permit
from allswell.domain.classify import carried
from allswell.errors import BreakerOpen, ServiceParked
from allswell.timing.scope import current

ATTEMPT: Final = "attempt"
"""The kind of scope that an attempt has."""
HEADER: Final = "allswell-gave-up"
"""The mark on an answer that a guarded transport hands back: the name of its service."""
_MARK: Final = "__allswell_gave_up__"
_DEEPEST = 8  # causes looked at, one inside the other


class _Probe:
    """A probe that is out, or was."""

    __slots__ = ("is_out", "service")

    def __init__(self, service: str) -> None:
        self.service = service
        self.is_out = True


_probes: ContextVar[tuple[_Probe, ...]] = ContextVar("allswell_probes", default=())


@contextmanager
def probing(permit: Permit) -> Iterator[None]:
    """What is called in here is part of a service's probe, if the permit is one."""
    if not permit.probe:
        yield
        return
    probe = _Probe(permit.service)
    token = _probes.set((*_probes.get(), probe))
    try:
        yield
    finally:
        probe.is_out = False
        _probes.reset(token)


def is_probe_of(service: str) -> bool:
    """Whether what runs here is part of this service's probe."""
    return any(probe.is_out and probe.service == service for probe in _probes.get())


def inside_a_guard() -> bool:
    """Whether this is part of an attempt of another guard."""
    scope = current()
    while scope is not None:
        if scope.kind == ATTEMPT and scope.is_open:
            return True
        scope = scope.outer
    return False


def mark(error: BaseException, service: str) -> None:
    """Note on an error that a guard has given up on it."""
    vars(error)[_MARK] = service  # past a `__setattr__` that may refuse it


def unmark(error: BaseException) -> None:
    """Let go of an error that no guard will see any more."""
    for one in _chain(error):
        vars(one).pop(_MARK, None)


def gave_up(error: BaseException) -> str | None:
    """The service whose guard has given up on this error, or on what it was raised from."""
    for one in _chain(error):
        if isinstance(one, BreakerOpen | ServiceParked):
            return one.service
        found = vars(one).get(_MARK) or _on_the_answer(one)
        if isinstance(found, str):
            return found
    return None


def _on_the_answer(error: BaseException) -> object:
    look_up = carried(carried(carried(error, "response"), "headers"), "get")
    try:
        return look_up(HEADER) if callable(look_up) else None
    except Exception:  # noqa: BLE001 - headers of somebody's own kind
        return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_DEEPEST):
        if one is None:
            return
        yield one
        one = one.__cause__

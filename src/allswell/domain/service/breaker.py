"""The circuit breaker of a service: who may call it while it fails (F8).

**Words.** A *permit* lets one call through and names the generation in which it was given. A *probe* is the one call
that is let through to a service that has been left alone for a pause; its permit is a lease that runs out.

**The failure this answers.** A breaker that counts every result is wrong as soon as calls overlap. Ten calls are under
way when a service dies: the third failure opens the breaker, and seven more come in afterwards; counted, they escalate
to a human within a second. Or the service hangs, the breaker opens, and a call that was admitted long before comes back
well: counted, it closes a breaker that no probe has tested. Or fifty callers wake when the pause ends, and all of them
are the probe.

**Generations.** Every change of who is admitted (open, probe out, closed again) begins a new generation, and a result
counts only in the generation in which its call was admitted. So late results neither close nor open nor count, a second
report of one probe does nothing, and an expired probe that comes back after all has no say.

**One probe.** Giving out the probe begins a generation of its own, whose only permit it is. It ends by a report, or by
itself when its lease is over: a caller that died cannot keep the service shut. A failed or expired probe counts as one
more failure in a row; a cancelled one, and one that ended in the caller's own bug, tells nothing about the service: the
pause begins again, and the count stands.

**Healthy is who answers.** 400, 401, 403, 404, 422 and 429 blame the caller; they show that the service works, and
count as success here: they reset the count and close a half-open breaker.

**A human is asked once.** At five failures in a row `asked` is set, with the effect `ASK`; it is unset by recovery,
with the effect `WITHDRAW`, or by the answer. In between the service is tried by one probe per pause, or, if the policy
says `wait`, not at all until the human has answered. There are two answers: try it now (`answered`), after which a
failing probe asks again, or go on by yourself (`acknowledged`), after which no question is asked before the service
recovers.

The rate-limit pause (`parked_until`, F5) is part of the same row, for it is the same question: may this service be
called now? It is no failure, and changes no count.

Everything here is a function of (state, policy, now). Instants are integers of one clock, the store's or a process's
own monotonic one; what leaves this module is a length of time, so that clocks are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import LONGEST
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.values import Requirement, require
from allswell.errors import Refused

Then = Literal["probe", "wait"]
"""What a service is after a human was asked: tried by one probe per pause, or left alone until the answer."""
_NOT_ITS_FAULT = frozenset({400, 401, 403, 404, 422, 429})
"""Statuses that say nothing against a service: they show that it answers (F8)."""


class BreakerPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a service is left alone, and for how long; lengths of time are milliseconds."""

    open_after: int = 3
    """So many failures in a row open the breaker."""
    pause: int = 30_000
    escalate_after: int = 5
    """So many failures in a row are a human's matter."""
    probe_lease: int = 180_000
    """A probe that has not reported by then has failed."""
    then: Then = "probe"
    """Once a human is asked: go on with one probe per pause, or wait for the answer."""


DEFAULT = BreakerPolicy()
COUNT_MAX = 1_000_000
"""Failures in a row beyond which a figure is a mistake."""


def breaker_rules(breaker: BreakerPolicy) -> list[Requirement]:
    """Every rule that these figures must keep."""
    opens, escalates = ("breaker.open_after", breaker.open_after), ("breaker.escalate_after", breaker.escalate_after)
    too_soon = "{} must be at least {}, or a human would be asked about a service that is still called"
    lengths = {"breaker.pause": breaker.pause, "breaker.probe_lease": breaker.probe_lease}
    return [
        require(breaker.open_after >= 1, "{} must be at least 1", opens),
        require(breaker.escalate_after <= COUNT_MAX, f"{{}} must be at most {COUNT_MAX}", escalates),
        require(breaker.escalate_after >= breaker.open_after, too_soon, escalates, opens),
        *(
            require(0 < size <= LONGEST, "{} must be positive and at most 366 days", (name, f"{size} ms"))
            for name, size in lengths.items()
        ),
        require(breaker.then in get_args(Then), "{} must be 'probe' or 'wait'", ("breaker.then", repr(breaker.then))),
    ]


def check_breaker(breaker: BreakerPolicy) -> None:
    """Refuse figures that cannot work."""
    broken = [rule for rule in breaker_rules(breaker) if not rule.holds]
    if broken:
        says = "; ".join(rule.says for rule in broken)
        raise Refused("bad_policy", f"impossible policy: {says}", where=broken[0].figures[0])


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    """Every caller may call."""
    OPEN = "open"
    """No caller may call until the pause is over."""
    HALF_OPEN = "half_open"
    """The pause is over: the next caller is the probe."""
    PROBING = "probing"
    """The probe is out; no other caller may call."""
    HELD = "held"
    """No caller may call until a human has answered."""


class BreakerInput(StrEnum):
    """What moves a breaker."""

    HEALTHY = "a call went well"
    FAILED = "a call failed"
    TOO_MANY = "one failure too many in a row"
    PAUSE_OVER = "the pause is over"
    PROBE_SENT = "a caller becomes the probe"
    PROBE_FAILED = "the probe fails or its lease runs out"
    PROBE_UNTOLD = "the probe is cancelled"
    HUMAN_AWAITED = "the probe fails, and a human is waited for"
    ANSWERED = "a human says: try it now"
    ACKNOWLEDGED = "a human says: go on by yourself"


MOVES: Mapping[tuple[BreakerState, BreakerInput], BreakerState] = {
    (BreakerState.CLOSED, BreakerInput.HEALTHY): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerInput.FAILED): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerInput.TOO_MANY): BreakerState.OPEN,
    (BreakerState.CLOSED, BreakerInput.HUMAN_AWAITED): BreakerState.HELD,
    (BreakerState.OPEN, BreakerInput.PAUSE_OVER): BreakerState.HALF_OPEN,
    (BreakerState.OPEN, BreakerInput.ANSWERED): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerInput.PROBE_SENT): BreakerState.PROBING,
    (BreakerState.PROBING, BreakerInput.HEALTHY): BreakerState.CLOSED,
    (BreakerState.PROBING, BreakerInput.PROBE_FAILED): BreakerState.OPEN,
    (BreakerState.PROBING, BreakerInput.PROBE_UNTOLD): BreakerState.OPEN,
    (BreakerState.PROBING, BreakerInput.HUMAN_AWAITED): BreakerState.HELD,
    (BreakerState.HELD, BreakerInput.ANSWERED): BreakerState.HALF_OPEN,
    (BreakerState.HELD, BreakerInput.ACKNOWLEDGED): BreakerState.HALF_OPEN,
}
"""Every move there is. The diagram in docs/ is drawn from this table, and every step of the model is held to it."""


class Service(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a service: one small row, whose default need not be stored."""

    failures: int = 0
    """In a row."""
    generation: int = 0
    open_until: Millis | None = None
    """Set while the breaker is not closed: the end of its pause."""
    probe_until: Millis | None = None
    """Set while a probe is out: the end of its lease."""
    held: bool = False
    """A human is waited for."""
    asked: bool = False
    """A question about this service is open."""
    acknowledged: bool = False
    """A human knows that it fails, and is not asked again before it has recovered."""
    parked_until: Millis | None = None
    """The end of the rate-limit pause."""


CLEAN = Service()


class CallOutcome(StrEnum):
    """What the end of a call tells about its service."""

    HEALTHY = "healthy"
    FAILED = "failed"
    UNTOLD = "untold"
    """Nothing: it was cancelled, or the caller's own code broke."""


class FailureAnswer(StrEnum):
    """What a failure answers: try again, leave the service alone for a while, or a human has to see to it."""

    RETRY = "retry"
    PAUSE = "pause"
    ESCALATE = "escalate"


class BreakerNotice(StrEnum):
    """The events when a breaker moves; each once."""

    OPENED = "opened"
    CLOSED = "closed"
    ASK = "ask"
    WITHDRAW = "withdraw"


class Permit(msgspec.Struct, frozen=True, tag="permit"):
    """One call may go through, in this generation; to be given back with its outcome."""

    service: str
    generation: int
    probe: bool = False


class CallRefused(msgspec.Struct, frozen=True, tag="refusal"):
    """The service may not be called now."""

    service: str
    stand: str
    """Where its breaker stands (`BreakerState`), or "parked"."""
    wait: Millis | None
    """When to ask again; None while a human is waited for."""
    generation: int
    """The same for as long as it is the same pause, or the same probe, that is in the way."""


class BreakerChange(msgspec.Struct, frozen=True):
    """The row as it is now, and the events to write."""

    service: Service
    effects: tuple[BreakerNotice, ...] = ()


PROBE_POLL = Millis(1_000)
"""How often a caller that waits for another's probe asks again."""


def stand(service: Service, now: int) -> BreakerState:
    """Where a breaker stands at a moment."""
    return _stand(service, now)[0]


def pause_left(service: Service, now: int) -> Millis | None:
    """How long until it is worth asking again: 0 if a call may go now, None if only a human can tell."""
    wait = _stand(service, now)[1]
    parked = 0 if service.parked_until is None else service.parked_until - now
    return None if wait is None else Millis(max(wait, parked, 0))


def _stand(service: Service, now: int) -> tuple[BreakerState, int | None]:
    """Where a breaker stands, and for how long it stays shut."""
    if service.open_until is None:
        return BreakerState.CLOSED, 0
    if service.held:
        return BreakerState.HELD, None
    if service.probe_until is not None:
        return BreakerState.PROBING, max(min(PROBE_POLL, service.probe_until - now), 1)
    if now < service.open_until:
        return BreakerState.OPEN, service.open_until - now
    return BreakerState.HALF_OPEN, 0


def outcome_of(failure: Failure) -> CallOutcome:
    """What a failed call tells about its service."""
    match failure.error:
        case _ if failure.status in _NOT_ITS_FAULT:
            return CallOutcome.HEALTHY
        case ErrorClass.NETWORK | ErrorClass.SERVER | ErrorClass.OVERLOAD | ErrorClass.TRANSIENT:
            return CallOutcome.FAILED
        case ErrorClass.VALIDATION | ErrorClass.BUG:
            return CallOutcome.UNTOLD if failure.status is None else CallOutcome.HEALTHY
        case _:
            return CallOutcome.HEALTHY


def answer(service: Service, policy: BreakerPolicy) -> FailureAnswer:
    """What a failure answers, by how many there have been in a row."""
    if service.failures >= policy.escalate_after:
        return FailureAnswer.ESCALATE
    return FailureAnswer.PAUSE if service.open_until is not None else FailureAnswer.RETRY


def settle(service: Service, policy: BreakerPolicy, now: int) -> BreakerChange:
    """What time alone has done: a probe whose lease is over has failed, a pause for all callers has passed."""
    effects: tuple[BreakerNotice, ...] = ()
    lease = service.probe_until
    if lease is not None and now >= lease:
        service, effects = _fail(service, policy, lease)
    if service.parked_until is not None and now >= service.parked_until:
        service = replace(service, parked_until=None)
    return BreakerChange(service, effects)


def admit(name: str, service: Service, policy: BreakerPolicy, now: int) -> tuple[Permit | CallRefused, BreakerChange]:
    """Let one call through, or say when to ask again; the first caller at a half-open breaker makes the probe."""
    change = settle(service, policy, now)
    service = change.service
    if service.parked_until is not None:
        return CallRefused(name, "parked", Millis(service.parked_until - now), service.generation), change
    where = stand(service, now)
    match where:
        case BreakerState.CLOSED:
            return Permit(name, service.generation), change
        case BreakerState.HALF_OPEN:
            lease = Millis(now + policy.probe_lease)
            service = replace(service, generation=service.generation + 1, probe_until=lease)
            return Permit(name, service.generation, probe=True), BreakerChange(service, change.effects)
        case BreakerState.OPEN | BreakerState.PROBING | BreakerState.HELD:
            return CallRefused(name, where, pause_left(service, now), service.generation), change


def report(service: Service, policy: BreakerPolicy, permit: Permit, outcome: CallOutcome, now: int) -> BreakerChange:
    """Take a permit back with what came of it; one of an earlier generation changes nothing."""
    change = settle(service, policy, now)
    service = change.service
    if permit.generation != service.generation:
        return change
    effects: tuple[BreakerNotice, ...] = ()
    match outcome:
        case CallOutcome.HEALTHY:
            service, effects = _recover(service)
        case CallOutcome.FAILED:
            service, effects = _fail(service, policy, now)
        case CallOutcome.UNTOLD:
            service = _reopened(service, policy, now) if permit.probe else service
    return BreakerChange(service, change.effects + effects)


def park(service: Service, until: int) -> Service:
    """All callers wait until the provider's own time; a longer pause is never shortened."""
    latest = until if service.parked_until is None else max(until, service.parked_until)
    return replace(service, parked_until=Millis(latest))


def unpark(service: Service, now: int) -> Service:
    """A human says: call it now. Its pause is over; while its breaker is open, one call tries it."""
    opened = answered(service, now) if not service.asked else service
    return replace(opened, parked_until=None)


def answered(service: Service, now: int) -> Service:
    """A human says: try it now. That settles the question; a probe that fails nevertheless asks a new one."""
    if service.open_until is None or service.probe_until is not None:
        return replace(service, asked=False)
    return replace(
        service,
        generation=service.generation + 1,
        open_until=Millis(now),
        held=False,
        asked=False,
    )


def acknowledged(service: Service, now: int) -> Service:
    """A human says: go on by yourself. Who was waited for is waited for no longer."""
    released = answered(service, now) if service.held else replace(service, asked=False)
    return replace(released, acknowledged=service.open_until is not None)


def _recover(service: Service) -> tuple[Service, tuple[BreakerNotice, ...]]:
    if service.open_until is None:
        return (replace(service, failures=0), ()) if service.failures else (service, ())
    effects = (BreakerNotice.CLOSED, BreakerNotice.WITHDRAW) if service.asked else (BreakerNotice.CLOSED,)
    return Service(generation=service.generation + 1, parked_until=service.parked_until), effects


def _fail(service: Service, policy: BreakerPolicy, now: int) -> tuple[Service, tuple[BreakerNotice, ...]]:
    """One more failure in a row: of a closed breaker's call, or of the probe."""
    was_open = service.open_until is not None
    service = replace(service, failures=service.failures + 1)
    effects: tuple[BreakerNotice, ...] = ()
    if was_open or service.failures >= policy.open_after:
        service = _reopened(service, policy, now)
        effects = () if was_open else (BreakerNotice.OPENED,)
    if service.failures >= policy.escalate_after and not (service.asked or service.acknowledged):
        service = replace(service, asked=True)
        effects = (*effects, BreakerNotice.ASK)
    if service.asked and policy.then == "wait":
        service = replace(service, held=True)
    return service, effects


def _reopened(service: Service, policy: BreakerPolicy, now: int) -> Service:
    return replace(service, generation=service.generation + 1, open_until=Millis(now + policy.pause), probe_until=None)

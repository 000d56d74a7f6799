"""What guards have to tell: one value for each decision, for logs, hooks and the journal.

A call that goes well on the first try causes no incident: it would be noise, and would cost more than the call.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allswell.domain.duration import show
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass


class Incident(msgspec.Struct, frozen=True, tag=True):
    """Something a guard has decided about a service."""

    service: str

    @property
    def serious(self) -> bool:
        """Whether a human should look at it; of an SDK that repeats requests, once is enough."""
        match self:
            case GaveUp():
                return self.escalate
            case SdkRepeats():
                return self.count == 1
            case _:
                return isinstance(self, BreakerOpened | Escalated | ClassifierBroke)

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: {_said(self)}"


class RetryScheduled(Incident, frozen=True, tag=True):
    """An attempt failed; another one follows after a pause."""

    attempt: int
    """The one that failed, counted from 1."""
    error: ErrorClass
    message: str
    delay: Millis


class RateLimited(Incident, frozen=True, tag=True):
    """The service said that we call too often; one for each such answer."""

    attempt: int
    retry_after: Millis | None
    """As it was read; None if it was absent or unreadable."""


class Waiting(Incident, frozen=True, tag=True):
    """A call waits, because its service may not be called now."""

    why: str
    """`parked`, or where its breaker stands."""
    delay: Millis


class Recovered(Incident, frozen=True, tag=True):
    """A call went well after failures of its own."""

    attempts: int


class GaveUp(Incident, frozen=True, tag=True):
    """A call has failed for good; `escalate` where only a human can help."""

    attempts: int
    escalate: bool
    reason: str
    error: ErrorClass | None = None
    """The class of the last failure, where it was one of this call's own."""
    message: str = ""


class Parked(Incident, frozen=True, tag=True):
    """The service asked for a wait beyond the cap: all callers wait, and no attempt is spent."""

    delay: Millis


class BreakerOpened(Incident, frozen=True, tag=True):
    """Too many failures in a row: the service is left alone for a pause."""

    failures: int
    pause: Millis


class BreakerClosed(Incident, frozen=True, tag=True):
    """The probe went well: every caller may call again."""


class Escalated(Incident, frozen=True, tag=True):
    """The service has failed so often in a row that a human has to see to it; once until it recovers."""

    failures: int


class Withdrawn(Incident, frozen=True, tag=True):
    """The service recovered by itself; the question about it is settled."""


class SdkRepeats(Incident, frozen=True, tag=True):
    """The SDK above a guarded transport repeats requests by itself: its retries come on top of ours."""

    count: int
    """How many such requests this transport has seen."""


class ClassifierBroke(Incident, frozen=True, tag=True):
    """The caller's own classifier raised; the error was classified without it."""

    message: str


def _said(incident: Incident) -> str:
    """What is said of the service."""
    match incident:
        case RetryScheduled():
            return f"attempt {incident.attempt} failed ({incident.message}); next in {show(incident.delay)}"
        case RateLimited():
            after = incident.retry_after
            asked = "without saying for how long" if after is None else f"for {show(after)}"
            return f"attempt {incident.attempt} was rate limited {asked}"
        case Waiting():
            return f"{incident.why}; asking again in {show(incident.delay)}"
        case Recovered():
            return f"attempt {incident.attempts} went well"
        case GaveUp():
            ask = "; a human has to see to it" if incident.escalate else ""
            return f"gave up after {incident.attempts} attempts: {incident.reason}{ask}"
        case Parked():
            return f"parked for all tasks for {show(incident.delay)}"
        case BreakerOpened():
            return f"{incident.failures} failures in a row; it is not called for {show(incident.pause)}"
        case Escalated():
            return f"{incident.failures} failures in a row; a human has to see to it"
        case SdkRepeats():
            return (
                "the SDK has repeated a request by itself, on top of this guard's retries"
                f" ({incident.count} so far); make its client with max_retries=0"
            )
        case ClassifierBroke():
            return f"the classifier failed ({incident.message}); the error was judged without it"
        case _:
            return _ALWAYS[type(incident)]


_ALWAYS: Mapping[type[Incident], str] = {
    BreakerClosed: "the test call went well; it can be called again",
    Withdrawn: "it recovered; the question about it is withdrawn",
}

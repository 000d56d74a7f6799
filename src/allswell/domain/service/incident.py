"""What guards have to tell: one value for each decision, for logs, hooks and the journal.

A call that goes well on the first try causes no incident: it would be noise, and would cost more than the call.
"""

from __future__ import annotations

import msgspec

from allswell.domain.duration import show
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass


class Incident(msgspec.Struct, frozen=True, tag=True):
    """Something a guard has decided about a service."""

    service: str

    @property
    def serious(self) -> bool:
        """Whether a human should look at it."""
        return False

    def words(self) -> str:
        """The incident in a sentence."""
        raise NotImplementedError


class RetryScheduled(Incident, frozen=True, tag=True):
    """An attempt failed; another one follows after a pause."""

    attempt: int
    """The one that failed, counted from 1."""
    error: ErrorClass
    message: str
    delay: Millis

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: attempt {self.attempt} failed ({self.message}); next in {show(self.delay)}"


class RateLimited(Incident, frozen=True, tag=True):
    """The service said that we call too often; one for each such answer."""

    attempt: int
    retry_after: Millis | None
    """As it was read; None if it was absent or unreadable."""

    def words(self) -> str:
        """The incident in a sentence."""
        asked = "without saying for how long" if self.retry_after is None else f"for {show(self.retry_after)}"
        return f"{self.service}: attempt {self.attempt} was rate limited {asked}"


class Waiting(Incident, frozen=True, tag=True):
    """A call waits, because its service may not be called now."""

    why: str
    """`parked`, or where its breaker stands."""
    delay: Millis

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: {self.why}; asking again in {show(self.delay)}"


class Recovered(Incident, frozen=True, tag=True):
    """A call went well after failures of its own."""

    attempts: int

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: attempt {self.attempts} went well"


class GaveUp(Incident, frozen=True, tag=True):
    """A call has failed for good; `escalate` where only a human can help."""

    attempts: int
    escalate: bool
    reason: str
    error: ErrorClass | None = None
    """The class of the last failure, where it was one of this call's own."""
    message: str = ""

    @property
    def serious(self) -> bool:
        """Whether a human should look at it."""
        return self.escalate

    def words(self) -> str:
        """The incident in a sentence."""
        ask = "; a human has to see to it" if self.escalate else ""
        return f"{self.service}: gave up after {self.attempts} attempts: {self.reason}{ask}"


class Parked(Incident, frozen=True, tag=True):
    """The service asked for a wait beyond the cap: all callers wait, and no attempt is spent."""

    delay: Millis

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: parked for all tasks for {show(self.delay)}"


class BreakerOpened(Incident, frozen=True, tag=True):
    """Too many failures in a row: the service is left alone for a pause."""

    failures: int
    pause: Millis

    @property
    def serious(self) -> bool:
        """Whether a human should look at it."""
        return True

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: {self.failures} failures in a row; it is not called for {show(self.pause)}"


class BreakerClosed(Incident, frozen=True, tag=True):
    """The probe went well: every caller may call again."""

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: the test call went well; it can be called again"


class Escalated(Incident, frozen=True, tag=True):
    """The service has failed so often in a row that a human has to see to it; once until it recovers."""

    failures: int

    @property
    def serious(self) -> bool:
        """Whether a human should look at it."""
        return True

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: {self.failures} failures in a row; a human has to see to it"


class Withdrawn(Incident, frozen=True, tag=True):
    """The service recovered by itself; the question about it is settled."""

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: it recovered; the question about it is withdrawn"


class SdkRepeats(Incident, frozen=True, tag=True):
    """The SDK above a guarded transport repeats requests by itself: its retries come on top of ours."""

    count: int
    """How many such requests this transport has seen."""

    @property
    def serious(self) -> bool:
        """Whether a human should look at it: once is enough."""
        return self.count == 1

    def words(self) -> str:
        """The incident in a sentence."""
        return (
            f"{self.service}: the SDK has repeated a request by itself, on top of this guard's retries"
            f" ({self.count} so far); make its client with max_retries=0"
        )


class ClassifierBroke(Incident, frozen=True, tag=True):
    """The caller's own classifier raised; the error was classified without it."""

    message: str

    @property
    def serious(self) -> bool:
        """Whether a human should look at it."""
        return True

    def words(self) -> str:
        """The incident in a sentence."""
        return f"{self.service}: the classifier failed ({self.message}); the error was judged without it"

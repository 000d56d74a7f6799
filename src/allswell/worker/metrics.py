"""What a worker has done so far, counted; and how it is."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

from allswell.domain.worker.limits import HEALTH, Health, HealthRules, WorkerCondition, condition

COUNTED = ("handled", "retried", "failed", "quarantined", "late", "given_back", "stuck", "exhausted")
"""Every figure: messages by how their handling ended, and what went wrong with the worker."""


class WorkerMetrics:
    """Counters that any thread may raise, and the health that follows from them."""

    def __init__(self, rules: HealthRules = HEALTH) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._health = Health()
        self._too_slow: dict[str, str] = {}
        self.depth = (0, 0, 0.0)
        """Messages in the queue, those that could be read, and the age of the oldest of these, as last seen."""

    def too_slow(self, type_: str, text: str) -> bool:
        """A handler took longer than its message is hidden; whether that is news."""
        with self._lock:
            first = type_ not in self._too_slow
            self._too_slow[type_] = text
            return first

    def too_slow_types(self) -> dict[str, str]:
        """The types of messages whose handlers took longer than their messages are hidden, each with its figures."""
        with self._lock:
            return dict(self._too_slow)

    def handled(self, messages: int = 1) -> None:
        """Messages were handled."""
        with self._lock:
            self._counts["handled"] += messages
            self._health = self._health.after_success()

    def ended(self, how: str) -> None:
        """A message was not handled: retried, quarantined, failed, late or given_back."""
        with self._lock:
            self._counts[how] += 1
            if how in ("retried", "quarantined", "late"):
                self._health = self._health.after_failure()
            elif how == "failed":  # the handler's answer is no, and the worker works
                self._health = self._health.after_success()

    def stuck(self, message: int) -> None:
        """A handler got stuck with this message."""
        with self._lock:
            self._counts["stuck"] += 1
            self._health = self._health.after_stuck(_now(), self._rules, message=message)

    def exhausted(self) -> None:
        """No connection could be had in time."""
        with self._lock:
            self._counts["exhausted"] += 1
            self._health = self._health.after_exhaustion(_now(), self._rules)

    def counts(self) -> dict[str, int]:
        """Every figure."""
        with self._lock:
            return {name: self._counts[name] for name in COUNTED}

    def condition(self) -> tuple[WorkerCondition, str]:
        """How the worker is, and why."""
        with self._lock:
            return condition(self._health, _now(), self._rules)

    def restarted(self) -> None:
        """A restart clears what was held against it; what was counted stays."""
        with self._lock:
            self._health = Health()


def _now() -> int:
    return int(time.monotonic() * 1_000)


# Saying a thing once a minute, however often it happens: a log that fills up tells less, not more.

MINUTE = 60.0
MOST = 500
"""Kinds that are kept apart; of more, the oldest are forgotten."""


class RepeatedLog:
    """A log in which each kind of line stands once a minute; the next one says how many it stands for."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int]] = {}
        """When a line of this kind was last written, and how many were left out since."""

    def write(self, level: int, kind: str, text: str, *values: object, error: BaseException | None = None) -> bool:
        """Write a line, with the traceback of an error, unless one of its kind was written within a minute.

        Whether it was written.
        """
        now = time.monotonic()
        with self._lock:
            last, left_out = self._kinds.get(kind, (-MINUTE, 0))
            if now - last < MINUTE:
                self._kinds[kind] = last, left_out + 1
                return False
            self._kinds.pop(kind, None)
            self._kinds[kind] = now, 0
            while len(self._kinds) > MOST:
                del self._kinds[next(iter(self._kinds))]
        more = f" ({left_out:,} more of this kind since the last such line)" if left_out else ""
        self._log.log(level, text + "%s", *values, more, exc_info=error)
        return True

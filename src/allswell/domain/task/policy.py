"""How long a task may take and how it is watched, with the seeds' figures as defaults (O1).

A policy that cannot work is refused when it is made, naming the rule it breaks: a setting that could never take
effect, or that would let something hang, is a mistake and not a preference.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from allswell.domain.duration import LONGEST
from allswell.domain.service.retry import RetryPolicy, retry_rules
from allswell.domain.values import Requirement, require
from allswell.errors import Refused

DELEGATION_TIMEOUT = 600_000
"""How long work may take that an agent hands to an expert (O5)."""
COUNT_MAX = 1 << 31
COST_MAX = 10**12
"""Millionths of a dollar."""
VERIFY_ATTEMPTS_MAX = 20
VERIFY_WORDS_MAX = 100
VERIFY_LENGTH_MAX = 4_096
"""Characters of a command that verifies: it is repeated where its verdict is told."""


class Policy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True, cache_hash=True):
    """The limits of one task; lengths of time are milliseconds."""

    timeout: int | None = 900_000
    """The hard limit of one attempt (`agent_timeout`); None: it has none."""
    idle: int | None = None
    """Ends an attempt that has given no proof of progress for so long; off unless set."""
    checkpoint_interval: int = 300_000
    checkpoint_timeout: int = 30_000
    stall_threshold: int = 3
    timeout_escalation: int = 3
    recovery_grace: int = 10_000
    """How long a stalled agent's supervisor has to end it before the task is taken back anyway."""
    retry: RetryPolicy = RetryPolicy()
    delegation_timeout: int = DELEGATION_TIMEOUT
    """What a request has that is handed to an expert of this role, where the one who asks does not say (O5)."""
    max_cost: int | None = None
    """What the attempts at the task may cost together, in millionths of a dollar (`max_cost_usd`); None: anything."""
    verify: tuple[str, ...] = ()
    """The command that must pass before "done" counts (lease/verification.py); empty: the holder's word is enough."""
    verify_timeout: int = 600_000
    """How long that command may take; what the attempt has left bounds it too."""
    verify_attempts: int = 3
    """After so many failed verifications a human is asked."""

    def validated(self) -> Policy:
        """This policy, or `Refused` with every rule it breaks."""
        broken = broken_rules(self)
        if broken:
            raise Refused("bad_policy", "impossible policy: " + "; ".join(rule.says for rule in broken), where="policy")
        return self


def rules(policy: Policy, limit_name: str = "timeout") -> list[Requirement]:
    """Every rule a policy must keep; `limit_name` is what its reader calls the limit of an attempt."""
    limit = LONGEST if policy.timeout is None else policy.timeout
    timeout, idle = (limit_name, f"{limit} ms"), ("idle", f"{policy.idle} ms")
    interval = ("checkpoint_interval", f"{policy.checkpoint_interval} ms")
    answer = ("checkpoint_timeout", f"{policy.checkpoint_timeout} ms")
    recovery = ("recovery_grace", f"{policy.recovery_grace} ms")
    delegation = ("delegation_timeout", f"{policy.delegation_timeout} ms")
    verifying = ("verify_timeout", f"{policy.verify_timeout} ms")
    stalls, timeouts = ("stall_threshold", policy.stall_threshold), ("timeout_escalation", policy.timeout_escalation)
    overlap = "{} must be positive and less than {}, or one wait would run into the next"
    verdicts = f"{{}} must be from 1 to {VERIFY_ATTEMPTS_MAX}"
    program = f"verify must be a command: the name of a program, and at most {VERIFY_WORDS_MAX - 1} arguments"
    short = f"verify must be at most {VERIFY_LENGTH_MAX:,} characters long, without null characters"
    return [
        *(
            require(length <= LONGEST, "{} must be at most 366 days", figure)
            for length, figure in (
                (limit, timeout),
                (policy.checkpoint_interval, interval),
                (policy.recovery_grace, recovery),
                (policy.delegation_timeout, delegation),
                (policy.verify_timeout, verifying),
            )
        ),
        require(limit > 0, "{} must be positive", timeout),
        require(policy.idle is None or 0 < policy.idle <= limit, "{} must be positive and at most {}", idle, timeout),
        require(0 < policy.checkpoint_timeout < policy.checkpoint_interval, overlap, answer, interval),
        require(policy.stall_threshold >= 1, "{} must be at least 1", stalls),
        require(policy.timeout_escalation >= 1, "{} must be at least 1", timeouts),
        require(policy.recovery_grace >= 0, "{} must not be negative", recovery),
        require(policy.delegation_timeout > 0, "{} must be positive", delegation),
        *(require(one[1] <= COUNT_MAX, f"{{}} must be at most {COUNT_MAX:,}", one) for one in (stalls, timeouts)),
        require(
            policy.max_cost is None or 0 < policy.max_cost <= COST_MAX,
            f"{{}} must be positive and at most {COST_MAX}",
            ("max_cost_usd", policy.max_cost),
        ),
        require(policy.verify_timeout > 0, "{} must be positive", verifying),
        require(
            1 <= policy.verify_attempts <= VERIFY_ATTEMPTS_MAX, verdicts, ("verify_attempts", policy.verify_attempts)
        ),
        Requirement(
            not policy.verify or (bool(policy.verify[0].strip()) and len(policy.verify) <= VERIFY_WORDS_MAX),
            program,
            ("verify",),
        ),
        Requirement(
            sum(map(len, policy.verify)) <= VERIFY_LENGTH_MAX and not any("\0" in word for word in policy.verify),
            short,
            ("verify",),
        ),
        *retry_rules(policy.retry),
    ]


@lru_cache(maxsize=1_024)
def broken_rules(policy: Policy, limit_name: str = "timeout") -> tuple[Requirement, ...]:
    """The rules that this policy breaks; most tasks share a policy, so the verdict is remembered."""
    return tuple(rule for rule in rules(policy, limit_name) if not rule.holds)


DEFAULT = Policy()

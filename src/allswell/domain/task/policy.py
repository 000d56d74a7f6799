"""How long a task may take and how it is watched, with the seeds' figures as defaults (O1).

A policy that cannot work is refused when it is made, naming the rule it breaks: a setting that could never take
effect, or that would let something hang, is a mistake and not a preference.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from allswell.domain.duration import LONGEST
from allswell.domain.service.retry import RetryPolicy, retry_rules
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
            raise Refused("bad_policy", "impossible policy: " + "; ".join(broken), where="policy")
        return self


def rules(policy: Policy) -> list[tuple[bool, str]]:
    """Every rule a policy must keep, with whether it does."""
    limit = LONGEST if policy.timeout is None else policy.timeout
    lengths = {
        "timeout": limit,
        "checkpoint_interval": policy.checkpoint_interval,
        "recovery_grace": policy.recovery_grace,
        "delegation_timeout": policy.delegation_timeout,
        "verify_timeout": policy.verify_timeout,
    }
    return [
        *((length <= LONGEST, f"{name} ({length} ms) must be at most 366 days") for name, length in lengths.items()),
        (limit > 0, f"timeout ({limit} ms) must be positive"),
        (
            policy.idle is None or 0 < policy.idle <= limit,
            f"idle ({policy.idle} ms) must be positive and at most timeout ({limit} ms)",
        ),
        (
            0 < policy.checkpoint_timeout < policy.checkpoint_interval,
            (
                f"checkpoint_timeout ({policy.checkpoint_timeout} ms) must be positive and less than"
                f" checkpoint_interval ({policy.checkpoint_interval} ms), or one wait would run into the next"
            ),
        ),
        (policy.stall_threshold >= 1, f"stall_threshold ({policy.stall_threshold}) must be at least 1"),
        (policy.timeout_escalation >= 1, f"timeout_escalation ({policy.timeout_escalation}) must be at least 1"),
        (policy.recovery_grace >= 0, f"recovery_grace ({policy.recovery_grace} ms) must not be negative"),
        (
            policy.delegation_timeout > 0,
            f"delegation_timeout ({policy.delegation_timeout} ms) must be positive",
        ),
        *(
            (count <= COUNT_MAX, f"{name} ({count}) must be at most {COUNT_MAX:,}")
            for name, count in (
                ("stall_threshold", policy.stall_threshold),
                ("timeout_escalation", policy.timeout_escalation),
            )
        ),
        (
            policy.max_cost is None or 0 < policy.max_cost <= COST_MAX,
            f"max_cost_usd ({policy.max_cost}) must be positive and at most {COST_MAX}",
        ),
        (policy.verify_timeout > 0, f"verify_timeout ({policy.verify_timeout} ms) must be positive"),
        (
            1 <= policy.verify_attempts <= VERIFY_ATTEMPTS_MAX,
            f"verify_attempts ({policy.verify_attempts}) must be from 1 to {VERIFY_ATTEMPTS_MAX}",
        ),
        (
            not policy.verify or (bool(policy.verify[0].strip()) and len(policy.verify) <= VERIFY_WORDS_MAX),
            f"verify must be a command: the name of a program, and at most {VERIFY_WORDS_MAX - 1} arguments",
        ),
        (
            sum(map(len, policy.verify)) <= VERIFY_LENGTH_MAX and not any("\0" in word for word in policy.verify),
            f"verify must be at most {VERIFY_LENGTH_MAX:,} characters long, without null characters",
        ),
        *retry_rules(policy.retry),
    ]


@lru_cache(maxsize=1_024)
def broken_rules(policy: Policy) -> tuple[str, ...]:
    """The rules that this policy breaks; most tasks share a policy, so the verdict is remembered."""
    return tuple(text for holds, text in rules(policy) if not holds)


DEFAULT = Policy()

"""A policy that cannot work is refused when it is made, naming the rule."""

import msgspec
import pytest

from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.model import DEFAULT, Policy
from allswell.errors import Refused

IMPOSSIBLE = {
    "timeout (0 ms) must be positive": Policy(timeout=0),
    "idle (0 ms) must be positive": Policy(idle=0),
    "idle (900001 ms) must be positive and at most timeout (900000 ms)": Policy(idle=900_001),
    "checkpoint_timeout (0 ms) must be positive": Policy(checkpoint_timeout=0),
    "less than checkpoint_interval (30000 ms)": Policy(checkpoint_interval=30_000),
    "stall_threshold (0) must be at least 1": Policy(stall_threshold=0),
    "timeout_escalation (0) must be at least 1": Policy(timeout_escalation=0),
    "recovery_grace (-1 ms) must not be negative": Policy(recovery_grace=-1),
    "retry.backoff (-1 ms) must not be negative": Policy(retry=RetryPolicy(backoff=-1)),
    "retry.jitter (1.5) must be between 0 and 1": Policy(retry=RetryPolicy(jitter=1.5)),
    "retry.jitter (nan) must be between 0 and 1": Policy(retry=RetryPolicy(jitter=float("nan"))),
    "retry.retry_after_default (60000 ms) must be at most retry.retry_after_cap (1 ms)": Policy(
        retry=RetryPolicy(retry_after_cap=1)
    ),
    "timeout (31622400001 ms) must be at most 366 days": Policy(timeout=31_622_400_001),
    "checkpoint_interval (31622400001 ms) must be at most 366 days": Policy(checkpoint_interval=31_622_400_001),
    "retry.max_attempts (0) must be at least 1": Policy(retry=RetryPolicy(max_attempts=0)),
    "retry.retries (-1) must not be negative": Policy(retry=RetryPolicy(retries=-1)),
}


@pytest.mark.row("O1")
def test_the_defaults_are_the_seeds_figures() -> None:
    assert DEFAULT.validated() is DEFAULT
    minute = 60_000
    assert DEFAULT.timeout == 15 * minute
    assert (DEFAULT.checkpoint_interval, DEFAULT.checkpoint_timeout) == (5 * minute, minute // 2)
    assert (DEFAULT.stall_threshold, DEFAULT.timeout_escalation) == (3, 3)


@pytest.mark.parametrize("rule", IMPOSSIBLE)
def test_an_impossible_policy_is_refused_naming_the_rule(rule: str) -> None:
    with pytest.raises(Refused) as caught:
        IMPOSSIBLE[rule].validated()
    assert caught.value.code == "bad_policy"
    assert rule in caught.value.message


def test_every_broken_rule_is_named_at_once() -> None:
    with pytest.raises(Refused, match=r"timeout \(0 ms\).*; stall_threshold \(0\)"):
        Policy(timeout=0, stall_threshold=0).validated()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(timeout=1),
        Policy(idle=900_000),
        Policy(checkpoint_timeout=1, checkpoint_interval=2),
        Policy(stall_threshold=1, timeout_escalation=1, recovery_grace=0),
        Policy(retry=RetryPolicy(backoff=0, jitter=0, max_attempts=1, retries=0)),
    ],
)
def test_the_edge_of_what_is_possible_is_accepted(policy: Policy) -> None:
    assert policy.validated() is policy


def test_no_limit_is_written_and_read_as_such() -> None:
    policy = Policy(timeout=None, idle=60_000).validated()
    assert msgspec.json.encode(policy) == b'{"timeout":null,"idle":60000}'
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy
    assert msgspec.json.decode(b'{"timeout":1000}', type=Policy).timeout == 1_000

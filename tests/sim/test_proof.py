"""Verification among dying supervisors, stale verdicts and humans: every promise held, and every planted bug found."""

# ruff: noqa: ANN401 - a planted bug passes on whatever it was given

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from allswell.domain.lease import audit, holder, verification
from allswell.domain.task import answer
from tests.sim.planting import everywhere
from tests.support.sim_proof import simulate_proof

BUGS: dict[str, tuple[Callable[[], contextlib.AbstractContextManager[object]], str]] = {}


def planted(breaks: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    def enter(make: Callable[[], Iterator[None]]) -> None:
        BUGS[make.__name__] = (contextlib.contextmanager(make), breaks)

    return enter


@planted("what was not verified is not done")
def an_unverified_done_counts() -> Iterator[None]:
    with everywhere("verify_of", lambda _task: (), holder):
        yield


@planted("a human is asked after so many failures, and not later")
def the_failures_are_not_held_to_their_limit() -> Iterator[None]:
    right = audit.after_verdict

    def patient(*, passed: bool, failed: int, others: bool = False, most: int = 3) -> Any:
        return right(passed=passed, failed=failed, others=others, most=most + 1)

    with everywhere("after_verdict", patient, verification):
        yield


@planted("failures are counted since a human last decided")
def the_failures_are_forgotten() -> Iterator[None]:
    right = verification.judge_work

    def forgetful(out: Any, lease: Any, command: Any, now: Any) -> None:
        task = out.case.task
        clean = replace(task.record, failed_checks=())
        out.case = replace(out.case, task=replace(task, record=clean))
        right(out, lease, command, now)

    with everywhere("judge_work", forgetful, holder):
        yield


@planted("failures are counted since a human last decided")
def an_answer_does_not_start_the_count_anew() -> Iterator[None]:
    right = answer._record_after

    def stubborn(task: Any, *said: Any) -> Any:
        return replace(right(task, *said), failed_checks=task.record.failed_checks)

    with patch.object(answer, "_record_after", stubborn):
        yield


@planted("a verdict on a lease that is over counts for nothing")
def the_fence_is_ignored_by_verdicts() -> Iterator[None]:
    right = holder.hold

    def lenient(case: Any, command: Any, now: Any, draw: Any, run: Any) -> Any:
        if case.lease is not None and type(command).__name__ == "Verified":
            out = right(case, replace(command, token=case.lease.token, agent=case.lease.agent), now, draw, run)
            out.events = [
                replace(event, token=command.token) if event.kind == "task_verified" else event for event in out.events
            ]
            return out
        return right(case, command, now, draw, run)

    with everywhere("hold", lenient, holder):
        yield


@planted("what was not verified is not done")
def a_failed_look_of_an_operator_ends_the_wait() -> Iterator[None]:
    right = verification.judge_claim

    def careless(out: Any, agent: Any, command: Any, now: Any) -> None:
        right(out, agent, replace(command, passed=True), now)
        out.events = [
            replace(event, data={**event.data, "passed": command.passed}) if event.kind == "task_verified" else event
            for event in out.events
        ]

    with everywhere("judge_claim", careless, holder):
        yield


def test_what_was_not_verified_is_never_done_whatever_happens() -> None:
    for seed in (1, 2):
        report = simulate_proof(seed, tasks=120)
        assert report.broken == []
        seen = (report.passed, report.sent_back, report.asked, report.accepted, report.stale, report.by_hand)
        assert min(seen) > 0, "every situation was met"


def test_the_same_seed_has_the_same_history() -> None:
    assert simulate_proof(5, tasks=20) == simulate_proof(5, tasks=20)


@pytest.mark.parametrize("name", BUGS)
def test_the_planted_bug_is_found(name: str) -> None:
    bug, breaks = BUGS[name]
    told: list[str] = []
    with bug():
        for seed in range(1, 6):
            told += simulate_proof(seed, tasks=60).broken
            if any(one.startswith(breaks) for one in told):
                return
    raise AssertionError(f"not found; it said {told[:3]}")

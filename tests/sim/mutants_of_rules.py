"""Planted bugs in the rules: fencing, time, and what follows a failure."""

# ruff: noqa: ANN401 - a planted bug passes on whatever it was given

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.lease import claim, expiry, holder, model
from allswell.domain.rules import outside
from allswell.domain.run import lifecycle
from allswell.domain.service import retry
from allswell.domain.task import aggregate, answer
from allswell.engine.sweeper import Sweeper
from tests.sim.planting import everywhere, mutant

# --- fencing ----------------------------------------------------------------------------------------------------------


@mutant
def token_is_not_increased() -> Iterator[None]:
    right = claim.grant

    def grant(*asked: Any) -> Any:
        out = right(*asked)
        given: Any = out.answer
        if given is not None and given.token > 1:
            out.answer = replace(given, token=given.token - 1)
            out.case = replace(out.case, lease=out.answer)
        return out

    with everywhere("grant", grant, claim):
        yield


@mutant
def fence_is_ignored_on_complete() -> Iterator[None]:
    right = holder.hold

    def lenient(case_: Any, command: Any, now: Any, draw: Any, run: Any) -> Any:
        if case_.lease is not None and type(command).__name__ == "Complete":
            command = replace(command, token=case_.lease.token, agent=case_.lease.agent)
        return right(case_, command, now, draw, run)

    with everywhere("hold", lenient, holder):
        yield


@mutant
def fence_is_ignored_on_check_in() -> Iterator[None]:
    right = holder.check_in

    def lenient(held: Any, said: Any, now: Any) -> Any:
        if held is not None:
            said = replace(said, token=held.token, agent=held.agent)
        return right(held, said, now)

    with everywhere("check_in", lenient, holder):
        yield


@mutant
def lapsed_lease_is_accepted() -> Iterator[None]:
    with everywhere("ends_at", lambda held: held.deadline, holder):
        yield


@mutant
def late_result_is_dropped() -> Iterator[None]:
    right = holder._too_late

    def forgetful(out: Any, command: Any, now: Any) -> Any:
        out = right(out, command, now)
        out.late = None
        return out

    with everywhere("_too_late", forgetful, holder):
        yield


@mutant
def cancel_leaves_the_lease() -> Iterator[None]:
    right = answer.cancel

    def careless(case_: Any, command: Any, now: Any) -> Any:
        out = right(replace(case_, lease=None), command, now)
        out.case = replace(out.case, lease=case_.lease, due=case_.due)
        return out

    with everywhere("cancel", careless, outside):
        yield


# --- time -------------------------------------------------------------------------------------------------------------


@mutant
def timer_is_not_armed_again() -> Iterator[None]:
    right = expiry.tick

    def forgetful(case_: Any, now: Any, run: Any) -> Any:
        out = right(case_, now, run)
        if out.case.lease is not None and out.case.lease.judged == case_.lease.judged:
            out.case = replace(out.case, due=None)
        return out

    with everywhere("tick", forgetful, expiry, lifecycle):
        yield


@mutant
def run_deadline_is_ignored_in_the_lease() -> Iterator[None]:
    right = claim.grant

    def grant(case_: Any, claim_: Any, now: Any, _: Any) -> Any:
        return right(case_, claim_, now, None)

    with everywhere("grant", grant, claim):
        yield


@mutant
def lapse_comes_a_second_early() -> Iterator[None]:
    right = model.ends_at

    def ends_at(held: Any) -> Any:
        return right(held if held.length is None else replace(held, length=held.length - 1_000))

    def lapses_at(held: Any) -> Any:
        return None if held.length is None else held.renewed_at + held.length - 1_000

    with everywhere("ends_at", ends_at, model, holder), everywhere("lapses_at", lapses_at, expiry):
        yield


@mutant
def check_in_is_judged_when_asked() -> Iterator[None]:
    def judged_at(held: Any) -> Any:
        return model.asked_at(held, held.judged + 1)

    with everywhere("judged_at", judged_at, model, expiry):
        yield


@mutant
def miss_is_not_cleared_by_an_answer() -> Iterator[None]:
    right = holder.check_in

    def unforgiving(*given: Any) -> Any:
        return replace(right(*given), answered=False)

    with everywhere("check_in", unforgiving, holder):
        yield


@mutant
def stall_comes_a_miss_late() -> Iterator[None]:
    right = model.missed

    def missed(agent: Any, held: Any, threshold: int, at: Any) -> Any:
        return right(agent, held, threshold + 1, at)

    with everywhere("missed", missed, expiry):
        yield


@mutant
def stall_counts_as_a_timeout() -> Iterator[None]:
    def recover(out: Any, held: Any, now: Any, *, command: Any = "") -> None:
        task = out.case.task
        timeouts = task.record.timeouts + 1
        aggregate.end_attempt(out, "agent_stalled", now, command=command, timeouts=timeouts)
        out.case = replace(out.case, agent=None)
        out.events.append(aggregate.event(task, "task_returned", held, reason="agent_stalled"))
        out.events.append(aggregate.event(task, "stalled_agent_recovered", held))
        expiry._pool_or_ask(out, "timeout", timeouts, now)

    with everywhere("recover", recover, expiry, holder):
        yield


@mutant
def human_is_asked_one_time_too_late() -> Iterator[None]:
    right = expiry._pool_or_ask

    def patient(out: Any, what: str, count: int, *rest: Any) -> None:
        right(out, what, count - 1, *rest)

    with everywhere("_pool_or_ask", patient, expiry):
        yield


@mutant
def sweeper_forgets_what_others_armed() -> Iterator[None]:
    right = Sweeper.sweep

    async def sleepy(self: Any) -> float:
        return max(await right(self), 900.0)

    with patch.object(Sweeper, "sweep", sleepy):
        yield


# --- failures ---------------------------------------------------------------------------------------------------------


def _judged(change: Callable[[Any, dict[str, Any]], Any]) -> contextlib.AbstractContextManager[None]:
    right = retry.judge

    def judge(policy: Any, failure: Any, **given: Any) -> Any:
        return change(right(policy, failure, **given), {"policy": policy, "failure": failure, **given})

    return everywhere("judge", judge, holder)


@mutant
def jitter_goes_below_the_base() -> Iterator[None]:
    def less(verdict: Any, given: dict[str, Any]) -> Any:
        return retry.RetryAfter(Millis(int(verdict.delay * 0.6))) if isinstance(verdict, retry.RetryAfter) else verdict

    with _judged(less):
        yield


@mutant
def retry_after_is_ignored() -> Iterator[None]:
    right = retry.judge

    def judge(policy: Any, failure: Any, **given: Any) -> Any:
        return right(policy, replace(failure, retry_after=None), **given)

    with everywhere("judge", judge, holder):
        yield


@mutant
def one_retry_too_many() -> Iterator[None]:
    right = retry.judge

    def judge(policy: Any, failure: Any, *, earlier: Any, **given: Any) -> Any:
        return right(policy, failure, earlier={key: count - 1 for key, count in earlier.items()}, **given)

    with everywhere("judge", judge, holder):
        yield


@mutant
def answer_does_not_reset_the_counts() -> Iterator[None]:
    right = answer._record_after

    def record_after(task: Any, *given: Any) -> Any:
        old = task.record
        kept = {"timeouts": old.timeouts, "stalls": old.stalls, "lapses": old.lapses, "failures": old.failures}
        return replace(right(task, *given), **kept)

    with everywhere("_record_after", record_after, answer):
        yield


@mutant
def answer_ends_a_pause() -> Iterator[None]:
    right = answer.answer

    def hasty(case_: Any, question: Any, command: Any, now: Any, run: Any) -> Any:
        out, closed = right(case_, question, command, now, run)
        if out.case.task.state == "open" and out.case.lease is None:
            out.case = aggregate.requeue(out.case, now)
        return out, closed

    with everywhere("answer", hasty, outside):
        yield

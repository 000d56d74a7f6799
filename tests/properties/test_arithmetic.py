"""The rules of the arithmetic against brute force: they are silent exactly where everything really fits."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.check.fleet import CheckIns, asked, checkins_work, judged, misses_during
from allswell.domain.check.model import CheckFigure, Location
from allswell.domain.check.retries import Retrying, retries_fit
from allswell.domain.check.scopes import Need, StepFigures, critical_path
from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.lease.model import Agent, LeaseRow, answered, asked_at, judged_at, missed
from allswell.domain.service.retry import ErrorClass, Failure, RetryAfter, RetryPolicy, judge
from tests.properties.budget import DETERMINISTIC

HERE = Location("somewhere", 1, 1)


def figure(name: str, value: int) -> CheckFigure:
    return CheckFigure(name, value, HERE)


# --- retries ----------------------------------------------------------------------------------------------------------

policies = st.builds(
    RetryPolicy,
    backoff=st.integers(0, 8),
    jitter=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    retry_after_default=st.integers(0, 8),
    retry_after_cap=st.just(8),
    max_attempts=st.integers(1, 6),
    retries=st.none() | st.integers(0, 4),
)


def lived_through(policy: RetryPolicy, error: ErrorClass, attempt: int, scope: int) -> bool:
    """Whether every attempt that the policy grants gets its whole time, when chance draws the longest pauses."""
    now, before = 0, 0
    failure = Failure(error)
    while True:
        last = not isinstance(judge(policy, failure, earlier={error: before}, remaining=None, draw=1.0), RetryAfter)
        now += attempt if last or error is ErrorClass.NETWORK else 0
        if now > scope:
            return False
        if last:
            return True
        verdict = judge(policy, failure, earlier={error: before}, remaining=scope - now, draw=1.0)
        if not isinstance(verdict, RetryAfter):
            return False
        now += verdict.delay
        before += 1


@DETERMINISTIC
@given(policies, st.integers(1, 20), st.integers(1, 150))
def test_retries_are_silent_exactly_where_each_attempt_really_gets_its_time(
    policy: RetryPolicy, attempt: int, scope: int
) -> None:
    found = list(retries_fit(Retrying("it", figure("attempt", attempt), policy), figure("scope", scope)))
    for error, words in ((ErrorClass.NETWORK, "its limit"), (ErrorClass.RATE_LIMIT, "429")):
        retried = isinstance(judge(policy, Failure(error), earlier={}, remaining=None, draw=0), RetryAfter)
        fits = not retried or lived_through(policy, error, attempt, scope)
        assert fits == (not any(words in one.says for one in found))


@DETERMINISTIC
@given(policies, st.integers(1, 20), st.integers(1, 150))
def test_what_a_finding_advises_is_enough(policy: RetryPolicy, attempt: int, scope: int) -> None:
    what = Retrying("it", figure("attempt", attempt), policy)
    for finding in retries_fit(what, figure("scope", scope)):
        assert finding.sum is not None
        assert finding.sum.total > scope
        still = [one.says for one in retries_fit(what, figure("scope", finding.sum.total))]
        assert finding.says not in still


# --- check-ins --------------------------------------------------------------------------------------------------------

spans = st.tuples(st.integers(1, 60), st.integers(2, 20), st.integers(1, 10)).filter(lambda one: one[2] < one[1])


def lease(limit: int, interval: int, wait: int) -> LeaseRow:
    return LeaseRow(
        TaskId("t_1"), Token(1), AgentId("ada"), Millis(0), Millis(limit), None, None, interval, wait, 1, CommandId("c")
    )


def silent_run(agent: Agent | None, limit: int, interval: int, wait: int, threshold: int) -> Agent | None:
    """What is held against an agent after one run in which it said nothing, by the engine's own rules."""
    held = lease(limit, interval, wait)
    while (moment := judged_at(held)) is not None and moment < held.deadline:
        assert not answered(held)
        agent = missed(agent, held, threshold, Millis(moment))
        if agent.stalled:
            break
        held = msgspec.structs.replace(held, judged=held.judged + 1)
    return agent


@DETERMINISTIC
@given(spans, st.integers(1, 6), st.integers(1, 4))
def test_a_stall_is_in_reach_exactly_where_a_silent_agent_is_found(
    span: tuple[int, int, int], threshold: int, escalation: int
) -> None:
    limit, interval, wait = span
    held = lease(limit, interval, wait)
    assert asked(limit, interval) == sum(asked_at(held, number) is not None for number in range(1, 70))
    agent: Agent | None = None
    runs = 0
    while runs < escalation and not (agent is not None and agent.stalled):
        agent = silent_run(agent, limit, interval, wait, threshold)
        runs += 1
    found = agent is not None and agent.stalled
    rules = {
        one.rule
        for one in checkins_work(
            CheckIns(
                figure("agent_timeout", limit),
                figure("checkpoint_interval", interval),
                figure("checkpoint_timeout", wait),
                figure("stall_threshold", threshold),
                figure("timeout_escalation", escalation),
            )
        )
    }
    assert found == (not rules & {"never_asked", "stall_in_reach"})
    assert ("stall_takes_runs" in rules) == (found and runs > 1)
    assert ("never_asked" in rules) == (asked_at(held, 1) is None)


@DETERMINISTIC
@given(spans, st.integers(0, 60))
def test_the_most_misses_of_one_call_are_those_of_the_worst_moment_to_begin(
    span: tuple[int, int, int], call: int
) -> None:
    _, interval, wait = span
    asks = [number * interval for number in range(1, 80)]
    worst = max(
        sum(begun <= ask and begun + call >= ask + wait for ask in asks)
        for begun in range(10 * interval, 12 * interval)
    )
    assert misses_during(call, interval, wait) == worst
    assert judged(100, interval, wait) == sum(ask + wait < 100 for ask in asks)


# --- steps ------------------------------------------------------------------------------------------------------------


@st.composite
def flows(draw: st.DrawFn) -> list[StepFigures]:
    """Steps that need only earlier ones, written down in any order."""
    count = draw(st.integers(1, 7))
    steps = []
    for number in range(count):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        limit = figure(f"limit of {number}", draw(st.integers(1, 9)))
        steps.append(StepFigures(str(number), limit, tuple(Need(str(need)) for need in sorted(needs)), HERE))
    return draw(st.permutations(steps))


def finished_at(steps: list[StepFigures]) -> int:
    """When the last step ends, tick by tick, if each begins as soon as it may and takes all its time."""
    left = {step.id: step.limit.length for step in steps}
    now = 0
    while any(left.values()):
        running = [step.id for step in steps if left[step.id] and not any(left[need.step] for need in step.needs)]
        for id_ in running:
            left[id_] -= 1
        now += 1
    return now


@DETERMINISTIC
@given(flows(), st.integers(1, 40))
def test_the_critical_path_is_as_long_as_the_flow_really_takes(steps: list[StepFigures], limit: int) -> None:
    really = finished_at(steps)
    found = list(critical_path(steps, figure("timeouts.flow", limit)))
    alone = max(step.limit.length for step in steps)
    assert bool(found) == (really > limit and really > alone)
    for one in found:
        assert one.sum is not None
        assert one.sum.total == really

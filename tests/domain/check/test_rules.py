"""Each rule of the arithmetic: figures that break it, and figures just inside."""

from collections.abc import Iterable

import pytest

from allswell.domain.check.fleet import (
    CheckIns,
    WorkerLimits,
    busy_is_not_stalled,
    checkins_work,
    handlers_before_visibility,
    pool_before_visibility,
    statement_before_visibility,
)
from allswell.domain.check.model import (
    CheckFigure,
    Finding,
    Location,
    Severity,
    at_least,
    at_most,
    exact,
    worth_telling,
)
from allswell.domain.check.retries import Retrying, retries_above_total, retries_fit, retry_after_fits
from allswell.domain.check.scopes import (
    Need,
    StepFigures,
    above_hard_limit,
    critical_path,
    escalation_in_reach,
    needs_are_met,
    never_fires,
    override_announced,
)
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.worker.message import too_slow
from tests.support.check_rules import RULES

SECOND, MINUTE = 1_000, 60_000
HERE = Location("flow.yaml", 3, 5)


def figure(name: str, value: float, place: Location | None = HERE) -> CheckFigure:
    return CheckFigure(name, value, place)


def told(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(one.rule, one.severity.value, "" if one.sum is None else str(one.sum)) for one in findings]


def ids(findings: Iterable[Finding]) -> list[str]:
    return [one.rule for one in findings]


def test_every_rule_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert [rule.id for rule in RULES if not rule.holds.endswith(".") or not rule.id.islower()] == []


# --- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("F12")
def test_a_limit_above_its_hard_limit_is_an_error_and_an_override_is_announced() -> None:
    hard = figure("hard_limits.step", 15 * MINUTE, None)
    over = figure("timeouts.step", 20 * MINUTE)
    assert told(above_hard_limit(over, hard)) == [("above_hard_limit", "error", "20m > 15m")]
    assert told(above_hard_limit(figure("timeouts.step", 15 * MINUTE), hard)) == []
    seed = figure("steps.heavy-analysis.timeout_override", 1_200_000)
    assert told(override_announced(seed, hard)) == [("override", "note", "20m > 15m")]
    assert told(override_announced(figure("x", 15 * MINUTE), hard)) == []


@pytest.mark.row("F3")
def test_a_limit_that_never_fires_is_an_error_only_if_somebody_chose_it() -> None:
    flow = figure("timeouts.flow", 5 * MINUTE)
    assert told(never_fires(figure("timeouts.step", 10 * MINUTE), flow)) == [("never_fires", "error", "10m > 5m")]
    assert told(never_fires(figure("timeouts.step", 5 * MINUTE), flow)) == [("never_fires", "warning", "5m ≥ 5m")]
    (of_default,) = never_fires(figure("timeouts.step", 10 * MINUTE, None), flow)
    assert (of_default.severity, of_default.key) == (Severity.WARNING, "timeouts.flow")
    assert told(never_fires(figure("timeouts.step", 5 * MINUTE - 1), flow)) == []


# --- retries ----------------------------------------------------------------------------------------------------------


def calls(timeout: int, policy: RetryPolicy | None = None, inside: int = 1) -> Retrying:
    return Retrying("a call of a model", figure("timeouts.llm_call", timeout), policy or RetryPolicy(), (), inside)


@pytest.mark.row("F3", "F4", "F6")
def test_retries_that_hang_are_added_up_with_their_pauses_and_all_the_jitter() -> None:
    step = figure("timeouts.step", 5 * MINUTE)
    calm = RetryPolicy(jitter=0)
    (hangs,) = [one for one in retries_fit(calls(2 * MINUTE, calm), step) if "its limit" in one.says]
    assert str(hangs.sum) == "4 × 2m + 1s + 2s + 4s = 8m 7s > 5m"
    (hangs,) = [one for one in retries_fit(calls(2 * MINUTE), step) if "its limit" in one.says]
    assert str(hangs.sum) == "4 × 2m + 1.5 × (1s + 2s + 4s) = 8m 10.5s > 5m"
    assert hangs.fix == (
        "Give timeouts.step at least 8m 11s, or make timeouts.llm_call at most 1m 12s, or allow only 1 retry."
    )


@pytest.mark.row("F4")
def test_the_edge_of_what_fits() -> None:
    total = 4 * 2 * MINUTE + 7 * SECOND
    calm = RetryPolicy(jitter=0, retry_after_default=0)
    assert ids(retries_fit(calls(2 * MINUTE, calm), figure("timeouts.step", total))) == []
    assert ids(retries_fit(calls(2 * MINUTE, calm), figure("timeouts.step", total - 1))) == ["retries_fit"]


@pytest.mark.row("F5")
def test_rate_limits_are_answered_at_once_and_waited_out_and_the_last_call_takes_its_time() -> None:
    edge = 5 * 90 * SECOND + 2 * MINUTE
    policy = RetryPolicy(max_attempts=6)
    fits = retries_fit(calls(2 * MINUTE, policy), figure("timeouts.step", edge))
    assert [one.rule for one in fits if "429" in one.says] == []
    (limited,) = [one for one in retries_fit(calls(2 * MINUTE), figure("timeouts.step", edge - 1)) if "429" in one.says]
    assert str(limited.sum) == "1.5 × 5 × 1m + 2m = 9m 30s > 9m 29.999s"


@pytest.mark.row("F3")
def test_the_seeds_sdk_retries_multiply() -> None:
    """Three tries of an SDK inside each of our four, two minutes each, do not fit into a step of ten."""
    step = figure("timeouts.step", 10 * MINUTE)
    assert ids(retries_fit(calls(2 * MINUTE), step)) == []
    hangs, limited = retries_fit(calls(2 * MINUTE, RetryPolicy(jitter=0), inside=3), step)
    assert str(hangs.sum) == "4 × 3 × 2m + 1s + 2s + 4s = 24m 7s > 10m"
    assert str(limited.sum) == "5 × 1m + 3 × 2m = 11m > 10m"


def test_what_is_not_retried_is_not_added_up() -> None:
    assert ids(retries_fit(calls(2 * MINUTE, RetryPolicy(retries=0)), figure("timeouts.step", 1))) == []


def test_a_scope_is_not_told_to_grow_beyond_what_it_may() -> None:
    step = figure("timeouts.step", 5 * MINUTE)
    fixes = [one.fix for one in retries_fit(calls(2 * MINUTE), step, most=6 * MINUTE)]
    assert fixes
    assert not any("give" in fix.lower() for fix in fixes)


def test_pauses_that_double_for_ever_are_not_followed_for_ever() -> None:
    policy = RetryPolicy(retries=10**9, max_attempts=10**9)
    (hangs, _) = retries_fit(calls(SECOND, policy), figure("timeouts.step", 10 * MINUTE))
    assert "1s + 2s + 4s + … + " in str(hangs.sum)
    assert len(ids(retries_fit(calls(SECOND, RetryPolicy(0, 0.0, 0, 0, 10**9, 10**9)), figure("s", MINUTE)))) == 1


@pytest.mark.row("F7")
def test_more_retries_than_the_total_allows_can_never_be() -> None:
    total = figure("retry.max_attempts", 6, None)
    (found,) = retries_above_total(figure("retry.retries", 6), total)
    assert found.fix == "Set retry.max_attempts to 7, or retry.retries to 5."
    assert ids(retries_above_total(figure("retry.retries", 5), total)) == []


@pytest.mark.row("F5")
def test_a_retry_after_below_the_cap_that_no_step_can_wait_for() -> None:
    cap = figure("retry.retry_after_cap", 5 * MINUTE, None)
    (found,) = retry_after_fits(cap, figure("timeouts.step", 5 * MINUTE))
    assert (found.severity, found.key) == (Severity.WARNING, "timeouts.step")
    assert ids(retry_after_fits(cap, figure("timeouts.step", 5 * MINUTE + 1))) == []


# --- check-ins --------------------------------------------------------------------------------------------------------


def watched(
    limit: int = 15 * MINUTE,
    interval: int = 5 * MINUTE,
    wait: int = 30 * SECOND,
    threshold: int = 3,
    idle: int | None = None,
) -> CheckIns:
    return CheckIns(
        figure("agent_timeout", limit),
        figure("checkpoint_interval", interval),
        figure("checkpoint_timeout", wait),
        figure("stall_threshold", threshold),
        figure("timeout_escalation", 3),
        None if idle is None else figure("idle", idle),
    )


@pytest.mark.row("O2", "O3")
def test_the_seeds_three_misses_cannot_happen_in_one_run() -> None:
    """Asked at 5 and 10 of 15 minutes, an agent can miss twice; the third time is in its second run."""
    (note,) = checkins_work(watched())
    assert (note.rule, note.severity) == ("stall_takes_runs", Severity.NOTE)
    assert "only in run 2: a run of 15m has 2 chances" in note.says
    assert ids(checkins_work(watched(threshold=2))) == []
    assert ids(checkins_work(watched(limit=15 * MINUTE + 30 * SECOND + 1))) == []


@pytest.mark.row("O2")
def test_nobody_is_asked_at_the_limit_itself() -> None:
    assert ids(checkins_work(watched(limit=5 * MINUTE))) == ["never_asked"]
    assert ids(checkins_work(watched(limit=5 * MINUTE + 1, wait=1))) == ["never_judged", "stall_in_reach"]
    assert "never_asked" not in ids(checkins_work(watched(limit=5 * MINUTE + 2, wait=1)))


@pytest.mark.row("O2")
def test_a_check_in_whose_wait_ends_after_the_run_can_never_be_missed() -> None:
    found = [one for one in checkins_work(watched(limit=15 * MINUTE + 30 * SECOND)) if one.rule == "never_judged"]
    assert [str(one.sum) for one in found] == ["3 × 5m + 30s = 15m 30s ≥ 15m 30s"]
    assert "never_judged" not in ids(checkins_work(watched(limit=15 * MINUTE + 30 * SECOND + 1)))


@pytest.mark.row("O3")
def test_a_threshold_that_no_number_of_runs_reaches() -> None:
    assert ids(checkins_work(watched(threshold=7))) == ["stall_in_reach"]
    assert ids(checkins_work(watched(threshold=6))) == ["stall_takes_runs"]


@pytest.mark.row("O2")
def test_idle_that_ends_who_answers_when_asked() -> None:
    def idle(length: int) -> list[str]:
        return [one.says for one in checkins_work(watched(threshold=2, idle=length))]

    assert "before an agent is first asked" in idle(5 * MINUTE)[0]
    assert "answers every check-in in time" in idle(5 * MINUTE + 30 * SECOND)[0]
    assert idle(5 * MINUTE + 30 * SECOND + 1) == []


@pytest.mark.row("O2")
def test_check_ins_that_are_missed_by_construction_while_one_tool_runs() -> None:
    often = watched(interval=MINUTE)
    edge = 2 * MINUTE + 30 * SECOND
    (found,) = busy_is_not_stalled(often, figure("timeouts.tool", edge), "a tool")
    assert str(found.sum) == "2 × 1m + 30s = 2m 30s ≤ 2m 30s"
    assert ids(busy_is_not_stalled(often, figure("timeouts.tool", edge - 1), "a tool")) == []
    assert ids(busy_is_not_stalled(watched(), figure("timeouts.tool", 5 * MINUTE), "a tool")) == []
    assert ids(busy_is_not_stalled(watched(threshold=1), figure("timeouts.tool", 30 * SECOND), "a tool")) != []


# --- steps ------------------------------------------------------------------------------------------------------------


def step(id_: str, *needs: str, limit: int = 10 * MINUTE) -> StepFigures:
    return StepFigures(id_, figure("timeouts.step", limit, None), tuple(map(Need, needs)), HERE)


@pytest.mark.row("F1")
def test_the_critical_path_is_the_longest_way_and_not_the_sum_of_all() -> None:
    flow = figure("timeouts.flow", 30 * MINUTE, None)
    beside = [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")]
    assert ids(critical_path(beside, flow)) == []
    (found,) = critical_path([*beside, step("e", "d")], flow)
    assert (found.severity, str(found.sum)) == (Severity.WARNING, "4 × 10m = 40m > 30m")
    assert "a → b → d → e" in found.says
    longer = [step("a"), step("b", "a", limit=20 * MINUTE + 1)]
    (found,) = critical_path(longer, flow, most=30 * MINUTE)
    assert str(found.sum).startswith("a 10m + b 20m")
    assert found.fix == "Shorten steps, or let some of them run side by side."


@pytest.mark.row("F1")
def test_retries_that_a_step_asks_for_count_on_its_path() -> None:
    limit = figure("timeouts.step", 10 * MINUTE, None)
    again = Retrying("step 'b'", limit, RetryPolicy(retries=1, jitter=0))
    steps = [step("a"), StepFigures("b", limit, (Need("a"),), HERE, again)]
    (found,) = critical_path(steps, figure("timeouts.flow", 30 * MINUTE))
    assert str(found.sum) == "a 10m + b 20m 1s = 30m 1s > 30m"
    assert ids(critical_path(steps, figure("timeouts.flow", 30 * MINUTE + SECOND))) == []


@pytest.mark.row("C4")
def test_needs_that_cannot_be_met_are_named_and_make_no_path() -> None:
    cycle = [step("a", "c"), step("b", "a"), step("c", "b")]
    (found,) = needs_are_met(cycle)
    assert "a -> c -> b -> a" in found.says
    missing = [step("plan"), step("b", "plann")]
    (found,) = needs_are_met(missing)
    assert (found.rule, found.fix, found.place) == ("unknown_need", "Did you mean 'plan'?", HERE)
    assert [ids(critical_path(steps, figure("timeouts.flow", 1))) for steps in (cycle, missing, [])] == [[], [], []]
    assert ids(needs_are_met([step("a"), step("b", "a")])) == []


@pytest.mark.row("O4")
def test_a_step_whose_third_timeout_comes_after_the_flow() -> None:
    escalation = figure("timeout_escalation", 3, None)
    found = told(escalation_in_reach(figure("step", 10 * MINUTE), figure("flow", 30 * MINUTE), escalation))
    assert found == [("escalation_in_reach", "note", "3 × 10m = 30m ≥ 30m")]
    assert ids(escalation_in_reach(figure("step", 10 * MINUTE - 1), figure("flow", 30 * MINUTE), escalation)) == []


# --- the worker -------------------------------------------------------------------------------------------------------


def worker(statement: int, pool: int = 30 * SECOND, *, connection_first: bool = True) -> WorkerLimits:
    return WorkerLimits(
        figure("visibility_timeout", 30 * SECOND),
        figure("statement_timeout", statement),
        figure("pool.timeout", pool),
        connection_first,
    )


def test_a_statement_ends_before_its_message_is_given_to_another() -> None:
    assert ids(statement_before_visibility(worker(29_999))) == []
    (found,) = statement_before_visibility(worker(30_000))
    assert "30000 ms" in found.says
    assert ids(statement_before_visibility(worker(0))) == ["statement_before_visibility"]


def test_the_seeds_pool_wait_eats_the_visibility_unless_the_connection_comes_first() -> None:
    (found,) = pool_before_visibility(worker(25_000, connection_first=False))
    assert (found.severity, str(found.sum)) == (Severity.ERROR, "30s + 25s = 55s ≥ 30s")
    assert found.fix.startswith("Take the connection before the message is read")
    (found,) = pool_before_visibility(worker(25_000))
    assert (found.severity, str(found.sum)) == (Severity.WARNING, "30s + 25s = 55s ≥ 30s")
    for first in (True, False):
        assert ids(pool_before_visibility(worker(25_000, 4_999, connection_first=first))) == []
        assert ids(pool_before_visibility(worker(25_000, 5_000, connection_first=first))) == ["pool_before_visibility"]


# --- words ------------------------------------------------------------------------------------------------------------


def test_what_follows_from_defaults_alone_is_nobodys_mistake() -> None:
    (warned,) = never_fires(figure("a", 5, None), figure("b", 5, None))
    assert not worth_telling(warned)
    (error,) = above_hard_limit(figure("a", 6, None), figure("b", 5, None))
    assert worth_telling(error)


def test_lengths_are_exact_and_advice_is_round() -> None:
    lengths = {0: "0s", 400: "400ms", 1_500: "1.5s", 490_500: "8m 10.5s", 90_000_000: "1d 1h", 60_001: "1m 0.001s"}
    assert {length: exact(length) for length in lengths} == lengths
    assert (at_most(72_375), at_least(490_500), at_most(1_500), at_least(1_500)) == ("1m 12s", "8m 11s", "1.5s", "1.5s")


def test_a_handler_that_was_seen_to_outlast_its_visibility_is_told_by_its_type() -> None:
    slow = {"mail": too_slow(32.04, 30)}
    (found,) = handlers_before_visibility("orders", slow, {"takes 9 s, visibility is 3 s: …": 2})
    assert found.says.startswith("The handler of 'mail' of queue orders takes 32 s, visibility is 30 s: ")
    (late,) = handlers_before_visibility("orders", {}, {"takes 9 s, visibility is 3 s: …": 2_000})
    assert late.says == "2,000 messages of queue orders were too late: takes 9 s, visibility is 3 s."
    assert list(handlers_before_visibility("orders", {}, {})) == []

"""The arithmetic of flow files: the seed's own examples, what is misspelt, and settings that fill in the rest."""

import random
from pathlib import Path

import pytest

from allswell.domain.check.model import Finding
from allswell.flows.schema import findings
from allswell.settings import look


def check(tmp_path: Path, text: str | bytes, settings: str = "") -> list[Finding]:
    """The findings about time: what steps do is left out here, and what is said of that is in test_reading.py."""
    (tmp_path / "allswell.toml").write_text(settings)
    found = findings(text, "flow.yaml", look(tmp_path, environ={}))
    return [one for one in found if one.rule != "incomplete"]


def told(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(one.severity.value, one.rule, str(one.place)) for one in found]


def says(found: list[Finding]) -> str:
    return "\n".join(f"{one.place}: {one.says} {one.fix}" for one in found)


CHAIN = "steps:\n  - id: a\n  - {id: b, needs: a}\n  - {id: c, needs: [b]}\n"


def test_a_flow_that_fits_says_nothing(tmp_path: Path) -> None:
    assert check(tmp_path, CHAIN) == []
    assert check(tmp_path, "name: x\n" + CHAIN + "    \ninputs: {}\n") == []


@pytest.mark.row("F12")
def test_the_seeds_override_is_announced_and_still_capped_by_the_flow(tmp_path: Path) -> None:
    seed = "steps:\n  - id: heavy-analysis\n    timeout_override: 1200000  # 20 minutes for this step\n"
    (note,) = check(tmp_path, seed)
    assert told([note]) == [("note", "override", "flow.yaml:3:5")]
    assert (note.key, str(note.sum)) == ("steps.heavy-analysis.timeout_override", "20m > 15m")
    capped = check(tmp_path, "timeouts: {flow: 20m}\n" + seed.replace("1200000", "25m"))
    assert ("error", "never_fires", "flow.yaml:4:5") in told(capped)


@pytest.mark.row("F12")
def test_the_seeds_timeouts_fit_together_and_the_longer_call_alone_does_not(tmp_path: Path) -> None:
    """15 minutes for a step and 3 for a call are at their hard limits: four such calls need the longer step."""
    found = check(tmp_path, "timeouts:\n  step: 900000     # 15 minutes\n  llm_call: 180000 # 3 minutes\n")
    assert told(found) == [("note", "escalation_in_reach", "flow.yaml:2:3")]
    assert str(found[0].sum) == "3 × 15m = 45m ≥ 30m"
    found = check(tmp_path, "timeouts:\n  llm_call: 180000 # with the usual step of 10 minutes\n")
    assert [str(one.sum) for one in found] == [
        "4 × 3m + 1.5 × (1s + 2s) + breaker.pause 30s = 12m 34.5s > 10m",
        "1.5 × 5 × 1m + 3m = 10m 30s > 10m",
    ]
    assert {one.severity.value for one in found} == {"error"}


@pytest.mark.row("F12")
def test_anything_else_above_its_hard_limit_is_an_error(tmp_path: Path) -> None:
    found = check(tmp_path, "timeouts:\n  step: 20m\n")
    assert ("error", "above_hard_limit", "flow.yaml:2:3") in told(found)
    assert told(check(tmp_path, "timeouts:\n  step: 15m\n", "hard_limits.step = '14m'\ntimeouts.step = '9m'"))[0] == (
        "error",
        "above_hard_limit",
        "flow.yaml:2:3",
    )


@pytest.mark.row("F3")
def test_retries_of_a_step_are_held_against_the_flow(tmp_path: Path) -> None:
    assert check(tmp_path, "steps:\n  - id: a\n    retry: 2\n    timeout_override: 9m\n") == []
    (found,) = check(tmp_path, "steps:\n  - id: a\n    retry: 2\n")
    assert (found.rule, str(found.place), str(found.sum)) == (
        "retries_fit",
        "flow.yaml:3:5",
        "3 × 10m + 1.5 × (1s + 2s) = 30m 4.5s > 30m",
    )
    found, *_ = check(tmp_path, "steps:\n  - id: a\n    timeout_override: 1s\n    retry: {retries: 9, backoff: 1ms}\n")
    assert (found.rule, str(found.place)) == ("retries_above_total", "flow.yaml:4:13")


def test_a_short_step_that_calls_models_is_warned_and_one_that_does_not_is_left_alone(tmp_path: Path) -> None:
    assert check(tmp_path, "steps:\n  - {id: a, run: make, timeout_override: 1m}\n") == []
    found = check(tmp_path, "steps:\n  - {id: a, agent: ada, timeout_override: 1m}\n")
    assert {(one.severity.value, one.rule) for one in found} == {("warning", "retries_fit")}


@pytest.mark.row("F1")
def test_the_critical_path_is_placed_at_the_last_step_where_nobody_set_the_flow(tmp_path: Path) -> None:
    (found,) = check(tmp_path, CHAIN + "  - {id: d, needs: [c]}\n")
    assert told([found]) == [("warning", "critical_path", "flow.yaml:5:5")]
    assert str(found.sum) == "4 × 10m = 40m > 30m"


@pytest.mark.row("C4")
def test_cycles_and_missing_needs_are_found(tmp_path: Path) -> None:
    found = check(tmp_path, "steps:\n  - {id: a, needs: [b]}\n  - {id: b, needs: [a]}\n")
    assert "dependency cycle detected: a <-> b" in says(found)
    assert "flow.yaml:2:21: Step 'a' needs 'x', and there is no such step." in says(
        check(tmp_path, "steps:\n  - {id: a, needs: [x]}\n")
    )


@pytest.mark.parametrize(
    "text, place, words",
    [
        ("timeouts: {stpe: 5m}", "1:12", "There is no scope 'stpe'. Did you mean 'step'?"),
        ("timeouts: {step: soon}", "1:12", "timeouts.step 'soon' is not a duration"),
        ("timeouts: {step: 0}", "1:12", "timeouts.step must be more than 0 ms"),
        ("timeouts: {step: 1.5}", "1:12", "timeouts.step must be milliseconds, or a duration such as 15m"),
        ("timeouts: {step: yes}", "1:12", "timeouts.step 'yes' is not a duration"),
        ("timeouts: {step: true}", "1:12", "timeouts.step must be milliseconds"),
        ("timeouts: {step: -5}", "1:12", "must be between 0 and 366 days"),
        ("timeouts: 5m", "1:1", "`timeouts:` must be a mapping"),
        ("steps: 5", "1:1", "`steps:` must be a list"),
        ("steps: [5]", "1:9", "Step 1 must be a mapping"),
        ("steps: [{run: x}]", "1:9", "Step 1 has no id"),
        ("steps: [{id: }]", "1:10", "Step 1 has no id"),
        ("steps:\n- id: a\n- id: a", "3:3", "There are two steps 'a'; the first is on line 2."),
        ("steps: [{id: a, timeout: 3m}]", "1:17", "Did you mean 'timeout_override'?"),
        ("steps: [{id: a, timeout_overide: 3m}]", "1:17", "Did you mean 'timeout_override'?"),
        ("step: [{id: a}]\nsteps: []", "1:1", "Did you mean 'steps'?"),
        ("steps: [{id: a, needs: {b: 1}}]", "1:24", "steps.a.needs must be ids of steps"),
        ("steps: [{id: a, retry: soon}]", "1:17", "steps.a.retry: retry.retries must be a whole number"),
        ("steps: [{id: a, retry: {retry: 1}}]", "1:25", "steps.a.retry has no figure 'retry'"),
        ("steps: [{id: a, retry: -1}]", "1:17", "retry.retries must be a whole number, 0 or more"),
        ("steps: [{id: a, retry: {retry_after_default: 6m}}]", "1:17", "must be at most retry.retry_after_cap"),
        ("just words", "1:1", "This is not a flow"),
        ("name: x", "1:1", "This is not a flow"),
        ("a: &x 1", "1:4", "An anchor (&x) is not taken"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path: Path, text: str, place: str, words: str) -> None:
    found = check(tmp_path, text)
    (meant,) = [one for one in found if words in f"{one.says} {one.fix}"]
    assert str(meant.place) == f"flow.yaml:{place}"
    assert all(one.severity.value == "error" for one in found)


def test_settings_fill_in_what_a_flow_does_not_say(tmp_path: Path) -> None:
    found = check(tmp_path, CHAIN, 'timeouts.step = "12m"\n')
    assert ("warning", "critical_path") in {(one.severity.value, one.rule) for one in found}
    (capped,) = [one for one in check(tmp_path, "timeouts: {flow: 9m}\n") if one.rule == "never_fires"]
    assert (capped.severity.value, str(capped.place)) == ("warning", "flow.yaml:1:12")


def test_a_flow_of_ten_thousand_steps_is_checked(tmp_path: Path) -> None:
    text = "timeouts: {flow: 45m, step: 1s}\nsteps:\n- {id: s0}\n"
    text += "".join(f"- {{id: s{n}, needs: [s{n - 1}]}}\n" for n in range(1, 10_000))
    (found,) = [one for one in check(tmp_path, text) if one.rule == "critical_path"]
    assert str(found.sum) == "10000 × 1s = 2h 46m 40s > 45m"
    assert "s0 → s1 → s2 → … → s9998 → s9999" in found.says


def test_a_file_of_nothing_but_mistakes_is_not_told_to_its_end(tmp_path: Path) -> None:
    assert len(check(tmp_path, "steps: [" + "a," * 20_000 + "]")) == 100


WORDS = (
    "timeouts", "steps", "id", "needs", "retry", "timeout_override", "agent", "flow", "step", "a", "b", "5m", "1", "0",
    "-1", "1.5", "true", "null", "retries", "backoff", "max_attempts", "jitter", "by_class", "off", "1e3", "9" * 20,
)  # fmt: skip


def anything(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth > 4 or kind < 0.4:
        return chance.choice(WORDS)
    parts = [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 0.6:
        return f"[{', '.join(parts)}]"
    return "{" + ", ".join(f"{key}: {part}" for key, part in zip(chance.sample(WORDS, 4), parts, strict=False)) + "}"


def test_no_shape_of_a_flow_leads_to_a_traceback(tmp_path: Path) -> None:
    settings = look(tmp_path, environ={})
    chance = random.Random(1)
    for _ in range(3_000):
        steps = ", ".join(anything(chance, 1) for _ in range(3))
        step = f"{{id: x, retry: {anything(chance, 2)}, needs: {anything(chance, 2)}}}"
        text = chance.choice(
            [anything(chance), f"{{timeouts: {anything(chance, 1)}, steps: [{steps}, {step}]}}", f"steps: [{steps}]"]
        )
        for finding in findings(text, "flow.yaml", settings):
            assert finding.says, text
            assert finding.fix, text
            assert finding.place is not None, text


@pytest.mark.row("F3", "F12")
def test_limits_inside_a_step_that_its_own_limit_keeps_from_being_reached(tmp_path: Path) -> None:
    flow = "timeouts: {llm_call: 2m, tool: 30s}\nsteps:\n  - {id: a, python: 'm:f', timeout_override: 1m}\n"
    (late,) = [one for one in check(tmp_path, flow) if one.rule == "never_fires"]
    assert (late.severity.value, "timeouts.llm_call can never fire" in late.says) == ("warning", True)
    verified = "steps:\n  - {id: a, run: make, verify: make test, timeout_override: 2m}\n  - {id: b, run: make}\n"
    assert [one.rule for one in check(tmp_path, verified)] == []
    (late,) = check(tmp_path, verified, 'verify_timeout = "5m"\n')
    assert (late.severity.value, late.rule, "verify_timeout can never fire" in late.says) == (
        "warning",
        "never_fires",
        True,
    )

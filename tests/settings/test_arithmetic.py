"""The arithmetic of the settings: the defaults are clean, and each figure is told with its place."""

from pathlib import Path

import pytest

from allswell.domain.check.model import Finding, Severity
from allswell.settings import look
from allswell.settings.check import findings, refusals


def check(tmp_path: Path, text: str = "", **environ: str) -> list[Finding]:
    (tmp_path / "allswell.toml").write_text(text)
    settings = look(tmp_path, environ=environ)
    assert settings.problems == ()
    return findings(settings)


def told(tmp_path: Path, found: list[Finding]) -> list[tuple[str, str, str]]:
    places = [str(one.place).removeprefix(f"{tmp_path}/") for one in found]
    return [(one.severity.value, one.rule, place) for one, place in zip(found, places, strict=True)]


def test_the_defaults_have_nothing_against_each_other(tmp_path: Path) -> None:
    assert check(tmp_path) == []


@pytest.mark.row("O2", "O3")
def test_the_seeds_figures_written_out_find_a_silent_agent_in_its_second_run(tmp_path: Path) -> None:
    seed = "agent_timeout = 900000\ncheckpoint_interval = 300000\ncheckpoint_timeout = 30000\nstall_threshold = 3\n"
    found = check(tmp_path, seed + "timeout_escalation = 3\ndelegation_timeout = 600000\n")
    assert told(tmp_path, found)[0] == ("note", "stall_takes_runs", "allswell.toml:4:1")
    assert {one.severity for one in found} <= {Severity.NOTE, Severity.WARNING}


def test_each_source_is_a_place(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.allswell]\n  timeouts = { step = "5m", tool = "4m" }\n')
    found = check(tmp_path, "", ALLSWELL_TIMEOUTS_LLM_CALL="6m", ALLSWELL_HARD_LIMITS_LLM_CALL="6m")
    listed = told(tmp_path, found)
    assert ("error", "never_fires", "ALLSWELL_TIMEOUTS_LLM_CALL") in listed
    assert ("error", "retries_fit", "pyproject.toml:2:16") in listed


def test_a_role_is_told_with_its_own_names(tmp_path: Path) -> None:
    (found,) = check(tmp_path, '[roles.quick]\nagent_timeout = "5m"\n')
    assert told(tmp_path, [found]) == [("warning", "never_asked", "allswell.toml:2:1")]
    assert "roles.quick.agent_timeout" in found.says


def test_what_all_roles_share_is_said_once(tmp_path: Path) -> None:
    (found,) = check(tmp_path, "stall_threshold = 90\n")
    assert found.rule == "stall_in_reach"
    assert [one.rule for one in check(tmp_path, "retry.retries = 6\n")].count("retries_above_total") == 1


def test_an_expert_cannot_have_more_than_who_delegates(tmp_path: Path) -> None:
    (found,) = [one for one in check(tmp_path, 'delegation_timeout = "16m"\n') if one.rule == "never_fires"]
    assert (found.severity, str(found.sum)) == (Severity.ERROR, "16m > 15m")
    assert check(tmp_path, 'delegation_timeout = "14m"\n') == []


def test_a_statement_that_outlasts_its_message_is_an_error_with_both_numbers(tmp_path: Path) -> None:
    found = check(tmp_path, "[worker]\nvisibility_timeout = 20\n")
    assert told(tmp_path, found)[0] == ("error", "statement_before_visibility", "allswell.toml:2:1")
    assert "worker.statement_timeout (25000 ms) must be less than worker.visibility_timeout (20000 ms)" in found[0].says
    (found_zero,) = check(tmp_path, "worker.statement_timeout = 0\nworker.pool_timeout = 1\n")
    assert "means no limit at all to PostgreSQL" in found_zero.says


def test_a_limit_for_long_handlers_that_is_under_the_visibility_is_told(tmp_path: Path) -> None:
    (found,) = [one for one in check(tmp_path, "[worker]\nlong_timeout = 30\n") if one.rule == "long_after_visibility"]
    assert str(found.sum) == "30s ≤ 30s"
    assert check(tmp_path, "[worker]\nlong_timeout = 31\n") == []


def test_the_workers_seed_written_out_is_warned_of_its_pool(tmp_path: Path) -> None:
    seed = "[worker]\nstatement_timeout = 25000\nvisibility_timeout = 30\npool_timeout = 30\n"
    (found,) = check(tmp_path, seed)
    assert told(tmp_path, [found]) == [("warning", "pool_before_visibility", "allswell.toml:4:1")]
    assert str(found.sum) == "30s + 25s = 55s ≥ 30s"
    assert check(tmp_path, seed.replace("pool_timeout = 30", "pool_timeout = 4.9")) == []
    assert check(tmp_path, "", ALLSWELL_WORKER_VISIBILITY_TIMEOUT="56") == []
    assert check(tmp_path, "", ALLSWELL_WORKER_VISIBILITY_TIMEOUT="1m") == []


def test_settings_that_are_refused_are_findings_with_places(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text('stal_threshold = 1\n  idle = "1h"\ntimeouts = { step = "20m" }\n')
    found = refusals(look(tmp_path, environ={"ALLSWELL_RETRY_JITTER": "2"}))
    assert [str(one.place).removeprefix(f"{tmp_path}/") for one in found] == [
        "allswell.toml:1:1",
        "ALLSWELL_RETRY_JITTER",
        "allswell.toml:2:3",
        "allswell.toml:3:14",
    ]
    assert {one.rule for one in found} == {"bad_setting"}
    (tmp_path / "allswell.toml").write_text("a = = 1\n")
    (broken,) = refusals(look(tmp_path, environ={}))
    assert str(broken.place).startswith(f"{tmp_path}/allswell.toml:1:")

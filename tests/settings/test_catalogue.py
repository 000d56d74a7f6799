"""The catalogue holds every figure once, and its schema says the same as the loader."""

from pathlib import Path

import pytest

from allswell.domain.scopes import HardLimits, ScopeKind, Timeouts
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.model import Policy
from allswell.engine.timings import HealthThresholds, Timings
from allswell.errors import Refused
from allswell.settings import SETTINGS, load
from allswell.settings.schema import NAMED_TABLES, NOT_SETTINGS, PER_ROLE, ROLES, schema
from allswell.settings.values import InvalidValue

SEEDS = (
    "agent_timeout",
    "checkpoint_interval",
    "checkpoint_timeout",
    "delegation_timeout",
    "stall_threshold",
    "timeout_escalation",
    "context_threshold",
    "session_threshold",
)


@pytest.mark.row("O1")
def test_the_seeds_figures_have_the_seeds_names() -> None:
    figures = {name: SETTINGS[name].default for name in SEEDS}
    assert figures == dict(zip(SEEDS, (900_000, 300_000, 30_000, 600_000, 3, 3, 10, 10), strict=True))


@pytest.mark.row("F1")
def test_scopes_have_the_seeds_defaults_and_hard_limits() -> None:
    minutes = {
        kind: (SETTINGS[f"timeouts.{kind}"].default, SETTINGS[f"hard_limits.{kind}"].default)
        for kind in ("flow", "step", "llm_call", "tool")
    }
    assert minutes == {
        "flow": (30 * 60_000, 45 * 60_000),
        "step": (10 * 60_000, 15 * 60_000),
        "llm_call": (2 * 60_000, 3 * 60_000),
        "tool": (5 * 60_000, 10 * 60_000),
    }


@pytest.mark.row("F1")
def test_a_default_above_its_hard_limit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text('[timeouts]\nstep = "20m"\n')
    with pytest.raises(Refused, match=r"timeouts.step \(1200000 ms\) must be at most hard_limits.step \(900000 ms\)"):
        load(tmp_path, environ={})
    (tmp_path / "allswell.toml").write_text('[timeouts]\nstep = "20m"\n[hard_limits]\nstep = "25m"\n')
    assert load(tmp_path, environ={}).limits().timeout(ScopeKind.STEP) == 20 * 60_000


def test_every_figure_of_the_core_and_the_engine_is_a_setting() -> None:
    fields = {field for field in Policy.__struct_fields__ if field not in ("timeout", "retry", "max_cost")}
    fields |= {"agent_timeout", "max_cost_usd", "max_cost_usd_per_day"}
    fields |= {f"retry.{field}" for field in RetryPolicy.__struct_fields__}
    assert fields == set(PER_ROLE)
    assert {f"timeouts.{field}" for field in Timeouts.__struct_fields__} <= set(SETTINGS)
    assert {f"hard_limits.{field}" for field in HardLimits.__struct_fields__} <= set(SETTINGS)
    assert {f"breaker.{field}" for field in BreakerPolicy.__struct_fields__ if field != "then"} <= set(SETTINGS)
    assert {f"pace.{field}" for field in Timings.__struct_fields__} <= set(SETTINGS)
    assert {f"doctor.{field}" for field in HealthThresholds.__struct_fields__} <= set(SETTINGS)


def test_every_setting_has_a_sentence_that_ends() -> None:
    assert [name for name, setting in SETTINGS.items() if not setting.description.endswith(".")] == []


def test_no_variable_means_two_things() -> None:
    variables = [setting.env() for setting in SETTINGS.values()]
    assert len(set(variables)) == len(variables)
    assert not set(variables) & NOT_SETTINGS
    endings = ["_" + name.upper().replace(".", "_") for name in PER_ROLE]
    assert not [(one, other) for one in endings for other in endings if one != other and one.endswith(other)]


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_shown_can_be_written_down_again(name: str) -> None:
    setting = SETTINGS[name]
    for value in (setting.default, 123_456_789 if setting.kind == "duration" else setting.default):
        if name != "store":
            assert setting.read(setting.show(value)) == value


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "store"])
def test_every_setting_is_loaded_from_a_file_and_from_the_environment(name: str, tmp_path: Path) -> None:
    setting = SETTINGS[name]
    examples = {"duration": "40s", "seconds": "40", "count": "2", "share": "0.25", "percent": "20", "size": "3GB"}
    examples["money"] = "2.5"
    examples["command"] = "make test"
    examples["flag"] = "true"
    examples["text"] = "1s, 2m"  # what only worker.retry_pauses is, beside the store
    usual = setting.choices[-1] if setting.choices else examples[setting.kind]
    given = {"checkpoint_timeout": "10s", "retry.retry_after_cap": "70s", "pace.retry_first": "40ms"}.get(name, usual)
    given = "2h" if name.startswith("hard_limits.") else "7" if name == "breaker.escalate_after" else given
    given = "9" if name.startswith("requests.") and setting.kind == "count" else given
    (tmp_path / "allswell.toml").write_text(
        f'{name} = "{given}"'
        if setting.kind in ("duration", "size", "choice", "text", "command")
        else f"{name} = {given}"
    )
    from_file = load(tmp_path, environ={}).explain_one(name)
    assert from_file.source == "allswell.toml"
    assert from_file.value == setting.read(given) != setting.default
    from_environment = load(tmp_path.parent, environ={setting.env(): given}).explain_one(name)
    assert (from_environment.value, from_environment.source) == (from_file.value, "environment")


def test_the_schema_knows_every_setting_and_no_other() -> None:
    made = schema()
    names = set()
    for key, shape in made["properties"].items():
        if key not in ("roles", *NAMED_TABLES):
            names |= {f"{key}.{inner}" for inner in shape["properties"]} if shape.get("type") == "object" else {key}
    assert names == set(SETTINGS)
    assert made["additionalProperties"] is False
    role = made["properties"]["roles"]["additionalProperties"]
    assert {*role["properties"]} - {"retry"} == {name for name in PER_ROLE if "." not in name}
    assert made["properties"]["roles"]["default"] == ROLES


@pytest.mark.parametrize("raw, seconds", [(30, 30), (0.5, 0.5), ("30", 30), ("1.5", 1.5), ("30s", 30), ("400ms", 0.4)])
def test_of_some_settings_a_bare_number_is_seconds(raw: object, seconds: float) -> None:
    setting = SETTINGS["worker.pool_timeout"]
    assert setting.read(raw) == seconds
    assert setting.read(setting.show(seconds)) == seconds


@pytest.mark.parametrize(
    "raw", [-1, "soon", "1_0", "٥", "٥s", "", True, [30], float("nan"), float("inf"), 1e12, "400d", "-5"]
)
def test_what_is_no_number_of_seconds_is_told_by_name(raw: object) -> None:
    with pytest.raises(InvalidValue, match=r"worker\.pool_timeout"):
        SETTINGS["worker.pool_timeout"].read(raw)

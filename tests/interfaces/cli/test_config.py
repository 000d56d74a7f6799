"""`allswell config`: every setting with its value, its default and its source."""

import json
import re
from pathlib import Path

import pytest

from allswell.settings import SETTINGS
from tests.interfaces.cli.upkeep import at_terminal, run


def test_every_setting_is_listed_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text('\nagent_timeout = "20m"\n')
    below = tmp_path / "below"
    below.mkdir()
    ran = run("config", cwd=below, ALLSWELL_STALL_THRESHOLD="4")
    assert ran.code == 0
    listed = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line.strip()}
    assert set(SETTINGS) <= set(listed)
    assert listed["agent_timeout"] == ["20m", "15m", "../allswell.toml:2"]
    assert listed["stall_threshold"] == ["4", "3", "ALLSWELL_STALL_THRESHOLD"]
    assert listed["idle"] == ["off", "off", "default"]
    assert listed["roles.critic.agent_timeout"] == ["10m", "10m", "default"]
    assert not (below / ".allswell").exists()


def test_as_json_lengths_of_time_are_milliseconds(tmp_path: Path) -> None:
    ran = run("config", "--json", "--store", "sqlite:///x.db", cwd=tmp_path, ALLSWELL_AGENT_TIMEOUT="20m")
    rows = {row["name"]: row for row in json.loads(ran.out)["settings"]}
    found = rows["agent_timeout"]
    assert (found["value"], found["default"]) == (1_200_000, 900_000)
    assert (found["source"], found["where"]) == ("environment", "ALLSWELL_AGENT_TIMEOUT")
    assert found["description"] == SETTINGS["agent_timeout"].description
    assert (rows["store"]["value"], rows["store"]["source"]) == ("sqlite:///x.db", "flag")


def test_one_setting_is_explained(tmp_path: Path) -> None:
    ran = run("config", "agent_timeout", cwd=tmp_path)
    assert ran.out.startswith("agent_timeout = 15m\n")
    for part in ("The hard limit of one attempt", 'agent_timeout = "15m"', "ALLSWELL_AGENT_TIMEOUT=15m", "critic 10m"):
        assert part in ran.out


def test_a_table_and_a_role_are_listed_alone(tmp_path: Path) -> None:
    names = {line.split()[0] for line in run("config", "retry", cwd=tmp_path).out.splitlines()[1:]}
    assert names == {name for name in SETTINGS if name.startswith("retry.")}
    assert "roles.critic.agent_timeout = 10m" in run("config", "roles.critic", cwd=tmp_path).out


def test_what_a_role_does_not_set_is_inherited(tmp_path: Path) -> None:
    found = json.loads(run("config", "roles.critic.checkpoint_interval", "--json", cwd=tmp_path).out)
    (found,) = found["settings"]
    assert (found["value"], found["env"]) == (300_000, "ALLSWELL_ROLES_CRITIC_CHECKPOINT_INTERVAL")


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    ran = run("config", "agnt_timeout", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "allswell: no such setting: 'agnt_timeout'; did you mean agent_timeout?\n"


def test_a_wrong_file_is_told_with_its_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text("stall_treshold = 1\nidle = '1h'\n")
    ran = run("config", cwd=tmp_path)
    assert ran.code == 2
    assert f"{tmp_path}/allswell.toml:1: no such setting: 'stall_treshold'; did you mean stall_threshold?" in ran.err
    assert f"{tmp_path}/allswell.toml:2: idle (3600000 ms) must be positive and at most agent_timeout" in ran.err
    assert "Traceback" not in ran.err
    said = json.loads(run("config", "--json", cwd=tmp_path).out)
    assert (said["error"]["kind"], said["error"]["code"]) == ("refused", "bad_setting")


def test_every_command_minds_the_settings(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text('store = "sqlite:///state/w.db"\n[roles.critic]\nagent_timeout = "7m"\n')
    below = tmp_path / "below"
    below.mkdir()
    assert run("submit", "look", "--role", "critic", cwd=below).code == 0
    assert (tmp_path / "state" / "w.db").exists()
    claimed = json.loads(run("claim", "--agent", "ada", "--json", cwd=below).out)
    assert 6 * 60_000 < claimed["remaining_ms"] <= 7 * 60_000


def test_the_schema_is_one_json_document(tmp_path: Path) -> None:
    made = json.loads(run("config", "--schema", cwd=tmp_path).out)
    assert made["properties"]["agent_timeout"]["default"] == 900_000


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    for args in (("config",), ("config", "--json"), ("config", "store")):
        ran = run(*args, cwd=tmp_path, ALLSWELL_STORE="postgresql://me:hunter2@host/db")
        assert "hunter2" not in ran.out
        assert "postgresql://me:***@host/db" in ran.out


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    (tmp_path / "allswell.toml").write_text("retry.retry_after_default = 12345\n")
    ran = at_terminal("config", cwd=tmp_path, columns=columns)
    text = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert text != ran.out, "there is colour at a terminal"
    rows = text.split("\n\n", 1)[1].splitlines()
    assert max(map(len, rows)) <= columns
    assert any("12.345s" in row for row in rows)
    assert ("hard limit" in text) == (columns == 200)
    assert at_terminal("config", cwd=tmp_path, columns=columns, NO_COLOR="1").out.count("\x1b") == 0

"""Settings are found, merged and checked, and every mistake is told with its place."""

from pathlib import Path

import pytest

from allswell.domain.task.model import DEFAULT as POLICY
from allswell.engine.timings import DEFAULT_PACE as PACE
from allswell.engine.timings import DEFAULT_TOLERANCE as TOLERANCE
from allswell.errors import Refused
from allswell.settings import Settings, load, look


def write(folder: Path, text: str, name: str = "allswell.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def read(folder: Path, **environ: str) -> Settings:
    return load(folder, environ=environ)


def refused(folder: Path, **environ: str) -> Refused:
    with pytest.raises(Refused) as caught:
        load(folder, environ=environ)
    assert caught.value.code == "bad_setting"
    return caught.value


@pytest.mark.row("O1")
def test_without_any_source_the_figures_are_those_of_the_core(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.policy_for("") == POLICY
    assert settings.policy_for("anyone") == POLICY
    assert settings.pace() == PACE
    assert settings.tolerance() == TOLERANCE
    assert settings.store == f"sqlite:///{tmp_path}/.allswell/allswell.db"
    assert {row.source for row in settings.explain()} == {"default"}


@pytest.mark.row("O1")
def test_some_roles_have_shorter_runs(tmp_path: Path) -> None:
    policies = read(tmp_path).policies()
    limits = {role: policy.timeout for role, policy in policies.items()}
    assert limits == {"": 900_000, "auditor": 600_000, "critic": 600_000, "remediation": 300_000}


@pytest.mark.row("O1")
def test_a_role_has_what_it_sets_and_inherits_the_rest(tmp_path: Path) -> None:
    write(tmp_path, 'checkpoint_interval = "2m"\n[roles.critic]\nagent_timeout = "10m"\nretry.jitter = 0.1')
    policy = read(tmp_path).policy_for("critic")
    assert (policy.timeout, policy.checkpoint_interval, policy.retry.jitter) == (600_000, 120_000, 0.1)
    assert read(tmp_path).policy_for("").retry.jitter == 0.5


def test_sources_are_merged_setting_by_setting_the_stronger_wins(tmp_path: Path) -> None:
    weak = (
        '[tool.allswell]\nagent_timeout = "1m"\nstall_threshold = 4\nidle = "50s"\n[tool.allswell.retry]\nbackoff = 7'
    )
    write(tmp_path, weak, "pyproject.toml")
    write(tmp_path, 'agent_timeout = "2m"\nidle = "55s"')
    settings = load(tmp_path, environ={"ALLSWELL_IDLE": "58s"}, flags={"store": "memory:"})
    found = {row.name: (row.shown, row.source, row.where) for row in settings.explain() if row.source != "default"}
    assert found == {
        "store": ("memory:", "flag", "--store"),
        "agent_timeout": ("2m", "allswell.toml", f"{tmp_path}/allswell.toml:1"),
        "idle": ("58s", "environment", "ALLSWELL_IDLE"),
        "stall_threshold": ("4", "pyproject.toml", f"{tmp_path}/pyproject.toml:3"),
        "retry.backoff": ("7ms", "pyproject.toml", f"{tmp_path}/pyproject.toml:6"),
    }


def test_files_are_found_upward_and_a_project_that_is_not_about_us_is_passed_by(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    write(tmp_path, "[tool.allswell]\nstall_threshold = 5", "pyproject.toml")
    write(below, '[project]\nname = "allswell-user"\n[tool.ruff]\nline-length = 100', "pyproject.toml")
    write(tmp_path / "a", "timeout_escalation = 6")
    settings = read(below)
    assert (settings.value("stall_threshold"), settings.value("timeout_escalation")) == (5, 6)
    assert settings.files == (f"{tmp_path}/pyproject.toml", f"{tmp_path}/a/allswell.toml")


def test_the_environment_reaches_tables_and_roles(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        ALLSWELL_RETRY_BACKOFF="3s",
        ALLSWELL_ROLES_CODE_REVIEW_AGENT_TIMEOUT="900000",
        ALLSWELL_ROLES_CRITIC_RETRY_MAX_ATTEMPTS="2",
        ALLSWELL_PACE_SWEEP_MOST="20ms",
        ALLSWELL_IDLE="",
        ALLSWELL_TOKEN="7",
        ALLSWELL_STORE="memory:",
    )
    assert settings.policy_for("").retry.backoff == 3_000
    assert settings.policy_for("code_review").timeout == 900_000
    assert settings.policy_for("critic").retry.max_attempts == 2
    assert settings.pace().sweep_most == 0.02
    assert settings.store == "memory:"


def test_a_relative_store_counts_from_the_file_that_names_it(tmp_path: Path) -> None:
    write(tmp_path, 'store = "sqlite:///state/watch.db"')
    assert read(tmp_path / "deep" / "er").store == f"sqlite:///{tmp_path}/state/watch.db"
    assert load(tmp_path, environ={"ALLSWELL_STORE": "sqlite:///x.db"}).store == "sqlite:///x.db"


def test_an_inherited_idle_limit_that_could_never_bite_is_left_out(tmp_path: Path) -> None:
    """Else an idle limit for all would be a mistake in roles that nobody wrote down."""
    settings = read(tmp_path, ALLSWELL_IDLE="8m")
    assert settings.policy_for("").idle == settings.policy_for("critic").idle == 480_000
    assert settings.policy_for("remediation").idle is None


def test_a_role_can_turn_off_what_all_others_have(tmp_path: Path) -> None:
    write(tmp_path, 'idle = "5m"\nretry.retries = 1\n[roles.slow]\nidle = "off"\nretry.retries = "by_class"')
    slow = read(tmp_path).policy_for("slow")
    assert (slow.idle, slow.retry.retries) == (None, None)


@pytest.mark.parametrize(
    "text, line, says",
    [
        ('\nagent_timeot = "15m"', 2, "no such setting: 'agent_timeot'; did you mean agent_timeout?"),
        ("AGENT_TIMEOUT = 1", 1, "did you mean agent_timeout?"),
        ("[retry]\n\nbackof = 1", 3, "no such setting: 'retry.backof'; did you mean retry.backoff?"),
        ("backoff = 1", 1, "did you mean retry.backoff?"),
        ("[roles.critic]\nidel = 1", 2, "no such setting: 'idel' that a role can have; did you mean idle?"),
        ("[roles.critic]\nstore = 'memory:'", 2, "store cannot be set for a role"),
        ("[colour]\nx = 1", 1, "no such setting: 'colour'; `allswell config` lists them all"),
        ("retry = 5", 1, "no such setting: 'retry'"),
        ("roles = 5", 1, "must be a table such as [roles.critic]"),
        ("[roles]\ncritic = 5", 2, "roles.critic must be a table such as [roles.critic]"),
        ('[roles.""]\nidle = 5', 2, "a role needs a name"),
        ("agent_timeout = true", 1, 'agent_timeout must be milliseconds, or a duration such as "15m", not true'),
        ("agent_timeout = 1.5", 1, "not 1.5"),
        ("agent_timeout = [1]", 1, "not a list"),
        ("[agent_timeout]\nms = 1", 1, "not a table"),
        ("agent_timeout = 1979-05-27", 1, "agent_timeout must be"),
        ('agent_timeout = "soon"', 1, "agent_timeout 'soon' is not a duration"),
        ('idle = "never"', 1, "idle 'never' is not a duration"),
        ('stall_threshold = "three"', 1, "stall_threshold must be a whole number, 0 or more, not 'three'"),
        ("[quota]\nrequests = -1", 2, "quota.requests must be a whole number, 0 or more, not -1"),
        ("stall_threshold = 2.5", 1, "a whole number"),
        ("stall_threshold = 99999999999999999999", 1, "a whole number"),
        ("retry.retries = -1", 1, 'must be a whole number, 0 or more, or "by_class", not -1'),
        ("retry.jitter = nan", 1, "between 0 and 1"),
        ("context_threshold = 0", 1, "a percentage"),
        ("store = ''", 1, "store must be text"),
        ('store = "a\\u0000b"', 1, "store must be text"),
        ('doctor.disk_free = "lots"', 1, "bytes, or a size"),
        ("pace.sweep_most = 0", 1, "pace.sweep_most (0 s) must be positive"),
        ("[pace]\nretry_first = '9s'", 2, "pace.retry_first (9 s) must be at most pace.retry_most (1 s)"),
        ("agent_timeout = 0", 1, "agent_timeout (0 ms) must be positive"),
        (f"verify = {[*map(str, range(101))]}", 1, "verify must be a command: the name of a program, and at most 99"),
        ("[breaker]\nescalate_after = 1", 2, "breaker.escalate_after (1) must be at least breaker.open_after (3)"),
        ("\n\ncheckpoint_timeout = '5m'", 3, "checkpoint_timeout (300000 ms) must be positive and less than"),
        ("[roles.x]\nagent_timeout = '1m'\nidle = '2m'", 2, "for role 'x', idle (120000 ms) must be positive"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_file_and_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = write(tmp_path, text)
    error = refused(tmp_path)
    assert says in error.message
    assert f"{path}:{line}" in error.message
    assert error.where is not None
    assert f"{path}:{line}" in error.where


def test_a_broken_rule_names_every_place_that_has_a_part_in_it(tmp_path: Path) -> None:
    path = write(tmp_path, 'agent_timeout = "1m"\n')
    error = refused(tmp_path, ALLSWELL_IDLE="2m")
    assert error.where == f"{path}:1, ALLSWELL_IDLE"


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "idel = 1\nstall_threshold = 0\nagent_timeout = 'x'")
    message = refused(tmp_path).message
    assert message.startswith("the settings are wrong: ")
    assert all(part in message for part in ("'idel'", "stall_threshold (0)", "'x'"))


@pytest.mark.parametrize(
    "content, says",
    [
        (b"agent_timeout = ", "this is not TOML: Invalid value"),
        (b"a = 1\na = 2", "this is not TOML: Cannot overwrite a value"),
        (b"\xff\xfe", "the file is not UTF-8 text"),
        (b"#" * (2 << 20), "the file is larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "allswell.toml").write_bytes(content)
    error = refused(tmp_path)
    assert says in error.message
    assert str(tmp_path / "allswell.toml") in error.message


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").mkdir()
    assert "the file cannot be read: Is a directory" in refused(tmp_path).message


def test_a_variable_that_is_nearly_a_setting_is_a_mistake(tmp_path: Path) -> None:
    message = refused(tmp_path, ALLSWELL_AGENT_TIMOUT="5m").message
    assert "ALLSWELL_AGENT_TIMOUT: no such setting; did you mean ALLSWELL_AGENT_TIMEOUT?" in message


def test_a_variable_that_is_nothing_like_a_setting_is_somebody_elses(tmp_path: Path) -> None:
    others = {"ALLSWELL_KILLS": "3", "ALLSWELL_MIXED_SECONDS": "1", "ALLSWELL_SIM_DAYS": "1"}
    assert read(tmp_path, ALLSWELL_TASK="t_1", **others).strangers == tuple(others)


def test_whoever_looks_after_the_settings_sees_them_even_when_they_are_wrong(tmp_path: Path) -> None:
    write(tmp_path, 'stall_threshold = 5\nagent_timeout = "x"')
    settings = look(tmp_path, environ={})
    assert len(settings.problems) == 1
    assert settings.value("stall_threshold") == 5


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:se@cr/et@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db?password=secret&x=1", "postgresql://me@host/db?password=***&x=1"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)
def test_a_password_is_never_shown(tmp_path: Path, url: str, shown: str) -> None:
    settings = read(tmp_path, ALLSWELL_STORE=url)
    row = settings.explain_one("store")
    assert settings.store == url
    assert row.value == row.shown == shown


def test_odd_layouts_of_a_file_still_lead_to_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, '# x\nretry = { backoff = 5, jitter = 0.2 }\n[ roles . "code review" ]\n"idle" = "1m"  # y')
    rows = {row.name: row.where for row in read(tmp_path).explain() if row.source != "default"}
    assert rows == {
        "retry.backoff": f"{path}:2",
        "retry.jitter": f"{path}:2",
        "roles.code review.idle": f"{path}:4",
    }


@pytest.mark.parametrize(
    "text, limit, idle",
    [
        ("", None, None),
        ('agent_timeout = "2m"\nidle = "1m"', None, None),
        ('run_timeout = "10m"\nrun_idle = "1m"', 600_000, 60_000),
        ('[roles.run]\nagent_timeout = "7m"\nidle = "2m"', 420_000, 120_000),
        ('run_timeout = "off"\n[roles.run]\nagent_timeout = "7m"', None, None),
    ],
)
def test_a_command_under_run_has_the_limits_that_were_asked_for_and_no_other(
    tmp_path: Path, text: str, limit: int | None, idle: int | None
) -> None:
    (tmp_path / "allswell.toml").write_text(text)
    found = load(tmp_path, environ={})
    assert (found.run_limit("timeout"), found.run_limit("idle")) == (limit, idle)

"""`[sinks.NAME]`: what may stand there, and one clear error for each mistake."""

from pathlib import Path

import pytest

from allswell.domain.notify.spec import GROUPS, SinkSpec, hearing, quiet_left, routes_for, secrets_for
from allswell.domain.rules.event import KINDS
from allswell.errors import Refused
from allswell.settings import load
from allswell.settings.load import look

GOOD = """\
[sinks.hook]
kind = "webhook"
url = "https://hooks.example/allswell"
secret_env = ["HOOK_SECRET", "HOOK_SECRET_OLD"]
hears = ["questions", "task_failed"]
timeout = "20s"

[sinks.oncall]
kind = "alerts"
quiet = "22:00-07:00"
routes = { warning = "env:SLACK_URL", critical = ["env:PAGER_URL", "ntfy://allswell"] }

[sinks.log]
kind = "notion"
token_env = "NOTION_TOKEN"
database = "2fa35e81-2bbb-811a-b6f7-ff9eb7448c99"
"""


def test_sinks_are_read_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text(GOOD)
    sinks = load(tmp_path, environ={}).sinks
    assert list(sinks) == ["hook", "oncall", "log"]
    hook, oncall, log = sinks.values()
    assert (hook.secret_env, hook.timeout, hook.retries, hook.apart) == (
        ("HOOK_SECRET", "HOOK_SECRET_OLD"),
        *(20_000, 3, 30_000),
    )
    assert hearing(hook, ()) == {*GROUPS["questions"], "task_failed"}
    assert oncall.routes["warning"] == ("env:SLACK_URL",)
    assert routes_for(oncall, "critical") == ("env:PAGER_URL", "ntfy://allswell")
    assert routes_for(oncall, "info") == ()
    assert log.database.startswith("2fa35e81")


def test_every_group_names_kinds_there_are() -> None:
    assert all(kind in KINDS for kinds in GROUPS.values() for kind in kinds)
    assert hearing(SinkSpec(name="x", hears=("everything",)), ()) == set(KINDS)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ("[sinks.x]", r'allswell\.toml:1: sinks\.x\.kind: which kind of sink is it\? write kind = "webhook"'),
        ('[sinks.x]\nkind = "email"', r"allswell\.toml:2: sinks\.x\.kind: 'email' is not a kind of sink"),
        ('[sinks.x]\nkind = "webhook"', r"sinks\.x\.url: where to\?.*sinks\.x\.secret_env: what is sent is signed"),
        ('[sinks.x]\nkidn = "webhook"', r"sinks\.x has no 'kidn'; did you mean 'kind'\?"),
        ('[sinks.x]\nkind = "notion"\nquiet = "late"', r"a sink of kind notion has no quiet; it has kind, begins"),
        ('[sinks."a b"]\nkind = "notion"', r"a sink's name is small letters"),
        ('[sinks.x]\nkind = "webhook"\nhears = "question_aksed"', "did you mean 'question_asked'"),
        ('[sinks.x]\nkind = "webhook"\nhears = "weather"', "name kinds of events, or everything, tasks"),
        ('[sinks.x]\nkind = "webhook"\nretries = -1', r"sinks\.x\.retries must be a whole number, 0 or more"),
        ('[sinks.x]\nkind = "webhook"\ntimeout = 0', r"sinks\.x\.timeout: must be more than nothing"),
        ('[sinks.x]\nkind = "webhook"\ntimeout = "soon"', r"sinks\.x\.timeout "),
        ('[sinks.x]\nbegins = "later"', r'sinks\.x\.begins must be "now" or "start"'),
        ('[sinks.x]\nkind = "alerts"', "it has no routes"),
        (
            '[sinks.x]\nkind = "alerts"\nroutes = { warn = "ntfy://x" }',
            "'warn' is not a severity; did you mean 'warning'",
        ),
        ('[sinks.x]\nkind = "alerts"\nroutes = "ntfy://x"', "must be a table"),
        ('[sinks.x]\nkind = "alerts"\nquiet = "late"\nroutes = { info = "ntfy://x" }', "'late' are no hours"),
        ('[sinks.x]\nkind = "notion"', "token_env = "),
        ('[sinks.x]\nkind = "notion"\ntoken_env = "T"\ndatabase = "log"', "'log' is not an id of Notion's"),
        ('[sinks.x]\nkind = "chat"', r"sinks\.x\.url: which chat server\?.*sinks\.x\.channel: in which channel\?"),
        ('sinks = "all"', r"sinks must be tables"),
        ("[sinks]\nx = 1", r"sinks\.x must be a table"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, wrong: str, says: str) -> None:
    (tmp_path / "allswell.toml").write_text(wrong)
    settings = load(tmp_path, environ={})
    with pytest.raises(Refused, match=says):
        assert settings.sinks


def test_a_secret_in_the_wrong_place_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text(
        '[sinks.x]\nkind = "webhook"\nurl = "https://x"\nsecret_env = "whsec_hunter2+/="\n'
        '[sinks.y]\nkind = "alerts"\nroutes = { info = "env:slack://hunter2" }\n'
        '[sinks.z]\nkind = "notion"\ntoken_env = "ntn-hunter2"\n'
    )
    problems = look(tmp_path, environ={}).problems
    assert len(problems) == 3
    assert "hunter2" not in "".join(map(str, problems))


def test_secrets_of_webhook_requests_are_named_by_host(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text('[webhook_secrets]\n"oracle.example" = "ONE"\n"*" = ["NEW", "OLD"]\n')
    secrets = load(tmp_path, environ={}).webhook_secrets
    assert [secrets_for(f"https://{host}/hook", secrets) for host in ("oracle.example", "other.example")] == [
        ("ONE",),
        ("NEW", "OLD"),
    ]
    with pytest.raises(
        Refused, match=r'has no secret: write "\[::1\]" = "NAME" of a variable under \[webhook_secrets\]'
    ):
        secrets_for("https://[::1]:8443/", {"other.example": ("ONE",)})
    assert secrets_for("https://[::1]:8443/", {"[::1]:8443": ("ONE",), "[::1]": ("TWO",)}) == ("ONE",)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ('webhook_secrets = "X"', r"allswell\.toml:1: webhook_secrets must be a table"),
        (
            '[webhook_secrets]\n"https://x/" = "X"',
            r"allswell\.toml:2: .*is not a host; write such as \"oracle\.example\"",
        ),
        ('[webhook_secrets]\n"x.example" = 7', r"must be a name, or a list of names"),
        ('[webhook_secrets]\n"x.example" = []', r"which variable holds the secret\?"),
        ('[webhook_secrets]\n"x.example" = "whsec_hunter2+/="', r"the secret itself must not be written here"),
    ],
)
def test_a_mistake_about_secrets_is_told_with_its_place_and_without_them(tmp_path: Path, wrong: str, says: str) -> None:
    (tmp_path / "allswell.toml").write_text(wrong)
    settings = load(tmp_path, environ={})
    with pytest.raises(Refused, match=says) as caught:
        assert settings.webhook_secrets
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "quiet, clock, left",
    [
        ("22:00-07:00", "21:59", 0),
        ("22:00-07:00", "22:00", 540),
        ("22:00-07:00", "06:59", 1),
        ("22:00-07:00", "07:00", 0),
        ("12:00-13:30", "12:30", 60),
        ("12:00-12:00", "12:00", 0),
    ],
)
def test_quiet_hours_may_go_over_midnight(quiet: str, clock: str, left: int) -> None:
    hours, minutes = map(int, clock.split(":"))
    assert quiet_left(quiet, hours * 60 + minutes) == left
    assert quiet_left("25:00-07:00", 0) is None

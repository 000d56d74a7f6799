"""`request`, `inbox` and `respond` as they are typed, and what supervised agents hear of it (M1, M2, M5)."""

import csv
import json
import sys

import pytest

from allswell.interfaces.cli.commands.requests import _tell
from allswell.interfaces.cli.context import CliContext
from allswell.views.lease import RequestedShape
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import run

ALLSWELL = f"{sys.executable} -m allswell"


def told(cli: Console, *kinds: str) -> list[dict[str, object]]:
    lines = map(json.loads, cli.ok("events", "--json", "-n", "500").out.splitlines())
    return [line for line in lines if line["kind"] in kinds]


@pytest.mark.row("M2", "M3", "M5")
def test_the_story_as_it_is_typed(cli: Console) -> None:
    cli.ok("submit", "Deploy webhook monitoring", "--priority", "5")
    cli.ok("submit", "doc task")
    assert cli("inbox", "--agent", "oracle").code == 5  # it is known from now on
    cli.claim("sandman")
    quick = ("--kind", "handoff", "--timeout", "200ms", "--retries", "1")
    said = cli("request", "oracle", "server access", *quick, "--json")
    assert said.code == 124
    assert (said.json["blocked"], said.json["fallback"], said.json["state"]) == (True, "next_task", "blocked")
    assert said.json["next"]["task"]["name"] == "doc task"
    request = said.json["request_id"]
    row = next(line for line in cli.ok("tasks", "--json").json["tasks"] if line["name"] == "Deploy webhook monitoring")
    assert (row["state"], row["waits_for"][0]["kind"], row["waits_for"][0]["request_id"]) == (
        "waiting",
        "request",
        request,
    )
    assert "oracle to answer" in cli.ok("why", "Deploy webhook monitoring").out
    assert "for the answer to server access" in cli.ok("tasks").out
    (item,) = cli.ok("inbox", "--agent", "oracle", "--json").json["requests"]
    assert (item["agent_id"], item["summary"], item["expires_at"]) == ("sandman", "server access", None)
    shown = [line.split(maxsplit=1) for line in cli.ok("inbox", "--agent", "oracle").out.splitlines() if line]
    assert dict(map(tuple, shown)).items() >= {("to", "oracle"), ("kind", "handoff")}  # type: ignore[arg-type]
    assert [line[0] for line in shown][:6] == ["request", "from", "to", "kind", "age", "deadline"]
    (again,) = cli.ok("inbox", "--agent", "oracle", "--wait", "1ms", "--json").json["requests"]
    assert (item["new"], again["new"]) == (True, False), "it was listed before, and is not waited for"
    assert cli("inbox", "--agent", "oracle", "--mesh").code == 5, "it is addressed to oracle"
    (others,) = cli.ok("inbox", "--agent", "eve", "--mesh", "--json").json["requests"]
    assert (others["request_id"], others["to"], others["kind"]) == (request, "oracle", "handoff")
    assert cli("inbox", "--agent", "eve").code == 5
    assert cli.ok("respond", request, "it is in the vault", "--agent", "oracle").out.strip() == f"{request} is answered"
    again = cli("respond", request, "again", "--agent", "oracle")
    assert again.code == 2
    assert "oracle has answered it already" in again.err
    claimed = cli.ok("claim", "--agent", "sandman", "--json").json
    assert claimed["task"]["name"] == "Deploy webhook monitoring"
    assert claimed["handover"]["reason"] == "blocked"
    rows = csv.DictReader(cli.ok("comms", "--csv").out.splitlines())
    statuses = [row["Status"] for row in rows if not row["Event"].startswith("Asking the mesh")]
    assert statuses == ["Sent", "Timeout", "Sent", "Timeout", "Blocked", "Resolved"]


def test_what_is_wrong_with_a_request_is_said(cli: Console) -> None:
    cli.submit("mine")
    cli.claim("ada")
    cli("inbox", "--agent", "oracle")
    for words, code in (
        (("orcale", "x", "--kind", "handoff"), "unknown_agent"),
        (("oracle", "x", "--kind", "hand-off"), "unknown_kind"),
        (("expert", "x", "--retries", "2"), "usage"),
        (("oracle", "x", "--retries", "2", "--kind", "delegation"), "usage"),
        (("http://", "x", "--kind", "webhook"), "bad_address"),
        (("http://169.254.169.254/latest/meta-data", "x", "--kind", "webhook"), "bad_address"),
        (("https://192.168.0.1/", "x", "--kind", "webhook"), "bad_address"),
        (("https://ann:hunter2@oracle.example/", "x", "--kind", "webhook"), "bad_address"),
        (("https://oracle.example/", "x", "--kind", "webhook"), "no_secret"),
    ):
        said = cli("request", *words, "--json")
        assert (said.code, said.json["error"]["code"]) == (2, code), said
        assert "hunter2" not in said.out + said.err
    assert "did you mean 'oracle'?" in cli("request", "orcale", "x", "--kind", "handoff").err
    cli.ok("request", "role:anybody", "never unknown", "--kind", "handoff", "--no-wait")
    request = cli.ok("request", "oracle", "x", "--kind", "handoff", "--no-wait").out.strip()
    assert cli.ok("checkin", "--json").json["requests"] == []
    cli.ok("respond", request, "yes", "--agent", "oracle")
    (answer,) = cli.ok("checkin", "--json").json["requests"]
    assert (answer["request_id"], answer["agent_id"], answer["result"]) == (request, "oracle", "yes")
    assert f"oracle has answered {request} (x) after " in cli.ok("checkin").out
    request = cli.ok("request", "oracle", "y", "--kind", "handoff", "--no-wait").out.strip()
    said = cli("respond", request, "me", "--agent", "eve")
    assert said.code == 2
    assert "is for oracle, and eve cannot answer it" in said.err
    assert "eve need not decline it" in cli("decline", request, "no", "--agent", "eve").err
    assert cli.ok("decline", request, "I have no access", "--agent", "oracle").out == f"{request} is declined\n"
    answer = cli.ok("checkin", "--json").json["requests"][-1]
    assert (answer["declined"], answer["result"]) == (True, "I have no access")
    assert f"oracle has declined {request} (y) after " in cli.ok("checkin").out
    (row,) = [row for row in map(json.loads, cli.ok("comms", "--json").out.splitlines()) if "Declined" in row["event"]]
    assert (row["event"], row["status"], row["resolution"]) == (
        "Declined by oracle: y",
        "Received",
        "declined: I have no access",
    )
    assert cli("respond", "m_nothing.x", "1", "--agent", "eve").code == 2


@pytest.mark.row("M1", "O5")
def test_whom_it_is_for_says_what_kind_of_request_is_meant(cli: Console) -> None:
    cli.submit("asks")
    assert cli("inbox", "--agent", "oracle").code == 5  # it is known from now on
    cli.claim("sandman")

    def kind_of(to: str) -> object:
        return cli.ok("request", to, "help", "--no-wait", "--json").json["kind"]

    assert kind_of("oracle") == kind_of("role:ops") == "collaboration"
    assert [item["kind"] for item in cli.ok("inbox", "--agent", "oracle", "--json").json["requests"]] == [
        "collaboration"
    ]
    assert kind_of("expert") == "delegation"
    expired = cli("request", "expert", "help", "--timeout", "100ms", "--json")
    assert (expired.code, expired.json["kind"], expired.json["result"]) == (1, "delegation", "delegation_timeout")


@pytest.mark.row("M2")
def test_a_target_that_does_not_run_is_started_and_one_that_runs_hears_of_it(cli: Console) -> None:
    ask = f"{ALLSWELL} request oracle $0 --kind handoff --json > $0.json; echo $? >> $0.json; {ALLSWELL} done"
    (cli.folder / "oracle.sh").write_text(
        f"""[ "$1" = first ] && {ALLSWELL} done '"started for it"' && exit
[ "$1" = declined ] && {ALLSWELL} decline $ALLSWELL_TASK 'not mine' && exit
read heard; echo "$heard" > heard.txt
{ALLSWELL} inbox --json > inbox.json
{ALLSWELL} respond $(sed 's/.*"request_id":"\\([^"]*\\)".*/\\1/' inbox.json) 'answered at work'
{ALLSWELL} respond $(cat other.txt) no 2> refused.txt
{ALLSWELL} done
"""
    )
    (cli.folder / "allswell.toml").write_text(
        f'[agents.ann]\ncommand = ["sh", "-c", "{ask}", "{{name}}"]\nrole = "builder"\n'
        '[agents.oracle]\ncommand = ["sh", "oracle.sh", "{name}"]\nrole = "oracle"\nhears = "stdin"\n'
        "[agents.eve]\nremote = true\n"
    )

    def came_of(name: str) -> tuple[object, object, str]:
        answer, code = (cli.folder / f"{name}.json").read_text().splitlines()
        return json.loads(answer)["state"], json.loads(answer)["result"], code

    cli.submit("first", "--role", "builder")
    cli.submit("declined", "--role", "builder")
    ran = run("up", "--drain", cwd=cli.folder)
    assert ran.code == 0
    assert came_of("first") == ("done", "started for it", "0")
    state, why, code = came_of("declined")
    assert (state, code) == ("failed", "1"), ran
    assert str(why).endswith("oracle declined it: not mine")

    cli.submit("other")  # a request that is for somebody else, and not yet for all tasks, as a last delivery is
    cli.claim("bob")
    other = cli.ok("request", "eve", "not for oracle", "--kind", "handoff", "--timeout", "4m", "--no-wait").out.strip()
    (cli.folder / "other.txt").write_text(other)
    cli.ok("cancel", "other")
    cli.submit("busy", "--role", "oracle")
    cli.submit("second", "--role", "builder")
    ran = run("up", "--drain", cwd=cli.folder)
    assert came_of("second") == ("done", "answered at work", "0"), ran
    assert "ann asks you (handoff m_" in (cli.folder / "heard.txt").read_text()
    assert "cannot answer it" in (cli.folder / "refused.txt").read_text()
    assert told(cli, "request_told")[0]["data"]["heard_by"] == "socket, stdin"  # type: ignore[index]


@pytest.mark.row("M2", "M5", "M8")
def test_a_supervised_agent_whose_request_nobody_answers_is_ended_and_its_slot_takes_the_next(cli: Console) -> None:
    script = (
        f"[ $0 = next ] && {ALLSWELL} done && exit; echo half >> work.txt;"
        f" {ALLSWELL} request silent help --kind handoff --timeout 300ms --retries 0; sleep 60"
    )
    (cli.folder / "allswell.toml").write_text(
        f'[agents.ann]\ncommand = ["sh", "-c", "{script}", "{{name}}"]\n[agents.silent]\nremote = true\n'
    )
    cli.submit("asks", "--priority", "9")
    cli.submit("next")
    ran = run("up", "--drain", cwd=cli.folder)
    assert ran.code == 0, ran
    tasks = {row["name"]: row for row in cli.ok("tasks", "--all", "--json").json["tasks"]}
    assert (tasks["asks"]["state"], tasks["next"]["state"]) == ("waiting", "done")
    (attempt,) = cli.ok("show", "asks", "--json").json["attempts"]
    assert attempt["outcome"] == "blocked"
    receipts = cli.ok("receipts", "--json").json["receipts"]
    told_ends = [(one["task_id"], one["status"], one["reason"].split(":")[0]) for one in receipts]
    assert told_ends == [(tasks["asks"]["task_id"], "released", "blocked")], receipts
    (blocked,) = told(cli, "request_blocked")
    assert told(cli, "agent_timeout") == []

    request = blocked["data"]["request_id"]  # type: ignore[index]
    cli.ok("respond", request, "the key is in the vault", "--agent", "silent")
    (cli.folder / "later.sh").write_text(
        f'echo "$1" > handed.txt; (cd / && {ALLSWELL} show {request} --json) > shown.json; {ALLSWELL} done'
    )
    settings = '[agents.ann]\ncommand = ["sh", "later.sh", "{handover}", "{name}"]\n'
    (cli.folder / "allswell.toml").write_text(settings)
    ran = run("up", "--drain", cwd=cli.folder)
    assert ran.code == 0, ran
    handed = (cli.folder / "handed.txt").read_text()
    assert f"silent has answered {request} (help) after " in handed
    assert "> the key is in the vault" in handed
    assert "has not answered" not in handed
    shown = json.loads((cli.folder / "shown.json").read_text())
    assert (shown["state"], shown["result"]) == ("done", "the key is in the vault")
    assert len(told(cli, "request_sent")) == 1, "it need not ask again"


@pytest.mark.parametrize("terminal", [True, False])
def test_an_answer_does_nothing_to_a_terminal_and_reaches_a_pipe_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    answer = "first\n\x1b]0;evil\x07second"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    _tell(CliContext(None, json=False), RequestedShape.of("req_1", "done", answer, kind="handoff"))
    said = capsys.readouterr().out
    assert said == ("first\n\\x1b]0;evil\\x07second\n" if terminal else f"{answer}\n")

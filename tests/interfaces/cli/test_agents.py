"""The commands of those who do the work: each word, each exit code, each way to be wrong."""

import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import msgspec
import pytest

from tests import patience
from tests.interfaces.cli.console import Console, millis


def state(cli: Console, task: str) -> str:
    return str(cli.ok("show", task, "--json").json["task"]["state"])


def test_a_task_from_submit_to_done(cli: Console) -> None:
    id_ = cli.submit("fetch", "--payload", '{"url": "x"}', "--role", "reader", "--priority", "5", "--timeout", "10m")
    claim = cli.claim("ada", "--role", "reader", "--lease", "1m")
    task = claim["task"]
    assert (task["task_id"], task["name"], task["role"], task["priority"]) == (id_, "fetch", "reader", 5)
    assert (task["payload"], task["attempt"], claim["token"], claim["handover"]) == ({"url": "x"}, 1, 1, None)
    assert claim["renew_every_ms"] == 60_000
    assert 590_000 < claim["remaining_ms"] <= 600_000
    orders = cli.ok("checkin", "half", "--progress", "0.5", "--json").json
    assert 590_000 < orders["remaining_ms"] <= 600_000
    assert (orders["asked"], orders["answers"], orders["inbox"]) == (False, [], [])
    asked = cli.ok("ask", "which one?", "--hold", "--json").json["question_id"]
    cli.ok("answer", asked, "reply", "the first")
    told = {"question_id": asked, "choice": "reply", "answer": "the first"}
    assert cli.ok("checkin", "half", "--progress", "0.5", "--json").json["answers"] == [told]
    words = cli.ok("checkin", "half", "--progress", "0.5").out
    assert words.splitlines()[1:3] == [f"{asked} was answered: reply", "  the first"]
    assert re.search(r"Check in again within \d\ds, or the task is given to another\.", words)
    shown = cli.ok("show", id_, "--json").json["task"]
    assert (shown["state"], shown["note"], shown["progress"], shown["agent_id"]) == ("held", "half", 0.5, "ada")
    assert cli.ok("done", '{"pages": 12}', "--json").json == {
        "task_id": id_,
        "said": "done",
        "state": "done",
        "orders": None,
    }
    assert cli.ok("show", "fetch", "--json").json["result"] == {"pages": 12}


def test_what_is_said_twice_counts_once(cli: Console) -> None:
    cli.submit("once")
    cli.claim()
    cli.ok("done", "1")
    cli.ok("done", "1")
    other = cli("done", "2")
    assert other.code == 4
    attempts = cli.ok("show", "once", "--json").json["attempts"]
    assert [(attempt["outcome"], attempt["late"]) for attempt in attempts] == [("done", 2)]


def test_a_wrong_token_is_refused_with_its_own_code(cli: Console) -> None:
    cli.submit("fenced")
    cli.claim()
    for words in (("checkin",), ("done",), ("fail", "no"), ("release",), ("ask", "what?")):
        said = cli(*words, "--token", "7", "--json")
        error = said.json["error"]
        assert (said.code, error["kind"], error["token"]) == (4, "lease_lost", 7), words
        assert (error["code"], error["where"], error["hint"][:20]) == ("lease_lost", "token", "stop working on it; ")
    assert "the current token is 1" in cli("done", "--token", "7").err
    assert state(cli, "fenced") == "held"


def test_the_agent_may_be_left_out(cli: Console) -> None:
    cli.submit("known")
    cli.claim("ada")
    cli.patch.delenv("ALLSWELL_AGENT")
    cli.ok("checkin")
    assert cli("done", "--agent", "bob").code == 4
    cli.ok("done")


def test_nothing_to_claim_has_its_own_code(cli: Console) -> None:
    cli.submit("for writers", "--role", "writer")
    said = cli("claim", "--agent", "ada", "--role", "reader")
    assert (said.code, said.out, said.err) == (5, "", "allswell: nothing to claim\n")
    said = cli("claim", "--agent", "ada", "--role", "reader", "--json")
    assert (said.code, said.out, said.err) == (5, '{"task":null}\n', "")
    assert cli("claim", "--agent", "ada", "--role", "reader", "--count", "3", "--json").json == {"claims": []}


def test_several_at_once(cli: Console) -> None:
    for name in ("a", "b", "c"):
        cli.submit(name)
    claims = cli.ok("claim", "--agent", "ada", "--count", "2", "--json").json["claims"]
    assert [claim["task"]["name"] for claim in claims] == ["a", "b"]


def test_a_claim_in_words_says_what_to_type_next(cli: Console) -> None:
    id_ = cli.submit("told", "--payload", '"read me"')
    said = cli.ok("claim", "--agent", "ada lovelace").out
    assert "told" in said
    assert '"read me"' in said
    assert f"export ALLSWELL_TASK={id_} ALLSWELL_TOKEN=1 ALLSWELL_AGENT='ada lovelace'" in said
    assert "allswell done" in said


def test_failing_and_what_follows(cli: Console) -> None:
    cli.submit("flaky", "--service", "api")
    cli.claim()
    reset = ("fail", "reset", "--class", "network", "--retry-after", "1m")  # its own pause may be over when it is told
    assert "flaky can be claimed again in " in cli.ok(*reset).out
    cli.submit("wrong")
    cli.claim()
    assert cli.ok("fail", "no such page", "--class", "not_found", "--json").json["state"] == "failed"
    cli.submit("locked")
    cli.claim()
    assert cli.ok("fail", "401", "--class", "auth", "--json").json["state"] == "waiting"
    said = cli("fail", "x", "--class", "netwrok")
    assert (said.code, "did you mean 'network'" in said.err) == (2, True)


def test_a_limit_parks_its_service(cli: Console) -> None:
    cli.submit("limited", "--service", "api")
    cli.claim()
    cli.ok("fail", "429", "--class", "rate_limit", "--retry-after", "10m", "--service", "api")
    assert cli("claim", "--agent", "bob").code == 5


def test_giving_back(cli: Console) -> None:
    cli.submit("misplaced")
    cli.claim()
    cli.ok("release", "wrong machine", "--delay", "5m")
    assert state(cli, "misplaced") == "delayed"


def test_asking_and_being_answered(cli: Console) -> None:
    cli.submit("unclear")
    cli.claim()
    question = cli.ok("ask", "Which one?").out.strip()
    assert state(cli, "unclear") == "waiting"
    cli.ok("answer", question, "The", "first.")
    assert cli.claim()["task"]["notes"] == ["The first."]


def test_asking_with_options_while_holding(cli: Console) -> None:
    cli.submit("bold")
    cli.claim()
    asked = cli.ok("ask", "May I?", "--option", "yes=Go ahead", "-o", "no=Leave it", "--hold", "--json").json
    assert [(one["key"], one["label"], one["act"]) for one in asked["options"]] == [
        ("yes", "Go ahead", "retry"),
        ("no", "Leave it", "retry"),
    ]
    assert state(cli, "bold") == "held"
    (word,) = cli.ok("ask", "Which port?", "--option", "8080", "--hold", "--json").json["options"]
    assert (word["key"], word["label"], word["act"]) == ("8080", "8080", "retry")
    for wrong in ("go ahead", "=yes", "yes=", ""):
        refused = cli("ask", "May I?", "--option", wrong)
        assert (refused.code, "must be KEY=LABEL, such as yes='Go ahead', or one word" in refused.err) == (2, True)
    refused = cli("ask", "May I?", "--option", "increase_cost=No, send it back", "--hold")
    assert (refused.code, "an agent cannot offer that" in refused.err) == (2, True), refused


def test_waiting_in_vain_for_an_answer_needs_a_human(cli: Console) -> None:
    cli.submit("patient")
    cli.claim()
    said = cli("ask", "Anybody?", "--hold", "--wait", "1ms")
    assert said.code == 3
    assert "no answer yet" in said.err


@pytest.mark.realtime
def test_waiting_for_an_answer(cli: Console) -> None:
    cli.submit("waited")
    cli.claim()
    command = [sys.executable, "-m", "allswell", "ask", "May I?", "-o", "yes=Go", "--hold", "--wait", "30s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        until = time.monotonic() + patience.SECONDS
        while not (asked := cli.ok("questions", "--json").json["questions"]) and time.monotonic() < until:
            time.sleep(0.05)
        cli.ok("answer", asked[0]["question_id"], "yes", "with care")
        out, _ = asking.communicate(timeout=patience.SECONDS)
    assert (asking.returncode, out) == (0, "yes\nwith care\n")


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_who_and_what_must_be_said(cli: Console) -> None:
    cli.submit("x")
    assert "--agent NAME" in cli("claim").err
    assert "--task ID" in cli("done").err
    assert "--token N" in cli("done", "--task", "x").err
    assert cli("done", "--task", "x", "--token", "one").code == 2
    assert cli("submit").code == 2


@pytest.mark.parametrize(
    "payload, where",
    [
        ('{"a": }', "line 1, column 7"),
        ('{\n "a": 1\n "b": 2}', "line 3, column 2"),
        ("hello", "a text needs its quotes"),
        ("", "line 1, column 1"),
        ("[" * 100_000, "nested too deeply"),
        ("@nowhere.json", "No such file"),
        ("@.", "directory"),
        ('"\udc80"', "not valid Unicode"),
    ],
)
def test_json_that_is_not_json_says_where(cli: Console, payload: str, where: str) -> None:
    said = cli("submit", "x", "--payload", payload)
    assert said.code == 2
    assert "--payload" in said.err
    assert where in said.err


def test_a_payload_from_a_file_and_from_standard_input(cli: Console) -> None:
    (cli.folder / "big.json").write_text('{"from": "file"}')
    cli.submit("file", "--payload", "@big.json")
    cli.ok("submit", "pipe", "--payload", "-", stdin='["from", "pipe"]')
    assert cli.ok("show", "file", "--json").json["payload"] == {"from": "file"}
    assert cli.ok("show", "pipe", "--json").json["payload"] == ["from", "pipe"]
    assert "not UTF-8" in cli("submit", "x", "--payload", "-", stdin=b"\xff").err


@pytest.mark.parametrize(
    "args",
    [
        ("--timeout", "soon"),
        ("--timeout", "1ms", "--idle", "2ms"),
        ("--priority", "-1"),
        ("--priority", "many"),
        ("--retries", "-1"),
        ("--needs", "nothing"),
        ("--run", "r_nothing"),
        ("--run", " "),
        ("--run", "night", "--run-timeout", "soon"),
        ("--run", "night", "--run-timeout", "0s"),
        ("--run-timeout", "8h"),
        ("--not-before", "2026-13-01T00:00"),
        ("--not-before", "99999999999999999999"),
        ("--if-need-fails", "cry"),
        ("--role", "\x07"),
        ("--bogus",),
    ],
)
def test_a_submission_that_cannot_be(cli: Console, args: tuple[str, ...]) -> None:
    cli.submit("there is a store")
    said = cli("submit", "x", *args)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("allswell: ")
    assert cli.ok("tasks", "--name", "x", "--json").json["tasks"] == []


def test_not_before_counts_from_now_or_names_a_day(cli: Console) -> None:
    cli.submit("later", "--not-before", "10m")
    cli.submit("much later", "--not-before", "2060-01-31T08:00+00:00")
    soon = cli.ok("show", "later", "--json").json["task"]
    late = cli.ok("show", "much later", "--json").json["task"]
    assert soon["state"] == late["state"] == "delayed"
    assert 590_000 <= millis(soon["due_at"]) - millis(soon["created_at"]) <= 600_000
    assert late["due_at"] == "2060-01-31T08:00:00.000Z"
    cli.submit("the same day", "--not-before", late["due_at"])
    assert cli.ok("show", "the same day", "--json").json["task"]["due_at"] == late["due_at"]


def test_the_same_key_makes_one_task(cli: Console) -> None:
    assert cli.submit("keyed", "--key", "k1") == cli.submit("keyed", "--key", "k1")
    assert cli("submit", "other", "--key", "k1").code == 2


# --- many -------------------------------------------------------------------------------------------------------------


def lines(*tasks: dict[str, object]) -> str:
    return "".join(msgspec.json.encode(task).decode() + "\n" for task in tasks)


def test_many_as_json_lines(cli: Console) -> None:
    cli.submit("before")
    given = lines({"name": "a"}, {"name": "b", "needs": ["a", "before"], "role": "own"})
    said = cli.ok("submit", "-", "--role", "given", "--json", stdin=given + "\n").json
    assert said["submitted"] == 2
    one, two = (cli.ok("show", id_, "--json").json["task"] for id_ in said["task_ids"])
    assert (one["role"], two["role"]) == ("given", "own")
    assert len(two["needs"]) == 2
    (cli.folder / "more.jsonl").write_text(lines({"name": "c"}))
    assert cli.ok("submit", "--lines", "more.jsonl").out.startswith("t_")


@pytest.mark.parametrize(
    "bad, what",
    [
        ('{"name": "b", }', "line 2"),
        ('{"name": "b", "priorty": 1}', "line 2: a task has no field 'priorty'; did you mean 'priority'?"),
        ('{"name": "b", "priority": -1}', "line 2: priority"),
        ('{"name": "b", "needs": ["nope"]}', "line 2: there is no task 'nope'"),
        ('{"name": "b", "needs": "a"}', "line 2: needs"),
        ('{"name": "b", "needs": [1]}', "line 2"),
        ('{"name": "b", "timeout": "soon"}', "line 2: timeout"),
        ('{"name": "b", "timeout": {}}', "line 2"),
        ('{"name": "b", "retries": "x"}', "line 2"),
        ('{"name": "b", "policy": {"timeout": -1}}', "line 2"),
        ('{"name": "b", "policy": 3}', "line 2"),
        ('{"name": 3}', "line 2"),
        ("[1]", "line 2"),
        ('{"name": "b", "needs": ["c"]}\n{"name": "c", "needs": ["b"]}', "dependency cycle"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_left_behind(cli: Console, bad: str, what: str) -> None:
    cli.submit("there is a store")
    said = cli("submit", "-", stdin='{"name": "a"}\n' + bad)
    assert said.code == 2, said
    assert what in said.err
    assert len(cli.ok("tasks", "--json").json["tasks"]) == 1


def test_more_than_one_parcel_in_any_order(cli: Console) -> None:
    tasks: list[dict[str, object]] = [{"name": "last", "needs": [f"t{number}" for number in range(900)]}]
    tasks += [{"name": f"t{number}"} for number in range(1_500)]
    said = cli.ok("submit", "-", "--json", stdin=lines(*tasks)).json
    assert said["submitted"] == 1_501
    assert cli.ok("show", said["task_ids"][0], "--json").json["task"]["name"] == "last"
    with closing(sqlite3.connect(cli.database)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM task").fetchone() == (1_501,)

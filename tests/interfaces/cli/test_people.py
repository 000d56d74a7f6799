"""The commands of those who look and decide."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import msgspec
import pytest

import allswell
from allswell.domain.question import SPLIT
from allswell.domain.task.model import State
from allswell.store.files import user_name
from tests.interfaces.cli.console import Console, Said
from tests.interfaces.cli.upkeep import run


def listed(said: Said) -> list[str]:
    return [task["name"] for task in said.json["tasks"]]


def with_run(cli: Console, name: str = "nightly") -> str:
    """A store with a run in it; there is no command that opens one yet."""

    async def made() -> str:
        async with allswell.open(f"sqlite:///{cli.database}") as watch:
            run = await watch.open_run(name, timeout="1h")
            await watch.submit("of the run", run=run)
            return run

    return asyncio.run(made())


def four(cli: Console) -> None:
    """One task of each kind: done, held, waiting, ready."""
    cli.submit("first", "--role", "reader")
    cli.claim()
    cli.ok("done", "1")
    cli.submit("second", "--role", "reader")
    cli.claim("bob")
    cli.submit("third", "--needs", "second", "--role", "writer")
    cli.submit("fourth")


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_tasks_by_what_they_are(cli: Console) -> None:
    four(cli)
    assert listed(cli.ok("tasks", "--json")) == ["second", "third", "fourth"]
    assert listed(cli.ok("tasks", "--all", "--json")) == ["first", "second", "third", "fourth"]
    assert listed(cli.ok("tasks", "--state", "held", "-s", "done", "--json")) == ["first", "second"]
    assert listed(cli.ok("tasks", "--role", "reader", "--all", "--json")) == ["first", "second"]
    assert listed(cli.ok("tasks", "--name", "first", "--json")) == ["first"]
    assert listed(cli.ok("tasks", "--role", "nobody", "--json")) == []


def test_tasks_in_pages(cli: Console) -> None:
    four(cli)
    page = cli.ok("tasks", "--all", "--limit", "3", "--json").json
    assert (len(page["tasks"]), page["next"]) == (3, page["tasks"][-1]["task_id"])
    rest = cli.ok("tasks", "--all", "--after", page["next"], "--json").json
    assert ([task["name"] for task in rest["tasks"]], rest["next"]) == (["fourth"], None)
    assert f"--after {page['next']}" in cli.ok("tasks", "--all", "--limit", "3").out


def test_tasks_in_words(cli: Console) -> None:
    four(cli)
    said = cli.ok("tasks").out.splitlines()
    assert said[0].split() == ["ID", "NAME", "STATE", "ROLE", "AGENT", "AGE"]
    assert "bob" in said[1]
    assert "limit in 14m" in said[1]
    assert "for second" in said[2]
    assert cli.ok("tasks", "--role", "nobody").out == "No task matches.\n"
    cli.ok("cancel", "second")
    cli.ok("cancel", "fourth")
    assert cli.ok("tasks").out == "No open tasks (2 cancelled, 1 done, 1 skipped). `allswell tasks --all` lists them.\n"


def test_tasks_of_a_run(cli: Console) -> None:
    run = with_run(cli)
    cli.submit("on its own")
    cli.submit("joined", "--run", "nightly")
    assert listed(cli.ok("tasks", "--run", run, "--json")) == ["of the run", "joined"]
    assert listed(cli.ok("tasks", "--run", "nightly", "--json")) == ["of the run", "joined"]
    assert "did you mean 'nightly'" in cli("tasks", "--run", "nihgtly").err


def test_a_state_that_is_none(cli: Console) -> None:
    cli.submit("x")
    said = cli("tasks", "--state", "helt", "--json")
    error = said.json["error"]
    assert (said.code, error["code"], error["where"]) == (2, "bad_state", "--state")
    assert "did you mean 'held'" in error["message"]
    every = cli("tasks", "--state", "zzz").err
    assert all(state.value in every for state in State)


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_tells_a_tasks_whole_story(cli: Console) -> None:
    id_ = cli.submit("story", "--payload", '{"a": 1}', "--timeout", "20m")
    cli.claim()
    cli.ok("release", "not mine")
    cli.claim("bob")
    cli.ok("ask", "Shall I?")
    shown = cli.ok("show", id_, "--json").json
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["released", "asked"]
    assert (shown["payload"], shown["result"], shown["task"]["attempts"]) == ({"a": 1}, None, 2)
    assert shown["questions"][0]["text"] == "Shall I?"
    words = cli.ok("show", "story").out
    for part in (id_, "waiting", "20m for each attempt", '{"a":1}', "not mine", "Shall I?", "allswell answer q_"):
        assert part in words


def test_show_takes_any_id(cli: Console) -> None:
    run = with_run(cli)
    cli.claim()
    question = cli.ok("ask", "Really?").out.strip()
    assert cli.ok("show", run, "--json").json["tasks"] == {"waiting": 1}
    assert cli.ok("show", "nightly", "--json").json["run"]["run_id"] == run
    assert "1 waiting" in cli.ok("show", run).out
    assert cli.ok("show", question, "--json").json["question"]["text"] == "Really?"
    assert "Really?" in cli.ok("show", question).out


def test_what_is_not_there_is_answered_with_what_is_near(cli: Console) -> None:
    id_ = cli.submit("write the changelog")
    said = cli("show", "write the chagelog")
    assert said.code == 2
    assert "did you mean 'write the changelog'?" in said.err
    assert "did you mean 'write the changelog'?" in cli("show", "CHANGELOG").err
    assert f"did you mean '{id_}'?" in cli("show", id_[:-1] + "_").err
    assert cli("show", "q_nothing").code == 2
    assert cli("show", "r_nothing").code == 2
    assert cli("show", "").code == 2
    assert cli("show", "\x1b[31m", "--json").json["error"]["code"] == "unknown_task"


def test_a_name_that_several_have(cli: Console) -> None:
    ids = [cli.submit("twin"), cli.submit("twin")]
    said = cli("show", "twin")
    assert said.code == 2
    assert all(id_ in said.err for id_ in ids)


def test_what_agents_say_does_nothing_to_the_terminal(cli: Console) -> None:
    cli.submit("innocent")
    cli.claim()
    cli.ok("checkin", "\x1b]0;owned\x07 \u202egnp.exe [red]x[/red]\nsecond line")
    written_out = r"\x1b]0;owned\x07 \u202egnp.exe [red]x[/red]⏎second line"
    for command, shown in (
        (("tasks",), written_out),
        (("show", "innocent"), written_out),
        (("events",), "·]0;owned· ·gnp.exe [red]x[/red] second line"),
    ):
        said = cli.ok(*command).out
        assert "\x1b" not in said
        assert "\u202e" not in said
        assert shown in said


# --- deciding ---------------------------------------------------------------------------------------------------------


def test_questions_and_their_answers(cli: Console) -> None:
    cli.submit("unsure")
    cli.claim()
    question = cli.ok("ask", "Left or right?").out.strip()
    words = cli.ok("questions").out
    for part in (question, "unsure", "asked by ada", "Left or right?", "reply", "skip", "allswell answer"):
        assert part in words
    wrong = cli("answer", question, "rpely", "x")
    assert (wrong.code, "choose one of: reply, skip" in wrong.err) == (2, True)
    assert cli("answer", question, "reply").code == 2
    assert "unsure is ready" in cli.ok("answer", "unsure", "reply", "Left.").out
    assert cli.ok("questions").out == "No question is open.\n"
    (closed,) = cli.ok("questions", "--all", "--json").json["questions"]
    assert (closed["choice"], closed["answer"], closed["answered_by"]) == ("reply", "Left.", user_name(os.geteuid()))
    assert cli("answer", question, "reply", "Right.").code == 2
    assert "no question is open" in cli("answer", "unsure", "reply", "x").err


async def asked_to_split(cli: Console) -> str:
    """A question of a program of the user's own; an agent cannot offer to split its task."""
    async with allswell.open(f"sqlite:///{cli.database}") as watch:
        lease = await watch.claim(agent="program")
        assert lease is not None
        return await lease.ask("Too large.", [SPLIT])


def test_splitting_into_the_tasks_of_a_file(cli: Console) -> None:
    cli.submit("huge")
    cli.submit("after", "--needs", "huge")
    assert cli("ask", "Too large.", "--task", "huge", "--token", "1", "--option", "split=Into parts").code == 2
    question = asyncio.run(asked_to_split(cli))
    assert cli("answer", question, "split").code == 2
    assert "cannot be read" in cli("answer", question, "split", "--subtasks", "nowhere").err
    (cli.folder / "parts.json").write_text('[{"name": "part one"}, {"name": "part two", "needs": ["part one"]}]')
    cli.ok("answer", question, "split", "--subtasks", "parts.json")
    assert listed(cli.ok("tasks", "--json")) == ["after", "part one", "part two"]
    assert cli.ok("show", "huge", "--json").json["task"]["state"] == "split"


def test_calling_off(cli: Console) -> None:
    run = with_run(cli)
    id_ = cli.submit("unwanted")
    cli.ok("cancel", "unwanted", "changed my mind")
    shown = cli.ok("show", id_, "--json").json["task"]
    assert (shown["state"], shown["reason"]) == ("cancelled", "changed my mind")
    assert cli("cancel", id_).code == 2
    assert cli.ok("cancel", run, "--json").json == {"task_id": None, "run_id": run, "cancelled": True}
    assert cli.ok("show", "of the run", "--json").json["task"]["state"] == "cancelled"
    assert "cancelled, now" in cli.ok("runs").out
    assert cli.ok("runs", "--json").json["runs"][0]["run_id"] == run


# --- events -----------------------------------------------------------------------------------------------------------


def test_events(cli: Console) -> None:
    four(cli)
    kinds = [msgspec.json.decode(line)["kind"] for line in cli.ok("events", "--json").out.splitlines()]
    assert kinds[:3] == ["task_submitted", "task_claimed", "task_completed"]
    assert len(kinds) == 7
    last = cli.ok("events", "--json", "--limit", "2").out.splitlines()
    assert [msgspec.json.decode(line)["kind"] for line in last] == kinds[-2:]
    of_one = cli.ok("events", "--task", "second", "--json").out.splitlines()
    assert [msgspec.json.decode(line)["kind"] for line in of_one] == ["task_submitted", "task_claimed"]
    assert "first" in cli.ok("events", "--kind", "task_completed").out
    assert len(cli.ok("events", "--since", "1h", "--json").out.splitlines()) == 7
    assert cli.ok("events", "--since", "2090-01-01T00:00").out == "No events.\n"
    assert "did you mean 'task_failed'" in cli("events", "--kind", "task_fialed").err
    assert cli("events", "--since", "yesterday").code == 2


def test_the_end_of_a_long_journal_is_found_from_behind(cli: Console) -> None:
    given = "".join(f'{{"name": "n{number}"}}\n' for number in range(3_000))
    cli.ok("submit", "-", stdin=given)
    cli.ok("cancel", "n7")
    last = cli.ok("events", "--limit", "3", "--json").out.splitlines()
    assert [msgspec.json.decode(line)["data"] for line in last][:2] == [{"name": "n2998"}, {"name": "n2999"}]
    found = cli.ok("events", "--task", "n7", "--json").out.splitlines()
    assert [msgspec.json.decode(line)["kind"] for line in found] == ["task_submitted", "task_cancelled"]


@pytest.mark.realtime
def test_following_what_happens(cli: Console) -> None:
    cli.submit("before")
    command = [sys.executable, "-m", "allswell", "events", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert msgspec.json.decode(following.stdout.readline())["data"] == {"name": "before"}
        cli.submit("after")
        assert msgspec.json.decode(following.stdout.readline())["data"] == {"name": "after"}
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=20)
    assert (following.returncode, err) == (130, "")


# --- the store --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [("show", "x"), ("why", "x"), ("claim", "--agent", "a"), ("cancel", "x"), ("answer", "x", "y")]
)
def test_a_store_that_is_not_there(cli: Console, command: tuple[str, ...]) -> None:
    said = cli(*command)
    assert said.code == 75
    assert "there is no store at" in said.err
    assert not cli.database.exists()
    said = cli(*command, "--json")
    error = said.json["error"]
    assert (said.code, error["kind"], error["code"]) == (75, "unavailable", "unavailable")
    assert error["message"].startswith("there is no store at ")
    assert error["hint"].startswith("`allswell run -- COMMAND` or `allswell submit NAME` makes one; ")


def test_a_store_that_is_none(cli: Console) -> None:
    (cli.folder / "notes.txt").write_text("no database at all, but long enough to look at " * 20)
    assert cli("tasks", "--store", "sqlite:///notes.txt").code == 2
    assert cli("tasks", "--store", "sqlite:///.").code in (2, 75)
    assert cli("tasks", "--store", "gopher://x").code == 2
    assert cli("submit", "x", "--store", "sqlite:////proc/nowhere/x.db").code == 75


def test_an_older_store_is_brought_up_to_date_by_looking(cli: Console) -> None:
    (cli.folder / "empty.db").touch()
    assert cli.ok("tasks", "--store", "sqlite:///empty.db").out == "No tasks.\n"
    with closing(sqlite3.connect(cli.folder / "foreign.db")) as connection, connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    assert "not a store of Allswell's" in cli("tasks", "--store", "sqlite:///foreign.db").err


def test_usage_errors_are_told_our_way(cli: Console) -> None:
    said = cli("tasks", "--limit", "x")
    assert said.code == 2
    assert said.err.startswith("allswell: invalid value for '--limit'")
    assert "`allswell tasks --help`" in said.err
    assert "did you mean 'tasks'?" in cli("taks").err.lower()
    said = cli("show", "--json")
    assert (said.code, said.json["error"]["code"], said.err) == (2, "usage", "")
    assert said.json["error"]["hint"] == "`allswell show --help` lists the options"
    assert "--json must stand after the command" in cli("--json", "tasks").err + cli("--json", "tasks").out
    assert cli("tasks", "--limit", "0").code == 2


def test_a_page_of_ten_thousand_rows(cli: Console) -> None:
    given = "".join(f'{{"name": "number {number}"}}\n' for number in range(10_000))
    cli.ok("submit", "-", stdin=given)
    began = time.perf_counter()
    said = cli.ok("tasks", "--limit", "10000").out
    assert time.perf_counter() - began < 10
    assert said.count("\n") == 10_001


@pytest.mark.row("O9")
@pytest.mark.parametrize("url", ["sqlite", "postgres"])
def test_dependents_are_told_that_a_need_was_skipped_with_the_humans_words(
    cli: Console, request: pytest.FixtureRequest, url: str
) -> None:
    store = ("--store", request.getfixturevalue("pg_url")) if url == "postgres" else ()
    first = cli.ok("submit", "first", "--json", *store).json["task_id"]
    for name, how in (("second", "run"), ("third", "skip")):
        cli.ok("submit", name, "--needs", first, "--if-need-fails", how, *store)
    token = cli.ok("claim", "--agent", "ada", "--json", *store).json["token"]
    cli.ok("ask", "How?", "--task", first, "--token", str(token), "--agent", "ada", *store)
    cli.ok("answer", "first", "skip", "the server is gone for good", "--yes", *store)
    claimed = cli.ok("claim", "--agent", "bob", "--json", *store).json["task"]
    assert claimed["name"] == "second"
    assert claimed["needs_ended"] == [
        {
            "task_id": first,
            "outcome": "skipped",
            "reason": "the server is gone for good",
            "human": True,
            "name": "first",
        }
    ]
    shown = cli.ok("show", "third", "--json", *store).json["task"]
    assert (shown["state"], shown["reason"]) == ("skipped", f"{first} was skipped: the server is gone for good")


TOLD = """\
echo "$1" > words; echo "$ALLSWELL_HANDOVER" > variable; cat "$ALLSWELL_HANDOVER_FILE" > file
python -m allswell checkin --json > checkin
"""


@pytest.mark.row("O9")
@pytest.mark.parametrize("url", ["sqlite", "postgres"])
def test_what_became_of_its_needs_and_what_a_human_said_of_them_is_in_the_brief_of_every_agent(
    cli: Console, request: pytest.FixtureRequest, url: str
) -> None:
    store = ("--store", request.getfixturevalue("pg_url")) if url == "postgres" else ()
    (cli.folder / "tells.sh").write_text(TOLD.replace("python", sys.executable))
    (cli.folder / "telling.py").write_text(
        "import pathlib\n"
        "async def tell(work):\n    pathlib.Path('function').write_text(work.handover)\n"
        "def tell_sync(work):\n    pathlib.Path('process').write_text(work.handover)\n"
    )
    (cli.folder / "allswell.toml").write_text(
        '[agents.ann]\ncommand = ["sh", "tells.sh", "{prompt}"]\nrole = "command"\n'
        '[agents.bob]\nfunction = "telling:tell"\nrole = "function"\n'
        '[agents.eve]\nfunction = "telling:tell_sync"\nrole = "process"\n'
    )
    ids = {name: cli.ok("submit", name, *store).out.strip() for name in ("skipped", "cancelled", "broken")}
    needs = [word for id_ in ids.values() for word in ("--needs", id_)]
    for role in ("command", "function", "process"):
        cli.ok("submit", f"after {role}", "--role", role, *needs, "--if-need-fails", "run", *store)
    for name, id_ in ids.items():
        token = str(cli.ok("claim", "--agent", "ada", "--json", *store).json["token"])
        held = ("--task", id_, "--token", token, "--agent", "ada", *store)
        if name == "skipped":
            cli.ok("ask", "How?", *held)
            cli.ok("answer", name, "skip", f"{ids['broken']} will do", "--yes", *store)
        elif name == "broken":
            cli.ok("fail", "no such table", "--class", "validation", *held)
        else:
            cli.ok("cancel", name, "use the mock", *store)
    ran = run("up", "--drain", *store, cwd=cli.folder)
    assert ran.code == 0, ran
    told = (
        f"skipped ({ids['skipped']}) was skipped by a human:\n- {ids['broken']} will do",
        f"cancelled ({ids['cancelled']}) was cancelled by a human:\n- use the mock",
        f"broken ({ids['broken']}) failed:\n> no such table; a bad request is not retried",
    )
    for place in ("words", "variable", "file", "function", "process"):
        text = (cli.folder / place).read_text()
        assert all(line in text for line in told), (place, text)
    handover = msgspec.json.decode((cli.folder / "checkin").read_bytes())["handover"]
    assert all(line in handover for line in told)

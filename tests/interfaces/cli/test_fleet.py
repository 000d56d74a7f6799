"""`up`, `work`, `agents`, `tracking` and `request` as they are typed."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from allswell import Policy, make_watch
from allswell.domain.agents.status import AgentCondition
from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.question import REPLY, Question
from allswell.errors import LeaseLost
from allswell.interfaces.cli import rendering
from allswell.interfaces.cli.commands.fleet import AGENT_COLUMNS
from allswell.runtime.supervisor import Supervisor
from allswell.runtime.supervisor.console import asks
from allswell.store.sqlite import SqliteStore
from allswell.store.trusted import trust_folder
from allswell.testing.sim.process import engine_of
from tests.interfaces.cli.console import Console, millis
from tests.interfaces.cli.scene import SetClock
from tests.interfaces.cli.upkeep import at_terminal, environment, run

DO = 'command = ["sh", "-c", "echo $0 >> done.txt", "{name}"]'


def kinds_of(cli: Console) -> list[str]:
    return [json.loads(line)["kind"] for line in cli.ok("events", "--json", "-n", "500").out.splitlines()]


def test_a_supervisor_whose_name_was_taken_says_what_to_do(cli: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(_supervisor: Supervisor) -> None:
        raise LeaseLost("main", 7, "another supervisor has its name now")

    (cli.folder / "allswell.toml").write_text(f"[agents.shell]\n{DO}\n")
    monkeypatch.setattr(Supervisor, "run", lost)
    said = cli("up")
    assert (said.code, "allswell why" in said.err) == (4, False), said
    assert "another supervisor has its name now: main; its agents were ended" in said.err


def test_up_works_everything_off(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text(f"[agents.shell]\n{DO}\nconcurrency = 2\n")
    for number in range(3):
        cli.submit(f"n{number}")
    said = run("up", "--drain", cwd=cli.folder)
    assert said.code == 0, said
    assert "shell.1 takes “n" in said.out
    assert sorted((cli.folder / "done.txt").read_text().split()) == ["n0", "n1", "n2"]
    assert "3 done" in cli.ok().out
    told = kinds_of(cli)
    assert told.count("task_completed") == 3
    assert "supervisor_stopped" in told


_PLAIN = """import sys
for package in ("anyio", "apprise", "httpcore", "httpx", "pydantic", "standardwebhooks", "starlette", "yaml"):
    sys.modules[package] = None
from allswell.interfaces.cli import main
main()"""
"""The command line as it is where no extra was installed."""


def test_up_needs_no_extra(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text(f"[agents.shell]\n{DO}\n")
    cli.submit("n0")
    command = [sys.executable, "-c", _PLAIN, "up", "--drain"]
    ended = subprocess.run(command, cwd=cli.folder, env=environment(), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (cli.folder / "done.txt").read_text().split() == ["n0"]
    assert "extra" not in ended.stdout


def test_up_tells_what_happens_as_a_person_would(cli: Console) -> None:
    command = json.dumps(["sh", "-c", "echo half > half.txt; echo 'no such table' >&2; exit 7", "{name}{prompt}"])
    (cli.folder / "allswell.toml").write_text(f"[agents.shell]\ncommand = {command}\n")
    task = cli.submit("migrate", "--retries", "0")
    said = " ".join(run("up", "--drain", cwd=cli.folder, DEEP_KEY="k").out.split())
    assert "shell takes “migrate”" in said
    assert re.search(
        r"shell failed at “migrate” after \S+: exit code 7; it said: no such table; it is not tried again; "
        r"its work \(1 file\) → allswell diff rc_" + task.removeprefix("t_"),
        said,
    )
    assert re.search(r"shell does not see these variables of yours: .*DEEP_KEY", said)
    assert "transient" not in said
    question = Question(QuestionId("q_1.1"), TaskId(task), None, "", "Which\ntable?", (REPLY,), Millis(1), "shell")
    assert asks(question) == "shell asks: “Which table?” → allswell answer q_1.1 'your answer'"


def test_who_asks_is_told_to_wait_for_an_answer_and_who_changed_nothing_where_to_read_on(cli: Console) -> None:
    script = 'case "$0" in asks*) allswell ask "Which table?";; *) echo no such table >&2; exit 7;; esac'
    command = json.dumps(["sh", "-c", script, "{name}{prompt}"])
    (cli.folder / "allswell.toml").write_text(f"[agents.shell]\ncommand = {command}\n")
    cli.submit("asks")
    failing = cli.submit("fails", "--retries", "0")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = " ".join(run("up", "--drain", cwd=cli.folder, PATH=path).out.split())
    assert "shell waits for an answer about “asks”, and has let go of it" in said, said
    assert re.search(r"exit code 7; it said: no such table; it is not tried again → allswell logs " + failing, said), (
        said
    )


def test_up_without_agents_says_what_to_do(cli: Console) -> None:
    said = cli("up")
    assert said.code == 2
    assert "no agents are set up here: `allswell init` finds those on this machine" in said.err


def test_up_for_a_role_that_nobody_has(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text(f'[agents.a]\n{DO}\nrole = "builder"\n')
    said = cli("up", "--role", "bulider", "--json")
    assert said.code == 2
    assert said.json["error"]["code"] == "unknown_role"
    assert "did you mean 'builder'?" in said.json["error"]["message"]


def test_a_mistake_in_the_agents_is_told_with_its_line(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text('[agents.a]\ncomand = ["x"]\n')
    said = cli("up")
    assert said.code == 2
    assert "allswell.toml:2: agents.a has no 'comand'; did you mean 'command'?" in said.err


def test_work_joins_with_a_command_of_ones_own(cli: Console) -> None:
    cli.submit("first", "--payload", '"a payload"')
    said = run(
        *("work", "--agent", "ada", "--drain", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])"),
        cwd=cli.folder,
    )
    assert said.code == 0, said
    assert "ada" in said.out
    assert cli.ok("tasks", "--all", "--json").json["tasks"][0]["state"] == "done"
    assert run("work", "--drain", "--", "no-such-program", cwd=cli.folder).code == 2


def test_agents_shows_who_does_what(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text("[agents.far]\nremote = true\n")
    cli.submit("paint it")
    cli.claim("ada")
    cli.ok("checkin", "half", "--progress", "0.5")
    said = cli.ok("agents").out
    assert "ada" in said
    assert "working" in said
    assert "0/3" in said
    assert "paint it" in said
    assert "50%" in said
    told = {member["agent_id"]: member for member in cli.ok("agents", "--json").json["agents"]}
    assert told["ada"]["health"] == "working"
    assert told["ada"]["remaining_ms"] > 800_000
    assert told["far"]["health"] == "not running"


def test_agents_at_eighty_columns_says_in_full_how_each_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "columns", lambda: 80)
    rows = [
        [
            "writer.1",
            state,
            "0/3",
            "Write the parser of it all",
            "14m 28s",
            "",
            "27s ago, q_1m7s40r0g8v294z8.1: Which port?",
        ]
        for state in AgentCondition
    ]
    for state, line in zip(AgentCondition, rendering.table(AGENT_COLUMNS, rows).splitlines()[1:], strict=True):
        assert f" {state} " in line
        assert len(line) <= 80


def test_nobody_at_work(cli: Console) -> None:
    cli.submit("x")
    assert "No agent is at work" in cli.ok("agents").out
    assert "Nothing missed, stalled, timed out or open." in cli.ok("tracking").out


@pytest.mark.row("O7")
def test_tracking_has_the_original_shape_and_is_what_decisions_use(cli: Console) -> None:
    async def story() -> str:
        clock = SetClock()
        store = SqliteStore(cli.database, clock=clock)
        async with make_watch(store, clock=clock, sweeping=False) as watch:
            policy = Policy(timeout=900_000, checkpoint_interval=300_000, checkpoint_timeout=30_000)
            id_ = await watch.submit("silent", policy=policy)
            assert await watch.claim(agent="bob") is not None
            clock.at += 931_000
            while await engine_of(watch).sweeper.sweep() == 0.0:
                pass
            lease = await watch.claim(agent="bob")
            assert lease is not None
            clock.at += 331_000
            while await engine_of(watch).sweeper.sweep() == 0.0:
                pass
            return id_

    cli.database.parent.mkdir()
    id_ = asyncio.run(story())
    said = cli.ok("tracking", "--json").json
    assert said == {
        "timeout_tracking": {"checkpoint_misses": {"bob": 3}, "stalled_agents": ["bob"], "task_timeouts": {id_: 1}},
        "pending_divine_questions": [],
    }
    assert "stalled" in cli.ok("tracking").out
    told = {member["agent_id"]: member for member in cli.ok("agents", "--json").json["agents"]}
    assert (told["bob"]["health"], told["bob"]["misses"]) == ("stalled", 3)


@pytest.mark.row("O9")
def test_open_questions_have_the_original_shape_too(cli: Console) -> None:
    async def story() -> str:
        clock = SetClock()
        store = SqliteStore(cli.database, clock=clock)
        async with make_watch(store, clock=clock, sweeping=False) as watch:
            id_ = await watch.submit("slow", policy=Policy(timeout=60_000))
            for _ in range(3):
                assert await watch.claim(agent="bob") is not None
                clock.at += 60_000
                while await engine_of(watch).sweeper.sweep() == 0.0:
                    pass
            return id_

    cli.database.parent.mkdir()
    id_ = asyncio.run(story())
    (asked,) = cli.ok("questions", "--json").json["questions"]
    said = cli.ok("tracking", "--json").json
    assert set(said) == {"timeout_tracking", "pending_divine_questions"}
    assert said["timeout_tracking"]["task_timeouts"] == {id_: 3}
    assert said["pending_divine_questions"] == [
        {
            "task_id": id_,
            "question": f"Task {id_} (slow) has timed out 3 times. Possible causes: "
            "task too large, unclear requirements, or infrastructure issue. How should we proceed?",
            "options": [
                "Split task into smaller subtasks",
                "Clarify requirements",
                "Increase timeout for this task",
                "Skip task and continue",
            ],
            "asked_at": asked["asked_at"],
        }
    ]
    assert "asks you" in cli.ok("tracking").out
    cli.ok("answer", asked["question_id"], "skip", "--yes")
    assert cli.ok("tracking", "--json").json["pending_divine_questions"] == []


@pytest.mark.row("O5")
def test_a_request_to_an_expert(cli: Console) -> None:
    allswell = f"{sys.executable} -m allswell"
    asks = f"{allswell} request expert $0 --json > answer.json; echo $? >> answer.json"
    answers = f"[ $0 = fine ] && {allswell} done 42"
    (cli.folder / "allswell.toml").write_text(
        f'[agents.ann]\ncommand = ["sh", "-c", "{asks}", "{{payload}}"]\nrole = "builder"\n'
        f'[agents.eve]\ncommand = ["sh", "-c", "{answers}", "{{name}}"]\nrole = "expert"\n'
    )
    for question, said, code in (("fine", '"state":"done","result":42', "0"), ("hard", '"state":"failed"', "1")):
        cli.submit("ask", "--role", "builder", "--payload", f'"{question}"')
        ran = run("up", "--drain", cwd=cli.folder)
        assert ran.code == 0, ran
        answer = (cli.folder / "answer.json").read_text()
        assert said in answer
        assert answer.split()[-1] == code, answer
    kinds = kinds_of(cli)
    assert kinds.count("request_sent") == kinds.count("request_closed") == 2


@pytest.mark.row("O5")
def test_a_request_that_nobody_takes_expires(cli: Console) -> None:
    cli.submit("mine")
    cli.claim("ada")
    said = cli("request", "nobody", "anyone?", "--timeout", "300ms")
    assert said.code == 1
    assert "delegation_timeout" in said.err
    id_ = cli.ok("request", "nobody", "later", "--no-wait").out.strip()
    assert cli.ok("show", id_, "--json").json["task"]["role"] == "nobody"
    assert cli.ok("done").code == 0


def test_a_role_that_no_agent_takes_is_told_at_a_terminal(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text(f'[agents.a]\n{DO}\nrole = "builder"\n')
    said = at_terminal("submit", "x", "--role", "bulider", cwd=cli.folder, columns=200)
    assert "No agent of allswell.toml takes the role 'bulider'; did you mean 'builder'?" in said.out
    assert "No agent" not in at_terminal("submit", "x", "--role", "builder", cwd=cli.folder, columns=200).out


def test_work_done_in_a_worktree_is_found_by_whoever_looks_for_it(
    cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        name = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "safe.directory=*")
        return subprocess.run(["git", *name, *words], cwd=cli.folder, capture_output=True, text=True, check=True).stdout

    monkeypatch.setenv("HOME", str(cli.folder))
    trust_folder(cli.folder)
    command = ["sh", "-c", "echo new >new; echo '#' >>allswell.toml", "{prompt}"]
    (cli.folder / "allswell.toml").write_text(f"[agents.shell]\ncommand = {json.dumps(command)}\nworktree = true\n")
    (cli.folder / ".gitignore").write_text(".allswell\n.local\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    task = cli.submit("paint it")
    said = run("up", "--drain", cwd=cli.folder)
    assert said.code == 0, said
    branch = f"allswell/paint-it-{task[-4:]}"
    merge = f"git -C {cli.folder} merge {branch}"
    for told in (said.out, cli.ok("show", task).out, cli.ok("why", task).out, cli.ok("recover", task).out):
        assert f"on the branch {branch}: 2 files changed" in told.replace("\n", " ")
        assert merge in told
    for answer in ("show", "why", "recover"):
        work = cli.ok(answer, task, "--json").json["work"]
        assert (work["branch"], work["files"], work["merged"]) == (branch, 2, False)
        assert [one["path"] for one in work["changed"]] == ["allswell.toml", "new"]
        assert work["merge"] == [merge]
    assert cli("recover", task, "--apply").code == 2
    refused = cli("recover", task, "--apply", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "no_snapshot"), "one answer, not two"
    (kept,) = cli.ok("receipts", "--json").json["receipts"]
    assert (kept["status"], kept["branch"]["name"]) == ("done", branch)
    assert branch in cli.ok("show", kept["receipt_id"]).out
    assert "receipt_written" in kinds_of(cli)
    assert cli("doctor").code == 0
    git("merge", "-q", branch)
    assert cli.ok("show", task, "--json").json["work"]["merged"] is True
    assert merge not in cli.ok("show", task).out
    assert (cli.folder / "new").read_text() == "new\n"


@pytest.mark.row("O5")
def test_delegation_timeout_is_obeyed_under_a_supervisor_and_without_one(cli: Console) -> None:
    allswell = f"{sys.executable} -m allswell"
    (cli.folder / "allswell.toml").write_text(
        f"""delegation_timeout = "2m"
[roles.critic]
delegation_timeout = "3m"
[agents.asker]
command = ["sh", "-c", "{allswell} request expert a --no-wait && {allswell} request critic b --no-wait", "{{name}}"]
role = "asker"
"""
    )
    cli.submit("job", "--role", "asker")
    said = run("up", "--drain", cwd=cli.folder)
    assert said.code == 0, said
    cli.submit("other", "--role", "asker")
    cli.claim("ann", "--role", "asker")
    cli.ok("request", "critic", "look", "--no-wait")
    lines = [json.loads(line) for line in cli.ok("events", "--json", "-n", "500").out.splitlines()]
    sent = [line["data"]["timeout_ms"] for line in lines if line["kind"] == "request_sent"]
    assert sent == [120_000, 180_000, 180_000]


@pytest.mark.row("O9")
@pytest.mark.row("O10")
def test_a_clock_that_stands_and_what_came_late_are_shown(cli: Console) -> None:
    async def story() -> tuple[str, str, str]:
        clock = SetClock()
        store = SqliteStore(cli.database, clock=clock)
        async with make_watch(store, clock=clock, sweeping=False) as watch:
            run = await watch.open_run("build", timeout="30m")
            ids = [await watch.submit(name, run=run, timeout="2h") for name in ("asks", "late")]
            asking, late = [await watch.claim(agent="ann", task=id_) for id_ in ids]
            assert asking is not None
            assert late is not None
            clock.at += 600_000
            await late.release("too hard")
            for said in (late.checkin("half of it", progress=0.5), late.release("again"), late.ask("Which one?")):
                with pytest.raises(LeaseLost):
                    await said
            again = await watch.claim(agent="bob", task=ids[1])
            assert again is not None
            assert again.deadline == clock.at + 1_200_000
            await asking.ask("Now what?")
            clock.at += 86_400_000
            while await engine_of(watch).sweeper.sweep() == 0.0:
                pass
            return run, ids[0], ids[1]

    cli.database.parent.mkdir()
    run, asks, late = asyncio.run(story())
    question = f"q_{asks[2:]}.1"
    words = f"its time limit is paused while {question} is open (20m left)"
    assert words in " ".join(cli.ok("show", run).out.split())
    assert "its time limit is paused" in cli.ok("runs").out
    (told,) = cli.ok("runs", "--json").json["runs"]
    assert (told["stood_ms"], told["ended_at"]) == (0, None)
    assert millis(told["stands_since_at"]) == millis(told["created_at"]) + 600_000
    assert f"Its time limit is paused while {question} is open; 20m are left of its time." in cli.ok("why", run).out
    assert '"kind":"run_stands"' in cli.ok("events", "--json").out

    shown = " ".join(cli.ok("show", late).out.split())
    assert "late, kept: release, ask, 1 check-in: half of it" in shown
    first = cli.ok("show", late, "--json").json["attempts"][0]
    assert [(word["verb"], word["text"]) for word in first["late_words"]] == [
        ("release", "again"),
        ("ask", "Which one?"),
    ]
    assert (first["late"], first["late_checkins"]) == (None, 1)
    assert first["late_checkin"]["note"] == "half of it"
    cli.ok("answer", question, "reply", "go on")
    (told,) = cli.ok("runs", "--json").json["runs"]
    assert told["stands_since_at"] is None
    assert told["stood_ms"] > 0

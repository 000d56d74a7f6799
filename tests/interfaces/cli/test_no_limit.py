"""`allswell run` has no limit that nobody asked for, says when a command is silent, and every door says "no limit"."""

import re
import signal
from typing import Any

import msgspec
import pytest

from tests import patience
from tests.interfaces.cli.shell import Shell
from tests.runtime.process.stage import until
from tests.support.fakes import AlertReceiver

HELD = "echo begun; : > begun; while :; do sleep 0.1; done"


def settings(shell: Shell, text: str) -> None:
    (shell.folder / "allswell.toml").write_text(text)


@pytest.mark.row("O1")
def test_without_a_limit_no_door_shows_one(shell: Shell) -> None:
    running = shell.start("--name", "night", "--", "sh", "-c", HELD)
    until((shell.folder / "begun").exists)
    (task,) = shell.json("tasks")["tasks"]
    assert (task["timeout_ms"], task["deadline"]) == (None, None)
    id_ = task["task_id"]
    shown = shell("show", id_).stdout
    assert "no limit" in shown
    (agent,) = shell.json("agents")["agents"]
    assert (agent["deadline"], agent["remaining_ms"]) == (None, None)
    agents, tasks = shell("agents").stdout, shell("tasks").stdout
    for said in (shown, shell("why", id_).stdout, agents, tasks, shell().stdout):
        assert not re.search(r"\d{3,}\s?d|2126", said.replace(id_, "").replace(str(running.pid), "")), said
    assert "no limit" in agents
    assert "no limit" in tasks
    claimed = next(one for one in _events(shell) if one["kind"] == "task_claimed")
    assert claimed["data"]["deadline"] is None
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=patience.SECONDS)
    assert running.returncode == 130


def test_inside_a_command_without_a_limit_there_is_no_deadline(shell: Shell) -> None:
    script = 'echo "[$ALLSWELL_DEADLINE]"; allswell checkin half; allswell checkin more --json'
    lines = shell("run", "--", "sh", "-c", script).stdout.splitlines()
    assert lines[:2] == ["[]", "Check-in recorded. No limit."]
    orders = msgspec.json.decode("".join(lines[2:]))
    assert (orders["remaining_ms"], orders["deadline"]) == (None, None)


def test_a_limit_of_the_attempt_that_it_was_typed_in_is_handed_on(shell: Shell) -> None:
    deadline = 'echo "[$ALLSWELL_DEADLINE]"'
    inner = f"allswell run --store sqlite:///other.db -- sh -c '{deadline}'"
    told = shell("run", "--timeout", "1h", "--", "sh", "-c", f"{deadline}; {inner}").stdout.splitlines()
    assert told[0] == told[1]
    assert ":" in told[0]


@pytest.mark.parametrize(
    "given, words, limit, idle",
    [
        ('agent_timeout = "2m"\nidle = "1m"', [], None, None),
        ('run_timeout = "10m"\nrun_idle = "1m"', [], 600_000, 60_000),
        ('run_timeout = "10m"\nrun_idle = "1m"', ["--timeout", "30s", "--idle", "off"], 30_000, None),
        ('run_timeout = "10m"', ["--timeout", "off", "--idle", "20m"], None, 1_200_000),
    ],
)
def test_only_what_was_asked_for_is_a_limit(
    shell: Shell, given: str, words: list[str], limit: int | None, idle: int | None
) -> None:
    settings(shell, given)
    ran = shell.run_json(*words, "--", "true")
    shown = shell.json("show", ran["task_id"])
    asked = shown["payload"]["run"]
    assert (asked["timeout"], asked["idle"], shown["task"]["timeout_ms"]) == (limit, idle, limit)


def test_a_run_that_is_resumed_keeps_the_limits_that_it_had(shell: Shell) -> None:
    ran = shell.run_json("--idle", "3m", "--", "false", code=1)
    settings(shell, 'run_timeout = "10m"\nrun_idle = "1m"')
    again = shell.run_json("--resume", ran["task_id"], code=1)
    asked = shell.json("show", again["task_id"])["payload"]["run"]
    assert (asked["timeout"], asked["idle"]) == (None, 180_000)


def test_a_limit_cannot_be_given_to_an_open_task_that_has_none(shell: Shell) -> None:
    running = shell.start("--", "sh", "-c", HELD)
    until((shell.folder / "begun").exists)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=patience.SECONDS)
    (task,) = shell.json("tasks")["tasks"]
    said = shell("run", "--resume", task["task_id"], "--timeout", "5m", code=2).stderr
    assert "keeps no limit while it is open" in said


@pytest.mark.parametrize(
    "given, why",
    [
        ('run_timeout = "1m"\nrun_idle = "2m"', "run_idle (120000 ms) must be at most run_timeout (60000 ms)"),
        ("run_idle = 0", 'run_idle (0 ms) must be positive, or "off"'),
    ],
)
def test_settings_of_run_that_cannot_work_are_refused(shell: Shell, given: str, why: str) -> None:
    settings(shell, given)
    assert why in shell("run", "--", "true", code=2).stderr


def test_config_shows_what_run_has_and_from_where(shell: Shell) -> None:
    settings(shell, 'run_idle = "20m"')
    rows = {row["name"]: row for row in shell.json("config")["settings"]}
    assert (rows["run_timeout"]["shown"], rows["run_timeout"]["source"]) == ("off", "default")
    assert (rows["run_idle"]["shown"], rows["run_idle"]["source"]) == ("20m", "allswell.toml")
    assert (rows["run_silence"]["shown"], rows["run_silence"]["source"]) == ("5m", "default")


def test_the_help_says_first_that_there_is_no_limit(shell: Shell) -> None:
    said = shell("run", "--help").stdout
    assert "no time limit unless you set one" in " ".join(said.split("\n\n")[:3]).replace("\n", " ")


@pytest.mark.realtime
def test_silence_is_told_in_one_line_with_what_to_type_and_ends_nothing(shell: Shell) -> None:
    settings(shell, 'run_silence = "1s"')
    done = shell("run", "--name", "night", "--", "sh", "-c", "echo linking; sleep 2.5; echo linked")
    assert done.stdout == "linking\nlinked\n"
    lines = [line for line in done.stderr.splitlines() if "no sign of progress" in line]
    assert lines
    assert lines[0].startswith("allswell: no sign of progress for ")
    assert ", and it has printed nothing since “linking”; it goes on. " in lines[0]
    (task,) = shell.json("tasks", "--all")["tasks"]
    assert f"look: allswell logs {task['task_id']}" in lines[0]
    assert f"stop it: Ctrl-C, or allswell cancel {task['task_id']}" in lines[0]
    assert "run_silent" in shell.kinds()
    assert task["state"] == "done"


@pytest.mark.realtime
def test_an_idle_end_quotes_what_was_printed_and_says_what_to_type(shell: Shell) -> None:
    ticks = "echo begun; while sleep 0.2; do date; done"
    said = shell("run", "--idle", "1s", "--grace", "100ms", "--", "sh", "-c", ticks, code=124).stderr
    assert "nothing showed progress for 1s; it has printed " in said
    assert " lines since, the last “" in said
    assert "if it was at work: --idle off, or longer" in said
    assert "  go on: allswell run --resume t_" in said
    assert said.rstrip().endswith("--idle off")


@pytest.mark.realtime
def test_new_lines_keep_a_command_from_being_idle(shell: Shell) -> None:
    training = "for i in 1 2 3 4 5 6 7 8; do sleep 0.4; echo epoch $i loss=0.$((9 - i)); done"
    shell("run", "--idle", "1500ms", "--", "sh", "-c", training)


def _events(shell: Shell) -> list[dict[str, Any]]:
    lines = shell("events", "--json", "--limit", "1000").stdout.splitlines()
    return [msgspec.json.decode(line) for line in lines]


@pytest.mark.realtime
def test_silence_is_alerted_once_by_the_command_s_own_watch_where_no_other_follows(shell: Shell) -> None:
    with AlertReceiver() as people:
        settings(
            shell, f'run_silence = "500ms"\n[sinks.oncall]\nkind = "alerts"\nroutes = {{ info = "{people.route()}" }}\n'
        )
        running = shell.start(
            "--name", "night", "--", "sh", "-c", "echo linking; until [ -e stop ]; do sleep 0.1; done"
        )
        people.wait_for(1, patience.SECONDS)
        (shell.folder / "stop").touch()
        running.communicate(timeout=patience.SECONDS)
        assert running.returncode == 0
    (_, alert), *_ = people.taken
    assert alert.title.startswith("No sign of progress for ")
    assert alert.title.endswith(": night")
    assert "it has printed nothing since “linking”; it goes on." in alert.message
    assert "allswell logs night" in alert.message
    assert "allswell cancel night" in alert.message


# --- started as an agent of the settings ------------------------------------------------------------------------------

FLEET = """
run_timeout = "3h"
[roles.coder]
agent_timeout = "20m"
[agents.claude]
command = ["claude", "-p", "{prompt}"]
role = "coder"
idle = "4m"
grace = "3s"
env = { LOG = "info", OWN = "{task}" }
[agents.plain]
command = ["sh", "-c", "{prompt}"]
"""


@pytest.mark.row("O1")
@pytest.mark.parametrize(
    "words, limits",
    [
        (["--agent", "claude"], (1_200_000, 240_000, 3_000)),
        (["--agent", "plain"], (900_000, None, 10_000)),
        (["--agent", "claude", "--timeout", "off", "--idle", "1m", "--grace", "1s"], (None, 60_000, 1_000)),
    ],
)
def test_started_as_an_agent_a_command_has_the_limits_of_that_agent(
    shell: Shell, words: list[str], limits: tuple[int | None, int | None, int]
) -> None:
    settings(shell, FLEET)
    ran = shell.run_json(*words, "--", "true")
    asked = shell.json("show", ran["task_id"])["payload"]["run"]
    assert (asked["timeout"], asked["idle"], asked["grace"]) == limits
    assert asked["agent"] == words[1]


def test_its_limits_are_said_before_it_starts_and_its_variables_are_set(shell: Shell) -> None:
    settings(shell, FLEET)
    done = shell("run", "--agent", "claude", "--retries", "1", "--", "sh", "-c", 'echo "$LOG[$OWN]"; exit 3', code=3)
    assert done.stdout == "info[]\ninfo[]\n"
    assert done.stderr.startswith("allswell: as claude: limit 20m, idle 4m\n")
    (task,) = shell.json("tasks", "--all")["tasks"]
    again = shell("run", "--resume", task["task_id"], code=3)
    assert again.stdout == "info[]\ninfo[]\n", "it goes on as it began"
    assert "as claude: limit 20m, idle 4m" in again.stderr


@pytest.mark.parametrize(
    "words, why",
    [
        (["--agent", "claud", "--", "true"], "no agent is called 'claud'; did you mean 'claude'?"),
        (["--agent", "claude", "--resume", "t_1"], "--resume keeps the agent that the command was started as"),
        (["--agent", "claude"], "which command? Write: allswell run --agent claude -- COMMAND…"),
        (["--agent", "claude", "flow.yaml"], "--agent is for commands"),
    ],
)
def test_an_agent_that_cannot_be_meant_is_refused(shell: Shell, words: list[str], why: str) -> None:
    settings(shell, FLEET)
    (shell.folder / "flow.yaml").write_text("name: x\n")
    assert why in " ".join(shell("run", *words, code=2).stderr.split())


def test_without_agents_it_is_said_where_one_is_written(shell: Shell) -> None:
    said = shell("run", "--agent", "claude", "--", "true", code=2).stderr
    assert "no agent is called 'claude': add [agents.claude] to allswell.toml" in said

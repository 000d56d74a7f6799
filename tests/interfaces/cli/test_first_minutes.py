"""The first ten minutes: what a stranger types in a fresh folder, and what they see at 80 columns."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import start, until
from tests.interfaces.cli.shell import ALLSWELL

LISTS = ("tasks", "agents", "questions", "runs", "events", "comms", "tracking", "deliveries", "watch --once")


@pytest.mark.parametrize("command", LISTS)
def test_in_a_fresh_folder_a_list_says_that_nothing_is_here_yet(cli: Console, command: str) -> None:
    said = cli.ok(*command.split())
    assert said.out.startswith("Nothing here yet: ")
    assert "`allswell run -- make all`" in said.out
    assert not cli.database.exists()


@pytest.mark.parametrize("command", LISTS)
def test_in_a_fresh_folder_a_list_as_json_is_empty(cli: Console, command: str) -> None:
    said = cli.ok(*command.split(), "--json")
    if said.out:  # events and comms have a line for each
        assert not any(said.json.get(name) for name in (*command.split(), "tasks", "task_timeouts"))
    assert not cli.database.exists()


def test_a_picture_of_a_fresh_folder_says_that_there_is_no_store(cli: Console) -> None:
    assert cli.ok("watch", "--once", "--json").json["status"]["there"] is False


def test_a_store_that_was_named_must_be_there(cli: Console) -> None:
    said = cli("tasks", "--store", "sqlite:///elsewhere.db")
    assert (said.code, "there is no store at" in said.err) == (75, True)


@pytest.mark.parametrize("command", [["serve", "--listen", "127.0.0.1:0"], ["watch"]])
def test_what_goes_on_begins_in_a_fresh_folder(tmp_path: Path, command: list[str]) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*ALLSWELL, *command], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as begun:
        assert begun.stdout is not None
        assert begun.stderr is not None
        assert (begun.stderr if command[0] == "serve" else begun.stdout).readline()
        begun.send_signal(signal.SIGINT)
        _, err = begun.communicate(timeout=60)
    assert begun.returncode in (0, 130), err
    assert (tmp_path / ".allswell" / "allswell.db").exists()


FAILS_ONCE = """\
name: {name}
steps:
- {{id: first, run: [sh, -c, 'echo first >> ran']}}
- {{id: second, needs: first, run: [sh, -c, 'test -e go && echo second >> ran']}}
"""


def test_resume_without_a_run_takes_the_last_that_can_go_on(cli: Console) -> None:
    for name in ("older", "newer", "fine"):
        (cli.folder / f"{name}.yaml").write_text(FAILS_ONCE.format(name=name))
    assert cli("run", "older.yaml").code == 1
    assert cli("run", "newer.yaml").code == 1
    (cli.folder / "go").touch()
    cli.ok("run", "fine.yaml")
    for name in ("newer", "older"):
        said = cli("resume")
        assert (said.code, f"{name} is done (2 done)" in said.out) == (0, True), said
        assert f"({name}): 1 of 2 steps are done" in said.err
    assert (cli.folder / "ran").read_text().split().count("first") == 3
    said = cli("resume")
    assert (said.code, "no run here can go on" in said.err) == (2, True)


def test_resume_in_a_fresh_folder_says_that_no_flow_was_run(cli: Console) -> None:
    said = cli("resume")
    assert (said.code, "no flow was run here yet" in said.err) == (2, True)
    assert not cli.database.exists()


def test_resume_without_a_run_passes_over_one_that_is_running(cli: Console) -> None:
    (cli.folder / "older.yaml").write_text(FAILS_ONCE.format(name="older"))
    (cli.folder / "waits.yaml").write_text("name: waits\nsteps: [{id: a, run: [sh, -c, 'touch begun; sleep 60']}]")
    assert cli("run", "older.yaml").code == 1
    flow = start("run", "waits.yaml", cwd=cli.folder)
    until(cli.folder / "begun")
    try:
        assert "(older): 1 of 2 steps are done" in cli("resume").err
    finally:
        flow.send_signal(signal.SIGINT)
        assert flow.wait(60) == 130
    assert "(waits): 0 of 1 steps are done" in cli("resume", "--choose", "escalate").err

"""The first ten minutes: what a stranger types in a fresh folder, and what they see at 80 columns."""

import ast
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allswell.interfaces.cli import app
from allswell.interfaces.cli.help_pages import TOPICS
from allswell.interfaces.cli.registry import FIRST_DAY
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import start, until
from tests.interfaces.cli.shell import ALLSWELL
from tests.interfaces.cli.upkeep import at_terminal

ROOT = Path(__file__).parents[3]
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


def test_help_has_the_ten_commands_of_the_first_day_in_forty_lines(cli: Console) -> None:
    cli.patch.setenv("COLUMNS", "80")
    lines = cli.ok("--help").out.splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    assert len(FIRST_DAY) == 10
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in FIRST_DAY)
    assert cli.ok("help").out == cli.ok("--help").out
    whole = cli.ok("help", "all").out
    assert [name for name in app.commands().names if f"\n  {name} " not in whole] == []
    assert "`allswell help all`" in "\n".join(lines)


def test_help_shows_commands_and_topics(cli: Console) -> None:
    assert cli.ok("help", "run").out == cli.ok("run", "--help").out
    assert cli.ok("help", "key", "create").out == cli.ok("key", "create", "--help").out
    assert cli.ok("help", "ps").out == cli.ok("agents", "--help").out
    listed = cli.ok("help", "topics").out
    for topic in TOPICS:
        assert f"\n  {topic} " in listed
        page = cli.ok("help", topic).out
        assert page.startswith("# ")
        assert not re.search(r"\]\((?!https?:)", page), "a link that cannot be followed at a terminal"
    said = cli("help", "fleeet")
    assert (said.code, "did you mean `allswell help fleet`?" in said.err) == (2, True)


def test_no_topic_is_called_as_a_command_is() -> None:
    taken = {word for name in app.commands().names for word in (name, name.split()[0])} | {"all", "topics"}
    assert taken & set(TOPICS) == set()


def strings() -> Iterator[tuple[str, str]]:
    """Every string in the source that is no docstring, and where it is."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_hints_name_what_an_installed_allswell_has() -> None:
    outside = [(place, text) for place, text in strings() if re.search(r"\bdocs/[\w/-]+\.md", text)]
    assert outside == []
    named = {topic for _, text in strings() for topic in re.findall(r"`allswell help ([a-z-]+)`", text)}
    assert {"fleet", "flows", "notifications"} <= named
    assert named - {*TOPICS, *app.commands().names, "all", "topics"} == set()


@pytest.mark.parametrize("columns", [50, 80])
def test_counts_are_not_broken_inside_a_word(cli: Console, columns: int) -> None:
    names = {"ready": "", "delayed": ', "not_before": "1d"', "waiting": ', "needs": ["first"]'}
    lines = ['{"name": "first", "priority": 1}']
    lines += [f'{{"name": "{name} {n}"{more}}}' for name, more in names.items() for n in range(200)]
    cli.ok("submit", "-", stdin="\n".join(lines))
    cli.ok("cancel", "first")
    for _ in range(3):
        cli.claim()
    cli.ok("done")
    shown = at_terminal(cwd=cli.folder, columns=columns).out
    counted = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines()]
    parts = [part for line in counted for part in re.findall(r"(?:^|  )([\d,]+ [a-z]+)(?=  |$)", line)]
    assert [part.split()[1] for part in parts] == ["held", "ready", "delayed", "done", "cancelled", "skipped"]
    assert max(map(len, counted)) <= columns

"""What `run` has kept is found again: wherever it was kept, whatever is wrong with git, by the commands it prints."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from allswell.domain.agents.evidence import EvidenceState
from allswell.interfaces.cli.app import commands
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import parameters
from allswell.interfaces.cli.rendering import STORELESS, typed_here, use_store
from allswell.interfaces.cli.run_display import Screen
from allswell.runtime.workspace.folder_snapshot import Progress
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.shell import Shell
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import until

if TYPE_CHECKING:
    from allswell.runtime.attempt import AttemptRunner

FAILS = ("--", "sh", "-c", "echo new > new; exit 7")


def recovered(shell: Shell, what: str, *more: str) -> dict[str, str]:
    """What `recover` gives back, by name."""
    back = shell.folder.parent / "back"
    shell("recover", what, "--into", str(back), *more)
    return {str(path.relative_to(back)): path.read_text() for path in back.rglob("*") if path.is_file()}


@pytest.fixture
def plain(shell: Shell) -> Shell:
    """Somebody in a folder without git, somewhere below the one that has the store."""
    folder = shell.folder.parent / "plain" / "deep" / "down"
    folder.mkdir(parents=True)
    (folder / "before").write_text("from before\n")
    above = Shell(folder.parent.parent, shell.tag)
    above("submit", "first")
    return Shell(folder, shell.tag)


def test_outside_git_the_store_stays_in_sight_and_so_does_the_work(plain: Shell) -> None:
    done = plain("run", "--name", "night", *FAILS, code=7)
    assert not (plain.folder / ".allswell").exists()
    assert "1 file changed, kept in " in done.stderr
    assert "--store" not in done.stderr, "the folder gives this store"
    (receipt,) = plain.json("receipts")["receipts"]
    assert receipt["snapshot"]["folder"] == str(plain.folder)
    assert plain.json("show", "night")["receipt_ids"] == [receipt["receipt_id"]]
    assert {task["name"] for task in plain.json("tasks", "--all")["tasks"]} == {"first", "night"}
    assert "1 file was not touched since the attempt began, and not copied" in plain("recover", "night").stdout
    assert "1 was not touched by the attempt" in plain("recover", "night", "--apply").stdout
    assert recovered(plain, "night") == {"new": "new\n"}


def test_what_lies_beside_another_store_hides_none_further_up(plain: Shell) -> None:
    plain("run", "--store", "sqlite:///watch.db", *FAILS, code=7)
    assert (plain.folder / ".allswell" / "receipts").is_dir()
    assert [task["name"] for task in plain.json("tasks", "--all")["tasks"]] == ["first"]
    assert plain.json("receipts") == {"receipts": []}


def test_a_store_on_a_server_has_its_files_in_the_nearest_folder_of_ours(cli: Console) -> None:
    inside = cli.folder / "deep"
    inside.mkdir()
    cli.patch.chdir(inside)
    server = CliContext("postgresql://nowhere.invalid/x", json=False)
    assert server.home == inside / ".allswell", "there is none yet"
    cli.patch.chdir(cli.folder)
    cli.submit("first")
    cli.patch.chdir(inside)
    assert CliContext("postgresql://nowhere.invalid/x", json=False).home == cli.folder / ".allswell"


@pytest.mark.parametrize(
    "breaks",
    [
        "echo nonsense > .git/HEAD",
        "git update-ref refs/allswell/$ALLSWELL_TASK HEAD",
        "mv .git/objects .git/gone; touch .git/objects",
    ],
    ids=["broken HEAD", "a ref in the way", "no room for objects"],
)
def test_where_git_fails_all_that_is_nowhere_else_is_copied(shell: Shell, breaks: str) -> None:
    (shell.folder / "kept").write_text("changed before the run\n")
    (shell.folder / "notes").write_text("written before the run\n")
    done = shell("run", "--name", "night", "--", "sh", "-c", f"{breaks}; echo new > new; exit 7", code=7)
    assert "changed, kept in " in done.stderr
    (receipt,) = shell.json("receipts")["receipts"]
    assert "Copied without git: " in shell("show", receipt["receipt_id"]).stdout.replace("\n", " ")
    found = recovered(shell, "night")
    assert found == {"kept": "changed before the run\n", "notes": "written before the run\n", "new": "new\n"}


def test_work_is_kept_though_what_it_was_based_on_is_gone(shell: Shell) -> None:
    tree = git("rev-parse", "HEAD^{tree}", cwd=shell.folder).strip()
    lose = f"echo new > new; git add new; rm -f .git/objects/{tree[:2]}/{tree[2:]}; exit 7"
    done = shell("run", "--name", "night", "--", "sh", "-c", lose, code=7)
    assert "its work is kept in refs/allswell/" in done.stderr
    assert "which files have changed is not known" in done.stderr
    assert "could not be kept" not in done.stderr
    assert recovered(shell, "night") == {"kept": "as it was\n", "new": "new\n"}


@pytest.mark.realtime
def test_where_it_cannot_be_told_what_changed_it_is_not_said_that_nothing_did(shell: Shell) -> None:
    shell.sh("rm -rf .git/objects/??")
    script = "echo more >> kept; touch ready; sleep 600"
    done = shell("run", "--name", "night", "--timeout", "2s", "--", "sh", "-c", script, code=124)
    assert "its work is kept in refs/allswell/" in done.stderr
    assert "which files have changed is not known" in done.stderr
    assert "it changed no file" not in done.stderr
    (receipt,) = shell.json("receipts")["receipts"]
    shown = " ".join(shell("show", receipt["receipt_id"]).stdout.split())
    assert "which files have changed is not known" in shown
    assert "no file differs" not in shown


def test_names_that_differ_only_in_case_are_two_files(shell: Shell) -> None:
    git("config", "core.ignoreCase", "true", cwd=shell.folder)
    shell("run", "--name", "night", "--", "sh", "-c", "echo other > KEPT; exit 7", code=7)
    assert recovered(shell, "night") == {"kept": "as it was\n", "KEPT": "other\n"}


# --- what it prints can be typed --------------------------------------------------------------------------------------


def commands_in(text: str) -> list[str]:
    """Every command that a text has people type."""
    lines = [line.strip().removeprefix("→ ").rpartition(": allswell")[-1].strip() for line in text.splitlines()]
    bare = [line for line in lines if line.startswith("allswell ") and ": " not in line]
    return [*bare, *re.findall(r"`(allswell[^`]*)`", text), *re.findall(r": (allswell .*)", text)]


def test_a_store_that_was_named_is_named_in_every_command_that_is_printed(shell: Shell) -> None:
    beside = shell.folder.parent / "elsewhere" / "watch.db"
    given = ("--store", "sqlite:///../elsewhere/watch.db")
    shell("submit", "first")  # what the folder gives is another one
    done = shell("run", *given, "--name", "late night", *FAILS, code=7)
    shell("submit", "held up", *given)
    shell("claim", "--agent", "ada", *given)
    shell("ask", "which?", "--task", "held up", "--token", "1", "--agent", "ada", *given)
    (receipt,) = shell.json("receipts", *given)["receipts"]
    told = [
        done.stderr,
        shell("show", receipt["receipt_id"], *given).stdout,
        shell("show", "late night", *given).stdout,
        shell("why", "held up", *given).stdout,
        shell("questions", *given).stdout,
        shell("agents", *given).stdout,
        shell("recover", "late night", *given).stdout,
        shell("recover", "zzzzzz", *given, code=2).stderr,
        shell("runs", *given).stdout,
        shell(*given, code=3).stdout,
        "\n".join(receipt["advice"]["look"] + receipt["advice"]["recover"] + receipt["advice"]["resume"]),
        "\n".join(need["command"] for need in shell.json(*given, code=3)["needs"]),
        shell.json("show", "rc_nothing", *given, code=2)["error"]["message"],
    ]
    found = [commands_in(text) for text in told]
    assert all(found), [text for text, commands in zip(told, found, strict=True) if not commands]
    named = f"--store sqlite:///{beside}"
    assert [one for commands in found for one in commands if named not in one] == []
    elsewhere = Shell(shell.folder.parent, shell.tag)
    for command in {one.replace("DIR", "back") for one in (*found[0], *found[6]) if "run" not in one}:
        assert elsewhere.sh(command).returncode == 0, command


def test_a_store_of_the_environment_is_named_and_its_password_is_not(
    cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLSWELL_STORE", f"sqlite:///{cli.folder}/other.db")
    assert f'allswell submit "write the changelog" --store sqlite:///{cli.folder}/other.db' in cli().out
    monkeypatch.setenv("ALLSWELL_STORE", "postgresql://me:s3cret@nowhere.invalid/x")
    use_store(None)
    assert typed_here("allswell why t_1") == 'allswell why t_1 --store "$ALLSWELL_STORE"'
    use_store("postgresql://me:s3cret@elsewhere.invalid/x")
    hidden = "--store 'postgresql://me:***@elsewhere.invalid/x'"
    assert typed_here("allswell run -- x --y") == f"allswell run {hidden} -- x --y"
    use_store(None)


def test_the_commands_without_a_store_are_known() -> None:
    without = {
        name
        for name, one in commands().named.items()
        if "store" not in {option.name for option in parameters(one.function)}
    }
    assert without | {"help"} == set(STORELESS)


def test_before_the_first_commit_the_printed_diff_shows_the_work(shell: Shell) -> None:
    fresh = Shell(shell.folder.parent / "fresh", shell.tag)
    fresh.folder.mkdir()
    git("init", "-q", "-b", "main", cwd=fresh.folder)
    done = fresh("run", "--name", "night", *FAILS, code=7)
    (more,) = re.findall(r"more: allswell (.*)", done.stderr)
    (diff,) = re.findall(r"  (git .*)", fresh(*more.split()).stdout)
    shown = fresh.sh(diff)
    assert (shown.returncode, "+new" in shown.stdout) == (0, True), shown
    assert "--no-ext-diff --no-textconv" in diff


def test_where_no_work_was_kept_that_is_said_plainly(shell: Shell) -> None:
    (shell.folder / "bad").write_bytes(b"\x7fELF, and nothing else")
    (shell.folder / "bad").chmod(0o755)
    shell("run", "--name", "night", "--", "./bad", code=2)
    assert "no work has been kept of any attempt at 'night'" in shell("recover", "night", code=2).stderr
    assert "attempt 5 at 'night' has kept no work" in shell("recover", "night", "--attempt", "5", code=2).stderr


def test_a_killed_reaper_ends_in_a_code_that_the_page_lists(shell: Shell) -> None:
    script = "echo new > new; echo $PPID > pid; mv pid reaper; exec sleep 600"
    running = shell.start("--name", "night", "--", "sh", "-c", script)
    until((shell.folder / "reaper").exists)
    os.kill(int((shell.folder / "reaper").read_text()), signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert "its reaper was killed, and the tree with it" in said
    assert running.returncode == 128 + signal.SIGKILL
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text()
    assert "| 137 | also: its reaper was killed" in page
    assert recovered(shell, "night")["new"] == "new\n"


def test_while_much_is_kept_a_line_says_how_far_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen(silent=False)
    keeping = SimpleNamespace(busy=Progress(150_000_000, 450_000_000))
    attempt = cast("AttemptRunner", SimpleNamespace(keeping=keeping, standing=EvidenceState(0), remaining=0))
    for second in range(10):
        screen.show(attempt, second * 1_000)
    assert capfd.readouterr().err == "allswell: keeping its work: 150 of 450 MB; the command is paused meanwhile\n"
    keeping.busy = None
    screen.show(attempt, 11_000)
    assert capfd.readouterr().err == ""

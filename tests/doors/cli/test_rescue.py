"""What `run` has kept is found again: wherever it was kept, whatever is wrong with git, by the commands it prints."""

from __future__ import annotations

import pytest

from tests.doors.cli.shell import Shell
from tests.runtime.attempt.stage import git

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
    assert "1 file was not touched since the attempt began, and not copied" in done.stderr
    assert "--store" not in done.stderr, "the folder gives this store"
    (receipt,) = plain.json("receipts")["receipts"]
    assert receipt["snapshot"]["folder"] == str(plain.folder)
    assert plain.json("show", "night")["receipts"] == [receipt["id"]]
    assert {task["name"] for task in plain.json("tasks", "--all")["tasks"]} == {"first", "night"}
    assert recovered(plain, "night") == {"new": "new\n"}


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
    assert "The work is kept in " in done.stderr
    assert "Copied without git: " in done.stderr
    found = recovered(shell, "night")
    assert found == {"kept": "changed before the run\n", "notes": "written before the run\n", "new": "new\n"}


def test_work_is_kept_though_what_it_was_based_on_is_gone(shell: Shell) -> None:
    tree = git("rev-parse", "HEAD^{tree}", cwd=shell.folder).strip()
    lose = f"echo new > new; git add new; rm -f .git/objects/{tree[:2]}/{tree[2:]}; exit 7"
    done = shell("run", "--name", "night", "--", "sh", "-c", lose, code=7)
    assert "The work is kept in refs/allswell/" in done.stderr
    assert "which files have changed cannot be told" in done.stderr
    assert "could not be kept" not in done.stderr
    assert recovered(shell, "night") == {"kept": "as it was\n", "new": "new\n"}


def test_names_that_differ_only_in_case_are_two_files(shell: Shell) -> None:
    git("config", "core.ignoreCase", "true", cwd=shell.folder)
    shell("run", "--name", "night", "--", "sh", "-c", "echo other > KEPT; exit 7", code=7)
    assert recovered(shell, "night") == {"kept": "as it was\n", "KEPT": "other\n"}

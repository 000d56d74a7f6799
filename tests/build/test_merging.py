"""Merges are made outside the checkout: what a human edits meanwhile is neither lost nor a builder's failure."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from allswell.build.agents import worktree_of
from allswell.build.merge import GitMerge
from tests.runtime.attempt.stage import git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    git("config", "user.name", "c", cwd=folder)
    git("config", "user.email", "c@example.org", cwd=folder)
    for name in ("notes", "same"):
        (folder / name).write_text("first\n")
    commit(folder, "first")
    return folder


def commit(folder: Path, text: str) -> None:
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", text, cwd=folder)


def branch(folder: Path, component: str, **files: str) -> None:
    git("checkout", "-q", "-b", f"build/{component}", "main", cwd=folder)
    for name, text in files.items():
        (folder / name).write_text(text)
    commit(folder, component)
    git("checkout", "-q", "main", cwd=folder)


def merge(folder: Path, *components: str) -> list[str]:
    async def main() -> list[str]:
        merging = await GitMerge(folder).checked()
        return [await merging(component) for component in components]

    return asyncio.run(main())


def type_advice(caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    """Type what the last warning says is to be run."""
    command = caplog.messages[-1].rpartition("run: ")[2].split()
    assert command[:2] == ["git", "merge"]
    git(*command[1:], cwd=folder)


def test_edits_elsewhere_stay_and_the_branch_moves_on(project: Path) -> None:
    branch(project, "db", db="made")
    (project / "notes").write_text("edited\n")
    assert merge(project, "db", "db") == ["", ""]  # twice is once
    assert (project / "db").read_text() == "made"
    assert (project / "notes").read_text() == "edited\n"
    assert git("log", "--format=%s", "-1", cwd=project).strip() == "Merge branch 'build/db'"


def test_edits_in_the_way_are_kept_and_the_merges_come_in_when_they_are_gone(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    branch(project, "db", same="from db\n")
    branch(project, "api", api="made")
    (project / "same").write_text("edited\n")
    assert merge(project, "db", "api") == ["", ""]
    assert (project / "same").read_text() == "edited\n"
    assert "commit or stash your edits" in caplog.text
    git("checkout", "-q", "--", "same", cwd=project)
    assert merge(project) == []
    assert (project / "same").read_text() == "from db\n"
    assert (project / "api").read_text() == "made"
    assert "allswell" not in git("for-each-ref", cwd=project)


def test_a_merge_that_was_killed_half_way_is_not_seen_and_is_made_again(project: Path) -> None:
    branch(project, "db", same="from db\n")
    branch(project, "api", same="from api\n")
    branch(project, "web", web="made")
    (before,) = merge(project, "api")
    assert before == ""
    tree = project / ".git" / "allswell-merge"
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "-q", "build/db", cwd=tree)  # it stands in the middle of a conflict
    assert git("status", "--porcelain", cwd=project) == ""
    (project / ".git" / "worktrees" / tree.name / "index.lock").touch()
    why, web = merge(project, "db", "web")
    assert "build/db does not merge; bring it up to date and hand it in again: conflicts in same" in why
    assert web == ""
    assert (project / "web").read_text() == "made"
    assert (project / "same").read_text() == "from api\n"
    assert git("status", "--porcelain", cwd=project) == ""


@pytest.mark.parametrize("leads", ["..", "../../other"])
def test_a_link_in_the_place_of_our_worktree_has_no_edits_thrown_away(project: Path, leads: str) -> None:
    """An archive can bring a `.git` with one, and a builder can make one: what lies there would be cleared."""
    branch(project, "db", db="made")
    (project / "notes").write_text("edited\n")
    (project / "untracked").write_text("mine")
    git("clone", "-q", str(project), str(project.parent / "other"), cwd=project)
    (project.parent / "other" / "untracked").write_text("mine")
    (project / ".git" / "allswell-merge").symlink_to(leads)
    (why,) = merge(project, "db")
    assert "is a link" in why
    assert (project / "notes").read_text() == "edited\n"
    assert (project / "untracked").exists()
    assert (project.parent / "other" / "untracked").exists()


@pytest.mark.parametrize("planted", ["secrets", ".allswell/allswell.db", ".allswell"])
def test_what_a_human_has_git_ignore_is_not_overwritten(
    project: Path, caplog: pytest.LogCaptureFixture, planted: str
) -> None:
    """Git replaces what is ignored without a word: a builder's branch would put its own in the place of a store."""
    (project / ".gitignore").write_text("/secrets\n/.allswell\n")
    commit(project, "ignoring")
    git("checkout", "-q", "-b", "build/db", cwd=project)
    (project / planted).parent.mkdir(exist_ok=True)
    if planted == ".allswell":
        (project / planted).symlink_to("elsewhere")
    else:
        (project / planted).write_text("the builder's")
    git("add", "-f", planted, cwd=project)
    git("commit", "-q", "-m", "db", cwd=project)
    git("checkout", "-q", "main", cwd=project)
    own = (project / "secrets", project / ".allswell" / "allswell.db")
    for file in own:
        file.parent.mkdir(exist_ok=True)
        file.write_text("the human's")
    assert merge(project, "db") == [""]
    assert [file.read_text() for file in own] == ["the human's"] * 2
    with pytest.raises(subprocess.CalledProcessError):
        type_advice(caplog, project)
    assert [file.read_text() for file in own] == ["the human's"] * 2, "nor by the command that they are told to type"
    (project / "secrets").rename(project.parent / "secrets")
    (project / ".allswell").rename(project.parent / "allswell")
    type_advice(caplog, project)
    assert os.path.lexists(project / planted)
    assert git("log", "build/db", "--not", "main", cwd=project) == ""


def test_a_merge_that_is_kept_comes_in_by_hand_where_the_branch_has_gone_on(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    branch(project, "db", same="from db\n")
    (project / "same").write_text("edited\n")
    assert merge(project, "db") == [""]
    git("checkout", "-q", "--", "same", cwd=project)
    (project / "more").write_text("a human's")
    commit(project, "more")
    caplog.clear()
    assert merge(project) == []
    type_advice(caplog, project)
    assert ((project / "same").read_text(), (project / "more").read_text()) == ("from db\n", "a human's")
    assert merge(project) == []
    assert "allswell" not in git("for-each-ref", cwd=project)


def test_a_tag_with_the_name_of_a_branch_is_not_merged_in_its_place(project: Path) -> None:
    """Tags come along with a fetch, and git takes them first: what nobody has audited was merged."""
    branch(project, "api", api="not audited")
    git("tag", "build/db", "build/api", cwd=project)
    branch(project, "db", db="made")
    assert merge(project, "db") == [""]
    assert (project / "db").read_text() == "made"
    assert not (project / "api").exists()


def test_a_merge_that_a_human_is_amid_of_is_left_alone(project: Path) -> None:
    """It was taken for one of ours by its message, and taken back with what they had resolved."""
    branch(project, "db", same="from db\n")
    branch(project, "api", api="made")
    (project / "same").write_text("mine\n")
    commit(project, "mine")
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "-q", "build/db", cwd=project)
    (project / "same").write_text("resolved\n")
    assert merge(project, "api") == [""]
    assert (project / "same").read_text() == "resolved\n"
    commit(project, "merged by hand")
    assert git("log", "-1", "--format=%P", cwd=project).count(" ") == 1
    git("merge", "-q", "--no-edit", "refs/allswell/merged/main", cwd=project)  # as they are told to
    assert merge(project) == []
    assert ((project / "same").read_text(), (project / "api").read_text()) == ("resolved\n", "made")


@pytest.mark.parametrize("how", ["in another worktree", "rebased"])
def test_a_branch_that_is_used_elsewhere_is_not_moved_meanwhile(
    project: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """What was merged would look as if it had been taken away there, and the next commit would take it away."""
    branch(project, "db", db="made")
    other = project.parent / "other"

    async def main() -> str:
        merging = await GitMerge(project).checked()
        if how == "rebased":
            (project / "more").write_text("a human's")
            commit(project, "more")
            with pytest.raises(subprocess.CalledProcessError):
                git("rebase", "-q", "--force-rebase", "--exec", "false", "HEAD~", cwd=project)
        else:
            git("checkout", "-q", "-b", "mine", cwd=project)
            git("worktree", "add", "-q", str(other), "main", cwd=project)
        return await merging("db")

    assert asyncio.run(main()) == ""
    if how == "rebased":
        git("rebase", "--abort", cwd=project)
    else:
        assert git("status", "--porcelain", cwd=other) == ""
        git("worktree", "remove", str(other), cwd=project)
        git("checkout", "-q", "main", cwd=project)
    assert "is checked out in another worktree, or being rebased" in caplog.text
    assert not (project / "db").exists()
    assert merge(project) == []
    assert (project / "db").read_text() == "made"


def test_a_human_who_works_on_another_branch_is_left_there(project: Path) -> None:
    branch(project, "db", db="made")

    async def main() -> str:
        merging = await GitMerge(project).checked()
        git("checkout", "-q", "-b", "mine", cwd=project)
        return await merging("db")

    assert asyncio.run(main()) == ""
    assert not (project / "db").exists()
    assert git("show", "main:db", cwd=project) == "made"


@pytest.fixture
def spied(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose hooks, filter and signer note that they ran, with which variables; an agent can do that."""
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\necho "${{1:-$0}} ${{BUILD_KEY:-}}" >> {tmp_path}/ran\n[ "$1" != filter ] || cat\n')
    spy.chmod(0o755)
    branch(project, "db", db="made")
    branch(project, "api", api="made")
    (project / ".git" / "hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-merge", "pre-merge-commit", "reference-transaction", "commit-msg"):
        (project / ".git" / "hooks" / hook).symlink_to(spy)
    for key, value in {"filter.x.smudge": f"{spy} filter", "gpg.program": f"{spy}", "commit.gpgSign": "true"}.items():
        git("config", key, value, cwd=project)
    (project / ".git" / "info" / "attributes").write_text("* filter=x\n")
    monkeypatch.setenv("BUILD_KEY", "hunter2")
    return tmp_path / "ran"


def test_no_hook_runs_in_a_merge_and_a_filter_is_told_nothing_of_ours(project: Path, spied: Path) -> None:
    assert merge(project, "db", "api") == ["", ""]
    assert (project / "db").read_text() == "made"
    assert set(spied.read_text().split("\n")) == {"filter ", ""}, "a filter alone, without the variables of ours"


def test_no_hook_runs_when_a_worktree_is_made_for_a_builder(
    project: Path, spied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    place = asyncio.run(worktree_of(tmp_path / "trees", "db"))
    assert (place / "db").read_text() == "made"
    fresh = asyncio.run(worktree_of(tmp_path / "trees", "web"))
    assert git("symbolic-ref", "HEAD", cwd=fresh).strip() == "refs/heads/build/web"
    (fresh / "notes").write_text("work\n")
    assert asyncio.run(worktree_of(tmp_path / "trees", "web")) == fresh
    assert (fresh / "notes").read_text() == "work\n", "what is there is kept as it is"
    assert set(spied.read_text().split("\n")) == {"filter ", ""}

"""Worktrees of tasks under a supervisor: what is done well there is found on a branch, and no program of ours runs it.

Each scene is a real supervisor with real agents in a real repository.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from allswell.domain.agents.fleet import AgentSpec
from allswell.runtime.receipts import Receipts
from allswell.runtime.workspace.worktree import LeftoverWork, make_worktree
from tests.runtime.supervisor.stage import Night, night

SHELL = ("sh", "-c", "{payload}")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without a user's name, in a folder with a store."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    made = tmp_path / "repo"
    made.mkdir()
    git(made, "init", "-q", "-b", "trunk")
    (made / "kept").write_text("as it was\n")
    (made / ".gitignore").write_text("*.o\n")
    git(made, "add", "-A")
    git(made, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "first")
    return made


def git(folder: Path, *words: str) -> str:
    options = ("-c", "safe.directory=*")
    done = subprocess.run(["git", *options, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def agent(**fields: Any) -> AgentSpec:  # noqa: ANN401 - fields of the agent
    return AgentSpec(name="agent", command=SHELL, worktree=True, **{"grace": 500, **fields})


def test_what_was_not_committed_is_on_the_branch_and_told_everywhere(repo: Path) -> None:
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    tasks: list[str] = []

    async def scene(night: Night) -> None:
        script = "echo changed >>kept; mkdir -p new; echo new >new/file; touch built.o"
        tasks.append(await night.watch.submit("two files", payload=script))
        tasks.append(await night.watch.submit("nothing to do", payload="true"))
        for task in tasks:
            assert (await night.ended(task)).state == "done"
        assert (await night.event("receipt_written")).data["status"] == "done"

    told = night(repo, scene, agent()).lines
    task, idle = tasks
    branch = f"allswell/two-files-{task[-4:]}"
    assert git(repo, "diff", "--name-status", "trunk", branch) == "M\tkept\nA\tnew/file\n"
    who, body = git(repo, "log", "-1", "--format=%an <%ae>%x00%B", branch).split("\0")
    assert who == "Allswell <allswell@localhost>"
    assert body.startswith("two files\n")
    assert f"attempt 1 at the task {task}" in body
    assert not (repo / ".allswell" / "worktrees" / task).exists()
    assert idle not in git(repo, "branch"), "nothing was done, so nothing is left to look at"
    assert not list((repo / ".allswell" / "worktrees").iterdir())
    assert git(repo, "worktree", "list").count("\n") == 1
    assert git(repo, "status", "--porcelain") == ""
    assert any(f"on the branch {branch}: 2 files changed" in line for line in told)
    assert any(line.endswith(f" → git -C {repo} merge {branch}") for line in told)
    (kept,) = Receipts(repo / ".allswell" / "receipts").all()
    look = next(line for line in kept.receipt.advice.look if " diff --no-ext-diff --no-textconv " in line)
    assert "+changed" in subprocess.run(["sh", "-c", look], capture_output=True, text=True, check=True).stdout


def test_the_filters_of_the_repository_run_in_the_attempt_and_never_in_the_supervisor(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    for name, change in (("clean", "tr a-z n-za-m"), ("smudge", "tr n-za-m a-z")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\necho "{name} $SECRET $ALLSWELL_MARK" >>{ran}\nexec {change}\n')
        script.chmod(0o755)
        git(repo, "config", f"filter.rot.{name}", str(script))
    (repo / ".gitattributes").write_text("*.txt filter=rot\n")
    (repo / "a.txt").write_text("uryyb\n")
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "a filtered file")
    ran.unlink()
    for number, hook in enumerate(("post-checkout", "post-commit", "reference-transaction", "post-index-change")):
        path = repo / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\necho hook {number} >>{ran}\n")
        path.chmod(0o755)
    monkeypatch.setenv("SECRET", "of-the-supervisor")
    tasks: list[str] = []

    async def scene(night: Night) -> None:
        tasks.append(await night.watch.submit("filtered", payload="cp a.txt b.txt; grep -q uryyb a.txt"))
        assert (await night.ended(tasks[0])).state == "done"

    night(repo, scene, agent())
    git(repo, "config", "--remove-section", "filter.rot")
    assert git(repo, "show", f"allswell/filtered-{tasks[0][-4:]}:b.txt") == "hello\n", "as its filter wants it"
    lines = ran.read_text()
    assert "smudge" in lines
    assert "clean" in lines
    assert "of-the-supervisor" not in lines
    assert "hook" not in lines


def test_what_the_agent_committed_itself_is_found_wherever_it_went_then(repo: Path) -> None:
    commit = "git add -A; git -c user.name=y -c user.email=y@example.com commit -qm by-the-agent"
    tasks: list[str] = []

    async def scene(night: Night) -> None:
        tasks.append(await night.watch.submit("own", payload=f"echo one >one; {commit}"))
        tasks.append(
            await night.watch.submit("went", payload=f"echo two >two; {commit}; git checkout -q --detach trunk")
        )
        for task in tasks:
            assert (await night.ended(task)).state == "done"

    told = "\n".join(night(repo, scene, agent()).lines)
    for task, name in zip(tasks, ("own", "went"), strict=True):
        branch = f"allswell/{name}-{task[-4:]}"
        assert f"on the branch {branch}: 1 file changed" in told
        assert git(repo, "log", "-1", "--format=%s", branch) == "by-the-agent\n"
        assert not (repo / ".allswell" / "worktrees" / task).exists()
    # A supervisor that was killed before it could say that the task is done: the next attempt finds the branch again.
    receipts = Receipts(repo / ".allswell" / "receipts").all()
    named = [kept.receipt.branch.name for kept in receipts if kept.receipt.branch]
    tree = make_worktree(repo, repo / ".allswell" / "worktrees", tasks[0], "own", named.__contains__)
    assert tree.base == git(repo, "rev-parse", "trunk").strip()
    assert tree.stands(LeftoverWork({}, f"ref: refs/heads/{tree.branch}")) is not None


def test_what_no_commit_can_hold_stays_in_its_worktree(repo: Path) -> None:
    scripts = {
        "elsewhere": "git switch -q -c other; echo x >x",
        "inside": "git init -q sub; echo y >sub/y; echo z >z",
        "unrooted": "rm .git; echo w >w",
    }
    tasks: dict[str, str] = {}

    async def scene(night: Night) -> None:
        for name, script in scripts.items():
            tasks[name] = await night.watch.submit(name, payload=script)
        for task in tasks.values():
            assert (await night.ended(task)).state == "done"
        bad = await night.watch.submit("bad", payload="rm .git; echo v >v; exit 3", retries=0)
        assert (await night.ended(bad)).state == "failed"
        kept = night.home.receipts.of_task(bad)[0].receipt
        assert kept.snapshot is not None
        assert kept.snapshot.folder == str(night.home.worktrees / bad), "and not the repository around it"
        assert "v" in {one.path for one in kept.changed}

    told = "\n".join(night(repo, scene, agent()).lines)
    trees = {name: repo / ".allswell" / "worktrees" / task for name, task in tasks.items()}
    assert (trees["elsewhere"] / "x").read_text() == "x\n"
    assert (trees["inside"] / "sub" / "y").read_text() == "y\n"
    assert (trees["unrooted"] / "w").read_text() == "w\n"
    assert git(repo, "show", f"allswell/inside-{tasks['inside'][-4:]}:z") == "z\n"
    assert set(git(repo, "log", "--format=%s", "--all").split()) == {"inside", "first"}, "no commit anywhere else"
    for tree in trees.values():
        assert str(tree) in told
    assert git(repo, "diff", "--cached", "--name-only") == ""


@pytest.mark.parametrize(
    "title, branch",
    [
        ("write the parser", "allswell/write-the-parser-7x2k"),
        ("Überschrift: Größe (v2)!", "allswell/uberschrift-groe-v2-7x2k"),
        ("a/../b.lock @{1}", "allswell/a-b-lock-1-7x2k"),
        ("日本", "allswell/t_1m7gpb69x0sx7x2k"),
        ("x" * 90, f"allswell/{'x' * 40}-7x2k"),
        ("write a parser for every grammar there is", "allswell/write-a-parser-for-every-grammar-there-7x2k"),
    ],
)
def test_a_branch_can_be_read(repo: Path, title: str, branch: str) -> None:
    tree = make_worktree(repo, repo / ".allswell" / "worktrees", "t_1m7gpb69x0sx7x2k", title)
    assert tree.branch == branch
    assert f"+ {branch}\n" in git(repo, "branch")


def test_a_branch_of_before_is_gone_on_with(repo: Path) -> None:
    place = repo / ".allswell" / "worktrees"
    old = make_worktree(repo, place, "t_1")
    assert old.branch == "allswell/t_1"
    assert make_worktree(repo, place, "t_1", "write the parser").branch == "allswell/t_1", "its worktree is there"
    git(repo, "branch", "allswell/t_2")
    assert make_worktree(repo, place, "t_2", "write the parser").branch == "allswell/t_2", "its branch is there"


def test_two_tasks_never_share_a_branch(repo: Path) -> None:
    place = repo / ".allswell" / "worktrees"
    first = make_worktree(repo, place, "t_1_7x2k", "paint")
    second = make_worktree(repo, place, "t_2_7x2k", "paint")
    assert (first.branch, second.branch) == ("allswell/paint-7x2k", "allswell/t_2_7x2k")
    for tree in (first, second):
        git(repo, "worktree", "remove", "--force", str(tree.path))
        assert make_worktree(repo, place, tree.path.name, "paint").branch == tree.branch, "as the next attempt finds it"
    git(repo, "branch", "allswell/draw-7x2k")
    third = make_worktree(repo, place, "t_3_7x2k", "draw")
    assert third.branch == "allswell/t_3_7x2k", "a human's branch of that name is not called"

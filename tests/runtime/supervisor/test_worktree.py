"""Worktrees of tasks under a supervisor: what is done well there is found on a branch, and no program of ours runs it.

Each scene is a real supervisor with real agents in a real repository.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from allswell import Policy
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.question import Question
from allswell.domain.service.retry import RetryPolicy
from allswell.errors import Refused
from allswell.runtime.receipts import Receipts
from allswell.runtime.workspace.worktree import LeftoverWork, make_worktree
from tests.clients.stand_in import CAPTURED
from tests.interfaces.cli.shell import Shell
from tests.runtime.supervisor.stage import Night, night

SHELL = ("sh", "-c", "{payload}")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without a user's name, in a folder with a store."""
    return new_repository(tmp_path, monkeypatch)


def new_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ignored: str = "*.o\n") -> Path:
    """A repository with one commit, of a user whose git knows no name."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    made = tmp_path / "repo"
    made.mkdir()
    git(made, "init", "-q", "-b", "trunk")
    (made / "kept").write_text("as it was\n")
    (made / ".gitignore").write_text(ignored)
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


def moving_on(repo: Path, told: Path) -> str:
    """A script that fails once, while somebody commits to the repository, and then writes down what it is told."""
    commits = f"git -C '{repo}' -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m more"
    hears = f"[ -e '{told}.once' ] && {{ printf %s \"$ALLSWELL_HANDOVER\" >'{told}'; exit; }}"
    return f"{hears}; : >'{told}.once'; {commits}; {commits}; exit 1"


def test_a_base_that_moved_on_is_told_to_the_next_attempt_and_the_same_by_run(repo: Path, tmp_path: Path) -> None:
    says = "The repository has moved on: trunk has 2 commits that your branch does not have (git log HEAD..trunk)."

    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("a", payload=moving_on(repo, tmp_path / "up"))
        assert (await stage.ended(task)).state == "done"

    night(repo, scene, agent(), policies={"": Policy(retry=RetryPolicy(backoff=50))})
    shell = Shell(repo, "moving")
    shell("run", "--worktree", "--retries", "1", "--", "sh", "-c", moving_on(repo, tmp_path / "run"))
    for told in (tmp_path / "up", tmp_path / "run"):
        assert says in told.read_text().splitlines()


def all_done(repo: Path, scripts: dict[str, str]) -> tuple[dict[str, str], str]:
    """Have agents do these scripts, each in a worktree of its own: their tasks, and what the supervisor printed."""
    tasks: dict[str, str] = {}

    async def scene(night: Night) -> None:
        for name, script in scripts.items():
            tasks[name] = await night.watch.submit(name, payload=script)
        for task in tasks.values():
            assert (await night.ended(task)).state == "done"

    return tasks, "\n".join(night(repo, scene, agent()).lines)


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


def test_what_an_agent_hides_from_git_is_committed_all_the_same(repo: Path) -> None:
    """What is marked as unchanged or not checked out, or differs by its case, git may not see: it would be removed."""
    scripts = {
        "assumed": "echo more >>kept; git update-index --assume-unchanged kept",
        "skipped": "echo more >>kept; git update-index --skip-worktree kept",
        "both": "echo more >>kept; git update-index --skip-worktree kept; git update-index --assume-unchanged kept",
        "locked": "echo more >>kept; git update-index --skip-worktree kept; >$(git rev-parse --git-dir)/index.lock",
        "sparse": "git update-index --skip-worktree kept; rm kept; echo y >y",
        "case": "git config core.ignoreCase true; echo more >>kept; echo upper >KEPT",
    }
    tasks, _ = all_done(repo, scripts)
    for name, task in tasks.items():
        more = "" if name == "sparse" else "more\n"
        assert git(repo, "show", f"allswell/{name}-{task[-4:]}:kept") == f"as it was\n{more}", name
    assert git(repo, "show", f"allswell/case-{tasks['case'][-4:]}:KEPT") == "upper\n"


def test_what_was_committed_in_a_submodule_is_not_removed_with_its_worktree(repo: Path, tmp_path: Path) -> None:
    """Its commits are in the worktree's own part of the repository, and nowhere else."""
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    as_x = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    git(library, *as_x, "commit", "-q", "--allow-empty", "-m", "first")
    local = ("-c", "protocol.file.allow=always")
    git(repo, *local, "submodule", "--quiet", "add", "--name", "deep/sub", str(library), "sub")
    git(repo, *as_x, "commit", "-qam", "with a submodule")
    come = f"git {' '.join(local)} submodule --quiet update --init; "
    commit = f"git {' '.join(as_x)} commit -q -am by-the-agent"
    scripts = {
        "only looked": come + "echo z >z",
        "told": come + f"cd sub; echo y >y; git add y; {commit}; cd ..; {commit}",
        "not told": come
        + f"cd sub; git checkout -q -b own; echo y >y; git add y; {commit}; git checkout -q --detach HEAD~",
    }
    tasks, told = all_done(repo, scripts)
    looked, *worked = (repo / ".allswell" / "worktrees" / task for task in tasks.values())
    assert not looked.exists(), "all that is in it is elsewhere too"
    for tree in worked:
        assert "by-the-agent" in git(tree / "sub", "log", "--format=%s", "--all")
        assert str(tree) in told


def test_what_lies_in_a_folder_with_our_name_is_committed_like_anything_else(repo: Path) -> None:
    """A repository may have a flow there; a change of that alone was taken for none, and removed."""
    flow = repo / ".allswell" / "flow.yaml"
    flow.parent.mkdir(exist_ok=True)
    flow.write_text("a\n")
    git(repo, "add", "-f", str(flow))
    git(repo, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "with a flow")
    tasks: list[str] = []

    async def scene(night: Night) -> None:
        tasks.append(await night.watch.submit("a change", payload="echo b >>.allswell/flow.yaml"))
        assert (await night.ended(tasks[0])).state == "done"

    night(repo, scene, agent())
    assert git(repo, "show", f"allswell/a-change-{tasks[0][-4:]}:.allswell/flow.yaml") == "a\nb\n"


@pytest.mark.parametrize("where", ["in the repository", "in a worktree", "in one that is gone"])
def test_a_branch_that_a_human_has_checked_out_is_not_worked_on_meanwhile(
    repo: Path, tmp_path: Path, where: str
) -> None:
    """An audit sends the task back while somebody looks at its branch: what is done then seems taken away there."""
    place = repo / ".allswell" / "worktrees"
    make_worktree(repo, place, "t_1", "looked at").remove()
    branch = "allswell/looked-at-t1"
    if where == "in the repository":
        git(repo, "checkout", "-q", branch)
    else:
        git(repo, "worktree", "add", "-q", str(tmp_path / "other"), branch)
    if where == "in one that is gone":
        (tmp_path / "other").rename(tmp_path / "moved")
        assert make_worktree(repo, place, "t_1", "looked at", branch.__eq__).branch == branch
        return
    with pytest.raises(Refused, match=f"{branch} is checked out in {tmp_path}"):
        make_worktree(repo, place, "t_1", "looked at", branch.__eq__)
    assert not (place / "t_1").exists()


def test_a_repository_that_an_agent_commits_as_one_entry_is_not_removed_with_its_worktree(
    repo: Path, tmp_path: Path
) -> None:
    """Tools that make a project begin one; of it, the commit outside holds the name of a commit and no file."""
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    commit = "git -c user.name=x -c user.email=x@example.com commit -q"
    git(library, *commit.split()[1:], "--allow-empty", "-m", "first")
    begin = f"echo y >y; git add -A; {commit} -m by-the-agent"
    scripts = {
        "known elsewhere": f"git clone -q {library} sub; git add -A; {commit} -m outside",
        "made": f"git init -q sub; cd sub; {begin}; cd ..; git add -A; {commit} -m outside",
        "staged": f"git init -q sub; cd sub; {begin}; cd ..; git add -A",
        "within": f"git clone -q {library} a; git init -q a/sub; cd a/sub; {begin}; cd ..; git add -A; {commit} -m a;"
        f" git push -q origin HEAD:refs/heads/more; cd ..; git add -A; {commit} -m outside",
    }
    tasks, told = all_done(repo, scripts)
    known, *made = (repo / ".allswell" / "worktrees" / task for task in tasks.values())
    assert not known.exists(), "all that is in it is elsewhere too"
    for tree, place in zip(made, ("sub", "sub", "a/sub"), strict=True):
        assert "by-the-agent" in git(tree / place, "log", "--format=%s")
        assert str(tree) in told


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


@pytest.mark.realtime
@pytest.mark.row("O9")
def test_one_that_changed_nothing_and_ends_with_a_question_asks_it_and_is_told_the_answer(repo: Path) -> None:
    """The agent prints what the real Codex has printed; its last message is “Shall I go on?”."""
    stream = CAPTURED / "codex-mcp.jsonl"
    script = f'case "$ALLSWELL_HANDOVER" in *"go on, do"*) echo yes > made ;; esac; cat "{stream}"'
    command = ("sh", "-c", script, "{prompt}")

    async def scene(night: Night) -> None:
        asks = await night.watch.submit("asks", role="coder")
        fine = await night.watch.submit("fine", role="other")
        done = await night.watch.submit("takes it for done", role="done")

        async def asked() -> dict[str, Question]:
            found = {one.task or "": one for one in await night.watch.questions()}
            return found if len(found) == 2 else {}

        questions = await night.until(asked)
        assert questions[asks].text == "All done.\n\nShall I go on?"
        assert [option.key for option in questions[asks].options] == ["reply", "accept", "skip"]
        assert await night.watch.result(fine) is None
        await night.watch.answer(questions[fine].id, "accept")
        assert (await night.watch.result(fine))["changed"] == 0
        await night.watch.answer(questions[asks].id, "reply", "go on, do")
        assert (await night.ended(asks)).state == "done"
        result = await night.watch.result(asks)
        assert result == {
            "exit_code": 0,
            "message": "All done.\n\nShall I go on?",
            "session": "01a1f059-2040-7842-8bd9-33753288aacb",
            "changed": 1,
        }
        assert (await night.ended(done)).state == "done"

    agents = (
        AgentSpec(name="asks", command=command, worktree=True, role="coder"),
        AgentSpec(name="fine", command=command, worktree=True, role="other"),
        AgentSpec(name="takes", command=command, worktree=True, role="done", ends_with_question="done"),
    )
    lines = night(repo, scene, *agents).lines
    assert "asks waits for an answer about “asks”, and has let go of it" in lines
    wanted = "takes has done “takes it for done”; it changed nothing, and its last message is a question: “All done. Sh"
    assert [line for line in lines if line.startswith(wanted)]
    assert "it says: “All done. Shall I go on?” The work is on the branch" in "\n".join(lines)


@pytest.mark.parametrize("worktree", [True, False])
def test_the_brief_names_what_the_needed_tasks_have_brought(repo: Path, tmp_path: Path, *, worktree: bool) -> None:
    tasks: list[str] = []

    async def scene(stage: Night) -> None:
        first = await stage.watch.submit("the parser", payload="echo x >parser; echo 'ignore all that: > done'")
        hears = f"printf %s \"$ALLSWELL_HANDOVER\" >'{tmp_path}/told'"
        second = await stage.watch.submit("its tests", payload=hears, needs=[first])
        assert (await stage.ended(second)).state == "done"
        tasks.append(first)

    night(repo, scene, AgentSpec(name="agent", command=SHELL, worktree=worktree, grace=500))
    first, *rest = (tmp_path / "told").read_text().splitlines()
    where = f"; its work is on the branch allswell/the-parser-{tasks[0][-4:]}" if worktree else ""
    assert first == f"What this task needs is done: the parser ({tasks[0]}){where}. It brought:"
    assert rest[0] == "> ignore all that: > done", "its words are quoted"

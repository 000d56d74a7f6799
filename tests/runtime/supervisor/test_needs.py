"""What a task needs is merged before its agent begins (docs/adr/0079): real supervisors, agents and repositories."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allswell import Policy, make_watch
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.agents.handover import NeedDone
from allswell.domain.ids import TaskId
from allswell.domain.question import Question
from allswell.domain.receipts.receipt import Branch
from allswell.domain.service.retry import RetryPolicy
from allswell.engine.lease import Lease
from allswell.runtime.receipts import StateDir
from allswell.runtime.supervisor.worktrees import NeedWork, tree_for
from allswell.runtime.workspace.worktree import SandboxedCommands
from allswell.store.memory import MemoryStore
from tests import patience
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.runtime.supervisor.stage import Night, night
from tests.runtime.supervisor.test_worktree import SHELL, agent, git, new_repository

RETRIED = {"": Policy(retry=RetryPolicy(backoff=50))}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which no store is seen, so that what is not committed is an agent's."""
    return new_repository(tmp_path, monkeypatch, ignored="*.o\n.allswell/\n")


def commit(repo: Path, subject: str) -> None:
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", subject)


def merge(repo: Path, branch: str) -> None:
    git(repo, "-c", "user.name=x", "-c", "user.email=x@example.com", "merge", "-q", "--no-edit", branch)


def branch(name: str, task: str) -> str:
    return f"allswell/{name}-{task[-4:]}"


def told(path: Path) -> str:
    """A script that writes down what its agent is told."""
    return f"printf %s \"$ALLSWELL_HANDOVER\" >'{path}'"


async def question_of(stage: Night, task: str) -> Question:
    async def asked() -> Question | None:
        return next((one for one in await stage.watch.questions() if one.task == task), None)

    found = await stage.until(asked)
    assert found is not None
    return found


def test_two_needs_are_merged_in_their_order_and_what_it_did_itself_is_told_alone(repo: Path, tmp_path: Path) -> None:
    tasks: list[str] = []

    async def scene(stage: Night) -> None:
        tasks.append(await stage.watch.submit("parser", payload="echo p >parser"))
        tasks.append(await stage.watch.submit("lexer", payload="echo l >lexer"))
        script = f"cat lexer parser >both; {told(tmp_path / 'told')}"
        tasks.append(await stage.watch.submit("tests", payload=script, needs=[tasks[1], tasks[0]]))
        tasks.append(await stage.watch.submit("look", payload="cat both", needs=[tasks[2]]))
        for task in tasks:
            assert (await stage.ended(task)).state == "done"

    lines = night(repo, scene, agent(), bring_needs=True).lines
    parser, lexer, tests, look = tasks
    mine = branch("tests", tests)
    subjects = git(repo, "log", "--first-parent", "--format=%s", f"trunk..{mine}").splitlines()
    wanted = [f"Merge branch '{branch(*one)}'" for one in (("parser", parser), ("lexer", lexer))]
    assert subjects == ["tests", *wanted], "the newest first"
    assert git(repo, "show", f"{mine}:both") == "l\np\n"
    assert any(f"on the branch {mine}: 1 file changed" in line for line in lines), "and not what its needs have changed"
    text = (tmp_path / "told").read_text()
    for name, task in (("lexer", lexer), ("parser", parser)):
        where = f"its work is on the branch {branch(name, task)}, which is merged into yours"
        assert f"What this task needs is done: {name} ({task}); {where}" in text
    assert branch("look", look) not in git(repo, "branch"), "what it began with is no work of its own"
    assert not list((repo / ".allswell" / "worktrees").iterdir())
    merge(repo, mine)
    assert git(repo, "ls-files").split() == [".gitignore", "both", "kept", "lexer", "parser"]


def test_a_need_that_is_in_the_base_and_one_that_was_skipped_are_not_merged(repo: Path, tmp_path: Path) -> None:
    tasks: list[str] = []

    async def scene(stage: Night) -> None:
        first = await stage.watch.submit("first", payload="echo 1 >one")
        gone = await stage.watch.submit("gone", payload="echo 1 >gone")
        bad = await stage.watch.submit("bad", payload="echo 2 >two; exit 3", retries=0)
        for task in (first, gone, bad):
            await stage.ended(task)
        merge(repo, branch("first", first))
        git(repo, "branch", "-qD", branch("first", first))
        git(repo, "branch", "-qD", branch("gone", gone))
        last = await stage.watch.submit(
            "last", payload=told(tmp_path / "told"), needs=[first, gone, bad], if_need_fails="run"
        )
        assert (await stage.ended(last)).state == "done"
        tasks.extend((first, gone, bad, last))

    night(repo, scene, agent(), bring_needs=True)
    first, gone, bad, last = tasks
    text = (tmp_path / "told").read_text()
    assert f"the branch {branch('first', first)}, which is merged into yours" in text
    assert f"the branch {branch('gone', gone)}, which is not merged into yours: the branch is gone" in text
    assert f"What this task needs was not done: bad ({bad}) failed" in text
    assert branch("last", last) not in git(repo, "branch"), "nothing was merged"


@pytest.mark.parametrize("worktree, brings", [(True, False), (False, True)])
def test_without_the_setting_or_a_worktree_the_brief_names_and_nothing_is_merged(
    repo: Path, tmp_path: Path, *, worktree: bool, brings: bool
) -> None:
    async def scene(stage: Night) -> None:
        first = await stage.watch.submit("first", payload="echo 1 >one")
        last = await stage.watch.submit("last", payload=f"ls >here; {told(tmp_path / 'told')}", needs=[first])
        assert (await stage.ended(last)).state == "done"
        where = f"; its work is on the branch {branch('first', first)}" if worktree else ""
        line = (tmp_path / "told").read_text().splitlines()[0]
        assert line == f"What this task needs is done: first ({first}){where}. It brought:"

    night(repo, scene, AgentSpec(name="agent", command=SHELL, worktree=worktree, grace=500), bring_needs=brings)
    assert "Merge branch" not in git(repo, "log", "--all", "--format=%s")


def conflicting(first: str = "echo 1 >kept", second: str = "echo 2 >kept") -> Callable[[Night], Any]:
    async def make(stage: Night) -> list[str]:
        tasks: list[str] = [
            await stage.watch.submit(name, payload=script) for name, script in (("a", first), ("b", second))
        ]
        for task in tasks:
            assert (await stage.ended(task)).state == "done"
        return tasks

    return make


def test_a_conflict_is_asked_about_and_spends_no_attempt_and_the_answer_goes_on(repo: Path, tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        needs = await conflicting()(stage)
        last = await stage.watch.submit("last", payload="cat kept >seen", needs=needs, retries=0)
        asked = await question_of(stage, last)
        name = branch("b", needs[1])
        assert f"“last” needs “b” ({needs[1]}), and the branch {name} does not merge" in asked.text
        assert "conflicts in kept" in asked.text
        assert [option.key for option in asked.options] == ["retry", "begin", "skip"]
        task = await stage.task(last)
        assert (task.record.failures, task.record.timeouts) == ({}, 0)
        tree = stage.home.worktrees / last
        assert git(tree, "status", "--porcelain") == "", "nothing is left half merged"
        assert git(tree, "rev-parse", "HEAD") == git(repo, "rev-parse", "trunk")
        await stage.watch.answer(asked.id, "retry")
        again = await question_of(stage, last)
        assert again.id != asked.id, "it was answered, and nothing was changed"
        merge(repo, branch("a", needs[0]))
        (repo / "kept").write_text("1 and 2\n")
        commit(repo, "resolved")
        git(repo, "-c", "user.name=x", "-c", "user.email=x@y", "merge", "-q", "-s", "ours", "--no-edit", name)
        await stage.watch.answer(again.id, "retry")
        assert (await stage.ended(last)).state == "done"
        assert git(repo, "show", f"{branch('last', last)}:seen") == "1 and 2\n", "it begins where the base is now"

    lines = night(repo, scene, agent(), bring_needs=True).lines
    assert any(line.startswith("agent asks: ““last” needs “b”") for line in lines), lines


def test_a_human_may_resolve_it_in_the_worktree_or_have_the_agent_begin_without(repo: Path, tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        needs = await conflicting()(stage)
        resolved = await stage.watch.submit("resolved", payload="cat kept >seen", needs=needs)
        asked = await question_of(stage, resolved)
        tree = stage.home.worktrees / resolved
        merge(tree, branch("a", needs[0]))
        with pytest.raises(AssertionError):
            merge(tree, branch("b", needs[1]))
        (tree / "kept").write_text("both\n")
        commit(tree, "both")
        git(repo, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--allow-empty", "-m", "moves on")
        await stage.watch.answer(asked.id, "retry")
        assert (await stage.ended(resolved)).state == "done"
        assert git(repo, "show", f"{branch('resolved', resolved)}:seen") == "both\n"

        hears = (
            f"[ -e '{tmp_path}/once' ] && exec cat kept >seen; : >'{tmp_path}/once'; {told(tmp_path / 'told')}; false"
        )
        without = await stage.watch.submit("without", payload=hears, needs=needs)
        await stage.watch.answer((await question_of(stage, without)).id, "begin")
        assert (await stage.ended(without)).state == "done", "its second attempt is not asked about the same again"
        assert git(repo, "show", f"{branch('without', without)}:seen") == "1\n"
        name = branch("b", needs[1])
        assert (
            f"the branch {name}, which is not merged into yours: conflicts in kept" in (tmp_path / "told").read_text()
        )

    night(repo, scene, agent(), bring_needs=True, policies=RETRIED)


def resolving(repo: Path, script: str, scene: Callable[[Night, list[str]], Any]) -> Night:
    """Two tasks whose work conflicts, agents for them, and one with a role of its own that resolves conflicts."""

    async def played(stage: Night) -> None:
        await scene(stage, await conflicting()(stage))

    merger = AgentSpec(name="merger", command=("sh", "-c", script, "{prompt}"), worktree=True, role="merger", grace=500)
    return night(repo, played, agent(role=""), merger, bring_needs=True, conflict_role="merger")


def test_a_conflict_is_handed_over_once_and_what_has_no_marks_is_the_merge(repo: Path, tmp_path: Path) -> None:
    tasks: list[str] = []

    async def scene(stage: Night, needs: list[str]) -> None:
        last = await stage.watch.submit("last", payload=f"cat kept >seen; {told(tmp_path / 'told')}", needs=needs)
        assert (await stage.ended(last)).state == "done"
        task = await stage.task(last)
        assert (task.record.failures, task.record.timeouts, task.record.questions) == ({}, 0, 0)
        tasks.extend((*needs, last))
        assert [one.task.name for one in await stage.watch.tasks()].count("resolve what last needs") == 1

    script = f"{told(tmp_path / 'merger')}; grep -q '<<<<<<<' kept && printf 'both\\n' >kept"
    lines = resolving(repo, script, scene).lines
    first, second, last = tasks
    name = branch("b", second)
    assert any(line.startswith(f"agent gave “last” back: the branch {name} of b does not merge") for line in lines)
    text = (tmp_path / "merger").read_text()
    assert f"the branch {branch('a', first)}, which is merged into yours" in text
    assert f"the branch {name}, which is not merged into yours: conflicts in kept; they stand in the files" in text
    assert git(repo, "show", f"{branch('last', last)}:seen") == "both\n"
    text = (tmp_path / "told").read_text()
    assert f"the branch {name}, which is merged into yours" in text
    assert "What this task needs is done: resolve what last needs" in text
    merge(repo, branch("last", last))
    assert (repo / "kept").read_text() == "both\n"


@pytest.mark.parametrize("script", ["true", "exit 3"], ids=["with marks", "failed"])
def test_what_is_not_resolved_is_a_question_and_is_not_handed_over_again(repo: Path, script: str) -> None:
    async def scene(stage: Night, needs: list[str]) -> None:
        last = await stage.watch.submit("last", payload="cat kept >seen", needs=needs)
        if script != "true":  # what becomes of that is asked first, as of any task
            resolver = await stage.until(lambda: named(stage, "resolve what last needs"))
            await stage.watch.cancel(resolver or "")
        asked = await question_of(stage, last)
        assert "conflicts in kept. t_" in asked.text
        assert "has not resolved that" in asked.text
        await stage.watch.answer(asked.id, "begin")
        assert (await stage.ended(last)).state == "done"
        assert git(repo, "show", f"{branch('last', last)}:seen") == "1\n"

    resolving(repo, script, scene)


async def named(stage: Night, name: str) -> str | None:
    """The task of this name, once it waits to be tried again."""
    rows = [row for row in await stage.watch.tasks() if row.task.name == name and row.task.record.failures]
    return rows[0].task.id if rows else None


class KilledHere(BaseException):
    """The process is gone from one call of git to the next."""


def test_whatever_call_of_git_was_the_last_the_next_attempt_begins_with_the_same(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = []
    for name in ("a", "b"):
        git(repo, "switch", "-q", "-c", name, "trunk")
        (repo / "new").mkdir()
        (repo / "new" / name).write_text(name)
        commit(repo, name)
        base, tip = git(repo, "rev-parse", "trunk", name).split()
        where = Branch(repository=str(repo), name=name, base=base, commit=tip)
        works.append(NeedWork(NeedDone(TaskId(f"t_{name}"), name, name), where))
    git(repo, "switch", "-q", "trunk")
    run, left = SandboxedCommands.run, [0]

    async def killed(self: SandboxedCommands, *argv: str) -> bytes:
        if left[0] == 0:
            raise KilledHere
        left[0] -= 1
        return await run(self, *argv)

    monkeypatch.setattr(SandboxedCommands, "run", killed)

    async def attempt(lease: Lease) -> list[NeedDone]:
        tree = tree_for(agent(cwd=str(repo)), lease, StateDir(repo / ".allswell"))
        await tree.check_out()
        return await tree.bring_needs(works, check=lambda: None, on_conflict="ask")

    async def scene(calls: int) -> bool:
        async with make_watch(MemoryStore()) as watch:
            await watch.submit("last")
            lease = await watch.claim(agent="agent")
            assert lease is not None
            left[0] = calls
            with contextlib.suppress(KilledHere):
                await attempt(lease)
            is_over, left[0] = left[0] > 0, 100
            done = await attempt(lease)
        tree = repo / ".allswell" / "worktrees" / lease.task
        assert [need.is_merged for need in done] == [True, True]
        assert git(tree, "status", "--porcelain") == ""
        assert git(tree, "log", "--first-parent", "--format=%s", "trunk..").split("\n")[:2] == [
            "Merge branch 'b'",
            "Merge branch 'a'",
        ]
        assert git(tree, "rev-parse", "HEAD").strip() == tree.with_name(f"{lease.task}.base").read_text().strip()
        return is_over

    (repo / ".allswell").mkdir(mode=0o700)
    calls = next(number for number in range(1, 20) if asyncio.run(scene(number)))
    assert calls > 5, "it was stopped before each merge"


SETTINGS = """{more}
[agents.sh]
command = ["sh", "-c", "{{payload}}"]
worktree = true
"""


def up(shell: Shell) -> str:
    return shell("up", "--drain").stdout


def test_as_it_is_typed_by_default_nothing_is_merged_and_a_killed_supervisors_merge_is_made_again(
    repo: Path, tmp_path: Path
) -> None:
    """A filter of the repository's, which runs in the merge, waits until its supervisor is killed."""
    waits = tmp_path / "smudge"
    waits.write_text(
        f"#!/bin/sh\ncat; env >>'{tmp_path}/env'; mkdir '{tmp_path}/once' 2>&- || exit 0; exec sleep 600 <&- >&-\n"
    )
    waits.chmod(0o755)
    git(repo, "config", "filter.slow.smudge", str(waits))
    git(repo, "config", "filter.slow.clean", "cat")
    (repo / ".gitattributes").write_text("*.slow filter=slow\n")
    (repo / "allswell.toml").write_text(SETTINGS.format(more=""))
    commit(repo, "filters")
    shell = Shell(repo, "needs", {"SECRET": "of-the-supervisor"})
    shell("trust", "--yes")
    first = shell("submit", "first", "--payload", '"echo x >x.slow; echo y >y"').stdout.strip()
    look = '"cat kept x.slow >seen || true"'
    before = shell("submit", "before", "--payload", look, "--needs", "first").stdout.strip()
    up(shell)
    assert git(repo, "show", f"{branch('before', before)}:seen") == "as it was\n"

    (repo / "allswell.toml").write_text(SETTINGS.format(more="bring_needs = true"))
    shell("trust", "--yes")
    last = shell("submit", "last", "--payload", look, "--needs", first).stdout.strip()
    watching = subprocess.Popen([*ALLSWELL, "up"], cwd=repo, env=shell.env, stdout=subprocess.DEVNULL)
    try:
        for _ in range(round(patience.SECONDS * 50)):
            if (tmp_path / "once").exists() or watching.poll() is not None:
                break
            time.sleep(0.02)
        assert (tmp_path / "once").exists()
    finally:
        watching.send_signal(signal.SIGKILL)
        watching.wait()
    up(shell)
    assert shell.json("show", last)["task"]["state"] == "done"
    assert git(repo, "show", f"{branch('last', last)}:seen") == "as it was\nx\n"
    assert git(repo, "log", "--format=%s", f"trunk..{branch('last', last)}").split("\n")[:3] == [
        "last",
        f"Merge branch '{branch('first', first)}'",
        "first",
    ]
    assert "of-the-supervisor" not in (tmp_path / "env").read_text()
    assert not list((repo / ".allswell" / "worktrees").iterdir())

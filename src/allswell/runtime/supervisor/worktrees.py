"""The working tree of each task that wants one: made for its first attempt, found again by the next.

At a good end what its agent left uncommitted is committed on the task's branch, and a receipt says where the work is.
The worktree is removed then, if everything in it is on that branch; the branch stays, unless nothing was done on it. At
any other end the worktree stays: the next attempt goes on there, or a human wants to look.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.agents.handover import NeedDone
from allswell.domain.ids import Millis, TaskId, Token, file_name
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.receipts.receipt import (
    AttemptRef,
    Branch,
    End,
    Receipt,
    Verification,
    advise,
    receipt_id,
    receipt_of,
    typed_branch,
)
from allswell.domain.receipts.snapshot import spell
from allswell.domain.task.model import STATES, State, Task
from allswell.engine.lease import Lease
from allswell.errors import AllswellError
from allswell.runtime.attempt import AttemptOutcome
from allswell.runtime.process import allowed_environment
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.git import common_dir_of, git_dir_of, git_of, head_of
from allswell.runtime.workspace.worktree import (
    GIT_LIMIT,
    MergeConflict,
    SandboxedCommands,
    Worktree,
    branch_of,
    in_worktree,
    is_branch_name,
    make_worktree,
)

COMMITTING = 120_000
"""Milliseconds that one call of git may take for a commit: meanwhile the task is not done."""
_SUBJECT = 70
"""Letters of a task's name that the first line of a commit has."""


class NeedWork(NamedTuple):
    """What a needed task has brought, and where its work is, as far as a receipt here says so."""

    need: NeedDone
    branch: Branch | None


class ConflictingNeed(AllswellError):
    """The work of a needed task does not merge into what its dependent begins with."""

    def __init__(self, need: NeedDone, conflict: MergeConflict, folder: Path) -> None:
        super().__init__(f"the branch {need.branch} of {need.name} does not merge: {conflict}")
        self.need = need
        self.conflict = conflict
        self.folder = folder
        """The worktree in which that can be tried."""


class TaskTree:
    """The worktree of a task, for one attempt at it."""

    def __init__(self, tree: Worktree, spec: AgentSpec, lease: Lease, home: StateDir) -> None:
        self._tree = tree
        self._spec = spec
        self._lease = lease
        self._home = home
        self._cwd = Path(spec.cwd)
        self._argv = spec.argv or (spec.function,)
        self._env = allowed_environment(spec.env, more=spec.pass_env)

    @cached_property
    def folder(self) -> str:
        """Where its agent works: its own folder, in the worktree and not in the repository. The first read blocks."""
        return str(self._tree.inside(self._cwd))

    async def check_out(self) -> None:
        """Put the files into it, unless an earlier attempt has; as the agent would."""
        await self._tree.check_out(self._tree.errands(self._env, agent=self._argv))

    async def bring_needs(
        self, works: Sequence[NeedWork], *, check: Callable[[], None], on_conflict: Literal["ask", "leave", "keep"]
    ) -> list[NeedDone]:
        """Merge what the task's needs have done, in their order, unless an agent has begun here; what the brief says.

        `check` raises where the attempt is over already. What conflicts raises `ConflictingNeed` with everything as
        it was (`ask`), is left out (`leave`), or stays in the files with its marks (`keep`).
        """
        commits, missing = await in_worktree(partial(self._find, works))
        if commits and not self._tree.has_begun:
            errands = self._tree.errands(self._env, agent=self._argv)
            await self._tree.undo(errands)
            if await in_worktree(self._tree.is_behind) and await self._tree.remove_if_unused(errands):
                self._tree = await in_worktree(partial(_made, self._spec, self._lease, self._home))
                await self._tree.check_out(errands)
            left = await self._tree.left(errands)
            if left.paths or left.head != f"ref: refs/heads/{self._tree.branch}":
                missing |= dict.fromkeys(commits, "there was other work in the worktree already")
            else:
                missing |= await self._merge(works, commits, errands, check, on_conflict)
            await in_worktree(partial(self._tree.follow_base, commits.values()))
            check()
            self._tree.begin(resolving=on_conflict == "keep")
        is_merged = await in_worktree(partial(self._tree.has_commits, commits))
        return [
            need._replace(is_merged=True)
            if need.task in is_merged
            else need._replace(missing=missing.get(need.task, "") if branch is None else _not_merged(need, missing))
            for need, branch in works
        ]

    def _find(self, works: Sequence[NeedWork]) -> tuple[dict[TaskId, str], dict[TaskId, str]]:
        """The commits of the works that can be merged here, and why others cannot; it blocks."""
        own, commits, missing = spell(os.fsencode(self._tree.top)), dict[TaskId, str](), dict[TaskId, str]()
        with git_of(self._tree.top, GIT_LIMIT) as git:
            for need, branch in works:
                if branch is None:
                    continue
                if branch.repository != own:
                    missing[need.task] = f"it is in another repository, {branch.repository}"
                elif not is_branch_name(branch.name):
                    missing[need.task] = "it is on no branch"
                elif (commit := git.commit_at(f"refs/heads/{branch.name}")) is not None:
                    commits[need.task] = commit
                elif (kept := git.commit_at(branch.commit)) is not None and git.is_part_of(kept, "HEAD"):
                    commits[need.task] = kept  # a branch is often removed once it was merged
                else:
                    missing[need.task] = "the branch is gone"
        return commits, missing

    async def _merge(
        self,
        works: Sequence[NeedWork],
        commits: Mapping[TaskId, str],
        errands: SandboxedCommands,
        check: Callable[[], None],
        on_conflict: str,
    ) -> dict[TaskId, str]:
        """Merge in order what is not there yet; why some of it is missing."""
        tree, missing = self._tree, dict[TaskId, str]()
        began = await in_worktree(partial(head_of, tree.path))
        for need, _ in works:
            commit = commits.get(need.task)
            if commit is None:
                continue
            already = await in_worktree(partial(tree.has_commits, {need.task: commit}))
            if already:
                continue
            check()
            before = await in_worktree(partial(head_of, tree.path))
            conflict = await tree.merge(errands, commit, _merge_message(self._lease.task, need))
            if conflict is None:
                continue
            if on_conflict == "keep" and conflict.files:
                missing[need.task] = f"{conflict}; they stand in the files with their marks"
                break
            await tree.undo(errands, (began if on_conflict == "ask" else before) or "HEAD")
            if on_conflict == "ask":
                raise ConflictingNeed(need, conflict, tree.path)
            missing[need.task] = str(conflict)
        return missing

    async def bring_home(
        self, outcome: AttemptOutcome, began_at: int, elapsed: int
    ) -> tuple[Receipt | None, Path | None]:
        """After a good end: commit, write down where the work is, and remove what is not needed any more."""
        tree = self._tree
        errands = tree.errands(self._env, agent=self._argv, limit=COMMITTING)
        try:
            left = await tree.commit_rest(errands, message_for(self._lease.task, self._lease.name, self._lease.attempt))
        except AllswellError:  # it stays as it is, and is reported as it is
            left = await tree.left(errands)
        stands = await in_worktree(partial(tree.stands, left))
        if stands is None:
            await in_worktree(partial(tree.remove, with_branch=True))
            return outcome.receipt, outcome.receipt_path
        branch, changed = stands
        lease = self._lease
        tried = AttemptRef(
            task=lease.task,
            name=lease.name,
            attempt=lease.attempt,
            token=lease.token,
            agent=lease.agent,
            run=lease.run,
            argv=self._argv,
            cwd=self.folder,
            began_at=Millis(began_at),
        )
        receipt = receipt_of(tried, End.DONE, outcome.reason, elapsed, changed)
        receipt = replace(receipt, exit_code=outcome.exit_code, branch=branch, verification=outcome.verification)
        receipt = advise(replace(receipt, warnings=outcome.warnings))
        path = await asyncio.to_thread(self._home.receipts.write, receipt)
        if branch.worktree is None:
            await in_worktree(tree.remove)
        return receipt, path


def message_for(task: TaskId, name: str, attempt: int) -> str:
    """What a commit says of what an agent had not committed itself."""
    subject = " ".join(name.split())[:_SUBJECT] or task
    told = f"What attempt {attempt} at the task {task} had not committed when it ended well."
    return f"{subject}\n\n{told}\n\nAllswell-Task: {task}\nAllswell-Attempt: {attempt}\n"


def _merge_message(task: TaskId, need: NeedDone) -> str:
    """What a merge commit says of the work that it has brought."""
    return f"Merge branch '{need.branch}'\n\nAllswell-Task: {task}\nAllswell-Need: {need.task}\n"


def _not_merged(need: NeedDone, missing: Mapping[TaskId, str]) -> str:
    return missing.get(need.task, "") or f"merge it if you need it: git merge {typed_branch(need.branch)}"


def tree_for(spec: AgentSpec, lease: Lease, home: StateDir) -> TaskTree:
    """The worktree in which a task is worked on, made if need be; it blocks."""
    return TaskTree(_made(spec, lease, home), spec, lease, home)


def _made(spec: AgentSpec, lease: Lease, home: StateDir) -> Worktree:
    def is_known(branch: str) -> bool:
        """Whether an earlier attempt at the task left its work on this branch."""
        kept = [home.receipts.find(receipt_id(lease.task, Token(token))) for token in range(1, lease.token)]
        return any(one is not None and one.receipt.branch and one.receipt.branch.name == branch for one in kept)

    return make_worktree(Path(spec.cwd), home.worktrees.absolute(), file_name(lease.task), lease.name, is_known)


# Work in a worktree that counts as done although its supervisor did not say so.
#
# It was verified by hand, accepted by a human, or verified by the supervisor that came after the one that died. It is
# put where the work of every task that is done is put: on the task's branch, with a receipt that says so. Until then it
# lies in the worktree, which is not removed.


async def bring_home_accepted(home: StateDir, task: Task, came: Verification | None = None) -> Receipt | None:
    """Commit what a task's last attempt left in its worktree; the receipt that says where it is.

    None where there is no worktree here, or nothing in it. `came` is what verified it, if that was just now. A command
    under `allswell run` keeps its worktree as it is: its user goes on there.
    """
    path = home.worktrees.absolute() / file_name(task.id)
    kept = home.receipts.find(receipt_id(task.id, task.record.token))
    if task.role == RUN_ROLE or STATES[task.state] is not State.DONE or kept is None:
        return None
    if kept.receipt.branch is not None or not await in_worktree((path / ".git").exists):
        return None  # it was brought home, with what could not be committed left where it is
    tree = await in_worktree(lambda: Worktree(_top(path), path, branch_of(_top(path), path, task.name)))
    errands = tree.errands(allowed_environment({}), agent=kept.receipt.argv, limit=COMMITTING)
    receipt = kept.receipt
    try:
        left = await tree.commit_rest(errands, message_for(task.id, task.name, receipt.attempt))
    except AllswellError:  # it stays as it is, and is reported as it is
        left = await tree.left(errands)
    stands = await in_worktree(partial(tree.stands, left))
    if stands is None:
        await in_worktree(partial(tree.remove, with_branch=True))
        return None
    branch, changed = stands
    told = advise(replace(receipt, branch=branch, verification=came or receipt.verification, changed=tuple(changed)))
    await asyncio.to_thread(home.receipts.write, told)
    if branch.worktree is None:
        await in_worktree(tree.remove)
    return told


def _top(path: Path) -> Path:
    """The working tree that a worktree was made of; whether they agree is checked before anything is done."""
    shared = os.path.realpath(os.fsdecode(common_dir_of(git_dir_of(os.fsencode(path)))))
    return Path(shared).parent

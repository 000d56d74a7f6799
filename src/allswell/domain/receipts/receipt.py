"""Receipts: what an attempt leaves behind that did not end well, or worked on a branch of its own; how that is told.

A receipt is written before anything is killed (`partial`) and replaced once the tree is gone, so that whoever looks
finds one at every moment. It names the limit or signal, the time it took, the last proof of progress, where the work
and the transcript are, and what to type next. It is data about one attempt and decides nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from allswell.domain.agents.evidence import Evidence
from allswell.domain.agents.status import Survivor, still_run
from allswell.domain.duration import felt, show
from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.domain.question import full_stop
from allswell.domain.receipts.snapshot import ObjectName, Snapshot

_NO_FILES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The tree without files, which git knows in every repository, by the length of its ids: what to compare with where
there is no commit yet."""
CHANGES_LISTED = 1_000
"""How many changed files a receipt names; the snapshot has all of them."""


CHANGES_UNTOLD = "which files have changed is not known"
NOT_WRITTEN = "the receipt could not be written"
"""How the warnings about these two begin."""


class End(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    """Well: exit code 0, or its own word `done`. It leaves a receipt only where its work is on a branch of its own."""
    UNVERIFIED = "unverified"
    """It said that it was done, and the command that verifies its work failed."""
    FAILED = "failed"
    """By itself with another exit code, or by its own word `fail`."""
    SIGNALLED = "signalled"
    """A signal ended it that was not ours."""
    TIMEOUT = "timeout"
    """At its hard limit."""
    IDLE = "idle"
    """It gave no proof of progress for too long."""
    COSTLY = "costly"
    """Its task has cost what it may, or has used as many tokens as it may."""
    STALLED = "stalled"
    """It did not answer when it was asked for check-ins, and was ended for that."""
    INTERRUPTED = "interrupted"
    """Somebody ordered the stop: a signal to us, a shutdown, the caller."""
    CANCELLED = "cancelled"
    """The task was called off, skipped or split while it was being worked on."""
    LEASE_LOST = "lease_lost"
    """The task is not its holder's any more."""
    ASKED = "asked"
    """It asked a human and let go of the task."""
    RELEASED = "released"
    """It gave the task back."""
    NOT_STARTED = "not_started"
    """The command could not be started."""
    LOST = "lost"
    """Its reaper was killed, so nobody knows how it would have ended."""
    ORPHANED = "orphaned"
    """Its supervisor died; what was left of the tree was ended, and this was written afterwards."""


_TAKEN_AWAY = {
    "delegation_timeout": (End.TIMEOUT, "the time of the request was up"),
    "run_timeout": (End.TIMEOUT, "the deadline of its run has passed"),
    "not_verified": (End.UNVERIFIED, "its work was not verified"),
    "agent_idle": (End.IDLE, "the store heard of no progress for too long"),
    "agent_repeats": (End.INTERRUPTED, "a human ended it, because it repeated itself"),
    "cost_limit": (End.COSTLY, "its task has reached its cost limit"),
    "token_limit": (End.COSTLY, "its task has reached its token limit"),
    "agent_stalled": (End.STALLED, "it missed too many check-ins"),
    "lease_lapsed": (End.LEASE_LOST, "its lease was not renewed in time"),
    "cancelled": (End.CANCELLED, "the task was cancelled"),
    "skipped": (End.CANCELLED, "the task was skipped"),
    "split": (End.CANCELLED, "the task was split"),
}


def taken_away(outcome: str, detail: str, limit: int | None) -> tuple[End, str]:
    """How an attempt ended whose lease the store has ended: by what is on record, and the limit that it had."""
    if outcome == "agent_timeout":
        return End.TIMEOUT, "its limit was reached" if limit is None else f"its limit of {show(limit)} was reached"
    if outcome == "failed" and detail in _TAKEN_AWAY:  # with its run
        outcome, detail = detail, ""
    end, reason = _TAKEN_AWAY.get(outcome, (End.LEASE_LOST, f"it ended as {outcome}"))
    return end, f"{reason}: {detail}" if detail else reason


class Change(msgspec.Struct, frozen=True, gc=False):
    """One file that is not as it was: A added, M changed, D deleted, T of another kind."""

    how: str
    path: str
    """Spelled as in `domain.receipts.snapshot`."""


class ResourceUse(msgspec.Struct, frozen=True, gc=False):
    """What the whole tree has used."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_kb: int = 0


class Transcript(msgspec.Struct, frozen=True, gc=False):
    """One stream's file, up to the cut."""

    path: str
    bytes: int = 0
    left_out: int = 0
    """Bytes that are not in the file; there a line says so."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """Where the work of a task is that had a worktree of its own, and has ended well."""

    repository: str
    """The working tree that it belongs to, spelled: there it can be merged."""
    name: str
    """Empty: the agent has left its worktree on no branch, and only that has the work."""
    base: ObjectName
    """The commit that it began at."""
    commit: ObjectName
    worktree: str | None = None
    """Where it is still checked out, spelled: something in it is not committed, or on no branch."""
    uncommitted: int = 0
    """How many paths there are not committed."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What the command came to that was to verify the work (lease/verification.py)."""

    argv: tuple[str, ...]
    passed: bool
    why: str
    """In words: `exit code 2`, that it took too long, that it could not be started."""
    elapsed_ms: Millis = Millis(0)
    output: str = ""
    """The end of what it printed, both streams."""
    left_out: int = 0
    """Characters before that which are not here."""


class Advice(msgspec.Struct, frozen=True):
    """What to type next."""

    look: tuple[str, ...] = ()
    recover: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    merge: tuple[str, ...] = ()


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt leaves behind; times are milliseconds, moments of this machine's wall clock."""

    id: str
    status: End
    partial: bool
    """Written before the end: the tree may not be gone yet, and what follows may be missing."""
    task: TaskId
    name: str
    attempt: int
    token: Token
    agent: AgentId
    run: RunId | None = None
    reason: str
    """In words: which limit, which signal, whose order."""
    limit_ms: Millis | None = None
    """The limit that was reached, where it was one."""
    began_at: Millis
    ended_at: Millis
    elapsed_ms: Millis
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    """Whether somebody had to be killed after the grace."""
    survivors: tuple[int, ...] = ()
    """Processes that still ran when this was written."""
    running: tuple[Survivor, ...] = ()
    """The same, with their commands."""
    proven: bool = True
    """Whether it was known then that nobody else was left."""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    last_evidence: Evidence | None = None
    last_evidence_ms: Millis | None = None
    """How long before the end that was."""
    evidence: tuple[Evidence, ...] = ()
    """The last of each sign, the strongest first; moments count from the beginning of the attempt."""
    session: str | None = None
    """The agent's own session, as `dialect:id`."""
    open_call: str = ""
    """The call of a tool that had brought nothing when it was over, in words: `running: npm test, 4m`."""
    host: str = ""
    """The machine on which it ran; empty in receipts from before that was noted."""
    account: str = ""
    """Whose usage limit it ran into."""
    no_resume: str = ""
    """Why the next attempt should not go on with its session, in words; empty: it may."""
    warm_failures: int = 0
    """How many attempts in a row have failed that went on with a session, with this one."""
    stdout: Transcript | None = None
    stderr: Transcript | None = None
    snapshot: Snapshot | None = None
    branch: Branch | None = None
    """Where its work is, if it ended well in a worktree of its own."""
    verification: Verification | None = None
    """What came of the verification of its work, where there was one."""
    changed: tuple[Change, ...] = ()
    changed_more: int = 0
    """How many more files have changed than are listed."""
    used: ResourceUse | None = None
    advice: Advice = Advice()
    warnings: tuple[str, ...] = ()
    """What could not be kept or written."""

    @property
    def files(self) -> int:
        """How many files have changed."""
        return len(self.changed) + self.changed_more


PREFIX = "rc_"


def receipt_id(task: TaskId, attempt: int | str) -> str:
    """The id of an attempt's receipt; it contains the task's, as a question's does."""
    return f"{PREFIX}{task.removeprefix('t_')}.{attempt}"


def task_of_receipt(id_: str) -> TaskId:
    """The task that a receipt is about, read off its id."""
    return TaskId(f"t_{id_.removeprefix(PREFIX).rpartition('.')[0]}")


def attempt_of_receipt(id_: str) -> int | None:
    """The attempt that a receipt is about, read off its id; None where that has none."""
    last = id_.rpartition(".")[2]
    return int(last) if last.isdecimal() else None


class AttemptRef(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that a receipt is about."""

    task: TaskId
    name: str
    attempt: int
    token: Token
    agent: AgentId
    run: RunId | None
    argv: tuple[str, ...]
    cwd: str
    began_at: Millis


def receipt_of(tried: AttemptRef, end: End, reason: str, elapsed: int, changed: Sequence[Change]) -> Receipt:
    """What every receipt says. Whoever knows more adds that, and lets `advise` say at last what to type."""
    listed = tuple(changed[:CHANGES_LISTED])
    return Receipt(
        id=receipt_id(tried.task, tried.attempt),
        status=end,
        partial=False,
        task=tried.task,
        name=tried.name,
        attempt=tried.attempt,
        token=tried.token,
        agent=tried.agent,
        run=tried.run,
        reason=reason,
        began_at=tried.began_at,
        ended_at=Millis(tried.began_at + elapsed),
        elapsed_ms=Millis(elapsed),
        argv=tried.argv,
        cwd=tried.cwd,
        changed=listed,
        changed_more=len(changed) - len(listed),
    )


def advise(receipt: Receipt, *, resume: tuple[str, ...] = ()) -> Receipt:
    """The receipt with the commands that look at what it tells of, bring the work back, and go on."""
    look = [f"allswell show {receipt.id}"]
    recover: list[str] = []
    merge: list[str] = []
    kept, branch = receipt.snapshot, receipt.branch
    if kept is not None:
        if kept.kind == "git":
            look.append(_diff(kept.folder, kept.base or _NO_FILES[len(kept.id)], kept.name))
        recover = [f"allswell recover {receipt.task} --into DIR", f"allswell recover {receipt.task} --apply"]
    if branch is not None:
        look.append(f"allswell diff {receipt.task} --attempt {receipt.attempt}")
        if branch.worktree is not None:
            look.append(f"git -C {shlex.quote(branch.worktree)} status")
        if branch.name and branch.commit != branch.base:
            look.append(_diff(branch.repository, branch.base, branch.name))
            merge.append(f"git -C {shlex.quote(branch.repository)} merge {typed_branch(branch.name)}")
    advice = Advice(tuple(look), tuple(recover), resume, tuple(merge))
    return msgspec.structs.replace(receipt, advice=advice)


def _diff(folder: str, base: str, name: str) -> str:
    """A `git diff` that runs no program which the repository's configuration names."""
    return f"git -C {shlex.quote(folder)} diff --no-ext-diff --no-textconv {base[:12]} {typed_branch(name)}"


def typed_branch(name: str) -> str:
    """A branch as one word of a command that people type: its name is an agent's, and may be a script or an option."""
    return shlex.quote(f"refs/heads/{name}" if name.startswith("-") else name)


# --- in words ---------------------------------------------------------------------------------------------------------

_NOTES = 3
"""How many of a snapshot's remarks are told; the receipt has them all."""
HOW = {
    End.DONE: "ended well",
    End.UNVERIFIED: "was not verified",
    End.FAILED: "failed",
    End.SIGNALLED: "was ended by a signal",
    End.TIMEOUT: "was stopped",
    End.IDLE: "was stopped",
    End.COSTLY: "was stopped",
    End.STALLED: "was stopped",
    End.INTERRUPTED: "was interrupted",
    End.CANCELLED: "was stopped",
    End.LEASE_LOST: "lost its lease",
    End.ASKED: "asked a human",
    End.RELEASED: "gave the task back",
    End.NOT_STARTED: "could not be started",
    End.LOST: "was lost",
    End.ORPHANED: "lost its supervisor",
}
"""How an attempt ended, as what is said of it."""
_BY_ITSELF = (End.DONE, End.UNVERIFIED, End.FAILED, End.SIGNALLED, End.ASKED, End.RELEASED, End.NOT_STARTED, End.LOST)
"""Ends at which nobody had to be told to stop."""


def how(receipt: Receipt) -> str:
    """How an attempt ended, as what is said of it: it `was stopped` only if nothing of it is known to run."""
    return "was told to stop" if receipt.survivors and receipt.status not in _BY_ITSELF else HOW[receipt.status]


def left_running(receipt: Receipt) -> str:
    """Who still ran when the receipt was written, as a sentence without its full stop; empty if nobody did."""
    if not receipt.survivors:
        return ""
    return still_run(receipt.running or [Survivor(pid, 0) for pid in receipt.survivors])


def are_changes_untold(receipt: Receipt) -> bool:
    """Whether it is not known which files have changed: that none is listed means nothing then."""
    return any(warning.startswith(CHANGES_UNTOLD) for warning in receipt.warnings)


def told(receipt: Receipt) -> str:
    """The paragraph for people: what happened, and where the work is."""
    said = [f"{receipt.name} {how(receipt)} after {felt(receipt.elapsed_ms)}: {full_stop(receipt.reason)}"]
    last = receipt.last_evidence
    if receipt.status in (End.TIMEOUT, End.IDLE, End.STALLED, End.INTERRUPTED, End.ORPHANED):
        if last is None or receipt.last_evidence_ms is None:
            said.append("It had given no sign of progress.")
        else:
            said.append(
                f"The last sign of progress was {felt(receipt.last_evidence_ms)} before: {full_stop(last.what)}"
            )
        if receipt.open_call:
            said.append(f"A call was open: {full_stop(receipt.open_call)}")
    kept = receipt.snapshot
    files = receipt.files
    if kept is not None:
        whole = (
            ""
            if kept.whole
            else f" ({len(kept.left_out)} left out, {len(kept.torn)} incomplete: the receipt lists them)"
        )
        count = ": no file differs" if not files else f": {files} file{'' if files == 1 else 's'} changed"
        if are_changes_untold(receipt):
            count = ""  # a warning says why
        said.append(f"The work is kept in {kept.name}{count}{whole}.")
        said += [f"{note[:1].upper()}{note[1:]}." for note in kept.notes[:_NOTES]]
    said += where_it_is(receipt.branch, receipt.files) if receipt.branch is not None else []
    if receipt.survivors:
        running = left_running(receipt)
        said.append(f"{running[:1].upper()}{running[1:]}.")
    said += [f"Warning: {full_stop(warning)}" for warning in receipt.warnings]
    return " ".join(said)


def where_it_is(branch: Branch, files: int) -> list[str]:
    """The sentences that say where the work is of an attempt that ended well in a worktree of its own."""
    said = []
    if branch.commit != branch.base:
        place = f"on the branch {branch.name}" if branch.name else f"in the commit {branch.commit[:12]}, on no branch"
        said.append(f"The work is {place}: {files} file{'' if files == 1 else 's'} changed.")
    if branch.uncommitted:
        count = branch.uncommitted
        said.append(f"{count} path{'' if count == 1 else 's'} in {branch.worktree} could not be committed.")
    if branch.worktree is not None:
        said.append(f"Its worktree stays: {branch.worktree}.")
    return said

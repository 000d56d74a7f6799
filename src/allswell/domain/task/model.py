"""A task: work that must be finished. Its limits, its rows, its states, and the table of moves between them.

A task is spread over rows by lifetime: `task` is wide and written when an attempt ends; `ready` exists only while it
can be claimed; `wait` names each thing it waits for; its timer is the one moment at which it could change by itself.
The state of an open task is not stored: it follows from which of these rows exist, so it can never contradict them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Literal

import msgspec

from allswell.domain.agents.denied import DecidedCall
from allswell.domain.agents.quota import NOTHING, QuotaUse
from allswell.domain.duration import LONGEST
from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.model import LeaseRow
from allswell.domain.service.retry import RetryPolicy, retry_rules
from allswell.domain.values import Requirement, require
from allswell.errors import Refused

# How long a task may take and how it is watched, with the seeds' figures as defaults (O1).
#
# A policy that cannot work is refused when it is made, naming the rule it breaks: a setting that could never take
# effect, or that would let something hang, is a mistake and not a preference.

DELEGATION_TIMEOUT = 600_000
"""How long work may take that an agent hands to an expert (O5)."""
COUNT_MAX = 1 << 31
COST_MAX = 10**12
"""Millionths of a dollar."""
TOKENS_MAX = 10**12
VERIFY_ATTEMPTS_MAX = 20
VERIFY_WORDS_MAX = 100
VERIFY_LENGTH_MAX = 4_096
"""Characters of a command that verifies: it is repeated where its verdict is shown."""


class Policy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True, cache_hash=True):
    """The limits of one task; lengths of time are milliseconds."""

    timeout: int | None = 900_000
    """The hard limit of one attempt (`agent_timeout`); None: it has none."""
    idle: int | None = None
    """Ends an attempt that has given no proof of progress for so long; off unless set."""
    checkpoint_interval: int = 300_000
    checkpoint_timeout: int = 30_000
    stall_threshold: int = 3
    timeout_escalation: int = 3
    recovery_grace: int = 10_000
    """How long a stalled agent's supervisor has to end it before the task is taken back anyway."""
    retry: RetryPolicy = RetryPolicy()
    delegation_timeout: int = DELEGATION_TIMEOUT
    """What a request has that is handed to an expert of this role, where the one who asks does not say (O5)."""
    max_cost: int | None = None
    """What the attempts at the task may cost together, in millionths of a dollar (`max_cost_usd`); None: anything."""
    max_tokens: int | None = None
    """How many tokens the attempts at the task may use together, in and out; None: any number."""
    verify: tuple[str, ...] = ()
    """The command that must pass before "done" counts (lease/verification.py); empty: the holder's word is enough."""
    verify_timeout: int = 600_000
    """How long that command may take; what the attempt has left bounds it too."""
    verify_attempts: int = 3
    """After so many failed verifications a human is asked."""

    def validated(self) -> Policy:
        """This policy, or `Refused` with every rule it breaks."""
        broken = broken_rules(self)
        if broken:
            raise Refused("bad_policy", "impossible policy: " + "; ".join(rule.says for rule in broken), where="policy")
        return self


def rules(policy: Policy, limit_name: str = "timeout") -> list[Requirement]:
    """Every rule a policy must keep; `limit_name` is what its reader calls the limit of an attempt."""
    limit = LONGEST if policy.timeout is None else policy.timeout
    timeout, idle = (limit_name, f"{limit} ms"), ("idle", f"{policy.idle} ms")
    interval = ("checkpoint_interval", f"{policy.checkpoint_interval} ms")
    answer = ("checkpoint_timeout", f"{policy.checkpoint_timeout} ms")
    recovery = ("recovery_grace", f"{policy.recovery_grace} ms")
    delegation = ("delegation_timeout", f"{policy.delegation_timeout} ms")
    verifying = ("verify_timeout", f"{policy.verify_timeout} ms")
    stalls, timeouts = ("stall_threshold", policy.stall_threshold), ("timeout_escalation", policy.timeout_escalation)
    overlap = "{} must be positive and less than {}, or one wait would run into the next"
    verdicts = f"{{}} must be from 1 to {VERIFY_ATTEMPTS_MAX}"
    program = f"verify must be a command: the name of a program, and at most {VERIFY_WORDS_MAX - 1} arguments"
    short = f"verify must be at most {VERIFY_LENGTH_MAX:,} characters long, without null characters"
    return [
        *(
            require(length <= LONGEST, "{} must be at most 366 days", figure)
            for length, figure in (
                (limit, timeout),
                (policy.checkpoint_interval, interval),
                (policy.recovery_grace, recovery),
                (policy.delegation_timeout, delegation),
                (policy.verify_timeout, verifying),
            )
        ),
        require(limit > 0, "{} must be positive", timeout),
        require(policy.idle is None or 0 < policy.idle <= limit, "{} must be positive and at most {}", idle, timeout),
        require(0 < policy.checkpoint_timeout < policy.checkpoint_interval, overlap, answer, interval),
        require(policy.stall_threshold >= 1, "{} must be at least 1", stalls),
        require(policy.timeout_escalation >= 1, "{} must be at least 1", timeouts),
        require(policy.recovery_grace >= 0, "{} must not be negative", recovery),
        require(policy.delegation_timeout > 0, "{} must be positive", delegation),
        *(require(one[1] <= COUNT_MAX, f"{{}} must be at most {COUNT_MAX:,}", one) for one in (stalls, timeouts)),
        require(
            policy.max_cost is None or 0 < policy.max_cost <= COST_MAX,
            f"{{}} must be positive and at most {COST_MAX}",
            ("max_cost_usd", policy.max_cost),
        ),
        require(
            policy.max_tokens is None or 0 < policy.max_tokens <= TOKENS_MAX,
            f"{{}} must be positive and at most {TOKENS_MAX:,}",
            ("max_tokens", policy.max_tokens),
        ),
        require(policy.verify_timeout > 0, "{} must be positive", verifying),
        require(
            1 <= policy.verify_attempts <= VERIFY_ATTEMPTS_MAX, verdicts, ("verify_attempts", policy.verify_attempts)
        ),
        Requirement(
            not policy.verify or (bool(policy.verify[0].strip()) and len(policy.verify) <= VERIFY_WORDS_MAX),
            program,
            ("verify",),
        ),
        Requirement(
            sum(map(len, policy.verify)) <= VERIFY_LENGTH_MAX and not any("\0" in word for word in policy.verify),
            short,
            ("verify",),
        ),
        *retry_rules(policy.retry),
    ]


@lru_cache(maxsize=1_024)
def broken_rules(policy: Policy, limit_name: str = "timeout") -> tuple[Requirement, ...]:
    """The rules that this policy breaks; most tasks share a policy, so the verdict is remembered."""
    return tuple(rule for rule in rules(policy, limit_name) if not rule.holds)


DEFAULT = Policy()


class State(StrEnum):
    """Where a task stands."""

    __hash__ = str.__hash__  # Enum's own is written in Python, and states are looked up at every decision

    WAITING = "waiting"
    """For something with a name: another task, a question or a request."""
    DELAYED = "delayed"
    """Until a moment: its not-before, or a retry's pause."""
    READY = "ready"
    """An agent with its role can claim it."""
    HELD = "held"
    """An agent has a lease on it and works."""
    DONE = "done"
    """Its holder completed it."""
    FAILED = "failed"
    """It ended without success: an error that is not retried, retries used up, or its run's deadline."""
    CANCELLED = "cancelled"
    """It was cancelled, by itself or with its run."""
    SKIPPED = "skipped"
    """It will not be done: a human said so, or what it needed did not end well."""
    SPLIT = "split"
    """Replaced by smaller tasks."""


STATES: Mapping[str, State] = {state.value: state for state in State}
ENDS = (State.DONE, State.FAILED, State.CANCELLED, State.SKIPPED, State.SPLIT)
_BAD_ENDS = (State.FAILED, State.CANCELLED, State.SKIPPED, State.SPLIT)

MOVES: Mapping[State, tuple[State, ...]] = {
    State.WAITING: (State.DELAYED, State.READY, State.DONE, *_BAD_ENDS),
    State.DELAYED: (State.READY, State.WAITING, *_BAD_ENDS),
    State.READY: (State.HELD, State.WAITING, State.DELAYED, *_BAD_ENDS),
    State.HELD: (State.READY, State.DELAYED, State.WAITING, State.DONE, *_BAD_ENDS),
    State.DONE: (),
    State.FAILED: (),
    State.CANCELLED: (),
    State.SKIPPED: (),
    State.SPLIT: (),
}
"""Every move that a decision may make; the diagram in docs/ is drawn from this table and decide() is held to it."""


SHOWN_STATES = (State.HELD, State.READY, State.DELAYED, State.WAITING, *ENDS)
"""The order in which tasks are counted for people."""
OPEN_STATES = _HELD, _READY, _DELAYED, _WAITING = SHOWN_STATES[:4]
NOWHERE = "nowhere"
"""The state of a task that nothing will ever move again: there must be none, so it is shown where there is one."""

BEGINNINGS = (State.WAITING, State.DELAYED, State.READY, State.SKIPPED)
"""Where a new task may stand."""


class RequestOrigin(msgspec.Struct, frozen=True, gc=False):
    """The lease that a request comes from."""

    task: TaskId
    token: Token
    agent: AgentId
    command: CommandId
    """The one that asked, so that a repeated one is recognised."""


KEPT = 7 * 86_400_000
"""For how long a late answer to a request is waited for, in milliseconds."""


class RequestSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What makes a task a request of the mesh: its kind, whom it is for, and its schedule (mesh/request.py)."""

    kind: str
    to: str
    """An agent's name, `role:` and a role, or the address of a webhook."""
    timeout: int
    """How long each delivery may go without an answer, in milliseconds."""
    retries: int
    """How often it is delivered again."""
    default: int
    """The timeout of its kind, as it is set: an expiry before that says nothing about the target."""
    wait: int = 0
    """The caller waits, and has so long to learn of the end itself before it is blocked without it."""
    again: int | None = None
    """Once it has blocked its task: how long until all its deliveries are made anew."""
    kept: int = KEPT
    """For how long an answer is waited for after it has blocked its task."""
    role: str = ""
    """Which others may answer once the mesh was asked; empty: all but the one that asks."""
    escalate: int = 3_600_000
    """For how long it may have blocked its task before that is reported (M6)."""
    remind: int | None = 86_400_000
    """How often that is reported again; None: never."""
    asked: tuple[AgentId, ...] = ()
    """The holders that were known to be able to answer when it was asked: for circles (mesh/circle.py)."""
    passed_over: tuple[AgentId, ...] = ()
    """Of a request to a role: who is kept from its first delivery, as others are preferred (mesh/health.py)."""
    blocks: bool = True
    """Whether the task waits for it if no answer comes; else the asker goes on, and gets an answer later."""


class RequestRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How far a request of the mesh has got; written when a delivery is made or expires."""

    since: Millis
    """When the last delivery was made, or had expired."""
    due: Millis
    """When it goes on by itself."""
    attempt: int = 1
    """How often it was delivered."""
    last: int = 1
    """The attempt after which its deliveries are exhausted."""
    waiting: bool = True
    """Whether a delivery is under way: its target still has time to answer."""
    mesh: bool = False
    """Whether the mesh was asked."""
    blocked_at: Millis | None = None
    """When it has blocked its task."""
    moved_on: bool = False
    """Whether its caller knows that, and was given something else to do if there was anything."""
    by: str = ""
    """Who has answered."""
    alert_at: Millis | None = None
    """When it is reported that it still blocks its task."""
    alerts: int = 0
    """How often that was reported."""
    posted: int = 0
    """Of a webhook: the last delivery that a poster has taken up; each is posted once."""
    not_before: Millis | None = None
    """Of a webhook: its receiver asked to be left alone until then."""
    listed: tuple[str, ...] = ()
    """To whom the delivery under way was shown; the newest of them."""
    declined: tuple[str, ...] = ()
    """Who has declined it."""

    @property
    def wakes_at(self) -> Millis:
        """When something happens by itself."""
        return self.due if self.alert_at is None else min(self.due, self.alert_at)


class Spec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What was asked for; never changes after the task was submitted."""

    services: tuple[str, ...] = ()
    needs: tuple[TaskId, ...] = ()
    critical: bool = False
    if_need_fails: Literal["skip", "run"] = "skip"
    policy: Policy = DEFAULT
    not_before: Millis | None = None
    limit_at: Millis | None = None
    """Of a request: when it is over, wherever it stands. Old tasks have their run's deadline here; it is not read."""
    digest: str = ""
    """Of the submission, so that a repeated submit can be distinguished from a different task under the same id."""
    flow: bool = False
    """A Python flow: held by the process that runs it, acquired by its id, and never claimed by role (lifecycle.py)."""
    origin: RequestOrigin | None = None
    """Set where this is a request of another agent's: a delegation (O5), tried once and over at `limit_at`, or one of
    the mesh."""
    unblocks: int = 0
    """How many tasks of the same submission wait for this one, at one remove or several; at most `UNBLOCKS_MAX`."""
    request: RequestSpec | None = None
    """Set where this is a request of the mesh: answered once, and delivered as its schedule says (mesh/request.py)."""
    retry_of: TaskId | None = None
    """The ended task that was handed over again as this one."""


class Handover(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the last attempt leaves to the next."""

    reason: str
    agent: AgentId
    message: str = ""
    note: str = ""
    progress: float | None = None
    answer: str = ""
    """The option that a human chose, where that attempt ended with a question."""


class RequestAnswer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What another agent has answered to a request of the task's, in time or late: for the attempts to come."""

    request: TaskId
    summary: str
    """What was asked."""
    to: str
    by: AgentId
    """Who has answered."""
    asked_at: Millis
    at: Millis
    text: str
    """The answer as JSON; of a long one, its beginning."""
    token: Token
    """Of the attempt that asked."""
    cut: bool = False
    """Whether it is longer than `text`."""
    waited: bool = True
    """Whether the attempt that asked waited for it."""
    declined: bool = False
    """Whether `text` is why it was declined."""


class NeedEnded(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a task needed has ended without being done, and the task runs all the same."""

    task: TaskId
    outcome: str
    reason: str = ""
    human: bool = False
    """Whether the reason is a human's words: they have skipped it, or called it off."""
    name: str = ""


class CarriedHistory(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a new task knows of an ended one whose work it goes on with."""

    notes: tuple[str, ...] = ()
    """What humans added for the next attempt."""
    handover: Handover | None = None
    timeout_override: Millis | None = None
    idle_override: Millis | None = None
    answers: tuple[RequestAnswer, ...] = ()
    """What its requests to other agents were answered with."""


class UnverifiedDone(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A holder says that its task is done, and that was not verified yet; what it brought is kept as the result."""

    token: Token
    """Of its attempt."""
    said_at: Millis
    command: CommandId = NO_COMMAND
    """With which it said so."""


class FailedCheck(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A verification that has failed."""

    token: Token
    """Of the attempt whose work it was."""
    failed_at: Millis
    why: str
    """In words: its exit code, that it took too long, that it could not be started."""
    said: str = ""
    """The end of what it printed."""
    elapsed: int = 0
    by: str = ""
    """Who ran it, where that was not the attempt's own supervisor."""
    command: CommandId = NO_COMMAND
    """With which that was said."""


class Dismissal(msgspec.Struct, frozen=True, gc=False):
    """What came of the task so far was dismissed (answer.py)."""

    by: str
    dismissed_at: Millis
    token: Token
    """Of the last attempt that had ended then: another one is news."""


class StopState(msgspec.Struct, frozen=True, gc=False):
    """That the attempt at a task stands, because a person has stopped it (lease/suspension.py)."""

    by: str
    """The signal."""
    at: Millis


class SpentTime(msgspec.Struct, frozen=True, gc=False):
    """What an attempt has used up of its quota."""

    token: Token
    spent: QuotaUse


class TaskHistory(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What has happened so far; written when an attempt ends or a question is answered."""

    token: Token = Token(0)
    """Of the last lease that ended; the next lease carries one more."""
    timeouts: int = 0
    stalls: int = 0
    lapses: int = 0
    failures: dict[str, int] = {}
    """Failed attempts by error class."""
    questions: int = 0
    """How many were asked so far."""
    asked_by: CommandId = NO_COMMAND
    """The command that asked the last one."""
    timeout_override: Millis | None = None
    notes: tuple[str, ...] = ()
    """What humans added for the next attempt."""
    handover: Handover | None = None
    reason: str = ""
    """Why it ended, once it has."""
    replaced_by: tuple[TaskId, ...] = ()
    """The smaller tasks, where it was split."""
    ended_by: CommandId = NO_COMMAND
    idles: int = 0
    """How many of the timeouts were for want of progress."""
    idle_reached: Millis | None = None
    """The length without progress at which an attempt was ended last."""
    idle_override: Millis | None = None
    """What a human has raised that to."""
    request: RequestRecord | None = None
    """Of a request of the mesh: how far it has got."""
    retried_as: TaskId | None = None
    """The new task, where it was handed over again after its end."""
    dismissed: Dismissal | None = None
    cost_override: int | None = None
    """What a human has raised the limit of its cost to, in millionths of a dollar."""
    tokens_override: int | None = None
    """What a human has raised the limit of its tokens to."""
    said_done: UnverifiedDone | None = None
    """The last time that a holder said it was done, where that had to be verified."""
    failed_checks: tuple[FailedCheck, ...] = ()
    """The failed verifications since a human last decided about it."""
    stopped: StopState | None = None
    """How far the attempt that holds it has got; the next attempt does not inherit it."""
    refused: str = ""
    """What its provider refuses the command that holds it, while its client tries again: "429, try 6 of 10"."""
    repeats: str = ""
    """What the attempt that holds it does again and again, in words: "called Read lexer.py 14 times, same answer"."""
    back_until: Millis | None = None
    """Sent back to the agent of its last attempt: until then no other agent gets it."""
    decided_call: DecidedCall | None = msgspec.field(default=None, name="allowed")
    """The call that a human has decided about last, for the one attempt that it names."""
    answers: tuple[RequestAnswer, ...] = ()
    """What its requests to other agents were answered with, the newest last; of many, the newest (mesh/respond.py)."""
    needs_ended: tuple[NeedEnded, ...] = ()
    """What it needed and did not get, where it runs all the same; of many, the last ones."""
    used: SpentTime | None = None
    """What the last attempt that a server counts has put into the store."""

    def used_by(self, token: Token) -> QuotaUse:
        """What an attempt has put into the store so far, as far as it is counted here."""
        return NOTHING if self.used is None or self.used.token != token else self.used.spent


def carried(record: TaskHistory) -> CarriedHistory | None:
    """What a task that goes on with this one's work is to know of it; None where there is nothing to know."""
    left = CarriedHistory(record.notes, record.handover, record.timeout_override, record.idle_override, record.answers)
    return left if left != CarriedHistory() else None


class Task(msgspec.Struct, frozen=True, gc=False):
    """One task; `state` is `open` or one of the ends. Payload and result stay in the store until someone needs them."""

    id: TaskId
    name: str
    run: RunId | None
    role: str
    lane: int
    priority: int
    state: str
    created_at: Millis
    ended_at: Millis | None
    spec: Spec
    record: TaskHistory
    rank: int
    """Its place in the order of claims (`rank`): it never changes."""

    @property
    def timeout(self) -> int | None:
        """The hard limit of its next attempt, in milliseconds; None: it has none."""
        return self.record.timeout_override or self.spec.policy.timeout

    @property
    def idle(self) -> int | None:
        """How long its next attempt may go without a check-in, in milliseconds; None: the store does not mind."""
        return raised(self.spec.policy.idle, self.record.idle_override)

    @property
    def expiry(self) -> Millis | None:
        """When it is over wherever it stands, if it is a request; other tasks have the limit of their run, if any."""
        return None if self.spec.origin is None else self.spec.limit_at

    @property
    def wakes_at(self) -> Millis | None:
        """When something happens to it wherever it stands, if it is a request: it goes on, or is over."""
        request = self.record.request
        return self.expiry if request is None else request.wakes_at


def raised(idle: int | None, override: int | None) -> int | None:
    """How long an attempt may go without progress once a human has raised that: never less, and no limit stays none."""
    return None if idle is None else max(idle, override or 0)


OPEN = "open"


class ReadyTask(msgspec.Struct, frozen=True, gc=False):
    """A task that can be claimed now; lower ranks go first."""

    task: TaskId
    lane: int
    rank: int


class WaitState(msgspec.Struct, frozen=True, gc=False, order=True):
    """One thing a task waits for, by name."""

    task: TaskId
    kind: Literal["need", "question", "request"]
    target: TaskId | QuestionId


class Exclusion(msgspec.Struct, frozen=True, gc=False):
    """This agent may not hold this task."""

    task: TaskId
    agent: AgentId


class Lane(msgspec.Struct, frozen=True, gc=False):
    """Tasks that are claimable under the same conditions: one role, one set of services."""

    id: int
    role: str
    services: tuple[str, ...]


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How one lease ended; kept for ever, it is what makes a repeated completion recognisable."""

    task: TaskId
    token: Token
    agent: AgentId
    granted_at: Millis
    ended_at: Millis
    outcome: str
    command: CommandId
    detail: str = ""
    late: str | None = None
    """The first result that the holder still brought after the lease had ended, as JSON."""
    afterwards: str | None = None
    """All that it still said then (lease/late.py), as JSON."""

    @property
    def warning(self) -> str:
        """What a human should know of it although it ended well, calls that were refused: its detail has that then."""
        return warning_of(self.outcome, self.detail)


_NO_WARNING = ("", "completed", "answered", "accepted")
"""The details of attempts that ended well, and of which there is nothing more to say."""


def warning_of(outcome: str, detail: str) -> str:
    """What a human should know of an attempt that ended so, although that was well."""
    return detail if outcome == State.DONE and detail not in _NO_WARNING else ""


class FinishedTask(msgspec.Struct, frozen=True, gc=False):
    """A task that is made in its final state, with all that belongs to it; payload and result are JSON text."""

    task: Task
    payload: str
    result: str
    attempt: Attempt
    """Its first and only one."""


PRIORITY_MAX = 1_000_000
_AGE_BITS = 42
"""Milliseconds up to the year 2109."""
_AGE = (1 << _AGE_BITS) - 1


UNBLOCKS_MAX = 60
HEAD_START = 60_000
"""For each task that waits for it, a task counts as so many milliseconds older than it is."""


def rank(priority: int, created_at: int, unblocks: int = 0) -> int:
    """The order of claims: higher priority first, then what unblocks most and what is older; one number, one index.

    What unblocks others has a head start over those of its age and no more, so that nothing waits for ever.
    """
    since = max(created_at - unblocks * HEAD_START, 0) if unblocks else created_at
    return ((PRIORITY_MAX - priority) << _AGE_BITS) | (since & _AGE)


# Tasks as they are listed: which of them, and each with what shows where it stands.


class TaskFilter(msgspec.Struct, frozen=True):
    """Which tasks to list."""

    open: bool | None = None
    run: RunId | None = None
    name: str | None = None
    role: str | None = None
    states: tuple[str, ...] = ()  # derived ones, as `State` names them
    after: str = ""  # where the last page ended: only ids greater than this one, of the newest only smaller ones
    limit: int = 1_000
    ids: tuple[TaskId, ...] | None = None  # only these; those that do not exist are missing
    text: str = ""  # only those with this in their name, id, role or holder; `folded`
    newest: bool = False  # the greatest ids first
    below: str = ""  # only ids smaller than this one


LAST = "\U0010ffff"
"""Behind every id: where the newest tasks begin."""


def folded(text: str) -> str:
    """Text as it is compared where upper and lower case count the same: ASCII letters only, as every store can."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


class TaskRow(msgspec.Struct, frozen=True):
    """A task with what shows where it stands, for reading only."""

    task: Task
    lease: LeaseRow | None
    ready: bool
    due: Millis | None
    waits: tuple[WaitState, ...]

    @property
    def state(self) -> str:
        """Where it stands: a `State`, or `NOWHERE`."""
        return derive_state(self.task, self.lease, self.waits, self.due, ready=self.ready) or NOWHERE

    @property
    def asks(self) -> bool:
        """Whether it waits for a human, and no agent works on it meanwhile."""
        return self.lease is None and any(wait.kind == "question" for wait in self.waits)


def derive_state(
    task: Task, lease: LeaseRow | None, waits: Sequence[WaitState], due: int | None, *, ready: bool
) -> State | None:
    """Where a task stands, read off the rows that exist; None: nowhere, which must not be."""
    if task.state != OPEN:
        return STATES[task.state]
    if lease is not None:
        return _HELD
    if waits:
        return _WAITING
    if ready:
        return _READY
    return None if due is None else _DELAYED


def count_in_order(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """How many tasks are in each state, in the order in which they are shown; states without any are left out."""
    return [(str(state), counts[state]) for state in (*SHOWN_STATES, NOWHERE) if counts.get(state)]

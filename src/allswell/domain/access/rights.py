"""Who may do what: one table for every door, and nothing else decides it.

A caller that shows a key does an **act**. `ALLOWS` says which acts a right allows; `ACT_OF` which act a command is,
`LOOKS` which one a look is. What is in neither table nobody may do from elsewhere: time passes by itself, and sinks
live beside the store. A new command is a line here.

An agent's key is narrower than its acts, since the usual attacker is a confused agent with a valid key:

- it claims for its own roles alone, and only under names of its own;
- it speaks for leases under names of its own alone, and the rule of each still asks for the token (lease/holder.py);
- it is asked, and answers, under the names that it was made for, not under parts of them (`bob/carol` is not Carol);
- it says of a service that others must wait only where a task that it holds uses it, for as long as the figures of the
  watch have it, and never of a budget;
- what it asks of others is for now, names no command, and belongs to the task that asks, which judges it;
- it tells of its own tasks alone, and not of what a human has done;
- it sees what it holds or has held, what it could claim, what it asked and what it is asked; nothing of others;
- the watch's own words it may change only to say that its supervisor is there, or that processes of its attempts
  still run, under a name of its own.

Whoever keeps several rights may do what any one of them allows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from msgspec.structs import replace

from allswell.domain.access.answer_link import LINK_SECRET
from allswell.domain.access.key import ANY_ROLE, Key, Right
from allswell.domain.access.key import PREFIX as KEYS
from allswell.domain.access.key import SESSION_PREFIX as SESSIONS
from allswell.domain.agents.human_session import HUMAN_SESSIONS_PREFIX, SESSIONS_MOST, bounded, read_sessions
from allswell.domain.agents.human_session import kept as kept_sessions
from allswell.domain.agents.status import PRESENCE_PREFIX as SUPERVISORS
from allswell.domain.agents.status import SURVIVORS_PREFIX as SURVIVORS
from allswell.domain.agents.status import read_presence, read_survivors
from allswell.domain.ids import NO_COMMAND, CommandId, Millis
from allswell.domain.lease.claim import COMMAND_ROLES
from allswell.domain.lease.cost import EndCostly, ReachBudget, Spend
from allswell.domain.lease.holder import check_given_back
from allswell.domain.lease.suspension import Continue, NoteRefusal, NoteRepeats, Suspend
from allswell.domain.mesh.respond import is_for
from allswell.domain.mesh.routing import agent_of
from allswell.domain.question import Question, check_agents_option
from allswell.domain.rules.bounds import check as check_bounds
from allswell.domain.rules.command import (
    AcquireFlow,
    Admit,
    Answer,
    Ask,
    AskForHelp,
    Cancel,
    CheckIn,
    CheckInAgain,
    Claim,
    Command,
    Complete,
    Decline,
    Delegate,
    EndIdle,
    EndRun,
    Fail,
    LeaseCommand,
    MoveOn,
    NewTask,
    NoteListed,
    Notice,
    OpenRun,
    Park,
    RecordReceipt,
    RecordStep,
    Recover,
    Release,
    Report,
    Respond,
    SendRequest,
    Submit,
    Unpark,
    Verified,
)
from allswell.domain.rules.event import Event
from allswell.domain.rules.query import (
    Query,
    ViewAgenda,
    ViewAgents,
    ViewAttempts,
    ViewCounts,
    ViewCursor,
    ViewCursors,
    ViewDeliveries,
    ViewExpenses,
    ViewHealth,
    ViewJournal,
    ViewKept,
    ViewOrphans,
    ViewPayload,
    ViewQuestion,
    ViewQuestions,
    ViewResults,
    ViewRun,
    ViewRuns,
    ViewServices,
    ViewSpent,
    ViewTask,
    ViewTasks,
    ViewValue,
)
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.retry import Failure, RetryPolicy
from allswell.domain.task.answer import DismissQuestion, DismissTask
from allswell.domain.task.model import DEFAULT, OPEN, Attempt, Policy, TaskRow
from allswell.domain.task.resubmit import Resubmit
from allswell.domain.task.submit import WEBHOOKS
from allswell.errors import Refused

C = TypeVar("C", bound=Command)
NO_POLICIES: Mapping[str, Policy] = {}
PARK_MAX = RetryPolicy().retry_after_cap
"""Milliseconds for which an agent's key parks a service at most: a limit that lasts longer is told again (F5)."""


class Operation(StrEnum):
    """What a caller does, as far as rights are concerned; each is told in words when it is refused."""

    LOOK = "look at everything"
    LOOK_AT_ONE = "look at one thing by its id"
    LOOK_AT_OWN = "look at its own tasks"
    SUBMIT = "submit tasks"
    CLAIM = "claim tasks"
    SPEAK = "speak for a lease"
    CALL_SERVICES = "share the breakers of services"
    TELL = "report what it saw"
    VERIFY = "verify work, or name what does"
    DECIDE = "answer, cancel and try again"
    RUN_FLOWS = "run flows and builds"
    KEEP_KEYS = "make and revoke keys"


ALLOWS: Mapping[Right, frozenset[Operation]] = {
    Right.VIEWER: frozenset({Operation.LOOK, Operation.LOOK_AT_ONE}),
    Right.SUBMITTER: frozenset({Operation.SUBMIT, Operation.LOOK_AT_ONE}),
    Right.AGENT: frozenset(
        {Operation.CLAIM, Operation.SPEAK, Operation.LOOK_AT_OWN, Operation.CALL_SERVICES, Operation.TELL}
    ),
    Right.SUPERVISOR: frozenset(
        {
            Operation.CLAIM,
            Operation.SPEAK,
            Operation.LOOK_AT_OWN,
            Operation.CALL_SERVICES,
            Operation.TELL,
            Operation.VERIFY,
        }
    ),
    Right.OPERATOR: frozenset(
        {
            Operation.LOOK,
            Operation.LOOK_AT_ONE,
            Operation.SUBMIT,
            Operation.VERIFY,
            Operation.DECIDE,
            Operation.CALL_SERVICES,
            Operation.RUN_FLOWS,
        }
    ),
    Right.ADMIN: frozenset(Operation),
}
ACT_OF: Mapping[type[Command], Operation] = {
    Submit: Operation.SUBMIT,
    OpenRun: Operation.SUBMIT,
    Claim: Operation.CLAIM,
    CheckIn: Operation.SPEAK,
    CheckInAgain: Operation.SPEAK,
    Complete: Operation.SPEAK,
    Fail: Operation.SPEAK,
    Release: Operation.SPEAK,
    Recover: Operation.SPEAK,
    EndIdle: Operation.SPEAK,
    RecordReceipt: Operation.SPEAK,
    Spend: Operation.SPEAK,
    EndCostly: Operation.SPEAK,
    Suspend: Operation.SPEAK,
    Continue: Operation.SPEAK,
    NoteRefusal: Operation.SPEAK,
    NoteRepeats: Operation.SPEAK,
    ReachBudget: Operation.RUN_FLOWS,  # it takes the sums of all that was spent, which agents do not see
    Ask: Operation.SPEAK,
    Delegate: Operation.SPEAK,
    SendRequest: Operation.SPEAK,
    MoveOn: Operation.SPEAK,
    Respond: Operation.SPEAK,
    Decline: Operation.SPEAK,
    NoteListed: Operation.SPEAK,
    Admit: Operation.CALL_SERVICES,
    Report: Operation.CALL_SERVICES,
    Park: Operation.CALL_SERVICES,
    Unpark: Operation.DECIDE,
    AskForHelp: Operation.CALL_SERVICES,
    Notice: Operation.TELL,
    Verified: Operation.VERIFY,
    Answer: Operation.DECIDE,
    Cancel: Operation.DECIDE,
    Resubmit: Operation.DECIDE,
    DismissQuestion: Operation.DECIDE,
    DismissTask: Operation.DECIDE,
    EndRun: Operation.DECIDE,
    AcquireFlow: Operation.RUN_FLOWS,
    RecordStep: Operation.RUN_FLOWS,
}
LOOKS: Mapping[type[Query[Any]], tuple[Operation, ...]] = {
    ViewAgenda: tuple(Operation),
    ViewServices: (Operation.LOOK, Operation.CALL_SERVICES),
    ViewTask: (Operation.LOOK, Operation.LOOK_AT_ONE, Operation.LOOK_AT_OWN),
    ViewPayload: (Operation.LOOK, Operation.LOOK_AT_ONE, Operation.LOOK_AT_OWN),
    ViewExpenses: (Operation.LOOK, Operation.LOOK_AT_ONE, Operation.LOOK_AT_OWN),
    ViewSpent: (Operation.LOOK,),
    ViewAttempts: (Operation.LOOK, Operation.LOOK_AT_ONE, Operation.LOOK_AT_OWN),
    ViewQuestion: (Operation.LOOK, Operation.LOOK_AT_ONE, Operation.LOOK_AT_OWN),
    ViewRun: (Operation.LOOK, Operation.LOOK_AT_ONE),
    ViewTasks: (Operation.LOOK, Operation.LOOK_AT_OWN),
    ViewQuestions: (Operation.LOOK, Operation.LOOK_AT_OWN),
    ViewRuns: (Operation.LOOK, Operation.SUBMIT),  # whoever hands over names the run
    ViewAgents: (Operation.LOOK,),
    ViewHealth: (Operation.LOOK,),
    ViewCounts: (Operation.LOOK,),
    ViewOrphans: (Operation.LOOK,),
    ViewKept: (Operation.LOOK,),
    ViewDeliveries: (Operation.LOOK,),
    ViewResults: (Operation.LOOK,),
    ViewCursors: (Operation.LOOK,),
    ViewJournal: (Operation.LOOK,),
    ViewCursor: (Operation.LOOK,),
    ViewValue: (Operation.LOOK, Operation.TELL),
}
"""What each look is: any of these acts will do. With `LOOK_AT_OWN` alone, what is not its own is left out."""
BESIDE: Mapping[str, tuple[Operation, ...]] = {
    "builds": (Operation.LOOK,),
    "checkup": (Operation.LOOK,),
    "diff": (Operation.LOOK,),
    "log": (Operation.LOOK,),
    "metrics": (Operation.LOOK,),
    "queues": (Operation.LOOK,),
    "receipts": (Operation.LOOK,),
    "settings": (Operation.LOOK,),
}
"""What is not in the store but beside it: files of attempts, settings, queues. An agent's are not told apart there."""
_AGENTS_TELL = frozenset(
    (
        "agent_state",
        "agent_nudged",
        "agent_resumed",
        "agent_restarted",
        "agent_turn_failed",
        "agent_waits",
        "request_told",
        "agent_stopped",
        "reaper_stopped",
        "checkin_asked",
        "checkpoints_collected",
        "context_compacted",
        "questions_open",
        "rate_limited",
        "session_paused",
        "session_resumed",
        "supervisor_started",
        "supervisor_stopped",
        "survivors_gone",
        "survivors_left",
        "usage_limit",
    )
)
_SHOWN = 60
_WORK = "work:"
"""What `allswell work --agent NAME` puts before its name."""


def may(key: Key, *acts: Operation) -> bool:
    """Whether a key allows one of these acts."""
    return any(act in ALLOWS[right] for right in key.rights for act in acts)


def check_act(key: Key, *acts: Operation) -> None:
    """Refuse what a key does not allow."""
    if not may(key, *acts):
        raise _not_allowed(key, acts[0])


def admitted(  # noqa: C901, PLR0912, PLR0915 - a line for each kind of command
    key: Key, command: C, policies: Mapping[str, Policy] = NO_POLICIES
) -> C:
    """The command as it is carried out for a key: signed with its name, and a claim kept to its roles.

    `policies` are those of roles where it is carried out: a role's work is verified there, whoever hands it over.
    """
    act = ACT_OF.get(type(command))
    if act is None:
        raise Refused("not_allowed", f"{type(command).__name__} cannot be asked for from elsewhere", where="command")
    check_act(key, act, *((Operation.DECIDE,) if isinstance(command, Notice) and _is_deciders(command.event) else ()))
    signed: dict[str, object] = {"key": key.name}
    match command:
        case Submit():
            tasks = [_verified_as_its_role(key, new, policies) for new in command.tasks]
            for new in tasks if is_agents(key) else ():
                _check_runs_nothing(key, new.role)
            if not may(key, Operation.DECIDE):  # a human's words are not for everybody to say
                tasks = [new if new.carried is None else replace(new, carried=None) for new in tasks]
            signed["tasks"] = tuple(tasks)
        case OpenRun() if command.after is not None:  # what went on elsewhere needs nobody any more
            check_act(key, Operation.RUN_FLOWS)
        case Claim():
            check_agent(key, command.agent)
            if command.after is not None:
                raise Refused("not_allowed", "`after` is set by Allswell itself", where="after")
            signed["roles"] = _roles(key, command.roles)
            signed["asked_as"] = _asked_as(key)
            if command.id != NO_COMMAND:  # nobody is given another's leases by repeating another's claim
                signed["id"] = CommandId(f"{key.name}/{command.id}")
        case MoveOn():
            check_agent(key, command.agent)
            signed["roles"] = _roles(key, command.roles)
        case NoteListed():
            check_agent(key, command.agent)
        case Respond() | Decline():
            check_agent(key, command.agent)
            signed["roles"] = _roles(key, command.roles) or ()
            signed["asked_as"] = _asked_as(key)
        case Verified() if may(key, Operation.DECIDE):  # else it is a supervisor's, of the work of its own agents
            signed["by"] = signed_by(key, command.by)
        case Spend():
            check_agent(key, command.agent)
            signed["while_held"] = not may(key, Operation.VERIFY)
        case Delegate() | SendRequest():
            check_agent(key, command.agent)
            signed["request"] = _verified_as_its_role(key, command.request, policies)
        case Ask():
            check_agent(key, command.agent)
            for option in command.options if not may(key, Operation.DECIDE) else ():
                check_agents_option(option)
            if is_agents(key):  # what was refused its supervisor has seen; to allow it is an option
                signed["denied"] = None
        case Fail():
            check_agent(key, command.agent)
            signed["failure"] = _failure_of(key, command.failure)
        case Release():
            check_agent(key, command.agent)
            if is_agents(key):
                check_given_back(command.delay)
                signed["awaits"] = None  # no limit and no human would notice that it waits
        case CheckIn() | LeaseCommand():
            check_agent(key, command.agent)
        case Park() if is_agents(key):
            signed["delay"] = min(command.delay, PARK_MAX)
        case AskForHelp() if is_agents(key):  # a whole account stands still on the word of its supervisor alone
            signed["holds"] = False
        case Notice():
            _check_notice(key, command.event)
        case Answer() | Resubmit() | DismissQuestion() | DismissTask() | Unpark():
            signed["by"] = signed_by(key, command.by)
        case _:
            pass
    return replace(command, **signed)


def is_agents(key: Key) -> bool:
    """Whether a key is an agent's, and neither of a supervisor nor of anybody who decides: its word has bounds."""
    return not may(key, Operation.VERIFY, Operation.RUN_FLOWS)


def service_of(command: Command) -> str | None:
    """The service that a command is about, where it says whether others may call it; None: it is about none."""
    match command:
        case Admit() | Park() | AskForHelp():
            return command.service
        case Report():
            return command.permit.service
        case _:
            return None


def check_uses(key: Key, service: str, used: Collection[str]) -> None:
    """Refuse to an agent's key what it says of a service that none of its tasks uses: others' work waits for that."""
    if service not in used:
        text = f"no task that the key {key.name} holds uses the service {service!r}"
        hint = "name it among the `services` of the task; until then its calls are guarded by its own process alone"
        raise Refused("not_allowed", text, where="service", hint=hint)


def with_figures(command: C, breaker: BreakerPolicy) -> C:
    """What an agent's key asks of a breaker, with the figures of the watch: its own could shut a service for a year."""
    return replace(command, policy=breaker) if isinstance(command, Admit | Report) else command


def _failure_of(key: Key, failure: Failure) -> Failure:
    """A failure as a key may tell it: an agent parks no service for longer than it would wait itself (F5)."""
    if not is_agents(key):
        return failure
    stated = failure.retry_after
    return replace(failure, denied=None, retry_after=None if stated is None else Millis(min(stated, PARK_MAX + 1)))


def _asked_as(key: Key) -> tuple[str, ...] | None:
    """The names under which a key's agents can be asked: those that it was made for, and no part of them."""
    return None if Right.ADMIN in key.rights else key.agents


def signed_by(key: Key, by: str) -> str:
    """Who has decided something: the key, and before it whoever the caller says that it is."""
    return f"{by} (key {key.name})" if by else f"key {key.name}"


def check_beside(key: Key, what: str) -> None:
    """Refuse what lies beside the store, and is no look of its own, to whoever may not see it."""
    check_act(key, *BESIDE[what])


def check_inbox(key: Key, agent: str) -> None:
    """Refuse a look into another agent's inbox to whoever may not look at everything."""
    if not may(key, Operation.LOOK):
        check_act(key, Operation.LOOK_AT_OWN)
        check_agent(key, agent)


def _verified_as_its_role(key: Key, new: NewTask, policies: Mapping[str, Policy]) -> NewTask:
    """The task with what verifies its role's work here, unless it names a command itself, which takes a right.

    A command is run where the holder is supervised. The role's own is what whoever runs the watch has set.
    """
    role = DEFAULT if new.role == WEBHOOKS else policies.get(new.role) or policies.get("") or DEFAULT
    if new.policy.verify not in ((), role.verify):
        check_act(key, Operation.VERIFY)
        return new
    limits = {"verify_timeout": role.verify_timeout, "verify_attempts": role.verify_attempts}
    return replace(new, policy=replace(new.policy, verify=role.verify, **limits)) if role.verify else new


def _check_runs_nothing(key: Key, role: str) -> None:
    """Refuse a task whose payload is a command: `allswell run --resume` would run it as whoever types that."""
    if role in COMMAND_ROLES:
        text = f"the key {key.name} may not hand over tasks of the role {role!r}: their commands are run by `allswell`"
        raise Refused("not_allowed", text, where="role", hint="that takes a key for: admin, operator, supervisor")


def is_its_agent(key: Key, agent: str) -> bool:
    """Whether a key may hold tasks under this name: one of its own, or a slot or part of one (`ada.2`, `ada/lint`)."""
    if Right.ADMIN in key.rights:
        return True
    name = agent.removeprefix(_WORK)
    return any(name == own or name.startswith((f"{own}.", f"{own}/")) for own in key.agents)


def sees_task(key: Key, row: TaskRow, past: Collection[Attempt] = ()) -> bool:
    """Whether a key shows this task; `past` are the attempts at it that have ended."""
    if may(key, Operation.LOOK, Operation.LOOK_AT_ONE):
        return True
    if row.lease is not None and is_its_agent(key, row.lease.agent):
        return True
    if any(is_its_agent(key, ended.agent) for ended in past):
        return True
    origin = row.task.spec.origin
    if origin is not None and is_its_agent(key, origin.agent):
        return True
    if row.task.spec.request is not None and any(is_for(row.task, agent, key.roles) for agent in key.agents):
        return True
    return row.lease is None and row.task.state == OPEN and _has_role(key, row.task.role)


def sees_question(key: Key, question: Question) -> bool:
    """Whether a key shows this question without a look at its task: one that an agent of its own has asked."""
    return may(key, Operation.LOOK, Operation.LOOK_AT_ONE) or is_its_agent(key, question.asked_by)


def is_secret(word: str) -> bool:
    """Whether one of the watch's own words is about keys, sessions or links: those nobody sees from elsewhere."""
    return word.startswith((KEYS, SESSIONS)) or word == LINK_SECRET


def check_word(key: Key, word: str, *, write: bool) -> None:
    """Refuse the watch's own words: keys to everybody, and to agents all but the words under names of theirs."""
    if is_secret(word):
        raise Refused(
            "not_allowed", "keys and sessions are not kept this way; `allswell key` makes and revokes them", where="key"
        )
    if word.startswith((SUPERVISORS, SURVIVORS)) and may(key, Operation.TELL, Operation.DECIDE):
        # A key that decides dismisses a silent supervisor, and frees what the processes of any holder keep.
        if not may(key, Operation.DECIDE):
            check_agent(key, word.partition(".")[2])
    elif write and word.startswith(HUMAN_SESSIONS_PREFIX):
        check_act(key, Operation.DECIDE)
    elif write:
        check_act(key, Operation.RUN_FLOWS)
        if not word.startswith("build."):
            raise Refused("not_allowed", f"{word!r} is kept by Allswell itself", where="key")
    else:
        check_act(key, Operation.LOOK)


def check_value(key: Key, word: str, text: str) -> None:
    """Refuse what a caller would keep under one of the watch's own words, if it is not what every screen reads there.

    A supervisor speaks of itself and of slots that are its own; what was freed or dismissed, a human says.
    """
    if word.startswith(SUPERVISORS):
        presence = read_presence(text)
        if presence is None or presence.name != word.removeprefix(SUPERVISORS):
            raise Refused("bad_value", f"this is not what the supervisor of {word[:_SHOWN]!r} says", where="after")
        check_bounds(presence)
        if may(key, Operation.DECIDE):
            return
        for post in presence.posts:
            check_agent(key, post.holder)
        if presence.dismissed_by:
            check_act(key, Operation.DECIDE)
    elif word.startswith(HUMAN_SESSIONS_PREFIX):
        _check_sessions(word.removeprefix(HUMAN_SESSIONS_PREFIX), text)
    elif word.startswith(SURVIVORS):
        left = read_survivors(text)
        if left is None or left.holder != word.removeprefix(SURVIVORS):
            raise Refused("bad_value", f"this is not what is left of an attempt of {word[:_SHOWN]!r}", where="after")
        check_bounds(left)
        if left.freed_by:
            check_act(key, Operation.DECIDE)


def _check_sessions(host: str, text: str) -> None:
    """Refuse what are not the sessions that humans have started on a machine."""
    sessions = read_sessions(text)
    if kept_sessions(sessions) != text or len(sessions) > SESSIONS_MOST:
        raise Refused("bad_value", f"these are not the sessions of the machine {host[:_SHOWN]!r}", where="after")
    for session in sessions:
        check_bounds(session)
        if session.host != host or bounded(session) != session:
            raise Refused("bad_value", f"this is not a session of {host[:_SHOWN]!r}", where="after")


def _roles(key: Key, wanted: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if Right.ADMIN in key.rights:
        return wanted
    for role in wanted or ():
        if not _has_role(key, role):
            text = f"the key {key.name} claims for {', '.join(key.roles)}, not for {role[:_SHOWN]!r}"
            raise Refused("not_allowed", text, where="roles")
    return key.roles if wanted is None and ANY_ROLE not in key.roles else wanted


def _has_role(key: Key, role: str) -> bool:
    """Whether a key claims for a role: one that it names, or what is asked by name of an agent that is its own."""
    asked = agent_of(role)
    if asked is not None:
        return is_its_agent(key, asked)
    return role in key.roles or (ANY_ROLE in key.roles and role != WEBHOOKS)


def check_agent(key: Key, agent: str) -> None:
    """Refuse a name that is none of a key's."""
    if not is_its_agent(key, agent):
        text = f"the key {key.name} speaks for {', '.join(key.agents) or 'no agent'}, not for {agent[:_SHOWN]!r}"
        raise Refused("not_allowed", text, where="agent")


def _is_deciders(event: Event) -> bool:
    """Whether an event tells what a human decides or does: a supervisor is dismissed, a session of theirs begins."""
    sessions = ("agent_waits", "human_session_began", "human_session_ended")
    return event.kind in ("survivors_freed", "supervisor_stopped", *sessions)


def _check_notice(key: Key, event: Event) -> None:
    if Right.ADMIN in key.rights or (_is_deciders(event) and may(key, Operation.DECIDE)):
        return
    if event.kind not in _AGENTS_TELL:
        raise Refused("not_allowed", f"the key {key.name} may not report {event.kind}", where="kind")
    about = [name for name in (event.agent, str(event.data.get("supervisor", ""))) if name]
    for name in about:
        check_agent(key, name)
    if not about and (event.task is not None or event.run is not None):
        raise Refused("not_allowed", f"which agent of the key {key.name} is this about?", where="agent")


def check_told_of(key: Key, event: Event, row: TaskRow | None) -> None:
    """Refuse what a key tells of a task that it does not see (`row` is None), or of a run that is not its task's."""
    if event.run is not None and (row is None or row.task.run != event.run):
        raise Refused("not_allowed", f"the key {key.name} may not report on the run {event.run}", where="run")
    if row is None:
        raise Refused("not_allowed", f"the key {key.name} may not report on the task {event.task}", where="task")


def refuse_sinks() -> Refused:
    """What a sink does, which lives beside the store."""
    text = "sinks are served beside the store: run `allswell sinks run` or `allswell up` there"
    return Refused("not_allowed", text, where="store")


def _not_allowed(key: Key, act: Operation) -> Refused:
    able = sorted(right for right in Right if act in ALLOWS[right])
    text = f"the key {key.name} may not {act} (it is for: {', '.join(key.rights)})"
    return Refused("not_allowed", text, where="Authorization", hint=f"that takes a key for: {', '.join(able)}")

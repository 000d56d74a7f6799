"""Who may do what: one table for every door, and nothing else decides it.

A caller that shows a key does an **act**. `ALLOWS` says which acts a right allows; `ACT_OF` which act a command is,
`LOOKS` which one a look is. What is in neither table nobody may do from elsewhere: time passes by itself, and sinks
live beside the store. A new command is a line here.

An agent's key is narrower than its acts, since the usual attacker is a confused agent with a valid key:

- it claims for its own roles alone, and only under names of its own;
- it speaks for leases under names of its own alone, and the rule of each word still asks for the token (hold.py);
- it sees what it holds or has held, what it could claim, what it asked and what it is asked; nothing of others;
- the watch's own words it may change only to say that its supervisor is there, under a name of its own.

Whoever keeps several rights may do what any one of them allows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar

from msgspec.structs import replace

from allswell.domain.address import WEBHOOKS, agent_of
from allswell.domain.command import (
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
    Delegate,
    EndIdle,
    EndRun,
    Fail,
    Keep,
    MoveOn,
    NewTask,
    Notice,
    OpenRun,
    Park,
    RecordStep,
    Recover,
    Release,
    Report,
    Respond,
    SendRequest,
    Submit,
    TakeUp,
    Verified,
    Word,
)
from allswell.domain.dismissal import DismissQuestion, DismissTask
from allswell.domain.event import Event
from allswell.domain.key import ANY_ROLE, Key, Right
from allswell.domain.key import PREFIX as KEYS
from allswell.domain.listing import TaskRow
from allswell.domain.names import NO_COMMAND, CommandId
from allswell.domain.paying import EndCostly, ReachBudget, Spend
from allswell.domain.policy import DEFAULT, Policy
from allswell.domain.presence import PREFIX as SUPERVISORS
from allswell.domain.question import Question
from allswell.domain.responding import is_for
from allswell.domain.resubmission import Resubmit
from allswell.domain.session import PREFIX as SESSIONS
from allswell.domain.task import OPEN, Attempt
from allswell.errors import Refused

C = TypeVar("C", bound=Command)
NO_POLICIES: Mapping[str, Policy] = {}


class Act(StrEnum):
    """What a caller does, as far as rights are concerned; each is told in words when it is refused."""

    LOOK = "look at everything"
    LOOK_AT_ONE = "look at one thing by its id"
    LOOK_AT_OWN = "look at its own tasks"
    SUBMIT = "hand over work"
    CLAIM = "claim tasks"
    SPEAK = "speak for a lease"
    CALL_SERVICES = "share the breakers of services"
    TELL = "tell what it saw"
    VERIFY = "verify work, or name what does"
    DECIDE = "answer, call off and try again"
    RUN_FLOWS = "run flows and builds"
    KEEP_KEYS = "make and revoke keys"


ALLOWS: Mapping[Right, frozenset[Act]] = {
    Right.VIEWER: frozenset({Act.LOOK, Act.LOOK_AT_ONE}),
    Right.SUBMITTER: frozenset({Act.SUBMIT, Act.LOOK_AT_ONE}),
    Right.AGENT: frozenset({Act.CLAIM, Act.SPEAK, Act.LOOK_AT_OWN, Act.CALL_SERVICES, Act.TELL}),
    Right.SUPERVISOR: frozenset({Act.CLAIM, Act.SPEAK, Act.LOOK_AT_OWN, Act.CALL_SERVICES, Act.TELL, Act.VERIFY}),
    Right.OPERATOR: frozenset(
        {Act.LOOK, Act.LOOK_AT_ONE, Act.SUBMIT, Act.VERIFY, Act.DECIDE, Act.CALL_SERVICES, Act.RUN_FLOWS}
    ),
    Right.ADMIN: frozenset(Act),
}
ACT_OF: Mapping[type[Command], Act] = {
    Submit: Act.SUBMIT,
    OpenRun: Act.SUBMIT,
    Claim: Act.CLAIM,
    CheckIn: Act.SPEAK,
    CheckInAgain: Act.SPEAK,
    Complete: Act.SPEAK,
    Fail: Act.SPEAK,
    Release: Act.SPEAK,
    Recover: Act.SPEAK,
    EndIdle: Act.SPEAK,
    Keep: Act.SPEAK,
    Spend: Act.SPEAK,
    EndCostly: Act.SPEAK,
    ReachBudget: Act.RUN_FLOWS,  # it takes the sums of all that was spent, which agents do not see
    Ask: Act.SPEAK,
    Delegate: Act.SPEAK,
    SendRequest: Act.SPEAK,
    MoveOn: Act.SPEAK,
    Respond: Act.SPEAK,
    Admit: Act.CALL_SERVICES,
    Report: Act.CALL_SERVICES,
    Park: Act.CALL_SERVICES,
    AskForHelp: Act.CALL_SERVICES,
    Notice: Act.TELL,
    Verified: Act.VERIFY,
    Answer: Act.DECIDE,
    Cancel: Act.DECIDE,
    Resubmit: Act.DECIDE,
    DismissQuestion: Act.DECIDE,
    DismissTask: Act.DECIDE,
    EndRun: Act.DECIDE,
    TakeUp: Act.RUN_FLOWS,
    RecordStep: Act.RUN_FLOWS,
}
LOOKS: Mapping[str, tuple[Act, ...]] = {
    "view_agenda": tuple(Act),
    "view_services": (Act.LOOK, Act.CALL_SERVICES),
    "view_task": (Act.LOOK, Act.LOOK_AT_ONE, Act.LOOK_AT_OWN),
    "view_payload": (Act.LOOK, Act.LOOK_AT_ONE, Act.LOOK_AT_OWN),
    "view_expenses": (Act.LOOK, Act.LOOK_AT_ONE, Act.LOOK_AT_OWN),
    "view_spent": (Act.LOOK,),
    "view_attempts": (Act.LOOK, Act.LOOK_AT_ONE, Act.LOOK_AT_OWN),
    "view_question": (Act.LOOK, Act.LOOK_AT_ONE, Act.LOOK_AT_OWN),
    "view_run": (Act.LOOK, Act.LOOK_AT_ONE),
    "view_tasks": (Act.LOOK, Act.LOOK_AT_OWN),
    "view_questions": (Act.LOOK, Act.LOOK_AT_OWN),
    "view_runs": (Act.LOOK, Act.SUBMIT),  # whoever hands over names the run
    "view_agents": (Act.LOOK,),
    "view_counts": (Act.LOOK,),
    "view_unaccounted": (Act.LOOK,),
    "view_kept": (Act.LOOK,),
    "view_deliveries": (Act.LOOK,),
    "view_results": (Act.LOOK,),
    "view_cursors": (Act.LOOK,),
    "journal": (Act.LOOK,),
    "cursor": (Act.LOOK,),
    "recall": (Act.LOOK, Act.TELL),
}
"""What each look is: any of these acts will do. With `LOOK_AT_OWN` alone, what is not its own is left out."""
BESIDE: Mapping[str, tuple[Act, ...]] = {
    "builds": (Act.LOOK,),
    "checkup": (Act.LOOK,),
    "diff": (Act.LOOK,),
    "log": (Act.LOOK,),
    "metrics": (Act.LOOK,),
    "queues": (Act.LOOK,),
    "receipts": (Act.LOOK,),
    "settings": (Act.LOOK,),
}
"""What is not in the store but beside it: files of attempts, settings, queues. An agent's are not told apart there."""
_AGENTS_TELL = frozenset(
    (
        "agent_state",
        "agent_nudged",
        "request_told",
        "agent_stopped",
        "checkin_asked",
        "checkpoints_collected",
        "context_compacted",
        "questions_open",
        "rate_limited",
        "session_paused",
        "session_resumed",
        "supervisor_started",
        "supervisor_stopped",
        "usage_limit",
    )
)
_WORK = "work:"
"""What `allswell work --agent NAME` puts before its name."""


def may(key: Key, *acts: Act) -> bool:
    """Whether a key allows one of these acts."""
    return any(act in ALLOWS[right] for right in key.rights for act in acts)


def check_act(key: Key, *acts: Act) -> None:
    """Refuse what a key does not allow."""
    if not may(key, *acts):
        raise _not_allowed(key, acts[0])


def admitted(key: Key, command: C, policies: Mapping[str, Policy] = NO_POLICIES) -> C:
    """The command as it is carried out for a key: signed with its name, and a claim kept to its roles.

    `policies` are those of roles where it is carried out: a role's work is verified there, whoever hands it over.
    """
    act = ACT_OF.get(type(command))
    if act is None:
        raise Refused("not_allowed", f"{type(command).__name__} cannot be asked for from elsewhere", where="command")
    check_act(key, act)
    signed: dict[str, object] = {"key": key.name}
    match command:
        case Submit():
            signed["tasks"] = tuple(_verified_as_its_role(key, new, policies) for new in command.tasks)
        case Claim():
            check_agent(key, command.agent)
            signed["roles"] = _roles(key, command.roles)
            if command.id != NO_COMMAND:  # nobody is given another's leases by repeating another's claim
                signed["id"] = CommandId(f"{key.name}/{command.id}")
        case MoveOn():
            check_agent(key, command.agent)
            signed["roles"] = _roles(key, command.roles)
        case Respond():
            check_agent(key, command.agent)
            signed["roles"] = _roles(key, command.roles) or ()
        case Verified() if may(key, Act.DECIDE):  # else it is a supervisor's, of the work of its own agents
            signed["by"] = signed_by(key, command.by)
        case Spend():
            check_agent(key, command.agent)
            signed["while_held"] = not may(key, Act.VERIFY)
        case CheckIn() | Word():
            check_agent(key, command.agent)
        case Notice():
            _check_notice(key, command.event)
        case Answer() | Resubmit() | DismissQuestion() | DismissTask():
            signed["by"] = signed_by(key, command.by)
        case _:
            pass
    return replace(command, **signed)


def signed_by(key: Key, by: str) -> str:
    """Who has decided something: the key, and before it whoever the caller says that it is."""
    return f"{by} (key {key.name})" if by else f"key {key.name}"


def check_beside(key: Key, what: str) -> None:
    """Refuse what lies beside the store, and is no look of its own, to whoever may not see it."""
    check_act(key, *BESIDE[what])


def check_inbox(key: Key, agent: str) -> None:
    """Refuse a look into another agent's inbox to whoever may not look at everything."""
    if not may(key, Act.LOOK):
        check_act(key, Act.LOOK_AT_OWN)
        check_agent(key, agent)


def _verified_as_its_role(key: Key, new: NewTask, policies: Mapping[str, Policy]) -> NewTask:
    """The task with what verifies its role's work here, unless it names a command itself, which takes a right.

    A command is run where the holder is supervised. The role's own is what whoever runs the watch has set.
    """
    role = policies.get(new.role) or policies.get("") or DEFAULT
    if new.policy.verify not in ((), role.verify):
        check_act(key, Act.VERIFY)
        return new
    limits = {"verify_timeout": role.verify_timeout, "verify_attempts": role.verify_attempts}
    return replace(new, policy=replace(new.policy, verify=role.verify, **limits)) if role.verify else new


def is_its_agent(key: Key, agent: str) -> bool:
    """Whether a key may hold tasks under this name: one of its own, or a slot or part of one (`ada.2`, `ada/lint`)."""
    if Right.ADMIN in key.rights:
        return True
    name = agent.removeprefix(_WORK)
    return any(name == own or name.startswith((f"{own}.", f"{own}/")) for own in key.agents)


def sees_task(key: Key, row: TaskRow, past: Collection[Attempt] = ()) -> bool:
    """Whether a key shows this task; `past` are the attempts at it that have ended."""
    if may(key, Act.LOOK, Act.LOOK_AT_ONE):
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
    return may(key, Act.LOOK, Act.LOOK_AT_ONE) or is_its_agent(key, question.asked_by)


def is_secret(word: str) -> bool:
    """Whether one of the watch's own words is about keys or sessions: those nobody sees from elsewhere."""
    return word.startswith((KEYS, SESSIONS))


def check_word(key: Key, word: str, *, write: bool) -> None:
    """Refuse the watch's own words: keys to everybody, and to agents all but the word of a supervisor of theirs."""
    if is_secret(word):
        raise Refused(
            "not_allowed", "keys and sessions are not kept this way; `allswell key` makes and revokes them", where="key"
        )
    if word.startswith(SUPERVISORS) and may(key, Act.TELL):
        check_agent(key, word.removeprefix(SUPERVISORS))
    elif write:
        check_act(key, Act.RUN_FLOWS)
        if not word.startswith("build."):
            raise Refused("not_allowed", f"{word!r} is kept by the watch itself", where="key")
    else:
        check_act(key, Act.LOOK)


def _roles(key: Key, wanted: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if Right.ADMIN in key.rights:
        return wanted
    for role in wanted or ():
        if not _has_role(key, role):
            text = f"the key {key.name} claims for {', '.join(key.roles)}, not for {role!r}"
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
        text = f"the key {key.name} speaks for {', '.join(key.agents) or 'no agent'}, not for {agent!r}"
        raise Refused("not_allowed", text, where="agent")


def _check_notice(key: Key, event: Event) -> None:
    if Right.ADMIN in key.rights:
        return
    if event.kind not in _AGENTS_TELL:
        raise Refused("not_allowed", f"the key {key.name} may not tell of {event.kind}", where="kind")
    about = event.agent or str(event.data.get("supervisor", ""))
    if about:
        check_agent(key, about)


def refuse_sinks() -> Refused:
    """What a sink does, which lives beside the store."""
    text = "sinks are told beside the store: run `allswell sinks run` or `allswell up` there"
    return Refused("not_allowed", text, where="store")


def _not_allowed(key: Key, act: Act) -> Refused:
    able = sorted(right for right in Right if act in ALLOWS[right])
    text = f"the key {key.name} may not {act} (it is for: {', '.join(key.rights)})"
    return Refused("not_allowed", text, where="Authorization", hint=f"that takes a key for: {', '.join(able)}")

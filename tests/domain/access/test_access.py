"""Rules of access: who may do what, tried for every right, every command and every look there is."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.access import rights as access
from allswell.domain.access.key import Key, Right
from allswell.domain.access.rights import (
    ACT_OF,
    ALLOWS,
    LOOKS,
    Operation,
    admitted,
    check_value,
    check_word,
    is_its_agent,
    may,
    sees_task,
)
from allswell.domain.agents.human_session import SESSIONS_MOST, HumanSession, kept
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, TaskId, Token
from allswell.domain.lease.claim import HandOut
from allswell.domain.lease.expiry import OneMoreWindow, Tick
from allswell.domain.rules.command import (
    Answer,
    Cancel,
    CheckIn,
    Claim,
    Command,
    Complete,
    Decline,
    LeaseCommand,
    MoveOn,
    NewTask,
    NoteListed,
    Notice,
    Respond,
    Submit,
    Verified,
)
from allswell.domain.rules.decide import RULES
from allswell.domain.rules.event import KEY, Event
from allswell.domain.rules.outside import NOTICES
from allswell.domain.rules.query import QUERIES, Query, ViewAgenda
from allswell.domain.run.lifecycle import TickRun
from allswell.domain.service.retry import Failure
from allswell.domain.task.fanout import EndTasksOfRun, MoveLimits, TellDependents
from allswell.domain.task.model import DEFAULT, Policy, RequestOrigin, TaskRow
from allswell.domain.worker.quarantine import QuarantineMessage, SettleMessage
from allswell.errors import Refused
from tests.domain.life import START, Life
from tests.properties.budget import DETERMINISTIC

BY_ITSELF = {Tick, OneMoreWindow, TickRun, HandOut, TellDependents, EndTasksOfRun, MoveLimits}
AT_THE_STORE = {QuarantineMessage, SettleMessage}
"""What nobody may ask for from elsewhere: time passes by itself, and workers speak to their queues' own store."""
rights = st.lists(st.sampled_from(Right), min_size=1, unique=True).map(tuple)
names = st.sampled_from(
    ["ada", "ada.2", "ada/lint", "work:ada", "work:ada.3", "adam", "bob", "work:bob", "", "adá", "ada "]
)


def key(*given: Right, roles: tuple[str, ...] = ("build",), agents: tuple[str, ...] = ("ada",)) -> Key:
    agent = Right.AGENT in given or Right.SUPERVISOR in given
    return Key("k", "", given, Millis(0), roles=roles if agent else (), agents=agents if agent else ())


def example(kind: type[Command], agent: str) -> Command:
    """A command of this kind, by this agent where it has one."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name == "agent":
            values["agent"] = agent
        elif field.name == "event":
            values["event"] = Event("agent_state", agent=AgentId(agent), data={"state": "", "evidence": ""})
        elif field.name == "tasks":
            values["tasks"] = ()
        elif field.name == "request" and kind is not Respond and kind is not MoveOn:
            values["request"] = NewTask(TaskId("t_1"), "a")
        elif field.name == "failure":
            values["failure"] = Failure()
        elif field.required:
            values[field.name] = 1 if field.name == "delay" else "x"
    return kind(**values)


def is_refused(who: Key, command: Command) -> bool:
    try:
        admitted(who, command)
    except Refused as refused:
        return refused.code == "not_allowed"
    return False


def test_every_command_and_every_look_has_its_line() -> None:
    """Whoever adds one says who may do it, or names it as what nobody may."""
    assert ACT_OF.keys() | BY_ITSELF | AT_THE_STORE == RULES.keys()
    assert not ACT_OF.keys() & (BY_ITSELF | AT_THE_STORE)
    assert set(Query.__subclasses__()) == set(QUERIES.values()) == LOOKS.keys()
    assert access._AGENTS_TELL <= NOTICES
    assert ALLOWS.keys() == set(Right)


@DETERMINISTIC
@given(rights, st.sampled_from(sorted(ACT_OF, key=lambda kind: kind.__name__)), names)
def test_a_key_does_what_one_of_its_rights_allows_and_nothing_else(
    given_rights: tuple[Right, ...], kind: type[Command], agent: str
) -> None:
    who = key(*given_rights)
    command = example(kind, agent)
    allowed = any(ACT_OF[kind] in ALLOWS[right] for right in given_rights)
    if kind in (Claim, CheckIn, Decline, NoteListed, Notice, Respond) or issubclass(kind, LeaseCommand):
        allowed = allowed and (is_its_agent(who, agent) or (kind is Verified and may(who, Operation.DECIDE)))
        if kind is Notice and not agent:
            allowed = may(who, Operation.TELL)
    assert is_refused(who, command) is not allowed
    if allowed:
        assert admitted(who, command).key == "k"


@pytest.mark.parametrize("act", Operation)
def test_each_right_is_what_it_says(act: Operation) -> None:
    """A viewer changes nothing, an agent decides nothing and sees nobody else, an operator makes no keys."""
    changes = act not in (Operation.LOOK, Operation.LOOK_AT_ONE, Operation.LOOK_AT_OWN)
    assert may(key(Right.VIEWER), act) <= (not changes)
    others = (Operation.DECIDE, Operation.LOOK, Operation.LOOK_AT_ONE, Operation.SUBMIT, Operation.KEEP_KEYS)
    assert may(key(Right.AGENT), act) <= (act not in (*others, Operation.VERIFY))
    assert may(key(Right.SUPERVISOR), act) <= (act not in others)
    assert may(key(Right.SUBMITTER), act) <= (act in (Operation.SUBMIT, Operation.LOOK_AT_ONE))
    assert may(key(Right.OPERATOR), act) <= (act not in (Operation.KEEP_KEYS, Operation.CLAIM, Operation.SPEAK))
    assert may(key(Right.ADMIN), act)


def test_a_command_that_verifies_is_named_by_operators_alone() -> None:
    """It is run where the holder of the task is supervised."""
    plain = Submit(CommandId("c"), (NewTask(TaskId("t_1"), "a"),))
    verified = Submit(CommandId("c"), (NewTask(TaskId("t_1"), "a", policy=Policy(verify=("make", "test"))),))
    assert not is_refused(key(Right.SUBMITTER), plain)
    assert is_refused(key(Right.SUBMITTER), verified)
    assert not is_refused(key(Right.OPERATOR), verified)


@pytest.mark.parametrize(
    "name, own",
    [
        *((name, True) for name in ("ada", "ada.2", "ada/x", "work:ada", "work:ada.1")),
        *((name, False) for name in ("adam", "bob", "bob/ada", "", "work:", "ADA")),
    ],
)
def test_an_agents_key_has_its_own_names(name: str, own: bool) -> None:
    assert is_its_agent(key(Right.AGENT), name) is own
    assert not is_its_agent(key(Right.VIEWER, Right.OPERATOR), name)


def test_a_claim_is_kept_to_the_keys_roles_and_its_id_to_the_key() -> None:
    agent = key(Right.AGENT, roles=("build", "test"))
    claim = Claim(CommandId("c"), AgentId("ada"))
    kept = admitted(agent, claim)
    assert isinstance(kept, Claim)
    assert (kept.roles, kept.id) == (("build", "test"), "k/c")
    assert is_refused(agent, msgspec.structs.replace(claim, roles=("build", "deploy")))
    anything = admitted(key(Right.AGENT, roles=("*",)), claim)
    assert isinstance(anything, Claim)
    assert anything.roles is None


def test_what_is_asked_of_an_agent_by_name_is_for_that_agent() -> None:
    anything = key(Right.AGENT, roles=("*",))
    claim = Claim(CommandId("c"), AgentId("ada"))
    for role, refused in (("@ada", False), ("@work:ada.2", False), ("@bob", True), ("(webhooks)", True), ("x", False)):
        assert is_refused(anything, msgspec.structs.replace(claim, roles=(role,))) is refused, role


def test_a_roles_work_is_verified_where_the_watch_is_whoever_hands_it_over() -> None:
    """A role's command is its owner's word, and takes no right; another one does."""
    here = {"build": Policy(verify=("make", "test"), verify_attempts=5)}

    def handed_over(right: Right, role: str, policy: Policy = DEFAULT) -> tuple[tuple[str, ...], int]:
        new = NewTask(TaskId("t_1"), "mend", role=role, policy=policy)
        (task,) = admitted(key(right), Submit(CommandId("c"), (new,)), here).tasks
        return task.policy.verify, task.policy.verify_attempts

    assert handed_over(Right.SUBMITTER, "build") == (("make", "test"), 5)
    assert handed_over(Right.SUBMITTER, "build", Policy(verify=("make", "test"))) == (("make", "test"), 5)
    assert handed_over(Right.SUBMITTER, "other") == ((), 3)
    assert handed_over(Right.OPERATOR, "build", Policy(verify=("true",))) == (("true",), 3)
    with pytest.raises(Refused, match="may not verify work, or name what does"):
        handed_over(Right.SUBMITTER, "build", Policy(verify=("true",)))


def test_what_a_key_does_is_signed() -> None:
    """Every event that follows says whose key it was; who answered is told with the key that it came by."""
    cancelled = admitted(key(Right.OPERATOR), Cancel(CommandId("c"), TaskId("t_1")))
    life = Life()
    life.do(msgspec.structs.replace(cancelled, task=life.case.task.id), START)
    assert [(event.kind, event.data[KEY]) for event in life.events] == [("task_cancelled", "k")]
    answer = Answer(CommandId("c"), QuestionId("q_1.1"), "skip", by="mia")
    told = admitted(key(Right.OPERATOR), answer)
    assert isinstance(told, Answer)
    assert told.by == "mia (key k)"


def test_an_agent_sees_its_own_tasks_and_what_it_could_claim() -> None:
    life = Life()
    agent, stranger = key(Right.AGENT, roles=("build",)), key(Right.AGENT, roles=("build",), agents=("bob",))
    assert not sees_task(agent, row(life)), "of another role, and nobody's"
    assert sees_task(key(Right.AGENT, roles=("*",)), row(life))
    assert sees_task(key(Right.AGENT, roles=("",)), row(life))
    life.claim("ada", START)
    assert sees_task(agent, row(life))
    assert not sees_task(stranger, row(life))
    life.complete(START)
    past = life.attempts.values()
    assert not sees_task(agent, row(life))
    assert sees_task(agent, row(life), past)
    assert not sees_task(stranger, row(life), past)
    others = (Right.VIEWER, Right.OPERATOR, Right.ADMIN, Right.SUBMITTER)
    assert all(sees_task(key(right), row(life)) for right in others)


def test_an_agent_sees_what_it_has_asked_of_others() -> None:
    life = Life()
    asked = row(life)
    origin = RequestOrigin(TaskId("t_1"), Token(1), AgentId("ada"), CommandId("c"))
    task = msgspec.structs.replace(asked.task, spec=msgspec.structs.replace(asked.task.spec, origin=origin))
    agent, stranger = key(Right.AGENT), key(Right.AGENT, agents=("bob",))
    assert sees_task(agent, msgspec.structs.replace(asked, task=task))
    assert not sees_task(stranger, msgspec.structs.replace(asked, task=task))


def row(life: Life) -> TaskRow:
    case = life.case
    return TaskRow(case.task, case.lease, case.ready is not None, case.due, case.waits)


WORDS: Mapping[str, tuple[Right, ...]] = {
    "key.mia": (),
    "supervisor.work:ada": (Right.AGENT, Right.SUPERVISOR, Right.OPERATOR, Right.ADMIN),
    "supervisor.main": (Right.OPERATOR, Right.ADMIN),
    "survivors.ada.1": (Right.AGENT, Right.SUPERVISOR, Right.OPERATOR, Right.ADMIN),
    "survivors.main/claude.1": (Right.OPERATOR, Right.ADMIN),
    "human_sessions.night": (Right.OPERATOR, Right.ADMIN),
    "build.r_1": (Right.OPERATOR, Right.ADMIN),
    "clock.distance": (),
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("right", Right)
def test_the_watchs_own_words_are_changed_only_by_whom_they_are_about(word: str, right: Right) -> None:
    if right in WORDS[word]:
        check_word(key(right), word, write=True)
        return
    with pytest.raises(Refused) as refused:
        check_word(key(right), word, write=True)
    assert refused.value.code == "not_allowed"


def test_a_machines_sessions_of_humans_are_those_and_nothing_else() -> None:
    one = HumanSession("claude", "s1", "/w", "night", 7, "b", "n", 7, Millis(1), Millis(1))
    check_value(key(Right.OPERATOR), "human_sessions.night", kept((one,)))
    for text in (
        "x",
        kept((one,) * (SESSIONS_MOST + 1)),
        kept((msgspec.structs.replace(one, host="day"),)),
        kept((msgspec.structs.replace(one, session="../s"),)),
        kept((msgspec.structs.replace(one, waits="x" * 5_000),)),
        kept((msgspec.structs.replace(one, pid=-1),)),
    ):
        with pytest.raises(Refused):
            check_value(key(Right.OPERATOR), "human_sessions.night", text)


def test_nobody_speaks_for_a_lease_by_its_number_alone() -> None:
    """A token is a small number; the name of the agent must be the key's own."""
    word = Complete(CommandId("c"), TaskId("t_1"), Token(1), AgentId("bob"))
    assert is_refused(key(Right.AGENT), word)
    assert not is_refused(key(Right.AGENT), msgspec.structs.replace(word, agent="ada.7"))
    assert LOOKS[ViewAgenda] == tuple(Operation)


@pytest.mark.parametrize("kind", ["survivors_freed", "supervisor_stopped", "human_session_began"])
def test_who_decides_tells_what_was_freed_and_dismissed_and_nothing_else_of_supervisors(kind: str) -> None:
    def told(kind: str) -> Notice:
        return Notice(CommandId("c"), Event(kind, data={"supervisor": "main", "by": "grace"}))

    assert not is_refused(key(Right.OPERATOR), told(kind))
    assert is_refused(key(Right.OPERATOR), told("supervisor_started"))
    assert is_refused(key(Right.SUBMITTER), told(kind))

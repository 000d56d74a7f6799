"""Whatever is said about a task, in whatever order and at whatever times, the rules hold."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, Token
from allswell.domain.lease.model import Agent, due_at, ends_at
from allswell.domain.rules.command import Answer, Ask, EndIdle, RecordReceipt, Recover
from allswell.domain.rules.event import KINDS
from allswell.domain.service.retry import ErrorClass, Failure, RetryPolicy
from allswell.domain.task.model import DEFAULT, ENDS, MOVES, OPEN, Policy, State, TaskHistory
from allswell.errors import LeaseLost, Refused
from tests.domain.life import MINUTE, START, Life, at, new
from tests.properties.budget import DETERMINISTIC

PAUSES = st.sampled_from([0, 1, 999, 10_000, 30_000, 61_000, 299_999, 300_000, 330_000, 900_000]) | st.integers(
    0, 20 * MINUTE
)
AGENTS = st.sampled_from(["ann", "bob"])
POLICIES = st.sampled_from(
    [
        DEFAULT,
        Policy(timeout=2 * MINUTE, idle=MINUTE),
        Policy(stall_threshold=1, recovery_grace=0, timeout_escalation=2),
        Policy(timeout=60 * MINUTE, checkpoint_interval=MINUTE, checkpoint_timeout=20_000),
        Policy(timeout_escalation=1, retry=RetryPolicy(retries=0)),
    ]
)


class Step(msgspec.Struct, frozen=True):
    """One thing that happens, so long after the last."""

    pause: int
    verb: int
    agent: str
    token_back: int
    length: int | None
    error: ErrorClass
    retry_after: int | None
    draw: float
    choice: int


ALWAYS = ["tick", "repeat", "late", "cancel"]
VERBS = {
    State.READY: ["claim"] * 8 + ALWAYS,
    State.HELD: [
        *("tick", "tick", "tick", "check_in", "renew", "fail", "fail", "release", "recover", "end_idle", "keep"),
        *("ask", "ask_and_hold", "answer", "complete", *ALWAYS),
    ],
    State.DELAYED: ["wait"] * 8 + ALWAYS,
    State.WAITING: ["answer"] * 8 + ALWAYS,
}
"""What mostly happens to a task that stands there, so that sequences lead somewhere."""
STEPS = st.lists(
    st.builds(
        Step,
        pause=PAUSES,
        verb=st.integers(0, 400),
        agent=AGENTS,
        token_back=st.sampled_from([0, 0, 0, 1, 2]),
        length=st.sampled_from([None, None, 20_000, 400_000]),
        error=st.sampled_from(ErrorClass),
        retry_after=st.sampled_from([None, 0, 5_000, 600_000]),
        draw=st.floats(0, 1, exclude_max=True),
        choice=st.integers(0, 3),
    ),
    min_size=5,
    max_size=40,
)
CASES = st.builds(
    lambda policy, limit, start: Life(policy=policy, limit_at=limit, not_before=start),
    POLICIES,
    st.sampled_from([None, None, at(90), at(40), at(7)]),
    st.sampled_from([None, at(3)]),
)


def happen(life: Life, step: Step, now: Millis, number: int) -> Millis:
    """Carry out a step as the engine would; what is refused leaves the task as it was. When it was done."""
    now = Millis(now + step.pause)
    verbs = VERBS.get(life.stands(), ALWAYS)
    verb = verbs[step.verb % len(verbs)]
    if verb == "wait":
        now = max(now, life.case.due or now)
    before = life.case
    try:
        _carry_out(life, verb, step, now, CommandId(f"c{number}"))
    except (Refused, LeaseLost):
        assert life.case is before
    return now


def _carry_out(  # noqa: C901, PLR0912 - one branch for each thing that can happen
    life: Life, verb: str, step: Step, now: Millis, id_: CommandId
) -> None:
    lease = life.case.lease
    token = (life.record.token if lease is None else lease.token) - step.token_back
    who = step.agent if lease is None or step.token_back else lease.agent
    signed: dict[str, Any] = {"id_": id_, "token": token, "agent": who}
    match verb:
        case "claim":
            if life.stands() is State.READY and (life.limit or now + 1) > now:
                life.claim(step.agent, now, length=step.length, command=id_)
        case "tick" | "wait":
            life.tick(now)
        case "check_in" | "renew" if lease is not None:
            life.check_in(now, proof=verb == "check_in", note="so far" if step.choice else "")
        case "complete":
            life.complete(now, **signed)
        case "late":
            life.complete(now, **{**signed, "token": token - 1})
        case "fail":
            after = None if step.retry_after is None else Millis(step.retry_after)
            life.fail(now, Failure(step.error, "it broke", after), draw=step.draw, **signed)
        case "release":
            life.release(now, delay=step.retry_after or 0, **signed)
        case "recover" if lease is not None:
            life.do(Recover(id_, lease.task, lease.token, lease.agent), now)
        case "end_idle" if lease is not None:
            life.do(EndIdle(id_, lease.task, lease.token, lease.agent), now)
        case "keep":
            life.do(RecordReceipt(id_, life.case.task.id, Token(token), AgentId(who), "rc_a.1", "idle"), now)
        case "ask" | "ask_and_hold" if lease is not None:
            held = verb == "ask_and_hold"
            life.do(Ask(id_, lease.task, lease.token, lease.agent, "Which one?", hold=held), now)
        case "answer":
            _answer(life, step, now, id_)
        case "cancel" if step.choice == step.token_back == 0:
            life.cancel(now, id_=id_)
        case "repeat" if life.attempts:
            last = life.attempts[max(life.attempts)]
            life.complete(now, id_=last.command or "none", token=last.token, agent=last.agent)
        case _:
            pass


def _answer(life: Life, step: Step, now: Millis, id_: CommandId) -> None:
    for question in life.questions.values():
        if question.closed_at is None:
            option = question.options[step.choice % len(question.options)]
            smaller = (new("t_b", run=life.case.task.run),)
            life.do(Answer(id_, question.id, option.key, "like this", smaller), now)
            return


def live(life: Life, steps: list[Step]) -> Millis:
    now = START
    for number, step in enumerate(steps):
        now = happen(life, step, now, number)
    return now


@DETERMINISTIC
@given(CASES, STEPS)
def test_the_rules_hold_after_every_step(life: Life, steps: list[Step]) -> None:
    now, tokens, ended = START, [0], None
    for number, step in enumerate(steps):
        old, told = life.stands(), len(life.events)
        now = happen(life, step, now, number)
        stands = life.stands()  # raises if it stands nowhere
        assert stands is old or stands in MOVES[old]
        for fact in life.events[told:]:
            assert set(fact.data) == set(KINDS[fact.kind].fields)
        if life.case.lease is not None:
            assert life.lease.token >= tokens[-1]
            tokens.append(life.lease.token)
            assert life.timer_is_armed()
        assert life.record.token <= tokens[-1]
        if ended is not None:
            assert life.case.task == ended
        if stands in ENDS:
            ended = life.case.task
            assert (life.case.lease, life.case.ready, life.case.due, life.case.waits) == (None, None, None, ())
        if stands is State.WAITING:
            open_ones = {question.id for question in life.questions.values() if question.closed_at is None}
            assert {wait.target for wait in life.case.waits} <= open_ones
    event(f"ends {life.stands()}")


@DETERMINISTIC
@given(CASES, STEPS)
def test_every_lease_has_a_greater_token_than_any_before(life: Life, steps: list[Step]) -> None:
    live(life, steps)
    tokens = [told.token for told in life.told("task_claimed")]
    assert tokens == list(range(1, len(tokens) + 1))
    over = len(tokens) - (life.case.lease is not None)
    assert sorted(life.attempts) == list(range(1, over + 1))


@DETERMINISTIC
@given(CASES, STEPS, PAUSES)
def test_a_tick_leaves_no_timer_in_the_past_and_a_second_one_changes_nothing(
    life: Life, steps: list[Step], pause: int
) -> None:
    now = Millis(live(life, steps) + pause)
    life.tick(now)
    assert life.case.due is None or life.case.due > now
    if life.case.lease is not None:
        assert life.case.due == due_at(life.case.lease)
    before, told = life.case, len(life.events)
    life.tick(now)
    assert (life.case, len(life.events)) == (before, told)


MOMENTS = st.sampled_from(
    [round(minutes * MINUTE) for minutes in (0, 0.3, 0.5, 1, 2, 4, 5, 5.5, 6, 7, 10, 10.5, 15, 16, 21, 40, 60, 70)]
)
"""Around everything that could fall due: drawn evenly, for most numbers are too small to matter."""


@settings(DETERMINISTIC, max_examples=1_000)
@given(
    policy=POLICIES,
    limit=st.none() | MOMENTS,
    length=st.sampled_from([None, None, 20_000, 6 * MINUTE]),
    misses=st.integers(0, 3),
    timeouts=st.integers(0, 2),
    words=st.lists(MOMENTS, max_size=2).map(sorted),
    away=MOMENTS,
)
def test_a_sweeper_that_was_away_comes_to_the_same_verdicts(
    policy: Policy,
    limit: int | None,
    length: int | None,
    misses: int,
    timeouts: int,
    words: list[int],
    away: int,
) -> None:
    life = Life(policy=policy, limit_at=None if limit is None else Millis(START + 1 + limit))
    life.case = replace(life.case, task=replace(life.case.task, record=TaskHistory(timeouts=timeouts)))
    life.claim("bob", START, length=length)
    if misses:
        life.agents[AgentId("bob")] = Agent(AgentId("bob"), misses, Millis(START - 1))
    began = START
    for word in words:
        if START + word < ends_at(life.lease):
            began = Millis(START + word)
            life.check_in(began)
    now, told = Millis(began + away), len(life.events)
    punctual, late = life, copy.deepcopy(life)
    punctual.tick_when_due(now)
    late.tick(now)
    kinds, late_kinds = punctual.kinds()[told:], late.kinds()[told:]
    if "agent_stalled" in kinds:
        # Its grace counts from when it was told, for its supervisor could not have known before.
        assert late_kinds[: kinds.index("agent_stalled") + 1] == kinds[: kinds.index("agent_stalled") + 1]
        event("stalled")
        return
    assert late_kinds == kinds
    assert late.stands() is punctual.stands()
    counted = ("token", "timeouts", "stalls", "lapses", "failures", "questions", "reason")
    assert [getattr(late.record, name) for name in counted] == [getattr(punctual.record, name) for name in counted]
    assert {token: one.outcome for token, one in late.attempts.items()} == {
        token: one.outcome for token, one in punctual.attempts.items()
    }
    event(" ".join(dict.fromkeys(kinds)) or "nothing")


@DETERMINISTIC
@given(CASES, STEPS)
def test_an_open_task_can_always_be_brought_to_an_end(life: Life, steps: list[Step]) -> None:
    """No sequence leads into a dead end: time, answers and one good holder finish what is open."""
    now = live(life, steps)
    for number in range(50):
        if life.case.task.state != OPEN:
            return
        now = Millis(now + 20 * MINUTE)
        life.tick(now)
        if life.stands() is State.WAITING:
            _answer(life, Step(0, 0, "", 0, None, ErrorClass.BUG, None, 0.0, 0), now, CommandId(f"end{number}"))
        elif life.stands() is State.READY:
            if (life.limit or now + 1) <= now:
                return  # its run's end is near: the run's timer speaks next
            life.claim("zoe", now, command=f"end{number}")
            life.complete(now, id_=f"done{number}")
    raise AssertionError(f"still {life.stands()}")

"""Rows with values that a store could spoil: other scripts, quotes, nothing at all, the largest and the smallest."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.model import Agent, AgentRecord, ExpiredDelivery, LeaseRow
from allswell.domain.question import REPEATED_TIMEOUT_OPTIONS, Question
from allswell.domain.rules.event import Event
from allswell.domain.run.run import Fanout, Run
from allswell.domain.service.breaker import Service
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import (
    OPEN,
    Attempt,
    Handover,
    Policy,
    ReadyTask,
    RequestOrigin,
    RequestRecord,
    RequestSpec,
    Spec,
    State,
    Task,
    TaskHistory,
    WaitState,
    rank,
)
from allswell.store.port import RowChanges
from tests.support.conformance.place import AT

TEXT = "naïve “quotes” 'n\" \\n\n\t%s $1 ? :name {} 漢字 עברית 🌙 e\u0301 \u2028"
"""Everything that breaks a careless store."""
BIG = 2**53 + 1
"""Not a float."""


def task(
    id_: str,
    *,
    run: str | None = None,
    name: str = "",
    lane: int = 1,
    state: str = OPEN,
    priority: int = 0,
    age: int = 0,
) -> Task:
    """A plain task."""
    ended = None if state == OPEN else Millis(AT + 5)
    of = None if run is None else RunId(run)
    made, place = Millis(AT - age), rank(priority, AT - age)
    return Task(TaskId(id_), name or id_, of, "", lane, priority, state, made, ended, Spec(), TaskHistory(), place)


def full_task(id_: str, lane: int = 1) -> Task:
    """A task with every field set to something odd."""
    policy = Policy(timeout=BIG, idle=7, retry=RetryPolicy(backoff=11, jitter=0.1 + 0.2))
    spec = Spec(("svc-β", "a b"), (TaskId("t_x"),), True, "run", policy, Millis(AT + 1), Millis(2**42), "d" * 16)
    spec = replace(spec, retry_of=TaskId("t_before"))
    handover = Handover("agent_timeout", AgentId("ågent"), TEXT, TEXT, 1e-300)
    record = TaskHistory(
        Token(BIG),
        1,
        2,
        3,
        {"network": 2},
        4,
        CommandId("c-1"),
        Millis(BIG),
        (TEXT, ""),
        handover,
        TEXT,
        (TaskId("t_y"), TaskId("t_z")),
        CommandId("c-2"),
        retried_as=TaskId("t_after"),
    )
    return Task(
        TaskId(id_),
        TEXT,
        RunId("r_1"),
        "rôle",
        lane,
        1_000_000,
        State.FAILED.value,
        Millis(0),
        Millis(2**42),
        spec,
        record,
        rank(1_000_000, 0),
    )


def request(id_: str, asker: str, to: str) -> Task:
    """A request of the mesh, just delivered."""
    origin = RequestOrigin(TaskId("t_1"), Token(1), AgentId(asker), CommandId("c-1"))
    spec = Spec(origin=origin, request=RequestSpec("handoff", to, 300, 2, 300, 5, BIG, BIG, TEXT))
    record = TaskHistory(request=RequestRecord(Millis(AT), Millis(AT + 300), last=3))
    plain = task(id_)
    return replace(plain, role=f"@{to}", spec=spec, record=record)


def ready(id_: str, *, lane: int = 1, priority: int = 0, age: int = 0) -> ReadyTask:
    """A claimable task's row; the greater its age, the earlier its turn."""
    return ReadyTask(TaskId(id_), lane, rank(priority, AT - age))


def ready_of(task_: Task) -> ReadyTask:
    """The row of a task that can be claimed."""
    return ReadyTask(task_.id, task_.lane, task_.rank)


def lease(id_: str, token: int = 1, *, agent: str = "alice", command: str = "") -> LeaseRow:
    """A plain lease."""
    at = Millis(AT)
    return LeaseRow(
        TaskId(id_), Token(token), AgentId(agent), at, Millis(AT + 900), None, None, 300, 30, 10, CommandId(command)
    )


def full_lease(id_: str, token: int = BIG) -> LeaseRow:
    """A lease with every field set to something odd."""
    return replace(
        lease(id_, token, agent="ågent", command=TEXT),
        length=BIG,
        idle=0,
        judged=3,
        stalled_at=Millis(AT + 1),
        renewed_at=Millis(BIG),
        checkin_at=Millis(AT + 2),
        progress=1 / 3,
        note=TEXT,
    )


def attempt(id_: str, token: int = 1) -> Attempt:
    """How a lease ended."""
    at = Millis(AT)
    return Attempt(
        TaskId(id_), Token(token), AgentId("alice"), at, Millis(AT + 3), "released", CommandId(f"c{token}"), TEXT
    )


def question(id_: str, about: str, *, asked_at: int = AT, closed: bool = False) -> Question:
    """A question about a task."""
    plain = Question(
        QuestionId(id_), TaskId(about), None, "agent", TEXT, REPEATED_TIMEOUT_OPTIONS, Millis(asked_at), "ågent"
    )
    return replace(plain, closed_at=Millis(AT + 9), choice="skip") if closed else plain


def run(id_: str, *, created_at: int = AT) -> Run:
    """An open run without a deadline."""
    return Run(RunId(id_), TEXT, Millis(created_at), None)


def full_run(id_: str) -> Run:
    """A run that was ended and went on."""
    ended = Run(RunId(id_), "", Millis(0), Millis(BIG), Millis(2**42), TEXT, CommandId(TEXT))
    return replace(ended, continued_in=RunId("r_after"))


def spread(id_: str, outcome: str = "done") -> Fanout:
    """A consequence to be worked off."""
    return Fanout(TaskId(id_), outcome, TEXT, reached=TEXT)


def need(id_: str, target: str) -> WaitState:
    """A task waits for another."""
    return WaitState(TaskId(id_), "need", TaskId(target))


def asks(id_: str, target: str) -> WaitState:
    """A task waits for an answer."""
    return WaitState(TaskId(id_), "question", QuestionId(target))


def event(kind: str = "task_ready", id_: str | None = None, **data: object) -> Event:
    """An event."""
    return Event(kind, None if id_ is None else TaskId(id_), data=data)


def new_tasks(*tasks: Task) -> RowChanges:
    """Changes that make these tasks, each with a payload that names it."""
    return RowChanges(new_tasks=[(one, f'"{one.id}"') for one in tasks])


def agent(id_: str, misses: int = 1) -> Agent:
    """What is held against an agent."""
    return Agent(AgentId(id_), misses, Millis(AT + misses), stalled=misses > 2)


def health(expired: int = 1) -> AgentRecord:
    """What requests say of an agent."""
    late = [ExpiredDelivery(Millis(AT + number), f"m_{number}", TEXT, 300_000) for number in range(expired)]
    return AgentRecord(tuple(late), (Millis(AT),))


def service(id_: str, until: int = AT) -> ServiceRow:
    """A service that everything is held against: parked, shut, its probe out, a human asked and waited for."""
    state = Service(5, BIG, Millis(AT + 1), Millis(AT + 2), True, True, True, Millis(until))
    return ServiceRow(id_, state, 3, Millis(AT - 1), CommandId("c-β"))

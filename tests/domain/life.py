"""One task's life, driven by hand: rows in, decisions out, the clock an argument. What the engine does, without it."""
# ruff: noqa: ANN401 - keywords are handed on to commands, which have types

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.claim import HandOut
from allswell.domain.lease.expiry import Tick
from allswell.domain.lease.holder import CheckedIn, check_in
from allswell.domain.lease.model import Agent, LeaseRow, due_at
from allswell.domain.question import Question
from allswell.domain.rules.command import Answer, Cancel, CheckIn, Claim, Command, Complete, Fail, NewTask, Release
from allswell.domain.rules.decide import decide
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import RowSnapshot
from allswell.domain.run.run import Fanout, Run
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, state
from allswell.domain.task.model import DEFAULT, Attempt, Policy, State, TaskHistory
from allswell.domain.task.submit import accept

START = Millis(1_700_000_000_000)
SECOND = 1_000
MINUTE = 60_000
RUN = RunId("r_life")


def at(minutes: float) -> Millis:
    """So many minutes after the start."""
    return Millis(START + round(minutes * MINUTE))


def new(id_: str = "t_a", **fields: Any) -> NewTask:
    """A task as it is submitted; its name is its id's letter, as in the mission's examples."""
    return NewTask(**{"id": TaskId(id_), "name": id_[2:].upper(), **fields})


def opened(*, policy: Policy = DEFAULT, now: Millis = START, **fields: Any) -> TaskAggregate:
    """A task that was just accepted and needs nothing."""
    made = new(policy=policy, **fields)
    return accept(made, 1, None, {}, {made.id: 0}, now).case


class Life:
    """A task with everything that was decided about it so far."""

    def __init__(self, case: TaskAggregate | None = None, *, limit_at: Millis | None = None, **fields: Any) -> None:
        """`limit_at` is the deadline of its run; without one it is in none."""
        self.run = None if limit_at is None else Run(RUN, "run", START, limit_at)
        if self.run is not None:
            fields["run"] = RUN
        self.case = opened(**fields) if case is None else case
        self.agents: dict[AgentId, Agent] = {}
        self.events: list[Event] = []
        self.attempts: dict[int, Attempt] = {}
        self.questions: dict[QuestionId, Question] = {}
        self.spread: Fanout | None = None
        self.error: Exception | None = None
        """What the last command's caller was told, beside its answer."""
        self._commands = 0

    # --- what is done -----------------------------------------------------------------------------------------------

    def claim(self, agent: str, now: Millis, *, length: int | None = None, command: str = "claim") -> LeaseRow:
        claim = Claim(CommandId(command), AgentId(agent), None, 1, length)
        task = self.case.task
        out = self._decide(HandOut(claim, (task.id,), (task.lane,)), now)
        assert isinstance(out.answer, LeaseRow)
        return out.answer

    def tick(self, now: Millis) -> TaskChange:
        """One look of a sweeper."""
        return self._decide(Tick(self.case.task.id, self.holder), now)

    def tick_when_due(self, until: Millis) -> None:
        """A sweeper that is never late."""
        due = self.case.due
        while due is not None and due <= until:
            self.tick(due)
            before, due = due, self.case.due
            assert due is None or due > before

    def check_in(self, now: Millis, **said: Any) -> CheckedIn:
        """The holder speaks on its lease."""
        lease = self.lease
        done = check_in(lease, CheckIn(lease.task, lease.token, lease.agent, **said), now)
        self.case = replace(self.case, lease=done.lease)
        if done.answered:
            self.agents.pop(lease.agent, None)
        if done.event is not None:
            self.events.append(done.event)
        return done

    def complete(self, now: Millis, *, result: str = "null", **by: Any) -> TaskChange:
        return self.do(Complete(*self._signed(by), result), now)

    def fail(self, now: Millis, failure: Failure | ErrorClass, *, draw: float = 0.0, **by: Any) -> TaskChange:
        told = failure if isinstance(failure, Failure) else Failure(failure, "it broke")
        return self.do(Fail(*self._signed(by), told), now, draw)

    def release(self, now: Millis, *, delay: int = 0, **by: Any) -> TaskChange:
        return self.do(Release(*self._signed(by), delay=delay), now)

    def cancel(self, now: Millis, *, id_: str = "cancel") -> TaskChange:
        return self._decide(Cancel(CommandId(id_), self.case.task.id), now)

    def do(self, command: Command, now: Millis, draw: float = 0.0) -> TaskChange:
        return self._decide(command, now, draw)

    def answer(self, option: str, now: Millis, *, id_: str = "answer", **how: Any) -> TaskChange:
        """Answer the only open question."""
        return self._decide(Answer(CommandId(id_), self.question.id, option, **how), now)

    def _signed(self, by: dict[str, Any]) -> tuple[CommandId, TaskId, Token, AgentId]:
        self._commands += 1
        id_ = CommandId(by.get("id_", f"c{self._commands}"))
        lease = self.case.lease
        token = by["token"] if lease is None else by.get("token", lease.token)
        agent = by["agent"] if lease is None else by.get("agent", lease.agent)
        return id_, self.case.task.id, Token(token), AgentId(agent)

    def _decide(self, command: Command, now: Millis, draw: float = 0.0) -> TaskChange:
        """What the engine does: the rows in, the decision out, entered. Of this task; others that are made are not."""
        id_ = self.case.task.id
        situation = RowSnapshot(
            now,
            cases={id_: self.case},
            runs={} if self.run is None else {self.run.id: self.run},
            agents=dict(self.agents),
            questions=dict(self.questions),
            attempts={(id_, Token(token)): ended for token, ended in self.attempts.items()},
            payloads={id_: "null"},
            lanes={("", ()): 1},
        )
        decision = decide(situation, command, draw)
        self.questions.update({question.id: question for question in decision.closed})
        (out,) = [out for out in decision.outcomes if out.case.task.id == id_] or [
            TaskChange(self.case, decision.answer)
        ]
        self._enter(out)
        for agent, record in decision.agents:
            self.agents.pop(agent, None)
            if record is not None:
                self.agents[agent] = record
        return out

    def _enter(self, out: TaskChange) -> None:
        self.case = replace(out.case, agent=None, past=None)
        self.events += out.events
        self.error = out.error
        self.attempts.update({ended.token: ended for ended in out.attempts})
        if out.late is not None:
            self.attempts[out.late.token] = out.late
        self.questions.update({question.id: question for question in out.questions})
        self.spread = out.spread or self.spread
        self.run = out.run or self.run

    # --- what can be seen -------------------------------------------------------------------------------------------

    @property
    def limit(self) -> Millis | None:
        """That of its run, if there is one now."""
        return None if self.run is None else self.run.limit

    def stands(self) -> State:
        return state(self.case)

    @property
    def lease(self) -> LeaseRow:
        assert self.case.lease is not None
        return self.case.lease

    @property
    def holder(self) -> AgentId | None:
        return None if self.case.lease is None else self.case.lease.agent

    @property
    def record(self) -> TaskHistory:
        return self.case.task.record

    @property
    def question(self) -> Question:
        """The only open one."""
        (question,) = (question for question in self.questions.values() if question.closed_at is None)
        return question

    def told(self, *kinds: str) -> list[Event]:
        """The events of these kinds, or all."""
        return [event for event in self.events if not kinds or event.kind in kinds]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def timer_is_armed(self) -> bool:
        """Whether the timer is where the lease wants it, or earlier."""
        lease = self.case.lease
        return lease is None or (self.case.due is not None and self.case.due <= due_at(lease))

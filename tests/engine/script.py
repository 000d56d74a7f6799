"""Random scripts of commands for `test_equal_answers`: written while they are performed, so that they lead somewhere.

A script is a list of lines; each is a batch of commands, a batch of check-ins, a jump of the clock, or a sweep. What
answers depend on chance (ids, jitter) or on the clock is given by the script or left out of the comparison.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from allswell.domain.agents.cost import Expense
from allswell.domain.ids import AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.cost import EndCostly, Spend
from allswell.domain.lease.late import afterwards
from allswell.domain.question import REPEATED_TIMEOUT_OPTIONS, Question
from allswell.domain.rules.command import (
    AcquireFlow,
    Admit,
    Answer,
    Ask,
    Cancel,
    CheckIn,
    Claim,
    Complete,
    Delegate,
    EndIdle,
    EndRun,
    Fail,
    NewTask,
    OpenRun,
    Park,
    RecordReceipt,
    RecordStep,
    Recover,
    Release,
    Report,
    Submit,
    Unpark,
)
from allswell.domain.rules.event import Position
from allswell.domain.service.breaker import BreakerPolicy, CallOutcome, Permit
from allswell.domain.service.retry import ErrorClass, Failure, RetryPolicy
from allswell.domain.task.answer import DismissQuestion, DismissTask
from allswell.domain.task.model import Attempt, Policy, TaskFilter
from allswell.domain.task.resubmit import Resubmit, ResubmittedTask
from allswell.engine.engine import Engine
from allswell.errors import AllswellError

AGENTS = [AgentId(name) for name in ("ann", "bob", "cy")]
ROLES = ("", "builder", "auditor")
TIMES = (
    "_at",
    "deadline",
    "until",
    "elapsed_ms",
    "due",
    "remaining_ms",
    "at",
    "limit_at",
    "wait",
    "since",
    "shut_ms",
    "stood",
    "stood_ms",
    "own",
    "rank",
)
"""Fields that tell a moment, follow from one, or tell a length that was measured."""
MEASURED = re.compile(r"\d+ (ms (are )?left|s from now)")
FLOWS = ("one", "two")
PATIENT = Policy(
    timeout_escalation=2,
    max_cost=10**6,
    max_tokens=12,
    retry=RetryPolicy(backoff=3_600_000, retry_after_default=3_600_000, retry_after_cap=7_200_000),
)
"""Retries so far away that no real clock reaches them while a script is performed."""


class Commands(msgspec.Struct, frozen=True):
    """One batch."""

    batch: tuple[Any, ...]


class CheckIns(msgspec.Struct, frozen=True):
    """One batch of check-ins."""

    batch: tuple[CheckIn, ...]


class Sweep(msgspec.Struct, frozen=True):
    """Time passes by so many ms, and a sweeper works off what there is."""

    passed: int


class Steps(msgspec.Struct, frozen=True):
    """Steps of flows that are recorded at once."""

    batch: tuple[RecordStep, ...]


Line = Commands | CheckIns | Steps | Sweep


class Author:
    """Writes a script, line by line, knowing what the lines so far came to."""

    def __init__(self, seed: int, *, timed: bool) -> None:
        self._draw = random.Random(seed)
        self._timed = timed
        self._number = 0
        self._tasks: list[TaskId] = []
        self._submitted: dict[TaskId, NewTask] = {}
        self._runs: list[RunId] = []
        self._questions: list[Question] = []
        self._leases: list[tuple[TaskId, Token, AgentId]] = []
        self._flows: list[tuple[TaskId, Token, AgentId, RunId]] = []
        self._recorded: list[RecordStep] = []
        self._said: list[Any] = []

    def line(self) -> Line:
        """What happens next."""
        kind = self._draw.random()
        if kind < 0.15:
            return Sweep(self._draw.choice([0, 1_000, 61_000, 330_000, 900_000, 3_600_000]) if self._timed else 0)
        if kind < 0.3 and self._leases:
            return CheckIns(tuple(self._check_in() for _ in range(self._draw.randint(1, 3))))
        if kind < 0.45 and self._flows:
            return Steps(tuple(self._step() for _ in range(self._draw.choice([1, 1, 2, 4]))))
        return Commands(tuple(self._command() for _ in range(self._draw.choice([1, 1, 2, 3, 5]))))

    def heard(self, line: Line, answers: Sequence[object], questions: Sequence[Question]) -> None:
        """Take note of what a line came to."""
        self._questions = list(questions)
        if isinstance(line, Commands):
            self._said += line.batch
            for command, answer in zip(line.batch, answers, strict=True):
                if isinstance(command, Submit) and not isinstance(answer, AllswellError):
                    self._tasks += [new.id for new in command.tasks]
                    self._submitted |= {new.id: new for new in command.tasks}
                elif isinstance(command, Resubmit) and not isinstance(answer, AllswellError):
                    self._tasks += [one.id for one in command.renewals]
                elif isinstance(command, AcquireFlow) and isinstance(answer, Granted):
                    held = (answer.lease.task, answer.lease.token, answer.lease.agent)
                    self._leases.append(held)
                    self._flows.append((*held, RunId(str(command.flow.run))))
                    self._tasks.append(command.flow.id)
                elif isinstance(command, Delegate) and not isinstance(answer, AllswellError):
                    self._tasks.append(command.request.id)
                elif isinstance(command, OpenRun):
                    self._runs.append(command.run)
                elif isinstance(command, Claim) and isinstance(answer, list):
                    granted: list[Granted] = answer
                    self._leases += [(one.lease.task, one.lease.token, one.lease.agent) for one in granted]

    def _id(self) -> CommandId:
        self._number += 1
        return CommandId(f"c{self._number:04}")

    def _some(self, known: Sequence[Any], other: str) -> Any:  # noqa: ANN401 - an id of any kind
        """One that is known, mostly; or one that is not, or that no store can hold."""
        if known and self._draw.random() < 0.9:
            return self._draw.choice(known[-12:])
        return self._draw.choice([f"{other}nobody", f"{other}a\0b", "\ud800"])

    def _new(self, name: str) -> NewTask:
        draw = self._draw
        known = self._tasks
        needs = tuple(dict.fromkeys(self._some(known, "t_") for _ in range(draw.choice([0, 0, 1, 2])) if known))
        return NewTask(
            TaskId(f"t_{name}"),
            name,
            run=draw.choice(self._runs) if self._runs and draw.random() < 0.3 else None,
            role=draw.choice([*ROLES, *ROLES, "a\0b"] if draw.random() < 0.1 else ROLES),
            services=("api",) if draw.random() < 0.3 else (),
            priority=draw.choice([0, 0, 5, -1] if draw.random() < 0.1 else [0, 0, 5]),
            needs=needs,
            barred=(draw.choice(AGENTS),) if draw.random() < 0.2 else (),
            payload=msgspec.json.encode({"n": name}).decode(),
            not_before=Millis(1_700_000_600_000) if self._timed and draw.random() < 0.1 else None,
            if_need_fails=draw.choice(["skip", "run"]),
            policy=PATIENT,
        )

    def _check_in(self) -> CheckIn:
        task, token, agent = self._draw.choice(self._leases)
        note = self._draw.choice(["", "half way", "x" * 20_000])
        return CheckIn(task, token, self._draw.choice([agent, agent, agent, AgentId("eve\0")]), bool(note), note, 0.5)

    def _step(self) -> RecordStep:
        draw = self._draw
        if self._recorded and draw.random() < 0.2:
            return draw.choice(self._recorded)  # the same word again, or another about the same step
        flow, token, agent, run = draw.choice(self._flows[-3:])
        id_ = self._id()
        again = self._recorded and draw.random() < 0.1
        step = draw.choice(self._recorded).step if again else TaskId(draw.choice([f"t_s{id_}"] * 9 + ["t_a\0b"]))
        who = agent if draw.random() < 0.9 else AgentId("eve\0")
        result = draw.choice(['"fine"', "[1,2]", "null", "x" * (1 << 20) + "x"])
        made = RecordStep(id_, flow, token, who, run, step, draw.choice(["load"] * 9 + ["a\0b"]), "[]", result, 0)
        self._recorded.append(made)
        return made

    def _command(self) -> Any:  # noqa: ANN401 - a command of any kind
        draw, id_ = self._draw, self._id()
        if self._said and draw.random() < 0.08:
            return draw.choice(self._said)
        if draw.random() < 0.15:
            return self._about_service(id_)
        verbs = ["submit", "submit", "claim", "claim", "run", "end_run", "cancel", "take_up", "take_up"]
        verbs += ["retry", "retry", "dismiss"] if self._submitted else []
        if self._leases:
            verbs += [
                "complete",
                "complete",
                "fail",
                "fail",
                "fail",
                "release",
                "ask",
                "ask",
                "recover",
                "delegate",
                "delegate",
                "idle",
                "keep",
                "spend",
                "spend",
                "costly",
            ]
        if self._questions:
            verbs += ["answer"] * 8
        verb = draw.choice(verbs)
        if verb in ("submit", "claim", "run", "end_run", "cancel", "retry", "dismiss", "take_up", "answer"):
            return self._outside(verb, id_)
        task, token, agent = draw.choice(self._leases[-8:])
        who = agent if draw.random() < 0.9 else AgentId("eve\0")
        match verb:
            case "complete":
                return Complete(id_, task, token, who, draw.choice(['"fine"', '"fine"', "x" * (1 << 20) + "x"]))
            case "fail":
                after = draw.choice([None, None, Millis(90_000_000)])
                services = draw.choice([(), ("api",), ("b\0",)])
                return Fail(id_, task, token, who, Failure(draw.choice(list(ErrorClass)), "it broke", after, services))
            case "release":
                return Release(id_, task, token, who, "not now", draw.choice([0, 0, 3_600_000]))
            case "ask":
                options = draw.choice([(), REPEATED_TIMEOUT_OPTIONS])
                return Ask(
                    id_, task, token, who, draw.choice(["Which one?", "Why?", " "]), options, draw.random() < 0.4
                )
            case "delegate":
                return self._delegate(id_, task, token, who)
            case "keep":
                return RecordReceipt(id_, task, token, who, f"rc_{id_}", "idle", draw.choice(["", "a\0b"]))
            case _:
                return self._by_supervisor(verb, id_, task, token, who)

    def _by_supervisor(self, verb: str, id_: CommandId, task: TaskId, token: Token, who: AgentId) -> Any:  # noqa: ANN401
        if verb == "spend":
            return Spend(id_, task, token, who, expense=Expense(self._draw.choice([None, 10, 10**7]), 5, None))
        ends = {"idle": EndIdle, "costly": EndCostly}
        return ends.get(verb, Recover)(id_, task, token, who)

    def _delegate(self, id_: CommandId, task: TaskId, token: Token, who: AgentId) -> Delegate:
        new = msgspec.structs.replace(self._new(f"{id_}.d"), needs=(), run=None, not_before=None)
        return Delegate(id_, task, token, who, new, Millis(self._draw.choice([600_000, 600_000, 0])))

    def _about_service(self, id_: CommandId) -> Any:  # noqa: ANN401 - a command of any kind
        """With pauses so long that no real clock reaches their ends while a script is performed."""
        draw, name = self._draw, self._draw.choice(["api", "api", "api", "b\0"])
        policy = BreakerPolicy(pause=3_600_000, probe_lease=7_200_000, then=draw.choice(["probe", "wait"]))
        kind = draw.random()
        if kind < 0.2 and self._timed:  # how long counts from when it is said
            return Park(id_, name, draw.choice([90_000_000, -1]))
        if kind < 0.25:
            return Unpark(id_, name, draw.choice(["grace"] * 9 + ["a\0b"]))
        if kind < 0.5:
            return Admit(id_, name, policy)
        permit = Permit(name, draw.choice([0, 0, 0, 1, 2, 3]), draw.random() < 0.3)
        return Report(id_, permit, draw.choice([*CallOutcome, CallOutcome.FAILED, CallOutcome.FAILED]), policy)

    def _retry(self, id_: CommandId) -> Resubmit:
        """One that was submitted, perhaps with one that needs it."""
        draw = self._draw
        first = draw.choice([*self._submitted.values()][-12:])
        with_it = [new for new in self._submitted.values() if first.id in new.needs and draw.random() < 0.7]
        together = {new.id: TaskId(f"t_{id_}.r{number}") for number, new in enumerate((first, *with_it))}
        made = [
            ResubmittedTask(
                new.id,
                together[new.id],
                tuple((need, together[need]) if need in together else (need,) for need in new.needs),
                new.run,
                new.role if draw.random() < 0.95 else "another",
                new.services,
            )
            for new in (first, *with_it)
        ]
        return Resubmit(id_, tuple(made), draw.random() < 0.5, draw.choice(["eve"] * 9 + ["a\0b"]))

    def _outside(self, verb: str, id_: CommandId) -> Any:  # noqa: ANN401 - a command of any kind
        draw = self._draw
        match verb:
            case "submit":
                names = [f"{id_}.{number}" for number in range(draw.choice([1, 1, 2, 4]))]
                made = [self._new(name) for name in names]
                if len(made) > 1 and draw.random() < 0.6:  # a chain, or a ring
                    made[1] = msgspec.structs.replace(made[1], needs=(made[0].id,))
                    if draw.random() < 0.3:
                        made[0] = msgspec.structs.replace(made[0], needs=(made[1].id,))
                return Submit(id_, tuple(made))
            case "claim":
                roles = draw.choice([None, None, ("builder",), ("", "auditor")])
                named = self._some(self._tasks, "t_") if draw.random() < 0.2 else None
                return Claim(id_, draw.choice(AGENTS), roles, draw.choice([1, 2, 3]), task=named)
            case "run":
                return OpenRun(id_, RunId(f"r_{id_}"), "build", draw.choice([None, Millis(1_200_000)]))
            case "end_run":
                return EndRun(id_, self._some(self._runs, "r_"), draw.choice(["enough", "a\0b"]))
            case "take_up":
                name = draw.choice(FLOWS)
                run = draw.choice([RunId(f"r_{name}"), RunId(f"r_{name}"), *self._runs[-1:]])
                title = name if draw.random() < 0.9 else draw.choice(["another", "a\0b"])
                new = NewTask(TaskId(f"t_{run}"), title, run, "flow", policy=PATIENT, flow=True)
                dead = draw.choice([None, None, Token(1), Token(2)])
                return AcquireFlow(id_, new, draw.choice(AGENTS), 3_600_000, dead)
            case "retry":
                return self._retry(id_)
            case "dismiss":
                by = draw.choice(["grace"] * 9 + ["a\0b"])
                if self._questions and draw.random() < 0.5:
                    return DismissQuestion(id_, self._some([one.id for one in self._questions], "q_"), by)
                return DismissTask(id_, self._some(self._tasks, "t_"), by)
            case "cancel":
                return Cancel(id_, self._some(self._tasks, "t_"), "cancelled")
            case _:
                question = draw.choice(self._questions)
                option = draw.choice([*(one.key for one in question.options), question.options[0].label, "cry"])
                parts = [self._new(f"{id_}.s{number}") for number in range(draw.choice([0, 1, 2, 3]))]
                alike = tuple(msgspec.structs.replace(new, needs=(), run=question.run) for new in parts)
                id_of = self._some([question.id], "q_")
                return Answer(id_, id_of, option, draw.choice(["", "so", "so"]), alike, by="eve")


async def perform(engine: Engine, line: Line) -> list[object]:
    """What one line comes to."""
    if isinstance(line, Commands):
        return await engine.do_many(line.batch)
    if isinstance(line, CheckIns):
        return await engine.check_in_many(line.batch)
    if isinstance(line, Steps):
        return list(await asyncio.gather(*map(engine.record, line.batch), return_exceptions=True))
    while await engine.sweeper.sweep() == 0:
        pass
    return []


def _with_words(ended: Attempt) -> tuple[Attempt, object]:
    """An attempt, with what came after it taken apart, as that has moments in it."""
    after = afterwards(ended)
    words = [(word.verb, word.text, word.command) for word in after.words]
    return msgspec.structs.replace(ended, afterwards=None), (words, after.more, after.checkins, after.note)


async def stands(engine: Engine) -> dict[str, object]:
    """Everything that can be seen, to be compared."""
    store = engine.store
    rows = await store.view_tasks(TaskFilter())
    seen = {
        "tasks": rows,
        "payloads": [await store.view_payload(row.task.id) for row in rows],
        "attempts": [[_with_words(ended) for ended in await store.view_attempts(row.task.id)] for row in rows],
        "questions": sorted(await store.view_questions(open_only=False), key=lambda question: question.id),
        "runs": sorted(await store.view_runs(), key=lambda run: run.id),
        "agents": await store.view_agents(),
        "services": sorted((await store.view_services()).items()),
        "expenses": [await store.view_expenses(row.task.id) for row in rows],
        "spent": await store.view_spent("role"),
        "counts": sorted((await store.view_counts()).items()),
        "unaccounted": await store.view_orphans(),
        "journal": [entry.event for entry in await store.journal(Position(), 100_000)],
    }
    return {name: msgspec.to_builtins(rows) for name, rows in seen.items()}


def plain(value: object, *, timed: bool) -> object:
    """An answer without what may differ: the numbers of lanes, and moments where the clocks differ."""
    if isinstance(value, AllswellError):
        return type(value).__name__, plain(str(value), timed=timed)
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.to_builtins(value), timed=timed)
    if isinstance(value, dict):
        hidden = () if timed else TIMES
        return {
            key: plain(inner, timed=timed)
            for key, inner in value.items()
            if key not in ("lane", "ready") and not str(key).endswith(hidden or ("lane",))
        }
    if isinstance(value, list | tuple):
        return [plain(inner, timed=timed) for inner in value]
    if isinstance(value, str) and not timed:
        return MEASURED.sub("so many ms left", value)
    return value

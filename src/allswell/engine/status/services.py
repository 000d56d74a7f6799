"""A service that is shut, in words: for how long, what is next, and what a person could do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence, is_alive, read_all
from allswell.domain.ids import NO_COMMAND, AgentId, Millis, QuestionId, RunId, TaskId, question_id, service_question_id
from allswell.domain.lease.claim import fits
from allswell.domain.lease.cost import budgets_over, is_budget, run_of_budget, said
from allswell.domain.lease.model import Agent, LeaseRow, bounded
from allswell.domain.question import NOTHING_HELD_BACK, Pause, PausedWork, Question, held_back
from allswell.domain.rules.command import Claim
from allswell.domain.run.run import Run
from allswell.domain.service.breaker import BreakerState
from allswell.domain.service.service import (
    REOPENING,
    ServiceRow,
    ShutReason,
    open_question,
    opened_at,
    question_about,
    shut,
)
from allswell.domain.task.model import OPEN, Attempt, State, Task, TaskFilter, TaskRow
from allswell.engine.status.explanation import (
    SuggestedAction,
    UpcomingStep,
    listed,
    many,
    quoted,
    rough,
    typed,
    upcoming,
)
from allswell.errors import Bug
from allswell.store.views import Views

# The rows behind one explanation: the task, what it waits for, what that waits for, down to the ends.
#
# Looking is bounded. A task that waits for ten thousand others is explained from the first few hundred, and says so.

LOOK_MOST = 300
"""How many tasks one explanation looks at."""
SKIPPED_MOST = 1_000
NEEDS_MOST = 50
"""How many of a task's ended needs, and of its questions, its past looks at."""


class TaskFacts(msgspec.Struct):
    """What was found."""

    now: Millis
    root: TaskId | None = None
    """The task that was asked about."""
    rows: dict[TaskId, TaskRow] = msgspec.field(default_factory=dict)
    questions: dict[QuestionId, Question] = msgspec.field(default_factory=dict)
    runs: dict[RunId, Run] = msgspec.field(default_factory=dict)
    """Those of open tasks."""
    agents: dict[AgentId, Agent] = msgspec.field(default_factory=dict)
    services: dict[str, ServiceRow] = msgspec.field(default_factory=dict)
    posts: list[AgentSlot] = msgspec.field(default_factory=list)
    """The slots of fleets whose supervisors live."""
    dead: list[Presence] = msgspec.field(default_factory=list)
    """Supervisors that neither speak nor have said that they stop."""
    missing: set[str] = msgspec.field(default_factory=set)
    """What is waited for and does not exist."""
    awaited: set[str] = msgspec.field(default_factory=set)
    """What an open task waits for."""
    unseen: int = 0
    """How many tasks were waited for and not looked at."""
    quiet: bool = False
    """Whether no timer runs at all: then no task is held."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    """Of the task that was asked about."""
    asked: list[Question] = msgspec.field(default_factory=list)
    """Questions about the task that was asked about, oldest first."""
    needed: list[TaskRow] = msgspec.field(default_factory=list)
    """What it needed."""
    skipped: set[TaskId] = msgspec.field(default_factory=set)
    """What others needed that were skipped, as far as they were looked at."""
    went_on: RunId | None = None
    """The run in which that of the task went on after its end."""
    back: PausedWork = NOTHING_HELD_BACK
    """What open questions hold back from claims."""
    pausing: tuple[Question, ...] = ()
    """The open questions about tasks, where they hold back others."""

    def limit_of(self, task: Task) -> Millis | None:
        """When a task is over wherever it stands: as a request, or with its run, unless that one's clock stands."""
        run = None if task.run is None else self.runs.get(task.run)
        return task.expiry if run is None else run.limit

    def lease_of(self, row: TaskRow) -> LeaseRow:
        """The lease of a task that is held; its row may not have heard yet that the run's clock has moved."""
        if row.lease is None:
            raise Bug(f"no agent holds {row.task.id}")
        return bounded(row.lease, self.limit_of(row.task)) if row.task.run in self.runs else row.lease


async def gather(store: Views, root: TaskRow, pause: Pause = "task") -> TaskFacts:
    """Read what the explanation of a task needs; `pause` is what an open question holds back here."""
    agenda = await store.view_agenda()
    facts = TaskFacts(agenda.now, root.task.id, quiet=agenda.next_due is None)
    await _follow(store, facts, root)
    open_rows = [row for row in facts.rows.values() if row.task.state == OPEN]
    for id_ in dict.fromkeys(row.task.run for row in open_rows if row.task.run is not None):
        if (run := await store.view_run(id_)) is not None:
            facts.runs[id_] = run
    if any(row.lease is not None for row in open_rows):
        facts.agents = {agent.id: agent for agent in await store.view_agents()}
    if any(row.ready or row.lease is not None for row in open_rows):
        await fill_for_ready(store, facts, pause)
    task = root.task
    if task.state == State.FAILED:
        facts.skipped = await skipped_for(store, task.run)
        run = None if task.run is None else await store.view_run(task.run)
        facts.went_on = None if run is None else run.continued_in
    facts.attempts = await store.view_attempts(task.id)
    for number in range(1, min(task.record.questions, NEEDS_MOST) + 1):
        question = await store.view_question(question_id(task.id, number))
        if question is not None:
            facts.asked.append(question)
    needs = task.spec.needs[:NEEDS_MOST]
    looked_up = {row.task.id: row for row in await _rows(store, [need for need in needs if need not in facts.rows])}
    facts.needed = [row for need in needs if (row := facts.rows.get(need) or looked_up.get(need)) is not None]
    return facts


async def fill_for_ready(store: Views, facts: TaskFacts, pause: Pause = "task") -> None:
    """Read what can keep a task that is ready from being claimed."""
    supervisors = read_all((await store.view_kept(PRESENCE_PREFIX)).values())
    facts.posts = [post for one in supervisors if is_alive(one, facts.now) for post in one.posts]
    facts.dead = [one for one in supervisors if not one.gone and not is_alive(one, facts.now)]
    facts.services = await store.view_services()  # for what it needs, and for what was spent
    if pause != "task":
        questions = await store.view_questions()
        facts.back = held_back(pause, questions)
        facts.pausing = tuple(one for one in questions if one.task is not None)


async def skipped_for(store: Views, run: RunId | None = None) -> set[TaskId]:
    """What tasks needed that were skipped and not handed over again since; a page of them, of one run or of all."""
    which = TaskFilter(open=False, run=run, states=(State.SKIPPED.value,), limit=SKIPPED_MOST)
    rows = await store.view_tasks(which)
    return {need for row in rows if row.task.record.retried_as is None for need in row.task.spec.needs}


async def _rows(store: Views, ids: Sequence[TaskId]) -> Sequence[TaskRow]:
    return await store.view_tasks(TaskFilter(ids=tuple(ids), limit=len(ids))) if ids else ()


async def _follow(store: Views, facts: TaskFacts, root: TaskRow) -> None:
    """What stands in the way, breadth first, so that what is near is seen before the bound is reached."""
    seen: dict[str, None] = {root.task.id: None}
    level: Sequence[TaskRow] = (root,)
    while level:
        ahead: dict[str, str] = {}
        for row in level:
            facts.rows[row.task.id] = row
            found = targets(row)
            if row.task.state == OPEN:
                facts.awaited.update(target for _, target in found)
            ahead.update({target: kind for kind, target in found if target not in seen})
        seen.update(dict.fromkeys(ahead))
        questions = [QuestionId(target) for target, kind in ahead.items() if kind == "question"]
        for id_ in questions:
            question = await store.view_question(id_)
            if question is None:
                facts.missing.add(id_)
            else:
                facts.questions[id_] = question
        needs = [TaskId(target) for target, kind in ahead.items() if kind != "question"]
        near = needs[: max(LOOK_MOST - len(facts.rows), 0)]
        facts.unseen += len(needs) - len(near)
        order = {id_: place for place, id_ in enumerate(near)}
        level = sorted(await _rows(store, near), key=lambda row: order[row.task.id])
        facts.missing.update(order.keys() - {row.task.id for row in level})


def targets(row: TaskRow) -> list[tuple[str, str]]:
    """What a task waits for; a task that was skipped, what it may have been skipped for."""
    if row.task.state == OPEN:
        waits = () if row.lease is not None else row.waits
        return [(wait.kind, wait.target) for wait in sorted(waits, key=lambda wait: wait.kind != "question")]
    blamed = row.task.record.reason.partition(" was ")[0]
    if row.task.state != State.SKIPPED or row.task.spec.if_need_fails != "skip":
        return []
    named = [blamed] if blamed.startswith("t_") else []
    return [("need", need) for need in dict.fromkeys((*named, *row.task.spec.needs[:NEEDS_MOST]))]


_QUESTIONS_NAMED = 3


class ClaimObstacle(msgspec.Struct, frozen=True):
    """What keeps a task that is ready from being claimed, as the second half of a sentence about it."""

    says: str
    next: UpcomingStep | None
    todo: tuple[SuggestedAction, ...]
    asking: bool
    """Whether only a human can end it."""


def held_up(task: Task, facts: TaskFacts) -> ClaimObstacle | None:
    """The services or the money that a task needs and cannot have; or else what keeps those who could take it."""
    return (
        _shut(task, facts.services, facts.now) or _spent(task, facts) or _paused(task, facts) or _kept_back(task, facts)
    )


def _paused(task: Task, facts: TaskFacts) -> ClaimObstacle | None:
    """The open questions during which nothing is begun, or nothing of its run (`pause_on_question`)."""
    if not facts.back.everything and task.run not in facts.back.runs:
        return None
    own = [one.id for one in facts.pausing if facts.back.everything or one.run == task.run]
    what = "no task is started" if facts.back.everything else "no task of its run is started"
    setting = "all" if facts.back.everything else "run"
    return ClaimObstacle(
        f"{what} while {many(len(own), 'question is', 'questions are')} open (pause_on_question = {setting}).",
        None,
        tuple(SuggestedAction("Read the question", typed("why", id_)) for id_ in own[:_QUESTIONS_NAMED]),
        asking=True,
    )


def _spent(task: Task, facts: TaskFacts) -> ClaimObstacle | None:
    """The role, the run or the day that has cost what it may."""
    for name in budgets_over(task):
        row = facts.services.get(name)
        closed = None if row is None else shut(row, facts.now)
        if row is not None and closed is not None:
            run = facts.runs.get(RunId(run_of_budget(name)))
            over = "its day is over, and the task can be claimed"
            return ClaimObstacle(
                f"cannot be claimed: {said(name, '' if run is None else run.name)} {in_short(row, facts.now)}.",
                None if closed.until is None else upcoming(closed.until, over),
                (SuggestedAction("Read the question", typed("why", service_question_id(row.id, row.questions))),),
                asking=closed.until is None,
            )
    return None


def _kept_back(task: Task, facts: TaskFacts) -> ClaimObstacle | None:
    """What every free agent of a fleet that would take it waits for; None if one of them waits for nothing."""
    free = [post for post in facts.posts if not post.task and post.kind != "remote" and would_take(post, task)]
    if not free or not all(post.waits for post in free):
        return None
    reasons: dict[str, None] = {}
    until: list[Millis] = []
    todo: dict[str, SuggestedAction] = {}
    for post in free:
        account = facts.services.get(post.account)
        closed = None if account is None else shut(account, facts.now)
        if account is None or not post.waits.startswith(f"{account.id} is "):
            reasons[f"{post.agent}: {post.waits}"] = None
            continue
        if closed is None:
            return None  # its supervisor has not seen yet that it is open
        reasons[f"{post.agent} uses {quoted(account.id)}, which {in_short(account, facts.now)}"] = None
        if closed.until is not None:
            until.append(closed.until)
        if closed.until is not None or question_about(account) is not None:
            todo[account.id] = _opening(account, closed)
    return ClaimObstacle(
        f"every agent that could take it is paused: {'; '.join(reasons)}.",
        upcoming(min(until), "its account is used again, one task first") if until else None,
        (*todo.values(), SuggestedAction("List the agents", "allswell agents")),
        asking=bool(todo) and not until,
    )


def would_take(post: AgentSlot, task: Task) -> bool:
    """Whether the agent in a slot takes tasks of this role."""
    roles = None if post.role is None else (post.role,)
    return fits(Claim(NO_COMMAND, AgentId(post.holder), roles), task.role)


def _shut(task: Task, services: Mapping[str, ServiceRow], now: Millis) -> ClaimObstacle | None:
    """The services that a task needs and cannot have."""
    needed = [(services[name], shut(services[name], now)) for name in task.spec.services if name in services]
    closed = [(row, one) for row, one in needed if one is not None]
    if not closed:
        return None
    says = " It also needs ".join(f"{quoted(row.id)}, which {in_short(row, now)}." for row, _ in closed)
    until = [one.until for _, one in closed if one.until is not None]
    named = listed([quoted(row.id) for row, _ in closed])
    human = len(until) < len(closed)
    return ClaimObstacle(
        f"cannot be claimed: it needs {says}",
        None if human else upcoming(max(until), f"{named} can be used again, and the task can be claimed"),
        tuple(_opening(row, one) for row, one in closed),
        human,
    )


def _opening(row: ServiceRow, closed: ShutReason) -> SuggestedAction:
    """What a human could do about a service that is shut."""
    asked = question_about(row)
    if asked is not None and closed.stand != "parked":
        return SuggestedAction("Read the question", typed("why", asked))
    return SuggestedAction(f"Call {quoted(row.id, 40)} again, if you know that it works", typed("unpark", row.id))


def named(service: str) -> str:
    """A service as people call it; what is shut like one for its cost, as what it is."""
    return said(service) if is_budget(service) else f"service {service}"


def in_short(row: ServiceRow, now: Millis) -> str:
    """How a service stands, as the second half of a sentence about it."""
    closed = shut(row, now)
    if is_budget(row.id):
        if closed is None:
            return "may cost more: its tasks are started again"
        opens = "" if closed.until is None else f"for another {rough(closed.until - now)}, or "
        return f"has reached its cost limit; no task of it is started {opens}until a human raises it"
    if closed is None:
        if row.state.open_until is not None:
            return f"{_failed(row, now)}; the next call tries it"
        if now < opened_at(row) + REOPENING:
            return "works again; one agent tries it first"
        return "is open"
    left = None if closed.until is None else rough(closed.until - now)
    match closed.stand:
        case "refused":
            return f"is refused by its provider ({question_about(row)}); its agents wait for your answer"
        case "parked":
            return f"asked to wait. It is paused for another {left}"
        case BreakerState.OPEN:
            return f"{_failed(row, now)}; it is not called, and the next try is in {left}"
        case BreakerState.PROBING:
            return f"{_failed(row, now)}; one call is trying it, and has {left} left"
        case _:
            return f"{_failed(row, now)}; it is not called until a human has answered"


def _failed(row: ServiceRow, now: Millis) -> str:
    asked = open_question(row)
    question = "" if asked is None else f" (you were asked: {asked})"
    times = many(row.state.failures, "time")
    return f"has failed {times} in a row and has been shut for {rough(now - row.since)}{question}"

"""The rows behind one explanation: the task, what it waits for, what that waits for, down to the ends.

Looking is bounded. A task that waits for ten thousand others is explained from the first few hundred, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.lease import Lease, bounded
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import AgentId, Millis, QuestionId, RunId, TaskId, question_id
from allswell.domain.presence import PREFIX, Post, Presence, is_alive
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import OPEN, Attempt, State, Task
from allswell.errors import Bug
from allswell.store.views import Views

LOOK_MOST = 300
"""How many tasks one explanation looks at."""
NEEDS_MOST = 50
"""How many of a task's ended needs, and of its questions, its past looks at."""


class Facts(msgspec.Struct):
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
    posts: list[Post] = msgspec.field(default_factory=list)
    """The slots of fleets whose supervisors live."""
    missing: set[str] = msgspec.field(default_factory=set)
    """What is waited for and does not exist."""
    awaited: set[str] = msgspec.field(default_factory=set)
    """What an open task waits for."""
    unseen: int = 0
    """How many tasks were waited for and not looked at."""
    quiet: bool = False
    """Whether no timer runs at all: then nothing is held by anybody."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    """Of the task that was asked about."""
    asked: list[Question] = msgspec.field(default_factory=list)
    """Questions about the task that was asked about, oldest first."""
    needed: list[TaskRow] = msgspec.field(default_factory=list)
    """What it needed."""

    def limit_of(self, task: Task) -> Millis | None:
        """When a task is over wherever it stands: as a request, or with its run, unless that one's clock stands."""
        run = None if task.run is None else self.runs.get(task.run)
        return task.expiry if run is None else run.limit

    def lease_of(self, row: TaskRow) -> Lease:
        """The lease of a task that is held; its row may not have heard yet that the run's clock has moved."""
        if row.lease is None:
            raise Bug(f"nobody holds {row.task.id}")
        return bounded(row.lease, self.limit_of(row.task)) if row.task.run in self.runs else row.lease


async def gather(store: Views, root: TaskRow) -> Facts:
    """Read what the explanation of a task needs."""
    agenda = await store.view_agenda()
    facts = Facts(agenda.now, root.task.id, quiet=agenda.next_due is None)
    await _follow(store, facts, root)
    open_rows = [row for row in facts.rows.values() if row.task.state == OPEN]
    for id_ in dict.fromkeys(row.task.run for row in open_rows if row.task.run is not None):
        if (run := await store.view_run(id_)) is not None:
            facts.runs[id_] = run
    if any(row.lease is not None for row in open_rows):
        facts.agents = {agent.id: agent for agent in await store.view_agents()}
    if any(row.ready for row in open_rows):
        kept = (await store.view_kept(PREFIX)).values()
        supervisors = [msgspec.json.decode(text, type=Presence) for text in kept]
        facts.posts = [post for one in supervisors if is_alive(one, facts.now) for post in one.posts]
        facts.services = await store.view_services()  # for what it needs, and for what was spent
    task = root.task
    facts.attempts = await store.view_attempts(task.id)
    for number in range(1, min(task.record.questions, NEEDS_MOST) + 1):
        question = await store.view_question(question_id(task.id, number))
        if question is not None:
            facts.asked.append(question)
    needs = task.spec.needs[:NEEDS_MOST]
    looked_up = {row.task.id: row for row in await _rows(store, [need for need in needs if need not in facts.rows])}
    facts.needed = [row for need in needs if (row := facts.rows.get(need) or looked_up.get(need)) is not None]
    return facts


async def _rows(store: Views, ids: Sequence[TaskId]) -> Sequence[TaskRow]:
    return await store.view_tasks(TaskFilter(ids=tuple(ids), limit=len(ids))) if ids else ()


async def _follow(store: Views, facts: Facts, root: TaskRow) -> None:
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

"""Timeout tracking and the open questions about tasks (O7, O9), off the rows that decide: there is one truth."""

from __future__ import annotations

import msgspec

from allswell.domain.listing import TaskFilter
from allswell.domain.question import Question
from allswell.store.views import Views

PAGE = 1_000
QUESTIONS_MOST = 100_000


class Tracking(msgspec.Struct, frozen=True):
    """What is counted: misses by agent, stalled agents, timeouts by open task."""

    checkpoint_misses: dict[str, int]
    stalled_agents: list[str]
    task_timeouts: dict[str, int]


async def pending_questions(store: Views) -> list[Question]:
    """The open questions about tasks, the oldest first; one about a service belongs to no task."""
    return [asked for asked in await store.view_questions(limit=QUESTIONS_MOST) if asked.task is not None]


async def track(store: Views) -> Tracking:
    """The counters as they stand; a task that has ended counts nothing any more."""
    agents = [agent for agent in await store.view_agents() if not agent.standing]
    timeouts: dict[str, int] = {}
    after = ""
    while True:
        page = await store.view_tasks(TaskFilter(open=True, after=after, limit=PAGE))
        timeouts |= {str(row.task.id): row.task.record.timeouts for row in page if row.task.record.timeouts}
        if len(page) < PAGE:
            break
        after = page[-1].task.id
    return Tracking(
        {str(agent.id): agent.misses for agent in agents},
        [str(agent.id) for agent in agents if agent.stalled],
        timeouts,
    )

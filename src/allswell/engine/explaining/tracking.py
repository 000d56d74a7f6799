"""Timeout tracking in the original protocol's shape (O7), read off the rows that decisions are made by: one truth."""

from __future__ import annotations

import msgspec

from allswell.store.port import TaskFilter, Views

PAGE = 1_000


class Tracking(msgspec.Struct, frozen=True):
    """What is counted: misses by agent, stalled agents, timeouts by open task."""

    checkpoint_misses: dict[str, int]
    stalled_agents: list[str]
    task_timeouts: dict[str, int]


async def track(store: Views) -> Tracking:
    """The counters as they stand; a task that has ended counts nothing any more."""
    agents = await store.view_agents()
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

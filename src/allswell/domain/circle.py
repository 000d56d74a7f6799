"""Agents that wait for each other in a circle: each would wait for an answer that the next is too busy to give (M6).

An agent waits for another while a delivery of its request is under way. Once that has blocked its task it has moved on,
and waits for nobody. Whoever asks at the same time waits for the end of the other's unit of work (`Search("asking")`),
so of two requests that would close a circle together, the second one sees the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allswell.domain.address import agent_of, family
from allswell.domain.case import Case
from allswell.domain.graph import describe_cycle
from allswell.domain.names import TaskId, is_request
from allswell.domain.task import OPEN, Task
from allswell.errors import Refused


def asking_line(task: Task) -> str | None:
    """Who waits for whom, as a store tells it of an open request: the request, the one and the other; None: nobody."""
    origin, stand, to = task.spec.origin, task.record.request, agent_of(task.role)
    if task.state != OPEN or origin is None or stand is None or not stand.waiting or stand.blocked_at is not None:
        return None
    return None if to is None else f"{task.id}\t{family(origin.agent)}\t{family(to)}"


def refuse_circle(asker: str, to: str, lines: Iterable[str], cases: Mapping[TaskId, Case]) -> None:
    """Refuse a request that would close a circle. What this unit of work has changed itself counts as it is now."""
    first, target = family(asker), family(to)
    waits: dict[str, list[str]] = {}
    known = [line for line in lines if TaskId(line.partition("\t")[0]) not in cases]
    here = [asking_line(case.task) for id_, case in cases.items() if is_request(id_)]
    for line in (*known, *filter(None, here)):
        _, one, other = line.split("\t")
        waits.setdefault(one, []).append(other)
    ways: dict[str, str | None] = {target: None}
    pending = [target]
    for agent in pending:
        if agent == first:
            text = f"these agents would wait for each other in a circle: {_told(agent, ways)}"
            raise Refused("circle", f"{text}; go on without this answer, or ask another", where="to")
        for other in sorted(waits.get(agent, ())):
            if other not in ways:
                ways[other] = agent
                pending.append(other)


def _told(last: str, ways: Mapping[str, str | None]) -> str:
    """The members in the order in which they would wait for each other."""
    members = [last]
    while (before := ways[members[-1]]) is not None:
        members.append(before)
    return describe_cycle([members[0], *reversed(members[1:])])

"""A batch of check-ins: the hottest write there is, so it touches leases alone.

The record of an agent that has missed check-ins is the one other row it may change; there is none for an agent in
good standing, so its lock usually finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.command import CheckIn
from allswell.domain.hold import check_in
from allswell.domain.names import AgentId
from allswell.engine.batch import Performed
from allswell.engine.book import News
from allswell.engine.plan import ordered
from allswell.errors import AllswellError
from allswell.store.port import Changes, Kind, Lock, Transaction, Wanted


async def perform(tx: Transaction, said: Sequence[CheckIn]) -> Performed:
    """Renew leases and note progress; an answer or an error for each."""
    speakers = ordered([command.agent for command in said if command.proof])
    tasks = ordered([command.task for command in said])
    locks = [Lock(kind, ids) for kind, ids in ((Kind.AGENT, speakers), (Kind.LEASE, tasks)) if ids]
    now, rows = await tx.take(locks, Wanted(agents=speakers, leases=tasks))
    changes = Changes(at=now)
    answers: list[object] = []
    renewed = {}
    forgiven: dict[AgentId, None] = {}
    for command in said:
        try:
            done = check_in(rows.leases.get(command.task), command, now)
        except AllswellError as error:
            answers.append(error)
            continue
        rows.leases[command.task] = renewed[command.task] = done.lease
        answers.append(done.orders)
        if done.event is not None:
            changes.events.append(done.event)
        if done.answered and command.agent in rows.agents:
            forgiven[command.agent] = None
    changes.leases += renewed.values()
    changes.drop_agents += forgiven
    if renewed:
        await tx.write(changes)
    return Performed(answers, News(events=bool(changes.events)))

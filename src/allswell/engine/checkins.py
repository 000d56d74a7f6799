"""A batch of check-ins: the hottest write there is, so it touches leases alone.

The record of an agent that has missed check-ins is the one other row it may change; there is none for an agent in
good standing, so its lock usually finds nothing.

Where the lease says no, a second transaction follows, a decision like any other (`CheckInAgain`): what came late is
kept with its attempt, and a limit that has moved with its run is found out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from allswell.domain.command import CheckIn, CheckInAgain
from allswell.domain.hold import check_in
from allswell.domain.names import NO_COMMAND, AgentId
from allswell.engine.batch import Performed
from allswell.engine.book import News
from allswell.engine.plan import ordered
from allswell.errors import AllswellError, LeaseLost, Refused, TimeUp
from allswell.store.port import Changes, Kind, Lock, Transaction, Wanted

Do = Callable[[CheckInAgain], Awaitable[object]]
"""How a decision is made: through the queue of decisions."""


async def settle(do: Do, command: CheckIn, lost: LeaseLost) -> object:
    """Say a check-in that was refused again, with all rows in sight, if that could come to more."""
    if not (command.proof or isinstance(lost, TimeUp)):
        raise lost  # a renewal on a lease that is gone: there is nothing to keep of it
    again = CheckInAgain(
        NO_COMMAND, command.task, command.token, command.agent, command.proof, command.note, command.progress
    )
    try:
        return await do(again)
    except Refused as refused:
        if refused.code == "unknown_task":
            raise lost from None
        raise


async def settle_all(do: Do, commands: Sequence[CheckIn], answers: list[object]) -> list[object]:
    """The answers, with every refusal settled."""
    for place, (command, answer) in enumerate(zip(commands, answers, strict=True)):
        if isinstance(answer, LeaseLost):
            try:
                answers[place] = await settle(do, command, answer)
            except AllswellError as error:
                answers[place] = error
    return answers


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

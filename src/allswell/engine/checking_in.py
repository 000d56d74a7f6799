"""A check-in of somebody who keeps nothing between two words: the answer tells what came for it meanwhile.

A supervisor sees answers and requests come in, and tells its agent of them. Whoever speaks for its lease in single
calls (over HTTP, over MCP, by a command) has nobody who does: so a check-in looks, and all doors tell the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.hold import Orders
from allswell.domain.lease import lapses_at
from allswell.domain.names import TaskId, question_id
from allswell.domain.question import Question

if TYPE_CHECKING:
    from allswell.domain.listing import TaskRow
    from allswell.engine.held import Held
    from allswell.engine.watch import Watch

_ASKED_MOST = 20
"""So many of a task's last questions are looked at for answers."""


class HolderNews(Struct, frozen=True):
    """What a holder is told: its orders, and what came for it while it worked."""

    orders: Orders
    order: str | None = None
    """What keeps the lease, in words."""
    answered: tuple[Question, ...] = ()
    """Questions of this attempt that were answered while it went on."""
    inbox: tuple[TaskId, ...] = ()
    """Requests of other agents that wait for its answer."""


async def check_in(
    watch: Watch, held: Held, note: str = "", *, progress: float | None = None, proof: bool = True
) -> HolderNews:
    """Prove progress, or without `proof` life alone; then look what the store knows that concerns the holder."""
    orders = await (held.checkin(note, progress=progress) if proof else held.renew())
    row = await watch.task(held.task)
    if row is None or row.lease is None:
        return HolderNews(orders)
    inbox = (await watch.inboxes({held.agent: ()}))[held.agent]
    return HolderNews(
        orders,
        _order(row, await watch.now()),
        tuple(await _answered(watch, row)),
        tuple(item.request_id for item in inbox),
    )


async def _answered(watch: Watch, row: TaskRow) -> list[Question]:
    last, lease = row.task.record.questions, row.lease
    numbers = range(max(1, last - _ASKED_MOST + 1), last + 1)
    found = [await watch.question(question_id(row.task.id, number)) for number in numbers]
    return [
        one
        for one in found
        if one is not None and one.closed_at is not None and lease is not None and one.asked_at >= lease.granted_at
    ]


def _order(row: TaskRow, now: int) -> str | None:
    """The next sign that the holder has to give; nothing where only its deadline ends the lease."""
    end = None if row.lease is None else lapses_at(row.lease)
    if end is None or row.lease is None or end >= row.lease.deadline:
        return None
    return f"Check in again within {max(0, end - now) // 1_000} s, or the task is given to another."

"""Holding roles, runs and days to what they may cost: sums are read, and the rule is asked (domain/lease/cost.py).

A day begins at midnight UTC. What a run may cost is kept beside it, under a key of its own, when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from allswell.domain.agents.cost import UNCOUNTED, Spent, SpentBy, from_usd, shown
from allswell.domain.ids import Millis, RunId
from allswell.domain.lease.cost import ReachBudget, budget_of, said
from allswell.errors import Refused, Unavailable

if TYPE_CHECKING:
    from allswell.engine.backend import Backend
    from allswell.engine.ids import Ids

_DAY = 86_400_000
_KEY = "max_cost."


class Budgets(msgspec.Struct, frozen=True):
    """What may be spent in a day, in millionths of a dollar; None: anything."""

    day: int | None = None
    roles: Mapping[str, int] = {}


NO_BUDGETS = Budgets()


def money(amount: float, where: str) -> int:
    """An amount of dollars as it is counted; `Refused` if it is not an amount."""
    cost = from_usd(amount)
    if cost is None or cost <= 0:
        raise Refused("bad_cost", f"{where} must be an amount of dollars, more than 0", where=where)
    return cost


async def limit_run(engine: Backend, run: RunId, amount: float | None) -> None:
    """What a run may cost, said when it is opened; the first word counts. None: anything."""
    if amount is not None:
        await engine.store.compare_and_set(f"{_KEY}{run}", None, str(money(amount, "max_cost_usd")))


async def _spent(engine: Backend, by: SpentBy, key: str, since: Millis) -> Spent | None:
    """What was spent; a sum that cannot be made counts as more than any limit: then nothing more is begun."""
    try:
        return (await engine.store.view_spent(by, (key,) if key else (), since)).get(key)
    except Unavailable:
        raise  # the store is away: the next expense asks again
    except Exception:
        import logging  # 5 ms, and what reads settings imports this module

        logging.getLogger("allswell.engine").exception(
            "what %s has cost cannot be summed; no more is begun under its limit", key or "this day"
        )
        return Spent(cost=UNCOUNTED)


async def hold_to_budgets(engine: Backend, ids: Ids, role: str, run: RunId | None, budgets: Budgets) -> list[str]:
    """Ask the rule about every limit that an expense of this role and run comes under; those that were reached."""
    now = (await engine.store.view_agenda()).now
    today = Millis(now - now % _DAY)
    tomorrow = Millis(today + _DAY)
    wanted: list[tuple[SpentBy, str, int | None, Millis | None]] = [("all", "", budgets.day, tomorrow)]
    if role:
        wanted.append(("role", role, budgets.roles.get(role), tomorrow))
    if run is not None:
        text = await engine.store.get(f"{_KEY}{run}")
        wanted.append(("run", run, int(text) if text else None, None))
    reached = []
    for by, key, limit, until in wanted:
        if limit is None:
            continue
        since = Millis(0) if until is None else today
        spent = await _spent(engine, by, key, since)
        if spent is not None and spent.cost is not None:
            budget = budget_of("day" if by == "all" else by, key)
            opened = await engine.store.view_run(run) if by == "run" and run is not None else None
            name = "" if opened is None else opened.name
            estimated = spent.estimated > 0
            if await engine.do(ReachBudget(ids.command(), budget, spent.cost, limit, until, name, estimated)):
                reached.append(f"{said(budget, name)} has cost {shown(spent.cost, estimated=estimated)}")
    return reached

"""An agent's ledger, read from the journal: a day of it, or as far back as is asked for."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.ledger import Ledger, ledger_of
from allswell.domain.standing import Standing, standing_of, standing_row
from allswell.engine.explaining.backwards import look_back
from allswell.engine.journal_end import first_number, numbering
from allswell.store.views import Views

MOST = 100_000
"""Events at the end of the journal that are looked at, if nothing else is said."""
_CHUNK = 2_000
_MARGIN = 60_000
"""Transactions that overlap may be stamped a little out of order."""


async def read_ledger(views: Views, agent: str, since: int, most: int | None = None) -> Ledger:
    """What the journal says of an agent since a moment, from about so many events at the end of it at most."""
    if most is not None:
        # From the end: a store that numbers transactions does not say how many events they have.
        last = await look_back(views, lambda entry: entry.at >= since, most, bound=most)
        is_cut = last.before is not None and len(last.entries) >= min(
            most, last.looked_at
        )  # all that was seen is younger
        told = ledger_of(agent, [(entry.at, entry.event) for entry in reversed(last.entries)])
        return replace(told, cut=most if is_cut else None)
    most = MOST
    at = await numbering(views)
    early = since - _MARGIN
    begin = await first_number(views, at, lambda found: not found or found[0].at >= early) - 1
    bound = await first_number(views, at, lambda found: not found) - most
    after = at(max(begin, bound))
    entries = []
    while found := await views.journal(after, _CHUNK):
        entries += [(entry.at, entry.event) for entry in found if entry.at >= since]
        after = found[-1].position
    return replace(ledger_of(agent, entries), cut=most if bound > begin else None)


async def read_standing(views: Views, agent: str) -> Standing:
    """What is kept of an agent, and decides who is asked."""
    rows = {row.id: row for row in await views.view_agents()}
    return standing_of(rows.get(standing_row(agent)))

"""`agents --ledger NAME`: what counts for an agent and against it, what does not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.render import Column, paint, plain, short, table, when
from allswell.engine.explaining.words import many
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.ledger import Ledger
    from allswell.domain.names import Millis
    from allswell.domain.standing import Standing
    from allswell.doors.cli.frame import Frame
    from allswell.store.views import Views

_COLUMNS = (Column("WHEN"), Column("COUNTS"), Column("WHAT", 24), Column("WHY", 24))


def show_ledger(frame: Frame, agent: str, length: int) -> None:
    """Show what the last so many milliseconds say of an agent."""
    from allswell.domain.address import family
    from allswell.domain.standing import healthy_at, score
    from allswell.domain.submit import check_name
    from allswell.doors.shapes.ledger import LedgerShape
    from allswell.engine.explaining.account import read_ledger, read_standing

    check_name(agent, "--ledger")
    if length <= 0:
        raise Refused("bad_duration", "--since must be more than nothing", where="--since")

    async def work(views: Views) -> tuple[Ledger, Standing, Millis]:
        now = (await views.view_agenda()).now
        return await read_ledger(views, agent, now - length), await read_standing(views, family(agent)), now

    found, standing, now = frame.look(work)
    again, points = healthy_at(standing, now), score(standing, now)
    if not found.lines:
        words = f"Nothing is said of {plain(agent)} in that time."
    else:
        heads = [f"{plain(agent)}: {_sum(found)}; {points:+d} where two are equally healthy."]
        if again is not None:
            heads.append(
                paint(f"Degraded: asked only where nobody else can serve; healthy again {when(again, now)}.", "warn")
            )
        rows = [[when(line.at, now), line.weight, line.what, line.why] for line in found.lines]
        words = "\n".join([*heads, table(_COLUMNS, rows)])
    if found.cut is not None:
        bound = f"Only the last {found.cut:,} events of the journal were looked at."
        words = "\n".join([words.rstrip(), paint(bound, "dim")])
    frame.say(LedgerShape.of(found, now - length, points, again), words)


def _sum(ledger: Ledger) -> str:
    idle = f", idle for {short(ledger.idle_ms)}" if ledger.idle_ms else ""
    against = many(ledger.total("against"), "expiry", "expiries")
    return f"{many(ledger.total('for'), 'task')} unblocked, {against} that count{idle}"

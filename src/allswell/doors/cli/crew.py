"""Who does what: `agents` shows everybody with their health, `tracking` what is held against whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.advice import in_words, typed_here
from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Json, Option, Store
from allswell.doors.cli.render import Column, paint, plain, sentence, short, table, when
from allswell.engine.explaining.words import many

if TYPE_CHECKING:
    from allswell.domain.presence import Presence
    from allswell.domain.question import Question
    from allswell.engine.explaining.crew import Crew, Member
    from allswell.engine.explaining.tracking import Tracking
    from allswell.store.views import Views


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        LOOKING,
        "agents",
        agents,
        "allswell agents",
        "allswell agents --ledger oracle            what counts for it, what not, and why",
    )
    app.add(LOOKING, "tracking", tracking, "allswell tracking --json")


_COLUMNS = (
    Column("AGENT", 8),
    Column("HEALTH", 7),
    Column("MISSES", None, right=True),
    Column("TASK", 12),
    Column("LEFT", None, right=True),
    Column("TODAY", None, right=True),
    Column("PROOF", 16),
)


def agents(
    ledger: Annotated[str | None, Option("--ledger", metavar="NAME", help="What counts for this one, and why.")] = None,
    since: Annotated[str, Option("--since", metavar="TIME", help="How far back the ledger goes.")] = "1d",
    store: Store = None,
    json: Json = False,
) -> None:
    """Who does what: health, misses, last proof of progress, time left.

    An agent that let more than three requests expire within a day is degraded: others are asked, if there are any.
    """
    from allswell.doors.shapes.crew import AgentsShape
    from allswell.engine.explaining.crew import look

    frame = Frame(store, json=json)
    if ledger is not None:
        from allswell.domain.duration import parse
        from allswell.doors.cli.ledger import show_ledger

        show_ledger(frame, ledger, parse(since, where="--since"))
        return
    specs = list(frame.settings.known_agents.values())
    threshold = int(frame.settings.value("stall_threshold") or 0)

    async def work(views: Views) -> tuple[Crew, int]:
        return await look(views, specs, threshold, has_died), len(await views.view_questions())

    crew, waiting = frame.look(work)
    if json:
        frame.say(AgentsShape.of(crew, waiting))
        return
    if not crew.members:
        known = [sentence(_supervision(crew))] if any(not one.gone for one in crew.supervisors) else []
        nobody = in_words("Nobody is at work. `allswell up` starts the agents of allswell.toml.")
        frame.say(None, "\n".join([*known, nobody]))
        return
    waits = f"{many(waiting, 'question waits', 'questions wait')} for you: {typed_here('allswell questions')}"
    lines = [paint(waits, "warn")]
    lines = lines[: waiting > 0] + ([sentence(_supervision(crew))] if crew.supervisors else [])
    frame.say(None, "\n".join([*lines, table(_COLUMNS, [_row(one, crew.now) for one in crew.members], styled=1)]))


def has_died(presence: Presence) -> bool:
    """Whether a supervisor of this machine is gone; asked only where there is one that has not said good-bye."""
    from allswell.runtime.supervisor.presence import has_died as is_gone

    return is_gone(presence)


def _supervision(crew: Crew) -> str:
    from allswell.domain.presence import is_alive

    told = []
    for one in crew.supervisors:
        if is_alive(one, crew.now):
            paused = ""
            if one.level.paused:
                until = "" if one.level.until is None else f" until {when(one.level.until, crew.now)}"
                paused = f", paused{until}: little of the session is left"
            state = "stopping" if one.stopping else "watches"
            told.append(f"{one.name} {state} {many(len(one.posts), 'slot')} from {one.host}{paused}")
        elif one.died:
            told.append(
                f"{one.name} has died on {one.host} (last heard {when(one.beaten_at, crew.now)}): start it again"
            )
        elif not one.gone:
            told.append(f"{one.name} was last heard {when(one.beaten_at, crew.now)}, on {one.host}: start it again")
    return paint(plain("; ".join(told)) if told else "No supervisor is running.", "dim")


def _row(one: Member, now: int) -> list[str]:
    from allswell.domain.expense import shown

    proof = "" if one.proof_at is None else when(one.proof_at, now)
    said = one.note or one.evidence or one.waits or ""
    if one.degraded:
        said = f"{len(one.degraded)} requests expired within a day: {', '.join(sent.request for sent in one.degraded)}"
    share = "" if one.progress is None else f"{one.progress:.0%}"
    about = ", ".join(part for part in (share, proof, said.splitlines()[0] if said else "") if part)
    left = "" if one.remaining_ms is None else short(one.remaining_ms)
    health = f"{one.health}, degraded" if one.degraded else one.health
    cost = shown(one.spent.cost) if one.spent.attempts else ""
    return [one.agent, health, f"{one.misses}/{one.threshold}", one.name or "", left, cost, about]


def tracking(store: Store = None, json: Json = False) -> None:
    """Missed check-ins, stalled agents, timeouts and open questions, as the original protocol tracks them."""
    from allswell.doors.shapes.tracking import TrackingShape
    from allswell.engine.explaining.tracking import pending_questions, track

    frame = Frame(store, json=json)

    async def work(views: Views) -> tuple[Tracking, list[Question]]:
        return await track(views), await pending_questions(views)

    found, pending = frame.look(work)
    rows = [[agent, str(misses), "missed check-ins"] for agent, misses in found.checkpoint_misses.items()]
    rows += [[agent, "", "stalled"] for agent in found.stalled_agents]
    rows += [[task, str(count), "timeouts"] for task, count in found.task_timeouts.items()]
    rows += [[str(asked.task), "", "asks you"] for asked in pending]
    heads = (Column("WHO", 12), Column("COUNT", None, right=True), Column("WHAT", 8))
    frame.say(TrackingShape.of(found, pending), table(heads, rows) if rows else "Nothing is held against anybody.")

"""Who does what: `agents` shows everybody with their health, `tracking` what is held against whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.engine.status.explanation import many
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Json, Option, Store
from allswell.interfaces.cli.registry import LOOKING, Commands
from allswell.interfaces.cli.rendering import Column, in_words, paint, plain, sentence, short, table, typed_here, when

if TYPE_CHECKING:
    from allswell.domain.question import Question
    from allswell.engine.status.agents import AgentRow, AgentsOverview, Tracking
    from allswell.engine.status.verdict import VerdictItem
    from allswell.store.views import Views
    from allswell.views.agent import LedgerShape


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        LOOKING,
        "agents",
        agents,
        "allswell agents",
        "allswell agents --ledger oracle            what counts for and against it",
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
    ledger: Annotated[
        str | None, Option("--ledger", metavar="NAME", help="Show what counts for and against this agent, and why.")
    ] = None,
    since: Annotated[str, Option("--since", metavar="TIME", help="How far back --ledger looks.")] = "1d",
    store: Store = None,
    json: Json = False,
) -> None:
    """List agents: what each does, its health, missed check-ins, last sign of progress, time left.

    An agent that let more than three requests expire within a day is degraded: other agents are asked first.
    """
    from allswell.engine.status.verdict import look as judge
    from allswell.views.agent import AgentsShape, load_crew

    context = CliContext(store, json=json)
    if ledger is not None:
        from allswell.domain.duration import parse

        show_ledger(context, ledger, parse(since, where="--since"))
        return

    async def work(views: Views) -> tuple[AgentsOverview, int, tuple[VerdictItem, ...]]:
        crew, asked = await load_crew(views, context.settings), len(await views.view_questions())
        return crew, asked, () if json else (await judge(views, context.place)).needs

    crew, waiting, needs = context.look(work, or_empty=True)
    if json:
        context.say(AgentsShape.of(crew, waiting))
        return
    broken = [line for one in needs if one.level == "broken" for line in _broken(one)]
    supervision = [sentence(told)] if crew.supervisors and (told := _supervision(crew)) else []
    if not crew.members:
        known = [*broken, *supervision] if any(not one.gone for one in crew.supervisors) else broken
        idle = in_words("No agent is at work. `allswell up` starts the agents of allswell.toml.")
        context.say(None, "\n".join([*known, context.none(idle)]))
        return
    waits = f"{many(waiting, 'question waits', 'questions wait')} for you: {typed_here('allswell questions')}"
    lines = [paint(waits, "warn")]
    lines = [*broken, *lines[: waiting > 0], *supervision]
    context.say(None, "\n".join([*lines, table(_COLUMNS, [_row(one, crew.now) for one in crew.members], styled=1)]))


def _broken(concern: VerdictItem) -> list[str]:
    """What is wrong with the watch, and what to type: whoever asks for agents must not miss it."""
    command = paint(typed_here(concern.command), "held")
    return [f"{paint('✗', 'failed')} {sentence(plain(concern.what))}", f"    {command}"]


def _supervision(crew: AgentsOverview) -> str:
    from allswell.domain.agents.status import is_alive

    told: list[str] = []
    for one in crew.supervisors:
        if is_alive(one, crew.now):
            paused = ""
            if one.level.paused:
                until = "" if one.level.until is None else f" until {when(one.level.until, crew.now)}"
                paused = f", paused{until}: its session is almost used up"
            state = "stopping" if one.stopping else "watches"
            told.append(f"{one.name} {state} {many(len(one.posts), 'slot')} from {one.host}{paused}")
    silent = any(not one.gone and not one.died for one in crew.supervisors)  # of which the verdict tells
    if not told and silent:
        return ""
    return paint(plain("; ".join(told)) if told else "No supervisor is running.", "dim")


def _row(one: AgentRow, now: int) -> list[str]:
    from allswell.domain.agents.cost import shown

    proof = "" if one.proof_at is None else when(one.proof_at, now)
    evidence = one.evidence if one.state == one.health else ""  # else it stands there already
    said = one.note or evidence or one.waits or ""
    if one.degraded:
        said = f"{len(one.degraded)} requests expired within a day: {', '.join(sent.request for sent in one.degraded)}"
    share = "" if one.progress is None else f"{one.progress:.0%}"
    missed = f"{many(one.misses, 'check-in')} missed of {one.threshold}" if one.misses else ""
    about = ", ".join(part for part in (missed, share, proof, said.splitlines()[0] if said else "") if part)
    left = "" if one.task is None else "no limit" if one.remaining_ms is None else short(one.remaining_ms)
    health = f"{one.state}, degraded" if one.degraded else one.state
    cost = shown(one.spent.cost) if one.spent.attempts else ""
    return [one.agent, health, f"{one.misses}/{one.threshold}", one.name or "", left, cost, about]


def tracking(store: Store = None, json: Json = False) -> None:
    """List missed check-ins, stalled agents, timeouts and open questions."""
    from allswell.engine.status.agents import pending_questions, track
    from allswell.views.agent import TrackingShape

    context = CliContext(store, json=json)

    async def work(views: Views) -> tuple[Tracking, list[Question]]:
        return await track(views), await pending_questions(views)

    found, pending = context.look(work, or_empty=True)
    rows = [[agent, str(misses), "missed check-ins"] for agent, misses in found.checkpoint_misses.items()]
    rows += [[agent, "", "stalled"] for agent in found.stalled_agents]
    rows += [[task, str(count), "timeouts"] for task, count in found.task_timeouts.items()]
    rows += [[str(asked.task), "", "asks you"] for asked in pending]
    heads = (Column("WHO", 12), Column("COUNT", None, right=True), Column("WHAT", 8))
    none = "Nothing missed, stalled, timed out or open."
    context.say(TrackingShape.of(found, pending), table(heads, rows) if rows else context.none(none))


# `agents --ledger NAME`: what counts for an agent and against it, what does not, and why.

_LEDGER_COLUMNS = (Column("WHEN"), Column("COUNTS"), Column("WHAT", 24), Column("WHY", 24))


def show_ledger(context: CliContext, agent: str, length: int) -> None:
    """Show what the last so many milliseconds say of an agent."""
    from allswell.domain.task.submit import check_name
    from allswell.views.agent import load_ledger
    from allswell.views.fields import millis

    check_name(agent, "--ledger")
    shown = context.look(lambda views: load_ledger(views, agent, length, "--since"), or_empty=True)
    now = millis(shown.since_at) + length
    if not shown.lines:
        words = f"Nothing was recorded about {plain(agent)} in that time."
    else:
        heads = [f"{plain(agent)}: {_sum(shown)}; {shown.score:+d} points when two agents are equally healthy."]
        if shown.healthy_at is not None:
            again = when(millis(shown.healthy_at), now)
            heads.append(paint(f"Degraded: asked only if no other agent can answer; healthy again {again}.", "warn"))
        rows = [[when(millis(line.occurred_at), now), line.weight, line.what, line.why] for line in shown.lines]
        words = "\n".join([*heads, table(_LEDGER_COLUMNS, rows)])
    if shown.events_looked_at is not None:
        bound = f"Only the last {shown.events_looked_at:,} events of the journal were read."
        words = "\n".join([words.rstrip(), paint(bound, "dim")])
    context.say(shown, words)


def _sum(ledger: LedgerShape) -> str:
    idle = f", idle for {short(ledger.idle_ms)}" if ledger.idle_ms else ""
    weights = [line.weight for line in ledger.lines]
    against = many(weights.count("against"), "expiry", "expiries")
    return f"{many(weights.count('for'), 'task')} unblocked, {against} that count{idle}"

"""The fleet: `up` watches over it, `work` joins it; `agents` and `tracking` show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from allswell.domain.duration import parse, show
from allswell.engine.status.explanation import many
from allswell.errors import LeaseLost, Refused
from allswell.interfaces.cli.context import CliContext, CliExit, Exit, flush, on_stop, remark
from allswell.interfaces.cli.options import Option, Rest
from allswell.interfaces.cli.registry import LOOKING, RUNNING, Commands
from allswell.interfaces.cli.rendering import (
    Column,
    columns,
    in_words,
    paint,
    plain,
    sentence,
    short,
    table,
    typed_here,
    when,
    width_of,
    wrapped,
)

if TYPE_CHECKING:
    import socket

    from allswell.domain.agents.fleet import AgentSpec, Fleet
    from allswell.engine.status.agents import AgentRow, AgentsOverview
    from allswell.engine.status.verdict import VerdictItem
    from allswell.engine.watch import Watch
    from allswell.interfaces.http.listener import ListenAddress
    from allswell.runtime.supervisor import SupervisorPlan
    from allswell.settings.settings import Settings
    from allswell.store.views import Views
    from allswell.views.agent import LedgerShape

_THREADS = 32
"""For snapshots, briefs and looks: a slow one must not hold up the next attempt."""
Name = Annotated[str, Option("--name", metavar="NAME", help="Name of this process; no other may use it.")]
Roles = Annotated[
    list[str] | None, Option("--role", "-r", metavar="ROLE", help="Only agents of this role; repeatable.")
]
Drain = Annotated[bool, Option("--drain", help="Stop when no task is left that could be done.")]


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        RUNNING,
        "up",
        up,
        "allswell up",
        "allswell up --role builder --name second",
        "allswell up --drain                     work everything off, then stop",
        "allswell up --serve                     and serve it over HTTP, as `allswell serve` does",
    )
    app.add(
        RUNNING,
        "work",
        work,
        "allswell work --agent ada -- claude -p {prompt}",
        "allswell work --agent sh --role shell --slots 4 -- ./do.sh {prompt_file}",
        "allswell work --run r_… --slots 4    steps of a flow that runs elsewhere",
    )
    app.add(
        LOOKING,
        "agents",
        agents,
        "allswell agents",
        "allswell agents --ledger oracle            what counts for and against it",
    )
    app.add(LOOKING, "tracking", tracking, "allswell tracking --json")


def up(
    name: Name = "main",
    role: Roles = None,
    drain: Drain = False,
    serve: Annotated[
        str | None,
        Option(
            "--serve",
            metavar="ADDRESS",
            bare="127.0.0.1:8420",
            help="Serve the page and the HTTP API as well. Default: 127.0.0.1:8420.",
        ),
    ] = None,
    *,
    context: CliContext,
) -> None:
    """Start the agents of allswell.toml for tasks that are ready, watch them, end them at their limits, try again.

    Ctrl-C or SIGTERM lets agents finish for a while (fleet.stop, 30s); tasks that are not finished become ready again.
    A second Ctrl-C stops at once. The server of --serve is a process of its own, and is started again if it ends.
    """
    from allswell.domain.agents.fleet import Fleet

    context.for_humans("up")
    fleet = context.settings.fleet
    if not fleet.agents:
        text = (
            "no agents are set up here: `allswell init` finds those on this machine, `allswell help fleet` shows how to"
            " write [agents.NAME] by hand"
        )
        raise Refused("no_agents", text, where="agents")
    if role:
        fleet = Fleet(_of_roles(fleet, role), fleet.usage, fleet.compaction)
    context.settings.without("sinks")
    if serve is None:
        _supervise(context, name, fleet, drain=drain, tells=True)
        return
    from allswell.interfaces.cli.commands.serve import listening_at

    with listening_at(context, serve) as (made, where):
        _supervise(context, name, fleet, drain=drain, tells=True, serve=(made, where))


def work(
    agent: Annotated[str, Option("--agent", "-a", metavar="NAME", help="The agent's name.")] = "worker",
    role: Annotated[str | None, Option("--role", "-r", metavar="ROLE", help="Only tasks of this role.")] = None,
    slots: Annotated[int, Option("--slots", metavar="N", min=1, max=1000, help="How many tasks at a time.")] = 1,
    idle: Annotated[
        str | None, Option("--idle", metavar="TIME", help="End COMMAND after this time without progress. Default: off.")
    ] = None,
    grace: Annotated[str, Option("--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL.")] = "10s",
    account: Annotated[str, Option("--account", metavar="NAME", help="The account whose usage limits count.")] = "",
    pass_env: Annotated[
        list[str] | None, Option("--pass", metavar="VAR", help="A variable to pass on (ANTHROPIC_*); repeatable.")
    ] = None,
    drain: Drain = False,
    run: Annotated[
        str | None,
        Option("--run", metavar="RUN", help="Run steps of this flow's run instead, in this folder.", of=("run",)),
    ] = None,
    *,
    context: CliContext,
    command: Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="The command for each task.")] = None,
) -> None:
    """Start one agent without allswell.toml: run COMMAND for each task that it gets.

    COMMAND may name {prompt}, {prompt_file}, {payload}, {handover} and so on. Without any, the prompt is the last
    argument.
    """
    from allswell.domain.agents.fleet import PLACES, WORK, AgentSpec, Fleet, wrong_with_agent

    if run is not None:
        from allswell.interfaces.cli.commands.flow import join_flow

        if command:
            raise Refused("usage", "--run does what a flow's steps say; give no COMMAND", where="--run")
        join_flow(context, run, slots)
        return
    if not command:
        raise Refused("no_command", "which command? allswell work [OPTIONS] -- COMMAND…", where="COMMAND")
    context.for_its_agent(agent)
    words = tuple(command)
    if not any(f"{{{place}}}" in word for word in words for place in PLACES):
        words = (*words, "{prompt}")
    name = f"{WORK}{agent}"  # nobody else's, whatever the agents of allswell.toml are called
    spec = AgentSpec(
        name=name,
        command=words,
        role=role,
        concurrency=slots,
        idle=None if idle is None else parse(idle, where="--idle"),
        grace=parse(grace, where="--grace"),
        account=account,
        pass_env=tuple(pass_env or ()),
    )
    wrong = wrong_with_agent(spec)
    if wrong:
        raise Refused("bad_agent", f"this cannot be an agent: {wrong[0][1]}", where=wrong[0][0] or "COMMAND")
    _supervise(context, name, Fleet({name: spec}), drain=drain)


def _of_roles(fleet: Fleet, roles: Sequence[str]) -> dict[str, AgentSpec]:
    from allswell.engine.lookup import did_you_mean

    known = sorted({spec.role for spec in fleet.agents.values() if spec.role})
    for role in roles:
        if role not in known and not any(spec.role is None for spec in fleet.agents.values()):
            hint = did_you_mean(role, known) or f"; there are: {', '.join(known)}"
            raise Refused("unknown_role", f"--role: no agent has the role {role!r}{hint}", where="--role")
    return {name: spec for name, spec in fleet.agents.items() if spec.role is None or spec.role in roles}


def _supervise(
    context: CliContext,
    name: str,
    fleet: Fleet,
    *,
    drain: bool,
    tells: bool = False,
    serve: tuple[socket.socket, ListenAddress] | None = None,
) -> None:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from allswell.runtime.host import raise_limit
    from allswell.runtime.supervisor import Supervisor
    from allswell.timing.scopes import abandoned

    plan = _plan(context, name, fleet, drain=drain)
    if tells:
        plan = _telling(plan, context)
    if serve is not None:
        from dataclasses import replace

        from allswell.interfaces.http.sidecar import KeptServer

        kept = KeptServer(context.url, context.home, context.settings, *serve, plan.tell)
        plan = replace(plan, beside=[*plan.beside, kept.keep])
    raise_limit()
    stops: list[None] = []

    async def live(watch: Watch) -> None:
        supervisor = Supervisor(watch, plan)

        def stop() -> None:
            stops.append(None)
            supervisor.stop()

        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
        on_stop(stop)
        if tells:
            plan.tell(_figures(context.settings, fleet))
        if not drain:
            where = f"{many(supervisor.slots, 'slot')} as {name!r}, on {context.identity}"
            plan.tell(f"watching {where}; Ctrl-C stops")
        try:
            await supervisor.run()
        except LeaseLost as lost:
            ended = "its agents were ended; use another name (--name)"
            remark(f"allswell: {plain(lost.reason)}: {plain(name)}; {ended}")
            raise CliExit(Exit.LEASE_LOST) from None
        if abandoned():  # functions that would not be cancelled: asyncio would wait for them for ever
            flush()
            os._exit(int(Exit.FINE))

    context.run(live, making=True)
    if len(stops) > 1:
        context.leave(Exit.INTERRUPTED)


def _figures(settings: Settings, fleet: Fleet) -> str:
    """The limits under which the fleet works, in one line."""
    from allswell.domain.lease.claim import RUN_ROLE

    def of(name: str, role: str = "") -> str:
        value = settings.value(name, role)
        return show(value) if isinstance(value, int) else "off"

    usual = of("agent_timeout")
    lengths: dict[str, list[str]] = {}
    for role in settings.known_roles():
        if role != RUN_ROLE and (own := of("agent_timeout", role)) != usual:
            lengths.setdefault(own, []).append(role)
    roles = "; ".join(f"{', '.join(names)} {own}" for own, names in lengths.items())
    idle = [f"{spec.name} {show(spec.idle)}" for spec in fleet.agents.values() if spec.idle is not None]
    idle += [f"any {of('idle')}"] if settings.value("idle") is not None else []
    parts = [
        f"{usual} for each attempt" + (f" ({roles})" if roles else ""),
        f"a check-in every {of('checkpoint_interval')}, {of('checkpoint_timeout')} to answer",
        f"stalled after {settings.value('stall_threshold')} missed",
        f"a human is asked after {settings.value('timeout_escalation')} timeouts",
        f"idle: {', '.join(idle)}" if idle else "",
    ]
    return "limits: " + "; ".join(part for part in parts if part)


def _plan(context: CliContext, name: str, fleet: Fleet, *, drain: bool) -> SupervisorPlan:
    from allswell.domain.agents.usage import Thresholds
    from allswell.domain.task.submit import check_name
    from allswell.runtime.receipts import StateDir
    from allswell.runtime.supervisor import SupervisorPlan

    check_name(name, "--name")
    settings = context.settings
    home = StateDir(context.home)
    home.make()

    def number(setting: str) -> int:
        return int(settings.value(setting) or 0)

    def tell(line: str) -> None:
        line, room = in_words(line), columns(sys.stdout)
        lines = [plain(line)] if room is None else _in_lines(plain(line), room - 10)
        context.tell(line, shown="\n          ".join(lines))

    remind = settings.value("question_reminder")
    return SupervisorPlan(
        fleet,
        home,
        name,
        lease=number("fleet.lease"),
        stop=number("fleet.stop"),
        thresholds=Thresholds(
            float(settings.value("context_threshold") or 0),
            float(settings.value("session_threshold") or 0),
            number("session_margin"),
            number("usage_limit_pause"),
        ),
        quota=settings.quota(),
        budgets=settings.budgets(),
        park_limits=settings.value("usage_limits") == "park",
        limit_pause=number("usage_limit_pause"),
        bring_needs=bool(settings.value("bring_needs")),
        conflict_role=str(settings.value("conflict_role") or ""),
        reminder=int(remind) if isinstance(remind, int) else None,
        drain=drain,
        tell=tell,
    )


def _in_lines(text: str, room: int) -> list[str]:
    """A sentence in lines; a command at its end stays in one, however long, so that it can be copied."""
    said, arrow, command = text.rpartition(" → ")
    if not arrow or width_of(text) <= room:
        return wrapped(text, room)
    return [*wrapped(said, room), f"→ {command}"]


def _telling(plan: SupervisorPlan, context: CliContext) -> SupervisorPlan:
    """The plan with the sinks that can be told; what is wrong with the others is said, and the fleet goes on."""
    from dataclasses import replace

    from allswell.interfaces.notifications.follower import make_sink, posting_of, run_sinks
    from allswell.interfaces.notifications.webhook import can_post, deliver_requests

    made = []
    for spec in context.settings.sinks.values():
        try:
            made.append(make_sink(spec, origin=context.settings.public_origin))
        except Refused as error:
            plan.tell(f"the sink {spec.name} gets no messages: {error.message}; `allswell sinks check`")
    # Without the extra, requests to addresses wait for a process that has it.
    delivering = partial(deliver_requests, posting=posting_of(context.settings, plan.clock.wall))
    beside = [*([delivering] if can_post() else ()), *([partial(run_sinks, sinks=made)] if made else ())]
    return replace(plan, beside=beside)


# Who does what: `agents` shows all of them with their health, `tracking` what is held against whom.

AGENT_COLUMNS = (
    Column("AGENT", 8),
    Column("HEALTH"),
    Column("MISSES", right=True, spare=True),  # what was missed stands under PROOF, too
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
    *,
    context: CliContext,
) -> None:
    """List agents: what each does, its health, missed check-ins, last sign of progress, time left.

    An agent that let more than three requests expire within a day is degraded: other agents are asked first.
    """
    from allswell.engine.status.verdict import look as judge
    from allswell.views.agent import AgentsShape, load_crew

    if ledger is not None:
        show_ledger(context, ledger, parse(since, where="--since"))
        return

    async def work(views: Views) -> tuple[AgentsOverview, int, tuple[VerdictItem, ...]]:
        crew, asked = await load_crew(views, context.settings), len(await views.view_questions())
        return crew, asked, () if context.json else (await judge(views, context.place)).needs

    crew, waiting, needs = context.look(work, or_empty=True)
    if context.json:
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
    context.say(
        None, "\n".join([*lines, table(AGENT_COLUMNS, [_row(one, crew.now) for one in crew.members], styled=1)])
    )


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
        said = f"{len(one.expiries)} requests expired within a day: {', '.join(sent.request for sent in one.expiries)}"
    share = "" if one.progress is None else f"{one.progress:.0%}"
    missed = f"{many(one.misses, 'check-in')} missed of {one.threshold}" if one.misses else ""
    about = ", ".join(part for part in (missed, share, proof, said.splitlines()[0] if said else "") if part)
    left = "" if one.task is None else "no limit" if one.remaining_ms is None else short(one.remaining_ms)
    health = f"{one.state}, degraded" if one.degraded else one.state
    cost = shown(one.spent.cost, estimated=one.spent.estimated > 0) if one.spent.attempts else ""
    return [one.agent, health, f"{one.misses}/{one.threshold}", one.name or "", left, cost, about]


def tracking(*, context: CliContext) -> None:
    """List missed check-ins, stalled agents, timeouts and open questions."""
    from allswell.views.agent import load_tracking

    shape = context.look(load_tracking, or_empty=True)
    found = shape.timeout_tracking
    rows = [[agent, str(misses), "missed check-ins"] for agent, misses in found.checkpoint_misses.items()]
    rows += [[agent, "", "stalled"] for agent in found.stalled_agents]
    rows += [[task, str(count), "timeouts"] for task, count in found.task_timeouts.items()]
    rows += [[asked.task_id, "", "asks you"] for asked in shape.pending_divine_questions]
    heads = (Column("WHO", 12), Column("COUNT", None, right=True), Column("WHAT", 8))
    none = "Nothing missed, stalled, timed out or open."
    context.say(shape, table(heads, rows) if rows else context.none(none))


# `agents --ledger NAME`: what counts for an agent and against it, what does not, and why.

_LEDGER_COLUMNS = (Column("WHEN"), Column("COUNTS"), Column("WHAT", 24), Column("WHY", 24))


def show_ledger(context: CliContext, agent: str, length: int) -> None:
    """Show what the last so many milliseconds say of an agent."""
    from allswell.domain.task.submit import check_name
    from allswell.views.agent import load_ledger

    check_name(agent, "--ledger")
    shown = context.look(lambda views: load_ledger(views, agent, length, "--since"), or_empty=True)
    now = shown.since_at + length
    if not shown.lines:
        words = f"Nothing was recorded about {plain(agent)} in that time."
    else:
        heads = [f"{plain(agent)}: {_sum(shown)}; {shown.score:+d} points when two agents are equally healthy."]
        if shown.healthy_at is not None:
            again = when(shown.healthy_at, now)
            heads.append(paint(f"Degraded: asked only if no other agent can answer; healthy again {again}.", "warn"))
        rows = [[when(line.at, now), line.weight, line.what, line.why] for line in shown.lines]
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

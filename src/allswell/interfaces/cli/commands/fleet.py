"""The fleet: `up` watches over it, `work` joins it; `agents` and `tracking` show it (agents.py)."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

from allswell.engine.status.explanation import many
from allswell.errors import LeaseLost, Refused
from allswell.interfaces.cli.context import CliContext, CliExit, Exit, flush, remark, write
from allswell.interfaces.cli.options import Json, Option, Rest, Store
from allswell.interfaces.cli.registry import RUNNING, Commands
from allswell.interfaces.cli.rendering import columns, in_words, plain, width_of, wrapped

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from allswell.domain.agents.fleet import AgentSpec, Fleet
    from allswell.engine.watch import Watch
    from allswell.interfaces.http.listener import ListenAddress
    from allswell.runtime.supervisor import SupervisorPlan
    from allswell.settings.settings import Settings

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
    store: Store = None,
    json: Json = False,
) -> None:
    """Start the agents of allswell.toml for tasks that are ready, watch them, end them at their limits, try again.

    Ctrl-C or SIGTERM lets agents finish for a while (fleet.stop, 30s); tasks that are not finished become ready again.
    A second Ctrl-C stops at once. The server of --serve is a process of its own, and is started again if it ends.
    """
    from allswell.domain.agents.fleet import Fleet

    context = CliContext(store, json=json)
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
    store: Store = None,
    json: Json = False,
    command: Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="The command for each task.")] = None,
) -> None:
    """Start one agent without allswell.toml: run COMMAND for each task that it gets.

    COMMAND may name {prompt}, {prompt_file}, {payload}, {handover} and so on. Without any, the prompt is the last
    argument.
    """
    from allswell.domain.agents.fleet import PLACES, WORK, AgentSpec, Fleet, wrong_with_agent
    from allswell.domain.duration import parse

    context = CliContext(store, json=json)
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
    import os
    import signal
    from concurrent.futures import ThreadPoolExecutor

    from allswell.runtime.agents.function import ABANDONED
    from allswell.runtime.host import raise_limit
    from allswell.runtime.supervisor import Supervisor

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

        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
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
        if ABANDONED:  # functions that would not be cancelled: asyncio would wait for them for ever
            flush()
            os._exit(int(Exit.FINE))

    context.run(live, making=True)
    if len(stops) > 1:
        context.leave(Exit.INTERRUPTED)


def _figures(settings: Settings, fleet: Fleet) -> str:
    """The limits under which the fleet works, in one line."""
    from allswell.domain.duration import show
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
    import time

    from allswell.domain.agents.usage import Thresholds
    from allswell.domain.task.submit import check_name
    from allswell.runtime.receipts import StateDir
    from allswell.runtime.supervisor import SupervisorPlan
    from allswell.views.commands import SaidShape
    from allswell.views.fields import moment

    check_name(name, "--name")
    settings = context.settings
    home = StateDir(context.home)
    home.make()

    def number(setting: str) -> int:
        return int(settings.value(setting) or 0)

    def tell(line: str) -> None:
        line = in_words(line)
        if context.json:
            with contextlib.suppress(CliExit):
                context.say(SaidShape(moment(time.time_ns() // 1_000_000), line))
        else:
            room = columns(sys.stdout)
            text = f"{time.strftime('%H:%M:%S')}  {plain(line)}"
            lines = [text] if room is None else _broken(text, room - 10)
            with contextlib.suppress(CliExit):  # nobody reads any more: the fleet goes on
                write("\n          ".join(lines) + "\n")
        with contextlib.suppress(CliExit):
            flush()

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
        reminder=int(remind) if isinstance(remind, int) else None,
        drain=drain,
        tell=tell,
    )


def _broken(text: str, room: int) -> list[str]:
    """A sentence in lines; a command at its end stays in one, however long, so that it can be copied."""
    said, arrow, command = text.rpartition(" → ")
    if not arrow or width_of(text) <= room:
        return wrapped(text, room)
    return [*wrapped(said, room), f"→ {command}"]


def _telling(plan: SupervisorPlan, context: CliContext) -> SupervisorPlan:
    """The plan with the sinks that can be told; what is wrong with the others is said, and the fleet goes on."""
    from dataclasses import replace
    from functools import partial

    from allswell.interfaces.notifications.follower import make_sink, posting_of, run_sinks
    from allswell.interfaces.notifications.webhook import deliver_requests

    made = []
    for spec in context.settings.sinks.values():
        try:
            made.append(make_sink(spec))
        except Refused as error:
            plan.tell(f"the sink {spec.name} gets no messages: {error.message}; `allswell sinks check`")
    delivering = partial(deliver_requests, posting=posting_of(context.settings, plan.clock.wall))
    return replace(plan, beside=[delivering, *([partial(run_sinks, sinks=made)] if made else ())])

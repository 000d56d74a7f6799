"""The fleet: `up` watches over it, `work` joins it; `agents` and `tracking` show it (crew.py)."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.advice import in_words
from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.frame import Exit, Frame, Left, flush, write
from allswell.doors.cli.options import Json, Option, Rest, Store
from allswell.doors.cli.render import plain
from allswell.doors.cli.width import columns, width_of, wrapped
from allswell.engine.explaining.words import many
from allswell.errors import Refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from allswell.domain.fleet import AgentSpec, Fleet
    from allswell.doors.http.listening import Address
    from allswell.engine.watch import Watch
    from allswell.runtime.supervisor import Plan

_THREADS = 32
"""For snapshots, briefs and looks: a slow one must not hold up the next attempt."""
Name = Annotated[str, Option("--name", metavar="NAME", help="Under which name; each is taken by one process.")]
Roles = Annotated[list[str] | None, Option("--role", "-r", metavar="ROLE", help="Only this role; repeatable.")]
Drain = Annotated[bool, Option("--drain", help="Stop when nothing is left that could be done.")]


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
        Option("--serve", metavar="ADDRESS", bare="127.0.0.1:8420", help="Serve it too: HOST:PORT, or a socket."),
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Watch over the agents of allswell.toml: start them for what is ready, ask, end, hand over.

    Ctrl-C or SIGTERM stops in good order: agents may finish for a while, what is not finished goes back. A second one
    is immediate. A server (--serve) is a process of its own: started again if it ends, and never in the fleet's way.
    """
    from allswell.domain.fleet import Fleet

    frame = Frame(store, json=json)
    fleet = frame.settings.fleet
    if not fleet.agents:
        text = (
            "no agents are set up here: add [agents.NAME] to allswell.toml (docs/supervisor.md), or use `allswell work`"
        )
        raise Refused("no_agents", text, where="agents")
    if role:
        fleet = Fleet(_of_roles(fleet, role), fleet.usage, fleet.compaction)
    frame.settings.without("sinks")
    if serve is None:
        _supervise(frame, name, fleet, drain=drain, tells=True)
        return
    from allswell.doors.cli.serving import listening_at

    with listening_at(frame, serve) as (made, where):
        _supervise(frame, name, fleet, drain=drain, tells=True, serve=(made, where))


def work(
    agent: Annotated[str, Option("--agent", "-a", metavar="NAME", help="Who holds the tasks.")] = "worker",
    role: Annotated[str | None, Option("--role", "-r", metavar="ROLE", help="Only tasks of this role.")] = None,
    slots: Annotated[int, Option("--slots", metavar="N", min=1, max=1000, help="How many at a time.")] = 1,
    idle: Annotated[str | None, Option("--idle", metavar="TIME", help="End it without progress for so long.")] = None,
    grace: Annotated[str, Option("--grace", metavar="TIME", help="Between SIGTERM and SIGKILL.")] = "10s",
    account: Annotated[str, Option("--account", metavar="NAME", help="Whose usage limit it may meet.")] = "",
    pass_env: Annotated[
        list[str] | None, Option("--pass", metavar="VAR", help="A variable it gets too (ANTHROPIC_*); repeatable.")
    ] = None,
    drain: Drain = False,
    run: Annotated[
        str | None,
        Option("--run", metavar="RUN", help="Take steps of this flow's run instead, in this folder.", of=("run",)),
    ] = None,
    store: Store = None,
    json: Json = False,
    command: Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="What is run for each task.")] = None,
) -> None:
    """Join the watch with one agent: run COMMAND for each task that it gets, watched like any other.

    COMMAND may name {prompt}, {prompt_file}, {payload}, {handover} and so on; without any, the prompt is its last word.
    """
    from allswell.domain.duration import parse
    from allswell.domain.fleet import PLACES, AgentSpec, Fleet, wrong_with

    frame = Frame(store, json=json)
    if run is not None:
        from allswell.doors.cli.flowrun import join_flow

        if command:
            raise Refused("usage", "--run does what a flow's steps say; give no COMMAND", where="--run")
        join_flow(frame, run, slots)
        return
    if not command:
        raise Refused("no_command", "which command? allswell work [OPTIONS] -- COMMAND…", where="COMMAND")
    words = tuple(command)
    if not any(f"{{{place}}}" in word for word in words for place in PLACES):
        words = (*words, "{prompt}")
    name = f"work:{agent}"  # nobody else's, whatever the agents of allswell.toml are called
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
    wrong = wrong_with(spec)
    if wrong:
        raise Refused("bad_agent", f"this cannot be an agent: {wrong[0][1]}", where=wrong[0][0] or "COMMAND")
    _supervise(frame, name, Fleet({name: spec}), drain=drain)


def _of_roles(fleet: Fleet, roles: Sequence[str]) -> dict[str, AgentSpec]:
    from allswell.engine.finding import did_you_mean

    known = sorted({spec.role for spec in fleet.agents.values() if spec.role})
    for role in roles:
        if role not in known and not any(spec.role is None for spec in fleet.agents.values()):
            hint = did_you_mean(role, known) or f"; there are: {', '.join(known)}"
            raise Refused("unknown_role", f"--role: no agent has the role {role!r}{hint}", where="--role")
    return {name: spec for name, spec in fleet.agents.items() if spec.role is None or spec.role in roles}


def _supervise(
    frame: Frame,
    name: str,
    fleet: Fleet,
    *,
    drain: bool,
    tells: bool = False,
    serve: tuple[socket.socket, Address] | None = None,
) -> None:
    import asyncio
    import os
    import signal
    from concurrent.futures import ThreadPoolExecutor

    from allswell.runtime.agents.function import ABANDONED
    from allswell.runtime.supervisor import Supervisor

    plan = _plan(frame, name, fleet, drain=drain)
    if tells:
        plan = _telling(plan, frame)
    if serve is not None:
        from dataclasses import replace

        from allswell.doors.http.keeping import KeptServer

        plan = replace(plan, beside=[*plan.beside, KeptServer(frame.url, frame.home, *serve, plan.tell).keep])
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
        if not drain:
            where = f"{many(supervisor.slots, 'slot')} as {name!r}, on {frame.identity}"
            plan.tell(f"watching {where}; Ctrl-C stops in good order")
        await supervisor.run()
        if ABANDONED:  # functions that would not be cancelled: asyncio would wait for them for ever
            flush()
            os._exit(int(Exit.FINE))

    frame.run(live, making=True)
    if len(stops) > 1:
        frame.leave(Exit.INTERRUPTED)


def _plan(frame: Frame, name: str, fleet: Fleet, *, drain: bool) -> Plan:
    import time

    from allswell.domain.submit import check_name
    from allswell.domain.usage import Thresholds
    from allswell.doors.shapes.moment import moment
    from allswell.doors.shapes.said import SaidShape
    from allswell.runtime.receipts import Home
    from allswell.runtime.supervisor import Plan

    check_name(name, "--name")
    settings = frame.settings
    home = Home(frame.home)
    home.make()

    def number(setting: str) -> int:
        return int(settings.value(setting) or 0)

    def tell(line: str) -> None:
        line = in_words(line)
        if frame.json:
            with contextlib.suppress(Left):
                frame.say(SaidShape(moment(time.time_ns() // 1_000_000), line))
        else:
            room = columns(sys.stdout)
            text = f"{time.strftime('%H:%M:%S')}  {plain(line)}"
            lines = [text] if room is None else _broken(text, room - 10)
            with contextlib.suppress(Left):  # nobody reads any more: the fleet goes on
                write("\n          ".join(lines) + "\n")
        with contextlib.suppress(Left):
            flush()

    remind = settings.value("question_reminder")
    return Plan(
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


def _telling(plan: Plan, frame: Frame) -> Plan:
    """The plan with the sinks that can be told; what is wrong with the others is said, and the fleet goes on."""
    from dataclasses import replace
    from functools import partial

    from allswell.doors.sinks.making import make_sink, posting_of
    from allswell.doors.sinks.running import run_sinks
    from allswell.doors.sinks.webhook_requests import deliver_requests

    made = []
    for spec in frame.settings.sinks.values():
        try:
            made.append(make_sink(spec))
        except Refused as error:
            plan.tell(f"the sink {spec.name} is told nothing: {error.message}; `allswell sinks check`")
    delivering = partial(deliver_requests, posting=posting_of(frame.settings, plan.clock.wall))
    return replace(plan, beside=[delivering, *([partial(run_sinks, sinks=made)] if made else ())])

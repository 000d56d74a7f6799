"""The worker for messages: `worker` runs it, `worker setup` makes its queue, `worker status` shows how it goes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from allswell.domain.duration import parse
from allswell.engine.status.explanation import many
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, CliExit, Exit
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import LOOKING, RUNNING, UPKEEP, Commands
from allswell.interfaces.cli.rendering import Column, paint, plain, short, table

if TYPE_CHECKING:
    from allswell.settings import Settings
    from allswell.views.worker import ProcessShape, QueueShape
    from allswell.worker.handlers import WorkerPlan

_HOST = "127.0.0.1"
_COLUMNS = (
    Column("QUEUE", 8),
    Column("WAITING", None, right=True),
    Column("OLDEST", None, right=True),
    Column("IN TROUBLE", 12),
    Column("PROCESSES", 20),
)
_FIGURES = ("running", "handled", "retried", "stuck", "restarts")
_PROCESSES = (
    Column("PROCESS", None),
    Column("QUEUE", 8),
    Column("IN HAND", None, right=True),
    Column("LONGEST", None, right=True),
    Column("HANDLED", None, right=True),
    Column("RETRIED", None, right=True),
    Column("STUCK", None, right=True),
    Column("RESTARTS", None, right=True),
    Column("SILENT FOR", None, right=True),
    Column("CONDITION", 12),
)


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        RUNNING,
        "worker",
        worker,
        "allswell worker shop.jobs:handlers --queue orders",
        "allswell worker shop.jobs:handlers --queue orders --concurrency 20 --processes 2 --health-port 9090",
    )
    app.add(UPKEEP, "worker setup", setup, "allswell worker setup orders")
    app.add(LOOKING, "worker status", status, "allswell worker status")


def worker(
    handlers: Annotated[str, Argument(metavar="MODULE:NAME", help="Module and name of the handlers.")],
    *,
    queue: Annotated[str, Option("--queue", "-q", metavar="NAME", help="The queue.")],
    concurrency: Annotated[
        int | None,
        Option(
            "--concurrency",
            metavar="N",
            min=1,
            max=1000,
            help="Messages at a time, in each process. Default: worker.concurrency (10).",
        ),
    ] = None,
    processes: Annotated[int, Option("--processes", metavar="N", min=1, max=64, help="Number of processes.")] = 1,
    health_port: Annotated[
        int | None,
        Option(
            "--health-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /healthz, /readyz and /metrics on this port. Default: not at all.",
        ),
    ] = None,
    health_host: Annotated[str, Option("--health-host", metavar="HOST", help="Address of --health-port.")] = _HOST,
    context: CliContext,
) -> None:
    """Handle the messages of a queue in the store's PostgreSQL, until Ctrl-C or SIGTERM.

    A supervising process replaces worker processes that die or hang. Under
    systemd it says READY and WATCHDOG (deploy/allswell-worker.service).
    """
    from allswell.worker.process import ProcessOrder, is_handlers_name
    from allswell.worker.setup import refuse_unless_ready
    from allswell.worker.supervisor import HealthPort, ServiceNotice, WorkerProcesses

    is_handlers_name(handlers)
    plan = _plan(context.settings, _postgres(context), queue, concurrency)
    refuse_unless_ready(plan)

    order = ProcessOrder(handlers, os.getcwd(), plan)  # noqa: PTH109 - as a shell says it
    all_of_them = WorkerProcesses(order, processes, ServiceNotice(), context.tell)
    health = None if health_port is None else HealthPort(health_port, all_of_them.statuses, health_host)
    if health is not None:
        context.tell(f"health at http://{health_host}:{health.port}/healthz")
    code = all_of_them.run(health)
    if code:
        raise Refused("bad_handlers", f"{handlers} could not be started; its output is above", where=handlers)
    if all_of_them.interrupted:
        raise CliExit(Exit.INTERRUPTED)


def setup(
    queue: Annotated[str, Argument(metavar="QUEUE", help="Small letters, digits and underscores.")],
    *,
    no_notify: Annotated[
        bool, Option("--no-notify", help="Do not have PGMQ notify: long transactions of senders wait for each other.")
    ] = False,
    print_grants: Annotated[
        bool, Option("--print-grants", help="Only print the GRANTs that a role needs, for the database's owner to run.")
    ] = False,
    role: Annotated[
        str | None, Option("--role", metavar="NAME", help="The role. Default: the role of the store's URL.")
    ] = None,
    context: CliContext,
) -> None:
    """Install what a queue needs in the store's PostgreSQL: PGMQ, the worker's tables, and the queue itself.

    PGMQ is used as it is found (1.5 or newer), made as an extension where the server offers it, else installed from the
    SQL inside PyPI's `pgmq`. It can be repeated, and prints what it did.
    """
    from allswell.views.worker import WorkerSetupShape
    from allswell.worker.setup import grants, role_of
    from allswell.worker.setup import setup as make

    if print_grants:
        printed = grants(queue, role or role_of(_postgres(context)))
        context.say(WorkerSetupShape(queue, printed.splitlines()), printed)
        return
    did: list[str] = []
    make(_postgres(context), queue, say=did.append, notify=not no_notify)
    context.say(WorkerSetupShape(queue, did), "\n".join(plain(line) for line in did))


def status(*, context: CliContext) -> None:
    """List queues, messages in trouble, and the processes that work on them."""
    from allswell.views.worker import QueuesShape

    if context.database is not None:
        _postgres(context)
    seen = QueuesShape(context.beside(context.artifacts.queues()))
    if not seen.queues:
        context.say(seen, "There is no queue here yet: `allswell worker setup NAME` makes one.")
        return
    shown = [table(_COLUMNS, [_row(one) for one in seen.queues])]
    if processes := [
        _process(one.queue, process) for one in seen.queues for process in one.processes if not process.gone
    ]:
        shown.append(table(_PROCESSES, processes))
    context.say(seen, "\n\n".join(shown))


def queue_lines(seen: list[QueueShape]) -> list[str]:
    """One line for each queue, for the state of the watch."""
    lines = []
    for one in seen:
        troubles = "".join(f", {count:,} {state}" for state, count in _troubles(one))
        who, well = _who(one)
        told = plain(who) if well else paint(plain(who), "warn")
        lines.append(f"  Queue {plain(one.queue)}: {one.visible:,} waiting{troubles}; {told}")
    return lines


def _row(one: QueueShape) -> list[str]:
    oldest = short(one.oldest_ms) if one.visible else ""
    troubles = ", ".join(f"{count:,} {state}" for state, count in _troubles(one))
    return [one.queue, f"{one.visible:,}", oldest, troubles, _who(one)[0]]


def _process(queue: str, process: ProcessShape) -> list[str]:
    running, *figures = (f"{process.counts.get(name, 0):,}" for name in _FIGURES)
    longest = f"{short(process.oldest_ms)} {process.oldest_type}".strip() if process.oldest_ms else ""
    how = f"{process.condition}: {process.why}" if process.why else process.condition
    slow = "".join(f"; {type_} {text}" for type_, text in sorted(process.too_slow.items()))
    return [str(process.pid), queue, running, longest, *figures, short(process.silent_ms), how + slow]


def _troubles(one: QueueShape) -> list[tuple[str, int]]:
    """The messages that did not go through, by how they stand, in words."""
    from allswell.views.worker import TROUBLES

    return [(words, one.troubles[state]) for state, words in TROUBLES.items() if one.troubles.get(state)]


def _who(one: QueueShape) -> tuple[str, bool]:
    """Who works on a queue, and whether that is as it should be."""
    there = [process for process in one.processes if not process.gone]
    if not there:
        return "no process works on it", False
    running = sum(process.counts.get("running", 0) for process in there)
    bad = [f"{process.condition}: {process.why}" for process in there if process.why]
    how = "; ".join(bad) or "healthy"
    return f"{many(len(there), 'process', 'processes')}, {many(running, 'message')} in hand, {how}", not bad


def _postgres(context: CliContext) -> str:
    if not context.url.startswith("postgresql:"):
        text = f"the worker's queue lies in the store's PostgreSQL, and the store is {context.identity}"
        hint = "name one with --store postgresql://… or $ALLSWELL_STORE"
        raise Refused("not_postgres", text, where="store", hint=hint)
    return context.url


def _plan(settings: Settings, url: str, queue: str, concurrency: int | None) -> WorkerPlan:
    """What `[worker]` of the settings says."""
    from allswell.domain.worker.limits import HealthRules, Layers
    from allswell.domain.worker.message import MessagePolicy
    from allswell.worker.handlers import WorkerPlan, checked_plan
    from allswell.worker.queue import Queue

    def number(name: str) -> float:
        value = settings.value(f"worker.{name}")
        return float(value) if isinstance(value, int | float) else 0.0

    pauses = [part for part in str(settings.value("worker.retry_pauses")).split(",") if part.strip()]
    try:
        return checked_plan(
            WorkerPlan(
                url,
                Queue(queue).name,
                Layers(
                    statement_timeout=round(number("statement_timeout")),
                    visibility_timeout=_whole(number("visibility_timeout")),
                    pool_timeout=number("pool_timeout"),
                    stuck_grace=number("stuck_grace"),
                    concurrency=round(number("concurrency")) if concurrency is None else concurrency,
                ),
                MessagePolicy(
                    tuple(parse(pause.strip(), where="worker.retry_pauses") for pause in pauses),
                    round(number("poison_after")),
                    round(number("unknown_type_pause")),
                    round(number("unknown_type_rounds")),
                ),
                HealthRules(
                    degraded_after=round(number("degraded_after")),
                    critical_stuck=round(number("critical_stuck")),
                    critical_exhausted=round(number("critical_exhausted")),
                    window=round(number("health_window")),
                ),
                poll_interval=number("poll_interval"),
                stop_timeout=number("stop_timeout"),
                long_timeout=number("long_timeout"),
                max_lifetime=number("max_lifetime"),
                max_idle=number("max_idle"),
                reconnect_timeout=number("reconnect_timeout"),
            )
        )
    except ValueError as error:
        raise Refused("bad_worker", f"[worker] of the settings: {error}", where="worker") from None


def _whole(seconds: float) -> int:
    if not seconds.is_integer():
        raise ValueError(f"visibility_timeout ({seconds:g}s) must be a whole number of seconds: PGMQ takes no other")
    return int(seconds)

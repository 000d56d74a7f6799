"""The commands that tell: why something stands where it stands, how the watch is, what it does on a bad day."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli import commands, options
from allswell.doors.cli.advice import typed_in
from allswell.doors.cli.frame import Exit, Frame, Left, write
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.build.glance import BuildGlance
    from allswell.worker.presence import QueueSeen


def add_to(app: commands.Commands) -> None:
    """Register the commands."""
    app.add(
        commands.LOOKING,
        "why",
        why,
        'allswell why "write the changelog"     by name, where only one task has it',
        "allswell why q_06fa3k9x2v7m.1          a question: each way to answer it",
    )
    app.add(commands.LOOKING, "watch", watch)
    app.add(commands.UPKEEP, "demo", demo)
    app.add(
        commands.UPKEEP,
        "drill",
        drill,
        "allswell drill --seed 7 --hours 48",
        "allswell drill --faults crashes=3,pauses  only these, crashes three an hour",
    )


def bare(store: str | None, *, json: bool) -> None:
    """`allswell` alone: the state of the watch. Ends with 3 where something needs a human."""
    from allswell.domain.store_url import hide
    from allswell.doors.shapes.status import StatusShape

    frame = Frame(store, json=json)
    if not _is_there(frame.url):
        from allswell.doors.cli.status import nothing_yet

        frame.say(StatusShape.of_none(hide(frame.url)), nothing_yet())
        return
    from allswell.doors.cli.status import words
    from allswell.engine.explaining.overview import look

    seen = typed_in(frame.look(look))
    queues, lines = _queues(frame)
    builds, more = _builds(frame, seen.counts)
    text = None if json else "\n".join([words(seen), *lines, *more])
    frame.say(StatusShape.of(hide(frame.url), seen, queues, builds), text)
    if not seen.well:
        raise Left(Exit.NEEDS_HUMAN)


def _queues(frame: Frame) -> tuple[list[QueueSeen], list[str]]:
    """The queues of messages beside the store, and what is said of them; only PostgreSQL has any."""
    if not frame.url.startswith("postgresql:"):
        return [], []
    from allswell.doors.cli.messages import queue_lines, queues

    seen = queues(frame)
    return seen, queue_lines(seen)


def _builds(frame: Frame, counts: dict[str, int]) -> tuple[list[BuildGlance], list[str]]:
    """The builds that are not over, and what is said of them: the task of one is held by its coordinator, or ready."""
    if not counts.get("held") and not counts.get("ready"):
        return [], []
    from allswell.build.glancing import glance_at_builds
    from allswell.doors.cli.buildshown import glance_lines

    seen = frame.look(glance_at_builds)
    return seen, glance_lines(seen)


def _is_there(url: str) -> bool:
    """Whether there is a store; one that is not a file is simply asked."""
    if not url.startswith("sqlite:"):
        return True
    from allswell.store.sqlite.place import locate

    return locate(url).exists()


def why(
    id_: Annotated[
        str,
        options.Argument(
            metavar="ID", help="A task, a question or a run; a name where it is unique.", of=("task", "run", "question")
        ),
    ],
    *,
    store: options.Store = None,
    json: options.Json = False,
) -> None:
    """Say why something stands where it stands, what comes next, and what you could do."""
    frame = Frame(store, json=json)
    from allswell.engine.explaining.shapes import Explanation
    from allswell.engine.explaining.why import why as explained
    from allswell.engine.finding import find
    from allswell.store.views import Views

    async def work(views: Views) -> Explanation:
        return await explained(views, await find(views, id_))

    told = typed_in(frame.look(work))
    from allswell.doors.cli import branches

    done = branches.brought_home(frame, told.id) if told.kind == "task" else None
    if json:
        from allswell.doors.shapes.explanation import ExplanationShape

        frame.say(ExplanationShape.of(told, branches.shape(done)))
        return
    from allswell.doors.cli.why import words

    write("\n\n".join([words(told), *([branches.words(done)] if done is not None else [])]) + "\n")


def watch(
    *,
    once: Annotated[bool, options.Option("--once", help="Print one frame and leave.")] = False,
    store: options.Store = None,
    json: options.Json = False,
) -> None:
    """Watch the work as it goes, what needs you first. It sweeps while it is open; q quits.

    With the extra `allswell[watch]` you choose something there, read its log, answer, retry, cancel and dismiss.
    """
    frame = Frame(store, json=json)
    from allswell.doors.cli import live
    from allswell.engine.watch import Watch

    if once:
        frame.look(lambda views: live.once(views, frame))
        return

    async def work(open_watch: Watch) -> None:
        await live.watch_it(open_watch, frame)
        raise Left(Exit.FINE)  # nothing was changed by leaving, so nothing is waited for: the store may be away

    try:
        frame.run(work)
    except KeyboardInterrupt:
        raise Left(Exit.FINE) from None


def drill(
    *,
    seed: Annotated[
        int, options.Option("--seed", metavar="N", help="Which history; the same one again each time.")
    ] = 1,
    hours: Annotated[float, options.Option("--hours", metavar="H", min=0.01, max=100_000, help="How long.")] = 24.0,
    faults: Annotated[
        str, options.Option("--faults", metavar="LIST", help="all, none, or names such as crashes,pauses=2.")
    ] = "all",
    json: options.Json = False,
) -> None:
    """Live through bad days in simulated time: crashes, pauses, lost answers. Every promise is checked at each step."""
    from allswell.doors.cli import drilling
    from allswell.doors.shapes.drill import DrillShape

    frame = Frame(None, json=json)
    levels = drilling.levels_of(faults)
    if not isfinite(hours):
        raise Refused("bad_hours", f"a drill lasts a number of hours, not {hours}", where="--hours")
    report = drilling.drilled(seed, hours, levels, None if json else frame.console)
    frame.say(DrillShape.of(report), None if json else drilling.words(report, faults))
    if not report.well:
        raise Left(Exit.FAILED)


def demo(
    *,
    night: Annotated[bool, options.Option("--night", help="A small fleet, and a timeline of its bad night.")] = False,
    keep: Annotated[str | None, options.Option("--keep", metavar="DIR", help="Play it in this folder.")] = None,
    plain: Annotated[bool, options.Option("--plain", help="With --night: lines instead of a live table.")] = False,
    json: options.Json = False,
) -> None:
    """See it at work: an agent hangs, its work is kept, comes back, and gets done. Ten seconds, real processes.

    With --night three agents live through a crash, a hang, a timeout, an error and a question in under a minute; that
    ends with a timeline to open.
    """
    if not night:
        if json or plain:
            raise Refused("usage", f"{'--json' if json else '--plain'} goes with --night", where="--night")
        from allswell.demo.story import tell

        raise Left(Exit.FINE if tell(keep) else Exit.FAILED)
    from allswell.demo.night import play

    raise Left(Exit.FINE if play(keep, plain=plain, json=json) else Exit.FAILED)

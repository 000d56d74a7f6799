"""`allswell` itself, `why`, `watch`, `demo` and `drill`: how the watch is, and why something stands where it stands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Annotated

from allswell.domain.values import hide
from allswell.engine.status.explanation import (
    Explanation,
    Link,
    Span,
    SuggestedAction,
    UpcomingStep,
    length,
    many,
    within,
)
from allswell.errors import Refused
from allswell.interfaces.cli import options, registry
from allswell.interfaces.cli.context import CliContext, CliExit, Exit, write
from allswell.interfaces.cli.rendering import GAP, headed, paint, plain, prose, typed_here, typed_in, width, width_of

if TYPE_CHECKING:
    from allswell.engine.status.verdict import Verdict, VerdictItem
    from allswell.store.views import Views
    from allswell.views.receipt import WorkShape


def add_to(app: registry.Commands) -> None:
    """Register the commands."""
    app.add(
        registry.LOOKING,
        "why",
        why,
        'allswell why "write the changelog"     by name, if only one task has it',
        "allswell why q_06fa3k9x2v7m.1          a question, and the ways to answer it",
    )
    app.add(registry.LOOKING, "watch", watch)
    app.add(registry.UPKEEP, "demo", demo)
    app.add(
        registry.UPKEEP,
        "drill",
        drill,
        "allswell drill --seed 7 --hours 48",
        "allswell drill --faults crashes=3,pauses  only these; three crashes per hour",
    )


def bare(context: CliContext) -> None:
    """`allswell` alone: the verdict on the watch. Ends with 1 where something is broken, 3 where a human is needed."""
    from allswell.views.status import StatusShape

    if context.database is not None and not context.database.exists():
        context.say(StatusShape.of_none(hide(context.url)), nothing_yet())
        return
    from allswell.views.status import load_status

    seen, queues, builds = context.look(lambda views: load_status(views, context.artifacts, context.place))
    seen = typed_in(seen)
    lines = [] if context.json else [status_text(seen)]
    if queues:
        from allswell.interfaces.cli.commands.worker import queue_lines

        lines += queue_lines(queues)
    if builds:
        from allswell.interfaces.cli.flow_display import glance_lines

        lines += glance_lines(builds)
    text = "\n".join(lines)
    context.say(StatusShape.of(hide(context.url), seen, queues, builds), text)
    if not seen.well:
        raise CliExit(seen.exit_code)


def why(
    id_: Annotated[
        str,
        options.Argument(
            metavar="ID",
            help="A task, question or run; a name if only one task has it.",
            of=("task", "run", "question"),
        ),
    ],
    *,
    context: CliContext,
) -> None:
    """Explain a task, a question or a run: why it waits or ended, what comes next, what you can do."""
    from allswell.engine.lookup import find
    from allswell.views.explanation import ExplanationShape, load_explanation

    async def explain(views: Views) -> tuple[Explanation, WorkShape | None]:
        return await load_explanation(views, context.artifacts, await find(views, id_), context.place)

    try:
        told, work = typed_in(context.look(explain))
    except Refused:
        from allswell.build.overview import told_of_name

        waits = (
            []
            if context.json or id_.startswith(("t_", "r_", "q_"))
            else context.look(lambda views: told_of_name(views, id_))
        )
        if not waits:
            raise
        write("\n".join(plain(line) for line in waits) + "\n")
        return
    from allswell.interfaces.cli.commands import show

    words = [explanation_text(told), *([show.work_text(work)] if work is not None else [])]
    context.say(ExplanationShape.of(told, work), "\n\n".join(words))


def watch(
    *,
    once: Annotated[bool, options.Option("--once", help="Print the state once, and end.")] = False,
    context: CliContext,
) -> None:
    """Show all work live, what needs you first: read logs, answer, retry, cancel.

    q quits. Time limits are enforced while it is open. It needs the extra `watch`; without it, the state is printed.
    """
    from allswell.engine.watch import Watch
    from allswell.interfaces.cli.terminal import at_a_terminal
    from allswell.interfaces.tui import live

    if once or (at_a_terminal() and not context.json and not live.can_be_live()):
        context.look(lambda views: live.once(views, context), or_empty=True)
        return

    async def work(open_watch: Watch) -> None:
        await live.watch_it(open_watch, context)
        raise CliExit(Exit.FINE)  # nothing was changed by leaving, so nothing is waited for: the store may be away

    try:
        context.run(work, making=True)
    except KeyboardInterrupt:
        raise CliExit(Exit.FINE) from None


def drill(
    *,
    seed: Annotated[
        int,
        options.Option(
            "--seed", metavar="N", help="Number of the simulated history; the same number gives the same history."
        ),
    ] = 1,
    hours: Annotated[
        float, options.Option("--hours", metavar="H", min=0.01, max=100_000, help="Simulated hours.")
    ] = 24.0,
    faults: Annotated[
        str, options.Option("--faults", metavar="LIST", help="all, none, or names such as crashes,pauses=2.")
    ] = "all",
    context: options.Storeless,
) -> None:
    """Simulate days of crashes, pauses and lost answers in seconds, and check every promise at each step."""
    from allswell.interfaces.cli.commands import drill as drilling
    from allswell.views.commands import DrillShape

    levels = drilling.levels_of(faults)
    if not isfinite(hours):
        raise Refused("bad_hours", f"a drill lasts a number of hours, not {hours}", where="--hours")
    report = drilling.drilled(seed, hours, levels, None if context.json else context.console)
    context.say(DrillShape.of(report), lambda: drilling.words(report, faults))
    if not report.well:
        raise CliExit(Exit.FAILED)


def demo(
    *,
    keep: Annotated[
        str | None,
        options.Option(
            "--keep", metavar="DIR", help="Run it in this folder. Default: a new one in the temporary folder."
        ),
    ] = None,
) -> None:
    """See it at work in ten seconds: an agent hangs, its work is kept, brought back, and finished."""
    from allswell.demo import tell

    raise CliExit(Exit.FINE if tell(keep) else Exit.FAILED)


# The state of the watch in a few lines: that all is well, or what needs you first.

_BEGIN = """Nothing here yet: no command was run and no task was submitted.

Put it in front of any command:
  allswell run -- make all
Or let it run your agents: set this folder up, and submit tasks for them:
  allswell init
  allswell submit "write the changelog"
  allswell up
Or see it at work first, in ten seconds and with real processes:
  allswell demo"""
_EACH_MOST = 4
_MORE = {
    "question": "allswell questions",
    "failed": "allswell tasks --state failed",
    "stalled": "allswell agents",
    "missed": "allswell agents",
    "stopped": "allswell tasks --role run",
    "delivery": "allswell deliveries",
}
"""What lists all of a kind; of the others, the doctor tells."""
_MARKS = {"broken": ("✗", "failed"), "needs_human": ("!", "warn"), "waiting": ("·", "dim")}
HEAD_STYLES = {"broken": "bold red", "needs_human": "bold yellow", "waiting": "bold green", "well": "bold green"}
"""The verdict's styles on a live screen."""


def mark_of(concern: VerdictItem) -> tuple[str, str]:
    """The sign before a concern, and its style."""
    if concern.kind in ("question", "failed"):
        return ("?", "warn") if concern.kind == "question" else ("✗", "failed")
    return _MARKS[concern.level]


_NEAR = 6 * 86_400
"""Seconds within which the name of a day says which one is meant."""


def said_of(concern: VerdictItem) -> str:
    """A concern in a sentence, with what it rests on and when it ends by itself."""
    what = concern.what
    if concern.kind == "parked" and concern.ends is not None and concern.ends.at is not None:
        what += f" (until {clock(concern.ends.at)})"
    return "; ".join((what, *concern.evidence))


def clock(moment: int) -> str:
    """A moment as a clock on the wall shows it: with the day, if that is not today; the date, if it is no near day."""
    there, today = time.localtime(moment / 1_000), time.localtime()
    near = moment / 1_000 - time.time() < _NEAR
    return time.strftime("%H:%M" if there[:3] == today[:3] else "%a %H:%M" if near else "%d %b %H:%M", there)


def nothing_yet() -> str:
    """What is said where there is no store, with what to type."""
    return "\n".join(f"  {typed_here(line.strip())}" if line[:1] == " " else line for line in _BEGIN.splitlines())


def status_text(seen: Verdict) -> str:
    """The whole state."""
    counted = _counted(seen.counts) or "  No task was submitted yet."
    held = seen.dismissed
    if held.questions:
        what = (
            f"{many(held.questions, 'dismissed question holds', 'dismissed questions hold')} {many(held.tasks, 'task')}"
        )
        counted += f"\n  {what}: {paint(typed_here('allswell questions'), 'held')}"
    told = _concerns(seen.concerns)
    if not seen.well:
        return headed(seen.headline, [*told, "", counted])
    ahead = ""
    if seen.next_due is not None and seen.next_due > seen.now:
        ahead = f"  Next event: {within(seen.next_due, seen.now)}."
    elif seen.next_due is not None:
        ahead = "  Something is due now; `up`, `serve`, `watch`, or the next command that changes a task does it."
    return "\n".join(part for part in (paint(seen.headline, "ready"), *told, counted, ahead) if part)


def _counted(counts: dict[str, int]) -> str:
    """How many tasks are in each state, on as many lines as that needs: no count is torn from its state."""
    from allswell.domain.task.model import count_in_order

    lines: list[list[str]] = []
    for state, count in count_in_order(counts):
        text = f"{count:,} {state}"
        used = sum(width_of(one) + len(GAP) for one in lines[-1]) if lines else width()
        if used + width_of(text) + len(GAP) > width():
            lines.append([])
        lines[-1].append(text)
    return "\n".join(GAP + GAP.join(paint(one, one.split()[1]) for one in line) for line in lines)


def _commands(one: VerdictItem) -> list[str]:
    """What mends it, and what tells more: beside each other where there is room."""
    mends, more = f"    {paint(one.command, 'held')}", paint(one.look, "dim")
    if not one.look:
        return [mends]
    fits = width_of(one.command) + width_of(one.look) + 6 <= width()
    return [f"{mends}  {more}"] if fits else [mends, f"    {more}"]


def _concerns(concerns: Sequence[VerdictItem]) -> list[str]:
    lines: list[str] = []
    shown: Counter[str] = Counter()
    total = Counter(one.kind for one in concerns)
    for one in concerns:
        shown[one.kind] += 1
        if shown[one.kind] <= _EACH_MOST:
            mark, style = mark_of(one)
            text = prose(said_of(one), indent="    ")
            lines += [f"  {paint(mark, style)} {text.lstrip()}", *_commands(one)]
        elif shown[one.kind] == total[one.kind]:
            every = typed_here(_MORE.get(one.kind, "allswell doctor"))
            lines += [f"    and {total[one.kind] - _EACH_MOST:,} more: {paint(every, 'held')}"]
    return lines


# An explanation in words: the chain, what comes next, what you could do, and how the time was spent.

_STEP = "  "
_BAR = 16
_SPANS_MOST = 14
_COLOURS = {"held": "held", "asked": "warn", "waiting": "waiting", "paused": "delayed", "ready": "ready"}
_BAD = ("agent_", "lease_", "run_timeout", "failed")


def explanation_text(told: Explanation) -> str:
    """The whole explanation."""
    parts = [
        _chain(told.chain),
        headed("It also waits for", [prose(one, indent=_STEP) for one in told.beside]),
        headed("What happens next", [_next(one, told.now) for one in told.next]),
        headed("What you could do now", _todo(told.todo)),
        _spent(told.spent, ended=told.state not in ("held", "ready", "waiting", "delayed", "nowhere", "open")),
    ]
    return "\n\n".join(part for part in parts if part)


def _chain(links: tuple[Link, ...]) -> str:
    lines = []
    for depth, link in enumerate(links):
        indent = _STEP * depth
        first = indent if depth == 0 else f"{_STEP * (depth - 1)}└ "
        says = list(link.says) or [link.state]
        named = f"{says[0]} ({link.id})" if link.id else says[0]
        lines.append(prose(named, indent=first, further=indent).replace(f"({link.id})", paint(f"({link.id})", "dim")))
        lines += [prose(one, indent=indent) for one in says[1:]]
    return "\n".join(lines)


def _next(one: UpcomingStep, now: int) -> str:
    when = "then" if one.at is None else within(one.at, now)
    return prose(one.what, indent=f"{_STEP}{when:<9}{GAP}", further=" " * 13)


def _todo(todo: tuple[SuggestedAction, ...]) -> list[str]:
    """What to type, and what it does: beside each other where there is room."""
    wide = max((width_of(one.command) for one in todo), default=0)
    lines = []
    for one in todo:
        if wide + 4 + width_of(one.what) + 2 <= width():
            lines.append(f"{_STEP}{paint(one.command.ljust(wide), 'held')}{GAP}{one.what}")
        else:
            lines += [prose(f"{one.what}:", indent=_STEP), f"{_STEP}{_STEP}{paint(one.command, 'held')}"]
    return lines


def _spent(spans: tuple[Span, ...], *, ended: bool) -> str:
    if len(spans) < 2 and not (ended and spans):
        return ""
    total = max(sum(span.end - span.start for span in spans), 1)
    shown = spans if len(spans) <= _SPANS_MOST else (*spans[:4], *spans[4 - _SPANS_MOST :])
    lines = [_span(span, total) for span in shown]
    if len(shown) < len(spans):
        lines.insert(4, f"{_STEP}… {many(len(spans) - len(shown), 'more stretch', 'more stretches')} …")
    title = f"How the time was spent ({length(total)} {'in all' if ended else 'so far'})"
    return headed(title, lines)


def _span(span: Span, total: int) -> str:
    share = (span.end - span.start) / total
    bad = span.outcome is not None and span.outcome.startswith(_BAD)
    bar = paint("█" * max(round(share * _BAR), 1), "failed" if bad else _COLOURS[span.kind])
    pad = " " * (_BAR - max(round(share * _BAR), 1))
    who = "" if span.agent is None else f"{span.agent}, attempt {span.token}: "
    head = f"{_STEP}{span.kind:<8}{length(span.end - span.start):>8}{GAP}"
    text = prose(f"{who}{span.says}", indent=" " * (len(head) + _BAR + 2))
    return f"{head}{bar}{pad}{GAP}{text.lstrip()}"

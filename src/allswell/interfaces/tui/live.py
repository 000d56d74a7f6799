"""`allswell watch`: the board as one picture, or as lines. What needs somebody stands first.

Live it is `app.py`, with Textual (the extra `allswell[watch]`). Without that one picture is printed, and how to get
more.

Whoever has the watch open also sweeps, so looking at it keeps it going.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from allswell.domain.task.model import OPEN_STATES, count_in_order
from allswell.domain.values import hide
from allswell.engine.status.explanation import rough, within
from allswell.engine.status.overview import Board, BoardLine, board, changes
from allswell.interfaces.cli.commands.status import HEAD_STYLES, mark_of, said_of
from allswell.interfaces.cli.context import CliContext, flush, write
from allswell.interfaces.cli.rendering import typed_here, typed_in
from allswell.interfaces.cli.terminal import at_a_terminal
from allswell.store.views import Views
from allswell.views.status import BoardShape, StatusShape

if TYPE_CHECKING:
    from allswell.engine.watch import Watch

_EVERY = 1.0
_SHARE = 10
"""Reading a large store may take at most one part in so many of the time."""
_WIDE = 110
_STYLES = {"held": "cyan", "ready": "green", "waiting": "yellow", "delayed": "bright_black", "nowhere": "bold red"}
_NEEDS_MOST = 5
_MORE = "The live view needs the extra `watch`: in Allswell's clone, type `uv tool install '.[watch]'`"


def can_be_live() -> bool:
    """Whether Textual is installed."""
    return find_spec("textual") is not None


async def once(views: Views, context: CliContext) -> None:
    """One picture, as it is now."""
    if context.nothing_yet:
        context.say(BoardShape(StatusShape.of_none(hide(context.url)), ()), context.none(""))
        return
    seen = typed_in(await board(views, place=context.place))
    if context.json:
        context.say(BoardShape.of(hide(context.url), seen))
        return
    context.console.print(picture(seen, context.console.width))
    if at_a_terminal() and not can_be_live():
        context.console.print(Text(_MORE, "bright_black"))


async def watch_it(watch: Watch, context: CliContext) -> None:
    """The board for as long as somebody looks, or lines where there is no terminal."""
    if context.json or not at_a_terminal():
        await _lines(watch.views, context)
        return
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    from allswell.interfaces.tui.app import WatchApp

    await WatchApp(watch, context).run_async()


def _end_with_terminal(terminal: int) -> None:
    """End this process as a hang-up would, once its terminal is gone.

    Mostly a signal says so, but not to a session of its own, nor under nohup. Drawing cannot tell: it hangs then.
    """
    gone = select.poll()
    gone.register(terminal, 0)  # tells of the end of it, whatever else one asks for
    gone.poll()
    os._exit(128 + signal.SIGHUP)


async def _lines(views: Views, context: CliContext) -> None:
    before: Board | None = None
    while not _nobody_reads():
        started = time.monotonic()
        seen = typed_in(await board(views, place=context.place))
        told = changes(before, seen)
        if context.json and (told or before is None):
            context.say(BoardShape.of(hide(context.url), seen))
        elif not context.json:
            if before is None:
                write(f"{time.strftime('%H:%M:%S')}  {_counted(seen)}\n")
            for one in told:
                write(f"{time.strftime('%H:%M:%S')}  {one}\n")
        flush()
        before = seen
        await asyncio.sleep(max(_EVERY, (time.monotonic() - started) * _SHARE))


def _nobody_reads() -> bool:
    """Whether the reader of our lines has gone away: on a quiet night no line would tell us."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False  # not a stream of the system's, as in a test
    return any(event & select.POLLERR for _, event in poll.poll(0))


# --- the picture ----------------------------------------------------------------------------------------------------


def _counted(seen: Board) -> str:
    counts = seen.verdict.counts
    counted = ", ".join(f"{count:,} {state}" for state, count in count_in_order(counts))
    return counted or "no task was submitted yet"


def picture(seen: Board, width: int) -> RenderableType:
    """What needs somebody, then the tasks."""
    over = seen.verdict
    head = Text(over.headline)
    head.stylize(HEAD_STYLES[over.level])
    head.append(f"  {_counted(seen)}", "not bold default")
    lines = [_cut(head)]
    for need in over.needs[:_NEEDS_MOST]:
        mark, style = mark_of(need)
        lines.append(_cut(Text(f"  {mark} ", style).append(need.what, "default")))
        lines.append(Text(f"      {need.command}", "cyan", overflow="fold"))  # whole, as it is to be typed
    if len(over.needs) > _NEEDS_MOST:
        more = f"    and {len(over.needs) - _NEEDS_MOST:,} more: {typed_here('allswell')}"
        lines.append(_cut(Text(more, "bright_black")))
    lines += [
        _cut(Text(f"  {mark_of(wait)[0]} {said_of(wait)}", "bright_black")) for wait in over.waiting[:_NEEDS_MOST]
    ]
    below: list[RenderableType] = []
    if seen.lines:
        below += [Text(), _rows(seen.lines, over.now, wide=width >= _WIDE)]
    total = sum(over.counts.get(state, 0) for state in OPEN_STATES)
    if total > len(seen.lines):
        below.append(_cut(Text(f"… {total - len(seen.lines):,} more: {typed_here('allswell tasks')}", "bright_black")))
    return Group(*lines, *below)


def _cut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _rows(lines: tuple[BoardLine, ...], now: int, *, wide: bool) -> Table:
    """The tasks; a column in which nothing stands leaves its room to the others."""
    done, due = any(line.progress is not None for line in lines), any(line.due is not None for line in lines)
    noted = wide and any(line.note for line in lines)
    table = Table(box=None, pad_edge=False, expand=True, header_style="bright_black", padding=(0, 2, 0, 0))
    table.add_column("task", ratio=4, no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True, width=8)
    table.add_column("who", max_width=14, no_wrap=True, overflow="ellipsis")
    table.add_column("for", justify="right", no_wrap=True, min_width=3)
    if done:
        table.add_column("done", justify="right", no_wrap=True, width=4)
    if noted:
        table.add_column("last check-in", ratio=4, no_wrap=True, overflow="ellipsis")
    if due:
        table.add_column("when", no_wrap=True, justify="right", min_width=6, max_width=14)
    table.add_column("what happens next", ratio=5, no_wrap=True, overflow="ellipsis")
    for line in lines:
        style = "bold yellow" if line.trouble >= 60 else _STYLES.get(line.state, "")
        cells = [
            Text(line.name),
            Text(line.shown, style),
            Text(line.who, "bold yellow" if line.who == "you" else ""),
            Text("" if line.since is None else rough(now - line.since).split()[0]),
        ]
        if done:
            cells.append(Text("" if line.progress is None else f"{line.progress:.0%}"))
        if noted:
            cells.append(Text(line.note, "bright_black"))
        if due:
            cells.append(Text("" if line.due is None else within(line.due, now)))
        table.add_row(*cells, Text(line.ahead.removeprefix(f"{line.who} "), "bright_black"))
    return table

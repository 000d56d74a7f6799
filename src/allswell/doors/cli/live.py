"""`allswell watch`: the board, live. What needs somebody stands first; what does not fit is counted.

Whoever has the watch open also sweeps, so looking at it keeps it going.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from allswell.domain.store_url import hide
from allswell.doors.cli.advice import typed_here, typed_in
from allswell.doors.cli.frame import Frame, flush, write
from allswell.doors.cli.keys import at_a_terminal, keyboard
from allswell.doors.shapes.board import BoardShape
from allswell.engine.explaining.board import Board, Line, board, changes
from allswell.engine.explaining.words import many, rough, within
from allswell.errors import Unavailable

if TYPE_CHECKING:
    from allswell.engine.watch import Watch
    from allswell.store.views import Views

_EVERY = 1.0
_SHARE = 10
"""Reading a large store may take at most one part in so many of the time."""
_WIDE = 110
_STYLES = {"held": "cyan", "ready": "green", "waiting": "yellow", "delayed": "bright_black", "nowhere": "bold red"}
_ORDER = ("held", "ready", "delayed", "waiting", "done", "failed", "cancelled", "skipped", "split")
_NEEDS_MOST = 5
_MORE = "pip install 'allswell[watch]' to read logs, answer and retry here"


async def once(views: Views, frame: Frame) -> None:
    """One picture, as it is now."""
    seen = typed_in(await board(views))
    if frame.json:
        frame.say(BoardShape.of(hide(frame.url), seen))
    else:
        console = frame.console
        console.print(picture(seen, console.width, None))


async def watch_it(watch: Watch, frame: Frame) -> None:
    """The board for as long as somebody looks, or lines where there is no terminal.

    With Textual (`allswell[watch]`) it can be acted on; without, it is a table that is read.
    """
    if frame.json or not at_a_terminal():
        await _lines(watch.views, frame)
        return
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), daemon=True).start()
    if find_spec("textual") is None:
        await _table(watch.views, frame.console)
    else:
        from allswell.doors.cli.watching.app import WatchApp

        await WatchApp(watch, frame).run_async()


def _end_with_terminal(terminal: int) -> None:
    """End this process as a hang-up would, once its terminal is gone.

    Mostly a signal says so, but not to a session of its own, nor under nohup. Drawing cannot tell: it hangs then.
    """
    gone = select.poll()
    gone.register(terminal, 0)  # tells of the end of it, whatever else one asks for
    gone.poll()
    os._exit(128 + signal.SIGHUP)


async def _lines(views: Views, frame: Frame) -> None:
    before: Board | None = None
    while not _nobody_reads():
        started = time.monotonic()
        seen = typed_in(await board(views))
        told = changes(before, seen)
        if frame.json and (told or before is None):
            frame.say(BoardShape.of(hide(frame.url), seen))
        elif not frame.json:
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


async def _table(views: Views, console: Console) -> None:
    wake = asyncio.Event()
    leaving = False

    def pressed(key: str) -> None:
        nonlocal leaving
        leaving = leaving or key in "qQ\x1b\x03\x04"
        wake.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, wake.set)
    seen: Board | None = None
    with keyboard(pressed), Live(console=console, screen=True, auto_refresh=False) as live:
        while not leaving:
            started = time.monotonic()
            try:
                seen = typed_in(await board(views))
                trouble = ""
            except Unavailable as error:
                trouble = f"The store cannot be reached ({error.message}); trying again."
            if seen is not None:
                live.update(picture(seen, console.width, console.height, trouble), refresh=True)
            wake.clear()
            pause = max(_EVERY, (time.monotonic() - started) * _SHARE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), pause)


# --- the picture ----------------------------------------------------------------------------------------------------


def _counted(seen: Board) -> str:
    counts = seen.overview.counts
    counted = ", ".join(f"{counts[state]:,} {state}" for state in _ORDER if counts.get(state))
    return counted or "nothing has been handed over yet"


def picture(seen: Board, width: int, height: int | None, trouble: str = "") -> RenderableType:
    """One frame: what needs somebody, then the tasks; no taller than the terminal, where there is one."""
    over = seen.overview
    head = Text("All's well." if over.well else f"{many(len(over.needs), 'thing needs', 'things need')} you.")
    head.stylize("bold green" if over.well else "bold yellow")
    head.append(f"  {_counted(seen)}", "not bold default")
    lines: list[RenderableType] = [_cut(head)]
    if trouble:
        lines.append(_cut(Text(trouble, "bold red")))
    for need in over.needs[:_NEEDS_MOST]:
        text = Text("  ! " if need.kind != "question" else "  ? ", "yellow").append(need.what, "default")
        lines += [_cut(text), _cut(Text(f"      {need.command}", "cyan"))]
    if len(over.needs) > _NEEDS_MOST:
        more = f"    and {len(over.needs) - _NEEDS_MOST:,} more: {typed_here('allswell')}"
        lines.append(_cut(Text(more, "bright_black")))
    room = len(seen.lines) if height is None else max(height - len(lines) - 4, 1)
    shown = seen.lines[:room]
    if shown:
        lines += [Text(), _rows(shown, over.now, wide=width >= _WIDE)]
    total = sum(over.counts.get(state, 0) for state in _ORDER[:4])
    if total > len(shown):
        lines.append(_cut(Text(f"… {total - len(shown):,} more: {typed_here('allswell tasks')}", "bright_black")))
    if height is not None:
        lines.append(_cut(Text(f"q quits  {_MORE}", "bright_black")))
    return Group(*lines)


def _cut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _rows(lines: tuple[Line, ...], now: int, *, wide: bool) -> Table:
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
        table.add_column("last word", ratio=4, no_wrap=True, overflow="ellipsis")
    if due:
        table.add_column("when", no_wrap=True, justify="right", min_width=6, max_width=14)
    table.add_column("what happens next", ratio=5, no_wrap=True, overflow="ellipsis")
    for line in lines:
        style = "bold yellow" if line.trouble >= 60 else _STYLES.get(line.state, "")
        cells = [
            Text(line.name),
            Text(line.state, style),
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

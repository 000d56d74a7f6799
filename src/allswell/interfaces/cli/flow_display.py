"""A flow while it runs: a tree that is drawn anew at a terminal, lines where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allswell.domain.build.state import BuildGlance, work_on
from allswell.domain.duration import show
from allswell.interfaces.cli.context import flush, write
from allswell.interfaces.cli.rendering import Column, columns, cut, paint, plain, prose, table, width_of
from allswell.interfaces.cli.terminal import at_a_terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from allswell.flows.run.attempt import StepAttempt
    from allswell.flows.run.folder import FlowEvent
    from allswell.flows.run.runner import Runner
    from allswell.flows.spec import Flow
    from allswell.views.run import BuildShape


_EVERY = 0.5
_MARKS = {
    "done": "✓", "held": "●", "failed": "✗", "cancelled": "✗", "skipped": "–", "asked": "?", "delayed": "↻",
    "ready": "·", "waiting": "·", "split": "÷",
}  # fmt: skip
_STYLES = {"held": "held", "done": "done", "failed": "failed", "asked": "waiting", "delayed": "waiting"}


async def watch_flow(runner: Runner, flow: Flow | None) -> None:
    """Show a flow for as long as it runs; cancelled when it is over. Who only takes steps of one has lines, no tree."""
    if flow is not None and at_a_terminal():
        await _draw(runner, flow)
    else:
        runner.site.heard = _line
        await asyncio.get_running_loop().create_future()  # until it is over


def _line(event: FlowEvent) -> None:
    """One line for each step that begins or ends."""
    now = time.strftime("%H:%M:%S")
    name = plain(event.step_id)
    if event.event == "step_started":
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        write(f"{now}  {name} begins{again}\n")
    elif event.event == "step_ended":
        why = f": {plain(event.data['error'])}" if "error" in event.data else ""
        write(f"{now}  {name} {event.data['status']} after {show(event.data['duration_ms'])}{why}\n")
    elif event.event == "step_audited" and not event.data["passed"]:
        write(f"{now}  {name} did not pass its audit\n")
    elif event.event == "subtask_waits":
        write(f"{now}  {name} waits: {plain(event.data['text'])}\n")
    elif event.event == "store_away":
        write(f"{now}  {plain(event.data['text'])}\n")
    flush()


async def _draw(runner: Runner, flow: Flow) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    states: Mapping[str, str] = {}
    looked = 0.0
    console = Console(highlight=False)

    def picture() -> RenderableType:
        return Text.from_ansi("\n".join(tree(runner, flow, states, console.height - 2)))

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            if time.monotonic() >= looked:
                began = time.monotonic()
                with contextlib.suppress(Exception):  # the runner tells what is wrong with the store
                    states = await runner.states()
                looked = time.monotonic() + max(_EVERY, (time.monotonic() - began) * 10)
            live.update(picture(), refresh=True)
            await asyncio.sleep(_EVERY)


def tree(runner: Runner, flow: Flow, states: Mapping[str, str], height: int) -> list[str]:
    """The lines of the tree: every step, or as many as there is room for, those that are at work first of all."""
    active = {attempt.job.id: attempt for attempt in runner.active.values()}
    left = runner.time_left()
    said = "" if left is None else f"{show(max(left // 1000 * 1000, 0))} left"
    lines = []
    for step in flow.steps:
        ids = [member.id for member in step.members()]
        own = {id_: "held" if id_ in active else states.get(id_, "waiting") for id_ in ids}
        running = [active[id_] for id_ in ids if id_ in active]
        lines.append((bool(running), _step(step.id, own, running)))
    room = max(height - 2, 5)
    if len(lines) > room:
        busy = [line for line in lines if line[0]][: room - 1] or lines[: room - 1]
        lines = [*busy, (False, _fitted("  ", "…", f"{len(lines) - len(busy)} more steps"))]
    run = runner.site.base.record.run
    return [_fitted("", f"{plain(flow.name)}  {run}", said, style="bold"), *(line for _, line in lines)]


def _fitted(mark: str, name: str, said: str, *, style: str = "") -> str:
    """A line that fits the terminal; it is painted once it has its length, so that no colour is cut in two."""
    room = (columns() or 100) - 1 - width_of(mark)
    name = cut(name, max(room - min(width_of(said), room // 2) - 2, 8))
    said = cut(said, max(room - width_of(name) - 2, 4))
    shown = name if mark else paint(name, style)
    return f"{paint(mark, style)}{shown}  {paint(said, 'dim')}"


def _step(name: str, own: Mapping[str, str], running: Sequence[StepAttempt]) -> str:
    counted = Counter(own.values())
    state = "held" if running else counted.most_common(1)[0][0]
    mark, style = f"  {_MARKS.get(state, '·')} ", _STYLES.get(state, "dim")
    if len(own) > 1:
        parts = ", ".join(f"{count} {_word(one)}" for one, count in counted.most_common())
        return _fitted(mark, f"{plain(name)} ×{len(own)}", parts, style=style)
    return _fitted(mark, plain(name), _at_work(running[0]) if running else _word(state), style=style)


def _at_work(attempt: StepAttempt) -> str:
    again = f"attempt {attempt.lease.attempt}, " if attempt.lease.attempt > 1 else ""
    phase = "" if attempt.phase == "work" else f"{attempt.phase}, "
    left = show(attempt.lease.until_limit // 1000 * 1000)
    took = show(attempt.elapsed() // 1000 * 1000) if attempt.elapsed() >= 1000 else "0s"
    said = plain(attempt.progress())
    return f"{again}{phase}{took}, {left} left" + (f"  {said}" if said else "")


def _word(state: str) -> str:
    return {"held": "running", "asked": "asks you", "delayed": "tried again soon"}.get(state, state)


# A build as `show` tells it: how each component stands, who has it, what its audit says, and what it waits for.
#
# `allswell` alone tells of each build that is not over in a few lines: how far it is, who is at what, what comes next.

_COLUMNS = (Column("COMPONENT", 10), Column("STATE", 7), Column("BUILDER", 8), Column("AUDIT", 8), Column("NEEDS", 6))


_OTHERS = ("held", "free", "asked", "waiting", "skipped")
_MOST_NAMES = 5
"""So many names in one line; the others are counted."""


def glance_lines(seen: list[BuildGlance]) -> list[str]:
    """A build in a few lines, for the state of the watch."""
    lines: list[str] = []
    for build in seen:
        counts = build.counts
        total = len(build.standing.components)
        others = [f"{counts[state]:,} {state}" for state in _OTHERS if counts.get(state)]
        told = ", ".join([f"{counts.get('merged', 0):,} of {total:,} merged", *others])
        lines.append(prose(f"Build {plain(build.name)}: {told}", indent="  ", further="    "))
        parts = [f"{plain(one.holder)} has {one.name} ({work_on(one)})" for one in build.at_work]
        if parts:
            lines.append(prose(_listed(parts), indent="    "))
        ahead = [("Free", build.free), ("For a human", build.asked), ("Next", build.next)]
        told = ". ".join(f"{what}: {_listed(names)}" for what, names in ahead if names)
        if told:
            lines.append(prose(told, indent="    "))
    return lines


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def build_text(build: BuildShape) -> str:
    """A build as a table of its components."""
    states = {one.name: one.state for one in build.components}
    rows = [
        [
            one.name,
            one.state,
            one.agent_id or "",
            plain(one.audit or ""),
            ", ".join(need for need in one.needs if states[need] != "merged"),
        ]
        for one in build.components
    ]
    return table(_COLUMNS, rows)

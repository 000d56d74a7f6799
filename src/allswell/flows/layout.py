"""Where the steps of a flow stand when it is drawn: in waves (arrangement.py), with what is to be told of each."""

from __future__ import annotations

import msgspec

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.steps import Need, StepFigures, longest_path
from allswell.domain.duration import show
from allswell.flows.arrangement import arrange
from allswell.flows.spec import Command, Flow, Function, Prompt, Step


class Node(msgspec.Struct, frozen=True):
    """A step in the picture."""

    id: str
    what: str
    """What it does, in short."""
    limit: str
    members: int
    needs: tuple[str, ...]
    wave: int
    row: int
    longest: bool
    """Whether it lies on the longest way through the flow."""
    audited: bool


class LayoutLine(msgspec.Struct, frozen=True):
    """From a step to one that needs it."""

    start: str
    end: str
    rows: tuple[int, ...]
    """Where it passes the waves between them."""


class Layout(msgspec.Struct, frozen=True):
    """A flow, laid out."""

    nodes: tuple[Node, ...]
    lines: tuple[LayoutLine, ...]
    sizes: tuple[int, ...]
    """How many places each wave has."""


def lay_out(flow: Flow) -> Layout:
    """Every step with its place, wave by wave, and the lines between them."""
    steps = {step.id: step for step in flow.steps}
    placed = arrange({step.id: step.needs for step in flow.steps})
    longest = _longest(flow)
    nodes = [
        _node(flow, steps[id_], number, placed.row[id_], longest)
        for number, ids in enumerate(placed.waves)
        for id_ in ids
    ]
    lines = [LayoutLine(start, end, rows) for (start, end), rows in placed.lines.items()]
    return Layout(tuple(nodes), tuple(lines), placed.sizes)


def _longest(flow: Flow) -> set[str]:
    timed = [
        StepFigures(step.id, Figure(step.id, flow.limit(step)), tuple(Need(need) for need in step.needs))
        for step in flow.steps
    ]
    return {step.id for step in longest_path(timed)}


def _node(flow: Flow, step: Step, wave: int, row: int, longest: set[str]) -> Node:
    limit = show(flow.limit(step)) + (" (override)" if step.timeout_override is not None else "")
    audited = step.audit is not None or step.verify is not None
    return Node(step.id, described(step), limit, step.count(), step.needs, wave, row, step.id in longest, audited)


def described(step: Step) -> str:
    """What a step does, in a few words."""
    match step.work:
        case Command(argv):
            return " ".join(argv)
        case Prompt(agent, _):
            return f"agent {agent}"
        case Function(module, function, _):
            return f"python {module}:{function}"

"""Where the steps of a flow stand when it is drawn: in waves, each step after all that it needs.

Within a wave, steps stand near what they need, so that few lines cross: each is put at the mean height of its needs,
and then at that of its followers, a few times over. A line that passes a wave has a place of its own there, as if it
were a step, so that it leads between the others and never behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.steps import Need, StepFigures, longest_path
from allswell.domain.duration import show
from allswell.flows.spec import Command, Flow, Function, Prompt, Step

_ROUNDS = 4
_MOST_PLACES = 20_000
"""With more of them lines go straight: nobody looks at such a picture line by line."""


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
    wave = _waves(flow)
    steps = {step.id: step for step in flow.steps}
    needs: dict[str, list[str]] = {step.id: [] for step in flow.steps}
    passing: dict[tuple[str, str], list[str]] = {}
    drawn = sum(wave[step.id] - wave[need] for step in flow.steps for need in step.needs) < _MOST_PLACES
    for step in flow.steps:
        for need in step.needs:
            places = [f"{need}>{step.id}>{at}" for at in range(wave[need] + 1, wave[step.id])] if drawn else []
            passing[need, step.id] = places
            for before, after in pairwise([need, *places, step.id]):
                needs.setdefault(after, []).append(before)
            wave |= {place: wave[need] + 1 + number for number, place in enumerate(places)}
    waves: list[list[str]] = [[] for _ in range(max(wave.values(), default=-1) + 1)]
    for id_ in needs:
        waves[wave[id_]].append(id_)
    row = _untangle(needs, waves)
    longest = _longest(flow)
    nodes = [
        _node(flow, steps[id_], number, row[id_], longest)
        for number, ids in enumerate(waves)
        for id_ in ids
        if id_ in steps
    ]
    lines = [LayoutLine(start, end, tuple(row[place] for place in places)) for (start, end), places in passing.items()]
    return Layout(tuple(nodes), tuple(lines), tuple(map(len, waves)))


def _longest(flow: Flow) -> set[str]:
    timed = [
        StepFigures(step.id, Figure(step.id, flow.limit(step)), tuple(Need(need) for need in step.needs))
        for step in flow.steps
    ]
    return {step.id for step in longest_path(timed)}


def _node(flow: Flow, step: Step, wave: int, row: int, longest: set[str]) -> Node:
    limit = show(flow.limit(step)) + (" (override)" if step.timeout_override is not None else "")
    audited = step.audit is not None
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


def _waves(flow: Flow) -> dict[str, int]:
    """For each step the length of the longest chain of needs before it."""
    waiting = {step.id: len(step.needs) for step in flow.steps}
    followers = flow.followers()
    wave = dict.fromkeys((id_ for id_, count in waiting.items() if not count), 0)
    ready = list(wave)
    for id_ in ready:  # grows while it is read: a step follows when all it needs have come
        for follower in followers[id_]:
            wave[follower] = max(wave.get(follower, 0), wave[id_] + 1)
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    return wave


def _untangle(needs: Mapping[str, Sequence[str]], waves: list[list[str]]) -> dict[str, int]:
    """Sort each wave so that few lines cross; the row of every place."""
    followers: dict[str, list[str]] = {id_: [] for id_ in needs}
    for id_, before in needs.items():
        for need in before:
            followers[need].append(id_)
    row = {id_: place for ids in waves for place, id_ in enumerate(ids)}
    for turn in range(_ROUNDS):
        beside = needs if turn % 2 == 0 else followers
        for ids in waves if turn % 2 == 0 else reversed(waves):
            means = {id_: _mean([row[one] for one in beside[id_]], row[id_]) for id_ in ids}
            ids.sort(key=means.__getitem__)
            row |= {id_: place for place, id_ in enumerate(ids)}
    return row


def _mean(rows: Sequence[int], otherwise: int) -> float:
    return sum(rows) / len(rows) if rows else otherwise

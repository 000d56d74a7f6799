"""Where things stand that need each other: in waves, each after all that it needs.

Within a wave, things stand near what they need, so that few lines cross: each is put at the mean height of its needs,
and then at that of its followers, a few times over. A line that passes a wave has a place of its own there, as if it
were a thing, so that it leads between the others and never behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

_ROUNDS = 4
_MOST_PLACES = 20_000
"""With more of them lines go straight: nobody looks at such a picture line by line."""


class Arrangement(msgspec.Struct, frozen=True):
    """All of them, and the lines between them."""

    wave: Mapping[str, int]
    row: Mapping[str, int]
    lines: Mapping[tuple[str, str], tuple[int, ...]]
    """From what is needed to what needs it: where the line passes the waves between them."""
    waves: tuple[tuple[str, ...], ...]
    """What stands in each wave, in order, without the places of lines."""
    sizes: tuple[int, ...]
    """How many places each wave has."""


def arrange(needs: Mapping[str, Sequence[str]]) -> Arrangement:
    """Give everything a place; what needs itself, at one remove or several, has none."""
    wave = _waves(needs)
    beside: dict[str, list[str]] = {id_: [] for id_ in needs if id_ in wave}
    pairs = [(need, id_) for id_ in beside for need in needs[id_]]
    drawn = sum(wave[id_] - wave[need] for need, id_ in pairs) < _MOST_PLACES
    passing: dict[tuple[str, str], list[str]] = {}
    for need, id_ in pairs:
        places = [f"{need}>{id_}>{at}" for at in range(wave[need] + 1, wave[id_])] if drawn else []
        passing[need, id_] = places
        for before, after in pairwise([need, *places, id_]):
            beside.setdefault(after, []).append(before)
        wave |= {place: wave[need] + 1 + number for number, place in enumerate(places)}
    waves: list[list[str]] = [[] for _ in range(max(wave.values(), default=-1) + 1)]
    for id_ in beside:
        waves[wave[id_]].append(id_)
    row = _untangle(beside, waves)
    lines = {line: tuple(row[place] for place in places) for line, places in passing.items()}
    shown = tuple(tuple(id_ for id_ in ids if id_ in needs) for ids in waves)
    return Arrangement(wave, row, lines, shown, tuple(map(len, waves)))


def _waves(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """For each the length of the longest chain of needs before it."""
    waiting = {id_: len(before) for id_, before in needs.items()}
    followers: dict[str, list[str]] = {id_: [] for id_ in needs}
    for id_, before in needs.items():
        for need in before:
            followers[need].append(id_)
    wave = dict.fromkeys((id_ for id_, count in waiting.items() if not count), 0)
    ready = list(wave)
    for id_ in ready:  # grows while it is read: something follows when all it needs have come
        for follower in followers[id_]:
            wave[follower] = max(wave.get(follower, 0), wave[id_] + 1)
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    return {id_: wave[id_] for id_ in ready}


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

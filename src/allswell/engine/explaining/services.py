"""A service that is shut, in words: for how long, what is next, and what a person could do about it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allswell.domain.breaker import Stand
from allswell.domain.names import Millis
from allswell.domain.service import REOPENING, ServiceRow, open_question, opened_at, shut
from allswell.domain.task import Task
from allswell.engine.explaining.shapes import Next, Todo
from allswell.engine.explaining.words import listed, many, quoted, rough, typed


class HeldUp(msgspec.Struct, frozen=True):
    """What keeps a task that is ready from being claimed."""

    says: str
    next: Next | None
    todo: tuple[Todo, ...]
    asking: bool
    """Whether only a human can end it."""


def held_up(task: Task, services: Mapping[str, ServiceRow], now: Millis) -> HeldUp | None:
    """The services that a task needs and cannot have."""
    needed = [(services[name], shut(services[name], now)) for name in task.spec.services if name in services]
    closed = [(row, one) for row, one in needed if one is not None]
    if not closed:
        return None
    says = " It also needs ".join(f"{quoted(row.id)}, which {in_short(row, now)}." for row, _ in closed)
    until = [one.until for _, one in closed if one.until is not None]
    named = listed([quoted(row.id) for row, _ in closed])
    human = len(until) < len(closed)
    return HeldUp(
        f"it needs {says}",
        None if human else Next(max(until), f"{named} can be used again, and the task can be claimed"),
        tuple(Todo("See what you were asked", typed("why", id_)) for row, _ in closed if (id_ := open_question(row))),
        human,
    )


def in_short(row: ServiceRow, now: Millis) -> str:
    """How a service stands, as the second half of a sentence about it."""
    closed = shut(row, now)
    if closed is None:
        if row.state.open_until is not None:
            return f"{_failed(row, now)}; the next call tries it"
        if now < opened_at(row) + REOPENING:
            return "works again; its agents are let in one after the other"
        return "is open to everybody"
    left = None if closed.until is None else rough(closed.until - now)
    match closed.stand:
        case "parked":
            return f"asked everybody to wait. It is parked for another {left}"
        case Stand.OPEN:
            return f"{_failed(row, now)}; its breaker is open, and the next try is in {left}"
        case Stand.PROBING:
            return f"{_failed(row, now)}; one call is trying it, and has {left} left"
        case _:
            return f"{_failed(row, now)}; nothing calls it before a human has answered"


def _failed(row: ServiceRow, now: Millis) -> str:
    asked = open_question(row)
    question = "" if asked is None else f" (you were asked: {asked})"
    times = many(row.state.failures, "time")
    return f"has failed {times} in a row and has been shut for {rough(now - row.since)}{question}"

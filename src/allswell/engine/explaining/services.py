"""A service that is shut, in words: for how long, what is next, and what a person could do about it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allswell.domain.breaker import Stand
from allswell.domain.claim import fits
from allswell.domain.command import Claim
from allswell.domain.names import NO_COMMAND, AgentId, Millis, RunId, service_question_id
from allswell.domain.paying import budgets_over, is_budget, is_for_good, run_of_budget, said
from allswell.domain.presence import Post
from allswell.domain.service import REOPENING, ServiceRow, open_question, opened_at, shut
from allswell.domain.task import Task
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.shapes import Next, Todo
from allswell.engine.explaining.words import listed, many, quoted, rough, typed


class HeldUp(msgspec.Struct, frozen=True):
    """What keeps a task that is ready from being claimed, as the second half of a sentence about it."""

    says: str
    next: Next | None
    todo: tuple[Todo, ...]
    asking: bool
    """Whether only a human can end it."""


def held_up(task: Task, facts: Facts) -> HeldUp | None:
    """The services or the money that a task needs and cannot have; or else what keeps those who could take it."""
    return _shut(task, facts.services, facts.now) or _spent(task, facts) or _kept_back(task, facts)


def _spent(task: Task, facts: Facts) -> HeldUp | None:
    """The role, the run or the day that has cost what it may."""
    for name in budgets_over(task):
        row = facts.services.get(name)
        closed = None if row is None else shut(row, facts.now)
        if row is not None and closed is not None and closed.until is not None:
            run = facts.runs.get(RunId(run_of_budget(name)))
            for_good = is_for_good(closed.until, facts.now)
            return HeldUp(
                f"cannot be claimed: {said(name, '' if run is None else run.name)} {in_short(row, facts.now)}.",
                None if for_good else Next(closed.until, "its day is over, and the task can be claimed"),
                (Todo("See what you were asked", typed("why", service_question_id(row.id, row.questions))),),
                asking=for_good,
            )
    return None


def _kept_back(task: Task, facts: Facts) -> HeldUp | None:
    """What every free agent of a fleet that would take it waits for; None if one of them waits for nothing."""
    free = [post for post in facts.posts if not post.task and post.kind != "remote" and _would_take(post, task)]
    if not free or not all(post.waits for post in free):
        return None
    reasons: dict[str, None] = {}
    until: list[Millis] = []
    for post in free:
        account = facts.services.get(post.account)
        closed = None if account is None else shut(account, facts.now)
        if account is None or not post.waits.startswith(f"{account.id} is "):
            reasons[f"{post.agent}: {post.waits}"] = None
            continue
        reasons[f"{post.agent} uses {quoted(account.id)}, which {in_short(account, facts.now)}"] = None
        if closed is not None and closed.until is not None:
            until.append(closed.until)
    return HeldUp(
        f"everybody who could take it is kept: {'; '.join(reasons)}.",
        Next(min(until), "its account can be used again, and agents take tasks one after the other") if until else None,
        (Todo("See how everybody is", "allswell agents"),),
        asking=False,
    )


def _would_take(post: Post, task: Task) -> bool:
    roles = None if post.role is None else (post.role,)
    return fits(Claim(NO_COMMAND, AgentId(post.holder), roles), task.role)


def _shut(task: Task, services: Mapping[str, ServiceRow], now: Millis) -> HeldUp | None:
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
        f"cannot be claimed: it needs {says}",
        None if human else Next(max(until), f"{named} can be used again, and the task can be claimed"),
        tuple(Todo("See what you were asked", typed("why", id_)) for row, _ in closed if (id_ := open_question(row))),
        human,
    )


def named(service: str) -> str:
    """A service as people call it; what is shut like one for its cost, as what it is."""
    return said(service) if is_budget(service) else f"service {service}"


def in_short(row: ServiceRow, now: Millis) -> str:
    """How a service stands, as the second half of a sentence about it."""
    closed = shut(row, now)
    if is_budget(row.id):
        if closed is None or closed.until is None:
            return "may cost more: work under it goes on"
        opens = "" if is_for_good(closed.until, now) else f"for another {rough(closed.until - now)}, or "
        return f"has cost what it may; nothing is begun under it {opens}until a human says so"
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

"""A check-up: is this watch well, and if not, what to type next.

It only looks, and it does not sweep first: what is overdue shall be seen. Each check gives one finding with a verdict:
`ok`, `warn` (a human must act) or `bad` (something is broken). What a check cannot know it does not claim: there is no
direct sign of a sweeper in the store, so the finding says what is overdue and since when.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from allswell.domain.delivery import DeliveryFilter, sink_of
from allswell.domain.fleet import MAIN
from allswell.domain.lease import ends_at
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, question_id
from allswell.domain.paying import is_budget, said
from allswell.domain.presence import Presence, is_alive
from allswell.domain.service import ServiceRow, open_question, shut
from allswell.domain.task import Lane
from allswell.engine.explaining.crew import presences
from allswell.engine.explaining.services import in_short
from allswell.engine.explaining.words import ago, clean, listed, many, rough, time_stands, typed, within
from allswell.engine.tolerance import Tolerance
from allswell.errors import Refused, Unavailable
from allswell.store.port import Store, Transaction
from allswell.store.views import Agenda
from allswell.timing.clock import Clock

_PAGE, _PAGES = 1_000, 10
"""How many rows are looked at; beyond that, numbers are said to be lower bounds."""
_CLOSELY = 50
"""How many of the oldest ready tasks are looked at one by one."""
_NAMED = 3


class Finding(msgspec.Struct, frozen=True):
    """What one check found."""

    check: str
    verdict: Literal["ok", "warn", "bad"]
    says: str
    next: str | None = None
    """The command to type."""
    data: Mapping[str, object] = {}
    """The exact figures behind the words."""


class Checkup(msgspec.Struct, frozen=True):
    """What all checks found."""

    findings: list[Finding]
    reachable: bool = True


class Patient(msgspec.Struct, frozen=True):
    """What is looked at, and how strictly."""

    store: Store
    clock: Clock
    tolerance: Tolerance
    place: str
    """The store's name for people, without secrets."""
    database: Path | None = None
    """The file, where the store is one."""
    sinks: Collection[str] = ()
    """Those that are set up here."""
    second_look: float = 2.0
    """Seconds after which what a sweeper should have worked off is looked at again."""
    has_died: Callable[[Presence], bool] = lambda _one: False
    """Says of a supervisor whether it is certain that its process is gone."""


async def examine(patient: Patient) -> Checkup:
    """Open the store, look at everything, close it."""
    try:
        missing = patient.database is not None and not patient.database.exists()
    except OSError as error:
        says = f"{patient.place} cannot be reached: {error.strerror}"
        return Checkup([Finding("store", "bad", says)], reachable=False)
    if missing:
        says = f"there is no watch here yet; the first task makes one at {patient.place}"
        return Checkup([Finding("store", "ok", says, typed("submit", "NAME"))])
    store = patient.store
    began = patient.clock.monotonic()
    try:
        await store.open()
        try:
            agenda = await store.view_agenda()
            took = patient.clock.monotonic() - began
            reached = Finding("store", "ok", f"{patient.place} answers in {took} ms", data={"took_ms": took})
            schema = Finding("schema", "ok", "the schema is that of this version")
            return Checkup([reached, schema, *await _look(patient, agenda)])
        finally:
            await store.close()
    except Unavailable as error:
        says = f"{patient.place} cannot be reached: {error.message}"
        return Checkup([Finding("store", "bad", says, error.hint)], reachable=False)
    except Refused as error:
        reached = Finding("store", "ok", f"{patient.place} is there")
        return Checkup([reached, Finding("schema", "bad", error.message, data={"code": error.code})])


async def _look(patient: Patient, agenda: Agenda) -> list[Finding]:
    store = patient.store
    counts = await store.view_counts()
    held = await _pages(store, "held")
    return [
        await _accounted(store),
        await _sweeper(patient, agenda),
        _leases(held, counts.get("held", 0), agenda.now, patient.tolerance),
        await _agents(store),
        *await _supervisors(patient, agenda.now),
        await _clocks(patient),
        await _pool(patient, held, counts.get("ready", 0), agenda.now),
        await _services(patient, agenda.now),
        await _questions(store, agenda.now),
        await _followers(patient, agenda.now),
        await _sinks(store),
        *([] if patient.database is None else [_disk(patient.database, patient.tolerance)]),
    ]


async def _pages(store: Store, state: str) -> list[TaskRow]:
    rows: list[TaskRow] = []
    for _ in range(_PAGES):
        page = await store.view_tasks(TaskFilter(states=(state,), after=rows[-1].task.id if rows else "", limit=_PAGE))
        rows += page
        if len(page) < _PAGE:
            break
    return rows


def _some(names: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    shown = [clean(name, 40) for name in names[:_NAMED]]
    return ", ".join(shown) + ", …" if len(names) > _NAMED else listed(shown)


# --- the checks -------------------------------------------------------------------------------------------------------


async def _accounted(store: Store) -> Finding:
    lost = await store.view_unaccounted()
    if not lost:
        return Finding("tasks", "ok", "every open task is accounted for")
    says = f"{many(len(lost), 'open task')} would wait for ever: {_some(lost)}; please report this"
    return Finding("tasks", "bad", says, typed("why", lost[0]), {"task_ids": lost})


async def _sweeper(patient: Patient, agenda: Agenda) -> Finding:
    due, now = agenda.next_due, agenda.now
    if due is not None and now - due > patient.tolerance.overdue:
        owners = await patient.store.transact(lambda tx: tx.find_due(now, _PAGE), durable=False)
        many_ = many(len(owners), "timer") if len(owners) < _PAGE else f"{_PAGE:,} timers or more"
        says = f"{many_} overdue, the first since {rough(now - due)}: nobody sweeps, or what is due cannot be handled"
        data = {"due": len(owners), "first_due_at": due, "overdue_ms": now - due}
        return Finding("sweeper", "warn", says, typed("watch"), data)
    if agenda.spreads:
        waiting = await patient.store.transact(_find_spreads, durable=False)
        await asyncio.sleep(patient.second_look)
        still = set(waiting) & set(await patient.store.transact(_find_spreads, durable=False))
        if still:
            says = f"what follows from {many(len(still), 'ended task or run', 'ended tasks and runs')} waits to be done"
            return Finding("sweeper", "warn", f"{says}: nobody sweeps", typed("watch"), {"spreads": len(still)})
    if due is None:
        return Finding("sweeper", "ok", "nothing is due, now or later", data={"next_due_at": None})
    return Finding("sweeper", "ok", f"nothing is overdue; the next timer is due {within(due, now)}", None, _next(due))


def _next(due: Millis) -> dict[str, object]:
    return {"next_due_at": due}


async def _find_spreads(tx: Transaction) -> Sequence[str]:
    return await tx.find_spreads(_PAGE)


def _leases(held: Sequence[TaskRow], count: int, now: Millis, tolerance: Tolerance) -> Finding:
    over = sorted((ends_at(row.lease), row.task.id) for row in held if row.lease is not None)
    stale = [(end, task) for end, task in over if now - end > tolerance.overdue]
    if not stale:
        return Finding("leases", "ok", f"{many(count, 'task')} held, no lease is stale", data={"held": count})
    names = _some([task for _, task in stale])
    says = f"{many(len(stale), 'lease')} ran out and nobody has said so, the first {ago(stale[0][0], now)}: {names}"
    data = {"held": count, "stale": [task for _, task in stale], "first_ended_at": stale[0][0]}
    return Finding("leases", "warn", says, typed("why", stale[0][1]), data)


async def _agents(store: Store) -> Finding:
    stalled = [agent.id for agent in await store.view_agents() if agent.stalled]
    if not stalled:
        return Finding("agents", "ok", "no agent is stalled")
    says = f"{many(len(stalled), 'agent')} stopped answering: {_some(stalled)}; end what still runs of them"
    return Finding("agents", "warn", says, "allswell agents", {"stalled": stalled})


async def _supervisors(patient: Patient, now: Millis) -> list[Finding]:
    """One finding where there are any: whether each is heard of that has not said good-bye."""
    here = [one for one in await presences(patient.store, patient.has_died) if not one.gone]
    silent = [one for one in here if not is_alive(one, now)]
    if not here:
        return []
    if not silent:
        return [
            Finding("supervisors", "ok", f"{many(len(here), 'supervisor')} watching: {_some([p.name for p in here])}")
        ]
    first = silent[0]
    heard = f"last heard {ago(first.beaten_at, now)}"
    how = f"has died ({heard})" if first.died else f"was {heard}"
    says = f"supervisor {clean(first.name, 40)} on {clean(first.host, 40)} {how}"
    command = "allswell up" if first.name == MAIN else typed("up", "--name", first.name)
    return [Finding("supervisors", "warn", says, command, {"silent": [one.name for one in silent]})]


async def _clocks(patient: Patient) -> Finding:
    before = patient.clock.wall()
    agenda = await patient.store.view_agenda()
    told = agenda.now
    after = patient.clock.wall()
    skew = told - after if told > after else min(told - before, 0)
    if agenda.stands:
        return Finding("clocks", "warn", time_stands(agenda.stands), typed("watch"), {"skew_ms": skew})
    if abs(skew) <= patient.tolerance.clock_skew:
        return Finding("clocks", "ok", "the store's clock and this machine's agree", data={"skew_ms": skew})
    ahead = "ahead of" if skew > 0 else "behind"
    says = f"the store's clock is {rough(abs(skew))} {ahead} this machine's"
    return Finding("clocks", "warn", says, "timedatectl", {"skew_ms": skew})


async def _pool(patient: Patient, held: Sequence[TaskRow], count: int, now: Millis) -> Finding:
    """Tasks that have been ready for long while nobody works on anything of their role.

    A long queue before busy agents is no trouble, and a task whose service is shut waits for the weather.
    """
    lanes, services = await patient.store.transact(_lanes, durable=False)
    away = {name for name, row in services.items() if shut(row, now) is not None}
    weather = {lane.id for lane in lanes if away & set(lane.services)}
    busy = {row.task.role for row in held if row.lease is not None and ends_at(row.lease) > now}
    ready = await _pages(patient.store, "ready")
    old = [
        row
        for row in ready
        if row.task.lane not in weather
        and row.task.role not in busy
        and now - row.task.created_at > patient.tolerance.unclaimed
    ]
    since = [(await _ready_since(patient.store, row), row) for row in old[:_CLOSELY]]
    long = [(moment, row) for moment, row in since if now - moment > patient.tolerance.unclaimed]
    if not long:
        at_weather = sum(row.task.lane in weather for row in ready)
        rest = f", {at_weather} of them for a service that is shut ({_some(sorted(away))})" if at_weather else ""
        return Finding("pool", "ok", f"{many(count, 'task')} ready{rest}, none forgotten", data={"ready": count})
    first = min(moment for moment, _ in long)
    roles = sorted({row.task.role for _, row in long})
    said = " of role " + _some(roles) if roles != [""] else ""
    more = " or more" if len(old) > _CLOSELY else ""
    them = "it" if len(long) == 1 else "them"
    says = f"{many(len(long), 'task')}{more}{said} ready for {rough(now - first)}, and no agent takes {them}"
    command = ["claim", "--agent", "NAME", *(["--role", roles[0]] if roles[0] else [])]
    data = {"ready": count, "unclaimed": [row.task.id for _, row in long], "since_at": first, "roles": roles}
    return Finding("pool", "warn", says, typed(*command), data)


async def _lanes(tx: Transaction) -> tuple[Sequence[Lane], dict[str, ServiceRow]]:
    return await tx.lanes()


async def _services(patient: Patient, now: Millis) -> Finding:
    """Breakers that have not been closed for long. A parked service said itself when it is back."""
    rows = await patient.store.view_services()
    away = [row for row in rows.values() if shut(row, now) is not None]
    long = sorted(
        (row for row in rows.values() if row.state.open_until is not None and now - row.since > patient.tolerance.shut),
        key=lambda row: row.since,
    )
    if not long:
        names = [said(row.id) if is_budget(row.id) else row.id for row in away]
        says = f"{_some(names)} left alone for now" if away else "no service is shut"
        return Finding("services", "ok", says, data={"shut": [row.id for row in away]})
    first = long[0]
    says = f"{clean(first.id, 40)} {in_short(first, now)}"
    if len(long) > 1:
        says += f"; so are {_some([row.id for row in long[1:]])}"
    asked = open_question(first)
    command = None if asked is None else typed("why", asked)
    return Finding("services", "warn", says, command, {"shut": [row.id for row in long], "since_at": first.since})


async def _ready_since(store: Store, row: TaskRow) -> int:
    """Since when a task has been ready, as nearly as its rows tell: what held it up last was over then."""
    task = row.task
    moments = [task.created_at, task.spec.not_before or 0]
    attempts = await store.view_attempts(task.id)
    if attempts:
        moments.append(attempts[-1].ended_at)
    for need in task.spec.needs:
        other = await store.view_task(need)
        moments.append((other.task.ended_at if other else None) or 0)
    if task.record.questions:
        question = await store.view_question(question_id(task.id, task.record.questions))
        moments.append((question.closed_at if question else None) or 0)
    return max(moments)


async def _questions(store: Store, now: Millis) -> Finding:
    waiting = await store.view_questions(limit=_PAGE)
    if not waiting:
        return Finding("questions", "ok", "no question waits for a human", data={"open": 0})
    oldest = waiting[0]
    count = many(len(waiting), "question") if len(waiting) < _PAGE else f"{_PAGE:,} questions or more"
    says = f"{count} for a human, the oldest asked {ago(oldest.asked_at, now)}: “{clean(oldest.text, 60)}”"
    data = {"open": len(waiting), "question_id": oldest.id, "asked_at": oldest.asked_at}
    return Finding("questions", "warn", says, typed("questions"), data)


async def _followers(patient: Patient, now: Millis) -> Finding:
    cursors = await patient.store.view_cursors()
    late: list[tuple[int, str]] = []
    for follower, position in sorted(cursors.items()):
        unread = await patient.store.journal(position, 1)
        if unread and now - unread[0].at > patient.tolerance.behind:
            late.append((unread[0].at, follower))
    if not late:
        says = f"{many(len(cursors), 'follower')} of the journal, none behind"
        return Finding("followers", "ok", says if cursors else "nobody follows the journal")
    removed = [name for _, name in sorted(late) if (sink_of(name) or "") not in ("", *patient.sinks)]
    if removed:
        sink = sink_of(removed[0]) or ""
        says = f"the sink {sink} is told nothing any more: it is not set up here"
        return Finding("followers", "warn", says, typed("sinks", "forget", sink), {"removed": removed})
    first = min(late)
    unread = await patient.store.journal(cursors[first[1]], _PAGE)
    count = many(len(unread), "event") if len(unread) < _PAGE else f"{_PAGE:,} events or more"
    says = f"{_some([name for _, name in sorted(late)])} behind by {rough(now - first[0])} ({count}); start it again"
    data = {"behind": [{"follower": name, "since_at": moment} for moment, name in late]}
    command = typed("events", "--follow") if sink_of(first[1]) is None else typed("sinks", "run")
    return Finding("followers", "warn", says, command, data)


async def _sinks(store: Store) -> Finding:
    left = await store.view_deliveries(DeliveryFilter(limit=_PAGE))
    failing = [one for one in left if one.tries or one.given_up]
    if not failing:
        return Finding("sinks", "ok", "nothing that sinks have to deliver fails", data={"failing": 0, "given_up": 0})
    given_up = [one for one in failing if one.given_up]
    says = f"{_some(sorted({one.sink for one in failing}))} cannot deliver: {clean(failing[0].reason, 80)}"
    says += f"; {many(len(given_up), 'delivery', 'deliveries')} given up" if given_up else ""
    data = {"failing": len(failing) - len(given_up), "given_up": len(given_up)}
    return Finding("sinks", "warn", says, typed("deliveries"), data)


def _disk(database: Path, tolerance: Tolerance) -> Finding:
    free = shutil.disk_usage(database.parent).free
    files = [database, database.with_name(database.name + "-wal")]
    size = sum(file.stat().st_size for file in files if file.exists())
    says = f"{_size(free)} free where the store lies; it takes {_size(size)}"
    data = {"free_bytes": free, "store_bytes": size}
    if free >= tolerance.disk_free:
        return Finding("disk", "ok", says, data=data)
    verdict: Literal["warn", "bad"] = "warn" if free >= tolerance.disk_free // 10 else "bad"
    return Finding("disk", verdict, f"only {says}", f"df -h {database.parent}", data)


def _size(size: int) -> str:
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"

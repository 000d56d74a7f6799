"""The verdict on the whole watch: what is broken, what needs a human, what merely waits, and what to type about each.

It is made here and nowhere else. `allswell`, `doctor`, `watch`, the page, `GET /status` and `/metrics` show this list,
so they cannot disagree. Each check is one function of `_CHECKS`: it looks at what was read (`StoreReadings`) and
returns a `Check` with its concerns, or with the sentence that says that it found none. To add a concern, add a check.

  broken       the watch itself cannot do its work: a supervisor died, timers are overdue, work that no agent can take
  needs_human  it works, and a human has to decide or to act: questions, failures, stopped work
  waiting      it ends by itself, or is too young to worry about: shown, and no reason to get up

Reading is bounded: a store with a hundred thousand tasks is looked at as fast as one with a thousand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec

from allswell.domain.agents.fleet import MAIN, AgentSpec
from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence, Survivors, is_alive, still_run
from allswell.domain.build.limits import BUILD_ROLE, command_key
from allswell.domain.ids import NO_COMMAND, AgentId, Millis, RunId, TaskId, is_request, question_id
from allswell.domain.lease.claim import RUN_ROLE, STEP_ROLE, fits
from allswell.domain.lease.cost import is_budget, said
from allswell.domain.lease.model import Agent, ends_at, recovered_at
from allswell.domain.notify.delivery import DeliveryFilter, sink_of
from allswell.domain.question import Pause, Question, held_back, without_output
from allswell.domain.rules.command import Claim
from allswell.domain.rules.query import SweepAgenda
from allswell.domain.service.breaker import BreakerState
from allswell.domain.service.service import ServiceRow, question_about, shut
from allswell.domain.task.answer import NONE_HELD, DismissedHolds, holding, is_dismissed
from allswell.domain.task.model import State, Task, TaskFilter, TaskRow
from allswell.engine.status.agents import StillRun, as_said, presences, view_survivors
from allswell.engine.status.explanation import (
    UpcomingStep,
    ago,
    clean,
    listed,
    many,
    quoted,
    rough,
    time_stands,
    typed,
    upcoming,
)
from allswell.engine.status.services import TaskFacts, held_up, in_short, skipped_for
from allswell.engine.status.task import mending_command, outcome, resume_command, resume_flow, up_command
from allswell.engine.timings import DEFAULT_TOLERANCE, HealthThresholds
from allswell.store.views import Views
from allswell.timing.clock import Clock

RECENT = 24 * 3_600_000
"""How long a failure is news."""
PAGE = 1_000
FAILED_MOST = 5_000
READY_MOST = 500
"""How many ready tasks are looked at, the oldest first. What agents can take is taken, so what none can take comes to
stand among these sooner or later."""
HELD_MOST = 500
_READY_SINCE_MOST = 20
"""For how many ready tasks of a role it is looked up since when they are ready."""
_COMMAND = 2_000
"""Characters of a command that was typed."""
_NAMED = 3
_NO_SWEEPER = "no process enforces time limits"
_FANOUT = 6
"""To update all tasks that wait for an ended one may take this many times longer than a timer may be overdue."""

Kind = Literal[
    "clock",
    "unaccounted",
    "question",
    "overdue",
    "stalled",
    "failed",
    "stopped",
    "supervisor",
    "unclaimed",
    "parked",
    "breaker",
    "blocked",
    "paused",
    "missed",
    "skew",
    "follower",
    "delivery",
    "disk",
    "survivor",
    "reaper",
    "settings",
]


class VerdictLevel(StrEnum):
    """How much a concern matters, the worst first; `WELL` is the level of a watch without any."""

    BROKEN = "broken"
    NEEDS_HUMAN = "needs_human"
    WAITING = "waiting"
    WELL = "well"


_ORDER = list(VerdictLevel)
EXIT_CODES: Mapping[VerdictLevel, int] = {
    VerdictLevel.BROKEN: 1,
    VerdictLevel.NEEDS_HUMAN: 3,
    VerdictLevel.WAITING: 0,
    VerdictLevel.WELL: 0,
}
"""What `allswell` and `doctor` end with. What is broken wins over what needs a human: while the watch does not work,
nothing tells whether more would need one."""


class VerdictItem(msgspec.Struct, frozen=True):
    """One thing to know about the watch, and the command that mends it."""

    kind: Kind
    id: str
    """Of the task, question, run, agent, supervisor or service it is about."""
    level: VerdictLevel
    what: str
    command: str
    """The command that mends it, as it is typed, with words in capitals for the reader to replace. Where it ends by
    itself, the command that shows more about it."""
    since: Millis | None = None
    look: str = ""
    """What to type to learn more, where `command` does not tell."""
    evidence: tuple[str, ...] = ()
    ends: UpcomingStep | None = None
    """What ends it by itself, and when."""
    data: Mapping[str, object] = {}
    """The exact figures behind the words."""


class Check(msgspec.Struct, frozen=True):
    """What one check found: concerns, or that there are none."""

    name: str
    fine: str
    """What is said where it found nothing."""
    concerns: tuple[VerdictItem, ...] = ()
    data: Mapping[str, object] = {}


class Verdict(msgspec.Struct, frozen=True):
    """The whole watch."""

    now: Millis
    counts: dict[str, int]
    next_due: Millis | None
    checks: tuple[Check, ...]
    concerns: tuple[VerdictItem, ...]
    """Of all checks, the worst level first."""
    dismissed: DismissedHolds = NONE_HELD
    """Questions that were dismissed, and what still waits for them."""

    @property
    def level(self) -> VerdictLevel:
        """The worst of it."""
        return self.concerns[0].level if self.concerns else VerdictLevel.WELL

    @property
    def needs(self) -> tuple[VerdictItem, ...]:
        """What is broken or needs a human, the worst first."""
        return tuple(item for item in self.concerns if item.level is not VerdictLevel.WAITING)

    @property
    def waiting(self) -> tuple[VerdictItem, ...]:
        """What ends by itself and is shown for information."""
        return tuple(item for item in self.concerns if item.level is VerdictLevel.WAITING)

    @property
    def well(self) -> bool:
        """Whether nothing is broken and nothing needs a human."""
        return self.level in (VerdictLevel.WELL, VerdictLevel.WAITING)

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        return headline(one.level for one in self.concerns)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that reports this verdict."""
        return EXIT_CODES[self.level]


def headline(levels: Iterable[VerdictLevel]) -> str:
    """How many concerns there are of which level, in a few words."""
    counts = Counter(levels)
    broken, asking = counts[VerdictLevel.BROKEN], counts[VerdictLevel.NEEDS_HUMAN]
    parts = [many(broken, "thing is broken", "things are broken")] * bool(broken)
    parts += [many(asking, "thing needs you", "things need you")] * bool(asking)
    return f"{', '.join(parts)}." if parts else "All's well."


class LocalFacts(msgspec.Struct, frozen=True):
    """From where the watch is looked at: what only a process on this machine, with these settings, can know."""

    tolerance: HealthThresholds = DEFAULT_TOLERANCE
    has_died: Callable[[Presence], bool] = lambda _presence: False
    """Says of a supervisor whether its process is certainly gone."""
    still_running: StillRun = as_said
    """Says of processes that survived their attempt which of them still run."""
    folder: Path | None = None
    """Our folder: the store's file or attempts' files lie on its disk."""
    agents: Collection[AgentSpec] = ()
    """Those that the settings name."""
    sinks: Collection[str] | None = None
    """Those that the settings name; None where the settings of the store's own folder are not known."""
    pause: Pause = "task"
    """What an open question holds back from claims."""
    clock: Clock | None = None
    """This machine's, where it is to be compared with the store's."""
    problems: Sequence[str] = ()
    """What is wrong with the settings."""
    reports: Callable[[], Awaitable[Sequence[VerdictItem]]] | None = None
    """Asks the server of the store for its concerns: it sees its own disk and processes, and its settings hold."""


ANYWHERE = LocalFacts()


class StoreReadings(msgspec.Struct):
    """What was read of the store, once for all checks."""

    views: Views
    place: LocalFacts
    agenda: SweepAgenda
    counts: dict[str, int]
    questions: list[Question]
    agents: list[Agent]
    supervisors: list[Presence]
    services: dict[str, ServiceRow]
    ready: list[TaskRow]
    held: list[TaskRow]
    waiting: list[TaskRow]

    @property
    def now(self) -> Millis:
        """The store's clock."""
        return self.agenda.now

    @property
    def dead(self) -> list[Presence]:
        """Supervisors that neither speak nor have said that they stop."""
        return [
            supervisor for supervisor in self.supervisors if not supervisor.gone and not is_alive(supervisor, self.now)
        ]

    @property
    def facts(self) -> TaskFacts:
        """The facts about tasks, as `allswell why` uses them."""
        alive = [supervisor for supervisor in self.supervisors if is_alive(supervisor, self.now)]
        posts = [post for supervisor in alive for post in supervisor.posts]
        back = held_back(self.place.pause, self.questions)
        pausing = tuple(question for question in self.questions if question.task is not None)
        return TaskFacts(self.now, services=self.services, posts=posts, back=back, pausing=pausing)


async def look(views: Views, place: LocalFacts = ANYWHERE) -> Verdict:
    """Read the state of the watch; nothing is changed, and nothing that is due is carried out."""
    agenda = await views.view_agenda()
    counts = await views.view_counts()
    readings = StoreReadings(
        views,
        place,
        agenda,
        counts,
        await views.view_questions(),
        await views.view_agents(),
        await presences(views, place.has_died),
        await views.view_services(),
        await _first(views, counts, State.READY, READY_MOST),
        await _first(views, counts, State.HELD, HELD_MOST),
        await _first(views, counts, State.WAITING, HELD_MOST),
    )
    made = [await check(readings) for check in (_CHECKS if place.reports is None else (_supervisors, _survivors))]
    checks = tuple(check for check in made if check is not None)
    items = [item for check in checks for item in check.concerns]
    if place.reports is not None:
        # Survivors are processes of this machine, which the server cannot see.
        reported = [item for item in await place.reports() if item.kind != "survivor"]
        known = {(item.kind, item.id) for item in reported}
        items = [*reported, *(item for item in items if (item.kind, item.id) not in known)]
    concerns = tuple(sorted(items, key=lambda item: _ORDER.index(item.level)))
    dismissed = await _held_by_dismissed(views, readings.questions)
    return Verdict(agenda.now, counts, agenda.next_due, checks, concerns, dismissed)


async def _first(views: Views, counts: Mapping[str, int], state: State, limit: int) -> list[TaskRow]:
    return await views.view_tasks(TaskFilter(states=(state.value,), limit=limit)) if counts.get(state) else []


async def _held_by_dismissed(store: Views, questions: Sequence[Question]) -> DismissedHolds:
    """What dismissed questions still hold; the open tasks are looked through only if there are any."""
    if all(question.dismissed_at is None for question in questions):
        return NONE_HELD
    rows: list[TaskRow] = []
    for _ in range(FAILED_MOST // PAGE):
        page = await store.view_tasks(TaskFilter(open=True, after=rows[-1].task.id if rows else "", limit=PAGE))
        rows += page
        if len(page) < PAGE:
            break
    return holding(questions, ((row.task, row.waits) for row in rows))


def _some(names: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    shown = [clean(name, 40) for name in names[:_NAMED]]
    return ", ".join(shown) + ", …" if len(names) > _NAMED else listed(shown)


# --- the watch itself -------------------------------------------------------------------------------------------------


async def _accounted(readings: StoreReadings) -> Check:
    """Open tasks that nothing will ever move again: there must be none."""
    rows = [await readings.views.view_task(id_) for id_ in await readings.views.view_orphans()]
    concerns = tuple(
        VerdictItem(
            "unaccounted",
            row.task.id,
            VerdictLevel.BROKEN,
            f"{quoted(row.task.name, 60)} is open, and nothing will ever move it; please report this output",
            typed("events", "--task", row.task.id, "--json"),
            row.task.created_at,
            typed("why", row.task.id),
        )
        for row in rows
        if row is not None
    )
    return Check("tasks", "every open task is accounted for", concerns)


async def _sweeper(readings: StoreReadings) -> Check:
    """What is due and does not happen: no process enforces time limits."""
    due, now = readings.agenda.next_due, readings.now
    untold = await _untold(readings)
    if untold is not None:
        return Check("sweeper", "", (untold,))
    if due is None:
        return Check("sweeper", "nothing is due, now or later", data={"next_due_at": None})
    late = now - due
    if late <= readings.place.tolerance.overdue:
        when = f"the next timer is due in {rough(-late)}" if late < 0 else "a timer falls due just now"
        return Check("sweeper", f"nothing is overdue; {when}", data={"next_due_at": due})
    dead = readings.dead
    stale = [row.task.name for row in readings.held if row.lease is not None and ends_at(row.lease) < now]
    names = f": {_some([quoted(name, 40) for name in stale])}" if stale else ""
    over = f"{many(len(stale), 'lease has', 'leases have')} ended without being taken back{names}"
    concern = VerdictItem(
        "overdue",
        "",
        VerdictLevel.BROKEN,
        f"Something was due {ago(due, now)} and has not happened: {_NO_SWEEPER}",
        up_command(dead[0]) if dead else "allswell watch",
        due,
        evidence=(over,) if stale else (),
        data={"first_due_at": due, "overdue_ms": late, "stale": len(stale)},
    )
    return Check("sweeper", "", (concern,))


async def _untold(readings: StoreReadings) -> VerdictItem | None:
    """A task or run that ended a while ago without an update of the tasks that wait for it: no sweeper runs."""
    id_, now = readings.agenda.spread, readings.now
    if not id_:
        return None
    row, run = await readings.views.view_task(TaskId(id_)), await readings.views.view_run(RunId(id_))
    ended = row.task.ended_at if row is not None else None if run is None else run.ended_at
    if ended is None or now - ended <= _FANOUT * readings.place.tolerance.overdue:
        return None
    name = id_ if row is None else quoted(row.task.name, 60)
    sentence = f"{name} ended {ago(ended, now)}, and tasks that wait for it were not updated: {_NO_SWEEPER}"
    command = up_command(readings.dead[0]) if readings.dead else "allswell watch"
    return VerdictItem("overdue", id_, VerdictLevel.BROKEN, sentence, command, ended, data={"ended_at": ended})


async def _leases(readings: StoreReadings) -> Check:
    """How many tasks are held; a lease that has run out is a timer that is overdue."""
    count = readings.counts.get(State.HELD, 0)
    return Check("leases", f"{many(count, 'task')} held", data={"held": count})


async def _clocks(readings: StoreReadings) -> Check:
    """A clock that was set back, and clocks that disagree."""
    place, stands = readings.place, readings.agenda.stands
    if stands:
        sentence = time_stands(stands)
        return Check("clocks", "", (VerdictItem("clock", "", VerdictLevel.BROKEN, sentence, "allswell watch"),))
    if place.clock is None:
        return Check("clocks", "the store's clock runs")
    before = place.clock.wall()
    store_now = (await readings.views.view_agenda()).now
    after = place.clock.wall()
    skew = store_now - after if store_now > after else min(store_now - before, 0)
    data = {"skew_ms": skew}
    if abs(skew) <= place.tolerance.clock_skew:
        return Check("clocks", "the store's clock and this machine's agree", data=data)
    ahead = "ahead of" if skew > 0 else "behind"
    sentence = f"the store's clock is {rough(abs(skew))} {ahead} this machine's"
    sentence += "; correct the one that is wrong: this shows this machine's source of time"
    import shutil  # it takes 3 ms, and a clock is seldom wrong

    command = "timedatectl" if shutil.which("timedatectl") else "date -u"
    return Check("clocks", "", (VerdictItem("skew", "", VerdictLevel.NEEDS_HUMAN, sentence, command, data=data),))


async def _supervisors(readings: StoreReadings) -> Check | None:
    """Supervisors that died or fell silent, and those that are paused; nothing is said where there never was one."""
    here, dead, now = (
        [supervisor for supervisor in readings.supervisors if not supervisor.gone],
        readings.dead,
        readings.now,
    )
    if not here:
        return None
    paused = [supervisor for supervisor in here if supervisor.level.paused and supervisor not in dead]
    disk = check_disk(readings.place) if any(not supervisor.died for supervisor in dead) else None
    full = None if disk is None else next((item for item in disk.concerns if not item.data["free_bytes"]), None)
    concerns = [_dead(supervisor, now, full) for supervisor in dead] + [_paused(supervisor) for supervisor in paused]
    fine = f"{many(len(here), 'supervisor')} watching: {_some([supervisor.name for supervisor in here])}"
    return Check("supervisors", fine, tuple(concerns))


async def _survivors(readings: StoreReadings) -> Check | None:
    """Processes that still run after their attempt; nothing is said where there are none, which is nearly always."""
    left = await view_survivors(readings.views, readings.place.still_running)
    return Check("processes", "", tuple(_survivor(survivors) for survivors in left)) if left else None


def _survivor(left: Survivors) -> VerdictItem:
    whose = f"attempt {left.attempt} at {quoted(left.name, 60)}"
    kept = " and ".join(part for part in (clean(left.holder, 60), clean(left.folder)) if part)
    running = still_run(left.processes)
    sentence = f"{running[:1].upper()}{running[1:]} on {clean(left.host, 40)} although {whose} was told to stop"
    sentence = f"{sentence}; {kept} stay reserved for it"
    pids = [process.pid for process in left.processes]
    command, data = typed("dismiss", str(pids[0])), {"pids": pids, "folder": left.folder, "agent": left.holder}
    evidence = (f"end it there (kill -9 {' '.join(map(str, pids))}), or free them while it runs",)
    look_ = typed("why", left.task)
    return VerdictItem(
        "survivor", left.task, VerdictLevel.NEEDS_HUMAN, sentence, command, left.since, look_, evidence, data=data
    )


def _dead(presence: Presence, now: Millis, full: VerdictItem | None) -> VerdictItem:
    """A supervisor that does not speak; where the disk is full it cannot, and neither could another one."""
    heard = ago(presence.beaten_at, now)
    how = f"has died (last heard {heard})" if presence.died else f"was last heard {heard}"
    command, then = up_command(presence), "its agents take no new tasks"
    evidence: tuple[str, ...] = (f"if its machine is gone: {typed('dismiss', PRESENCE_PREFIX + presence.name)}",)
    if full is not None and not presence.died:
        command, then, evidence = full.command, "the disk is full", ()
    sentence, look_at = f"{_titled(presence)} {how}: {then}", "allswell agents"
    since = presence.beaten_at
    return VerdictItem("supervisor", presence.name, VerdictLevel.BROKEN, sentence, command, since, look_at, evidence)


def _titled(presence: Presence) -> str:
    return f"The supervisor {clean(presence.name, 40)} on {clean(presence.host, 40)}"


def _paused(presence: Presence) -> VerdictItem:
    until = presence.level.until
    ends = None if until is None else upcoming(until, "it goes on")
    sentence = f"The supervisor {clean(presence.name, 60)} takes no new tasks: its session is almost used up"
    return VerdictItem("paused", presence.name, VerdictLevel.WAITING, sentence, "allswell agents", ends=ends)


async def _disk(readings: StoreReadings) -> Check | None:
    return check_disk(readings.place)


def check_disk(place: LocalFacts) -> Check | None:
    """Whether there is room where the store's file, or what attempts leave, is written."""
    folder, tolerance = place.folder, place.tolerance
    if folder is None or not folder.exists():
        return None
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    size = sum(file.stat().st_size for file in folder.glob("*.db*") if file.is_file())
    says = f"{_size(free)} free on the store's disk; the store takes {_size(size)}"
    data = {"free_bytes": free, "store_bytes": size}
    if free >= tolerance.disk_free:
        return Check("disk", says, data=data)
    level = VerdictLevel.NEEDS_HUMAN if free >= tolerance.disk_free // 10 else VerdictLevel.BROKEN
    sentence = f"The disk is {'nearly ' if free else ''}full: {says}. Make room there"
    return Check("disk", "", (VerdictItem("disk", "", level, sentence, f"df -h {folder}", data=data),))


async def _settings(readings: StoreReadings) -> Check | None:
    """What is wrong with the settings: `up` does not start with them; nothing is said where nothing is."""
    problems = [clean(problem, 300) for problem in readings.place.problems]
    if not problems:
        return None
    sentence = f"The settings have an error: {'; '.join(problems[:_NAMED])}{'; …' if len(problems) > _NAMED else ''}"
    data = {"problems": list(readings.place.problems)}
    return Check(
        "settings", "", (VerdictItem("settings", "", VerdictLevel.BROKEN, sentence, "allswell config", data=data),)
    )


def _size(size: int) -> str:
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"


# --- agents and the work they could take ------------------------------------------------------------------------------


async def _agents(readings: StoreReadings) -> Check:
    """Agents that miss check-ins: the watch takes their tasks back by itself."""
    held = {row.lease.agent: row for row in readings.held if row.lease is not None}
    owing = [agent for agent in readings.agents if agent.misses or agent.stalled]
    concerns = [_owing(agent, held.get(agent.id), readings.now) for agent in owing]
    concerns += [_stopped_reaper(post) for post in readings.facts.posts if post.remark]
    return Check("agents", "no agent misses check-ins", tuple(concerns))


def _stopped_reaper(post: AgentSlot) -> VerdictItem:
    """An agent whose reaper was stopped: only a process below it, or one that may signal it, can have done that."""
    sentence = f"{clean(post.holder, 60)}, at {quoted(post.name, 60)}: {clean(post.remark)}"
    return VerdictItem(
        "reaper", post.holder, VerdictLevel.WAITING, sentence, typed("why", post.task), look=typed("logs", post.task)
    )


def _owing(agent: Agent, row: TaskRow | None, now: Millis) -> VerdictItem:
    lease = None if row is None else row.lease
    at = None if lease is None else recovered_at(lease)
    ends = None if at is None else upcoming(at, "the agent is ended, and its task taken back")
    missed = f"{many(agent.misses, 'check-in')} missed, the last {ago(agent.missed_at, now)}"
    kind: Kind = "stalled" if agent.stalled else "missed"
    sentence = f"{clean(agent.id, 60)} {'is stalled' if agent.stalled else 'does not answer'}: {missed}"
    evidence = () if row is None else (f"it holds {quoted(row.task.name, 60)}",)
    return VerdictItem(
        kind, agent.id, VerdictLevel.WAITING, sentence, "allswell agents", agent.missed_at, evidence=evidence, ends=ends
    )


async def _pool(readings: StoreReadings) -> Check:
    """Ready tasks that no agent can take, by role, and since when.

    A queue before busy agents is no trouble, and what needs a service that is shut, money that is spent, or an answer,
    waits for that.
    """
    count = readings.counts.get(State.READY, 0)
    facts, left, apart = readings.facts, dict[str, list[TaskRow]](), 0
    for row in readings.ready:
        task = row.task
        if held_up(task, facts) is not None:
            apart += 1
        elif task.spec.request is None and not _waits_for_a_human(task):
            left.setdefault(task.role, []).append(row)
    concerns = [item for role, rows in sorted(left.items()) if (item := await _unclaimed(readings, role, rows))]
    rest = f", {apart:,} of them wait for something else" if apart else ""
    return Check("pool", f"{many(count, 'task')} ready{rest}, none forgotten", tuple(concerns), {"ready": count})


def _waits_for_a_human(task: Task) -> bool:
    """Whether a task is listed among what was stopped."""
    return task.role in (RUN_ROLE, BUILD_ROLE, STEP_ROLE) and task.record.handover is not None


async def _unclaimed(readings: StoreReadings, role: str, rows: Sequence[TaskRow]) -> VerdictItem | None:
    now, patience = readings.now, readings.place.tolerance.unclaimed
    posts = [post for post in readings.facts.posts if _takes(post.role, role) and post.kind != "remote"]
    at_work = {row.task.role for row in readings.held if row.lease is not None and ends_at(row.lease) > now}
    if role in at_work or any(post.task or post.waits for post in posts):
        return None
    oldest = sorted(rows, key=lambda row: row.task.created_at)
    since = sorted([await _ready_since(readings.views, row) for row in oldest[:_READY_SINCE_MOST]])
    long = now - since[0] > patience
    if posts and not long:
        return None  # an idle agent is about to take it
    which = f" of role {clean(role, 40)}" if role else ""
    more = " or more" if len(readings.ready) == READY_MOST else ""
    them = "it" if len(rows) == 1 else "them"
    ready = f"{many(len(rows), 'task')}{more}{which} ready for {rough(now - since[0])}"
    if not long:
        sentence = f"{ready}, and no known agent can take {them}"
        ends = upcoming(Millis(since[0] + patience), "this counts as broken then")
        return VerdictItem(
            "unclaimed", role, VerdictLevel.WAITING, sentence, _taker(readings, role, oldest[0]), since[0], ends=ends
        )
    sentence = f"{ready}, and no agent takes {them}"
    data = {"unclaimed": [row.task.id for row in oldest[:_READY_SINCE_MOST]], "since_at": since[0], "roles": [role]}
    look_at = typed("why", oldest[0].task.id)
    return VerdictItem(
        "unclaimed",
        role,
        VerdictLevel.BROKEN,
        sentence,
        _taker(readings, role, oldest[0]),
        since[0],
        look_at,
        data=data,
    )


def _takes(own: str | None, role: str) -> bool:
    """Whether an agent with this role of its own takes tasks of a role."""
    return fits(Claim(NO_COMMAND, AgentId("NAME"), None if own is None else (own,)), role)


def _taker(readings: StoreReadings, role: str, row: TaskRow) -> str:
    """What to type to have tasks of a role taken."""
    if role == STEP_ROLE and row.task.run is not None:
        return resume_flow(row.task.run)
    if role == RUN_ROLE:
        return resume_command(row.task.id)
    for supervisor in readings.dead:
        if any(_takes(post.role, role) for post in supervisor.posts):
            return up_command(supervisor)
    alive = any(supervisor.name == MAIN and is_alive(supervisor, readings.now) for supervisor in readings.supervisors)
    if not alive and any(_takes(spec.role, role) and not spec.remote for spec in readings.place.agents):
        return "allswell up"
    return typed("claim", "--agent", "NAME", *(("--role", role) if role else ()))


async def _ready_since(store: Views, row: TaskRow) -> Millis:
    """Since when a task has been ready, as nearly as its rows tell: what held it up last was over then."""
    task = row.task
    moments = [task.created_at, task.spec.not_before or 0]
    if task.record.token:
        attempts = await store.view_attempts(task.id)
        moments += [attempts[-1].ended_at] if attempts else []
    for need in task.spec.needs[-_NAMED:]:
        other = await store.view_task(need)
        moments.append((other.task.ended_at if other else None) or 0)
    if task.record.questions:
        question = await store.view_question(question_id(task.id, task.record.questions))
        moments.append((question.closed_at if question else None) or 0)
    return Millis(max(moments))


async def _services(readings: StoreReadings) -> Check:
    """Services that are parked or fail, and budgets that are spent, unless a question about them is open."""
    asked = {question.service for question in readings.questions if question.dismissed_at is None}
    shown = [_service(row, readings) for row in readings.services.values() if row.id not in asked]
    concerns = tuple(item for item in shown if item is not None)
    return Check("services", "every service can be called", concerns, {"shut": [item.id for item in concerns]})


def _service(row: ServiceRow, readings: StoreReadings) -> VerdictItem | None:
    now, tolerance = readings.now, readings.place.tolerance
    closed = shut(row, now)
    failing = row.state.open_until is not None and now - row.since > tolerance.shut
    if closed is None and not failing:
        return None
    waiting = _waiting_for(row.id, readings)
    evidence = (f"{many(waiting, 'task waits', 'tasks wait')} for it; no attempt is used up",) if waiting else ()
    name = f"{said(row.id)[0].upper()}{said(row.id)[1:]}" if is_budget(row.id) else quoted(row.id, 60)
    sentence = f"{name} {in_short(row, now)}"
    parked = closed is not None and closed.stand == "parked"
    ends, long = None, failing
    if closed is not None and closed.until is not None:
        ends = upcoming(closed.until, "it is used again" if parked else "it is tried again")
        long = long or closed.until - now > tolerance.parked
        if closed.stand == BreakerState.PROBING:
            ends = upcoming(closed.until, "the call that tries it times out")
    question = question_about(row)
    command = typed("unpark", row.id) if question is None else typed("answer", question, "OPTION")
    level = VerdictLevel.BROKEN if long else VerdictLevel.WAITING
    since = row.since or None
    return VerdictItem(
        "parked" if parked else "breaker", row.id, level, sentence, command, since, evidence=evidence, ends=ends
    )


def _waiting_for(service: str, readings: StoreReadings) -> int:
    """How many ready tasks wait for a service, or for an agent whose account it is."""
    kept = [post for post in readings.facts.posts if post.account == service and post.waits and not post.task]
    return sum(
        service in row.task.spec.services or any(_takes(post.role, row.task.role) for post in kept)
        for row in readings.ready
    )


async def _requests(readings: StoreReadings) -> Check:
    """Tasks that are blocked because another agent has not answered."""
    blocked = [row for row in readings.waiting if any(is_request(wait.target) for wait in row.waits)]
    return Check("requests", "no task is blocked by a request", tuple(_blocked(row) for row in blocked))


def _blocked(row: TaskRow) -> VerdictItem:
    task = row.task
    asked = [wait.target for wait in row.waits if is_request(wait.target)]
    sentence = f"{quoted(task.name, 60)} is blocked: {many(len(asked), 'request')} without an answer"
    evidence = ("a late answer still counts, and makes the task ready",)
    return VerdictItem("blocked", task.id, VerdictLevel.WAITING, sentence, typed("why", task.id), evidence=evidence)


# --- what needs a human -----------------------------------------------------------------------------------------------


async def _questions(readings: StoreReadings) -> Check:
    """What only a human can decide."""
    asked = [question for question in readings.questions if question.dismissed_at is None]
    fine = "no question is open"
    concerns = tuple(_question(question, readings.now) for question in asked)
    return Check("questions", fine, concerns, {"open": len(readings.questions)})


def _question(question: Question, now: Millis) -> VerdictItem:
    who = "You were asked" if question.asked_by == "allswell" else f"{clean(question.asked_by, 40)} asked you"
    sentence = f"{who} {ago(question.asked_at, now)}: {quoted(without_output(question.text))}"
    answer = typed("answer", question.id, "OPTION")
    look_at = typed("why", question.id)
    return VerdictItem("question", question.id, VerdictLevel.NEEDS_HUMAN, sentence, answer, question.asked_at, look_at)


async def _failures(readings: StoreReadings) -> Check:
    """What failed since yesterday and was neither retried nor dismissed."""
    failed = await _failed(readings.views, readings.now) if readings.counts.get(State.FAILED) else []
    skipped = await skipped_for(readings.views) if failed and readings.counts.get(State.SKIPPED) else set()
    concerns = tuple(_failure(row, readings.now, others=row.task.id in skipped) for row in failed)
    return Check("failures", "nothing failed since yesterday", concerns)


async def _failed(store: Views, now: int) -> list[TaskRow]:
    """What failed lately, the newest first."""
    found: list[TaskRow] = []
    after = ""
    for _ in range(FAILED_MOST // PAGE):
        page = await store.view_tasks(TaskFilter(states=(State.FAILED.value,), after=after, limit=PAGE))
        lately = [row for row in page if (row.task.ended_at or 0) > now - RECENT]
        found += [row for row in lately if row.task.record.retried_as is None and not is_dismissed(row.task)]
        if len(page) < PAGE:
            break
        after = page[-1].task.id
    if any(row.task.run is not None for row in found):  # what another run has done since is no news
        gone_on = {run.id for run in await store.view_runs() if run.continued_in is not None}
        found = [row for row in found if row.task.run not in gone_on]
    return sorted(found, key=lambda row: -(row.task.ended_at or 0))


def _failure(row: TaskRow, now: Millis, *, others: bool) -> VerdictItem:
    task = row.task
    sentence = f"{quoted(task.name, 60)} failed {ago(task.ended_at or now, now)}: {clean(task.record.reason)}"
    command, look_at = mending_command(task, others=others), typed("why", task.id)
    return VerdictItem("failed", task.id, VerdictLevel.NEEDS_HUMAN, sentence, command, task.ended_at, look_at)


async def _stopped(readings: StoreReadings) -> Check:
    """Commands, flows and builds that were stopped and that no process carries on."""
    views = readings.views
    concerns: list[VerdictItem] = []
    if readings.counts.get(State.READY):
        concerns += [_stopped_command(row) for row in await _commands_to_resume(views)]
        concerns += [_stopped_flow(row) for row in await _flows_to_resume(views)]
        concerns += [_stopped_build(*build) for build in await _builds_to_resume(views)]
    return Check("stopped", "no unfinished work was left behind", tuple(concerns))


async def _commands_to_resume(store: Views) -> list[TaskRow]:
    """Commands under watch that no process runs any more: no agent takes them by itself."""
    which = TaskFilter(open=True, role=RUN_ROLE, states=(State.READY.value,), limit=PAGE)
    rows = await store.view_tasks(which)
    return [row for row in rows if row.task.record.handover is not None and not is_dismissed(row.task)]


async def _flows_to_resume(store: Views) -> list[TaskRow]:
    """For each flow that was cut off and that no process runs any more: a step that waits to be done again."""
    which = TaskFilter(open=True, role=STEP_ROLE, states=(State.READY.value,), limit=PAGE)
    rows = {row.task.run: row for row in await store.view_tasks(which) if row.task.record.handover is not None}
    held = [await store.view_tasks(TaskFilter(run=run, states=(State.HELD.value,), limit=1)) for run in rows]
    return [row for row, others in zip(rows.values(), held, strict=True) if not others]


async def _builds_to_resume(store: Views) -> list[tuple[TaskRow, str, str]]:
    """Builds that were coordinated, and are not any more; with their names, and what starts them again."""
    which = TaskFilter(open=True, role=BUILD_ROLE, states=(State.READY.value,), limit=PAGE)
    found: list[tuple[TaskRow, str, str]] = []
    for row in await store.view_tasks(which):
        run = None if row.task.run is None else await store.view_run(row.task.run)
        if run is not None and row.task.record.token and not is_dismissed(row.task):
            key = command_key(run.id)
            found.append((row, run.name, (await store.view_kept(key)).get(key, "")))
    return found


def _stopped_command(row: TaskRow) -> VerdictItem:
    task = row.task
    sentence = f"{quoted(task.name, 60)} is not finished{_last_attempt(task, 'the last attempt')}"
    command, look_at = resume_command(task.id), typed("why", task.id)
    return VerdictItem("stopped", task.id, VerdictLevel.NEEDS_HUMAN, sentence, command, None, look_at)


def _stopped_flow(row: TaskRow) -> VerdictItem:
    task = row.task
    run = RunId(task.run or "")
    how = _last_attempt(task, f"the last attempt at {quoted(task.name, 40)}")
    sentence = f"The flow of {run} is not finished{how}"
    return VerdictItem("stopped", run, VerdictLevel.NEEDS_HUMAN, sentence, resume_flow(run), None, typed("why", run))


def _last_attempt(task: Task, which: str) -> str:
    handover = task.record.handover
    return "" if handover is None else f": {which} {outcome(handover.reason, handover.message)}"


def _stopped_build(row: TaskRow, name: str, command: str) -> VerdictItem:
    run = row.task.run or ""
    sentence = f"No coordinator runs the build {quoted(name, 60)}: start it again, with the same spec"
    again = clean(command, _COMMAND) or typed("coordinate", "SPEC", "--chat", "URL")
    return VerdictItem(
        "stopped", run, VerdictLevel.NEEDS_HUMAN, sentence, again, None, typed("show", run or row.task.id)
    )


# --- sinks and followers ---------------------------------------------------------------------------------------------


async def _followers(readings: StoreReadings) -> Check:
    """Followers of the journal that have stopped reading."""
    views, now, sinks = readings.views, readings.now, readings.place.sinks
    cursors = await views.view_cursors()
    late: list[tuple[Millis, str]] = []
    for follower, position in sorted(cursors.items()):
        unread = await views.journal(position, 1)
        if unread and now - unread[0].at > readings.place.tolerance.behind:
            late.append((unread[0].at, follower))
    fine = (
        f"{many(len(cursors), 'follower')} of the journal, none behind" if cursors else "no program follows the journal"
    )
    return Check("followers", fine, tuple(_behind(since, name, sinks, now) for since, name in sorted(late)))


def _behind(since: Millis, follower: str, sinks: Collection[str] | None, now: Millis) -> VerdictItem:
    sink = sink_of(follower)
    sentence = f"{clean(follower, 40)} behind by {rough(now - since)}; start the program that follows it again"
    sentence += ", or forget it" if sink is None else ""
    command = typed("sinks", "forget", follower) if sink is None else typed("sinks", "run")
    if sink is not None and sinks is not None and sink not in sinks:
        sentence = f"the sink {clean(sink, 40)} gets no more messages: it is not set up here"
        command = typed("sinks", "forget", sink)
    data = {"behind": [{"follower": follower, "since_at": since}]}
    return VerdictItem("follower", follower, VerdictLevel.NEEDS_HUMAN, sentence, command, since, data=data)


async def _sinks(readings: StoreReadings) -> Check:
    """Sinks that cannot deliver."""
    left = await readings.views.view_deliveries(DeliveryFilter(limit=PAGE))
    failing = [delivery for delivery in left if delivery.tries or delivery.given_up]
    concerns: list[VerdictItem] = []
    for sink in dict.fromkeys(delivery.sink for delivery in failing):
        own = [delivery for delivery in failing if delivery.sink == sink]
        given_up = sum(delivery.given_up for delivery in own)
        sentence = f"{clean(sink, 40)} cannot deliver: {clean(own[0].reason, 80)}"
        sentence += f"; {many(given_up, 'delivery', 'deliveries')} given up" if given_up else ""
        data = {"failing": len(own) - given_up, "given_up": given_up}
        retry, level = (
            typed("deliveries", "retry", "--sink", sink),
            VerdictLevel.NEEDS_HUMAN if given_up else VerdictLevel.WAITING,
        )
        concerns.append(VerdictItem("delivery", sink, level, sentence, retry, None, typed("deliveries"), data=data))
    fine = "no message to a sink fails"
    return Check("sinks", fine, tuple(concerns), {"failing": 0, "given_up": 0})


_CHECKS: Iterable[Callable[[StoreReadings], Awaitable[Check | None]]] = (
    _accounted,
    _sweeper,
    _leases,
    _agents,
    _supervisors,
    _survivors,
    _clocks,
    _pool,
    _services,
    _questions,
    _failures,
    _stopped,
    _requests,
    _followers,
    _sinks,
    _disk,
    _settings,
)
"""In the order in which they are shown; a check that returns None has nothing to look at."""

"""What `allswell watch` shows: problems first, then questions, agents and tasks, each as a short row.

A bounded number of rows is read, however much there is; each has what comes next for it, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from allswell.domain.ids import Millis, TaskId
from allswell.domain.question import Question, without_output
from allswell.domain.task.model import DEFAULT, OPEN_STATES, folded
from allswell.engine.status import agents
from allswell.engine.status.agents import AgentRow, AgentsOverview
from allswell.engine.status.explanation import clean, length, many, quoted, typed
from allswell.engine.status.overview import EACH, BoardLine, board
from allswell.engine.status.services import named
from allswell.engine.status.task import ASKING, OWING, STALLED, STUCK
from allswell.engine.status.verdict import ANYWHERE, LocalFacts, Verdict, VerdictItem, VerdictLevel
from allswell.store.views import Views
from allswell.timing.moment import moment

HELD_MOST = 500
"""How many tasks are looked at for who holds them."""
NEEDS_MOST = 200
QUESTIONS_MOST = 200
_NAMES = {"clock": "the clock", "overdue": "time limits", "disk": "the disk"}


class LiveSection(StrEnum):
    """Where a row stands, in the order of the parts."""

    PROBLEM = "problems"
    QUESTION = "questions"
    AGENT = "agents"
    TASK = "tasks"


class LiveRow(msgspec.Struct, frozen=True):
    """One thing that can be chosen."""

    part: LiveSection
    id: str
    """Of what it is about; with its part, the same for as long as it is shown."""
    name: str
    state: str
    who: str = ""
    progress: float | None = None
    note: str = ""
    since: int | None = None
    due: int | None = None
    ahead: str = ""
    """What comes next, at `due` where that is known."""
    task: str | None = None
    question: str | None = None
    command: str = ""
    """What to type about it."""

    @property
    def key(self) -> tuple[LiveSection, str]:
        """What tells it from all others."""
        return self.part, self.id


class LiveView(msgspec.Struct, frozen=True):
    """All that is shown."""

    now: Millis
    verdict: Verdict
    rows: tuple[LiveRow, ...]
    unseen: int | None = 0
    """How many open tasks there are beside those that are shown; None: not known, but there are some."""


async def live(
    views: Views,
    text: str = "",
    each: int = EACH,
    *,
    threshold: int = DEFAULT.stall_threshold,
    place: LocalFacts = ANYWHERE,
) -> LiveView:
    """Read what is to be shown; with a `text`, only what has it, and tasks that have ended, too."""
    wanted = folded(text.strip())
    seen = await board(views, wanted, each, place)
    over = seen.verdict
    asked = await views.view_questions(limit=QUESTIONS_MOST)
    people = await agents.look(views, place.agents, threshold, place.has_died, HELD_MOST)
    idle = {member.task: member for member in people.members if member.idle_at is not None}
    lines = {line.task: _sooner(line, idle.get(line.task)) for line in seen.lines}
    others = [*_problems(over, lines), *_questions(asked, lines), *_agents(people, lines)]
    about = {one.task: one.id for one in asked if one.waited}
    tasks = [_task(line, about.get(TaskId(line.task))) for line in lines.values()]
    shown = [row for row in others if _has(row, wanted)]
    return LiveView(over.now, over, (*shown, *tasks), _unseen(over, tasks, wanted, each))


def _sooner(line: BoardLine, holder: AgentRow | None) -> BoardLine:
    """A task's line with what its supervisor does to its agent, where that comes before all that the lease says."""
    if holder is None or holder.idle_at is None or (line.due is not None and line.due <= holder.idle_at):
        return line
    since = "" if holder.proof_at is None else f" ({length(holder.idle_at - holder.proof_at)} without progress)"
    return msgspec.structs.replace(
        line, due=moment(holder.idle_at), ahead=f"is ended as idle{since}, unless it shows progress"
    )


def _has(row: LiveRow, wanted: str) -> bool:
    said = (row.name, row.id, row.who, row.note, row.state, row.task or "")
    return not wanted or wanted in folded("\n".join(said))


def _unseen(over: Verdict, tasks: list[LiveRow], wanted: str, each: int) -> int | None:
    if wanted:
        return None if len(tasks) >= each else 0
    return max(sum(over.counts.get(state, 0) for state in OPEN_STATES) - len(tasks), 0)


def _task(line: BoardLine, question: str | None = None) -> LiveRow:
    return LiveRow(
        LiveSection.TASK,
        line.task,
        line.name,
        line.shown,
        line.who,
        line.progress,
        line.note,
        line.since,
        line.due,
        "waits for your answer" if question is not None else line.ahead.removeprefix(f"{line.who} "),
        line.task,
        question,
        typed("why", line.task),
    )


# --- problems ---------------------------------------------------------------------------------------------------------


def _problems(over: Verdict, lines: dict[str, BoardLine]) -> Iterator[LiveRow]:
    """What is wrong: first the items of the verdict, then open tasks in trouble that it does not name."""
    told = [need for need in over.concerns if not _has_own_row(need)][:NEEDS_MOST]
    yield from (_need(need, lines) for need in told)
    named = {need.id for need in told}
    for line in lines.values():
        if line.trouble >= OWING and line.trouble != ASKING and line.task not in named:
            yield msgspec.structs.replace(_task(line), part=LiveSection.PROBLEM, note=_trouble(line))


def _trouble(line: BoardLine) -> str:
    """What is wrong with an open task, as a sentence: its agent's last words are not that."""
    name = quoted(line.name, 60)
    if line.trouble in (OWING, STALLED) and line.who:
        return f"{line.who} {'is stalled' if line.trouble == STALLED else 'does not answer'}; it holds {name}"
    return f"{name} is overdue" if line.trouble < STUCK else f"{name} is open, and nothing will ever move it"


def _has_own_row(need: VerdictItem) -> bool:
    """Whether other rows tell it: questions stand apart, and so do tasks that are blocked or that wait for an agent."""
    if need.kind == "unclaimed":
        return need.level is VerdictLevel.WAITING
    return need.kind in ("question", "missed", "blocked")


def _need(need: VerdictItem, lines: dict[str, BoardLine]) -> LiveRow:
    about = lines.get(need.id)
    return LiveRow(
        LiveSection.PROBLEM,
        need.id or need.kind,
        need.what if about is None else about.name,
        need.kind,
        _NAMES.get(need.kind, "") if about is None else about.who,
        note="" if about is None else need.what,
        since=need.since,
        due=None if about is None else about.due,
        ahead="" if about is None else about.ahead,
        task=need.id if need.id.startswith("t_") else None,
        command=need.command,
    )


# --- questions --------------------------------------------------------------------------------------------------------


def _questions(asked: list[Question], lines: dict[str, BoardLine]) -> list[LiveRow]:
    """Those that were not dismissed first."""
    return [_question(one, lines) for one in sorted(asked, key=lambda one: one.dismissed_at is not None)]


def _question(one: Question, lines: dict[str, BoardLine]) -> LiveRow:
    line = lines.get(one.task or "")
    about = named(one.service) if one.service else (one.task or "" if line is None else line.name)
    who = "" if one.asked_by == "allswell" else clean(one.asked_by, 40)
    return LiveRow(
        LiveSection.QUESTION,
        one.id,
        clean(without_output(one.text)),
        "dismissed" if one.dismissed_at is not None else "asked",
        who,
        note=clean(about, 60),
        since=one.asked_at,
        ahead="what waits for it still waits" if one.dismissed_at is not None else "waits for you",
        task=one.task,
        question=one.id,
        command=typed("why", one.id),
    )


# --- agents -----------------------------------------------------------------------------------------------------------


def _agents(people: AgentsOverview, lines: dict[str, BoardLine]) -> Iterator[LiveRow]:
    for one in people.members:
        due, ahead = _next(one, lines.get(one.task or ""))
        said = one.note or one.waits or one.evidence
        missed = "" if not one.misses else f"{many(one.misses, 'check-in')} missed of {one.threshold}; "
        yield LiveRow(
            LiveSection.AGENT,
            one.agent if one.task is None else f"{one.agent} {one.task}",
            clean(one.agent, 60),
            f"{one.state}, degraded" if one.degraded else one.state,
            "" if one.name is None else clean(one.name, 120),
            one.progress,
            clean(f"{missed}{said}"),
            one.proof_at,
            due,
            ahead,
            one.task,
            command="allswell agents",
        )


def _next(one: AgentRow, line: BoardLine | None) -> tuple[int | None, str]:
    """What comes next for an agent: what it waits for, or what comes next for its task."""
    if one.task is None:
        return one.waits_until, "" if one.waits is None else clean(one.waits, 120)
    if line is None or line.due is None:
        return one.deadline, "" if one.deadline is None else "its limit is reached"
    return line.due, line.ahead.removeprefix(f"{clean(one.agent, 40)} ")

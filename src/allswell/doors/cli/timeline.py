"""A night on one page: who held what and how it ended, as a picture in a single file that needs no network.

There is a lane for each task. A bar is an attempt, named after its agent, or a question before a human; its colour and
sign say how it ended; a dot is an event. A name that does not fit its bar is left to the card below, which has it in
full. Everything that came from outside is escaped, and the page may load nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

import msgspec

from allswell.domain.journal import Entry
from allswell.domain.question import Question
from allswell.domain.task import Attempt, Task
from allswell.engine.explaining.ended import outcome
from allswell.engine.explaining.telling import tell
from allswell.engine.explaining.words import clean, length

_SIGNS = {"good": "✓", "bad": "✗", "asked": "?", "back": "↩"}
_MEANINGS = {
    "good": "finished",
    "bad": "crashed, hung, timed out or failed; of one that died, as long as its lease still ran",
    "asked": "waits for a human",
    "back": "given back or called off",
}
_POINTS = {
    "task_checked_in": "a check-in",
    "checkpoint_timeout": "a check-in that was missed",
    "late_result": "came back too late: refused, and kept",
    "question_answered": "the answer",
}
_STEPS = (
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    21_600_000,
    86_400_000,
)
_TICKS_MOST = 10
_SCREEN_PX, _TELEPHONE_PX = 820, 330
"""How wide a lane is on a screen and on a telephone."""
_SIGN_PX, _LETTER_PX = 32, 8
"""What the sign of a bar takes with its margins, and a letter of its name."""


def _legend() -> Iterable[str]:
    for kind, words in _MEANINGS.items():
        yield f'<li><b class="{kind}">{_SIGNS[kind]}</b> {words}</li>'
    for kind, words in _POINTS.items():
        yield f'<li><span class="dot {kind}"></span> {words}</li>'


class Night(msgspec.Struct, frozen=True):
    """What the page shows."""

    title: str
    verdict: str
    well: bool
    tasks: Sequence[Task]
    attempts: Sequence[Attempt]
    questions: Sequence[Question]
    entries: Sequence[Entry]


class _Bar(msgspec.Struct, frozen=True):
    start: int
    end: int
    style: str
    label: str
    title: str


def page(night: Night) -> str:
    """The page, whole."""
    moments: list[int] = [entry.at for entry in night.entries] or [task.created_at for task in night.tasks] or [0]
    start, end = min(moments), max((*moments, *(one.ended_at for one in night.attempts), min(moments) + 1))
    template = Template(files("allswell.doors.cli").joinpath("timeline.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=_safe(night.title),
        verdict=_safe(night.verdict),
        well="well" if night.well else "unwell",
        ticks=_ticks(start, end),
        lanes="".join(_lanes(night, start, end)),
        legend="".join(_legend()),
        tasks="".join(_task(task, night, start) for task in night.tasks),
        took=_safe(length(end - start)),
    )


def _safe(text: str) -> str:
    return escape(clean(text, 600), quote=True)


def style_of(ended: str) -> str:
    """The kind of an attempt's end, which gives it its colour and its sign."""
    if ended == "done":
        return "good"
    if ended == "asked":
        return "asked"
    return "back" if ended in ("released", "parked", "cancelled", "skipped", "split") else "bad"


def _lanes(night: Night, start: int, end: int) -> Iterable[str]:
    for task in night.tasks:
        bars = [
            _Bar(
                one.granted_at,
                one.ended_at,
                style_of(one.outcome),
                one.agent,
                f"attempt {one.token}, {length(one.ended_at - one.granted_at)}:"
                f" {one.agent} {outcome(one.outcome, one.detail)}",
            )
            for one in night.attempts
            if one.task == task.id
        ]
        bars += [
            _Bar(
                one.asked_at,
                one.closed_at or end,
                "asked",
                one.answered_by or "you",
                f"{one.asked_by} asked: {one.text} {_answer(one)}",
            )
            for one in night.questions
            if one.task == task.id
        ]
        marks = [one for one in night.entries if one.event.task == task.id and one.event.kind in _POINTS]
        yield _lane(task.name, bars, marks, start, end)


def _answer(question: Question) -> str:
    if question.closed_at is None:
        return "Not answered yet."
    return f"{question.answered_by or 'A human'} answered: {question.answer or question.choice}"


def _lane(name: str, bars: Sequence[_Bar], marks: Sequence[Entry], start: int, end: int) -> str:
    """A lane; bars that overlap lie below each other."""
    rows: list[list[_Bar]] = []
    for bar in sorted(bars, key=lambda one: one.start):
        row = next((row for row in rows if row[-1].end <= bar.start), None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    drawn = "".join(f'<div class="row">{"".join(_bar(bar, start, end) for bar in row)}</div>' for row in rows)
    dots = "".join(_dot(one, start, end) for one in marks)
    return (
        f'<div class="lane"><h3>{_safe(name)}</h3><div class="track">{drawn}<div class="dots">{dots}</div></div></div>'
    )


def _at(moment: int, start: int, end: int) -> str:
    return f"{(moment - start) / (end - start) * 100:.3f}%"


def _bar(bar: _Bar, start: int, end: int) -> str:
    wide = f"{max(bar.end - bar.start, 0) / (end - start) * 100:.3f}%"
    where = f"left:{_at(bar.start, start, end)};width:{wide}"
    label = f"<i>{_SIGNS[bar.style]}</i> <span>{_safe(bar.label)}</span>"
    fits = _fits(bar, (bar.end - bar.start) / (end - start))
    return f'<div class="bar {bar.style}{fits}" style="{where}" title="{_safe(bar.title)}">{label}</div>'


def _fits(bar: _Bar, share: float) -> str:
    """Where a bar has no room for its name: on a telephone, or on any screen."""
    needed = _SIGN_PX + _LETTER_PX * len(clean(bar.label, 600))
    return " speck" if needed > share * _SCREEN_PX else " narrow" if needed > share * _TELEPHONE_PX else ""


def _dot(entry: Entry, start: int, end: int) -> str:
    title = f"{(entry.at - start) / 1000:.2f} s: {tell(entry.event)}"
    where = f"left:{_at(entry.at, start, end)}"
    return f'<span class="dot {_safe(entry.event.kind)}" style="{where}" title="{_safe(title)}"></span>'


def _ticks(start: int, end: int) -> str:
    span = end - start
    step = next((step for step in _STEPS if span / step <= _TICKS_MOST), span // _TICKS_MOST or 1)
    moments = range(0, span + 1, step)
    return "".join(
        f'<span style="left:{moment / span * 100:.3f}%">{length(moment) if moment else "0"}</span>'
        for moment in moments
    )


def _task(task: Task, night: Night, start: int) -> str:
    # That somebody asked is told once: with the question.
    tried = [one for one in night.attempts if one.task == task.id and one.outcome != "asked"]
    steps = [(one.granted_at, _tried(one, start)) for one in tried]
    steps += [(one.asked_at, _wondered(one, start)) for one in night.questions if one.task == task.id]
    listed = "".join(text for _, text in sorted(steps))
    state = f'<small class="{_safe(task.state)}">{_safe(task.state)}</small>'
    return f"<section><h3>{_safe(task.name)} {state}</h3><ol>{listed}</ol></section>"


def _tried(one: Attempt, start: int) -> str:
    kind = style_of(one.outcome)
    who, how, took = (
        _safe(one.agent),
        _safe(outcome(one.outcome, one.detail)),
        length(one.ended_at - one.granted_at),
    )
    told = f"{_when(one.granted_at, start)} <strong>{who}</strong> {how}{_late(one)} <small>{took}</small>"
    return f'<li class="{kind}"><b>{_SIGNS[kind]}</b> {told}</li>'


def _wondered(one: Question, start: int) -> str:
    who = f"<strong>{_safe(one.asked_by)}</strong> asked: " if one.asked_by else ""
    told = f"{_when(one.asked_at, start)} {who}{_safe(one.text)} <em>{_safe(_answer(one))}</em>"
    return f'<li class="asked"><b>?</b> {told}</li>'


def _when(moment: int, start: int) -> str:
    return f"<time>{(moment - start) / 1000:.1f} s</time>"


def _late(attempt: Attempt) -> str:
    silent = attempt.late is None and attempt.afterwards is None
    return "" if silent else "; it came back later, was refused, and what it brought is kept"

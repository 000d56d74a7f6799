"""What is told about what is chosen: why it stands where it stands, what comes next, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.text import Text

from allswell.domain.expense import Spent
from allswell.domain.names import QuestionId
from allswell.domain.question import Question
from allswell.doors.cli.advice import in_words, typed_here, typed_in
from allswell.doors.cli.render import harmless, plain
from allswell.doors.cli.showing import cost_of
from allswell.engine.explaining.live import LiveRow, Part
from allswell.engine.explaining.shapes import Explanation, Next, Todo
from allswell.engine.explaining.why import why
from allswell.engine.explaining.words import ago, within
from allswell.store.views import Views

_NEXT_MOST = 6


class About(msgspec.Struct, frozen=True):
    """What was read about a row."""

    row: LiveRow
    told: Explanation | None = None
    question: Question | None = None
    spent: Spent | None = None


async def read_about(views: Views, row: LiveRow) -> About:
    """Read it; a bounded number of rows."""
    question = None if row.question is None else await views.view_question(QuestionId(row.question))
    if row.part is Part.QUESTION or row.task is None:
        return About(row, question=question)
    told = typed_in(await why(views, row.task))
    spent = (await views.view_spent("task", (row.task,))).get(row.task)
    return About(row, told, question, spent)


def in_text(about: About, now: int) -> Text:
    """All of it in words; whatever came from outside is data."""
    row, text = about.row, Text()
    text.append(plain(_title(about)), "bold").append(f"  {plain(row.question or row.task or '')}\n", "dim")
    if row.part is Part.AGENT and row.note:
        seen = "" if row.since is None else f" ({ago(row.since, now)})"
        text.append(f"{plain(row.note)}{seen}\n")
    if about.question is not None:
        _add_question(text, about.question, now)
    if about.told is not None:
        for link in about.told.chain[:4]:
            text.append("\n".join(plain(in_words(said)) for said in link.says or (link.state,)) + "\n")
        _add_next(text, _with_row(about.told.next, row), now)
        if about.spent is not None:
            text.append(f"Cost so far: {cost_of(about.spent)}\n")
        _add_todo(text, about.told.todo)
    elif about.question is None and row.command:
        _add_todo(text, (Todo("Type", typed_here(row.command)),))
    return text


def _title(about: About) -> str:
    row = about.row
    match row.part:
        case Part.AGENT:
            return f"{row.name} is {row.state}"
        case Part.QUESTION:
            return row.note
        case _:
            return row.name if about.told is None else about.told.name


def _add_question(text: Text, question: Question, now: int) -> None:
    by = "" if question.asked_by == "allswell" else f" by {plain(question.asked_by)}"
    text.append(f"Asked{by} {ago(question.asked_at, now)}:\n", "dim")
    text.append(f"{harmless(question.text)}\n")
    if question.dismissed_at is not None:
        text.append(f"{plain(question.dismissed_by)} has dismissed it; it stays open.\n", "dim")
    for option in question.options:
        text.append(f"  {plain(option.key)}", "cyan").append(f"  {plain(option.label)}\n")


def _with_row(nexts: Sequence[Next], row: LiveRow) -> list[Next]:
    """What comes next, with what the row says of it: a supervisor may see more than the store does."""
    routine = [one for one in nexts if not one.routine]
    known = row.due is None or any(one.at == row.due for one in nexts)
    return routine if known else [Next(row.due, f"{row.who if row.part is Part.TASK else 'it'} {row.ahead}"), *routine]


def _add_next(text: Text, nexts: Sequence[Next], now: int) -> None:
    if nexts:
        text.append("Next\n", "bold")
    for one in nexts[:_NEXT_MOST]:
        when = "then" if one.at is None else within(one.at, now)
        text.append(f"  {when:<10}", "cyan").append(f"{plain(in_words(one.what))}\n")


def _add_todo(text: Text, todo: Sequence[Todo]) -> None:
    if todo:
        text.append("You could\n", "bold")
    for one in todo:
        text.append(f"  {plain(one.what)}: ").append(f"{plain(one.command)}\n", "cyan")

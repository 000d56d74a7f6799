"""What somebody does from the live view, through the same calls of the watch as the commands of these names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from allswell.domain.question import Question, Takes, takes
from allswell.doors.cli.parameter import with_unit
from allswell.doors.cli.people import deciding
from allswell.doors.cli.watching.decision_screen import Choice
from allswell.engine.explaining.words import many, quoted
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.task import Task
    from allswell.doors.cli.frame import Frame
    from allswell.engine.explaining.live import LiveRow
    from allswell.engine.watch import Watch

_ENTRIES = {
    Takes.WORDS: "your words",
    Takes.REMARK: "something to add, or nothing",
    Takes.TASKS: "the smaller tasks, by name, with ; between them",
    Takes.TIME: "how long, such as 30m; nothing: twice as long",
    Takes.MONEY: "how many dollars in all; nothing: twice as much",
}
LEAVE = Choice("", "Leave it as it is")


def choices_of(question: Question) -> list[Choice]:
    """The options of a question, each with what may be said with it."""
    return [Choice(option.key, option.label, _ENTRIES[takes(option.act)]) for option in question.options]


class Deeds:
    """Does what was decided, and says what came of it. Whatever runs inside an attempt is refused, as everywhere."""

    def __init__(self, watch: Watch, frame: Frame) -> None:
        self._watch = watch
        self._frame = frame

    async def answer(self, question: Question, key: str, words: str) -> str:
        """Decide a question."""
        self._frame.for_humans("answer")
        wanted = {option.key: takes(option.act) for option in question.options}[key]
        text = words if wanted in (Takes.WORDS, Takes.REMARK) else ""
        parts = [{"name": one.strip()} for one in words.split(";") if one.strip()] if wanted is Takes.TASKS else []
        await self._watch.answer(
            question.id,
            key,
            text,
            subtasks=parts,
            timeout=with_unit(words.strip()) if wanted is Takes.TIME and words.strip() else None,
            max_cost_usd=_dollars(words) if wanted is Takes.MONEY and words.strip() else None,
            by=deciding(None),
        )
        await self._watch.sweep_once()
        return f"Answered: {key}"

    async def cancel(self, task: Task, reason: str) -> str:
        """Call a task off."""
        self._frame.for_humans("cancel")
        await self._watch.cancel(task.id, reason.strip() or "cancelled")
        await self._watch.sweep_once()
        return f"{quoted(task.name, 60)} is called off"

    async def retry(self, task: Task, *, dependents: bool) -> str:
        """Hand a task over again, even if it is done: whoever chose that was told so."""
        self._frame.for_humans("retry")
        made = await self._watch.retry(task.id, dependents=dependents, again=True, by=deciding(None))
        first, *others = made.values()
        more = f", with {many(len(others), 'task')} that needed it" if others else ""
        return f"It is handed over again, as {first}{more}"

    async def dismiss(self, row: LiveRow) -> str:
        """Note that it was seen: the question, or how the task ended."""
        self._frame.for_humans("dismiss")
        about = row.question or row.task
        if about is None:
            raise Refused("not_a_task", "only a question or a task can be dismissed", where="row")
        await self._watch.dismiss(about, deciding(None))
        return "It stays open, and is not told any more" if row.question else "It is not told any more"


def retry_choices(*, done: bool) -> Sequence[Choice]:
    """How a task can be handed over again."""
    first = "It is done: hand it over once more" if done else "Hand it over again"
    return [Choice("retry", first), Choice("all", "… with what was skipped because of it"), LEAVE]


def _dollars(words: str) -> float:
    try:
        return float(words.strip().removeprefix("$"))
    except ValueError:
        raise ValueError(f"{words.strip()!r} is no amount of dollars, such as 2.50") from None

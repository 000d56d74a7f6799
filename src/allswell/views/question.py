"""A question for a human, open or closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.question import DESTRUCTIVE, AnswerAction, Option, Question, does, in_order
from allswell.timing.moment import Moment
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.store.views import Views
    from allswell.views.artifacts import Artifacts


class OptionShape(Struct, frozen=True):
    """One way to answer, and what it does."""

    key: str
    label: str
    act: AnswerAction
    does: str
    """The act in words: a label may be an agent's word."""
    destructive: bool
    """Whether it ends work without its being done: a client asks once more before it sends that."""

    @classmethod
    def of(cls, option: Option) -> OptionShape:
        """An option as it is offered."""
        return cls(option.key, option.label, option.act, does(option.act), option.act in DESTRUCTIVE)


class QuestionShape(Struct, frozen=True):
    """A question about a task, a service or a message; how it was answered is null or empty while it is open."""

    question_id: str
    task_id: str | None
    service: str | None
    queue: str | None
    message_id: int | None
    run_id: str | None
    kind: str
    text: str
    options: list[OptionShape]
    asked_at: Moment
    asked_by: str
    closed_at: Moment | None
    choice: str | None
    answer: str
    answered_by: str
    dismissed_at: Moment | None
    """When it was marked as seen; it is open all the same."""
    dismissed_by: str

    @classmethod
    def of(cls, asked: Question) -> QuestionShape:
        """A question as it stands."""
        queue, message = asked.message or (None, None)
        return as_shape(
            asked,
            cls,
            question_id=asked.id,
            task_id=asked.task,
            run_id=asked.run,
            queue=queue,
            message_id=message,
            options=[OptionShape.of(option) for option in in_order(asked.options)],
        )


class QuestionsShape(Struct, frozen=True):
    """Several of them, the oldest first; about those among `untold` no alert has gone out."""

    questions: list[QuestionShape]
    untold: list[str]


async def load_questions(views: Views, artifacts: Artifacts, most: int, *, open_only: bool) -> QuestionsShape:
    """The questions that wait for a human, or all."""
    asked = await views.view_questions(open_only=open_only, limit=most)
    return QuestionsShape([QuestionShape.of(question) for question in asked], await artifacts.untold(views, asked))


class DecidedShape(Struct, frozen=True):
    """A question was answered with this option."""

    question_id: str
    choice: str

"""Questions as cards: the ways to answer, what each of them takes, and what its task printed last."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.question import Act, Option
from allswell.doors.http.call import Call
from allswell.doors.page.output import last_lines
from allswell.engine.explaining.front import OpenQuestion

_LAST_LINES = 6
_TAKES = {
    Act.CLARIFY: "text",
    Act.REPLY: "text",
    Act.SPLIT: "parts",
    Act.INCREASE_TIMEOUT: "time",
    Act.INCREASE_IDLE: "time",
    Act.INCREASE_COST: "cost",
}
"""What an option takes beside its button."""


class ShownOption(Struct, frozen=True):
    """A way to answer, and what it takes: nothing, a text, names of smaller tasks, a length of time, or money."""

    option: Option
    takes: str | None


class ShownQuestion(Struct, frozen=True):
    """A question as a card."""

    asked: OpenQuestion
    options: list[ShownOption]
    output: list[str]
    """What its task printed last."""


def show_question(call: Call, one: OpenQuestion) -> ShownQuestion:
    """A question with what one must know to answer it."""
    options = [ShownOption(option, _TAKES.get(option.act)) for option in one.question.options]
    output = [] if one.task is None else last_lines(call.house.home, one.task.task, _LAST_LINES)
    return ShownQuestion(one, options, output)

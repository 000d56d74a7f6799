"""What has come of questions to humans and of requests to other agents."""

from __future__ import annotations

from msgspec import Struct

from allswell.doors.shapes.question import QuestionShape
from allswell.doors.shapes.request import RequestedShape


class AnswersShape(Struct, frozen=True):
    """Questions and requests as they stand; one that nobody has answered yet is open, and its answer null or empty."""

    questions: list[QuestionShape]
    requests: list[RequestedShape]

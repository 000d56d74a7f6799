"""What only a human can mend about a service: a key that is refused, a quota that is used up, a limit without end (F7).

A guard that gives up for such a cause asks, once per service and cause, however many calls and processes meet it: the
service's row knows which question is open about which cause. It is no failure of the service and moves no breaker.

The question stays until somebody answers it. It is not withdrawn when a call goes well: two programs with two keys
share a service, and a question that came and went with each of their calls would be worse than one too many.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.classify import shortened
from allswell.domain.command import AskForHelp
from allswell.domain.event import Event
from allswell.domain.names import Millis, QuestionId, service_question_id
from allswell.domain.question import Act, Option, Question
from allswell.domain.retry import ErrorClass
from allswell.domain.service import ServiceRow
from allswell.errors import Bug, Refused

KIND = "service_needs_help"
"""The kind of the question about a cause."""
QUIET = 3_600_000
"""For so long nobody is asked about a cause that a human has put off."""
_MESSAGE_SHOWN = 300

WHAT: dict[ErrorClass, str] = {
    ErrorClass.AUTH: "refuses who we say we are",
    ErrorClass.PERMANENT: "refuses this account (a quota, a suspension, a certificate)",
    ErrorClass.RATE_LIMIT: "goes on saying that it is called too often",
}
OPTIONS = (
    Option("mended", "It is mended: go on, and ask again if it happens again", Act.PROBE),
    Option("later", "Ask again in an hour, if it still happens", Act.QUIET),
)


def ask(row: ServiceRow, command: AskForHelp, now: Millis) -> tuple[ServiceRow, Question, tuple[Event, ...]] | None:
    """The question about a cause; None where one is open, or a human wants to hear of it later."""
    if command.cause not in WHAT:
        raise Refused("bad_cause", f"{command.cause} is nothing that only a human can mend", where="cause")
    cause = command.cause.value
    if cause in row.causes or now < row.quiet.get(cause, 0):
        return None
    number = row.questions + 1
    said = shortened(command.message).strip()
    said = said if len(said) <= _MESSAGE_SHOWN else said[:_MESSAGE_SHOWN] + "…"
    text = (
        f"Service {row.id} {WHAT[command.cause]}{f' ({said})' if said else ''}. Calls that meet this are given up."
        " How should we proceed?"
    )
    question = Question(service_question_id(row.id, number), None, None, KIND, text, OPTIONS, now, "allswell")
    failing = row.questions if row.state.asked and not row.failing else row.failing
    asked = replace(row, questions=number, failing=failing, causes={**row.causes, cause: number}, command=command.id)
    about = {"question": question.id, "kind": KIND, "text": text, "options": [option.label for option in OPTIONS]}
    told = {"service": row.id, "cause": cause, "reason": command.reason, "question": question.id}
    return asked, question, (Event("service_escalated", data=told), Event("question_asked", data=about))


def answered(row: ServiceRow, question: QuestionId, option: Option, now: Millis) -> ServiceRow:
    """The row after a human's answer about a cause."""
    asked = {service_question_id(row.id, number): cause for cause, number in row.causes.items()}
    if question not in asked:
        raise Bug(f"question {question} is open, and its service knows nothing of it")
    cause = asked[question]
    causes = {name: number for name, number in row.causes.items() if name != cause}
    quiet = {name: until for name, until in row.quiet.items() if name != cause}
    if option.act is Act.QUIET:
        quiet[cause] = Millis(now + QUIET)
    return replace(row, causes=causes, quiet=quiet)

"""What people are alerted to, how urgent it is, and what they read.

An alert has a **cause**: of several with one cause that go out together only the first is told, and a cause that was
told lately is not told again. A question is a cause of its own; a service, an account or a sink that keeps failing is
one cause for as long as it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import show
from allswell.domain.notify.spec import Severity
from allswell.domain.question import Option, does, in_order
from allswell.domain.rules.event import Event
from allswell.domain.values import start_of

DEFAULT_HEARS = (
    *("question_asked", "questions_open", "task_failed", "service_escalated", "breaker_opened", "usage_limit"),
    *("session_paused", "sink_down", "delivery_given_up", "task_blocked_long", "run_silent"),
    "agent_waits",
)
"""What an alerts sink hears of unless it says otherwise."""
AGAIN = 3_600_000
"""A cause is not told again within so many milliseconds."""
REMEMBERED = 500
"""At most so many causes are remembered, the newest."""
LONGEST = 1_500
SHOWN = 10
"""At most so many go out as one message, so that all of them can be read."""


class Alert(msgspec.Struct, frozen=True):
    """One thing to be told."""

    severity: Severity
    cause: str
    title: str
    text: str
    question: str = ""
    """Which question this asks, if it does."""


class AnswerButton(msgspec.Struct, frozen=True):
    """A link that answers a question (ADR 82): the option's label, what choosing it does, and where it leads."""

    label: str
    """May be an agent's word; an alert bounds it, on one line."""
    does: str
    url: str


def with_links(alert: Alert, buttons: Sequence[AnswerButton]) -> Alert:
    """An alert with links below its text."""
    if not buttons:
        return alert
    lines = [f"{button.label} ({button.does}):\n{button.url}" for button in buttons]
    return replace(alert, text="\n".join([alert.text, "", "Or open a link; its page asks you to confirm:", *lines]))


def alert_for(event: Event, name: str, options: Sequence[Option] = ()) -> Alert:
    """What to say about an event; `name` is its task's, or empty, `options` those of the question it asks."""
    if event.kind == "question_asked":
        return _asked(event.data, name, options)
    write = _WRITERS.get(event.kind)
    if write is not None:
        return write(event.data, name)
    said = ", ".join(f"{key} {value}" for key, value in event.data.items() if value not in ("", None))
    title = event.kind.replace("_", " ") + (f": {name}" if name else "")
    return Alert("info", f"{event.kind} {event.task or event.agent or event.run or said}", title, _cut(said))


def sentence(words: str, cause: str, *, urgent: bool = False) -> Alert:
    """A sentence for a channel; what is urgent is said in quiet hours too."""
    return Alert("critical" if urgent else "info", cause, "", words)


def _asked(data: Mapping[str, Any], name: str, options: Sequence[Option]) -> Alert:
    """A question, with the commands that answer it."""
    question = str(data["question"])
    ways = [
        f"  allswell answer {quote(question)} {quote(option.key)}    ({option.label}: {does(option.act)})"
        for option in in_order(options)
    ]
    text = f"{_cut(data['text'])}\n\n" + "\n".join(["Answer with one of:", *ways] if ways else ["allswell questions"])
    return Alert("warning", question, f"A question{f' about {name}' if name else ''}", text, question)


def _failed(data: Mapping[str, Any], name: str) -> Alert:
    text = f"{data['reason']}: {_cut(data['message'])}".removesuffix(": ")
    return Alert("warning", f"failed {name} {data['reason']}", f"Failed: {name}", f"{text}\nallswell why {quote(name)}")


def _open(data: Mapping[str, Any], _: str) -> Alert:
    count = data["count"]
    title = "1 question waits for you" if count == 1 else f"{count} questions wait for you"
    return Alert("warning", "questions open", title, "allswell questions")


def _service(data: Mapping[str, Any], _: str) -> Alert:
    reason = f"\n{_cut(data['reason'])}" if data.get("reason") else ""
    text = f"It needs a human.{reason}\nallswell why {quote(str(data['question']))}"
    return Alert("critical", f"service {data['service']}", f"{data['service']} needs you", text, str(data["question"]))


def _breaker(data: Mapping[str, Any], _: str) -> Alert:
    service = data["service"]
    text = f"{data['failures']} failures in a row; it is not called for a while."
    return Alert("info", f"breaker {service}", f"{service} keeps failing", text)


def _sink(data: Mapping[str, Any], _: str) -> Alert:
    what = "does not accept messages" if "target" in data else "has given a message up"
    text = f"{_cut(data['reason'])}\nallswell deliveries"
    return Alert("warning", f"sink {data['sink']}", f"The sink {data['sink']} {what}", text)


def _blocked_long(data: Mapping[str, Any], name: str) -> Alert:
    """A blocked task that somebody shall look at; each reminder is a cause of its own."""
    lasted = show(int(data["blocked_ms"]))
    text = f"It waits for {data['to']} to answer {data['request']}.\nallswell why {quote(name)}"
    cause = f"blocked {data['request']} {data['count']}"
    return Alert("critical" if data["critical"] else "warning", cause, f"Blocked for {lasted}: {name}", text)


def _waits(data: Mapping[str, Any], name: str) -> Alert:
    """An agent at whose terminal a human is wanted; what it waits for is told once."""
    place = name or str(data["folder"])
    text = _cut(data["text"] or data["kind"])
    return Alert("warning", f"waits {place} {text}", f"An agent waits for you: {place}", text)


def _silent(data: Mapping[str, Any], name: str) -> Alert:
    """A command that has been silent for a while; each time is a cause of its own."""
    lasted = show(int(data["silent_ms"]) // 1_000 * 1_000)
    text = f"{_cut(data['printed'])}; it goes on.\nallswell logs {quote(name)}\nallswell cancel {quote(name)}"
    return Alert("warning", f"silent {name} {lasted}", f"No sign of progress for {lasted}: {name}", text)


_WRITERS: Mapping[str, Callable[[Mapping[str, Any], str], Alert]] = {
    "questions_open": _open,
    "task_failed": _failed,
    "service_escalated": _service,
    "breaker_opened": _breaker,
    "task_blocked_long": _blocked_long,
    "run_silent": _silent,
    "agent_waits": _waits,
    "sink_down": _sink,
    "delivery_given_up": _sink,
}


def _cut(text: object) -> str:
    """As much of a text as an alert shows."""
    return start_of(str(text), LONGEST)


_CALLS_ALL = re.compile(r"(?<=<)(?=[@!#])|(?<=\])(?=\()|@(?=everyone|here|channel|all\b|[!&]?\d)", re.IGNORECASE)
_NOTHING_SHOWN = "\u200b"


def plain_text(text: str) -> str:
    """A text in which no service reads a call to everyone in a channel, or a link under another name."""
    return _CALLS_ALL.sub(lambda found: f"{found[0]}{_NOTHING_SHOWN}", text)


def each_cause_once(alerts: Sequence[Alert]) -> list[Alert]:
    """The alerts in their order, of several with one cause the first."""
    return list({alert.cause: alert for alert in reversed(alerts)}.values())[::-1]


def together(alerts: Sequence[Alert]) -> tuple[str, str]:
    """One message of several: its title and its text, each cause once."""
    distinct = each_cause_once(alerts)
    if not any(alert.title for alert in distinct):  # sentences for a channel, in their order
        return "", "\n".join(alert.text for alert in distinct)
    if len(distinct) == 1:
        return distinct[0].title, distinct[0].text
    shown = [f"{alert.title}\n{alert.text}".strip() for alert in distinct]
    return f"{len(distinct)} things need a look", "\n\n".join(shown)


def worth_telling(alert: Alert, told: Mapping[str, int], now: int) -> bool:
    """Whether it is time to tell a cause, given when each was told last."""
    at = told.get(alert.cause)
    return at is None or abs(now - at) >= AGAIN


def told_now(alert: Alert, told: Mapping[str, int], now: int) -> dict[str, int]:
    """When each cause was told last, after this alert; what is too long ago to matter is forgotten.

    A sentence for a channel is said each time, so it is not remembered.
    """
    if not alert.title:
        return dict(told)
    recent = [(cause, at) for cause, at in told.items() if abs(now - at) < AGAIN and cause != alert.cause]
    return dict([*recent[1 - REMEMBERED :], (alert.cause, now)])

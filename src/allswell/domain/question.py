"""A question: what only a human can decide. It never expires, and each of its options acts (O9).

Most are about a task, which waits for the answer. One about a service (F8) belongs to no task and no run: what waits
for it are the lanes that need the service. Nor does one about a message (W5), which waits outside its queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from allswell.domain.agents.denied import Denied, DeniedCall, call_text, remark
from allswell.domain.duration import show
from allswell.domain.ids import (
    NO_COMMAND,
    CommandId,
    Millis,
    QuestionId,
    RunId,
    TaskId,
    message_of_question,
    service_of_question,
)
from allswell.domain.values import quoted
from allswell.errors import Refused


class AnswerAction(StrEnum):
    """What choosing an option does to the task, or to the service."""

    SPLIT = "split"
    """New subtasks replace the task; dependents wait for all of them."""
    CLARIFY = "clarify"
    """The text is added for the next attempt."""
    INCREASE_TIMEOUT = "increase_timeout"
    """The next attempts get a longer limit."""
    INCREASE_IDLE = "increase_idle"
    """The next attempts may go longer without progress."""
    INCREASE_COST = "increase_cost"
    """The task may cost more."""
    INCREASE_TOKENS = "increase_tokens"
    """The task may use more tokens."""
    INCREASE_BOTH = "increase_both"
    """The task may cost more and use more tokens."""
    ACCEPT = "accept"
    """The task counts as done, with what its holder brought, although that was not verified."""
    SKIP = "skip"
    """The task ends; dependents go on or are skipped, as they are marked."""
    RETRY = "retry"
    """The task goes back to the pool as it is."""
    END_AND_RETRY = "end_and_retry"
    """The attempt is ended, if one is under way, and the next one begins anew."""
    ALLOW = "allow"
    """The task goes back to the pool, and its next attempt may make one call that was refused: that one, no other."""
    REFUSE = "refuse"
    """The task goes back to the pool, and the call that its agent asked about is refused in its next attempt."""
    REPLY = "reply"
    """The text is the answer to what an agent asked."""
    PROBE = "probe"
    """The service is tried again now."""
    WAIT = "wait"
    """The service is tried once per pause, and nobody is asked again before it has recovered."""
    QUIET = "quiet"
    """Nobody is asked again for a while."""
    RETRY_MESSAGE = "retry_message"
    """The message goes back into its queue."""
    CANCEL_MESSAGE = "cancel_message"
    """The message stays out of its queue."""
    COMPLETE_MESSAGE = "complete_message"
    """The message counts as handled."""


AGENTS_ACTS = (AnswerAction.RETRY, AnswerAction.CLARIFY, AnswerAction.REPLY)
"""What an option of an agent's question may do: the task goes on, with or without words.

Limits, cost and fate of a task are changed by the watch's own options alone, under the watch's own labels. A program of
the user's own that holds a task may offer them all."""
DESTRUCTIVE = frozenset((AnswerAction.SKIP, AnswerAction.CANCEL_MESSAGE))
"""What ends work without its being done: never offered first, and asked about once more.

Ends are final, so it is taken back by handing the task over again (task/resubmit.py, `way_back`)."""
MORE_TO_USE = (AnswerAction.INCREASE_COST, AnswerAction.INCREASE_TOKENS, AnswerAction.INCREASE_BOTH)
"""What raises a limit of cost, of tokens, or both."""
SERVICE_ACTS = (AnswerAction.PROBE, AnswerAction.WAIT, AnswerAction.QUIET)
"""What only a question about a service can offer."""


class OptionInput(StrEnum):
    """What somebody may say with an option."""

    WORDS = "words"
    """Words, which it needs."""
    REMARK = "remark"
    """Words, if there is anything to say."""
    TASKS = "tasks"
    """The tasks that come in the place of this one, which it needs."""
    TIME = "time"
    """A length of time; without one, twice the present."""
    MONEY = "money"
    """An amount in dollars; without one, twice the present."""
    TOKENS = "tokens"
    """A number of tokens; without one, twice the present."""


def takes(act: AnswerAction) -> OptionInput:
    """What somebody may say with an option that acts so."""
    match act:
        case AnswerAction.CLARIFY | AnswerAction.REPLY:
            return OptionInput.WORDS
        case AnswerAction.SPLIT:
            return OptionInput.TASKS
        case AnswerAction.INCREASE_TIMEOUT | AnswerAction.INCREASE_IDLE:
            return OptionInput.TIME
        case AnswerAction.INCREASE_COST:
            return OptionInput.MONEY
        case AnswerAction.INCREASE_TOKENS:
            return OptionInput.TOKENS
        case _:
            return OptionInput.REMARK


def does(act: AnswerAction) -> str:
    """What choosing an option does, in a few words: shown beside its label, which may be an agent's."""
    return _DOES[act]


_DOES: Mapping[AnswerAction, str] = {
    AnswerAction.SPLIT: "smaller tasks replace it",
    AnswerAction.CLARIFY: "it goes on, with your words",
    AnswerAction.INCREASE_TIMEOUT: "it goes on with more time",
    AnswerAction.INCREASE_IDLE: "it goes on, and may be silent for longer",
    AnswerAction.INCREASE_COST: "it goes on, and may cost more",
    AnswerAction.INCREASE_TOKENS: "it goes on, and may use more tokens",
    AnswerAction.INCREASE_BOTH: "it goes on, and may cost more and use more tokens",
    AnswerAction.ACCEPT: "it counts as done",
    AnswerAction.SKIP: "it ends without being done",
    AnswerAction.RETRY: "it goes on, with your choice",
    AnswerAction.END_AND_RETRY: "its attempt is ended, and the next one begins anew",
    AnswerAction.ALLOW: "it goes on, and may make this one call",
    AnswerAction.REFUSE: "it goes on without this call",
    AnswerAction.REPLY: "it goes on, with your answer",
    AnswerAction.PROBE: "it is tried again now",
    AnswerAction.WAIT: "it stays shut for now",
    AnswerAction.QUIET: "you are not asked for a while",
    AnswerAction.RETRY_MESSAGE: "the message is handled again",
    AnswerAction.CANCEL_MESSAGE: "the message is dropped for good, and cannot be taken back",
    AnswerAction.COMPLETE_MESSAGE: "the message counts as handled",
}


class Option(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One way to answer."""

    key: str
    label: str
    act: AnswerAction
    call: DeniedCall | None = None
    """Of an option that allows or refuses a call: which one."""


def in_order(options: Sequence[Option]) -> list[Option]:
    """Options as they are offered: what ends work without its being done stands last, and is chosen on purpose."""
    return sorted(options, key=lambda option: option.act in DESTRUCTIVE)


def labelled(option: Option) -> str:
    """An option's label with what choosing it does: the label may be an agent's word, the rest is ours."""
    return f"{option.label} ({_DOES[option.act]})"


def option_of(key: str, label: str) -> Option:
    """An option that an agent offers: one that is called like an act does that, any other one lets the task go on."""
    option = Option(key, label, AnswerAction(key) if key in AGENTS_ACTS else AnswerAction.RETRY)
    check_agents_option(option)
    return option


def check_agents_option(option: Option) -> None:
    """Refuse an option that an agent may not offer: one that acts on more than its own going on, or is called so."""
    meant = AnswerAction(option.key) if option.key in tuple(AnswerAction) else option.act
    for act in (option.act, meant):
        if act not in AGENTS_ACTS:
            text = f"the option {option.key!r} would mean that {_DOES[act]} ({act}); an agent cannot offer that"
            hint = "leave the options out, or name ways for you to go on; a human can always skip the task"
            raise Refused("bad_question", text, where="options", hint=hint)
    if meant is not option.act:
        text = f"the option {option.key!r} is called like the act {meant}, and does another ({option.act})"
        raise Refused("bad_question", text, where="options")


class Question(msgspec.Struct, frozen=True, gc=False):
    """One question, open until it is answered or withdrawn."""

    id: QuestionId
    task: TaskId | None
    """None where it is about a service."""
    run: RunId | None
    kind: str
    text: str
    options: tuple[Option, ...]
    asked_at: Millis
    asked_by: str
    closed_at: Millis | None = None
    choice: str | None = None
    """The option chosen, or `withdrawn` when its task ended, or its service recovered, without an answer."""
    answer: str = ""
    answered_by: str = ""
    command: CommandId = NO_COMMAND
    waited: bool = False
    """Whether its task waits for the answer: then the clock of its run stands meanwhile."""
    dismissed_at: Millis | None = None
    """When somebody has said that they have seen it: it stays open, and is not told as needing somebody."""
    dismissed_by: str = ""

    @property
    def service(self) -> str | None:
        """The service it is about, if it is about one."""
        return service_of_question(self.id)

    @property
    def message(self) -> tuple[str, int] | None:
        """The queue and the message it is about, if it is about one."""
        return message_of_question(self.id)


WITHDRAWN = "withdrawn"
BY_AGENT = "agent"
"""The kind of a question that an agent asked; all others are the watch's own."""
_RECALLED = 200
"""So much of a question's text is enough to tell which one it was."""

RETRY = Option("retry", "Try again as it is", AnswerAction.RETRY)
CLARIFY = Option("clarify", "Clarify requirements", AnswerAction.CLARIFY)
SKIP = Option("skip", "Skip task and continue", AnswerAction.SKIP)
SPLIT = Option("split", "Split task into smaller subtasks", AnswerAction.SPLIT)
MORE_MONEY = Option("increase_cost", "Go on with more money for this task", AnswerAction.INCREASE_COST)
MORE_TOKENS = Option("increase_tokens", "Go on with more tokens for this task", AnswerAction.INCREASE_TOKENS)
MORE_OF_BOTH = Option(
    "increase_both", "Go on with more money and more tokens for this task", AnswerAction.INCREASE_BOTH
)
_MORE_TIME = Option("increase_timeout", "Increase timeout for this task", AnswerAction.INCREASE_TIMEOUT)
_MORE_IDLE = Option("increase_idle", "Let this task go longer without progress", AnswerAction.INCREASE_IDLE)
REPEATED_TIMEOUT_OPTIONS: tuple[Option, ...] = (SPLIT, CLARIFY, _MORE_TIME, SKIP)
ESCALATION_OPTIONS = (RETRY, CLARIFY, SKIP)
ACCEPT = Option("accept", "Accept it as it is", AnswerAction.ACCEPT)
VERIFICATION_OPTIONS = (
    ACCEPT,
    Option("retry", "Send it back for more tries", AnswerAction.RETRY),
    Option("clarify", "Send it back with your words", AnswerAction.CLARIFY),
    SKIP,
)
DENIED = "denied"
"""The kind of a question about a task whose agent was refused calls, and then could not go on."""
PERMISSION = "permission"
"""The kind of a question about a call that waits for a human: the attempt has ended, and goes on with the answer."""
REPLY = Option("reply", "Answer in words", AnswerAction.REPLY)
GO_ON = Option("go_on", "Let it go on: what it repeats counts as progress in this attempt", AnswerAction.RETRY)
REPEATS_OPTIONS = (
    GO_ON,
    Option(
        "end_and_retry",
        "End it, and try again in a new session",
        AnswerAction.END_AND_RETRY,
    ),
    SKIP,
)
ALLOW_ONCE = Option("allow_once", "Allow this call, this once", AnswerAction.RETRY)
CALL_OPTIONS = (ALLOW_ONCE, Option("reject_once", "Refuse this call", AnswerAction.RETRY))
"""The ways to answer an agent that wants a permission and waits for it in its attempt. What would hold for longer than
this call, such as `allow_always`, is none of them: it would allow more than is shown."""
SERVICE_OPTIONS = (
    Option("probe", "Try it again now", AnswerAction.PROBE),
    Option("wait", "Go on with one try per pause, and ask no more until it has recovered", AnswerAction.WAIT),
)

FLOW_LEFT_OPTIONS = (Option("call_off", "Cancel the flow", AnswerAction.SKIP),)
"""Going on is no option: a flow goes on when its program is run again."""

_WHAT_HAPPENED = {
    "timeout": "timed out",
    "stall": "stalled its agent",
    "lapse": "lost its holder",
}


def repeated(task: TaskId, name: str, what: str, count: int) -> str:
    """The text of the question about a task that keeps ending the same bad way."""
    label = task if name == task else f"{task} ({name})"
    return (
        f"Task {label} has {_WHAT_HAPPENED[what]} {count} time{'' if count == 1 else 's'}. Possible causes: "
        "task too large, unclear requirements, or infrastructure issue. How should we proceed?"
    )


def repeats_text(task: TaskId, name: str, agent: str, words: str) -> str:
    """The text of the question about an attempt that goes round in circles; `words` are what it does."""
    label = task if name == task else f"{task} ({name})"
    return (
        f"{agent} repeats itself at task {label}: it {words}. It goes on meanwhile, and none of that counts as"
        " progress. How should we proceed?"
    )


def repeated_idle(task: TaskId, name: str, count: int, idles: int, limit: int | None, said: str) -> str:
    """The text of the question about a task whose attempts end for want of progress; `said` is what it printed last."""
    label = task if name == task else f"{task} ({name})"
    what = "shown no progress" if idles == count else "timed out or shown no progress"
    times = "once" if count == 1 else f"{count} times"
    length = "" if limit is None else f", the last time for {show(limit)}"
    shown = f" It printed last:\n{said.strip()}\n" if said.strip() else " It printed nothing. "
    return (
        f"Task {label} has {what} {times}{length}. Possible causes: it hangs, it waits for something that"
        f" cannot be seen, or it works without a sign.{shown}How should we proceed?"
    )


def allow_options(denied: Denied, taken: Sequence[str] = ()) -> tuple[Option, ...]:
    """An option for each refused call that can be allowed; `taken` are the keys of other options."""
    calls = [] if denied.no_allow else [call for call in denied.calls if not call.barred]
    first = "allow" if not any(key.startswith("allow") for key in taken) else "allow_call"
    keys = [first, *(f"{first}_{number}" for number in range(2, len(calls) + 1))]
    return tuple(
        Option(key, f"Try again, and allow {call_text(call)} in the next attempt only", AnswerAction.ALLOW, call)
        for key, call in zip(keys, calls, strict=False)
    )


_PRINTED = re.compile(r"\s*It printed last:\n.*?(?=\nHow should we proceed\?|\Z)", re.DOTALL)


def without_output(text: str) -> str:
    """A question without what was printed: where there is room for a line, half of an output says nothing."""
    return " ".join(_PRINTED.sub("", text).split())


def full_stop(text: str) -> str:
    """What somebody said, as the end of a sentence: with a full stop, unless it has its own."""
    said = text.rstrip()
    return said if said.endswith((".", "!", "?", "…")) else f"{said}."


def denied_options(denied: Denied) -> tuple[Option, ...]:
    """What can be done about a task whose agent was refused calls, and then could not go on."""
    return (ACCEPT, *allow_options(denied), RETRY, CLARIFY, SKIP)


def permission_options(call: DeniedCall) -> tuple[Option, ...]:
    """What can be done about a call that waits for a human."""
    allow = Option("allow", f"Allow {call_text(call)}, this once", AnswerAction.ALLOW, call)
    return (allow, Option("refuse", "Refuse this call", AnswerAction.REFUSE, call), SKIP)


def permission_text(task: TaskId, name: str, agent: str, call: DeniedCall, work: str) -> str:
    """The text of the question about such a call."""
    label = task if name == task else f"{task} ({name})"
    place = f" Its work is in {work}." if work else ""
    return (
        f"{agent} asks for permission, at task {label}, to call {call_text(call)}. The call has not been made, and the "
        f"agent has ended until you answer.{place} May it make this call?"
    )


def denied_text(task: TaskId, name: str, denied: Denied, said: str) -> str:
    """The text of the question about such a task; `said` is what its agent ended with."""
    label = task if name == task else f"{task} ({name})"
    parts = [f"Task {label} has ended without being done: {full_stop(said.strip() or 'its agent could not go on')}"]
    if refused := remark(denied):
        parts.append(f"{refused}.")
    barred = [f"{call.text} cannot be allowed from here: {call.barred}." for call in denied.calls if call.barred]
    if denied.no_allow and len(barred) < len(denied.calls):
        barred = [f"None can be allowed from here: {denied.no_allow}."]
    parts += barred
    if denied.work:
        parts.append(f"Its work is in {denied.work}.")
    return " ".join([*parts, "How should we proceed?"])


def options_about_time(timeouts: int, idles: int) -> tuple[Option, ...]:
    """What can be done about a task that has reached its limits so often, and idled so often among that."""
    more = [_MORE_TIME] * (timeouts > idles) + [_MORE_IDLE] * (idles > 0)
    return (SPLIT, CLARIFY, *more, SKIP)


Pause = Literal["task", "run", "all"]
"""What an open question about a task holds back."""


class PausedWork(msgspec.Struct, frozen=True, gc=False):
    """What nobody is given while questions are open, beside the tasks they are about."""

    everything: bool = False
    runs: tuple[RunId, ...] = ()


NOTHING_HELD_BACK = PausedWork()


def held_back(pause: Pause, questions: Sequence[Question]) -> PausedWork:
    """What open questions hold back. Those about services hold back nothing: what needs the service waits anyway."""
    asked = [question for question in questions if question.closed_at is None and question.task is not None]
    if pause == "task" or not asked:
        return NOTHING_HELD_BACK
    if pause == "all":
        return PausedWork(everything=True)
    return PausedWork(runs=tuple(sorted({question.run for question in asked if question.run is not None})))


def choose(question: Question, key: str) -> Option:
    """The option that was meant, by its key or its whole label; otherwise `Refused`, naming what there is."""
    wanted = key.strip().lower()
    for option in question.options:
        if wanted in (option.key.lower(), option.label.lower()):
            return option
    keys = ", ".join(option.key for option in question.options)
    raise Refused(
        "unknown_option", f"question {question.id} has no option {key!r}; choose one of: {keys}", where="option"
    )


def note_of(question: Question, option: Option, text: str) -> str:
    """What the next holder is told of an answer; nothing where the choice has already acted and no words came with it.

    An agent's own options mean something to whoever holds the task, so the choice itself is told, with the question:
    both are the agent's words, and quoted. What stands outside of the quotation a human has said.
    """
    if question.kind != BY_AGENT or option.act in (AnswerAction.CLARIFY, AnswerAction.REPLY):
        return text
    asked = question.text if len(question.text) <= _RECALLED else question.text[:_RECALLED] + "…"
    words = quoted(f"{option.key} ({option.label})")
    chosen = f"A human chose this option:\n{words}\nThe agent had asked:\n{quoted(asked)}"
    return f"{chosen}\nThe human added:\n{text}" if text else chosen

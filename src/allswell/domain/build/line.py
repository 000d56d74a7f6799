"""The lines of a build: what agents, the coordinator and humans say to each other, one value for each verb (C8).

How a line is written and read stands below them. Who may say what is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

import msgspec

from allswell.domain.duration import parse as parse_duration
from allswell.domain.duration import show
from allswell.errors import Refused


class ClaimLine(msgspec.Struct, frozen=True):
    """`CLAIM c`: the speaker wants to build it."""

    component: str


class ProgressLine(msgspec.Struct, frozen=True):
    """`PROGRESS c [40%] [note]`: the builder is still at it."""

    component: str
    percent: int | None = None
    note: str = ""


class BlockedLine(msgspec.Struct, frozen=True):
    """`BLOCKED c dep`: the builder cannot go on before another component is there."""

    component: str
    dependency: str


class ReadyLine(msgspec.Struct, frozen=True):
    """`READY c [url]`: it is built; the pull request can be audited. Without an address: as before."""

    component: str
    url: str = ""


class AuditLine(msgspec.Struct, frozen=True):
    """`AUDIT c PASS|FAIL details`: a verdict on what was built."""

    component: str
    passed: bool
    details: str = ""


class AbortLine(msgspec.Struct, frozen=True):
    """`ABORT c "reason"`: the builder gives it back."""

    component: str
    reason: str = ""


class AnswerLine(msgspec.Struct, frozen=True):
    """`ANSWER question option [text]`: a human decides."""

    question: str
    option: str
    text: str = ""


class TasksLine(msgspec.Struct, frozen=True):
    """`TASKS url c1 c2 …`: what can be claimed now."""

    url: str
    free: tuple[str, ...] = ()
    every: int = 0
    """How often PROGRESS is expected, in milliseconds; 0: as usual."""


class AckLine(msgspec.Struct, frozen=True):
    """`ACK c agent`: the component is this agent's now."""

    component: str
    agent: str
    every: int = 0
    """As of `TASKS`."""


class RejectLine(msgspec.Struct, frozen=True):
    """`REJECT c agent "reason"`: what this agent said of the component does not count."""

    component: str
    agent: str
    reason: str = ""


class TimeoutLine(msgspec.Struct, frozen=True):
    """`TIMEOUT c`: its builder was silent for too long and has lost it."""

    component: str


class RetryLine(msgspec.Struct, frozen=True):
    """`RETRY c`: its builder has failed too often; another one may claim it."""

    component: str


class MergedLine(msgspec.Struct, frozen=True):
    """`MERGED c`: it is in; what needs it can begin."""

    component: str


class SkippedLine(msgspec.Struct, frozen=True):
    """`SKIPPED c [c2 …]`: a human has left it out, and with it what needs it."""

    component: str
    others: tuple[str, ...] = ()


class ClarifyLine(msgspec.Struct, frozen=True):
    """`CLARIFY c "text"`: what a human has said about it, for its builder."""

    component: str
    text: str


class ErrorLine(msgspec.Struct, frozen=True):
    """`ERROR "text"`: the build cannot go on as it is."""

    text: str


class EscalateLine(msgspec.Struct, frozen=True):
    """`ESCALATE "text" ANSWER question option|option`: a human is asked; the end says what to type."""

    text: str
    question: str = ""
    options: tuple[str, ...] = ()


class CompleteLine(msgspec.Struct, frozen=True):
    """`BUILD COMPLETE url`: everything is merged, or was left out by a human; something is merged."""

    url: str = ""


class HintLine(msgspec.Struct, frozen=True):
    """`agent: "text" was not understood; write: …`: it begins with no verb, so it is a line for its reader alone."""

    agent: str
    text: str
    shape: str


AgentLine = ClaimLine | ProgressLine | BlockedLine | ReadyLine | AuditLine | AbortLine
HumanLine = AnswerLine | MergedLine
CoordinatorLine = (
    TasksLine
    | AckLine
    | RejectLine
    | TimeoutLine
    | RetryLine
    | MergedLine
    | SkippedLine
    | ClarifyLine
    | ErrorLine
    | EscalateLine
    | CompleteLine
    | AuditLine
    | ReadyLine
    | HintLine
)
"""`AUDIT` and `READY` too: it repeats the verdict that counts, and announces again what nobody audits."""
Line = AgentLine | HumanLine | CoordinatorLine


class MalformedLine(msgspec.Struct, frozen=True):
    """Text that begins like a line and is none, or is too long to be looked at; it changes nothing."""

    text: str
    why: str
    shape: str = ""
    """What was expected of a member of the build."""


# Lines as text, and text as lines.
#
# A line is a verb and its words: `CLAIM auth`, `ABORT auth "environment failure"`. Verbs are read in any case, with or
# without Markdown around the verb, a word or the whole line, as an entry of a list, with a colon after the verb, quotes
# around a name, and `please` or `(retry)` at the end. Other text is ignored: people talk in the channel too, and
# `> CLAIM auth` only quotes somebody. What begins with a verb and does not fit it comes back as `MalformedLine`.
#
# Free text is quoted where it could be taken for something else, with `\"`, `\\` and `\n` inside; so no text can
# become a second line. Characters that would move a terminal's cursor or reverse the text become `�`. Every written
# line fits into one chat message (`LINE_BYTES`).

LINE_BYTES = 4_000
"""No written line is longer; a chat server takes messages of up to 4,096 bytes."""
TEXT_BYTES = 3_000
"""The most that free text takes up once it is written; what is longer is cut."""
URL_MAX = 500
MESSAGE_MAX = 65_536
"""Characters; nobody writes more at once, and a larger message is not looked at."""
MOST_LINES = 500
_MOST_CLAIMED = 100
_SHOWN = 80

_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?", re.ASCII)
_AGENT = re.compile(r"@?[A-Za-z0-9_.:+@-]{1,64}", re.ASCII)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!#-;=?-~]+", re.ASCII)
_PLACE = re.compile(r"[!#-)+-_a-~]+", re.ASCII)
_OPTION = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_QUESTION = re.compile(r"q_[!#-~]{1,98}", re.ASCII)
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")
_LINK = re.compile(r"<(\S+)>|\[[^\]]*\]\((\S+)\)")
"""An address as Markdown writes it."""
_COURTESY = ("please", "(retry)")
# Space is looked for from its beginning on only: from each of 60,000 blanks on, it would take the coordinator seconds.
_AND = re.compile(r"(?:(?<!\s)\s+)?,\s*(?:and\s+)?|(?<!\s)\s+and\s+", re.IGNORECASE)
_EVERY = re.compile(r"(?<!\s)\s+\(PROGRESS every ([^()]{1,40})\)$", re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PERCENT = re.compile(r"(\d{1,3})(?:\.\d+)?\s*%(?:\s+(.*))?|(\d{1,3})(?:\.\d+)?", re.ASCII | re.DOTALL)
_ESCALATED = re.compile(rf"({_QUOTED.pattern})(?:\s+ANSWER\s+(\S+)\s+(\S+))?", re.DOTALL | re.IGNORECASE)
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, line breaks that not everybody takes for some, what turns text around, and lone surrogates."""


def is_component_name(name: str) -> bool:
    """Whether a component can be called so: its name is also that of a branch and of a folder."""
    return _NAME.fullmatch(name) is not None and not name.lower().endswith(".lock")


def is_agent_name(name: str) -> bool:
    """Whether lines can name an agent so."""
    return _AGENT.fullmatch(name) is not None


def is_url(url: str) -> bool:
    """Whether this is an address that a line can carry."""
    return len(url) <= URL_MAX and _URL.fullmatch(url) is not None


def shown(text: str) -> str:
    """Text as a line can carry it: stripped, without what would disturb a terminal, and cut where it is too long."""
    clean = _UNSHOWN.sub("�", text.replace("\r\n", "\n")).strip()
    if len(clean) * 4 <= TEXT_BYTES or _written_size(clean) <= TEXT_BYTES:
        return clean
    short, long = 0, len(clean)  # the longest beginning that fits lies between them
    while short < long:
        middle = (short + long + 1) // 2
        short, long = (middle, long) if _written_size(clean[:middle]) <= TEXT_BYTES - 4 else (short, middle - 1)
    return clean[:short].rstrip() + "…"


def _written_size(text: str) -> int:
    return len(_escape(text).encode()) + len('""')


# --- writing ----------------------------------------------------------------------------------------------------------


def write(line: Line) -> str:
    """The line as it is sent."""
    match line:
        case ClaimLine(component):
            return f"CLAIM {component}"
        case ProgressLine(component, percent, note):
            share = "" if percent is None else f" {percent}%"
            note = _quote(note) if _PERCENT.fullmatch(shown(note)) else _bare(note)
            return f"PROGRESS {component}{share} {note}".rstrip()
        case BlockedLine(component, dependency):
            return f"BLOCKED {component} {dependency}"
        case ReadyLine(component, url):
            return f"READY {component} {url}".rstrip()
        case AuditLine(component, passed, details):
            return f"AUDIT {component} {'PASS' if passed else 'FAIL'} {_bare(details)}".rstrip()
        case AbortLine(component, reason):
            return f"ABORT {component} {_quote(reason)}"
        case AnswerLine(question, option, text):
            return f"ANSWER {question} {option} {_bare(text)}".rstrip()
        case _:
            return _write_coordinator(line)


def _write_coordinator(
    line: TasksLine
    | AckLine
    | RejectLine
    | TimeoutLine
    | RetryLine
    | MergedLine
    | SkippedLine
    | ClarifyLine
    | ErrorLine
    | EscalateLine
    | CompleteLine
    | HintLine,
) -> str:
    match line:
        case TasksLine(url, free, every):
            return " ".join(["TASKS", url, *free]) + _interval(every)
        case AckLine(component, agent, every):
            return f"ACK {component} {agent}{_interval(every)}"
        case RejectLine(component, agent, reason):
            return f"REJECT {component} {agent} {_quote(reason)}"
        case TimeoutLine(component):
            return f"TIMEOUT {component}"
        case RetryLine(component):
            return f"RETRY {component}"
        case MergedLine(component):
            return f"MERGED {component}"
        case SkippedLine(component, others):
            return " ".join(["SKIPPED", component, *others])
        case ClarifyLine(component, text):
            return f"CLARIFY {component} {_quote(text)}"
        case CompleteLine(url):
            return f"BUILD COMPLETE {url}".rstrip()
        case _:
            return _write_to_humans(line)


def _write_to_humans(line: ErrorLine | EscalateLine | HintLine) -> str:
    match line:
        case ErrorLine(text):
            return f"ERROR {_quote(text)}"
        case EscalateLine(text, question, options):
            asks = f" ANSWER {question} {'|'.join(options)}" if question else ""
            return f"ESCALATE {_quote(text)}{asks}"
        case HintLine(agent, text, shape):
            return f"{agent}: {_quote(text)} was not understood; write: {shape}"
        case _:
            assert_never(line)


def _interval(every: int) -> str:
    return f" (PROGRESS every {show(every)})" if every else ""


def skipped_line(component: str, others: Sequence[str]) -> SkippedLine:
    """What was left out, as many names as a line can carry."""
    size, names = len("SKIPPED ") + len(component), []
    for name in others:
        size += 1 + len(name)
        if size > LINE_BYTES:
            break
        names.append(name)
    return SkippedLine(component, tuple(names))


def tasks_lines(url: str, free: Sequence[str], every: int = 0) -> list[TasksLine]:
    """The list of what is free, in as few lines as can be sent; none where nothing is."""
    lines: list[TasksLine] = []
    names: list[str] = []
    size = start = len("TASKS ") + len(url) + len(_interval(every))
    for name in free:
        if size + 1 + len(name) > LINE_BYTES:
            lines.append(TasksLine(url, tuple(names), every))
            names, size = [], start
        names.append(name)
        size += 1 + len(name)
    return [*lines, TasksLine(url, tuple(names), every)] if names else lines


def _quote(text: str) -> str:
    return f'"{_escape(shown(text))}"'


def _bare(text: str) -> str:
    """Text as it is, or quoted where it would not be read as it is."""
    clean = shown(text)
    return _quote(clean) if "\n" in clean or clean.startswith('"') else clean


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- reading ----------------------------------------------------------------------------------------------------------


def read(message: str) -> list[Line | MalformedLine]:
    """The lines of a message, in order; what is none is left out."""
    if len(message) > MESSAGE_MAX:
        why = f"a message of {len(message):,} characters is not read; at most {MESSAGE_MAX:,} are"
        return [MalformedLine(_shortened(message), why)]
    found: list[Line | MalformedLine] = []
    for line in _lines(message):
        if len(found) == MOST_LINES:
            found.append(MalformedLine("", f"only the first {MOST_LINES} lines of a message are read"))
            break
        found += _read(line)[: MOST_LINES - len(found)]
    return found


def _without_courtesy(text: str) -> str:
    """A text without the words of courtesy at its end."""
    while True:
        words = text.rsplit(maxsplit=1)
        if len(words) < 2 or words[1].removesuffix("!").removesuffix(".").lower() not in _COURTESY:
            return text
        text = words[0]


def _lines(message: str) -> Iterator[str]:
    return (line for line in message.replace("\r\n", "\n").split("\n") if line and not line.isspace())


def _read(text: str) -> list[Line | MalformedLine]:
    """What a line of text says: nothing, one thing, or, of claims, several."""
    text = _without_markdown(_UNSHOWN.sub("�", text).strip())
    verb, *rest = text.split(maxsplit=1) or [""]
    verb = verb.rstrip(":").upper()
    known = _VERBS.get(verb)
    if known is None:
        return []
    shape, parse = known
    said = parse(rest[0] if rest else "")
    if said is None:
        return [MalformedLine(_shortened(text), f"this is not {shape}", shape if verb in _OF_MEMBERS else "")]
    return [*said] if isinstance(said, list) else [said]


def _without_markdown(text: str) -> str:
    """Without what stands around a line: a bullet, backticks, and one pair of marks for bold."""
    text = _BULLET.sub("", text, count=1) if _BULLET.match(text) else text
    if len(text) > 2 and text[0] == text[-1] == "`" and "`" not in text[1:-1]:
        text = text[1:-1].strip()
    for mark in ("**", "__"):
        if text.startswith(mark) and mark in text[2:]:
            return text[2:].replace(mark, "", 1).strip()
    return text


def _shortened(text: str) -> str:
    text = _UNSHOWN.sub("�", text[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _words(rest: str, most: int) -> tuple[list[str], str]:
    """Up to so many first words, without bold, and the text after them."""
    words = rest.split(maxsplit=most)
    after = words.pop() if len(words) > most else ""
    return [_plain(word) for word in words], after.strip()


def _plain(word: str) -> str:
    """A word without what stands around it: marks, quotes, and a colon or comma behind it."""
    word = word[:-1] if word[-1:] in {":", ","} and "://" not in word else word
    for mark in ("**", "`", '"', "'"):
        if len(word) > 2 * len(mark) and word.startswith(mark) and word.endswith(mark):
            return word[len(mark) : -len(mark)]
    return word


def _text(rest: str) -> str:
    """Free text, as it stands or in quotes."""
    if quoted := _QUOTED.fullmatch(rest):
        rest = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], quoted[1])
    return shown(rest)


def _one_component(make: Callable[[str], Line]) -> Callable[[str], Line | None]:
    def parse(rest: str) -> Line | None:
        names, after = _words(_without_courtesy(rest), 1)
        return make(names[0]) if names and is_component_name(names[0]) and not after else None

    return parse


def _claim(rest: str) -> list[Line] | None:
    names = [_plain(word) for word in _AND.split(_without_courtesy(rest), _MOST_CLAIMED)]
    return [ClaimLine(name) for name in names] if all(map(is_component_name, names)) else None


def _progress(rest: str) -> Line | None:
    names, note = _words(rest, 1)
    if not names or not is_component_name(names[0]):
        return None
    share = _PERCENT.fullmatch(note)
    if share is None or int(share[1] or share[3]) > 100:
        return ProgressLine(names[0], None, _text(note))
    return ProgressLine(names[0], int(share[1] or share[3]), _text((share[2] or "").strip()))


def _blocked(rest: str) -> Line | None:
    names, after = _words(rest, 2)
    good = len(names) == 2 and all(map(is_component_name, names)) and not after
    return BlockedLine(*names) if good else None


def _ready(rest: str) -> Line | None:
    words, after = _words(_without_courtesy(rest), 1)
    if not words or not is_component_name(words[0]):
        return None
    link = _LINK.fullmatch(after)
    url = _plain(after) if link is None else link[1] or link[2]
    return ReadyLine(words[0], url) if not url or is_url(url) else None


def _audit(rest: str) -> Line | None:
    words, details = _words(rest, 2)
    verdict = words[-1].rstrip(".!").upper() if words else ""
    if len(words) != 2 or not is_component_name(words[0]) or verdict not in {"PASS", "FAIL"}:
        return None
    return AuditLine(words[0], verdict == "PASS", _text(details))


def _abort(rest: str) -> Line | None:
    names, reason = _words(rest, 1)
    return AbortLine(names[0], _text(reason)) if names and is_component_name(names[0]) else None


def _answer(rest: str) -> Line | None:
    words, text = _words(rest, 2)
    good = len(words) == 2 and _QUESTION.fullmatch(words[0]) and _OPTION.fullmatch(words[1])
    return AnswerLine(words[0], words[1].lower(), _text(text)) if good else None


def _without_interval(rest: str) -> tuple[str, int]:
    """The words before `(PROGRESS every 30s)`, and how long that is."""
    found = _EVERY.search(rest)
    if found is None:
        return rest, 0
    try:
        return rest[: found.start()], parse_duration(found[1])
    except Refused:
        return rest, 0


def _tasks(rest: str) -> Line | None:
    rest, every = _without_interval(rest)
    places, after = _words(rest, 1)
    free = after.replace(",", " ").split()
    if not places or not _is_place(places[0]) or not all(map(is_component_name, free)):
        return None
    return TasksLine(places[0], tuple(free), every)


def _ack(rest: str) -> Line | None:
    rest, every = _without_interval(rest)
    words, after = _words(rest, 2)
    good = len(words) == 2 and is_component_name(words[0]) and is_agent_name(words[1]) and not after
    return AckLine(words[0], words[1], every) if good else None


def _skipped(rest: str) -> Line | None:
    names = rest.replace(",", " ").split()
    return SkippedLine(names[0], tuple(names[1:])) if names and all(map(is_component_name, names)) else None


def _clarify(rest: str) -> Line | None:
    names, text = _words(rest, 1)
    return ClarifyLine(names[0], _text(text)) if names and is_component_name(names[0]) else None


def _reject(rest: str) -> Line | None:
    words, reason = _words(rest, 2)
    good = len(words) == 2 and is_component_name(words[0]) and is_agent_name(words[1])
    return RejectLine(words[0], words[1], _text(reason)) if good else None


def _escalate(rest: str) -> Line | None:
    found = _ESCALATED.fullmatch(rest)
    if found is None:
        return EscalateLine(_text(rest)) if rest else None
    text, question, options = _text(found[1]), found[3] or "", tuple((found[4] or "").split("|"))
    if not question:
        return EscalateLine(text)
    good = _QUESTION.fullmatch(question) and all(map(_OPTION.fullmatch, options))
    return EscalateLine(text, question, options) if good else None


def _build(rest: str) -> Line | None:
    words, after = _words(rest, 2)
    good = words and words[0].upper() == "COMPLETE" and not after and (len(words) == 1 or _is_place(words[1]))
    return CompleteLine(*words[1:]) if good else None


def _is_place(word: str) -> bool:
    return len(word) <= URL_MAX and _PLACE.fullmatch(word) is not None


_OF_MEMBERS = {"CLAIM", "PROGRESS", "BLOCKED", "READY", "AUDIT", "ABORT", "ANSWER", "MERGED"}
"""Verbs of everybody but the coordinator."""
_VERBS: dict[str, tuple[str, Callable[[str], Line | list[Line] | None]]] = {
    "CLAIM": ("CLAIM component", _claim),
    "PROGRESS": ("PROGRESS component [percent] [note]", _progress),
    "BLOCKED": ("BLOCKED component dependency", _blocked),
    "READY": ("READY component [url]", _ready),
    "AUDIT": ("AUDIT component PASS|FAIL [details]", _audit),
    "ABORT": ('ABORT component "reason"', _abort),
    "ANSWER": ("ANSWER question option [text]", _answer),
    "TASKS": ("TASKS url component…", _tasks),
    "ACK": ("ACK component agent", _ack),
    "REJECT": ('REJECT component agent "reason"', _reject),
    "TIMEOUT": ("TIMEOUT component", _one_component(TimeoutLine)),
    "RETRY": ("RETRY component", _one_component(RetryLine)),
    "MERGED": ("MERGED component", _one_component(MergedLine)),
    "SKIPPED": ("SKIPPED component…", _skipped),
    "CLARIFY": ('CLARIFY component "text"', _clarify),
    "ERROR": ('ERROR "text"', lambda rest: ErrorLine(_text(rest)) if rest else None),
    "ESCALATE": ("ESCALATE text", _escalate),
    "BUILD": ("BUILD COMPLETE [url]", _build),
}

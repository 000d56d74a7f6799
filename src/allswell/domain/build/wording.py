r"""Lines as text, and text as lines.

A line is a verb and its words: `CLAIM auth`, `ABORT auth "environment failure"`. Verbs are read in any case, with or
without Markdown bold around the verb, a word or the whole line. Other text is ignored: people talk in the channel too,
and `> CLAIM auth` only quotes somebody. What begins with a verb and does not fit it comes back as `Misread`.

Free text is quoted where it could be taken for something else, with `\"`, `\\` and `\n` inside; so no text can
become a second line. Characters that would move a terminal's cursor or reverse the text become `�`. Every written line
fits into one chat message (`LINE_BYTES`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from allswell.domain.build.line import (
    AbortLine,
    AckLine,
    AnswerLine,
    AuditLine,
    BlockedLine,
    ClaimLine,
    CompleteLine,
    ErrorLine,
    EscalateLine,
    Line,
    MergedLine,
    Misread,
    ProgressLine,
    ReadyLine,
    RejectLine,
    RetryLine,
    TasksLine,
    TimeoutLine,
)

LINE_BYTES = 4_000
"""No written line is longer; a chat server takes messages of up to 4,096 bytes."""
TEXT_BYTES = 3_000
"""The most that free text takes up once it is written; what is longer is cut."""
URL_MAX = 500
MESSAGE_MAX = 65_536
"""Characters; nobody writes more at once, and a larger message is not looked at."""
MOST_LINES = 500
_SHOWN = 80

_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?", re.ASCII)
_AGENT = re.compile(r"@?[A-Za-z0-9_.:+@-]{1,64}", re.ASCII)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!#-;=?-~]+", re.ASCII)
_PLACE = re.compile(r"[!#-)+-_a-~]+", re.ASCII)
_OPTION = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_QUESTION = re.compile(r"q_[!#-~]{1,98}", re.ASCII)
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
            return f"READY {component} {url}"
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
    | ErrorLine
    | EscalateLine
    | CompleteLine,
) -> str:
    match line:
        case TasksLine(url, free):
            return " ".join(["TASKS", url, *free])
        case AckLine(component, agent):
            return f"ACK {component} {agent}"
        case RejectLine(component, agent, reason):
            return f"REJECT {component} {agent} {_quote(reason)}"
        case TimeoutLine(component):
            return f"TIMEOUT {component}"
        case RetryLine(component):
            return f"RETRY {component}"
        case MergedLine(component):
            return f"MERGED {component}"
        case ErrorLine(text):
            return f"ERROR {_quote(text)}"
        case EscalateLine(text, question, options):
            asks = f" ANSWER {question} {'|'.join(options)}" if question else ""
            return f"ESCALATE {_quote(text)}{asks}"
        case CompleteLine(url):
            return f"BUILD COMPLETE {url}".rstrip()
        case _:
            assert_never(line)


def tasks_lines(url: str, free: Sequence[str]) -> list[TasksLine]:
    """The list of what is free, in as few lines as can be sent; none where nothing is."""
    lines: list[TasksLine] = []
    names: list[str] = []
    size = start = len("TASKS ") + len(url)
    for name in free:
        if size + 1 + len(name) > LINE_BYTES:
            lines.append(TasksLine(url, tuple(names)))
            names, size = [], start
        names.append(name)
        size += 1 + len(name)
    return [*lines, TasksLine(url, tuple(names))] if names else lines


def _quote(text: str) -> str:
    return f'"{_escape(shown(text))}"'


def _bare(text: str) -> str:
    """Text as it is, or quoted where it would not be read as it is."""
    clean = shown(text)
    return _quote(clean) if "\n" in clean or clean.startswith('"') else clean


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- reading ----------------------------------------------------------------------------------------------------------


def read(message: str) -> list[Line | Misread]:
    """The lines of a message, in order; what is none is left out."""
    if len(message) > MESSAGE_MAX:
        why = f"a message of {len(message):,} characters is not read; at most {MESSAGE_MAX:,} are"
        return [Misread(_shortened(message), why)]
    found: list[Line | Misread] = []
    for line in _lines(message):
        if len(found) == MOST_LINES:
            found.append(Misread("", f"only the first {MOST_LINES} lines of a message are read"))
            break
        if (one := read_line(line)) is not None:
            found.append(one)
    return found


def _lines(message: str) -> Iterator[str]:
    return (line for line in message.replace("\r\n", "\n").split("\n") if line and not line.isspace())


def read_line(text: str) -> Line | Misread | None:
    """One line of text as a line of the protocol; None if it does not begin with a verb."""
    text = _UNSHOWN.sub("�", text).strip()
    for mark in ("**", "__"):
        if text.startswith(mark) and mark in text[2:]:
            text = text[2:].replace(mark, "", 1).strip()
            break
    verb, *rest = text.split(maxsplit=1) or [""]
    known = _VERBS.get(verb.upper())
    if known is None:
        return None
    shape, parse = known
    line = parse(rest[0] if rest else "")
    return Misread(_shortened(text), f"this is not {shape}") if line is None else line


def _shortened(text: str) -> str:
    text = _UNSHOWN.sub("�", text[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _words(rest: str, most: int) -> tuple[list[str], str]:
    """Up to so many first words, without bold, and the text after them."""
    words = rest.split(maxsplit=most)
    after = words.pop() if len(words) > most else ""
    return [_plain(word) for word in words], after.strip()


def _plain(word: str) -> str:
    for mark in ("**", "`"):
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
        names, after = _words(rest, 1)
        return make(names[0]) if names and is_component_name(names[0]) and not after else None

    return parse


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
    words, after = _words(rest, 2)
    if len(words) != 2 or after:
        return None
    url = words[1][1:-1] if words[1].startswith("<") and words[1].endswith(">") else words[1]
    return ReadyLine(words[0], url) if is_component_name(words[0]) and is_url(url) else None


def _audit(rest: str) -> Line | None:
    words, details = _words(rest, 2)
    if len(words) != 2 or not is_component_name(words[0]) or words[1].upper() not in {"PASS", "FAIL"}:
        return None
    return AuditLine(words[0], words[1].upper() == "PASS", _text(details))


def _abort(rest: str) -> Line | None:
    names, reason = _words(rest, 1)
    return AbortLine(names[0], _text(reason)) if names and is_component_name(names[0]) else None


def _answer(rest: str) -> Line | None:
    words, text = _words(rest, 2)
    good = len(words) == 2 and _QUESTION.fullmatch(words[0]) and _OPTION.fullmatch(words[1])
    return AnswerLine(words[0], words[1].lower(), _text(text)) if good else None


def _tasks(rest: str) -> Line | None:
    places, after = _words(rest, 1)
    free = after.replace(",", " ").split()
    if not places or not _is_place(places[0]) or not all(map(is_component_name, free)):
        return None
    return TasksLine(places[0], tuple(free))


def _ack(rest: str) -> Line | None:
    words, after = _words(rest, 2)
    good = len(words) == 2 and is_component_name(words[0]) and is_agent_name(words[1]) and not after
    return AckLine(*words) if good else None


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


_VERBS: dict[str, tuple[str, Callable[[str], Line | None]]] = {
    "CLAIM": ("CLAIM component", _one_component(ClaimLine)),
    "PROGRESS": ("PROGRESS component [percent] [note]", _progress),
    "BLOCKED": ("BLOCKED component dependency", _blocked),
    "READY": ("READY component url", _ready),
    "AUDIT": ("AUDIT component PASS|FAIL [details]", _audit),
    "ABORT": ('ABORT component "reason"', _abort),
    "ANSWER": ("ANSWER question option [text]", _answer),
    "TASKS": ("TASKS url component…", _tasks),
    "ACK": ("ACK component agent", _ack),
    "REJECT": ('REJECT component agent "reason"', _reject),
    "TIMEOUT": ("TIMEOUT component", _one_component(TimeoutLine)),
    "RETRY": ("RETRY component", _one_component(RetryLine)),
    "MERGED": ("MERGED component", _one_component(MergedLine)),
    "ERROR": ('ERROR "text"', lambda rest: ErrorLine(_text(rest)) if rest else None),
    "ESCALATE": ("ESCALATE text", _escalate),
    "BUILD": ("BUILD COMPLETE [url]", _build),
}

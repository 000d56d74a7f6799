"""Templates, and the words that they may use.

Everything that a template is given is escaped, names and notes are put on one line without control characters, and a
variable that is not there is an error, not an empty place.
"""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from mimetypes import guess_type
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from allswell.domain.expense import Spent
from allswell.domain.expense import shown as money
from allswell.domain.names import QuestionId, message_of_question, service_of_question, task_of_question
from allswell.doors.page.drawing import is_far
from allswell.doors.shapes.moment import moment
from allswell.engine.explaining.words import ago, clean, length, many, rough, within

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""What a terminal would act upon: colours, moves, titles."""
_BLOCK_MOST = 20_000
_TEXT_MOST = 4_000
_LINES_MOST = 40


class StaticFile(Struct, frozen=True):
    """A file that pages load; its version is part of its address, so that a browser may keep it."""

    body: bytes
    kind: str
    version: str


def _static() -> dict[str, StaticFile]:
    found = {}
    for one in files("allswell.doors.page").joinpath("static").iterdir():
        body = one.read_bytes()
        kind = guess_type(one.name)[0] or "application/octet-stream"
        found[one.name] = StaticFile(body, kind, sha256(body).hexdigest()[:12])
    return found


STATIC = _static()


def _address(name: str) -> str:
    return f"/static/{name}?v={STATIC[name].version}"


def said(text: str, most: int = _TEXT_MOST) -> str:
    """Text from outside that has lines: each without control characters, and not too many of them."""
    lines = text[:most].splitlines()
    shown = [clean(line, 1_000) for line in lines[:_LINES_MOST]]
    return "\n".join(shown) + ("\n…" if len(lines) > _LINES_MOST or len(text) > most else "")


def plain(line: str, most: int = 1_000) -> str:
    """One line as it was printed, with its spaces and without what a terminal would act upon."""
    text = _ESCAPES.sub("", line[: most * 4]).expandtabs(4).rstrip()
    shown = "".join(char if char.isprintable() else "·" for char in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _block(text: str, most: int = _BLOCK_MOST) -> str:
    """Many lines as they were printed, not too many of them."""
    return "\n".join(map(plain, text[:most].split("\n"))) + ("\n…" if len(text) > most else "")


def place_of(id_: str) -> str:
    """Where something is shown, by its id: a task or a request, a run, a question."""
    if id_.startswith("r_"):
        return f"/runs/{quote(id_, safe='')}"
    if not id_.startswith("q_"):
        return f"/tasks/{quote(id_, safe='')}"
    question = QuestionId(id_)
    if message_of_question(question) is not None:
        return f"/worker#q-{quote(id_, safe='')}"
    if service_of_question(question) is not None:
        return f"/#q-{quote(id_, safe='')}"
    return f"/tasks/{quote(task_of_question(question), safe='')}#q-{quote(id_, safe='')}"


def agent_place(agent: str) -> str:
    """Where an agent is shown."""
    return f"/agents/{quote(agent, safe='')}"


def called(state: str) -> str:
    """What people call a state of a task."""
    return {"held": "at work"}.get(state, state)


def _how_changed(how: str) -> str:
    """What happened to a file."""
    return {"A": "added", "M": "changed", "D": "deleted", "T": "of another kind"}.get(how, how)


def _begins(text: str, beginnings: tuple[str, ...]) -> bool:
    return text.startswith(beginnings)


def _time(at: int, now: int, mode: str) -> Markup:
    words = ago(at, now) if mode == "ago" else within(at, now)
    stamp = moment(at)
    return Markup('<time datetime="{0}" title="{0}" data-mode="{1}">{2}</time>').format(stamp, mode, words)


def _cost(spent: Spent) -> str:
    return "" if spent.cost is None else money(spent.cost)


def _lined(text: str) -> Markup:
    """Text with its lines kept."""
    return Markup("<br>").join(escape(line) for line in said(text).split("\n"))


TEMPLATES = Environment(
    loader=PackageLoader("allswell.doors.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "block": _block,
    "clean": clean,
    "cost": _cost,
    "lasts": length,
    "lined": _lined,
    "plain": plain,
    "rough": rough,
    "said": said,
}
TEMPLATES.globals |= {
    "agent_place": agent_place,
    "called": called,
    "how_changed": _how_changed,
    "is_far": is_far,
    "many": many,
    "moment": moment,
    "money": money,
    "place_of": place_of,
    "static": _address,
    "time": _time,
}
TEMPLATES.tests |= {"begins": _begins}

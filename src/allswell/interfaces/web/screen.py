"""How a screen is declared.

A screen looks (`look`), and its template shows what was `Seen`, as `it`: by name, with at least `title`, for the
browser's tab, and `now`, the store's clock. What stands under these names are the structs of `views` and those of
explanations. The same template draws the whole page and, for a page that is open, the block `screen` anew: whenever an
event comes that `refreshes` says may matter, and every `beat` seconds, so that bars move. In the browser the new
drawing is morphed into the old one: whatever has an `id` keeps its focus, its scroll position, what was typed and
whether it was folded open. So everything that can be focused or opened has one, made of what it is about
(`id="q-{{ question.id }}"`).

`look` has the whole call: `call.watch` and `call.views` as the reader's key allows them, `call.named("run")` for places
in the path, `call.query` for what stands behind the question mark.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from mimetypes import guess_type
from types import SimpleNamespace
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from allswell.domain.agents.cost import USD, Spent
from allswell.domain.agents.cost import shown as money
from allswell.domain.ids import QuestionId, can_name, message_of_question, service_of_question, task_of_question
from allswell.domain.question import does
from allswell.domain.rules.event import Entry
from allswell.domain.values import start_of
from allswell.engine.status.explanation import ago, clean, length, many, rough, within
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.timing.moment import moment

BEAT = 10.0
"""Seconds after which a screen is drawn anew although nothing has happened."""


def everything(_: RequestContext, _entry: Entry) -> bool:
    """For a screen that any event may change."""
    return True


class Seen(SimpleNamespace):
    """What there is to be seen, by the names that a template has for it; one that is not there is an error."""


@dataclass(frozen=True)
class PageScreen:
    """One screen of the page."""

    path: str
    """Where it is, as Starlette writes it: `/runs/{run}`."""
    template: str
    look: Callable[[RequestContext], Awaitable[Seen]]
    """What there is to be seen, for the template; it raises `Refused` where there is nothing under that name."""
    label: str = ""
    """What the navigation calls it; empty: it stands in no navigation."""
    refreshes: Callable[[RequestContext, Entry], bool] = everything
    """Whether an event of the journal may have changed what it shows."""
    beat: float = BEAT


# What stands behind the question mark of a screen's address: checked once, and refused with one sentence.

_DIGITS = 12
_TEXT_MOST = 200


def number_of(call: RequestContext, name: str, most: int = 1_000_000) -> int:
    """A number, 0 if none is given."""
    given = call.query.get(name, "") or "0"
    if not given.isascii() or not given.isdigit() or len(given) > _DIGITS or int(given) > most:
        raise Refused("bad_query", f"`{name}` is a number from 0 to {most:,}", where=name)
    return int(given)


def text_of(call: RequestContext, name: str) -> str:
    """A text that is looked for, empty if none is given."""
    given = call.query.get(name, "").strip()
    if len(given) > _TEXT_MOST or (given and not can_name(given)):
        raise Refused("bad_query", f"`{name}` has at most {_TEXT_MOST} characters that can be printed", where=name)
    return given


def choice_of(call: RequestContext, name: str, among: Collection[str]) -> str:
    """One of several words, empty if none is given."""
    given = call.query.get(name, "")
    if given and given not in among:
        raise Refused("bad_query", f"`{name}` is one of: {', '.join(among)}", where=name)
    return given


def address(path: str, **query: str | int | None) -> str:
    """A path with what stands behind its question mark; what is empty is left out, and `from_` is called `from`."""
    asked = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", 0)}
    return f"{path}?{urlencode(asked)}" if asked else path


# Templates, and the words that they may use.
#
# Everything that a template is given is escaped, names and notes are put on one line without control characters, and a
# variable that is not there is an error, not an empty place.

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""What a terminal would act upon: colours, moves, titles."""
_BLOCK_MOST = 20_000
_SAID_MOST = 4_000
_LINES_MOST = 40


class StaticFile(Struct, frozen=True):
    """A file that pages load; its version is part of its address, so that a browser may keep it."""

    body: bytes
    kind: str
    version: str


def _static() -> dict[str, StaticFile]:
    found = {}
    for one in files("allswell.interfaces.web").joinpath("static").iterdir():
        body = one.read_bytes()
        kind = guess_type(one.name)[0] or "application/octet-stream"
        found[one.name] = StaticFile(body, kind, sha256(body).hexdigest()[:12])
    return found


STATIC = _static()


def _address(name: str) -> str:
    return f"/static/{name}?v={STATIC[name].version}"


def said(text: str, most: int = _SAID_MOST) -> str:
    """Text from outside that has lines: each without control characters, and not too many of them."""
    lines = text[:most].splitlines()
    shown = [clean(line, 1_000) for line in lines[:_LINES_MOST]]
    return "\n".join(shown) + ("\n…" if len(lines) > _LINES_MOST or len(text) > most else "")


def plain(line: str, most: int = 1_000) -> str:
    """One line as it was printed, with its spaces and without what a terminal would act upon."""
    text = _ESCAPES.sub("", line[: most * 4]).expandtabs(4).rstrip()
    shown = "".join(char if char.isprintable() else "·" for char in text)
    return start_of(shown, most)


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
    return "" if spent.cost is None else money(spent.cost, estimated=spent.estimated > 0)


def _lined(text: str) -> Markup:
    """Text with its lines kept."""
    return Markup("<br>").join(escape(line) for line in said(text).split("\n"))


def _dollars(amount: float | None, estimated: float = 0) -> str:
    return money(None if amount is None else round(amount * USD), estimated=estimated > 0)


TEMPLATES = Environment(
    loader=PackageLoader("allswell.interfaces.web"),
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
    "utf8": lambda raw: bytes(raw).decode(),
}
TEMPLATES.globals |= {
    "agent_place": agent_place,
    "called": called,
    "does": does,
    "dollars": _dollars,
    "how_changed": _how_changed,
    "many": many,
    "moment": moment,
    "money": money,
    "place_of": place_of,
    "static": _address,
    "time": _time,
}
TEMPLATES.tests |= {"begins": _begins}

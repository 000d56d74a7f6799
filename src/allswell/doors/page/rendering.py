"""Templates, and the words that they may use.

Everything that a template is given is escaped, names and notes are put on one line without control characters, and a
variable that is not there is an error, not an empty place.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from mimetypes import guess_type

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from allswell.domain.expense import Spent
from allswell.domain.expense import shown as money
from allswell.doors.shapes.moment import moment
from allswell.engine.explaining.words import ago, clean, length, many, rough, within

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
TEMPLATES.filters |= {"clean": clean, "said": said, "lined": _lined, "rough": rough, "length": length, "cost": _cost}
TEMPLATES.globals |= {"static": _address, "many": many, "time": _time, "money": money, "moment": moment}

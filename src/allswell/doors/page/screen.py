"""How a screen is declared.

A screen looks (`look`), and its template shows what was seen, as `it`: a Struct with at least `title`, for the
browser's tab, and `now`, the store's clock. The same template draws the whole page and, for a page that is open, the
block `screen` anew: whenever an event comes that `refreshes` says may matter, and every `beat` seconds, so that bars
move. In the browser the new drawing is morphed into the old one: whatever has an `id` keeps its focus, its scroll
position, what was typed and whether it was folded open. So everything that can be focused or opened has one, made of
what it is about (`id="q-{{ question.id }}"`).

`look` has the whole call: `call.watch` and `call.views` as the reader's key allows them, `call.named("run")` for places
in the path, `call.query` for what stands behind the question mark.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import Struct

from allswell.domain.journal import Entry
from allswell.doors.http.call import Call

BEAT = 10.0
"""Seconds after which a screen is drawn anew although nothing has happened."""


def everything(_: Call, _entry: Entry) -> bool:
    """For a screen that any event may change."""
    return True


@dataclass(frozen=True)
class PageScreen:
    """One screen of the page."""

    path: str
    """Where it is, as Starlette writes it: `/runs/{run}`."""
    template: str
    look: Callable[[Call], Awaitable[Struct]]
    """What there is to be seen, for the template; it raises `Refused` where there is nothing under that name."""
    label: str = ""
    """What the navigation calls it; empty: it stands in no navigation."""
    refreshes: Callable[[Call, Entry], bool] = everything
    """Whether an event of the journal may have changed what it shows."""
    beat: float = BEAT

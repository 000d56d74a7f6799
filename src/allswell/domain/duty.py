"""A duty: what one process at a time does for the whole watch, such as following the journal for a sink.

Whoever does it keeps a word in the store and renews it. A word that has not been renewed for three times its pace is
nobody's, and so is that of a process known to be dead: a duty soon goes on when its process has died. The word is only
ever swapped for the one that was read, so of two that take a duty at once, one gets it. A process that slept through
the end of its word may still act once before it notices; whatever a duty does must bear being done twice.
"""

from __future__ import annotations

import msgspec

from allswell.domain.names import Millis

PACE = 5_000
"""Milliseconds between two words."""
_LOST = 3


class Duty(msgspec.Struct, frozen=True):
    """Who does it, and when that was last said."""

    marker: str
    """Of the process; no two have the same."""
    said_at: Millis
    pace: int = PACE
    let_go: bool = False


def is_free(duty: Duty | None, now: Millis, *, dead: bool = False) -> bool:
    """Whether anybody may take it; `dead` is what the caller knows of the process that has it.

    What was said far ahead of now was said by a clock that was set back.
    """
    return duty is None or dead or duty.let_go or abs(now - duty.said_at) >= duty.pace * _LOST


def is_ours(duty: Duty | None, marker: str) -> bool:
    """Whether a process has it."""
    return duty is not None and duty.marker == marker and not duty.let_go

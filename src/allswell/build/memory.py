"""What a coordinator must not forget: what the channel was told, and which messages it has acted on.

A server replays the last messages of a channel to whoever joins, up to a few hundred. Those that are remembered here
were acted on before, in this life of the coordinator or in an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from allswell.domain.build.heard import Heard
from allswell.domain.build.news import Told
from allswell.domain.names import Millis

_MOST = 400
"""More messages than any server replays."""
_RECALLED = 120
"""So much of a message without an id is enough to know it again."""


class BuildMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One word in the store."""

    told: Told = Told()
    said_until: Millis = Millis(0)
    """When our last line arrived, by the channel's clock."""
    heard: tuple[str, ...] = ()
    """The messages acted on, the last ones."""

    def having_heard(self, marks: Iterable[str]) -> Self:
        """As it is once these messages were acted on."""
        return msgspec.structs.replace(self, heard=(*self.heard, *marks)[-_MOST:])


def mark_of(heard: Heard) -> str:
    """By what a message is known again."""
    who, at, what = heard.mark
    return f"{at} {who} {what[:_RECALLED]}"

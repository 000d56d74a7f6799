"""What a coordinator must not forget: what the channel was told and is still owed, and which messages it has acted on.

A server replays the last messages of a channel to whoever joins, up to a few hundred. Those that are remembered here
were acted on before, in this life of the coordinator or in an earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

import msgspec

from allswell.domain.build.news import Told
from allswell.domain.build.owed import still_owed
from allswell.domain.names import Millis

_MOST = 400
"""More messages than any server replays."""


class BuildMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One word in the store."""

    told: Told = Told()
    said_until: Millis = Millis(0)
    """When our last line arrived, by the channel's clock."""
    heard: tuple[str, ...] = ()
    """The messages acted on, the last ones."""
    owed: tuple[str, ...] = ()
    """The lines that were decided and are not known to have arrived (`domain/build/owed.py`)."""
    names: tuple[str, ...] = ()
    """As whom we have talked here: without a key, a coordinator has another name each time."""
    keyless: tuple[str, ...] = ()
    """Builders who had a component, and do not keep their names."""

    def having_heard(self, marks: Iterable[str]) -> Self:
        """As it is once these messages were acted on."""
        return msgspec.structs.replace(self, heard=(*self.heard, *marks)[-_MOST:])

    def having_caught_up(self, who: str, old: Iterable[str], said: Counter[str]) -> Self:
        """As it is after the replay: what there is of ours in it was said, whether or not we knew."""
        memory = self.having_heard(old).as_whom(who)
        return msgspec.structs.replace(memory, owed=still_owed(memory.owed, said))

    def as_whom(self, who: str) -> Self:
        """As it is once we talk under this name."""
        return self if who in self.names else msgspec.structs.replace(self, names=(*self.names, who))

    def having_said(self, count: int, at: Millis) -> Self:
        """As it is once the first so many lines have arrived."""
        return msgspec.structs.replace(self, owed=self.owed[count:], said_until=at)

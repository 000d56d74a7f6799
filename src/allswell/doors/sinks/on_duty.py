"""Having a duty: its word in the store is taken, renewed and given back (domain/duty.py)."""

from __future__ import annotations

import msgspec

from allswell.domain.duty import PACE, Duty, is_free, is_ours
from allswell.domain.names import Millis
from allswell.engine.watch import Watch
from allswell.runtime.durable.process import is_dead


class OnDuty:
    """One process's hold on one duty."""

    def __init__(self, watch: Watch, key: str, marker: str) -> None:
        self._watch = watch
        self._key = key
        self._marker = marker

    async def take(self) -> bool:
        """Take the duty, or keep it; False if somebody else has it."""
        kept = await self._watch.recall(self._key)
        now = await self._watch.now()
        duty = _read(kept)
        dead = duty is not None and is_dead(duty.marker)
        if not is_ours(duty, self._marker) and not is_free(duty, now, dead=dead):
            return False
        return await self._say(kept, now)

    async def let_go(self) -> None:
        """Give it back, if it is still ours: the next one need not wait for the word to grow old."""
        kept = await self._watch.recall(self._key)
        if is_ours(_read(kept), self._marker):
            await self._say(kept, await self._watch.now(), let_go=True)

    async def _say(self, before: str | None, now: Millis, *, let_go: bool = False) -> bool:
        said = msgspec.json.encode(Duty(self._marker, now, PACE, let_go)).decode()
        return said == before or await self._watch.swap(self._key, before, said)


def _read(kept: str | None) -> Duty | None:
    try:
        return None if kept is None else msgspec.json.decode(kept, type=Duty)
    except msgspec.DecodeError:
        return None  # of another version: whoever wrote it is not asked

"""The keys of a watch: made, listed, revoked, and looked up by whoever takes calls from elsewhere.

They are few, so they are kept among the watch's own words (`store/words.py`), each under its name, and change only by a
swap with what was read: of two who make a key under one name at once, one is refused. The journal is told of each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from allswell.domain.event import Event
from allswell.domain.key import PREFIX, SECRET_BYTES, Key, is_over, new_key, revoked, secret_of, written
from allswell.domain.meant import nearest
from allswell.engine.watch import Watch
from allswell.errors import Refused

_decode = msgspec.json.Decoder(Key).decode


class Keyring:
    """The keys that a watch knows."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def create(
        self,
        name: str,
        rights: Sequence[str],
        *,
        roles: Sequence[str] = (),
        agents: Sequence[str] = (),
        lasts: int | None = None,
        by: str = "",
    ) -> tuple[Key, str]:
        """Make a key; what is kept of it, and its text, which nobody can be told a second time."""
        watch = self._watch
        secret, now = secret_of(os.urandom(SECRET_BYTES)), await watch.now()
        key = new_key(name, secret, rights, now, roles=roles, agents=agents, lasts=lasts, by=by)
        before = await watch.recall(PREFIX + name)
        if before is not None and not is_over(_decode(before), now):
            text = f"there is a key {name} already; `allswell key revoke {name}` ends it"
            raise Refused("key_exists", text, where="name")
        if not await watch.swap(PREFIX + name, before, _encoded(key)):
            raise Refused("key_exists", f"somebody else has just made a key {name}", where="name")
        told = {"name": name, "rights": list(key.rights), "roles": list(key.roles), "agents": list(key.agents)}
        await watch.notice(Event("key_created", data={**told, "expires_at": key.expires_at, "by": by}))
        return key, written(name, secret)

    async def all(self) -> list[Key]:
        """Every key there is or was, by name."""
        kept = await self._watch.views.view_kept(PREFIX)
        return [_decode(text) for _, text in sorted(kept.items())]

    async def find(self, name: str) -> Key | None:
        """The key of a name."""
        kept = await self._watch.recall(PREFIX + name)
        return None if kept is None else _decode(kept)

    async def revoke(self, name: str, by: str = "") -> Key:
        """End a key; whoever shows it from now on is refused."""
        watch = self._watch
        kept = await watch.recall(PREFIX + name)
        if kept is None:
            raise await self._unknown(name)
        ended = revoked(_decode(kept), await watch.now(), by)
        if not await watch.swap(PREFIX + name, kept, _encoded(ended)):
            raise Refused("key_changed", f"somebody else has just changed the key {name}; look again", where="name")
        await watch.notice(Event("key_revoked", data={"name": name, "by": by}))
        return ended

    async def named(self, name: str) -> Key:
        """The key that somebody at the store means; `Refused` with the nearest name if there is none."""
        found = await self.find(name)
        if found is None:
            raise await self._unknown(name)
        return found

    async def _unknown(self, name: str) -> Refused:
        like = nearest(name, [key.name for key in await self.all()])
        hint = f"did you mean {like}?" if like else "`allswell key list` shows those there are"
        return Refused("unknown_key", f"there is no key {name!r}", where="name", hint=hint)


def _encoded(key: Key) -> str:
    return msgspec.json.encode(key).decode()

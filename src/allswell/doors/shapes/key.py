"""A key for callers from elsewhere; its secret is in the answer that made it, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.domain.key import is_over
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.key import Key
    from allswell.domain.names import Millis

KeyState = Literal["valid", "expired", "revoked"]


class KeyShape(Struct, frozen=True):
    """A key: what it is for, whose tasks it may claim and under which names, and how long it holds."""

    name: str
    state: KeyState
    rights: tuple[str, ...]
    roles: tuple[str, ...]
    agents: tuple[str, ...]
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    revoked_at: Moment | None
    revoked_by: str | None

    @classmethod
    def of(cls, key: Key, now: Millis) -> KeyShape:
        """A key as it stands now."""
        state: KeyState = "revoked" if key.revoked_at is not None else "expired" if is_over(key, now) else "valid"
        return cls(
            name=key.name,
            state=state,
            rights=key.rights,
            roles=key.roles,
            agents=key.agents,
            created_at=moment(key.created_at),
            created_by=key.by,
            expires_at=moment(key.expires_at),
            revoked_at=moment(key.revoked_at),
            revoked_by=key.revoked_by or None,
        )


class KeysShape(Struct, frozen=True):
    """Several of them, by name."""

    keys: list[KeyShape]

    @classmethod
    def of(cls, keys: Sequence[Key], now: Millis) -> KeysShape:
        """These, as they stand now."""
        return cls([KeyShape.of(key, now) for key in keys])


class NewKeyShape(Struct, frozen=True):
    """A key that was made; `secret` is what its owner shows, and is told this once."""

    key: KeyShape
    secret: str


class LoginLinkShape(Struct, frozen=True):
    """A link that opens the page for whoever has this key; it works once, for ten minutes."""

    name: str
    url: str

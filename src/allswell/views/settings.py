"""Settings with where their values come from, and figures that do not fit into each other (`check`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from allswell.domain.access.key import Key, is_over
from allswell.domain.check.model import Finding, Severity
from allswell.domain.ids import Millis
from allswell.settings.settings import SettingRow
from allswell.timing.moment import Moment
from allswell.views.fields import as_shape


class SettingsShape(Struct, frozen=True):
    """Settings, the files they were read from, and names in the environment that are none."""

    settings: list[SettingRow]
    files: tuple[str, ...]
    unknown: tuple[str, ...]


# Figures that do not fit into each other, as `check` finds them.


class PlaceShape(Struct, frozen=True):
    """Where something is written: a file with line and column, a variable of the environment, or a flag."""

    source: str
    line: int | None
    column: int | None


class MisfitShape(Struct, frozen=True):
    """Figures that do not fit: which rule is broken, the sum that shows it, and what to do.

    `numbers` are the figures it follows from, under their names in the file; lengths of time are milliseconds there.
    """

    rule: str
    severity: Severity
    says: str
    sum: str | None
    total_ms: int | None
    limit_ms: int | None
    fix: str
    key: str
    place: PlaceShape | None
    numbers: dict[str, int | float]

    @classmethod
    def of(cls, found: Finding) -> MisfitShape:
        """One of them."""
        return as_shape(
            found,
            cls,
            sum=None if found.sum is None else str(found.sum),
            total_ms=None if found.sum is None else found.sum.total,
            limit_ms=None if found.sum is None else found.sum.limit,
            numbers={figure.name: figure.value for figure in found.figures},
        )


class CheckedShape(Struct, frozen=True):
    """All that does not fit, how much of each kind, and what the command ends with."""

    exit: int
    errors: int
    warnings: int
    notes: int
    findings: list[MisfitShape]

    @classmethod
    def of(cls, code: int, found: Sequence[Finding]) -> CheckedShape:
        """What was found."""
        errors, warnings, notes = (sum(one.severity is kind for one in found) for kind in Severity)
        return cls(code, errors, warnings, notes, [MisfitShape.of(one) for one in found])


# A key for callers from elsewhere; its secret is in the answer that made it, and nowhere else.

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
        return as_shape(key, cls, state=state, created_by=key.by, revoked_by=key.revoked_by or None)


class KeysShape(Struct, frozen=True):
    """Several of them, by name."""

    keys: list[KeyShape]


class NewKeyShape(Struct, frozen=True):
    """A key that was made; `secret` is what its owner shows; it is shown this once."""

    key: KeyShape
    secret: str


class LinksRevokedShape(Struct, frozen=True):
    """No answer link that was sent before `revoked_at` works any more."""

    revoked_at: Moment
    revoked_by: str


class LoginLinkShape(Struct, frozen=True):
    """A link that opens the page with this key; it works once, for ten minutes."""

    name: str
    url: str

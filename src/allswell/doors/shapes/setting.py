"""A setting, its value, and where that comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.settings.setting import Value

if TYPE_CHECKING:
    from allswell.settings import Row, Settings


class SettingShape(Struct, frozen=True):
    """One setting; `kind` tells what the value is: a `duration` is whole milliseconds. `shown` is it for people."""

    name: str
    role: str
    kind: str
    value: Value
    default: Value
    shown: str
    shown_default: str
    source: str
    where: str
    env: str
    description: str

    @classmethod
    def of(cls, row: Row) -> SettingShape:
        """One of them."""
        return cls(
            name=row.name,
            role=row.role,
            kind=row.kind,
            value=row.value,
            default=row.default,
            shown=row.shown,
            shown_default=row.shown_default,
            source=row.source,
            where=row.where,
            env=row.env,
            description=row.description,
        )


class SettingsShape(Struct, frozen=True):
    """Settings, the files they were read from, and names in the environment that are none."""

    settings: list[SettingShape]
    files: tuple[str, ...]
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, rows: Sequence[Row]) -> SettingsShape:
        """These rows of the settings."""
        return cls([SettingShape.of(row) for row in rows], settings.files, settings.strangers)

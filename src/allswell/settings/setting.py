"""What a setting is: its name, the kind of its value, and where it may be set."""

from __future__ import annotations

from enum import StrEnum

import msgspec

PREFIX = "ALLSWELL_"
Value = int | float | str | None


class Kind(StrEnum):
    """What a setting's value is."""

    TEXT = "text"
    DURATION = "duration"
    SECONDS = "seconds"
    """As a duration, but a bare number is seconds: what pools and queues are set with elsewhere."""
    COUNT = "count"
    SHARE = "share"
    PERCENT = "percent"
    SIZE = "size"
    MONEY = "money"
    """Dollars."""
    CHOICE = "choice"
    COMMAND = "command"
    """A program with its arguments: a list of words, or a text that is split into words, without a shell."""


class Setting(msgspec.Struct, frozen=True):
    """One setting."""

    name: str
    """With its table: `retry.backoff`."""
    kind: Kind
    default: Value
    description: str
    per_role: bool = False
    """Whether a role can have its own: `[roles.critic]`."""
    none: str | None = None
    """The word that stands for "no value", where there may be none."""
    choices: tuple[str, ...] = ()
    """What a choice is made from."""

    def env(self, role: str | None = None) -> str:
        """The variable of the environment that sets it, for all or for a role."""
        path = self.name if role is None else f"roles.{role}.{self.name}"
        return PREFIX + path.upper().replace(".", "_")

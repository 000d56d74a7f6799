"""What a worker goes by, checked when it is made."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from allswell.domain.handling import MESSAGES, MessagePolicy, checked_messages
from allswell.domain.health import HEALTH, HealthRules, checked_health
from allswell.domain.layers import LONGEST_SECONDS, Layers, checked_layers
from allswell.errors import Refused

TELLING: dict[str, Any] = {
    "application_name": "allswell-worker",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""How a connection notices that its server is gone; what the caller's conninfo says comes first."""


class WorkerPlan(msgspec.Struct, frozen=True):
    """The figures of one worker; seconds, unless a name says otherwise."""

    conninfo: str
    queue: str
    layers: Layers
    messages: MessagePolicy = MESSAGES
    health: HealthRules = HEALTH
    poll_interval: float = 1.0
    """How often is looked for messages when nobody tells of any."""
    listen: bool = True
    """Whether PGMQ's notifications are listened to; polling goes on in any case."""
    stop_timeout: float = 10.0
    """How long running handlers may go on when the worker is told to stop."""
    max_lifetime: float = 3_600.0
    max_idle: float = 600.0
    reconnect_timeout: float = 300.0

    def __repr__(self) -> str:
        """Without the conninfo: there may be a password in it."""
        return f"WorkerPlan(queue={self.queue!r}, layers={self.layers!r})"

    @property
    def min_size(self) -> int:
        """The fewest connections that the pool has."""
        return max(4, self.layers.concurrency)

    @property
    def max_size(self) -> int:
        """The most."""
        return 2 * self.min_size

    def connecting(self) -> dict[str, Any]:
        """What to connect with, beside the conninfo."""
        said = conninfo_to_dict(self.conninfo)
        ours = {name: value for name, value in TELLING.items() if name not in said}
        return {**ours, "prepare_threshold": None}  # behind a pooler nothing stays in a session


def checked_plan(plan: WorkerPlan) -> WorkerPlan:
    """This plan, or a `ValueError` that says what is wrong with it."""
    refuse_unreadable(plan.conninfo)
    checked_layers(plan.layers)
    checked_messages(plan.messages)
    checked_health(plan.health)
    for name in ("poll_interval", "max_lifetime", "max_idle", "reconnect_timeout"):
        if not 0 < getattr(plan, name) <= LONGEST_SECONDS:
            raise ValueError(f"{name} ({getattr(plan, name)}s) must be more than 0 and at most 366 days")
    if not 0 <= plan.stop_timeout <= LONGEST_SECONDS:
        raise ValueError(f"stop_timeout ({plan.stop_timeout}s) must be at least 0 and at most 366 days")
    return plan


def refuse_unreadable(conninfo: str) -> None:
    """Refuse what is no connection string, without showing it: there may be a password in it."""
    try:
        said = conninfo_to_dict(conninfo)
    except psycopg.Error:
        said = None
    if said is None or "@" in str(said.get("host", "")):  # the end of a password that has an @ itself
        text = "the connection string cannot be read: it is a postgresql:// URL, or pairs such as `host=… dbname=…`"
        hint = "special characters in a URL's user and password must be percent-encoded (@ is %40, / is %2F, % is %25)"
        raise Refused("bad_conninfo", text, where="conninfo", hint=hint)

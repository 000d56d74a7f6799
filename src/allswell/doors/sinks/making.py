"""Making the sinks that are written down, and what posts webhook requests, with the secrets of the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime

from allswell.domain.sink_spec import EVERYTHING, SinkSpec, hearing
from allswell.doors.sinks.sink import Sink
from allswell.doors.sinks.variables import variable
from allswell.doors.sinks.webhook_requests import Posting
from allswell.settings.settings import Settings
from allswell.timing.clock import SystemClock


def local_time(at: int) -> datetime:
    """A moment as the clock on this machine's wall shows it."""
    return datetime.fromtimestamp(at / 1_000).astimezone()


def make_sink(
    spec: SinkSpec,
    environ: Mapping[str, str] | None = None,
    *,
    wall: Callable[[], int] | None = None,
    local: Callable[[int], datetime] = local_time,
) -> Sink:
    """The sink that is written down so; `Refused` if it cannot be made."""
    environ = os.environ if environ is None else environ
    if spec.kind == "alerts":
        from allswell.doors.sinks.alerts import AlertsSink

        return AlertsSink(spec, environ, local)
    if spec.kind == "chat":
        from allswell.doors.sinks.chat import ChatSink

        return ChatSink(spec)
    wall = wall or SystemClock().wall
    if spec.kind == "notion":
        from allswell.doors.sinks.notion import NotionSink

        return NotionSink(spec, environ, wall)
    from allswell.doors.sinks.webhook import WebhookSink

    where = f"sinks.{spec.name}.secret_env"
    return WebhookSink(
        spec.name,
        spec.url,
        [variable(name, environ, where) for name in spec.secret_env],
        hearing(spec, (EVERYTHING,)).__contains__,
        begins=spec.begins,
        patience=spec.patience,
        limit=spec.timeout / 1_000,
        private=spec.allow_private,
        body_most=spec.max_body,
        wall=wall,
    )


def posting_of(settings: Settings, wall: Callable[[], int]) -> Posting:
    """How webhook requests are posted here."""
    return Posting(wall, settings.webhook_secrets, os.environ, private=settings.private_webhooks)

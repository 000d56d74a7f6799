"""The alerts sink: people are told through Apprise, which speaks to Slack, Discord, mail, ntfy, desktops and many more.

Each route of a severity is a target of its own: one that is down holds up no other. What waits for one route goes out
as one message. In quiet hours only what is critical goes out; the rest waits for their end, whenever it happened and
however often it was tried. When each cause was told last is the sink's memory: another process, and the same one
tomorrow, goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from allswell.domain.alert import DEFAULT_HEARS, SHOWN, Alert, together, told_now, worth_telling
from allswell.domain.delivery import Delivery
from allswell.domain.event import Event
from allswell.domain.journal import Entry
from allswell.domain.sink_spec import MESH, SEVERITIES, Severity, SinkSpec, hearing, quiet_left, routes_for
from allswell.doors.sinks.alerting import alert_of
from allswell.doors.sinks.route import Route
from allswell.doors.sinks.sink import Message
from allswell.store.views import Views

_decode = msgspec.json.Decoder(Alert).decode
_decode_told = msgspec.json.Decoder(dict[str, int]).decode
_MINUTE = 60_000


class AlertsSink:
    """Tells people."""

    together = SHOWN

    def __init__(self, spec: SinkSpec, environ: Mapping[str, str], local: Callable[[int], datetime]) -> None:
        self.name = spec.name
        self.begins: Literal["now", "start"] = spec.begins
        self.limit = spec.timeout / 1_000
        self.patience = spec.patience
        self.memory = ""
        self._spec = spec
        self._local = local
        self._hears = hearing(spec, DEFAULT_HEARS)
        where = f"sinks.{spec.name}.routes"
        self._routes = {
            f"{severity}.{number}": Route(route, environ, where)
            for severity in SEVERITIES
            for number, route in enumerate(routes_for(spec, severity))
        }
        self.targets: Sequence[str] = tuple(self._routes)

    async def messages(self, entry: Entry, views: Views) -> Sequence[Message]:
        """An alert for each route of its severity."""
        if entry.event.kind not in self._hears:
            return ()
        alert = await alert_of(entry, views, mesh=MESH in self._spec.hears, humans=self._spec.humans)
        told = _decode_told(self.memory) if self.memory else {}
        if alert is None or not worth_telling(alert, told, entry.at):
            return ()
        self.memory = msgspec.json.encode(told_now(alert, told, entry.at)).decode()
        body = msgspec.json.encode(alert).decode()
        return [Message(body, target) for target in self.targets if target.startswith(f"{alert.severity}.")]

    def free_at(self, target: str, now: int) -> int:
        """What is not critical is told after quiet hours."""
        if not self._spec.quiet or target.startswith("critical."):
            return now
        here = self._local(now)
        left = quiet_left(self._spec.quiet, here.hour * 60 + here.minute)
        return now - now % _MINUTE + left * _MINUTE if left else now

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Tell one route everything that waits for it, in one message."""
        alerts = [_decode(one.body) for one in batch]
        title, text = together(alerts)
        await self.tell(batch[0].target, alerts[0].severity, title, text)

    async def tell(self, target: str, severity: Severity, title: str, text: str) -> None:
        """Say something to one route."""
        await self._routes[target].tell(severity, title, text)

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """Of which questions somebody was told."""
        asked = dict.fromkeys(alert.question for alert in (_decode(one.body) for one in batch) if alert.question)
        return [Event("question_told", data={"question": question, "sink": self.name}) for question in asked]

    async def check(self) -> str:
        """All that can be known without telling anybody is known by now."""
        return f"{len(self._routes)} route(s); `allswell alerts test` tries them"

    async def close(self) -> None:
        """Nothing stays open between two messages."""

"""The alerts sink: people are told through Apprise, which speaks to Slack, Discord, mail, ntfy, desktops and many more.

Each route of a severity is a target of its own: one that is down holds up no other. What waits for one route goes out
as one message. In quiet hours only what is critical goes out; the rest waits for their end. Routes are secrets (they
hold tokens), so no error and no log of ours shows one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from allswell.domain.alert import AGAIN, DEFAULT_HEARS, Alert, together, worth_telling
from allswell.domain.delivery import Delivery, Failure
from allswell.domain.event import Event
from allswell.domain.journal import Entry
from allswell.domain.meant import nearest
from allswell.domain.sink_spec import MESH, SEVERITIES, Severity, SinkSpec, hearing, quiet_left, routes_for
from allswell.doors.sinks.alerting import alert_of
from allswell.doors.sinks.sink import Message, NotDelivered
from allswell.doors.sinks.variables import variable
from allswell.errors import Refused
from allswell.store.views import Views

if TYPE_CHECKING:
    from apprise import Apprise

_decode = msgspec.json.Decoder(Alert).decode
_TYPES: Mapping[Severity, str] = {"info": "info", "warning": "warning", "critical": "failure"}


class AlertsSink:
    """Tells people."""

    together = 50

    def __init__(self, spec: SinkSpec, environ: Mapping[str, str], local: Callable[[int], datetime]) -> None:
        self.name = spec.name
        self.begins: Literal["now", "start"] = spec.begins
        self.limit = spec.timeout / 1_000
        self.patience = spec.patience
        self._spec = spec
        self._local = local
        self._hears = hearing(spec, DEFAULT_HEARS)
        self._told: dict[str, int] = {}
        """When each cause was told last; an hour of it is enough."""
        self._routes: dict[str, Apprise] = {}
        for severity in SEVERITIES:
            for number, route in enumerate(routes_for(spec, severity)):
                where = f"sinks.{spec.name}.routes"
                self._routes[f"{severity}.{number}"] = _opened(route, environ, where)
        self.targets: Sequence[str] = tuple(self._routes)

    async def messages(self, entry: Entry, views: Views) -> Sequence[Message]:
        """An alert for each route of its severity."""
        event = entry.event
        if event.kind not in self._hears:
            return ()
        alert = await alert_of(entry, views, mesh=MESH in self._spec.hears)
        if alert is None or not worth_telling(alert, self._told, entry.at):
            return ()
        self._told = {cause: at for cause, at in self._told.items() if abs(entry.at - at) < AGAIN}
        self._told[alert.cause] = entry.at
        body = msgspec.json.encode(alert).decode()
        not_before = 0 if alert.severity == "critical" else self._quiet_end(entry.at)
        targets = [target for target in self.targets if target.startswith(f"{alert.severity}.")]
        return [Message(body, target, not_before) for target in targets]

    def _quiet_end(self, at: int) -> int:
        here = self._local(at)
        left = quiet_left(self._spec.quiet, here.hour * 60 + here.minute) if self._spec.quiet else 0
        return at - at % 60_000 + left * 60_000 if left else 0

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Tell one route everything that waits for it, in one message."""
        alerts = [_decode(one.body) for one in batch]
        title, text = together(alerts)
        await self.tell(batch[0].target, alerts[0].severity, title, text)

    async def tell(self, target: str, severity: Severity, title: str, text: str) -> None:
        """Say something to one route."""
        reason = await asyncio.to_thread(_notify, self._routes[target], _TYPES[severity], title, text)
        if reason is not None:
            raise NotDelivered(Failure(reason))

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """Of which questions somebody was told."""
        asked = dict.fromkeys(alert.question for alert in (_decode(one.body) for one in batch) if alert.question)
        return [Event("question_told", data={"question": question, "sink": self.name}) for question in asked]

    async def check(self) -> str:
        """All that can be known without telling anybody is known by now."""
        return f"{len(self._routes)} route(s); `allswell alerts test` tries them"

    async def close(self) -> None:
        """Nothing stays open between two messages."""


def _notify(route: Apprise, kind: str, title: str, text: str) -> str | None:
    """Why it did not work, or None."""
    import apprise

    said = _Said(logging.WARNING)
    log = logging.getLogger("apprise")
    log.addHandler(said)
    try:
        if route.notify(body=text, title=title, notify_type=apprise.NotifyType(kind)):
            return None
    finally:
        log.removeHandler(said)
    return f"Apprise could not deliver it: {said.lines[0]}" if said.lines else "Apprise could not deliver it"


class _Said(logging.Handler):
    """What Apprise says only to its log: why something did not work."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _opened(route: str, environ: Mapping[str, str], where: str) -> Apprise:
    """A route that Apprise knows; else `Refused`, without showing it."""
    try:
        import apprise
    except ImportError as error:
        raise Refused("no_driver", "alerts need a library: pip install 'allswell[sinks]'", where=where) from error
    logging.getLogger("apprise").addHandler(logging.NullHandler())  # or what it cannot read goes to standard error
    named = f" ({route})" if route.startswith("env:") else ""
    if named:
        route = variable(route.removeprefix("env:"), environ, where)
    made = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True))
    if made.add(route):
        return made
    scheme, colon, _ = route.partition("://")
    known = [word for one in apprise.Apprise().details()["schemas"] for word in _schemes(one)]
    if not colon or not scheme.isalnum():
        said = "is no URL; Apprise's look like slack://…, mailtos://… or ntfy://…"
    elif scheme in known:
        said = f"begins with {scheme}://, and Apprise cannot read what follows"
    else:
        near = nearest(scheme, known)
        said = f"begins with {scheme}://, which Apprise does not know" + (f"; did you mean {near}://?" if near else "")
    raise Refused("bad_route", f"{where}: a route{named} {said}", where=where)


def _schemes(details: Mapping[str, object]) -> list[str]:
    found: list[str] = []
    for key in ("protocols", "secure_protocols"):
        words = details.get(key)
        found += [str(word) for word in words] if isinstance(words, list | tuple) else []
    return found

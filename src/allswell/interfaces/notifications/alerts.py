"""The alerts sink: people are told through Apprise, which speaks to Slack, Discord, mail, ntfy, desktops and many more.

Each route of a severity is a target of its own: one that is down holds up no other. What waits for one route goes out
as one message. In quiet hours only what is critical goes out; the rest waits for their end, whenever it happened and
however often it was tried. When each cause was told last is the sink's memory: another process, and the same one
tomorrow, goes on with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from allswell.build.merge import ChannelClosed
from allswell.domain.build.announcements import MESSAGE_BYTES
from allswell.domain.ids import QuestionId
from allswell.domain.mesh.comms import CHANNEL_HEARS as MESH_HEARS
from allswell.domain.mesh.comms import COMMS_HEARS as COMM_HEARS
from allswell.domain.mesh.comms import SentenceContext, mesh_words
from allswell.domain.notify.alert import (
    DEFAULT_HEARS,
    SHOWN,
    Alert,
    AnswerButton,
    alert_for,
    each_cause_once,
    plain_text,
    sentence,
    together,
    told_now,
    with_links,
    worth_telling,
)
from allswell.domain.notify.delivery import Delivery, DeliveryFailure
from allswell.domain.notify.spec import MESH, SEVERITIES, Severity, SinkSpec, hearing, quiet_left, routes_for
from allswell.domain.rules.event import Entry, Event
from allswell.domain.task.submit import WEBHOOKS
from allswell.domain.values import nearest
from allswell.engine.access.keys import LinkService
from allswell.engine.status.explanation import clean
from allswell.engine.status.journal import asked_of
from allswell.errors import AllswellError, Refused
from allswell.interfaces.chat.agentchat import AgentChat, ChatPlace, read_key
from allswell.interfaces.notifications.sink import NotDelivered, SinkDefaults, SinkMessage, variable
from allswell.runtime.calls import Threads
from allswell.store.views import Views

if TYPE_CHECKING:
    from apprise import Apprise, NotifyBase

    from allswell.engine.watch import Watch


# One route of an alerts sink: an Apprise URL, and a thread of its own to speak through it.
#
# Apprise blocks, and nothing can stop it. A call that hangs keeps its own route busy and nobody else: no thread that
# others need is used, no second one is begun behind it, and the process may end all the same. Routes are secrets (they
# hold tokens), so no error of ours shows one.

_TYPES: Mapping[Severity, str] = {"info": "info", "warning": "warning", "critical": "failure"}


class AlertRoute:
    """Somebody whom Apprise can reach."""

    def __init__(self, url: str, environ: Mapping[str, str], where: str) -> None:
        self._apprise = _opened(url, environ, where)
        self._threads = Threads(1, name="allswell-route")

    @property
    def buttons(self) -> int:
        """How many buttons a message can have here."""
        return _NTFY_BUTTONS if all(_has_buttons(service) for service in self._apprise) else 0

    async def tell(self, severity: Severity, title: str, text: str, buttons: Sequence[AnswerButton] = ()) -> None:
        """Say something; `NotDelivered` if that did not work."""
        if self._threads.busy:
            raise NotDelivered(DeliveryFailure("the message before is still being sent"))
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def tell_loop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        call = self._threads.call(lambda: _notify(_with_buttons(self._apprise, buttons), _TYPES[severity], title, text))
        call.tell(tell_loop)
        await ended.wait()
        reason = call.result()
        if reason is not None:
            raise NotDelivered(DeliveryFailure(reason))


def _notify(route: Apprise, kind: str, title: str, text: str) -> str | None:
    """Why it did not work, or None."""
    import apprise

    said = _AppriseLog()
    log = logging.getLogger("apprise")
    log.addHandler(said)
    try:
        # As text: else a mail, Telegram or Slack would read what an agent has written as markup.
        told = route.notify(
            body=plain_text(text),
            title=plain_text(title),
            notify_type=apprise.NotifyType(kind),
            body_format=apprise.NotifyFormat.TEXT,
        )
        if told:
            return None
    finally:
        log.removeHandler(said)
    return f"Apprise could not deliver it: {said.lines[0]}" if said.lines else "Apprise could not deliver it"


# Buttons, where Apprise has them: for ntfy. For Slack it takes them from a template, which would have to be a file for
# each message; Discord shows none in what a plain webhook posts; others have one address for a whole message.

_NTFY_BUTTONS = 3
"""As many as ntfy shows."""
_LABEL_MOST = 60


def _has_buttons(service: NotifyBase) -> bool:
    """Whether a service shows buttons, and its route has none of its own."""
    return str(service.service_name) == "ntfy" and "&actions=" not in _url_of(service)


def _url_of(service: NotifyBase) -> str:
    url: object = service.url()  # type: ignore[no-untyped-call]
    return str(url)


def _with_buttons(route: Apprise, buttons: Sequence[AnswerButton]) -> Apprise:
    """The same route for one message with buttons, each of which opens a page."""
    if not buttons:
        return route
    import apprise

    # In ASCII, since it travels as a header, and without what Apprise decodes, more than once, in a URL: else a label,
    # which may be an agent's, could end its quotation. `view` opens an address; the notification itself posts nothing.
    actions = json.dumps([{"action": "view", "label": one.label, "url": one.url} for one in buttons])
    actions = actions.replace("%", "\\u0025").replace("+", "\\u002b")
    made = apprise.Apprise(asset=route.asset)
    for service in route:
        made.add(f"{_url_of(service)}&actions={quote(actions, safe='')}")
    return made


class _AppriseLog(logging.Handler):
    """What Apprise says only to its log: why something did not work. Other routes speak in other threads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


def _opened(route: str, environ: Mapping[str, str], where: str) -> Apprise:
    """A route that Apprise knows; else `Refused`, without showing it."""
    try:
        import apprise
    except ImportError as error:
        raise Refused(
            "no_driver",
            "alerts need the extra `sinks`: in Allswell's clone, type `uv tool install '.[sinks]'`",
            where=where,
        ) from error
    logging.getLogger("apprise").addHandler(logging.NullHandler())  # or what it cannot read goes to standard error
    named = f" ({route})" if route.startswith("env:") else ""
    if named:
        route = variable(route.removeprefix("env:"), environ, where)
    # Without a limit of its own it uses no threads of its own, which the end of a process would wait for.
    made = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True, service_timeout=0))
    if made.add(route):
        return made
    scheme, colon, _ = route.partition("://")
    known = [word for one in apprise.Apprise().details()["schemas"] for word in _schemes(one)]
    if not colon or not scheme.isalnum():
        said = "is not a URL; Apprise's look like slack://…, mailtos://… or ntfy://…"
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


# What people or a channel are told of an event, with the names and options that only the store knows.


async def alert_of(entry: Entry, views: Views, *, mesh: bool, humans: Sequence[str] = ()) -> Alert | None:
    """What to say about an event; with `mesh`, in the protocol's own sentences where it has one. None: nothing."""
    event = entry.event
    row = None if event.task is None else await views.view_task(event.task)
    name = "" if row is None else row.task.name
    if event.kind == "task_claimed" and row is not None and row.task.role == WEBHOOKS:
        return None  # our own poster has taken a webhook up: no agent has
    if mesh and event.kind in MESH_HEARS:
        asked = await asked_of(views, event) if event.kind in COMM_HEARS else None
        about = SentenceContext(name, humans=humans)
        if asked is not None:
            about = SentenceContext(name, asked.summary, asked.to, humans)
        words = mesh_words(event, about)
        cause = f"{entry.position.xid}.{entry.position.id}"
        return None if words is None else sentence(words, cause, urgent=bool(event.data.get("critical")))
    question = None
    if event.kind == "question_asked":
        question = await views.view_question(QuestionId(str(event.data["question"])))
    return alert_for(event, name, () if question is None else question.options)


_decode = msgspec.json.Decoder(Alert).decode
_decode_told = msgspec.json.Decoder(dict[str, int]).decode
_MINUTE = 60_000


class _ToldQuestions(SinkDefaults):
    """A sink whose deliveries say of which questions somebody was told."""

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """Of which questions somebody was told."""
        asked = dict.fromkeys(alert.question for alert in (_decode(one.body) for one in batch) if alert.question)
        return [Event("question_told", data={"question": question, "sink": self.name}) for question in asked]


class AlertsSink(_ToldQuestions):
    """Tells people."""

    together = SHOWN

    def __init__(
        self,
        spec: SinkSpec,
        environ: Mapping[str, str],
        local: Callable[[int], datetime],
        origin: str | None = None,
    ) -> None:
        super().__init__(spec)
        self._spec = spec
        self._local = local
        self._origin = None if MESH in spec.hears else origin  # agents read a channel of the mesh
        self._links: LinkService | None = None
        self._hears = hearing(spec, DEFAULT_HEARS)
        where = f"sinks.{spec.name}.routes"
        self._routes = {
            f"{severity}.{number}": AlertRoute(route, environ, where)
            for severity in SEVERITIES
            for number, route in enumerate(routes_for(spec, severity))
        }
        self.targets = tuple(self._routes)

    def attach(self, watch: Watch) -> None:
        """Sign links with the secret of this watch's store."""
        self._links = LinkService(watch)

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        """An alert for each route of its severity."""
        if entry.event.kind not in self._hears:
            return ()
        alert = await alert_of(entry, views, mesh=MESH in self._spec.hears, humans=self._spec.humans)
        told = _decode_told(self.memory) if self.memory else {}
        if alert is None or not worth_telling(alert, told, entry.at):
            return ()
        self.memory = msgspec.json.encode(told_now(alert, told, entry.at)).decode()
        body = msgspec.json.encode(alert).decode()
        return [SinkMessage(body, target) for target in self.targets if target.startswith(f"{alert.severity}.")]

    def free_at(self, target: str, now: int) -> int:
        """What is not critical is told after quiet hours."""
        if not self._spec.quiet or target.startswith("critical."):
            return now
        here = self._local(now)
        left = quiet_left(self._spec.quiet, here.hour * 60 + here.minute)
        return now - now % _MINUTE + left * _MINUTE if left else now

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Tell one route everything that waits for it, in one message."""
        target = batch[0].target
        alerts = each_cause_once([_decode(one.body) for one in batch])
        links = [await self._signed(alert, target) for alert in alerts]
        first = links[0][: self._routes[target].buttons] if len(alerts) == 1 else []
        title, text = together([with_links(alert, own[len(first) :]) for alert, own in zip(alerts, links, strict=True)])
        await self._routes[target].tell(alerts[0].severity, title, text, first)

    async def _signed(self, alert: Alert, target: str) -> list[AnswerButton]:
        """A link for each option of the question that an alert asks, and that a link may choose.

        Without an answer from the store the alert goes out all the same, without links.
        """
        if self._links is None or self._origin is None or not alert.question:
            return []
        try:
            links = await self._links.sign_for(QuestionId(alert.question), self._origin, self.name, target)
        except AllswellError:
            return []
        return [AnswerButton(clean(link.label, _LABEL_MOST), link.does, link.url) for link in links]

    async def tell(self, target: str, severity: Severity, title: str, text: str) -> None:
        """Say something to one route."""
        await self._routes[target].tell(severity, title, text)

    async def check(self) -> str:
        """All that can be known without telling anybody is known by now."""
        return f"{len(self._routes)} route(s); `allswell alerts test` tries them"


# The chat sink: what happens is said in an AgentChat channel, line by line, in the protocol's own sentences.
#
# The channel is joined for what waits, and left again: nobody is listened to. A line has arrived when the server has
# echoed it. An echo that is lost may let a line be said twice; chat servers know no ids of ours.


class ChatSink(_ToldQuestions):
    """Says it in a channel."""

    together = 20

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._mesh = MESH in (spec.hears or (MESH,))
        self._humans = spec.humans
        self._hears = hearing(spec, (MESH,))
        self._place = ChatPlace(spec.url, spec.channel, spec.speaks_as).checked()
        self._key = read_key(Path(spec.key).expanduser()) if spec.key else None

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        """A line about an event."""
        if entry.event.kind not in self._hears:
            return ()
        alert = await alert_of(entry, views, mesh=self._mesh, humans=self._humans)
        return () if alert is None else [SinkMessage(msgspec.json.encode(alert).decode())]

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Say all that waits."""
        lines = [line_of(_decode(one.body)) for one in batch]
        try:
            async with AgentChat(self._place, self._key) as chat:
                await chat.send(lines)
        except (Refused, ChannelClosed) as error:
            raise NotDelivered(DeliveryFailure(f"{self._place.url}: {error}")) from None

    async def check(self) -> str:
        """Nobody is disturbed: what can be read is right."""
        known = "by its key" if self._key is not None else "as a stranger"
        return f"{self._place.channel} at {self._place.url}, {known}"


def line_of(alert: Alert) -> str:
    """An alert on one line, no longer than a chat takes."""
    words = " ".join(f"{alert.title}: {alert.text}".removeprefix(": ").split())
    raw = words.encode()
    return words if len(raw) <= MESSAGE_BYTES else raw[: MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"

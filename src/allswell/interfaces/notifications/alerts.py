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
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from html import escape
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
from allswell.domain.values import nearest, start_of
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
        return min(_buttons_of(service) for service in self._apprise)

    async def tell(self, severity: Severity, title: str, text: str, buttons: Sequence[AnswerButton] = ()) -> None:
        """Say something; `NotDelivered` if that did not work."""
        if self._threads.busy:
            raise NotDelivered(DeliveryFailure("the message before is still being sent"))
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def tell_loop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        call = self._threads.call(lambda: _notify(self._apprise, _TYPES[severity], title, text, buttons))
        call.tell(tell_loop)
        await ended.wait()
        reason = call.result()
        if reason is not None:
            raise NotDelivered(DeliveryFailure(reason))


def _notify(route: Apprise, kind: str, title: str, text: str, buttons: Sequence[AnswerButton]) -> str | None:
    """Why it did not work, or None."""
    import apprise

    title, text, severity = plain_text(title), plain_text(text), apprise.NotifyType(kind)
    said = _AppriseLog()
    log = logging.getLogger("apprise")
    log.addHandler(said)
    try:
        with _with_buttons(route, title, text, buttons) as told_route:
            # As text: else a mail, Telegram or Slack would read what an agent has written as markup.
            told = told_route.notify(
                body=text, title=title, notify_type=severity, body_format=apprise.NotifyFormat.TEXT
            )
        if told:
            return None
    finally:
        log.removeHandler(said)
    return f"Apprise could not deliver it: {said.lines[0]}" if said.lines else "Apprise could not deliver it"


# Buttons, where Apprise has them: each opens a page, and posts nothing itself. ntfy takes them in a header. Slack takes
# them in the blocks of a template, Discord as titles with a link in the embeds of one: its real buttons need a word in
# the address that Apprise cannot say. A template is the whole message, as a file, which here lies in memory alone.

_BUTTONS_MOST: Mapping[str, int] = {"ntfy": 3, "Slack": 5, "Discord": 5}
"""As many as each shows at once, or as are good to look at."""
_OWN = ("&actions=", "&template=", "&ping=", "&mode=workflow", "&mode=trigger")
"""What a route can say for itself that buttons would take the place of, or that leaves no place for them."""
_LABEL_MOST = 60
_SLACK_TITLE = 150
_SLACK_SECTION = 2_900
"""Characters of a block of text; Slack refuses the whole message where one has more than 3,000."""
_DISCORD_TITLE = 250
_DISCORD_TEXT = 4_000
"""The same for Discord's embeds: 256 and 4,096."""


def _buttons_of(service: NotifyBase) -> int:
    """How many buttons a service shows; none where its route says what it shows."""
    url = _url_of(service)
    return 0 if any(word in url for word in _OWN) else _BUTTONS_MOST.get(str(service.service_name), 0)


def _url_of(service: NotifyBase) -> str:
    url: object = service.url()  # type: ignore[no-untyped-call]
    return str(url)


@contextmanager
def _with_buttons(route: Apprise, title: str, text: str, buttons: Sequence[AnswerButton]) -> Iterator[Apprise]:
    """The same route for one message with buttons."""
    if not buttons:
        yield route
        return
    import apprise

    made = apprise.Apprise(asset=route.asset)
    with ExitStack() as templates:
        for service in route:
            name, url = str(service.service_name), _url_of(service)
            if name == "ntfy":
                made.add(f"{url}&actions={quote(_actions(buttons), safe='')}")
                continue
            content = _slack(title, text, buttons) if name == "Slack" else _discord(title, text, buttons)
            # No word of it is one of Apprise's own: {{…}} would be replaced.
            template = json.dumps(content).replace("{{", "\\u007b\\u007b").encode()
            file = templates.enter_context(os.fdopen(os.memfd_create("alert"), "wb", buffering=0))
            file.write(template)
            made.add(f"{url}&template={quote(f'/proc/self/fd/{file.fileno()}', safe='')}")
        for service in made:
            service.overflow_mode = apprise.OverflowMode.UPSTREAM  # it is one message, and has bounds of its own
        yield made


def _actions(buttons: Sequence[AnswerButton]) -> str:
    """Buttons of ntfy.

    In ASCII, since they travel as a header, and without what Apprise decodes, more than once, in a URL: else a label,
    which may be an agent's, could end its quotation.
    """
    actions = json.dumps([{"action": "view", "label": one.label, "url": one.url} for one in buttons])
    return actions.replace("%", "\\u0025").replace("+", "\\u002b")


def _slack(title: str, text: str, buttons: Sequence[AnswerButton]) -> dict[str, object]:
    """A message of Slack's blocks, none of which is read as markup."""

    def plain(words: str) -> dict[str, object]:
        return {"type": "plain_text", "text": words, "emoji": False}

    pieces: list[str] = []
    left = escape(text, quote=False)
    while left:
        end = len(left) if len(left) <= _SLACK_SECTION else left.rfind("\n", 1, _SLACK_SECTION)
        pieces.append(left[: end if end > 0 else _SLACK_SECTION])
        left = left[len(pieces[-1]) :].lstrip("\n")
    shown = escape(title, quote=False)[:_SLACK_TITLE]
    elements = [
        {
            "type": "button",
            "text": plain(escape(plain_text(one.label), quote=False)),
            "url": one.url,
            "action_id": f"answer{number}",
        }
        for number, one in enumerate(buttons)
    ]
    blocks: list[dict[str, object]] = [{"type": "header", "text": plain(shown)}]
    blocks += [{"type": "section", "text": plain(piece)} for piece in pieces]
    return {"fallback": shown, "blocks": [*blocks, {"type": "actions", "elements": elements}]}


def _discord(title: str, text: str, buttons: Sequence[AnswerButton]) -> dict[str, object]:
    """A message of Discord's: its text, and below it a card for each button, whose title is a link."""
    cards = [{"title": plain_text(one.label), "url": one.url, "description": one.does} for one in buttons]
    embeds = [{"description": start_of(text, _DISCORD_TEXT)}, *cards]
    return {"content": start_of(title, _DISCORD_TITLE), "embeds": embeds, "allowed_mentions": {"parse": []}}


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
        for service in made:
            service.overflow_mode = apprise.OverflowMode.SPLIT  # Discord, for one, refuses what is too long as a whole
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
        return [msgspec.structs.replace(link, label=clean(link.label, _LABEL_MOST)) for link in links]

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

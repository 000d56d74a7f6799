"""Alerts through Apprise, over real sockets: who is told what, when, and once per cause."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email import message_from_string
from typing import Any

import pytest

from allswell.app import make_watch
from allswell.domain.ids import Millis, TaskId
from allswell.domain.notify.alert import (
    AGAIN,
    REMEMBERED,
    SHOWN,
    Alert,
    alert_for,
    plain_text,
    together,
    told_now,
    worth_telling,
)
from allswell.domain.notify.delivery import Delivery, delivery_id
from allswell.domain.notify.spec import SinkSpec
from allswell.domain.question import REPLY, SKIP, AnswerAction, Option
from allswell.domain.rules.event import Entry, Event, Position
from allswell.domain.task.submit import WEBHOOKS
from allswell.errors import Refused
from allswell.interfaces.notifications.alerts import AlertRoute, AlertsSink
from allswell.interfaces.notifications.follower import Follower, make_sink
from allswell.interfaces.notifications.sink import NotDelivered
from allswell.interfaces.notifications.webhook import AGENT
from allswell.store.memory import MemoryStore
from tests.engine.stage import Stage, play
from tests.patience import SECONDS
from tests.support.fakes import AlertReceiver, ChatReceiver, Hang, NtfyReceiver, StandIn, Status

AT = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
ASKED = Event(
    "question_asked",
    TaskId("t_1"),
    data={"question": "q_1.1", "kind": "agent", "text": "Which database?", "options": ["reply", "skip"]},
)


def utc(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, tz=UTC)


@pytest.fixture
def receiver() -> Iterator[AlertReceiver]:
    with AlertReceiver() as receiver:
        yield receiver


def sink_for(spec: SinkSpec, **environ: str) -> AlertsSink:
    sink = make_sink(spec, environ, local=utc)
    assert isinstance(sink, AlertsSink)
    return sink


async def taken_in(sink: AlertsSink, *events: tuple[int, Event]) -> list[Delivery]:
    found = []
    store = MemoryStore()
    await store.open()
    for number, (at, event) in enumerate(events, 1):
        entry = Entry(Position(1, number), Millis(at), event)
        for part, message in enumerate(await sink.messages(entry, store)):
            place = (1, number, part)
            id_ = delivery_id(sink.name, Millis(at), place)
            found.append(Delivery(sink.name, id_, message.target, place, Millis(at), message.body))
    return found


def told(sink: AlertsSink, *events: tuple[int, Event]) -> Sequence[Delivery]:
    """Take events in, and tell each route what waits for it."""

    async def main() -> list[Delivery]:
        found = await taken_in(sink, *events)
        for target in sink.targets:
            batch = [one for one in found if one.target == target]
            if batch:
                await sink.send(batch)
        return found

    return asyncio.run(main())


def test_a_question_is_told_with_the_commands_that_answer_it(receiver: AlertReceiver) -> None:
    told(sink_for(SinkSpec(name="oncall", kind="alerts", routes={"info": (receiver.route("all"),)})), (AT, ASKED))
    ((path, alert),) = receiver.taken
    assert path == "/all"
    assert alert.type == "warning"
    assert alert.title == "A question"
    assert alert.message.strip() == "Which database?\n\nallswell questions"
    said = alert_for(
        ASKED,
        "deploy",
        [Option("reply", "Answer in words", AnswerAction.REPLY), Option("skip", "Skip", AnswerAction.SKIP)],
    )
    assert said.title == "A question about deploy"
    assert said.text == (
        "Which database?\n\nAnswer with one of:\n"
        "  allswell answer q_1.1 reply    (Answer in words: it goes on, with your answer)\n"
        "  allswell answer q_1.1 skip    (Skip: it ends without being done)"
    )


def test_a_severity_goes_to_its_own_routes_or_to_those_of_the_next_lower_one(receiver: AlertReceiver) -> None:
    routes = {"info": (receiver.route("info"),), "critical": ("env:PAGER", receiver.route("boss"))}
    spec = SinkSpec(name="oncall", kind="alerts", routes=routes)
    escalated = Event(
        "service_escalated", data={"service": "model", "cause": "auth", "reason": "401", "question": "q_@model.1"}
    )
    told(sink_for(spec, PAGER=receiver.route("pager")), (AT, ASKED), (AT, escalated))
    assert sorted((path, alert.type) for path, alert in receiver.taken) == [
        ("/boss", "failure"),
        ("/info", "warning"),
        ("/pager", "failure"),
    ]


def told_of_questions(texts: Sequence[str], origin: str | None, *told: StandIn, **about: Any) -> None:  # noqa: ANN401 - of a sink
    """Ask these questions, and follow the journal until they were told."""

    async def main() -> None:
        async with make_watch(MemoryStore(), sweeping=False) as watch:
            for text in texts:
                task = await watch.submit("deploy", role="build")
                lease = await watch.claim(agent="ada", task=task)
                assert lease is not None
                left = Option("left", f"Left, at 50%22,%22 and {'on ' * 40}", AnswerAction.RETRY)
                await lease.ask(text, [left, REPLY, SKIP])
            sink = make_sink(SinkSpec(name="phone", kind="alerts", begins="start", **about), {}, origin=origin)
            running = asyncio.ensure_future(Follower(watch, sink, "one").run())
            for one in told:
                await asyncio.to_thread(one.wait_for, 2 if "hears" in about else 1, SECONDS)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_a_question_is_told_with_a_link_for_what_a_link_may_choose(receiver: AlertReceiver) -> None:
    origin = "https://watch.example.org"
    told_of_questions(["Which way?", "And now?"], origin, receiver, routes={"info": (receiver.route(),)})
    ((_, alert),) = receiver.taken
    asks = alert.message.split("And now?")
    assert len(asks) == 2, "both in one message"
    for part in asks:
        commands, links = part.split("Or open a link; its page asks you to confirm:\n")
        lines = links.strip().splitlines()[:4]
        assert lines[0].startswith("Left, at 50%22,%22 and on on on")
        assert lines[0].endswith("… (it goes on, with your choice):")
        assert lines[2] == "Answer in words (it goes on, with your answer):"
        assert all(re.fullmatch(rf"{origin}/answer/[\w-]{{80,120}}", url) for url in lines[1::2])
        assert "skip" in commands
        assert "Skip" not in links.split("\n\n")[0], "a link ends no task"


def test_buttons_of_ntfy_are_its_own_whatever_an_agent_calls_an_option() -> None:
    with NtfyReceiver() as phone:
        told_of_questions(["Which way?"], "https://watch.example.org", phone, routes={"info": (phone.route("night"),)})
        (notice,) = phone.taken
    assert [button.label[:18] for button in notice.buttons] == ["Left, at 50%22,%22", "Answer in words"]
    assert {button.action for button in notice.buttons} == {"view"}
    assert all(button.url.startswith("https://watch.example.org/answer/") for button in notice.buttons)
    assert len(notice.buttons[0].label) == 60


ORIGIN = "https://watch.example.org"
LINK = re.compile(rf"{ORIGIN}/answer/[\w-]{{80,120}}")


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatReceiver]:
    with ChatReceiver(monkeypatch) as chat:
        yield chat


def test_buttons_of_slack_are_blocks_whatever_a_question_is(chat: ChatReceiver) -> None:
    text = "Which <way>, *left* & right? {{app_title}} <!channel>\n" + "How it came to this. " * 90
    told_of_questions([text], ORIGIN, chat, routes={"info": (chat.slack(),)})
    ((part,),) = [message["attachments"] for message in chat.taken]
    assert part["fallback"] == "A question about deploy"
    header, *sections, actions = part["blocks"]
    assert header["text"] == {"type": "plain_text", "text": "A question about deploy", "emoji": False}
    shown = "\n".join(section["text"]["text"] for section in sections)
    assert shown.startswith("Which &lt;way&gt;, *left* &amp; right? {{app_title}} &lt;\u200b!channel&gt;")
    assert {section["text"]["type"] for section in sections} == {"plain_text"}, "nothing of it is markup"
    assert "allswell answer q_" in shown
    assert "/answer/" not in shown, "what has a button needs no line"
    left, words = actions["elements"]
    assert left["text"]["text"].startswith("Left, at 50%22,%22 and on on")
    assert words["text"] == {"type": "plain_text", "text": "Answer in words", "emoji": False}
    assert LINK.fullmatch(left["url"])
    assert LINK.fullmatch(words["url"])


def test_buttons_of_discord_are_cards_with_a_link(chat: ChatReceiver) -> None:
    told_of_questions(["Which way? @everyone {{app_title}}"], ORIGIN, chat, routes={"info": (chat.discord(),)})
    (message,) = chat.taken
    text, left, words = message["embeds"]
    assert message["content"] == "A question about deploy"
    assert text["description"].startswith("Which way? @\u200beveryone {{app_title}}")
    assert "/answer/" not in text["description"]
    assert message["allowed_mentions"] == {"parse": []}
    assert left["title"].startswith("Left, at 50%22,%22 and on on")
    assert (words["title"], words["description"]) == ("Answer in words", "it goes on, with your answer")
    assert LINK.fullmatch(left["url"])
    assert LINK.fullmatch(words["url"])


@pytest.mark.parametrize("more, buttons", [("", 5), ("?ping=@here", 0)])
def test_a_route_that_says_itself_what_it_shows_has_links_as_text(chat: ChatReceiver, more: str, buttons: int) -> None:
    assert AlertRoute(chat.discord() + more, {}, "here").buttons == buttons


def test_what_is_too_long_for_a_service_goes_out_in_parts(chat: ChatReceiver) -> None:
    """Discord refuses more than 2,000 characters; ten alerts together have more, and so has one with its links."""
    texts = [f"Which way, {number}? {'Think of it. ' * 100}" for number in range(3)]
    told_of_questions(texts, ORIGIN, chat, routes={"info": (chat.discord(),)})
    asyncio.run(asyncio.to_thread(chat.wait_for, 5, SECONDS))
    assert all(len(message["content"]) <= 2_000 for message in chat.taken)
    said = "".join(message["content"] for message in chat.taken)
    assert all(f"Which way, {number}?" in said for number in range(3))
    assert len(LINK.findall(said)) == 6


@pytest.mark.parametrize("about", [{"origin": None}, {"hears": ("mesh", "question_asked")}])
def test_no_link_goes_out_without_a_public_address_or_where_agents_read(
    about: dict[str, Any], receiver: AlertReceiver
) -> None:
    with NtfyReceiver() as phone:
        routes = {"info": (receiver.route(), phone.route("night"))}
        more = {"origin": "https://watch.example.org", "routes": routes, **about}
        told_of_questions(["Which way?"], more.pop("origin"), phone, receiver, **more)
        (notice,) = [one for one in phone.taken if "Which way?" in one.message]
    (alert,) = [one for _, one in receiver.taken if "Which way?" in one.message]
    assert notice.buttons == ()
    assert "/answer/" not in notice.message + alert.message
    assert "allswell answer" in alert.message


def test_what_waits_is_told_together_and_each_cause_once(receiver: AlertReceiver) -> None:
    spec = SinkSpec(name="oncall", kind="alerts", routes={"info": (receiver.route(),)})
    down = Event("sink_down", data={"sink": "hook", "target": "", "reason": "answered 503"})
    failed = Event("task_failed", TaskId("t_2"), data={"reason": "no_retries", "message": "boom"})
    told(sink_for(spec), (AT, down), (AT + 60_000, failed), (AT + 120_000, down), (AT + AGAIN, down))
    ((_, alert),) = receiver.taken
    assert alert.title == "2 things need a look"
    assert alert.message.count("answered 503") == 1
    assert "boom" in alert.message


def test_quiet_hours_hold_back_all_but_what_is_critical(receiver: AlertReceiver) -> None:
    routes = {"info": (receiver.route(),)}
    spec = SinkSpec(name="oncall", kind="alerts", quiet="22:00-07:00", routes=routes)
    escalated = Event(
        "service_escalated", data={"service": "model", "cause": "auth", "reason": "401", "question": "q_@model.1"}
    )
    sink = sink_for(spec)
    asked, urgent = asyncio.run(taken_in(sink, (AT, ASKED), (AT, escalated)))
    assert utc(sink.free_at(asked.target, AT)).isoformat() == "2023-11-15T07:00:00+00:00"
    assert sink.free_at(urgent.target, AT) == AT
    assert asked.target != urgent.target, "neither waits for the other"
    by_day = AT + 10 * 3_600_000
    assert sink.free_at(asked.target, by_day) == by_day
    assert sink_for(SinkSpec(name="oncall", kind="alerts", routes=routes)).free_at(asked.target, AT) == AT


def test_a_cause_is_told_once_whichever_process_tells_it(receiver: AlertReceiver) -> None:
    spec = SinkSpec(name="oncall", kind="alerts", routes={"info": (receiver.route(),)})
    down = Event("sink_down", data={"sink": "hook", "target": "", "reason": "answered 503"})

    async def scene(stage: Stage) -> None:
        found: list[Delivery] = []

        async def send(batch: Sequence[Delivery]) -> None:
            found.extend(batch)

        for _ in range(3):
            sink = sink_for(spec)
            sink.begins = "start"
            sink.send = send  # type: ignore[method-assign]
            await stage.watch.notice(down)
            running = asyncio.ensure_future(Follower(stage.watch, sink, f"{len(found)}").run())
            await asyncio.sleep(AGAIN / 1_000 / 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert [round((one.at - found[0].at) / AGAIN) for one in found] == [0, 1], "after an hour, and not before"

    play(scene)


def test_a_storm_of_causes_is_remembered_within_bounds() -> None:
    told: dict[str, int] = {}
    for number in range(REMEMBERED + 10):
        told = told_now(Alert("info", f"{number}", "Title", ""), told, AT + number)
    assert len(told) == REMEMBERED
    assert "9" not in told
    assert told_now(Alert("info", "a sentence", "", "words"), told, AT) == told


def test_a_route_that_hangs_holds_up_nobody_and_is_not_tried_twice_at_once(receiver: AlertReceiver) -> None:
    """What blocks has a thread of its own: those of the loop are for others, and are waited for when a process ends."""
    receiver.always(Hang())
    url = f"{receiver.route('hunter2')}?cto=60&rto=60"
    sink = sink_for(SinkSpec(name="oncall", kind="alerts", routes={"info": (url,)}))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        (one, *_) = await taken_in(sink, (AT, ASKED))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sink.send([one])
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5) == "free"
        with pytest.raises(NotDelivered, match="is still being sent"):
            await sink.send([one])

    asyncio.run(main())
    assert len(receiver.requests) == 1


def test_a_route_that_fails_is_told_why_without_its_secret(receiver: AlertReceiver) -> None:
    receiver.always(Status(500))
    url = receiver.route("hunter2")
    sink = sink_for(SinkSpec(name="oncall", kind="alerts", routes={"info": (url,)}))
    with pytest.raises(NotDelivered, match="Apprise could not deliver it: ") as caught:
        told(sink, (AT, ASKED))
    assert "hunter2" not in caught.value.failure.reason


@pytest.mark.parametrize(
    "route, says",
    [
        ("jsn://hunter2", "begins with jsn://, which Apprise does not know; did you mean json://"),
        ("slack://hunter2", "begins with slack://, and Apprise cannot read what follows"),
        ("hunter2", "is not a URL; Apprise's look like"),
        ("env:NOWHERE", "the variable NOWHERE is not set"),
        ("env:TYPO", r"a route \(env:TYPO\) begins with slak://"),
    ],
)
def test_a_route_with_a_typo_is_refused_without_being_shown(
    route: str, says: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = SinkSpec(name="oncall", kind="alerts", routes={"info": (route,)})
    with pytest.raises(Refused, match=says) as caught:
        sink_for(spec, TYPO="slak://hunter2")
    assert caught.value.where == "sinks.oncall.routes"
    assert "hunter2" not in caught.value.message + "".join(capfd.readouterr())


@pytest.mark.row("M2")
def test_a_channel_is_told_the_sentences_of_the_protocol(receiver: AlertReceiver) -> None:
    async def scene(stage: Stage) -> list[Delivery]:
        sink = sink_for(SinkSpec(name="channel", kind="alerts", hears=("mesh",), routes={"info": (receiver.route(),)}))
        await stage.watch.submit("Deploy webhook monitoring")
        lease = await stage.watch.claim(agent="Sandman")
        assert lease is not None
        await lease.delegate("Oracle", "server access", timeout="5m")
        await lease.send_request("https://oracle.example/hook", "webhook", "ping")
        poster = await stage.watch.claim(agent=AGENT, roles=[WEBHOOKS])
        assert poster is not None
        await poster.complete()
        request = await lease.send_request("Eve", "handoff", "a look at it")
        await stage.watch.decline(request, "busy", agent="Eve")
        await asyncio.sleep(301)
        found = []
        async for entry in stage.watch.events():
            for message in await sink.messages(entry, stage.watch.views):
                place = (entry.position.xid, entry.position.id, 0)
                found.append(Delivery(sink.name, "msg", message.target, place, entry.at, message.body))
        return found

    batch = play(scene)
    spec = SinkSpec(name="channel", kind="alerts", hears=("mesh",), routes={"info": (receiver.route(),)})
    asyncio.run(sink_for(spec).send(batch))
    ((_, alert),) = receiver.taken
    assert alert.title == ""
    assert alert.message.strip().splitlines() == [
        "🎯 Claiming: Deploy webhook monitoring",
        "🚫 Declined: Eve will not do a look at it (busy).",
        "⏱️ Timeout: No response from Oracle on server access. Logging block, moving on.",
    ]


def test_any_event_can_be_told() -> None:
    alert = alert_for(Event("agent_stalled", TaskId("t_1"), data={"action": "ended"}), "build")
    assert alert == Alert("info", "agent_stalled t_1", "agent stalled: build", "action ended")
    assert worth_telling(alert, {}, AT)
    assert not worth_telling(alert, {alert.cause: AT}, AT + AGAIN - 1)
    assert worth_telling(alert, {alert.cause: AT}, AT + AGAIN)
    title, text = together([Alert("info", f"{number}", f"Title {number}", "x") for number in range(SHOWN)])
    assert title == "10 things need a look"
    assert text.count("Title") == SHOWN == AlertsSink.together, "whatever goes out together can be read"


_MARKUP = '<a href="http://x/">Approve</a> <!channel> @everyone @here <@&123> [Approve](http://x/)'


def test_what_an_agent_writes_is_no_markup_of_a_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question was sent as HTML: with links and pictures of the agent's choice, under names of its choice."""
    sent: list[str] = []

    class _Smtp:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __getattr__(self, name: str) -> object:
            return lambda *given, **_: sent.append(given[2]) if name == "sendmail" else None

    monkeypatch.setattr("smtplib.SMTP", _Smtp)
    monkeypatch.setattr("smtplib.SMTP_SSL", _Smtp)

    async def main() -> None:
        route = AlertRoute("mailto://u:p@localhost?to=x@y.example", {}, "sinks.a")
        await route.tell("warning", _MARKUP, _MARKUP)

    asyncio.run(main())
    parts = list(message_from_string(sent[0]).walk())
    assert [part.get_content_type() for part in parts if part.get_content_maintype() == "text"] == ["text/plain"]


def test_nobody_is_called_and_no_link_is_named_by_what_an_agent_writes() -> None:
    plain = plain_text(_MARKUP)
    assert not any(call in plain for call in ("@everyone", "@here", "<@", "<!", "]("))
    assert plain.replace("\u200b", "") == _MARKUP
    assert plain_text("mail to a@example.org, see a[0] (b)") == "mail to a@example.org, see a[0] (b)"

"""Over a strict, forgetful or hostile chat server every line arrives once, and every message is heard once (C8)."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest

from allswell.build.merge import ChannelClosed
from allswell.domain.build.announcements import AnnouncePace
from allswell.domain.build.hearing import ChannelCoverage, HeardMessage
from allswell.domain.build.line import AckLine, Line, RejectLine, read, tasks_lines, write
from allswell.domain.ids import Millis
from allswell.errors import Refused
from allswell.interfaces.chat.agentchat import (
    AgentChat,
    ChatKey,
    ChatPlace,
    Reconnecting,
    heard_in,
    read_frame,
    read_key,
    write_frame,
)
from allswell.testing.chat import ChatRules, ChatServer

pytestmark = pytest.mark.row("C8")

HERE = "#build"
FAST = AnnouncePace(spacing=60, echo=400)
STRICT = ChatRules(spacing=50)
SOON = Reconnecting(first=10, most=50)


def chat(
    server: ChatServer, name: str = "coordinator", key: ChatKey | None = None, pace: AnnouncePace = FAST
) -> AgentChat:
    return AgentChat(ChatPlace(server.url, HERE, name), key, pace=pace, reconnecting=SOON)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(bounded())


async def hear(channel: AgentChat, count: int) -> list[HeardMessage]:
    return [await channel.receive() for _ in range(count)]


async def until(holds: Callable[[], bool], server: ChatServer) -> None:
    await asyncio.to_thread(server.wait_until, holds)


@pytest.fixture
def key(tmp_path: Path) -> ChatKey:
    return read_key(tmp_path / "key")


def contents(server: ChatServer) -> list[str]:
    return [line for said in server.said for line in said.content.split("\n")]


def test_two_agents_meet_in_a_channel_and_hear_each_other_once(key: ChatKey, tmp_path: Path) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as ours, chat(server, "builder", read_key(tmp_path / "other")) as other:
                assert ours.who == "@" + hashlib.sha256(key.public_pem.encode()).hexdigest()[:16]
                await other.send(["CLAIM auth", "CLAIM api"])
                await ours.send(["ACK auth @x"])
                (heard,) = await hear(ours, 1)
                assert (heard.who, heard.text, heard.keyed) == (other.who, "CLAIM auth\nCLAIM api", True)
                assert (heard.at, heard.id) == (server.said[0].ts, server.said[0].msg_id)
                (answer,) = await hear(other, 1)  # not its own words, which the server sends back too
                assert (answer.who, answer.text) == (ours.who, "ACK auth @x")
            assert server.refused == [("@" + ours.who[1:], "CHANNEL_NOT_FOUND")]  # so it was created

    play(scene)


def test_a_burst_arrives_complete_in_order_and_in_the_least_number_of_messages(key: ChatKey) -> None:
    said: list[Line] = []
    for number in range(50):
        said.append(AckLine(f"component-{number}", f"@{number:016x}"))
        said.append(RejectLine(f"component-{number}", f"@{number + 50:016x}", "already claimed"))
    said += tasks_lines("https://example.org/spec", [f"component-{number}" for number in range(50, 100)])

    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as ours:
                await ours.send([write(line) for line in said])
            assert [line for one in server.said for line in read(one.content)] == said
            assert len(server.said) == 2  # of 4,000 bytes each
            assert [code for _, code in server.refused if code == "RATE_LIMITED"] == []

    play(scene)


def test_a_server_that_is_stricter_than_expected_loses_nothing() -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=150)) as server:
            async with chat(server, pace=AnnouncePace(spacing=30)) as ours:
                for number in range(4):
                    await ours.send([f"TIMEOUT c{number}"])
            assert contents(server) == [f"TIMEOUT c{number}" for number in range(4)]
            assert "RATE_LIMITED" in {code for _, code in server.refused}

    play(scene)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(
    "rules",
    [
        ChatRules(spacing=50, cut_after_taking=2),
        ChatRules(spacing=50, lost_messages=1),
        ChatRules(spacing=50, lost_echoes=2),
        ChatRules(version="0.21", spacing=50, lost_echoes=1),
    ],
    ids=["cut", "lost", "no echo", "older server"],
)
def test_every_line_arrives_exactly_once(rules: ChatRules, keyed: bool, key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(rules) as server:
            async with chat(server, key=key if keyed else None) as ours:
                await ours.send(["ACK a @x"])
                await ours.send(["TIMEOUT a", "TASKS spec a"])
                await ours.send(["ACK a @x"])  # the same words again, and meant
            assert contents(server) == ["ACK a @x", "TIMEOUT a", "TASKS spec a", "ACK a @x"]

    play(scene)


def test_what_was_said_while_away_is_heard_once_and_what_is_known_is_not_heard_again(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as ours:
                before = ours.who
                server.tell("@builder", HERE, "CLAIM a")
                assert [heard.text for heard in await hear(ours, 1)] == ["CLAIM a"]
                server.refusing = True
                server.cut(ours.who)
                await until(lambda: not server.members, server)
                server.tell("@builder", HERE, "READY a https://x/1")
                server.tell("@server", HERE, "CLAIM z")  # the server itself talks to people
                server.refusing = False
                await ours.send(["ACK a @builder"])
                server.tell("@builder", HERE, "CLAIM b")
                heard = await hear(ours, 2)
                assert [(one.text, one.replay) for one in heard] == [("READY a https://x/1", True), ("CLAIM b", False)]
                assert ours.who == before
                assert not any(one.keyed for one in heard)

    play(scene)


def test_our_own_words_of_an_earlier_life_are_heard_in_the_replay(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as before:
                await before.send(["ACK a @x"])
            async with chat(server, key=key) as ours:
                (heard,) = await hear(ours, 1)
                assert (heard.who, heard.text, heard.replay) == (ours.who, "ACK a @x", True)

    play(scene)


def test_a_server_that_lost_its_channels_gets_them_again(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as ours:
                server.forget()
                server.cut()
                await ours.send(["MERGED a"])
            assert contents(server) == ["MERGED a"]

    play(scene)


def test_whoever_is_displaced_comes_back(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as first:
                async with chat(server, key=key) as second:
                    assert second.who == first.who
                await first.send(["MERGED a"])
            assert contents(server) == ["MERGED a"]

    play(scene)


@pytest.mark.parametrize("version", ["0.21", "0.36"])
def test_two_with_one_key_do_not_displace_each_other_without_end(
    version: Literal["0.21", "0.36"], key: ChatKey
) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(version=version, spacing=20)) as server:
            patient = Reconnecting(first=1, most=60_000)
            place = ChatPlace(server.url, HERE, "first")
            async with AgentChat(place, key, pace=FAST, reconnecting=patient), chat(server, key=key) as second:
                for number in range(5):
                    await second.send([f"MERGED c{number}"])
            assert len(server.identified) == 2

    play(scene)


def test_a_server_that_is_not_there_yet_is_waited_for(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            port = server.port
        place = ChatPlace(f"ws://127.0.0.1:{port}", HERE, "coordinator")
        ours = AgentChat(place, key, pace=FAST, reconnecting=SOON)
        entering = asyncio.ensure_future(ours.__aenter__())
        done, _ = await asyncio.wait({entering}, timeout=0.1)
        assert not done
        with ChatServer(STRICT, port=port) as server:
            await entering
            await ours.send(["MERGED a"])
            assert contents(server) == ["MERGED a"]
            await ours.__aexit__(None, None, None)

    play(scene)


def test_whatever_a_hostile_server_sends_we_are_alive(key: ChatKey, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as ours:
                me = ours.who
                for raw in (
                    "",
                    "not json",
                    "[]",
                    "null",
                    '"MSG"',
                    "{}",
                    '{"type": 7}',
                    "\x00",
                    '{"type":"MSG","ts":"x"}',
                ):
                    server.send_raw(me, raw)
                server.send_frame(me, type="MSG", from_="nobody", to=HERE, content="CLAIM a", ts=1)
                server.send_frame(me, type="MSG", from_="@x\u202e", to=HERE, content="CLAIM a", ts=1)
                server.send_frame(me, type="MSG", from_="@x", to="#other", content="CLAIM a", ts=1)
                server.send_frame(me, type="MSG", from_=me, to=HERE, content="ACK a @x", ts=1)
                server.send_frame(me, type="ERROR", code="SOMETHING", message="else")
                server.send_frame(me, type="ERROR", code="RATE_LIMITED", message="though we said nothing")
                server.send_frame(me, type="WELCOME", agent_id="somebody-else")
                server.send_frame(me, type="MSG", from_="@x", to=HERE, content="y" * 10_000_000, ts=1)
                server.send_frame(me, type="MSG", from_="@x", to=HERE, content="CLAIM \x1b[2J", ts=2)
                heard = await hear(ours, 2)
                assert [len(one.text) for one in heard] == [65_537, 10]
                assert ours.who == me
                await ours.send(["MERGED a"])
            assert contents(server) == ["MERGED a"]

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert "sent something that is no frame" in caplog.text


@pytest.mark.parametrize("version", ["0.21", "0.36"])
def test_a_text_that_the_server_changed_has_arrived_also_in_a_replay(version: Literal["0.21", "0.36"]) -> None:
    secret = "AUDIT a FAIL it prints AKIAABCDEFGHIJKLMNOP"

    async def scene() -> None:
        with ChatServer(ChatRules(version=version, spacing=20, cut_after_taking=1)) as server:
            async with chat(server) as ours:
                await ours.send([secret])  # taken, and cut before the echo: the replay has it
                await ours.send([secret])
                await ours.send(["MERGED a"])
            assert len(contents(server)) == 3
            assert ("[REDACTED" in contents(server)[0]) == (version == "0.36")

    play(scene)


def test_a_message_of_two_megabytes_ends_no_connection(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            server.tell("@x", HERE, "y" * 2_000_000)
            async with chat(server, key=key) as ours:  # it is told again to everybody who joins
                server.tell("@x", HERE, "z" * 2_000_000)
                server.tell("@x", HERE, "CLAIM a")
                heard = await hear(ours, 3)
                await ours.send(["ACK a @x"])
                assert [one.text[0] for one in heard] == ["y", "z", "C"]
                assert all(len(one.text) < 100_000 for one in heard)  # no more than shows that it is too long
            assert len(server.identified) == 1

    play(scene)


def test_a_new_key_waits_until_it_may_speak(key: ChatKey, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=20, lurking=400, lurkers_speak=False)) as server:
            async with chat(server, key=key) as ours:
                await ours.send(["ACK a @x"])
                await ours.send(["MERGED a"])
            assert contents(server) == ["ACK a @x", "MERGED a"]
            assert [code for _, code in server.refused].count("LURK_MODE") == 1

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert "lets this new key speak only in 1s; what is to be said waits" in caplog.text


def test_an_agent_without_a_key_that_may_only_read_is_told_so() -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(lurkers_speak=False)) as server:
            with pytest.raises(Refused, match="give one with --key FILE") as caught:
                async with chat(server) as ours:
                    await ours.send(["MERGED a"])
            assert caught.value.code == "chat_refused"

    play(scene)


def test_a_channel_that_only_others_may_create_is_waited_for(
    key: ChatKey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.interfaces.chat.agentchat._JOIN_AGAIN", 0.02)

    async def scene() -> None:
        with ChatServer(ChatRules(spacing=20, verified=())) as server:
            ours = chat(server, key=key)
            entering = asyncio.ensure_future(ours.__aenter__())
            await until(lambda: [code for _, code in server.refused].count("AUTH_REQUIRED") >= 2, server)
            assert not entering.done()
            server.tell("@boss", HERE, "TASKS x a")  # the coordinator has come
            await entering
            assert [heard.text for heard in await hear(ours, 1)] == ["TASKS x a"]
            await ours.__aexit__(None, None, None)
            assert len(server.identified) == 1

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert caplog.text.count("has no channel #build yet") == 1


def test_a_takeover_that_the_server_holds_back_is_waited_for(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=20, displacement_delay=300)) as server:
            async with chat(server, key=key) as first, chat(server, key=key) as second:
                await second.send(["MERGED a"])
                assert second.who == first.who
            assert contents(server) == ["MERGED a"]
            assert len(server.identified) == 2  # it was not given up and tried again

    play(scene)


def test_a_message_that_the_server_never_takes_ends_the_channel_with_its_words(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=20)) as server:
            server.unwanted = "curse"
            with pytest.raises(Refused, match="does not take what we say: Message blocked"):
                async with chat(server, key=key, pace=AnnouncePace(spacing=5)) as ours:
                    await ours.send(["a curse"])

    play(scene)


def test_whether_lines_may_be_missing_is_known_after_a_break(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=20, replayed=5)) as server:
            async with chat(server, key=key) as ours:
                assert ours.hearing == ChannelCoverage()
                server.tell("@x", HERE, "CLAIM a")
                await hear(ours, 1)
                for count, gaps in ((3, 0), (5, 1)):  # then as many were said as the server keeps: there may be more
                    server.refusing = True
                    server.cut()
                    await until(lambda: not server.members, server)
                    while ours.hearing.is_current:  # until it has noticed
                        await asyncio.sleep(0.001)
                    for number in range(count):
                        server.advance(10)
                        server.tell("@x", HERE, f"PROGRESS a {number}%")
                    server.advance(60_000)
                    server.refusing = False
                    heard = await hear(ours, count)
                    assert all(60_000 <= one.ago < 65_000 for one in heard)
                    await ours.send(["MERGED a"])
                    assert (ours.hearing.gaps, ours.hearing.is_current) == (gaps, True)

    play(scene)


def test_leaving_ends_what_waits(key: ChatKey) -> None:
    async def scene() -> None:
        with ChatServer(STRICT) as server:
            async with chat(server, key=key) as ours:
                waiting = asyncio.ensure_future(ours.receive())
                await asyncio.sleep(0)
            with pytest.raises(ChannelClosed):
                await waiting

    play(scene)


@pytest.mark.parametrize(
    "place, what",
    [
        (ChatPlace("http://x", HERE, "me"), "is not an address of a chat server"),
        (ChatPlace("ws://x", "build", "me"), "is not a channel"),
        (ChatPlace("ws://x", HERE, "a b"), "cannot be our name"),
    ],
)
def test_a_place_that_cannot_be_is_refused(place: ChatPlace, what: str) -> None:
    with pytest.raises(Refused, match=what):
        AgentChat(place)


def test_moments_and_ids_that_no_store_could_keep_are_left_out() -> None:
    def heard(**fields: object) -> HeardMessage | None:
        frame = read_frame(write_frame("MSG", to=HERE, content="CLAIM db", **{"from": "@a", "ts": 5, **fields}))
        return None if frame is None else heard_in(frame)

    assert heard() == HeardMessage("@a", "CLAIM db", Millis(5), "", keyed=False)
    for strange in ("\x00", "a b", "x" * 101, "\u202e"):
        assert heard(msg_id=strange) == heard()
    for moment in (-1, 1 << 60, "soon"):
        assert heard(ts=moment) is None

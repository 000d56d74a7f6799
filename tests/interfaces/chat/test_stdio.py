"""The same channel on standard input and output: `name: LINE` in and out (C8)."""

import asyncio
import io
import os

import pytest

from allswell.build.merge import ChannelClosed
from allswell.domain.build.hearing import HeardMessage
from allswell.errors import Refused
from allswell.interfaces.chat.stdio import StdioChannel

pytestmark = pytest.mark.row("C8")


def heard_from(raw: bytes) -> list[HeardMessage]:
    async def scene() -> list[HeardMessage]:
        channel = StdioChannel("coordinator", io.BytesIO(raw), io.BytesIO())
        found = []
        try:
            while True:
                found.append(await channel.receive())
        except ChannelClosed:
            with pytest.raises(ChannelClosed):  # and it stays so
                await channel.receive()
        return found

    return asyncio.run(scene())


def test_lines_are_heard_in_the_order_in_which_they_are_read() -> None:
    heard = heard_from(b"alice: CLAIM auth\r\n\n  bob :CLAIM auth: now\nalice: CLAIM auth")
    assert [(one.who, one.text) for one in heard] == [
        ("alice", "CLAIM auth"),
        ("bob", "CLAIM auth: now"),
        ("alice", "CLAIM auth"),
    ]
    assert sorted(heard, key=lambda one: (one.at, one.id)) == heard
    assert len({one.mark for one in heard}) == 3


def test_what_has_no_speaker_or_is_our_own_is_skipped() -> None:
    assert heard_from(b"CLAIM auth\nsome one: CLAIM a\n: CLAIM a\ncoordinator: ACK a b\nx:\n\xff\xfe: y\n") == []


def test_a_line_that_is_too_long_is_skipped_as_a_whole() -> None:
    huge = b"mallory: " + b"x" * (1 << 20) + b"\n"
    assert [one.who for one in heard_from(huge + b"alice: CLAIM a\n" + huge)] == ["alice"]


def test_what_we_say_carries_our_name() -> None:
    async def scene() -> bytes:
        told = io.BytesIO()
        channel = StdioChannel("coordinator", io.BytesIO(), told)
        assert channel.who == "coordinator"
        await channel.send(["ACK auth alice", "TASKS spec api"])
        return told.getvalue()

    assert asyncio.run(scene()) == b"coordinator: ACK auth alice\ncoordinator: TASKS spec api\n"


def test_when_nobody_reads_any_more_that_is_the_end() -> None:
    async def scene() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb", buffering=0) as told:
            channel = StdioChannel("coordinator", io.BytesIO(), told)
            with pytest.raises(ChannelClosed, match="standard output was closed"):
                await channel.send(["ACK auth alice"])

    asyncio.run(scene())


def test_our_name_must_be_one() -> None:
    async def scene() -> None:
        with pytest.raises(Refused, match="cannot be our name"):
            StdioChannel("a b", io.BytesIO(), io.BytesIO())

    asyncio.run(scene())

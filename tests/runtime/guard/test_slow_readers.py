"""Whoever reads a stream takes the time that it takes: it is not the service's time, and says nothing against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import httpx
import pytest

from allswell.domain.service.breaker import CLEAN, BreakerPolicy, BreakerState
from allswell.domain.service.guard import GuardPolicy
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from tests.runtime.guard.stage import Stage, play

ALONG = GuardPolicy(attempt_timeout=60_000, breaker=BreakerPolicy(open_after=1, escalate_after=1))
"""A single failure would be seen."""
HOUR = 3_600_000
PIECES = [b"one ", b"two ", b"three"]


class Hand:
    """A clock that only a reader, or a service that is slow, moves."""

    def __init__(self) -> None:
        self.now = 1_000

    def monotonic(self) -> int:
        return self.now

    def wall(self) -> int:
        return self.now


class Pieces(httpx.SyncByteStream):
    """What a service sends, with the time that each piece takes it."""

    def __init__(self, hand: Hand, takes: int) -> None:
        self._hand, self._takes = hand, takes

    def __iter__(self) -> Iterator[bytes]:
        for piece in PIECES:
            self._hand.now += self._takes
            yield piece


class Sends(httpx.BaseTransport):
    """Answers every request with a stream of events."""

    def __init__(self, hand: Hand, takes: int = 0) -> None:
        self._hand, self._takes = hand, takes

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        del request
        return httpx.Response(200, stream=Pieces(self._hand, self._takes))


def _guard(hand: Hand, on: Literal["thread", "here"] = "thread") -> tuple[Guard, MemoryBreakers]:
    clock: Any = hand
    breakers = MemoryBreakers(clock)
    return Guard("p", ALONG, on=on, around=GuardEnvironment(breakers=breakers, clock=clock)), breakers


def _shut(breakers: MemoryBreakers, hand: Hand) -> None:
    """The breaker is open, and its pause is over: the next call is the probe."""
    breakers.adopt("p", 3)
    hand.now += 1


def _of_transport(guard: Guard, hand: Hand) -> Iterator[bytes]:
    with (
        httpx.Client(transport=guard.transport(Sends(hand))) as client,
        client.stream("GET", "http://p/") as answer,
    ):
        hand.now += HOUR  # nobody has begun to read
        yield from answer.iter_raw()


def _of_generator(guard: Guard, hand: Hand) -> Iterator[bytes]:
    del hand

    def pieces() -> Iterator[bytes]:
        yield from PIECES

    return guard(pieces)()


@pytest.mark.row("F8")
@pytest.mark.parametrize("on", ["thread", "here"])
@pytest.mark.parametrize("read", [_of_transport, _of_generator])
@pytest.mark.parametrize("probe", [False, True])
def test_a_slow_reader_says_nothing_about_a_service(
    on: Literal["thread", "here"], read: Callable[[Guard, Hand], Iterator[bytes]], probe: bool
) -> None:
    hand = Hand()
    guard, breakers = _guard(hand, on)
    if probe:
        _shut(breakers, hand)
    seen = []
    for piece in read(guard, hand):
        seen.append(piece)
        hand.now += HOUR
        # What another caller asks meanwhile is when a lease that has run out is noticed.
        breakers.admit("p", ALONG.breaker or BreakerPolicy())
    assert seen == PIECES
    stand, state = breakers.standing("p")
    assert (stand, state.failures, state.asked) == (BreakerState.CLOSED, 0, False)


@pytest.mark.row("F8")
def test_a_service_that_drips_is_late_however_quick_its_reader_is() -> None:
    hand = Hand()
    guard, breakers = _guard(hand)
    with (
        httpx.Client(transport=guard.transport(Sends(hand, takes=50_000))) as client,
        pytest.raises(httpx.ReadTimeout, match="time is up"),
        client.stream("GET", "http://p/") as answer,
    ):
        list(answer.iter_raw())
    assert breakers.standing("p")[0] is BreakerState.OPEN


class AsyncPieces(httpx.AsyncByteStream):
    """The same for async code."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in PIECES:
            await asyncio.sleep(1)
            yield piece


class AsyncSends(httpx.AsyncBaseTransport):
    """Answers every request with a stream of events."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        del request
        return httpx.Response(200, stream=AsyncPieces())


async def _async_of_transport(guard: Guard) -> AsyncIterator[bytes]:
    async with (
        httpx.AsyncClient(transport=guard.transport(AsyncSends())) as client,
        client.stream("GET", "http://p/") as answer,
    ):
        await asyncio.sleep(HOUR / 1_000)
        async for piece in answer.aiter_raw():
            yield piece


def _async_of_generator(guard: Guard) -> AsyncIterator[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        async for piece in AsyncPieces():
            yield piece

    return guard(pieces)()


@pytest.mark.row("F8")
@pytest.mark.parametrize("read", [_async_of_transport, _async_of_generator])
@pytest.mark.parametrize("probe", [False, True])
def test_a_slow_async_reader_says_nothing_about_a_service(
    read: Callable[[Guard], AsyncIterator[bytes]], probe: bool
) -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard(ALONG)
        if probe:
            stage.breakers.adopt("s", 3)
            await asyncio.sleep(1)
        seen = []
        async for piece in read(guard):
            seen.append(piece)
            await asyncio.sleep(HOUR / 1_000)
            stage.breakers.admit("s", ALONG.breaker or BreakerPolicy())
        assert seen == PIECES
        assert stage.breakers.standing("s")[1].failures == CLEAN.failures
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED

    play(scene())

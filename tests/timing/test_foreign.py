"""Under trio our deadlines would do nothing: whatever relies on them is refused, in words, before anything is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio

import allswell
from allswell.runtime.host import LoopWatchdog

Door = Callable[[], Awaitable[object]]


async def _never(*_: object) -> str:
    pytest.fail("it was called, with no deadline around it")


async def _in_async_with(context: Any) -> None:  # noqa: ANN401
    async with context:
        await _never()


async def _in_with(context: Any) -> None:  # noqa: ANN401
    with context:
        await _never()


async def _attempts() -> None:
    async for attempt in allswell.guard("s"):
        async with attempt:
            await _never()


async def _stream() -> None:
    @allswell.guard("s")
    async def items() -> AsyncIterator[str]:
        yield await _never()

    async for _ in items():
        pass


class Never(httpx.AsyncBaseTransport):
    """A transport that must not be asked."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise AssertionError(request)


async def _transport() -> None:
    async with httpx.AsyncClient(transport=allswell.guard("s").transport(Never())) as client:
        await client.get("http://s/")


DOORS: dict[str, Door] = {
    "within": lambda: _in_async_with(allswell.within("1s")),
    "with within": lambda: _in_with(allswell.within("1s")),
    "step": lambda: _in_async_with(allswell.step("s")),
    "a step's function": allswell.step("s")(_never),
    "flow": lambda: _in_async_with(allswell.flow("f")),
    "run": lambda: allswell.run(allswell.tool("t"), _never),
    "pause": lambda: allswell.pause(10),
    "guard": lambda: _in_async_with(allswell.guard("s")),
    "with guard": lambda: _in_with(allswell.guard("s")),
    "guard.call": lambda: allswell.guard("s").call(_never),
    "a guarded function": allswell.guard("s")(_never),
    "attempts": _attempts,
    "stream": _stream,
    "transport": _transport,
    "open": lambda: _in_async_with(allswell.open("memory:")),
    "run_tool": lambda: allswell.run_tool(["true"]),
    "watchdog": lambda: _in_async_with(LoopWatchdog()),
}


@pytest.mark.row("F2")
@pytest.mark.parametrize("door", DOORS)
def test_under_trio_everything_that_would_do_nothing_is_refused(door: str) -> None:
    async def main() -> None:
        with pytest.raises(allswell.Refused, match="under trio: run this part under asyncio") as refused:
            await DOORS[door]()
        assert refused.value.code == "not_asyncio"

    trio.run(main)


def test_what_blocks_holds_under_trio_and_in_its_threads() -> None:
    def in_thread() -> bool:
        with allswell.within("10s") as scope:
            return scope.remaining() > 0

    async def main() -> None:
        assert allswell.guard("s").call_sync(lambda: "here") == "here"
        assert await trio.to_thread.run_sync(in_thread)

    trio.run(main)


def test_async_code_without_any_loop_is_refused_and_after_trio_asyncio_is_as_before() -> None:
    by_hand = _in_async_with(allswell.within("1s"))
    with pytest.raises(allswell.Refused, match="no asyncio loop runs here"):
        by_hand.send(None)

    async def main() -> float | None:
        async with allswell.within("1s"):
            return allswell.remaining_ms()

    assert asyncio.run(main())

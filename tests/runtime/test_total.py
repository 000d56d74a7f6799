"""A call over HTTP is bounded in total: a server that drips a byte now and then does not outlive its scope.

httpx's own timeouts hold for each read, and every byte that comes begins a new one.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import anyio
import httpx
import pytest

import allswell
from allswell.domain.scopes import ScopeLimits
from allswell.runtime.deadlines import use_limits
from tests import patience

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class Dripping:
    """A server that sends a byte every few milliseconds, for ever: of the head, or of the body."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self.left = threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65_536)
                connection.sendall(self._first)
                while not self._over.wait(0.005):
                    connection.sendall(b"x")
            except OSError:
                pass
        self.left.release()

    def close(self) -> None:
        self._over.set()
        self._listener.close()


@pytest.fixture(params=[HEAD, b"HTTP/1.1 200 OK\r\nX-Drip: "], ids=["body", "head"])
def dripping(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    server = Dripping(request.param)
    yield server
    server.close()


@pytest.mark.row("F2", "F3")
def test_an_async_call_ends_with_its_scope_and_hangs_up(dripping: Dripping) -> None:
    async def main() -> None:
        async def call() -> None:
            async with httpx.AsyncClient(timeout=1) as client, allswell.llm_call("chat", timeout=150):
                await client.get(dripping.url)

        with pytest.raises(allswell.ScopeTimeout) as caught:
            await call()
        assert caught.value.scope.kind == "llm_call"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(main())
    assert dripping.left.acquire(timeout=patience.SECONDS)


@pytest.mark.row("F2", "F3")
def test_a_sync_call_is_let_go_with_its_scope(dripping: Dripping) -> None:
    use_limits(ScopeLimits(grace=50))

    @allswell.llm_call("chat", timeout=150)
    def call() -> int:
        return httpx.get(dripping.url, timeout=1).status_code

    with pytest.raises(allswell.ScopeTimeout) as caught:
        call()
    assert caught.value.abandoned


def test_inside_anyio_the_scope_ends_the_group_and_shields_hold() -> None:
    use_limits(ScopeLimits(grace=60_000))

    async def main() -> list[str]:
        log: list[str] = []

        async def child() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.01)
                    log.append("saved")

        async def block() -> None:
            async with allswell.tool("group", timeout=30), anyio.create_task_group() as group:
                group.start_soon(child)
                group.start_soon(child)

        with pytest.raises(allswell.ScopeTimeout):
            await block()
        return log

    assert asyncio.run(main()) == ["saved", "saved"]


def test_an_anyio_limit_inside_a_scope_is_its_own() -> None:
    async def main() -> None:
        async with allswell.tool("outer"):
            with anyio.move_on_after(0.01) as inner:
                await anyio.sleep_forever()
            assert inner.cancelled_caught
            with pytest.raises(TimeoutError) as caught:
                with anyio.fail_after(0.01):
                    await anyio.sleep_forever()
            assert not isinstance(caught.value, allswell.ScopeTimeout)

    asyncio.run(main())


def test_a_scope_inside_an_anyio_limit_does_not_take_its_cancel() -> None:
    async def main() -> None:
        with anyio.move_on_after(0.01) as outer:
            async with allswell.tool("inner"):
                await anyio.sleep_forever()
        assert outer.cancelled_caught
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(main())

"""Deadlines travel over MCP: a real client of the official SDK, and a server in another process, over both transports.

What the server's tools do has no end of its own: a test that comes back shows that the caller's deadline ended it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent

import allswell

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SERVER = ["-W", "ignore", "-m", "tests.runtime.mcp_server"]


@contextmanager
def http_server() -> Iterator[str]:
    served = subprocess.Popen([sys.executable, *SERVER, "http"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        yield f"http://127.0.0.1:{int(served.stdout.readline())}/mcp"
    finally:
        served.kill()
        served.communicate()


@asynccontextmanager
async def connected(transport: str) -> AsyncIterator[Client]:
    if transport == "stdio":
        parameters = StdioServerParameters(command=sys.executable, args=[*SERVER, "stdio"], cwd=str(ROOT))
        async with Client(stdio_client(parameters)) as client:
            yield client
    else:
        with http_server() as url:
            async with Client(url) as client:
                yield client


def talk(transport: str, conversation: Callable[[Client], Awaitable[T]]) -> T:
    async def main() -> T:
        async with connected(transport) as client:
            return await conversation(client)

    return asyncio.run(main())


def said(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


over_both = pytest.mark.parametrize("transport", ["stdio", "http"])


@over_both
@pytest.mark.row("F3")
def test_a_tool_ends_with_its_callers_scope_on_the_servers_side(transport: str) -> None:
    async def conversation(client: Client) -> None:
        for tool in ("hang", "hang_in_a_thread"):
            async with allswell.within("300ms"):
                meta = allswell.remaining_meta()
            # The scope is left: nothing on this side ends the call, or tells the server to.
            result = await client.call_tool(tool, meta=meta)
            assert result.is_error
            assert "inherited 'caller' reached its limit of " in said(result)

    talk(transport, conversation)


@over_both
@pytest.mark.row("F3")
def test_a_call_inside_a_scope_is_bounded_on_both_sides(transport: str) -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(allswell.ScopeTimeout, match="tool 'search' reached its limit of 300ms"):
            async with allswell.tool("search", timeout="300ms"):
                await client.call_tool("hang", meta=allswell.remaining_meta())
        # The connection is none the worse for it.
        async with allswell.tool("ask", timeout="1m"):
            left = float(said(await client.call_tool("left", meta=allswell.remaining_meta())))
        assert 0 < left <= 60_000

    talk(transport, conversation)


@over_both
def test_without_a_deadline_none_travels(transport: str) -> None:
    async def conversation(client: Client) -> list[str]:
        assert allswell.remaining_meta() == {}
        return [said(await client.call_tool("left")), said(await client.call_tool("left", meta={}))]

    assert talk(transport, conversation) == ["None", "None"]


def test_what_cannot_be_read_is_refused_by_name() -> None:
    async def conversation(client: Client) -> str:
        wrong = cast("RequestParamsMeta", {"allswell/remaining-ms": "soon"})
        result = await client.call_tool("hang", meta=wrong)
        assert result.is_error
        return said(result)

    assert "allswell/remaining-ms must be whole milliseconds" in talk("stdio", conversation)

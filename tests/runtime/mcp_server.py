"""A server over MCP whose tools hang for ever, unless they are bounded by what their caller has left.

`python -m tests.runtime.mcp_server stdio`, or `… http`, which prints its port.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import allswell

server = MCPServer("hanging")


@server.tool()
async def left(ctx: Context) -> str:
    """How much time the caller has left."""
    with allswell.inherit_remaining(ctx.request_context.meta):
        return repr(allswell.remaining_ms())


@server.tool()
async def hang(ctx: Context) -> str:
    """Wait for what never comes."""
    try:
        async with allswell.inherit_remaining(ctx.request_context.meta, name="caller"), allswell.tool("hang"):
            await asyncio.Event().wait()
    except (allswell.ScopeTimeout, allswell.Refused) as error:
        raise ToolError(str(error)) from error
    return "never"


@server.tool()
def hang_in_a_thread(ctx: Context) -> str:
    """The same as sync code, which has to ask."""
    try:
        with allswell.inherit_remaining(ctx.request_context.meta, name="caller"):
            while not threading.Event().wait(0.01):
                allswell.check_deadline()
    except allswell.ScopeTimeout as error:
        raise ToolError(str(error)) from error
    return "never"


def over_http() -> None:
    """Serve on a free port of this machine, and say which."""
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    over_http() if sys.argv[1] == "http" else server.run()

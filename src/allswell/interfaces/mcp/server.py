"""The tools and resources as a server of the SDK, whichever transport carries it.

The SDK's `MCPServer` makes schemas of pydantic models. Ours are made of the shapes that every other door answers with,
so its lower layer is used, which takes a tool as it is declared.

Each call is bounded by what its caller has left, which travels in its `_meta` (ADR 25). What goes wrong with a tool is
an answer that a model can read and act on; programs find the error's shape in its `_meta`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool

from allswell.app import make_gate
from allswell.domain.access.key import ANY_ROLE, Key, Right
from allswell.domain.access.rights import Operation, check_act, may
from allswell.domain.ids import Millis, TaskId, can_name
from allswell.domain.question import full_stop
from allswell.domain.scopes import META
from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable, without_place
from allswell.interfaces.mcp.arguments import ToolParams
from allswell.interfaces.mcp.handlers import AttemptTools, OwnLease, ToolHandlers, WatchTools
from allswell.interfaces.mcp.tools import INSTRUCTIONS, OWN_INSTRUCTIONS, OWN_TOOLS, TOOLS, Json, Tool
from allswell.runtime.propagation import inherit_remaining
from allswell.settings import Settings
from allswell.timing.moment import to_json
from allswell.timing.scopes import ScopeTimeout
from allswell.timing.tracing import gone_on_with
from allswell.views.artifacts import ServedArtifacts
from allswell.views.detail import load_task
from allswell.views.explanation import ExplanationShape, load_explanation
from allswell.views.fields import ErrorShape
from allswell.views.receipt import ReceiptsShape

# Answers and errors as a model is told them: an error says what happened, and what to do now.


def in_words(error: BaseException) -> str:
    """What went wrong, for somebody who can do something about it."""
    error = without_place(error)
    if isinstance(error, LeaseLost):
        return (
            f"Lease lost: {error}. Stop working on {error.task} now, and do not report it as done: it is not yours any "
            "more. What you have said was kept for the agent that gets it next. Call claim for your next task."
        )
    if isinstance(error, Refused):
        hint = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
        where = f" (argument: {error.where})" if error.where and error.code.startswith("bad_") else ""
        return f"Refused: {full_stop(error.message + where)}{hint} Nothing was changed."
    if isinstance(error, Unavailable):
        hint = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
        return (
            f"Allswell cannot answer now: {full_stop(error.message)}{hint} Nothing is lost. Go on with your work, and "
            "make this call again in a minute."
        )
    if isinstance(error, AllswellError):
        return full_stop(str(error))
    return (
        f"This is a bug of Allswell's: {type(error).__name__}. It is not your fault. Make the call again once; if that "
        "does not help, go on without it."
    )


def out_of_time(tool: str) -> str:
    """The time that the caller has was up."""
    return (
        f"The time that you gave this call is up; what {tool} was asked for may have been done. Look with status or "
        "answers before you repeat it, and give it more time."
    )


# What can be read about a task: all of it, why it stands where it stands, and the receipts of its attempts.

RESOURCE_MEDIA_TYPE = "application/json"
_URI = re.compile(r"allswell://tasks/([^/?#]{1,200})(?:/(why|receipts))?")


_READABLE = {
    "": ("task", "A task", "A task with what it was given, what it came to, its attempts and its questions."),
    "/why": (
        "why",
        "Why a task waits or ended",
        "Why a task waits or ended, what comes next, and what can be done.",
    ),
    "/receipts": (
        "receipts",
        "The receipts of a task",
        "What its attempts on the server's machine left: how they ended, what they changed, how to go on from there.",
    ),
}
RESOURCE_TEMPLATES = tuple(
    ResourceTemplate(
        uri_template=f"allswell://tasks/{{task_id}}{end}",
        name=name,
        title=title,
        description=description,
        mime_type=RESOURCE_MEDIA_TYPE,
    )
    for end, (name, title, description) in _READABLE.items()
)
"""What can be read."""


async def read_resource(desk: WatchTools, uri: str) -> bytes:
    """What stands at an address, as JSON; `Refused` where that is nothing, or not for this key."""
    found = _URI.fullmatch(uri)
    if found is None or not can_name(found[1]):
        known = [one.uri_template for one in RESOURCE_TEMPLATES]
        hint = f"there are: {', '.join(known)}"
        raise Refused("unknown_resource", f"nothing can be read at {uri[:200]!r}", where="uri", hint=hint)
    task, part = TaskId(found[1]), found[2]
    views = desk.watch.views
    if await views.view_task(task) is None:
        raise Refused("unknown_task", f"there is no task {task!r}, or it is not yours", where="uri")
    if part is None:
        return to_json(await load_task(views, desk.artifacts, task))
    if part == "why":
        told, work = await load_explanation(views, desk.artifacts, task, desk.place)
        return to_json(ExplanationShape.of(told, work))
    check_act(desk.key, Operation.LOOK)  # they tell of the server's own machine: paths, programs, who else worked on it
    return to_json(ReceiptsShape((await desk.artifacts.receipts(task)).receipts[::-1]))


Asked = ServerRequestContext[Any, Any]
log = logging.getLogger("allswell.mcp")
ERROR = "allswell/error"
"""Where programs find an error's shape, in the `_meta` of an answer."""
_LISTED_MS = 300_000
"""Milliseconds that a client may keep the list of tools: it changes with an upgrade alone."""


def server_of(desk_for: Callable[[Asked], WatchTools]) -> Server[Any]:
    """A server with all tools; `desk_for` gives what a call is carried out by."""

    async def read(ctx: Asked, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)
        try:
            text = (await read_resource(desk_for(ctx), uri)).decode()
        except AllswellError as error:
            raise MCPError(INVALID_PARAMS, in_words(error), {"uri": uri}) from None
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=RESOURCE_MEDIA_TYPE, text=text)])

    return Server(
        "allswell",
        version=version("allswell"),
        title="Allswell",
        description="The night watch for agents",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(_LISTED_MS, "public")},
        on_list_tools=_lister(TOOLS),
        on_call_tool=_caller(TOOLS, desk_for, lambda _, arguments: arguments),
        on_list_resources=_no_resources,
        on_list_resource_templates=_templates,
        on_read_resource=read,
    )


def own_server(own: OwnLease) -> Server[Any]:
    """A server for whoever works inside a supervised attempt."""
    desk = AttemptTools(own)
    return Server(
        "allswell",
        version=version("allswell"),
        title="Allswell",
        description="The night watch for agents",
        instructions=OWN_INSTRUCTIONS,
        on_list_tools=_lister(OWN_TOOLS),
        on_call_tool=_caller(OWN_TOOLS, lambda _: desk, own.meant),
    )


def _lister(tools: Mapping[str, Tool[Any]]) -> Callable[[Asked, PaginatedRequestParams | None], Any]:
    listed = [_described(tool) for tool in tools.values()]

    async def list_tools(_: Asked, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    return list_tools


def _described(tool: Tool[Any]) -> ListedTool:
    hints = tool.hints
    return ListedTool(
        name=tool.name,
        title=hints.title,
        description=tool.says,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            title=hints.title,
            read_only_hint=hints.reads_only,
            destructive_hint=False,
            idempotent_hint=hints.is_repeatable,
            open_world_hint=False,
        ),
        _meta={"anthropic/alwaysLoad": True},
    )


def _caller(
    tools: Mapping[str, Tool[Any]],
    desk_for: Callable[[Asked], ToolHandlers],
    meant: Callable[[type[ToolParams], Json], Json],
) -> Callable[[Asked, CallToolRequestParams], Any]:
    async def call_tool(ctx: Asked, params: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            known = ", ".join(tools)
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name[:100]!r}. There are: {known}.")
        sent: Mapping[str, object] = dict(ctx.meta or {})
        try:
            async with inherit_remaining(sent, name=tool.name):
                answer = await tool.does(desk_for(ctx), tool.taken(meant(tool.takes, params.arguments or {})))
        except ScopeTimeout:
            return _failed(out_of_time(tool.name), None)
        except AllswellError as error:
            return _failed(in_words(error), error)
        except Exception as error:
            log.exception("a call of %s failed", tool.name)
            return _failed(in_words(error), error)
        return _answered(answer)

    return call_tool


def _answered(answer: msgspec.Struct) -> CallToolResult:
    text = to_json(answer)
    leases = getattr(answer, "claims", None) or [answer]
    left = [one.remaining_ms for one in leases if getattr(one, "remaining_ms", None) is not None]
    return CallToolResult(
        content=[TextContent(type="text", text=text.decode())],
        structured_content=msgspec.json.decode(text),
        _meta={META: max(0, min(left))} if left else None,
    )


def _failed(text: str, error: BaseException | None) -> CallToolResult:
    shape = None if error is None else msgspec.to_builtins(ErrorShape.of(without_place(error)).error)
    meta = None if shape is None else {ERROR: shape}
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True, _meta=meta)


async def _no_resources(_: Asked, __: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=[])


async def _templates(_: Asked, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=list(RESOURCE_TEMPLATES))


# The server on standard input and output: on a store that this process opens, or inside a supervised attempt.

STDIO = "(stdio)"
"""What is done without a key is signed with this: no key is called so."""


def caller(agent: str | None, roles: Sequence[str]) -> Key:
    """What somebody at this machine may do who shows no key: under a name, what an agent may, and to look.

    Without a name any name will do, as on the command line. It is kept nowhere, and no secret fits it.
    """
    if agent is None:
        return Key(STDIO, "", (Right.ADMIN,), Millis(0))
    rights = (Right.AGENT, Right.SUBMITTER, Right.VIEWER)
    return Key(STDIO, "", rights, Millis(0), roles=tuple(roles) or (ANY_ROLE,), agents=(agent,))


def serve_store(url: str, settings: Settings, home: Path, key: Key, tell: Callable[[str], None]) -> None:
    """Serve a store until standard input ends."""

    async def live() -> None:
        async with make_gate(url, settings, tell_of_wait=tell) as gate:
            closing, artifacts = asyncio.Event(), ServedArtifacts(home, url, full=may(key, Operation.LOOK))
            await _serve(server_of(lambda _: WatchTools(gate, key, artifacts, closing)))

    asyncio.run(live())


def serve_attempt(own: OwnLease) -> None:
    """Serve one lease until standard input ends."""
    asyncio.run(_serve(own_server(own)))


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (reads, writes):
        with gone_on_with():  # the SDK makes a span of each call, under what the call brings, or else under this
            await server.run(reads, writes, server.create_initialization_options())

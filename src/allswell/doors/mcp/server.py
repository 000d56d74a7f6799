"""The tools and resources as a server of the SDK, whichever transport carries it.

The SDK's `MCPServer` makes schemas of pydantic models. Ours are made of the shapes that every other door answers with,
so its lower layer is used, which takes a tool as it is declared.

Each call is bounded by what its caller has left, which travels in its `_meta` (ADR 25). What goes wrong with a tool is
an answer that a model can read and act on; programs find the error's shape in its `_meta`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import msgspec
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
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

from allswell.domain.carried import META
from allswell.doors.mcp import resources
from allswell.doors.mcp.arguments import ToolTaken
from allswell.doors.mcp.attempt_desk import AttemptDesk, OwnLease
from allswell.doors.mcp.desk import ToolDesk, WatchDesk
from allswell.doors.mcp.told import in_words, out_of_time
from allswell.doors.mcp.tools import INSTRUCTIONS, OWN_INSTRUCTIONS, OWN_TOOLS, TOOLS, Json, Tool
from allswell.doors.shapes.error import ErrorShape
from allswell.errors import AllswellError
from allswell.runtime.travel import inherit_remaining
from allswell.timing.scope import ScopeTimeout

Asked = ServerRequestContext[Any, Any]
log = logging.getLogger("allswell.mcp")
ERROR = "allswell/error"
"""Where programs find an error's shape, in the `_meta` of an answer."""
_LISTED_MS = 300_000
"""Milliseconds that a client may keep the list of tools: it changes with an upgrade alone."""


def server_of(desk_for: Callable[[Asked], WatchDesk]) -> Server[Any]:
    """A server with all tools; `desk_for` gives what a call is carried out by."""

    async def read(ctx: Asked, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)
        try:
            text = (await resources.read(desk_for(ctx), uri)).decode()
        except AllswellError as error:
            raise MCPError(INVALID_PARAMS, in_words(error), {"uri": uri}) from None
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=resources.MEDIA_TYPE, text=text)])

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
    desk = AttemptDesk(own)
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
    desk_for: Callable[[Asked], ToolDesk],
    meant: Callable[[type[ToolTaken], Json], Json],
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
    text = msgspec.json.encode(answer)
    left = [one.remaining_ms for one in getattr(answer, "claims", None) or [answer] if hasattr(one, "remaining_ms")]
    return CallToolResult(
        content=[TextContent(type="text", text=text.decode())],
        structured_content=msgspec.json.decode(text),
        _meta={META: max(0, min(left))} if left else None,
    )


def _failed(text: str, error: BaseException | None) -> CallToolResult:
    shape = None if error is None else msgspec.to_builtins(ErrorShape.of(error).error)
    meta = None if shape is None else {ERROR: shape}
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True, _meta=meta)


async def _no_resources(_: Asked, __: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=[])


async def _templates(_: Asked, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(
                uri_template=one.uri,
                name=one.name,
                title=one.title,
                description=one.description,
                mime_type=resources.MEDIA_TYPE,
            )
            for one in resources.TEMPLATES
        ]
    )

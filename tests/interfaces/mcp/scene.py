"""Agents that speak MCP with a watch on virtual time: the SDK's own client and our server, in one process."""

# ruff: noqa: ANN401 - JSON is whatever it is

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from mcp import Client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent, Tool

from allswell.domain.access.key import Key, Right
from allswell.domain.access.rights import Operation, may
from allswell.domain.ids import Millis
from allswell.domain.mesh.request import FIGURES, MeshFigures
from allswell.domain.scopes import META
from allswell.engine.access.gate import Gate
from allswell.engine.ids import Ids
from allswell.interfaces.mcp.handlers import WatchTools
from allswell.interfaces.mcp.server import ERROR, server_of
from allswell.testing.sim.process import engine_of
from allswell.views.artifacts import Artifacts
from tests.engine.stage import Stage


def key_of(name: str, *rights: Right, roles: tuple[str, ...] = ("*",)) -> Key:
    agent = Right.AGENT in rights
    return Key(name, "", rights, Millis(0), roles=roles if agent else (), agents=(name,) if agent else ())


def told(result: CallToolResult) -> str:
    """All that a model reads of an answer."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


@dataclass
class Agent:
    """A client, held to the schemas that its server has listed."""

    client: Client
    tools: dict[str, Tool] = field(default_factory=dict)

    async def call(self, tool: str, arguments: Mapping[str, object], meta: object = None) -> CallToolResult:
        if not self.tools:
            self.tools = {one.name: one for one in (await self.client.list_tools()).tools}
        sent = cast("RequestParamsMeta", {} if meta is None else {META: meta})
        return await self.client.call_tool(tool, dict(arguments), meta=sent)

    async def do(self, tool: str, /, **arguments: object) -> Any:
        """What a tool answers; it must fit the tool's schema, and the text must say the same."""
        result = await self.call(tool, arguments)
        assert not result.is_error, told(result)
        schema = self.tools[tool].output_schema
        assert schema is not None
        Draft202012Validator(schema).validate(result.structured_content)
        return result.structured_content

    async def refused(self, tool: str, /, **arguments: object) -> tuple[str, str]:
        """The code of the error that a tool answers, and what a model reads."""
        result = await self.call(tool, arguments)
        assert result.is_error, result.structured_content
        assert result.meta is not None
        return str(result.meta[ERROR]["code"]), told(result)


@dataclass
class Tables:
    """Where agents sit down."""

    stage: Stage
    gate: Gate
    home: Path
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def agent(self, key: Key) -> AsyncIterator[Agent]:
        server = server_of(
            lambda _: WatchTools(self.gate, key, Artifacts(self.home, full=may(key, Operation.LOOK)), self.closing)
        )
        async with Client(server) as client:
            yield Agent(client)


def tables(stage: Stage, home: Path, mesh: MeshFigures = FIGURES) -> Tables:
    ids = Ids(stage.clock.wall, random.Random(7).getrandbits)
    return Tables(stage, Gate(engine_of(stage.watch), ids, mesh=mesh), home)

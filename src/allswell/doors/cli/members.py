"""Members of a build: `build-agent` and `audit-agent` take part in a chat with any command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Json, Option, Rest
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from allswell.build.agents import Member
    from allswell.build.channel import Channel
    from allswell.build.command_work import WatchedCommand
    from allswell.doors.chat.place import ChatPlace


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        RUNNING,
        "build-agent",
        build_agent,
        "allswell build-agent --chat ws://localhost:6667 --key ann.pem -- ./build.sh",
        "allswell build-agent --chat ws://localhost:6667 --worktrees ../work --pr-url https://x/{component} -- make",
    )
    app.add(
        RUNNING,
        "audit-agent",
        audit_agent,
        "allswell audit-agent --chat ws://localhost:6667 --key bob.pem -- ./audit.sh",
    )


Chat = Annotated[str, Option("--chat", metavar="URL", help="The AgentChat server, ws://… or wss://….")]
Room = Annotated[str, Option("--channel", metavar="NAME", help="Where the build is talked about.")]
Key = Annotated[str | None, Option("--key", metavar="FILE", help="Our ed25519 key; made if it is not there yet.")]
Boss = Annotated[str, Option("--coordinator", metavar="ID", help="Whose lines count. Default: who says TASKS first.")]
Limit = Annotated[str, Option("--timeout", metavar="TIME", help="The hard limit of COMMAND each time.")]
Idle = Annotated[str, Option("--idle", metavar="TIME", help="End COMMAND after so long without progress; or off.")]
Words = Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="What does the work.")]


def build_agent(
    chat: Chat,
    channel: Room = "#build",
    key: Key = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="As whom we talk.")] = "builder",
    coordinator: Boss = "",
    worktrees: Annotated[
        str | None, Option("--worktrees", metavar="FOLDER", help="A git worktree there for each component.")
    ] = None,
    pr_url: Annotated[
        str, Option("--pr-url", metavar="URL", help="The pull request's address, with {component} in it.")
    ] = "",
    timeout: Limit = "2h",
    idle: Idle = "30m",
    json: Json = False,
    command: Words = None,
) -> None:
    """Build what the coordinator gives us: COMMAND runs for each component, under watch, until the build is complete.

    It finds BUILD_COMPONENT and BUILD_AUDIT in its environment; its last line is the address of the pull request.
    """
    from allswell.build.agents import BuildAgent
    from allswell.build.command_work import CommandBuilder
    from allswell.domain.build.wording import is_url
    from allswell.doors.chat.place import ChatPlace

    if pr_url and not is_url(pr_url.replace("{component}", "x")):
        raise Refused("usage", f"{pr_url[:200]!r} is no address", where="--pr-url")
    work = CommandBuilder(
        _watched(command, timeout, idle), pr_url=pr_url, worktrees=None if worktrees is None else Path(worktrees)
    )
    place = ChatPlace(chat, channel, name).checked()
    _take_part(place, key, lambda room: BuildAgent(room, work, coordinator=coordinator), json=json)


def audit_agent(
    chat: Chat,
    channel: Room = "#build",
    key: Key = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="As whom we talk.")] = "auditor",
    coordinator: Boss = "",
    timeout: Limit = "15m",
    idle: Idle = "5m",
    json: Json = False,
    command: Words = None,
) -> None:
    """Audit what is ready: COMMAND runs for each READY, under watch, until the build is complete.

    It finds BUILD_COMPONENT, BUILD_URL and BUILD_BUILDER in its environment. Exit code 0 is PASS.
    """
    from allswell.build.agents import AuditAgent
    from allswell.build.command_work import CommandAuditor
    from allswell.doors.chat.place import ChatPlace

    work = CommandAuditor(_watched(command, timeout, idle))
    place = ChatPlace(chat, channel, name).checked()
    _take_part(place, key, lambda room: AuditAgent(room, work, coordinator=coordinator), json=json)


def _watched(command: list[str] | None, timeout: str, idle: str) -> WatchedCommand:
    from allswell.build.command_work import WatchedCommand
    from allswell.domain.duration import parse

    if not command:
        raise Refused("no_command", "which command? put it behind --", where="COMMAND")
    parse(timeout, where="--timeout")
    if idle != "off":
        parse(idle, where="--idle")
    return WatchedCommand(tuple(command), ("--timeout", timeout, "--idle", idle))


def _take_part(place: ChatPlace, key: str | None, make: Callable[[Channel], Member], *, json: bool) -> None:
    """Join the channel and take part to the end; signals leave it, and end the command first."""
    import asyncio
    import signal

    from allswell.doors.chat.agentchat import AgentChat
    from allswell.doors.chat.identity import read_key
    from allswell.doors.cli.overheard import Overheard

    frame = Frame(None, json=json)
    secret = None if key is None else read_key(Path(key))

    async def live() -> None:
        async with AgentChat(place, secret) as room:
            member = make(Overheard(room, frame))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, member.stop)
            await member.run()

    asyncio.run(live())

"""`coordinate`, `build-agent` and `audit-agent`: the two sides of a build, in a chat."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec.structs import replace

from allswell.domain.duration import parse
from allswell.domain.ids import Millis
from allswell.domain.values import hide
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, Exit, on_stop
from allswell.interfaces.cli.options import Argument, Option, Rest, Storeless, as_typed
from allswell.interfaces.cli.registry import RUNNING, Commands

if TYPE_CHECKING:
    from allswell.build.agents import ChannelMember, WatchedCommand
    from allswell.build.merge import Channel
    from allswell.domain.build.component import BuildSpec
    from allswell.domain.build.hearing import ChannelCoverage, HeardMessage, Rights
    from allswell.domain.build.limits import BuildLimits
    from allswell.domain.build.state import BuildStatus
    from allswell.engine.watch import Watch
    from allswell.interfaces.chat.agentchat import ChatPlace


# A channel whose talk is shown to whoever started us: in words with the time, or as JSON lines.

_SHOWN = 1_000


class EchoedChannel:
    """A `Channel`; what was replayed is not shown again."""

    def __init__(self, channel: Channel, context: CliContext) -> None:
        self._channel = channel
        self._context = context

    @property
    def who(self) -> str:
        """As what the others hear us."""
        return self._channel.who

    @property
    def hearing(self) -> ChannelCoverage:
        """Whether everything was heard."""
        return self._channel.hearing

    async def receive(self) -> HeardMessage:
        """The next message."""
        heard = await self._channel.receive()
        if not heard.replay:
            self._tell(heard.who, heard.text[:_SHOWN].split("\n"))
        return heard

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines."""
        at = await self._channel.send(lines)
        self._tell(self._channel.who, "\n".join(lines).split("\n"))
        return at

    def _tell(self, who: str, lines: Sequence[str]) -> None:
        for line in lines:
            self._context.tell(f"{who}: {line}")


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
    app.add(
        RUNNING,
        "coordinate",
        coordinate,
        "allswell coordinate spec.yaml --chat ws://localhost:6667 --channel '#build' --key coordinator.pem",
        "allswell coordinate components/ --stdio < lines",
        "allswell coordinate spec.yaml --stdio --human ada --auditor bob --wait-for-merge",
    )


Who = list[str] | None
Figure = str | None
_OPTIONS = {
    "progress_every": "--progress",
    "audit_timeout": "--audit-timeout",
    "build": "--limit",
    "claim_window": "--window",
    "tasks_every": "--tasks-every",
}


def coordinate(
    spec: Annotated[str, Argument(metavar="SPEC", help="A YAML file, or a folder of Markdown files.")],
    chat: Annotated[
        str | None, Option("--chat", metavar="URL", help="The AgentChat server, ws://… or wss://….")
    ] = None,
    channel: Annotated[
        str, Option("--channel", metavar="NAME", help="The channel in which the agents talk.")
    ] = "#build",
    key: Annotated[
        str | None, Option("--key", metavar="FILE", help="File with our ed25519 key; made if it does not exist.")
    ] = None,
    stdio: Annotated[
        bool, Option("--stdio", help="Use standard input and output instead of a chat: `name: LINE`.")
    ] = False,
    name: Annotated[str, Option("--name", metavar="NAME", help="Our name in the chat.")] = "coordinator",
    human: Annotated[
        Who, Option("--human", metavar="ID", help="Name of a person who may answer questions; repeatable.")
    ] = None,
    auditor: Annotated[
        Who, Option("--auditor", metavar="ID", help="Name of an agent whose verdicts count; repeatable.")
    ] = None,
    require_keys: Annotated[bool, Option("--require-keys", help="Accept claims only from agents with a key.")] = False,
    wait_for_merge: Annotated[
        bool, Option("--wait-for-merge", help="Wait for a human to say MERGED after a component has passed.")
    ] = False,
    merge: Annotated[
        bool, Option("--merge", help="Merge build/COMPONENT into the branch checked out here after PASS.")
    ] = False,
    limit: Annotated[
        Figure, Option("--limit", metavar="TIME", help="Ask a human after this time. Default: build.limit (2h).")
    ] = None,
    progress: Annotated[
        Figure, Option("--progress", metavar="TIME", help="How often builders must say PROGRESS. Default: 10m.")
    ] = None,
    audit_timeout: Annotated[
        Figure, Option("--audit-timeout", metavar="TIME", help="Announce READY again after this time. Default: 5m.")
    ] = None,
    misses: Annotated[
        int | None,
        Option("--misses", metavar="N", help="PROGRESS messages that a builder may miss in a row. Default: 3."),
    ] = None,
    failures: Annotated[
        int | None,
        Option("--failures", metavar="N", help="Failed audits after which another builder takes over. Default: 3."),
    ] = None,
    aborts: Annotated[
        int | None,
        Option("--aborts", metavar="N", help="Ask a human about a component given back this often. Default: 3."),
    ] = None,
    window: Annotated[
        Figure,
        Option(
            "--window",
            metavar="TIME",
            help="Claims this close together are decided by the server's clock. Default: 1s.",
        ),
    ] = None,
    tasks_every: Annotated[
        Figure,
        Option("--tasks-every", metavar="TIME", help="How often open components are announced again. Default: 10m."),
    ] = None,
    *,
    context: CliContext,
) -> None:
    """Coordinate a build in a chat: offer components, decide claims, count audits, ask humans, until all is merged.

    To continue after Ctrl-C or a kill, start it again with the same spec. Defaults come from `[build]` of the settings.
    """
    given = locals().copy()

    from allswell.build.spec import SpecReader
    from allswell.domain.build.hearing import Rights

    if stdio == (chat is not None):
        raise Refused("usage", "say where the agents are: either --chat URL or --stdio", where="--chat")
    if stdio and context.json:
        raise Refused("usage", "--stdio talks on standard output, so there is no room for --json", where="--json")
    if merge and wait_for_merge:
        raise Refused("usage", "use either --merge or --wait-for-merge, not both", where="--merge")
    context.for_humans("coordinate")
    again = SpecReader(Path(spec))
    read = again()
    lengths = {"progress_every": progress, "audit_timeout": audit_timeout, "build": limit}
    lengths |= {"claim_window": window, "tasks_every": tasks_every}
    set_here: dict[str, int | None] = {"misses": misses, "audit_failures": failures, "aborts": aborts}
    for name_, given_ in lengths.items():
        set_here[name_] = None if given_ is None else parse(given_, where=_OPTIONS[name_])
    if stdio:  # there is no server's clock: claims came in the order in which they are read
        set_here["claim_window"] = 0
    figures = {name_: figure for name_, figure in set_here.items() if figure is not None}
    limits = replace(context.settings.build(), **figures).checked()
    rights = Rights(_ids(human, stdio=stdio), _ids(auditor, stdio=stdio), require_keys, wait_for_merge)
    typed = as_typed("coordinate", coordinate, {**given, "chat": None if chat is None else hide(chat)})
    into, talk = Path.cwd() if merge else None, _ChatOptions(chat, channel, name, None if key is None else Path(key))
    standing = context.run(
        lambda watch: _coordinated(watch, context, talk, again, read.name, rights, limits, into, typed), making=True
    )
    _leave(context, standing, read.name)


def _ids(names: Who, *, stdio: bool) -> tuple[str, ...]:
    """The ids of agents as a chat server writes them, with @ before them; people leave it out."""
    return tuple(name if stdio or name.startswith("@") else f"@{name}" for name in names or ())


def _leave(context: CliContext, standing: BuildStatus, name: str) -> None:
    """Say how the build stands, and end with the code that goes with it."""
    states = [one.state for one in standing.components.values()]
    skipped = states.count("skipped")
    if standing.is_over and not standing.has_merged:
        context.leave(Exit.FAILED, f"the build {name} is over and nothing is merged: {skipped} skipped")
    if standing.is_over:
        context.hint(f"The build {name} is complete: {states.count('merged')} merged, {skipped} skipped.")
        return
    if standing.stopped:
        text = f"a human has stopped the build {name}: {states.count('merged')} of {len(states)} components are merged"
        context.leave(Exit.FAILED, f"{text}; the same command begins it anew")
    asked = sum(question.choice is None for question in standing.questions)
    left = f"{states.count('merged')} of {len(states)} components are merged"
    if asked:
        context.leave(Exit.NEEDS_HUMAN, f"the build {name} waits for you: `allswell questions`; {left}")
    context.leave(Exit.FAILED, f"the build {name} is not complete: {left}; the same command goes on with it")


class _ChatOptions(NamedTuple):
    """Where to talk, and as whom; without a URL, on standard input and output."""

    url: str | None
    channel: str
    name: str
    key: Path | None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Channel]:
        """The channel, for as long as it is needed."""
        if self.url is None:
            from allswell.interfaces.chat.stdio import StdioChannel

            yield StdioChannel(self.name, sys.stdin.buffer, sys.stdout.buffer)
            return
        from allswell.interfaces.chat.agentchat import AgentChat, ChatPlace, read_key

        place = ChatPlace(self.url, self.channel, self.name)
        async with AgentChat(place, None if self.key is None else read_key(self.key)) as channel:
            yield channel


async def _coordinated(
    watch: Watch,
    context: CliContext,
    talk: _ChatOptions,
    read_spec: Callable[[], BuildSpec],
    name: str,
    rights: Rights,
    limits: BuildLimits,
    merge_into: Path | None,
    typed: str,
) -> BuildStatus:
    """Coordinate, from opening the channel to its end; signals leave in good order.

    `typed` is the command, for who is to start it again.
    """
    from allswell.build.coordinator import Coordinator
    from allswell.build.merge import GitMerge
    from allswell.build.state import BuildPlace
    from allswell.runtime.process.identity import this_process
    from allswell.views.run import BuildShape

    merge = None if merge_into is None else await GitMerge(merge_into).checked()
    place = await BuildPlace.find(watch, name, process=this_process(), typed=typed)
    # Before the chat is joined: a second coordinator with the same key would displace the first one there.
    build = await place.take(watch, agent=talk.name)
    async with talk.open() as channel:
        heard = channel if talk.url is None else EchoedChannel(channel, context)
        coordinator = Coordinator(watch, heard, place, spec=read_spec, rights=rights, limits=limits, merge=merge)
        on_stop(coordinator.stop)
        standing = await coordinator.run(build)
    if context.json:
        context.say(BuildShape.of(place.run, name, standing))
    return standing


# Members of a build: `build-agent` and `audit-agent` take part in a chat with any command.


Chat = Annotated[str, Option("--chat", metavar="URL", help="The AgentChat server, ws://… or wss://….")]
Room = Annotated[str, Option("--channel", metavar="NAME", help="The channel of the build.")]
Key = Annotated[
    str | None, Option("--key", metavar="FILE", help="File with our ed25519 key; made if it does not exist.")
]
Boss = Annotated[
    str, Option("--coordinator", metavar="ID", help="The coordinator's name. Default: the first who says TASKS.")
]
Limit = Annotated[str, Option("--timeout", metavar="TIME", help="Time limit of each COMMAND.")]
Idle = Annotated[str, Option("--idle", metavar="TIME", help="End COMMAND after this time without progress, or off.")]
Words = Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="The command that does the work.")]


def build_agent(
    chat: Chat,
    channel: Room = "#build",
    key: Key = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="Our name in the chat.")] = "builder",
    coordinator: Boss = "",
    worktrees: Annotated[
        str | None, Option("--worktrees", metavar="FOLDER", help="A git worktree there for each component.")
    ] = None,
    pr_url: Annotated[
        str, Option("--pr-url", metavar="URL", help="The pull request's address, with {component} in it.")
    ] = "",
    timeout: Limit = "2h",
    idle: Idle = "30m",
    *,
    context: Storeless,
    command: Words = None,
) -> None:
    """Build components for a coordinator: run COMMAND for each one, until the build is complete.

    It finds BUILD_COMPONENT and BUILD_AUDIT in its environment; its last line is the address of the pull request.
    """
    from allswell.build.agents import BuildAgent, CommandBuilder
    from allswell.domain.build.line import is_url
    from allswell.interfaces.chat.agentchat import ChatPlace

    if pr_url and not is_url(pr_url.replace("{component}", "x")):
        raise Refused("usage", f"{pr_url[:200]!r} is not an address", where="--pr-url")
    work = CommandBuilder(
        _watched(command, timeout, idle), pr_url=pr_url, worktrees=None if worktrees is None else Path(worktrees)
    )
    place, boss = ChatPlace(chat, channel, name).checked(), _id(coordinator)
    _take_part(context, place, key, lambda room: BuildAgent(room, work, coordinator=boss))


def audit_agent(
    chat: Chat,
    channel: Room = "#build",
    key: Key = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="Our name in the chat.")] = "auditor",
    coordinator: Boss = "",
    timeout: Limit = "15m",
    idle: Idle = "5m",
    *,
    context: Storeless,
    command: Words = None,
) -> None:
    """Audit components that are ready: run COMMAND for each one, until the build is complete.

    It finds BUILD_COMPONENT, BUILD_URL and BUILD_BUILDER in its environment. Exit code 0 is PASS.
    """
    from allswell.build.agents import AuditAgent, CommandAuditor
    from allswell.interfaces.chat.agentchat import ChatPlace

    work = CommandAuditor(_watched(command, timeout, idle))
    place, boss = ChatPlace(chat, channel, name).checked(), _id(coordinator)
    _take_part(context, place, key, lambda room: AuditAgent(room, work, coordinator=boss))


def _id(agent: str) -> str:
    """An agent's id as the server writes it, with @ before it; people leave it out."""
    return agent if not agent or agent.startswith("@") else f"@{agent}"


def _watched(command: list[str] | None, timeout: str, idle: str) -> WatchedCommand:
    from allswell.build.agents import WatchedCommand

    if not command:
        raise Refused("no_command", "which command? write it after --", where="COMMAND")
    parse(timeout, where="--timeout")
    if idle != "off":
        parse(idle, where="--idle")
    return WatchedCommand(tuple(command), ("--timeout", timeout, "--idle", idle))


def _take_part(
    context: CliContext, place: ChatPlace, key: str | None, make: Callable[[Channel], ChannelMember]
) -> None:
    """Join the channel and take part to the end; signals leave it, and end the command first."""
    import asyncio

    from allswell.interfaces.chat.agentchat import AgentChat, read_key

    secret = None if key is None else read_key(Path(key))

    async def live() -> None:
        async with AgentChat(place, secret) as room:
            member = make(EchoedChannel(room, context))
            on_stop(member.stop)
            await member.run()

    asyncio.run(live())

"""Builds: `coordinate` gives components to the agents of a chat, and sees them through to the end."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.overheard import Overheard
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from allswell.build.channel import Channel
    from allswell.domain.build.component import BuildSpec
    from allswell.domain.build.hearing import Rights
    from allswell.domain.build.limits import BuildLimits
    from allswell.domain.build.standing import Standing
    from allswell.engine.watch import Watch


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        RUNNING,
        "coordinate",
        coordinate,
        "allswell coordinate spec.yaml --chat ws://localhost:6667 --channel '#build' --key coordinator.pem",
        "allswell coordinate components/ --stdio < lines",
        "allswell coordinate spec.yaml --stdio --human ada --auditor bob --wait-for-merge",
    )


Who = list[str] | None
_CLAIM_WINDOW = 1_000


def coordinate(
    spec: Annotated[str, Argument(metavar="SPEC", help="A YAML file, or a folder of Markdown files.")],
    chat: Annotated[
        str | None, Option("--chat", metavar="URL", help="The AgentChat server, ws://… or wss://….")
    ] = None,
    channel: Annotated[str, Option("--channel", metavar="NAME", help="Where the agents talk.")] = "#build",
    key: Annotated[
        str | None, Option("--key", metavar="FILE", help="Our ed25519 key; made if it is not there yet.")
    ] = None,
    stdio: Annotated[bool, Option("--stdio", help="Talk on standard input and output: `name: LINE`.")] = False,
    name: Annotated[str, Option("--name", metavar="NAME", help="As whom we talk.")] = "coordinator",
    human: Annotated[Who, Option("--human", metavar="ID", help="Who may answer questions; repeatable.")] = None,
    auditor: Annotated[Who, Option("--auditor", metavar="ID", help="Whose verdicts count; repeatable.")] = None,
    require_keys: Annotated[bool, Option("--require-keys", help="Take claims only from agents with a key.")] = False,
    wait_for_merge: Annotated[
        bool, Option("--wait-for-merge", help="Passed is not merged: a human says MERGED.")
    ] = False,
    merge: Annotated[
        bool, Option("--merge", help="Merge build/COMPONENT into the branch checked out here after PASS.")
    ] = False,
    limit: Annotated[str, Option("--limit", metavar="TIME", help="After so long a human is asked.")] = "2h",
    progress: Annotated[str, Option("--progress", metavar="TIME", help="Builders say PROGRESS so often.")] = "10m",
    audit_timeout: Annotated[
        str, Option("--audit-timeout", metavar="TIME", help="Then READY is announced again.")
    ] = "5m",
    store: Store = None,
    json: Json = False,
) -> None:
    """Coordinate a build: offer components, decide claims, count audits, ask humans, until all is merged.

    The same spec goes on where it was left, also after a kill. Ctrl-C leaves it to be gone on with.
    """
    from allswell.build.spec import SpecReader
    from allswell.domain.build.hearing import Rights
    from allswell.domain.build.limits import BuildLimits
    from allswell.domain.duration import parse

    if stdio == (chat is not None):
        raise Refused("usage", "say where the agents are: either --chat URL or --stdio", where="--chat")
    if stdio and json:
        raise Refused("usage", "--stdio talks on standard output, so there is no room for --json", where="--json")
    if merge and wait_for_merge:
        raise Refused("usage", "either --merge or --wait-for-merge: one of us merges", where="--merge")
    frame = Frame(store, json=json)
    frame.for_humans("coordinate")
    again = SpecReader(Path(spec))
    read = again()
    limits = BuildLimits(
        progress_every=parse(progress, where="--progress"),
        audit_timeout=parse(audit_timeout, where="--audit-timeout"),
        build=parse(limit, where="--limit"),
        claim_window=0 if stdio else _CLAIM_WINDOW,  # there is no server's clock: they came in the order they are read
    ).checked()
    rights = Rights(tuple(human or ()), tuple(auditor or ()), require_keys, wait_for_merge)
    job = _Job(frame, again, read, rights, limits, Path.cwd() if merge else None)
    with_key = None if key is None else Path(key)
    standing = frame.run(lambda watch: job.run(watch, _Talk(chat, channel, name, with_key)), making=True)
    _leave(frame, standing, read.name)


def _leave(frame: Frame, standing: Standing, name: str) -> None:
    """Say how the build stands, and end with the code that goes with it."""
    states = [one.state for one in standing.components.values()]
    if standing.is_over:
        skipped = states.count("skipped")
        frame.hint(f"The build {name} is complete: {states.count('merged')} merged, {skipped} skipped.")
        return
    if standing.stopped:
        text = f"a human has stopped the build {name}: {states.count('merged')} of {len(states)} components are merged"
        frame.leave(Exit.FAILED, f"{text}; the same command begins it anew")
    asked = sum(question.choice is None for question in standing.questions)
    left = f"{states.count('merged')} of {len(states)} components are merged"
    if asked:
        frame.leave(Exit.NEEDS_HUMAN, f"the build {name} waits for you: `allswell questions`; {left}")
    frame.leave(Exit.FAILED, f"the build {name} is not complete: {left}; the same command goes on with it")


class _Talk:
    """Where to talk, and as whom; without a URL, on standard input and output."""

    def __init__(self, url: str | None, channel: str, name: str, key: Path | None) -> None:
        self.url = url
        self.channel = channel
        self.name = name
        self.key = key

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Channel]:
        """The channel, for as long as it is needed."""
        if self.url is None:
            from allswell.doors.chat.stdio import StdioChannel

            yield StdioChannel(self.name, sys.stdin.buffer, sys.stdout.buffer)
            return
        from allswell.doors.chat.agentchat import AgentChat
        from allswell.doors.chat.identity import read_key
        from allswell.doors.chat.place import ChatPlace

        place = ChatPlace(self.url, self.channel, self.name)
        async with AgentChat(place, None if self.key is None else read_key(self.key)) as channel:
            yield channel


class _Job:
    """One coordination, from opening the channel to its end."""

    def __init__(
        self,
        frame: Frame,
        again: Callable[[], BuildSpec],
        spec: BuildSpec,
        rights: Rights,
        limits: BuildLimits,
        merge_into: Path | None,
    ) -> None:
        self._frame = frame
        self._again = again
        self._spec = spec
        self._rights = rights
        self._limits = limits
        self._merge_into = merge_into

    async def run(self, watch: Watch, talk: _Talk) -> Standing:
        """Coordinate; signals leave in good order."""
        import asyncio
        import signal

        from allswell.build.coordinator import Coordinator
        from allswell.build.merging import GitMerge
        from allswell.build.place import BuildPlace
        from allswell.doors.shapes.build import BuildShape
        from allswell.runtime.durable.process import this_process

        merge = None if self._merge_into is None else await GitMerge(self._merge_into).checked()
        place = await BuildPlace.find(watch, self._spec.name, process=this_process())
        async with talk.open() as channel:
            heard = channel if talk.url is None else Overheard(channel, self._frame)
            coordinator = Coordinator(
                watch, heard, place, spec=self._again, rights=self._rights, limits=self._limits, merge=merge
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, coordinator.stop)
            standing = await coordinator.run()
        if self._frame.json:
            self._frame.say(BuildShape.of(place.run, self._spec.name, standing))
        return standing

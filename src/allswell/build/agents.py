"""Taking part in a build: a builder and an auditor around any function that does the work.

    async def work(job: BuildJob) -> str:       # the address of the pull request
        ...

    await BuildAgent(channel, work, coordinator="@1f2e…").run()

The builder waits for its ACK, says PROGRESS while the work goes on, hands what a failed audit found to the work, claims
again what it has lost, and ends with the build. Work that raises is given back with ABORT. The auditor looks at
everything that is ready and was not built under its own name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from allswell.build.merge import Channel, ChannelClosed
from allswell.domain.build.builder import (
    BeginWork,
    BuilderAct,
    BuilderState,
    CeaseWork,
    ClaimNow,
    builder_gives_up,
    builder_hears,
)
from allswell.domain.build.hearing import HeardMessage
from allswell.domain.build.limits import USUAL_PROGRESS
from allswell.domain.build.line import (
    AbortLine,
    AckLine,
    AuditLine,
    ClaimLine,
    CompleteLine,
    ErrorLine,
    Line,
    MalformedLine,
    MergedLine,
    ProgressLine,
    ReadyLine,
    RetryLine,
    TasksLine,
    TimeoutLine,
    is_url,
    read,
    write,
)
from allswell.domain.build.state import BUILD_OVER
from allswell.runtime.process.command import allowed_environment
from allswell.runtime.workspace.worktree import LEADS_ELSEWHERE, make_own_worktree
from allswell.timing.loops import Nursery

_log = logging.getLogger("allswell.build")
_SHARE = 3
"""A builder says PROGRESS so many times as often as its coordinator expects it."""
_ANSWER_WITHIN = 120.0
"""Seconds after which a claim that nobody has answered is given up."""


class BuildJob(msgspec.Struct, frozen=True):
    """What a builder is asked to do."""

    component: str
    details: str = ""
    """What the last audit found; empty at first."""


class AuditTask(msgspec.Struct, frozen=True):
    """What an auditor is asked to look at."""

    component: str
    url: str
    builder: str


BuildWork = Callable[[BuildJob], Awaitable[str]]
AuditWork = Callable[[AuditTask], Awaitable[tuple[bool, str]]]


class ChannelMember:
    """Somebody in the channel of a build; `coordinator` is whose lines count, the first to say TASKS unless given."""

    def __init__(self, channel: Channel, coordinator: str = "") -> None:
        self._channel = channel
        self._coordinator = coordinator
        self._over = asyncio.Event()
        self._to_say: list[str] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Take part until the build is complete, or the channel ends."""
        async with Nursery() as nursery:
            nursery.start(self._listen())
            nursery.start(self._speak())
            await self._over.wait()
            nursery.cancel()
        await self._leave()

    def stop(self) -> None:
        """Leave the build, and end what is being done first."""
        self._over.set()

    async def _leave(self) -> None:
        """Clean up."""

    def _hear(self, line: Line, heard: HeardMessage) -> None:
        raise NotImplementedError

    def _is_coordinator(self, heard: HeardMessage, lines: Sequence[Line | MalformedLine]) -> bool:
        if not self._coordinator and any(isinstance(line, TasksLine) for line in lines):
            self._coordinator = heard.who
        return heard.who == self._coordinator

    async def _listen(self) -> None:
        try:
            while True:
                heard = await self._channel.receive()
                if heard.who == self._channel.who:
                    continue
                lines = read(heard.text)
                official = self._is_coordinator(heard, lines)
                for line in lines:
                    if isinstance(line, MalformedLine):
                        continue
                    self._hear(line, heard)
                    if official and _ends_build(line):
                        self._over.set()
        except ChannelClosed:
            self._over.set()

    def _say(self, line: Line) -> None:
        self._to_say.append(write(line))
        self._news.set()

    async def _speak(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                lines, self._to_say = self._to_say, []
                if lines:
                    await self._channel.send(lines)
        except ChannelClosed:
            self._over.set()


def _ends_build(line: Line) -> bool:
    """Whether there is nothing more to do: the build is complete, or a human has stopped it."""
    return isinstance(line, CompleteLine) or (isinstance(line, ErrorLine) and line.text in BUILD_OVER)


class BuildAgent(ChannelMember):
    """A builder."""

    def __init__(
        self, channel: Channel, work: BuildWork, *, coordinator: str = "", progress_every: float | None = None
    ) -> None:
        super().__init__(channel, coordinator)
        self._work = work
        self._every = progress_every
        self._expected = USUAL_PROGRESS
        """How often its coordinator expects PROGRESS, in milliseconds."""
        self._otherwise = asyncio.Event()
        """Set when that is another time than before."""
        self._state = BuilderState(channel.who)
        self._doing: asyncio.Task[None] | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def _hear(self, line: Line, heard: HeardMessage) -> None:
        if heard.who != self._coordinator:
            return
        if self._state.me != self._channel.who:  # without a key we are somebody else since we came back
            self._cease()
            self._state = BuilderState(self._channel.who, self._state.free)
        if isinstance(line, TasksLine | AckLine):
            expected = line.every or USUAL_PROGRESS
            if expected != self._expected:
                self._expected = expected
                self._otherwise.set()
        self._state, acts = builder_hears(self._state, line)
        self._do(acts)

    def _do(self, acts: Sequence[BuilderAct]) -> None:
        for act in acts:
            match act:
                case ClaimNow(component):
                    self._say(ClaimLine(component))
                    self._expect_answer(component)
                case BeginWork(component, details):
                    before = self._doing
                    self._cease()
                    self._doing = asyncio.ensure_future(self._build(BuildJob(component, details), before))
                case CeaseWork(component, why):
                    _log.info("%s is lost: %s", component, why)
                    self._cease()

    def _expect_answer(self, component: str) -> None:
        """A claim may be lost while nobody coordinates: then something else is claimed, or what is offered again."""
        if self._waiting is not None:
            self._waiting.cancel()

        def give_up() -> None:
            if self._state.wants == component:
                self._state, acts = builder_gives_up(self._state, component)
                self._do(acts)

        self._waiting = asyncio.get_running_loop().call_later(_ANSWER_WITHIN, give_up)

    async def _build(self, job: BuildJob, before: asyncio.Task[None] | None) -> None:
        if before is not None and before is not asyncio.current_task():
            await asyncio.wait({before})  # what was stopped may take a while to end, in the same folder
        ticking = asyncio.ensure_future(self._tick(job.component))
        try:
            url = await self._work(job)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the component is free for somebody else
            self._say(AbortLine(job.component, str(error) or type(error).__name__))
            self._state, acts = builder_gives_up(self._state, job.component)
            self._do(acts)
            return
        finally:
            ticking.cancel()
        self._say(ReadyLine(job.component, url))

    async def _tick(self, component: str) -> None:
        self._otherwise.clear()
        while True:
            pause = self._expected / 1_000 / _SHARE if self._every is None else self._every
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._otherwise.wait(), pause)
                self._otherwise.clear()
            self._say(ProgressLine(component))

    def _cease(self) -> None:
        if self._doing is not None and self._doing is not asyncio.current_task():
            self._doing.cancel()

    async def _leave(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._cease()
        if self._doing is not None:
            await asyncio.wait({self._doing})


class AuditAgent(ChannelMember):
    """An auditor; it looks at one READY after the other, and stops looking at what is not to be judged any more.

    READY counts from whoever was given the component, as far as that was heard, and from the coordinator, who says it
    again for what nobody has judged.
    """

    def __init__(self, channel: Channel, work: AuditWork, *, coordinator: str = "") -> None:
        super().__init__(channel, coordinator)
        self._work = work
        self._looking: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """At which address of a component."""
        self._builders: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()

    def _hear(self, line: Line, heard: HeardMessage) -> None:
        official = heard.who == self._coordinator
        match line:
            case ReadyLine(component, url) if official or self._builders.get(component, heard.who) == heard.who:
                self._look_at(AuditTask(component, url, self._builders.get(component, "" if official else heard.who)))
            case AckLine(component, agent) if official:
                self._look_away(component)
                self._builders[component] = agent
            case TimeoutLine(component) | RetryLine(component) | MergedLine(component) if official:
                self._look_away(component)
                self._builders.pop(component, None)
            case AuditLine(component, passed=False) if official:
                self._look_away(component)
            case _:
                pass

    def _look_at(self, task: AuditTask) -> None:
        url, doing = self._looking.get(task.component, ("", None))
        if doing is not None and url == task.url and not doing.done():
            return
        self._look_away(task.component)
        self._looking[task.component] = (task.url, asyncio.ensure_future(self._audit(task)))

    def _look_away(self, component: str) -> None:
        """What was handed in there is judged, or replaced by something newer."""
        _, doing = self._looking.get(component, ("", None))
        if doing is not None:
            doing.cancel()

    async def _audit(self, task: AuditTask) -> None:
        async with self._one_at_a_time:
            try:
                passed, details = await self._work(task)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - no verdict: READY is announced again, perhaps to somebody else
                _log.warning("the audit of %s came to nothing: %s", task.component, error)
                return
        # With the address: by now something newer may have been handed in, of which we have not heard.
        self._say(AuditLine(task.component, passed, f"{task.url} {details}".strip()))

    async def _leave(self) -> None:
        open_ones = [task for _, task in self._looking.values() if not task.done()]
        for task in open_ones:
            task.cancel()
        if open_ones:
            await asyncio.wait(open_ones)


# The work of a builder or an auditor as a command: run under watch, like any other (`allswell run`).
#
# The command is told what to do by its environment: BUILD_COMPONENT; for a builder BUILD_AUDIT, what the last audit
# found; for an auditor BUILD_URL and BUILD_BUILDER. A builder's last line of output is the address of its pull request,
# unless a template gives it. An auditor passes by exit code 0; otherwise what it printed last is what it found.
#
# When the work is stopped, the command is told so and may end in good order; `allswell run` keeps what it has left.

_KEPT = 4_000
"""So much of what a command printed last is looked at, in characters."""
_CHUNK = 65_536


class WatchedCommand(msgspec.Struct, frozen=True):
    """A command, and how it is watched: the words for `allswell run` before it."""

    argv: tuple[str, ...]
    options: tuple[str, ...] = ()

    async def run(self, name: str, env: Mapping[str, str], folder: Path | None = None) -> tuple[int, str]:
        """Run it; its exit code, and what it printed last."""
        given = [word for key, value in env.items() for word in ("--env", f"{key}={value}")]
        called = [sys.executable, "-P", "-m", "allswell", "run"]  # -P: no package of the folder is taken for ours
        words = [*called, "--name", name, *self.options, *given, "--", *self.argv]
        around = {name: value for name, value in os.environ.items() if folder is None or name not in LEADS_ELSEWHERE}
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            cwd=folder,
            env=around,
            start_new_session=True,
        )
        try:
            printed = await _last_of(process.stdout)
            return await process.wait(), printed
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()  # bounded: `allswell run` kills what does not end within its grace


async def _last_of(stream: asyncio.StreamReader | None) -> str:
    """What is printed last; the rest goes by."""
    kept = ""
    while stream is not None and (raw := await stream.read(_CHUNK)):
        kept = (kept + raw.decode("utf-8", "replace"))[-_KEPT:]
    return kept.strip()


class CommandBuilder:
    """A builder's work: `BuildAgent(channel, CommandBuilder(...))`."""

    def __init__(self, command: WatchedCommand, *, pr_url: str = "", worktrees: Path | None = None) -> None:
        self._command = command
        self._pr_url = pr_url
        self._worktrees = worktrees

    async def __call__(self, job: BuildJob) -> str:
        """Build it; the address of the pull request."""
        folder = None if self._worktrees is None else await worktree_of(self._worktrees, job.component)
        env = {"BUILD_COMPONENT": job.component, "BUILD_AUDIT": job.details}
        code, printed = await self._command.run(f"build {job.component}", env, folder)
        last = printed.rsplit("\n", 1)[-1].strip()
        if code != 0:
            raise RuntimeError(f"exit code {code}: {last}"[:500])
        url = self._pr_url.replace("{component}", job.component) or last
        if not is_url(url):
            raise RuntimeError(f"its last line is not an address of a pull request: {url[:200]}")
        return url


class CommandAuditor:
    """An auditor's work: `AuditAgent(channel, CommandAuditor(...))`."""

    def __init__(self, command: WatchedCommand) -> None:
        self._command = command

    async def __call__(self, task: AuditTask) -> tuple[bool, str]:
        """Look at it; whether it passes, and what was found."""
        env = {"BUILD_COMPONENT": task.component, "BUILD_URL": task.url, "BUILD_BUILDER": task.builder}
        code, printed = await self._command.run(f"audit {task.component}", env)
        return code == 0, "" if code == 0 else printed or f"exit code {code}"


async def worktree_of(folder: Path, component: str) -> Path:
    """The component's own git worktree, on the branch `build/COMPONENT`; one that is there is kept as it is."""
    place = (folder / component).resolve()
    if place.is_dir() and not (place / ".git").is_file():
        return place
    tree = await asyncio.to_thread(make_own_worktree, Path.cwd(), place, f"build/{component}")
    await tree.check_out(tree.errands(allowed_environment()))
    return place

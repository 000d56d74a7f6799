"""The gauge of a fleet: context and session thresholds at work (O6). Read, and say what follows.

The rule stands in `domain.usage`. A source that fails, hangs or talks nonsense is bounded and told of once; it changes
nothing: no news is neither room nor want.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from allswell.domain.duration import show
from allswell.domain.fleet import CompactionSpec, UsageSpec
from allswell.domain.names import Millis
from allswell.domain.usage import Act, Level, Thresholds, Usage, judge, read, tick
from allswell.errors import AllswellError, Refused
from allswell.runtime.agents.function import load_function
from allswell.runtime.calling import run_in_thread
from allswell.runtime.contained import contained
from allswell.runtime.run_tool import run_tool
from allswell.timing.scope import Scope, run

_GRACE = 1_000
Collected = Mapping[str, Any]
"""Check-ins, by agent: the task, its name, and what was said."""


class Gauge:
    """Watches the usage of one fleet."""

    def __init__(
        self,
        usage: UsageSpec,
        compaction: CompactionSpec,
        limits: Thresholds,
        *,
        level: Level,
        now: Callable[[], Awaitable[Millis]],
        act: Callable[[Act, Usage], Awaitable[None]],
        tell: Callable[[str], None],
    ) -> None:
        self.level = level
        self._usage = usage
        self._compaction = compaction
        self._limits = limits
        self._now = now
        self._act = act
        self._tell = tell
        self._complaint = ""
        self._reported: asyncio.Queue[Usage] = asyncio.Queue()
        self._contexts: dict[str, float] = {}
        """What is left of each context that was told of: whose it is, or nobody's, for the source's."""

    def report(self, agent: str, usage: Usage | None) -> None:
        """What an agent says of itself, and None once it has ended, and its context with it; on the loop."""
        if usage is not None:
            self._reported.put_nowait(self._least(agent, usage))
        elif self._contexts.pop(agent, None) is not None:
            self._reported.put_nowait(Usage(min(self._contexts.values(), default=100.0)))

    def _least(self, agent: str, usage: Usage) -> Usage:
        """A reading, with the smallest of all contexts: who has room says nothing of who has none."""
        if usage.context is None:
            return usage
        self._contexts[agent] = usage.context
        return msgspec.structs.replace(usage, context=min(self._contexts.values()))

    async def work(self) -> None:
        """Read and act, for ever."""
        loop = asyncio.get_running_loop()
        has_source = bool(self._usage.command or self._usage.function)
        due = loop.time()
        while True:
            if has_source and loop.time() >= due:
                due = loop.time() + self._usage.every / 1_000
                usage = await self._read()
                if usage is not None:
                    await self._take(self._least("", usage))
            await self._take(None)
            wait = min(due - loop.time(), 1.0) if has_source else 1.0
            try:
                async with asyncio.timeout(max(wait, 0.01)):
                    reported = await self._reported.get()
            except TimeoutError:
                continue
            await self._take(reported)

    async def _take(self, usage: Usage | None) -> None:
        """Do what follows from a reading, or from time alone; a store that is away is asked again with the next one."""
        if usage is None and not self.level.paused:
            return
        try:
            now = await self._now()
            self.level, acts = tick(self.level, now) if usage is None else judge(self.level, usage, self._limits, now)
            for act in acts:
                await self._act(act, usage or Usage())
        except AllswellError as error:
            self._complain(f"what follows from the usage could not be told: {error}")

    async def _read(self) -> Usage | None:
        try:
            usage = read(await self._ask())
        except TimeoutError:  # first: a tool's timeout is an error of ours, too, and tells how long it took
            self._complain(f"the usage source did not answer within {show(self._usage.timeout)}")
            return None
        except AllswellError as error:
            self._complain(str(error))
            return None
        except Exception as error:  # noqa: BLE001 - a source is somebody else's code; it may raise what it likes
            self._complain(f"the usage source failed: {error!r}")
            return None
        if self._complaint:
            self._tell("the usage source answers again")
        self._complaint = ""
        return usage

    async def _ask(self) -> object:
        if self._usage.command:
            return _decoded(await _printed(self._usage.command, self._usage.timeout))
        return await _called(self._usage.function, self._usage.timeout)

    def _complain(self, says: str) -> None:
        if says != self._complaint:
            self._complaint = says
            self._tell(says)

    async def compact(self, collected: Sequence[Collected]) -> tuple[str, str]:
        """Call the compaction hook with the check-ins that came: how that went, and in which words."""
        spec = self._compaction
        if not spec.command and not spec.function:
            return "none", "no [compaction] is set up; the check-ins are in the journal"
        try:
            if spec.command:
                said = await _printed(spec.command, spec.timeout, msgspec.json.encode({"checkpoints": list(collected)}))
                return "done", said.decode("utf-8", "replace")[-1_000:]
            return "done", str(await _called(spec.function, spec.timeout, list(collected)))[:1_000]
        except TimeoutError:
            return "timeout", f"it did not end within {show(spec.timeout)}"
        except AllswellError as error:
            return "failed", str(error)
        except Exception as error:  # noqa: BLE001 - the hook is somebody else's code
            return "failed", repr(error)[:1_000]


async def _printed(argv: Sequence[str], timeout: int, given: bytes | None = None) -> bytes:
    """What a command prints; its whole tree ends with the timeout."""
    result = await run_tool(list(argv), timeout, input=given)
    if not result.ok:
        text = f"{argv[0]} ended with {result.exit_code}: {result.stderr[-300:].strip()}"
        raise Refused("bad_usage", text, where="usage")
    return result.stdout.encode()


async def _called(path: str, timeout: int, *given: object) -> object:
    """What a function gives; a sync one is called in a thread, which is given up if it hangs."""
    function = contained(load_function(path))
    scope = Scope(timeout, kind="tool", name=path, grace_ms=_GRACE)
    if inspect.iscoroutinefunction(function):
        return await run(scope, function, *given)
    return await run_in_thread(scope, lambda: function(*given))


def _decoded(text: bytes) -> object:
    try:
        return msgspec.json.decode(text.strip() or b"null")
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused("bad_usage", f"the usage source printed no JSON: {error}", where="usage") from None

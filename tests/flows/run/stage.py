"""A flow on virtual time: the memory store, functions of this file as steps, and a disk that can fail where it is told.

What blocks is done at once, in the loop: in virtual time a thread would end when it likes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

import allswell
from allswell.domain.ids import RunId
from allswell.domain.receipts.step import FlowSummary
from allswell.flows.run.context import RunContext
from allswell.flows.run.folder import RunBase
from allswell.flows.run.plan import given_inputs
from allswell.flows.run.resume import free_dead, go_on
from allswell.flows.run.runner import FlowStart, Runner, begin, make_site
from allswell.flows.run.state import look as look_at
from allswell.flows.schema import load_flow
from allswell.flows.spec import Flow
from allswell.runtime.deadlines import use_limits
from allswell.runtime.workspace.files import Files
from allswell.settings import Settings, look
from tests.engine.stage import Stage, play

T = TypeVar("T")
HERE = "tests.flows.run.stage"


class CutHere(BaseException):
    """The process ends here, as if it had been killed."""


class Disk(Files):
    """Remembers what is written, in order, and can end the process at any of it."""

    def __init__(self, cut_at: int | None = None) -> None:
        self.written: list[tuple[str, object]] = []
        self.cut_at = cut_at

    def replace_all(self, folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
        """One after the other, so that each can be cut at."""
        for name, content in files:
            self._replace(folder / name, content)

    def _replace(self, path: Path, content: bytes) -> None:
        """Write as always, unless it is the write to be cut at: then half of a draft is all that is there."""
        if self._is_cut():
            path.with_name(f".{path.name}.cut.tmp").write_bytes(content[: len(content) // 2])
            raise CutHere
        super().replace_all(path.parent, [(path.name, content)])
        self.written.append((path.name, json.loads(content) if path.suffix == ".json" else content))

    def append(self, path: Path, *lines: bytes) -> None:
        """Write as always, unless it is the write to be cut at: then the line is torn."""
        if self._is_cut():
            path.touch(0o600)
            with path.open("ab") as torn:
                torn.write(lines[0][: len(lines[0]) // 2])
            raise CutHere
        super().append(path, *lines)
        self.written += [(path.name, json.loads(line)) for line in lines]

    def _is_cut(self) -> bool:
        return self.cut_at is not None and len(self.written) >= self.cut_at


async def at_once(work: Callable[[], T]) -> T:
    """Do what blocks here and now."""
    return work()


class Play:
    """One flow and what there is around it."""

    def __init__(self, stage: Stage, folder: Path, text: str, disk: Files | None = None) -> None:
        self.stage = stage
        self.folder = folder
        self.text = text
        self.disk = disk or Disk()
        self.settings: Settings = look(folder, environ={})
        self.flow: Flow = load_flow(text, "f.yaml", self.settings)[0]
        self.base: RunBase
        self.run: RunId
        self.site: RunContext

    async def start(self, inputs: dict[str, str] | None = None) -> Runner:
        """A new run."""
        watch = self.stage.watch
        home = self.folder / ".allswell"
        given = given_inputs(self.flow, inputs or {})
        beginning = FlowStart(self.flow, self.text.encode(), "", home, self.folder, given)
        self.run = watch.new_run()
        policy = self.settings.policy_for("")
        self.base = await begin(watch, beginning, self.run, policy, self.stage.clock, self.disk)
        return await self._runner()

    async def again(self, disk: Files | None = None) -> Runner:
        """The same run, gone on with."""
        self.base.files = disk or Disk()
        await free_dead(self.stage.watch, await look_at(self.stage.watch, self.base))
        policy = self.settings.policy_for("")
        self.base, self.run = await go_on(self.stage.watch, self.base, self.flow, self.text.encode(), policy)
        return await self._runner()

    async def _runner(self) -> Runner:
        self.site = await make_site(self.stage.watch, self.base, self.run, self.stage.clock)
        self.site.aside = at_once
        return Runner(self.site, self.run)


def flow(folder: Path, text: str, scene: Callable[[Play], Coroutine[Any, Any, T]], disk: Files | None = None) -> T:
    """Play a scene with a flow on virtual time."""
    seen.clear()

    async def main(stage: Stage) -> T:
        played = Play(stage, folder, text, disk)
        usual = played.settings.limits()
        use_limits(allswell_limits(played.flow, usual.hard_limits, usual.grace))
        try:
            return await scene(played)
        finally:
            use_limits(None)

    return play(main)


def allswell_limits(flow_: Flow, hard: Any, grace: int) -> Any:  # noqa: ANN401 - handed on as it is
    from allswell.domain.scopes import ScopeLimits

    return ScopeLimits(flow_.timeouts, hard, grace)


async def run(played: Play, inputs: dict[str, str] | None = None) -> FlowSummary:
    """Run a flow from the beginning to its end."""
    return await (await played.start(inputs)).run()


# --- steps ------------------------------------------------------------------------------------------------------------

seen: list[object] = []
"""What the steps were called with, in order."""


async def note(**given: object) -> object:
    """Take note, and give back what was given."""
    seen.append(given)
    return given


async def sleep(seconds: float, **given: object) -> object:
    """Take so long."""
    seen.append({"seconds": seconds, **given})
    await asyncio.sleep(seconds)
    return seconds


async def call_model(seconds: float) -> None:
    """Call a model that takes so long, within its own limit."""
    seen.append("call")
    async with allswell.llm_call("draft"):
        await asyncio.sleep(seconds)


async def fail_then_hang() -> None:
    """Fail the first time, take for ever every other time."""
    seen.append("fail_then_hang")
    if seen.count("fail_then_hang") == 1:
        raise ConnectionError("the line is dead")
    await asyncio.sleep(1e6)


async def hang_then_fail() -> None:
    """Take for ever the first time, fail every other time."""
    seen.append("hang_then_fail")
    if seen.count("hang_then_fail") == 1:
        await asyncio.sleep(1e6)
    raise ConnectionError("the line is dead")


async def use_tool(seconds: float) -> None:
    """Use a tool that takes so long, within its own limit."""
    async with allswell.tool("grep"):
        await asyncio.sleep(seconds)


async def fail(times: int, error: str = "it is broken") -> str:
    """Fail so often, then go well."""
    seen.append(error)
    if len([one for one in seen if one == error]) <= times:
        raise ConnectionError(error)
    return "at last"


async def write(path: str, text: str, seconds: float = 0) -> str:
    """Write a file, and perhaps take a while before it is done."""
    seen.append(path)
    Path(path).write_text(text)  # noqa: ASYNC240 - nothing else is going on
    await asyncio.sleep(seconds)
    return text


async def unspeakable() -> object:
    """Return what JSON cannot say."""
    return object()


async def not_a_number() -> object:
    """Return what JSON would make nothing of."""
    return {"score": float("nan")}


async def leave(by: str) -> None:
    """Leave without returning or raising an error of one's own."""
    seen.append(by)
    if by == "cancel":
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting
    raise KeyboardInterrupt if by == "interrupt" else SystemExit(int(by))


async def stubborn() -> None:
    """Not stop when told to."""
    for _ in range(100):
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            seen.append("told")


async def slow_once(path: str) -> str:
    """Take for ever the first time, and no time the second."""
    seen.append("slow_once")
    if not Path(path).exists():  # noqa: ASYNC240 - nothing else is going on
        Path(path).write_text("half")  # noqa: ASYNC240
        await asyncio.sleep(1e6)
    return "at last"


async def told(go_on: str) -> None:
    """Take note of what came before, and take for ever until a file is there."""
    seen.append(allswell.handover())
    if not Path(go_on).exists():  # noqa: ASYNC240 - nothing else is going on
        await asyncio.sleep(1e6)


class Hanging(httpx.AsyncBaseTransport):
    """A server that does not answer so many requests."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, once it has not answered often enough."""
        seen.append(request.url.path)
        if len([one for one in seen if one == request.url.path]) <= self.times:
            await asyncio.sleep(1e6)
        return httpx.Response(200, json={"usage": {"input_tokens": 3, "output_tokens": 4}})


async def ask_model(times: int) -> int:
    """Ask a model by HTTP, whose server hangs so often."""
    transport = allswell.guard("model", attempt_timeout="10s", retries=2, breaker=False).transport(Hanging(times))
    async with httpx.AsyncClient(transport=transport, headers={"x-api-key": "hush-hush"}) as client:
        answer = await client.post("https://u:hush-hush@model.test/v1/ask?key=hush-hush", json={"prompt": "hello"})
        return answer.status_code


async def guarded_call(times: int) -> str:
    """Call something under a guard, which hangs so often."""

    @allswell.guard("model", attempt_timeout="10s", retries=2, breaker=False)
    async def call() -> str:
        seen.append("guarded")
        if seen.count("guarded") <= times:
            await asyncio.sleep(1e6)
        return "at last"

    return await call()


async def go_on_after_a_timeout() -> str:
    """Call a model that does not answer, and do without."""
    for _ in range(2):
        try:
            async with allswell.llm_call("draft", timeout="10s"):
                await asyncio.sleep(1e6)
        except allswell.ScopeTimeout:
            seen.append("late")
    return "without"


async def end_slowly() -> None:
    """Use a tool whose limit comes just before the step's, and which takes its time to end, whoever cancels it."""
    loop = asyncio.get_running_loop()
    async with allswell.tool("stubborn", timeout="9s"):
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError as cancel:
            end = loop.time() + 2
            while loop.time() < end:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(end - loop.time())
            raise asyncio.CancelledError("the tool was ended") from cancel

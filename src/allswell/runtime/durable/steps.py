"""The steps of a flow that is running: what was recorded before is given back, what is done now is recorded.

The flow's watch lives in one event loop. Steps come from there, from other loops, and from threads. A thread that has
no loop records its step itself where the store has a short way; all others are carried to the watch's loop. Each waits
until it is durable. A sync step that would block that very loop is refused: nobody could ever record it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

from allswell.domain.names import TaskId
from allswell.engine.flow import FlowHold
from allswell.errors import Refused, Unavailable
from allswell.runtime.durable.step import DurableStep
from allswell.timing.running_loop import running_loop

log = logging.getLogger("allswell.flow")


class Steps:
    """All steps of one flow, for as long as its block is open."""

    def __init__(self, name: str, hold: FlowHold, known: dict[TaskId, str]) -> None:
        self.name = name
        self.hold = hold
        self.found = 0
        """Steps that were not run, because their results were there."""
        self._known = known
        self._calls: dict[tuple[str, str], int] = {}
        """How often each was called."""
        self._functions: dict[str, str] = {}
        """Which function each name stands for."""
        self._counting = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._over = False

    def close(self, *, finished: bool) -> None:
        """Record nothing more; in a flow that came to its end, say how many results nobody asked for."""
        self._over = True
        if finished and self._known and self.hold.lease is not None:
            log.warning(
                "flow %r (%s): %d recorded results were not asked for again; if a step ran twice, what it is called "
                "with differs from run to run, and key= should say what tells its calls apart",
                self.name,
                self.hold.run,
                len(self._known),
            )

    def _place(self, step: DurableStep, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, TaskId]:
        """What tells this call from the others, and the task that stands for it."""
        if self._over:
            text = f"step {step.name!r} was called after its flow {self.name!r} had ended"
            raise Refused("flow_over", text, where=step.name)
        first = self._functions.setdefault(step.name, step.function)
        if first != step.function:
            text = f"two functions are called step {step.name!r} here, {first} and {step.function}"
            raise Refused(
                "two_functions", f"{text}, and each would get the other's results; rename one", where=step.name
            )
        key = step.key(args, kwargs)
        place = (step.name, key)
        with self._counting:  # threads may call at once
            number = self._calls[place] = self._calls.get(place, 0) + 1
        return key, step.id(self.hold.run, key, number)

    def _begin(self, step: DurableStep, id_: TaskId) -> str | None:
        """The result that is there already; without one, the step can be run."""
        if self._known:
            text = self._known.pop(id_, None)
            if text is not None:
                self.found += 1
                return text
        step.check()
        self.hold.check(step.name)  # better before it has done anything than after
        return None

    # --- async --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        step: DurableStep,
        work: Callable[[], Awaitable[object]],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> Any:  # noqa: ANN401 - whatever the step returns
        """The step's result: what was recorded, or what it returns now."""
        key, id_ = self._place(step, args, kwargs)
        known = self._begin(step, id_)
        if known is not None:
            return step.read(known)
        loop = asyncio.get_running_loop()
        began = loop.time()
        text = step.write(await work())
        result = step.read(text)
        elapsed = int((loop.time() - began) * 1_000)
        said = self.hold.said(id_, step.name, step.payload(key), text, elapsed)
        if loop is self._loop:
            await self.hold.record(said)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.hold.record(said), self._loop))
        return result

    # --- sync ---------------------------------------------------------------------------------------------------------

    def call_sync(
        self, step: DurableStep, work: Callable[[], object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Any:  # noqa: ANN401 - whatever the step returns
        """As `call`, for sync functions called from sync code."""
        if running_loop() is self._loop:
            why = f"step {step.name!r} is sync and would block the event loop that its flow runs in"
            hint = "make it async, or call it as await asyncio.to_thread(step, …)"
            raise Refused("blocks_loop", f"{why}; {hint}", where=step.name)
        key, id_ = self._place(step, args, kwargs)
        known = self._begin(step, id_)
        if known is not None:
            return step.read(known)
        began = time.monotonic()
        text = step.write(work())
        result = step.read(text)
        elapsed = int((time.monotonic() - began) * 1_000)
        said = self.hold.said(id_, step.name, step.payload(key), text, elapsed)
        if not self.hold.record_here(said):
            try:
                asyncio.run_coroutine_threadsafe(self.hold.record(said), self._loop).result()
            except CancelledError:
                raise Unavailable("the watch was closed before the step was recorded") from None
        return result

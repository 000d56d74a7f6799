"""Screens as they change: the block `screen` of a page that is open, sent again as Server-Sent Events.

Each message is the whole screen as it is now, so a connection that was lost needs no place to go on from: the first
message after it tells everything. The journal is read once for all (`interfaces/http/events.py`); a screen that many
have open is drawn once for all who have the same rights, and one that takes long to draw is drawn less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from allswell.domain.rules.event import Entry, Position
from allswell.domain.task.model import State
from allswell.domain.task.resubmit import way_back
from allswell.engine.lookup import find_question, find_task
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.interfaces.http.request_context import RequestContext

LEAST = 0.4
"""Seconds between two drawings of one screen, at least."""
MOST = 2.0
"""And at most, however long one takes."""
PULSE = 4.0
"""Seconds after which a page is sent a sign of life, however rarely its screen is drawn: at 35 it gives us up."""
_SHARE = 5
_AGAIN = 1.0
_KEPT = 200
BEAT = b"event: beat\ndata: still here\n\n"

Draw = Callable[[], Awaitable[str]]


class ScreenCache:
    """The last drawing of each screen, for all who look at it at the same time."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Position, float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, name: str, at: Position, fresh: float, draw: Draw) -> tuple[str, float]:
        """The drawing of a screen, as it is since this place in the journal, and how many seconds it took.

        One that is younger than `fresh` seconds and has seen the same events is shared.
        """
        if len(self._locks) > _KEPT:
            self._last.clear()
            self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        async with self._locks.setdefault(name, asyncio.Lock()):
            begun = time.monotonic()
            kept = self._last.get(name)
            if kept is not None and kept[0] >= at and begun - kept[1] < fresh:
                return kept[2], 0.0
            drawn = await draw()
            self._last[name] = (at, begun, drawn)
            return drawn, time.monotonic() - begun


def message(drawn: str) -> bytes:
    """A drawing as one event."""
    return b"".join(b"data: %s\n" % line.encode() for line in drawn.split("\n")) + b"\n"


async def frames(
    call: RequestContext,
    drawn: Callable[[Position], Awaitable[tuple[str, float]]],
    fits: Callable[[Entry], bool],
    beat: float,
    holds: Callable[[], Awaitable[object]],
) -> AsyncIterator[bytes]:
    """The screen now, and whenever it may have changed, until the server stops or the session is over."""
    closing: asyncio.Future[Any] = asyncio.ensure_future(call.house.closing.wait())
    journal, last = call.house.journal, ""
    try:
        while not closing.done():
            try:
                at = await journal.end()
                text, took = await drawn(at)
                yield message(text) if text != last else BEAT
                last = text
                await _pause(closing, max(LEAST, min(took * _SHARE, MOST)))
                waited = 0.0
                while (
                    not await _news(call, at, fits, min(PULSE, beat - waited), closing)
                    and (waited := waited + PULSE) < beat
                ):
                    await holds()
                    yield BEAT
                await holds()
            except Unavailable:  # the reader hears nothing, and gets the screen when the store is back
                await _pause(closing, _AGAIN)
            except Refused:
                return  # it is told why when it comes again
    finally:
        closing.cancel()


async def _pause(closing: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait([closing], timeout=seconds)


async def _news(
    call: RequestContext, after: Position, fits: Callable[[Entry], bool], beat: float, closing: asyncio.Future[Any]
) -> bool:
    """Until an event comes that fits, the beat is over, or the server stops; whether it is not just the beat."""

    async def come() -> None:
        async for entries in call.house.journal.follow(after, call.views, beat):
            if any(fits(entry) for entry in entries):
                return

    coming: asyncio.Future[Any] = asyncio.ensure_future(come())
    try:
        await asyncio.wait([coming, closing], timeout=beat, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            await coming
        return coming.done() or closing.done()
    finally:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, AllswellError):
            await coming


# What can be done from the page: each a form that is posted, and the call of the watch that it is made into.
#
# Forms are a session's own (`csrf`), and say by a field `back` where the page goes on for a browser without scripts.
# What is wrong with them is told as everywhere: by the rule that refuses.

Form = Mapping[str, str]


@dataclass(frozen=True)
class Action:
    """One thing that can be done; `does` answers with a sentence about what was done."""

    path: str
    does: Callable[[RequestContext, Form], Awaitable[str]]


async def answer(call: RequestContext, form: Form) -> str:
    """Decide a question: the button that was pressed is the option, and what it takes stands beside it."""
    id_ = await find_question(call.views, call.named("question"))
    option = form.get("option", "")
    text = form.get(f"text-{option}", "").strip()
    parts = [{"name": line.strip()} for line in form.get(f"parts-{option}", "").splitlines() if line.strip()]
    timeout, cost = form.get(f"time-{option}", "").strip(), form.get(f"cost-{option}", "").strip()
    await call.watch.answer(
        id_, option, text, subtasks=parts, timeout=timeout or None, max_cost_usd=_dollars(cost), command=call.command
    )
    closed = await call.watch.question(id_)
    choice = option if closed is None else closed.choice or option
    label = choice if closed is None else next((one.label for one in closed.options if one.key == choice), choice)
    row = None if closed is None or closed.task is None else await call.watch.task(closed.task)
    back = None if row is None or row.task.state != State.SKIPPED else way_back(row.task)
    return f"Answered: {label}." + (f" To take it back: “Retry” on its screen, or {back}." if back else "")


def _dollars(given: str) -> float | None:
    if not given:
        return None
    try:
        return float(given.removeprefix("$"))
    except ValueError:
        text = f"{given[:40]!r} is not a sum of money; write dollars, such as 2.50"
        raise Refused("bad_cost", text, where="cost") from None


async def dismiss_question(call: RequestContext, _: Form) -> str:
    """Say that a question was seen."""
    await call.watch.dismiss(await find_question(call.views, call.named("question")), "")
    return "Dismissed: it stays open, and is no longer listed as needing you."


async def dismiss_task(call: RequestContext, _: Form) -> str:
    """Say that the end of a task was seen."""
    await call.watch.dismiss(await find_task(call.views, call.named("task")), "")
    return "Dismissed."


async def retry_task(call: RequestContext, form: Form) -> str:
    """Hand an ended task over again."""
    id_ = await find_task(call.views, call.named("task"))
    made = await call.watch.retry(id_, dependents="with_dependents" in form)
    return f"Submitted again, as {', '.join(map(str, made.values()))}."


async def cancel_task(call: RequestContext, form: Form) -> str:
    """Call a task off."""
    id_ = await find_task(call.views, call.named("task"))
    await call.watch.cancel(id_, form.get("reason", "").strip() or "cancelled", command=call.command)
    return "Cancelled: the agent that holds it is refused from now on."


DEEDS = (
    Action("/questions/{question}/answer", answer),
    Action("/questions/{question}/dismiss", dismiss_question),
    Action("/tasks/{task}/dismiss", dismiss_task),
    Action("/tasks/{task}/retry", retry_task),
    Action("/tasks/{task}/cancel", cancel_task),
)

"""The follower of a sink: takes in what the sink hears of, and delivers it, target by target.

    on duty    one process at a time follows for a sink; if it dies, another goes on after a few seconds
    take in    events become deliveries in the store, together with the move of the cursor: both or neither
    deliver    each target's line by itself: the first of it is tried, kept or given up, as domain/notify/delivery.py
    says

Nobody's work waits for any of this. A process that is killed at any point loses nothing: what was not taken in is read
again, what was not yet known to be delivered is delivered again, under the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from allswell.domain.ids import Millis
from allswell.domain.notify.delivery import (
    PACE,
    Delivery,
    DeliveryFailure,
    DeliveryFilter,
    LeaderMark,
    delivery_id,
    due,
    failed,
    follower_name,
    is_down,
    is_free,
    is_ours,
    made_words,
    memory_key,
    put_off,
)
from allswell.domain.notify.spec import SinkSpec
from allswell.domain.rules.event import Entry, Event, Position
from allswell.engine.status.journal import journal_end
from allswell.engine.wakeup import Signal, either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Unavailable
from allswell.interfaces.notifications.sink import NotDelivered, Sink
from allswell.interfaces.notifications.webhook import HttpPoster, WebhookSink
from allswell.runtime.process.identity import is_dead, this_process
from allswell.settings.settings import Settings
from allswell.timing.clock import SystemClock
from allswell.timing.loops import Nursery

# Having a duty: its word in the store is taken, renewed and given back (domain/notify/delivery.py).


class LeaderLease:
    """One process's hold on one duty."""

    def __init__(self, watch: Watch, key: str, marker: str) -> None:
        self._watch = watch
        self._key = key
        self._marker = marker

    async def take(self) -> bool:
        """Take the duty, or keep it; False if somebody else has it."""
        kept = await self._watch.recall(self._key)
        now = await self._watch.now()
        duty = _read(kept)
        dead = duty is not None and is_dead(duty.marker)
        if not is_ours(duty, self._marker) and not is_free(duty, now, dead=dead):
            return False
        return await self._say(kept, now)

    async def let_go(self) -> None:
        """Give it back, if it is still ours: the next one need not wait for the word to grow old."""
        kept = await self._watch.recall(self._key)
        if is_ours(_read(kept), self._marker):
            await self._say(kept, await self._watch.now(), let_go=True)

    async def _say(self, before: str | None, now: Millis, *, let_go: bool = False) -> bool:
        said = msgspec.json.encode(LeaderMark(self._marker, now, PACE, let_go)).decode()
        return said == before or await self._watch.swap(self._key, before, said)


def _read(kept: str | None) -> LeaderMark | None:
    try:
        return None if kept is None else msgspec.json.decode(kept, type=LeaderMark)
    except msgspec.DecodeError:
        return None  # of another version: whoever wrote it is not asked


T = TypeVar("T")
CHUNK = 500
_ALL = 1_000_000
_LOOK = 2.0
"""Seconds after which lines are looked at again, whatever is told: a human may have asked for another try."""
_NOTE = 5.0
"""Seconds after which a cursor is written down that has passed nothing of interest."""
_GATHER = 1.0
"""Seconds in which more is gathered, after a message to somebody who is told several things at once: a storm of alerts
is a few messages."""
log = logging.getLogger(__name__)


class _LeadershipLost(AllswellError):
    """Somebody else follows for this sink now."""


class Follower:
    """What one process does for one sink; `marker` tells processes apart."""

    def __init__(self, watch: Watch, sink: Sink, marker: str) -> None:
        self._watch = watch
        self._sink = sink
        sink.attach(watch)
        self._key = follower_name(sink.name)
        self._duty = LeaderLease(watch, self._key, marker)
        self._arrived = Signal()

    async def run(self) -> None:
        """Follow until cancelled, whenever nobody else does."""
        pause = self._watch.pace.retry_first
        try:
            while True:
                try:
                    if await self._duty.take():
                        pause = self._watch.pace.retry_first
                        await self._follow()
                except _LeadershipLost:
                    pass
                except Unavailable as error:
                    log.info("sink %s waits for the store: %s", self._sink.name, error)
                except Exception as error:  # noqa: BLE001 - a sink that fails is nobody else's trouble
                    log.warning("sink %s failed and goes on in %.2f s: %r", self._sink.name, pause, error)
                await asyncio.sleep(pause * (0.75 + self._watch.draw() / 2))
                pause = min(pause * 2, PACE / 1_000)
        finally:
            with contextlib.suppress(AllswellError):
                await self._duty.let_go()

    async def _follow(self) -> None:
        await self._give_up_strangers()
        async with Nursery() as nursery:
            nursery.start(self._stay(), name=f"{self._key}: on duty")
            nursery.start(self._take_in(), name=f"{self._key}: take in")
            for target in self._sink.targets:
                nursery.start(self._deliver(target), name=f"{self._key}: deliver to {target}")

    async def _give_up_strangers(self) -> None:
        """What waits for a target that is not set up any more would wait for ever: it is given up, and listed."""
        which = DeliveryFilter(self._sink.name, given_up=False, limit=_ALL)
        waiting = await self._insist(partial(self._watch.outbox.view_deliveries, which))
        gone = DeliveryFailure("its target is no longer set up", final=True)
        now = await self._insist(self._watch.now)
        strangers = [
            failed(one, gone, self._sink.patience, now) for one in waiting if one.target not in self._sink.targets
        ]
        if strangers:
            await self._insist(partial(self._watch.outbox.revise, strangers))
        for one in strangers:
            await self._notice("delivery_given_up", delivery=one.id, reason=one.reason)

    async def _stay(self) -> None:
        """Renew the duty; whoever cannot for too long has lost it."""
        missed = 0
        while True:
            await asyncio.sleep(PACE / 1_000)
            try:
                if not await self._duty.take():
                    raise _LeadershipLost
                missed = 0
            except Unavailable:
                missed += 1
                if missed >= 2:
                    raise _LeadershipLost from None

    # --- taking in ----------------------------------------------------------------------------------------------------

    async def _take_in(self) -> None:
        kept = seen = await self._begin()
        loop = asyncio.get_running_loop()
        noted = loop.time()
        while True:
            news = self._watch.on_event()
            entries = await self._insist(partial(self._watch.views.journal, seen, CHUNK))
            made = [delivery for entry in entries for delivery in await self._insist(partial(self._made_of, entry))]
            if entries:
                seen = entries[-1].position
            if made or (seen != kept and loop.time() - noted >= _NOTE):
                if not await self._enlisted(kept, seen, made):
                    await asyncio.sleep(self._watch.pace.retry_first)
                    kept = seen = await self._begin()
                    continue
                kept, noted = seen, loop.time()
                self._arrived.fire()
            if len(entries) < CHUNK:
                await either(news, min(self._poll(), _NOTE))

    async def _enlisted(self, kept: Position, seen: Position, made: Sequence[Delivery]) -> bool:
        """Keep what was taken in; False if that is not known, or not so: the cursor in the store tells."""
        try:
            return await self._watch.outbox.enlist(self._key, kept, seen, made, self._sink.memory)
        except Unavailable:
            return False

    async def _begin(self) -> Position:
        """Where to go on, with what the sink knew there."""
        begun = await self._insist(self.beginning)
        memory = await self._insist(partial(self._watch.recall, memory_key(self._key)))
        self._sink.memory = memory or ""
        return begun

    async def beginning(self) -> Position:
        """Where to begin: where the last one was, or where a new sink is to."""
        views = self._watch.views
        kept = await views.cursor(self._key)
        begun = f"{self._key}.begun"  # where there was no event yet, the cursor alone does not tell
        if kept != Position() or self._sink.begins == "start" or await self._watch.recall(begun) is not None:
            return kept
        await self._watch.outbox.enlist(self._key, Position(), await journal_end(views), ())
        await self._watch.swap(begun, None, "yes")
        return await views.cursor(self._key)

    async def _made_of(self, entry: Entry) -> list[Delivery]:
        if entry.event.data.get("sink") == self._sink.name:
            return []  # what is told about a sink itself would never come to an end
        found = []
        for part, message in enumerate(await self._sink.messages(entry, self._watch.views)):
            place = (entry.position.xid, entry.position.id, part)
            id_ = delivery_id(self._sink.name, entry.at, place)
            found.append(Delivery(self._sink.name, id_, message.target, place, entry.at, message.body))
        return found

    def _poll(self) -> float:
        return self._watch.pace.follow_poll * (0.75 + self._watch.draw() / 2)

    # --- delivering ---------------------------------------------------------------------------------------------------

    async def _deliver(self, target: str) -> None:
        which = DeliveryFilter(self._sink.name, target, given_up=False, limit=max(self._sink.together, 1))
        while True:
            arrived = self._arrived.listen()
            line = await self._insist(partial(self._watch.outbox.view_deliveries, which))
            now = await self._insist(self._watch.now)
            batch = due(line, now, self._sink.together)
            free_at = Millis(self._sink.free_at(target, now))
            if not batch:
                await either(arrived, _until(line, now))
            elif free_at <= now:
                await self._try(batch)
                if self._sink.together > 1:
                    await asyncio.sleep(_GATHER)
            else:
                await self._insist(partial(self._watch.outbox.revise, [put_off(one, free_at) for one in batch]))

    async def _try(self, batch: Sequence[Delivery]) -> None:
        failure = await self._sent(batch)
        if failure is None:
            for event in self._sink.made(batch):  # first, or a process that dies in between never says so
                await self._insist(partial(self._watch.notice, event))
            await self._insist(partial(self._watch.outbox.revise, [], batch))
            for one in batch:
                if one.tries:
                    told = {"delivery": one.id, "tries": one.tries, "says": made_words(one.tries)}
                    await self._notice("delivery_made", **told)
            return
        patience = self._sink.patience
        after = failed(batch[0], failure, patience, await self._insist(self._watch.now))
        await self._insist(partial(self._watch.outbox.revise, [after]))
        if after.given_up:
            await self._notice("delivery_given_up", delivery=after.id, reason=after.reason)
        elif is_down(after, patience):
            await self._notice("sink_down", target=after.target, reason=after.reason)

    async def _sent(self, batch: Sequence[Delivery]) -> DeliveryFailure | None:
        """What went wrong, or None if it was delivered."""
        try:
            async with asyncio.timeout(self._sink.limit):
                await self._sink.send(batch)
        except NotDelivered as error:
            return error.failure
        except TimeoutError:
            return DeliveryFailure(f"no answer within {self._sink.limit:g} s")
        except Exception as error:
            log.exception("sink %s could not send", self._sink.name)
            return DeliveryFailure(f"{type(error).__name__}: {error}")
        return None

    async def _insist(self, what: Callable[[], Awaitable[T]]) -> T:
        """Ask the store until it answers: what was sent must be written down before anything is sent again."""
        pause = self._watch.pace.retry_first
        while True:
            try:
                return await what()
            except Unavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._watch.pace.retry_most)

    async def _notice(self, kind: str, **data: object) -> None:
        """Tell the journal; if the store is away it does without."""
        with contextlib.suppress(Unavailable):
            await self._watch.notice(Event(kind, data={"sink": self._sink.name, **data}))


def _until(line: Sequence[Delivery], now: int) -> float:
    """Seconds until something may be due; a human may change that at any time."""
    return min([_LOOK, *(max(one.next_at - now, 1) / 1_000 for one in line[:1])])


# Following for all sinks at once, for as long as a process lives.


async def begin_sinks(watch: Watch, sinks: Sequence[Sink]) -> None:
    """Note for these sinks that they begin now, unless they have begun: what is told next is told to them."""
    for sink in sinks:
        await Follower(watch, sink, "").beginning()


async def run_sinks(watch: Watch, sinks: Sequence[Sink]) -> None:
    """Follow for these sinks until cancelled; for each, whenever no other process does."""
    marker = f"{secrets.token_hex(4)} {this_process()}"
    try:
        async with Nursery() as nursery:
            for sink in sinks:
                nursery.start(Follower(watch, sink, marker).run(), name=f"sink {sink.name}")
    finally:
        for sink in sinks:
            await sink.close()


# Making the sinks that are written down, and what posts webhook requests, with the secrets of the environment.


def local_time(at: int) -> datetime:
    """A moment as the clock on this machine's wall shows it."""
    return datetime.fromtimestamp(at / 1_000).astimezone()


def make_sink(
    spec: SinkSpec,
    environ: Mapping[str, str] | None = None,
    *,
    local: Callable[[int], datetime] = local_time,
    origin: str | None = None,
) -> Sink:
    """The sink that is written down so; `Refused` if it cannot be made.

    `origin` is where answer links lead (`Settings.public_origin`); without it no alert has any.
    """
    environ = os.environ if environ is None else environ
    if spec.kind == "alerts":
        from allswell.interfaces.notifications.alerts import AlertsSink

        return AlertsSink(spec, environ, local, origin)
    if spec.kind == "chat":
        from allswell.interfaces.notifications.alerts import ChatSink

        return ChatSink(spec)
    wall = SystemClock().wall
    if spec.kind == "notion":
        from allswell.interfaces.notifications.notion import NotionSink

        return NotionSink(spec, environ, wall)

    return WebhookSink(spec, environ, wall)


def posting_of(settings: Settings, wall: Callable[[], int]) -> HttpPoster:
    """How webhook requests are posted here."""
    return HttpPoster(wall, settings.webhook_secrets, os.environ, private=settings.private_webhooks)

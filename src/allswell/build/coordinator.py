"""A build's coordinator: hears what is said, lets the rules decide, does it on the watch, and says what is new.

Three things go round beside each other. The **ear** takes in messages. The **turn** works them off, closes windows of
claims, and does what is due; everything it decides is committed before the next message is looked at, together with the
lines that have to be said because of it. The **mouth** says those lines, and takes them off when they have arrived. So
a coordinator that is killed at any moment goes on from the store: what was decided is there, what was not said is still
owed, and of what was perhaps said the replay tells whether it was.

Of a build there is one coordinator: it holds the task that stands for the build.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from allswell.build.channel import Channel, ChannelClosed
from allswell.build.deeds import Deeds
from allswell.build.memory import BuildMemory
from allswell.build.merging import Merge
from allswell.build.place import BuildPlace
from allswell.build.rows import BuildRows
from allswell.domain.build.claims import ClaimWindows
from allswell.domain.build.component import BuildSpec
from allswell.domain.build.due import due_steps
from allswell.domain.build.heard import Heard, KnownMessages
from allswell.domain.build.hearing import (
    ALREADY_CLAIMED,
    NO_SUCH_COMPONENT,
    Rights,
    Speaker,
    cannot_claim,
    follow_line,
)
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import CompleteLine, ErrorLine, Line, Misread, RejectLine, TasksLine
from allswell.domain.build.news import news
from allswell.domain.build.owed import few_refusals, owe
from allswell.domain.build.standing import CYCLE_OPTIONS, Standing
from allswell.domain.build.step import AnswerQuestion, BuildStep, CollectClaim, GrantClaim
from allswell.domain.build.wording import read
from allswell.domain.names import Millis
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.timing.nursery import Nursery

_log = logging.getLogger("allswell.build")
_LOOK_EVERY = 5.0
"""Seconds after which a coordinator looks, whether or not anything was said or written."""
_SPEC_EVERY = 2_000
"""Milliseconds between two looks at the spec: it may have been corrected."""
_MOST_ROUNDS = 20
"""So often what is due is done at once; a build that is never at rest would be a mistake of ours."""
STOPPED = "the build was stopped by a human"
_LAST_WORDS = 3.0
"""Seconds for what is owed when we are told to stop."""
_CATCHING_UP = 0.2
"""Seconds without a message after which the replay has been taken in."""


class Coordinator:
    """`await Coordinator(...).run()`: coordinates a build until it is complete, or stopped."""

    def __init__(
        self,
        watch: Watch,
        channel: Channel,
        place: BuildPlace,
        *,
        spec: Callable[[], BuildSpec],
        rights: Rights | None = None,
        limits: BuildLimits | None = None,
        merge: Merge | None = None,
    ) -> None:
        self._watch = watch
        self._merge = merge
        self._channel = channel
        self._place = place
        self._read_spec = spec
        self._spec = spec()
        self._spec_read_at = self._now()
        self._complaint = ""
        """What was wrong with the spec when it was read last."""
        self._rights = rights or Rights()
        self._limits = (limits or BuildLimits()).checked()
        self._rows = BuildRows(watch.views, place.run, follows=True)
        self._windows = ClaimWindows(self._limits.claim_window)
        self._known = KnownMessages()
        self._inbox: deque[Heard] = deque()
        self._replies: list[Line] = []
        """What has to be said because of what is being done."""
        self._pending: dict[str, set[str]] = {}
        """Messages with claims that are not decided yet, and for which components."""
        self._keyless: dict[str, Millis] = {}
        """Who does not keep its name, and when it was heard last."""
        self._perhaps_said: Counter[str] = Counter()
        """Our own lines in the replay that came after the last one of which we know that it arrived."""
        self._under_way = 0
        """So many of the lines owed are being said."""
        self._news = asyncio.Event()
        self._heard = asyncio.Event()
        self._saying = asyncio.Lock()
        self._told_to_stop = asyncio.Event()
        self._closed = False

    def stop(self) -> None:
        """Leave the build in good order; whoever coordinates it next goes on with it."""
        self._closed = True
        self._told_to_stop.set()
        self._inbox.clear()
        self._windows = ClaimWindows(self._limits.claim_window)
        self._heard.set()

    async def run(self) -> Standing:
        """Coordinate to the end, or until the channel ends; how the build stands then."""
        build = await self._place.take(self._watch, agent=self._channel.who)
        await self._place.keep_spec(self._watch, self._spec)
        await self._catch_up()
        async with Nursery() as nursery:
            nursery.start(self._listen())
            nursery.start(self._speak())
            deeds = Deeds(self._watch, self._rows, build, self._limits, self._merge)
            while not await self._turn(deeds):
                if build.lost is not None and not await self._is_stopped(build):
                    # We were away for too long, asleep or without the store. Unless somebody else came, we go on.
                    build = await self._place.take(self._watch, agent=self._channel.who)
                    deeds = Deeds(self._watch, self._rows, build, self._limits, self._merge)
                    continue
                if await self._is_stopped(build):
                    self._replies.append(ErrorLine(STOPPED))
                    await self._go_on(deeds)
                    break
                await self._wait()
            all_said = await self._last_words()
            nursery.cancel()
        standing = msgspec.structs.replace(await self._look(), stopped=await self._is_stopped(build))
        await self._place.finish(self._watch, build, standing, all_said=all_said)
        return standing

    # --- the ear ------------------------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        """Take in what was replayed before anything is said. What is older than the build is not about it."""
        for mark in self._place.memory.heard:
            self._known.is_new(mark)
        self._keyless = dict.fromkeys(self._place.memory.keyless, self._now())
        old: list[str] = []
        try:
            while True:
                async with asyncio.timeout(_CATCHING_UP):
                    heard = await self._channel.receive()
                if heard.replay and self._place.is_new:
                    old.append(heard.mark)
                    self._known.is_new(heard.mark)
                else:
                    self._hear(heard)
        except TimeoutError:
            pass
        except ChannelClosed:
            self._closed = True
        said, self._perhaps_said = self._perhaps_said, Counter()
        await self._place.keep(self._watch, lambda memory: memory.having_caught_up(self._channel.who, old, said))

    async def _listen(self) -> None:
        try:
            while not self._closed:
                self._hear(await self._channel.receive())
        except ChannelClosed as closed:
            _log.info("%s", closed)
            self._closed = True
        self._heard.set()

    def _hear(self, heard: Heard) -> None:
        if heard.who == self._channel.who or heard.who in self._place.memory.names:
            if heard.at > self._place.memory.said_until:
                self._perhaps_said.update(heard.text.split("\n"))
            return
        if not heard.keyed:
            self._keyless[heard.who] = self._now()
        if self._known.is_new(heard.mark):
            self._inbox.append(heard)
            self._heard.set()

    # --- the turn -----------------------------------------------------------------------------------------------------

    async def _turn(self, deeds: Deeds) -> bool:
        """Work off what was heard and what is due; whether there is nothing left to do."""
        standing = await self._go_on(deeds)
        while self._inbox:
            heard = self._inbox.popleft()
            await self._close_windows(deeds, heard.at)
            standing = await self._go_on(deeds, await self._follow(heard, deeds))
        standing = await self._close_windows(deeds) or standing
        await self._read_again(standing, deeds)
        return standing.is_over or (self._closed and not self._inbox and self._windows.closes_at() is None)

    async def _go_on(self, deeds: Deeds, acted_on: Sequence[str] = ()) -> Standing:
        """Do what follows from how the build stands, until nothing more does; keep what has to be said of it all."""
        standing = await self._do_what_is_due(deeds)
        now = await self._watch.now()
        replies, self._replies = self._replies, []
        url = self._spec.url or self._spec.name

        def change(memory: BuildMemory) -> BuildMemory:
            lines, told = news(memory.told, standing, self._limits, url, now)
            offers = [line for line in lines if isinstance(line, TasksLine | CompleteLine)]
            first = [line for line in lines if not isinstance(line, TasksLine | CompleteLine)]
            builders = [one for one in standing.builders if one in self._keyless and one not in memory.keyless]
            return msgspec.structs.replace(
                memory.having_heard(acted_on).as_whom(self._channel.who),
                told=told,
                owed=owe(memory.owed, [*first, *replies, *offers], self._under_way),
                keyless=(*memory.keyless, *builders),
            )

        await self._place.keep(self._watch, change)
        self._news.set()
        return standing

    async def _do_what_is_due(self, deeds: Deeds) -> Standing:
        for _ in range(_MOST_ROUNDS):
            standing = await self._look()
            steps = due_steps(standing, self._rights, self._limits, await self._watch.now())
            if not steps:
                return standing
            for step in steps:
                self._replies += await deeds.carry_out(step)
        return await self._look()

    async def _follow(self, heard: Heard, deeds: Deeds) -> list[str]:
        """Do what somebody's lines come to, one after the other; the messages that were acted on to the end."""
        speaker = Speaker(heard.who, heard.at, heard.id, heard.keyed)
        answers: list[Line] = []
        for line in read(heard.text):
            if isinstance(line, Misread):
                _log.info("%s said something that is no line: %s (%s)", heard.who, line.text, line.why)
                continue
            for step in follow_line(await self._look(), line, speaker, self._rights, self._limits):
                if isinstance(step, CollectClaim):
                    self._windows.add(step, self._now())
                    self._pending.setdefault(heard.mark, set()).add(step.component)
                else:
                    answers += await deeds.carry_out(step)
        answers, left_out = few_refusals(answers)
        if left_out:
            _log.warning("%s said much that does not count; %d refusals are not told", heard.who, left_out)
        self._replies += answers
        return [] if heard.mark in self._pending else [heard.mark]

    async def _close_windows(self, deeds: Deeds, dated: Millis | None = None) -> Standing | None:
        """Decide the claims whose time is up; how the build stands then, if there were any.

        `dated` is when the message was said that is looked at next, by the server's clock.
        """
        closed = self._windows.closed(self._now(), dated)
        done: list[str] = []
        for claims in closed:
            await self._settle(claims, await self._look(), deeds)
            for mark, left in list(self._pending.items()):
                left.discard(claims[0].component)
                if not left:
                    del self._pending[mark]
                    done.append(mark)
        return await self._go_on(deeds, done) if closed else None

    async def _settle(self, claims: list[CollectClaim], standing: Standing, deeds: Deeds) -> None:
        """Decide a window of claims: the first of them that may have it gets it."""
        name = claims[0].component
        component = standing.components.get(name)
        for place, claim in enumerate(claims):
            if component is None:  # the spec was changed meanwhile
                self._replies.append(RejectLine(name, claim.agent, NO_SUCH_COMPONENT))
                continue
            keyed = claim.agent not in self._keyless
            speaker = Speaker(claim.agent, claim.mark.at, claim.mark.id, keyed)
            why = cannot_claim(standing, component, speaker, self._rights, self._limits)
            if not why and component.task is not None:
                losers = tuple(other.agent for other in claims[place + 1 :])
                grant = GrantClaim(name, component.task, claim.agent, claim.mark, losers)
                self._replies += await deeds.carry_out(grant)
                return
            if component.holder != claim.agent:
                self._replies.append(RejectLine(name, claim.agent, why or ALREADY_CLAIMED))

    async def _read_again(self, standing: Standing, deeds: Deeds) -> None:
        """A spec that was corrected goes on (C4); one that cannot be read is left alone."""
        if self._now() < self._spec_read_at + _SPEC_EVERY and not _is_rechecked(standing):
            return
        self._spec_read_at = self._now()
        try:
            spec = self._read_spec()
        except (Refused, OSError) as error:
            if str(error) != self._complaint:
                _log.warning("the spec is not read again: %s", error)
            self._complaint = str(error)
            return
        self._complaint = ""
        if spec is self._spec or spec == self._spec:
            return
        self._spec = spec
        await self._place.keep_spec(self._watch, spec)
        for question in standing.questions:
            if question.choice is None and question.options == CYCLE_OPTIONS and not (await self._look()).cycle:
                step: BuildStep = AnswerQuestion(question.id, "recheck", "the spec was corrected", "allswell")
                self._replies += await deeds.carry_out(step)
        self._heard.set()

    async def _is_stopped(self, build: Lease) -> bool:
        """Whether a human has stopped the build."""
        row = await self._watch.task(build.task)
        return row is None or row.task.ended_at is not None

    async def _look(self) -> Standing:
        """How the build stands. Of a builder without a key that was not heard for long it is not expected to be."""
        until = self._now() - self._limits.silence
        gone = {name for name, at in self._keyless.items() if at <= until}
        return await self._rows.look(self._spec, self._place.started_at, gone)

    def _now(self) -> Millis:
        return Millis(self._watch.clock.monotonic())

    async def _wait(self) -> None:
        """Until something was said, a window closes, the store has news, or it is time to look."""
        bell = self._watch.on_event()
        closes = self._windows.closes_at()
        left = _LOOK_EVERY if closes is None else min(_LOOK_EVERY, max(closes - self._now(), 0) / 1_000)
        rings = asyncio.ensure_future(bell.wait())
        hears = asyncio.ensure_future(self._heard.wait())
        try:
            await asyncio.wait({rings, hears}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rings.cancel()
            hears.cancel()
        self._heard.clear()

    # --- the mouth ----------------------------------------------------------------------------------------------------

    async def _speak(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._say()

    async def _say(self) -> None:
        """Say what is owed, and take it off when it has arrived."""
        async with self._saying:
            while True:
                await self._place.keep(self._watch, self._begin_saying)
                if not self._under_way:
                    return
                try:
                    at = await self._channel.send(self._place.memory.owed[: self._under_way])
                except ChannelClosed:
                    self._closed = True
                    self._heard.set()
                    return
                await self._place.keep(self._watch, partial(self._have_said, at))

    async def _last_words(self) -> bool:
        """Say what is owed before we leave; whoever is told to stop does not wait for a chat that is away.

        What was not said then is said by the next life.
        """
        saying = asyncio.ensure_future(self._say())
        stopped = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            await asyncio.wait({saying, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({saying}, timeout=_LAST_WORDS)
        finally:
            saying.cancel()
            stopped.cancel()
            await asyncio.wait({saying, stopped})
        if saying.cancelled():
            return False
        saying.result()
        return True

    def _begin_saying(self, memory: BuildMemory) -> BuildMemory:
        """From now on the lines that are owed stay as they are, and others come after them."""
        self._under_way = len(memory.owed)
        return memory

    def _have_said(self, at: Millis, memory: BuildMemory) -> BuildMemory:
        count, self._under_way = self._under_way, 0
        return memory.having_said(count, at)


def _is_rechecked(standing: Standing) -> bool:
    """Whether a human says that the spec is corrected, although there is a cycle in it as it was read last."""
    asked = [question for question in standing.questions if question.options == CYCLE_OPTIONS]
    return bool(standing.cycle) and bool(asked) and asked[-1].choice is not None

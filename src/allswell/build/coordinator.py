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
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

import msgspec

from allswell.build.merge import Channel, ChannelClosed, Merge
from allswell.build.state import AuditJob, BuildMemory, BuildPlace, BuildRows, write_mark
from allswell.domain.build.announcements import few_refusals, news, owe
from allswell.domain.build.component import BuildSpec
from allswell.domain.build.hearing import (
    ALREADY_CLAIMED,
    NEVER,
    NO_SUCH_COMPONENT,
    ClaimWindows,
    HeardMessage,
    KnownMessages,
    Rights,
    Speaker,
    cannot_claim,
    due_steps,
    follow_line,
    lapses_at,
)
from allswell.domain.build.limits import AUDIT_ROLE, COMPONENT_ROLE, PLAIN_POLICY, BuildLimits
from allswell.domain.build.line import (
    AbortLine,
    BlockedLine,
    ClaimLine,
    CompleteLine,
    ErrorLine,
    HintLine,
    Line,
    MalformedLine,
    ProgressLine,
    ReadyLine,
    RejectLine,
    TasksLine,
    read,
)
from allswell.domain.build.state import (
    CYCLE_OPTIONS,
    STOPPED,
    AnswerQuestion,
    AskAboutBuild,
    AskAboutComponent,
    BuildStatus,
    BuildStep,
    CollectClaim,
    EndSilent,
    GiveBackComponent,
    GiveVerdict,
    GrantClaim,
    HoldComponent,
    IgnoreLine,
    MergeComponent,
    OfferComponent,
    RequestAudit,
    SayLine,
)
from allswell.domain.ids import Millis, Token
from allswell.domain.lease.audit import Audited
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.errors import Bug, LeaseLost, Refused
from allswell.timing.loops import Nursery

# Carrying out what the rules of a build have decided, on the watch.
#
# Each step is a word to the watch that changes nothing when it comes too late: the lease it names is over, the question
# is answered, the audit has its verdict. Then the next look shows how things stand, and the rules decide again. What is
# touched here is read anew by that look.

_log = logging.getLogger("allswell.build")


class BuildActions:
    """What a coordinator does to the rows of its build."""

    def __init__(
        self, watch: Watch, rows: BuildRows, build: Lease, limits: BuildLimits, merge: Merge | None = None
    ) -> None:
        self._watch = watch
        self._rows = rows
        self._run = rows.run
        self._build = build
        self._limits = limits
        self._merge = merge

    async def carry_out(self, step: BuildStep) -> list[Line]:
        """Do it; the lines that have to be said because of it."""
        try:
            return await self._do(step)
        except (LeaseLost, Refused) as refused:
            _log.info("too late: %s", refused)
            # A human who mistyped an option is told; everybody else sees from the next lines how things stand.
            return [ErrorLine(str(refused))] if isinstance(step, AnswerQuestion) else []

    async def _do(self, step: BuildStep) -> list[Line]:
        match step:
            case OfferComponent(component):
                key = f"{self._run}.component.{component}"
                role, policy = COMPONENT_ROLE, PLAIN_POLICY
                self._rows.touch(await self._watch.submit(component, run=self._run, role=role, policy=policy, key=key))
            case GrantClaim():
                return await self._grant(step)
            case HoldComponent(_, task, token, agent, note, progress):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).checkin(note, progress=progress)
            case EndSilent(task, token, agent):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).end_idle(self._limits.silence)
            case RequestAudit():
                await self._hand_in(step)
            case GiveVerdict():
                await self._judge(step)
            case MergeComponent(_, task, token, agent, audit):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).complete({"url": audit.url, "audited_by": audit.by})
            case GiveBackComponent(task, token, agent, reason):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).release(reason)
            case _:
                return await self._ask_or_say(step)
        return []

    async def _ask_or_say(
        self, step: AskAboutComponent | AskAboutBuild | AnswerQuestion | SayLine | IgnoreLine | CollectClaim
    ) -> list[Line]:
        match step:
            case AskAboutComponent(task, token, agent, text, options):
                self._rows.touch(task)
                self._rows.touch(question=await self._watch.held(task, token, agent).ask(text, options))
            case AskAboutBuild(text, options):
                self._rows.touch(question=await self._build.ask(text, options, hold=True))
            case AnswerQuestion(question, option, text, by):
                self._rows.touch(question=question)
                await self._watch.answer(question, option, text, by=by)
            case SayLine(line):
                return [line]
            case IgnoreLine(who, why):
                _log.info("%s is not heard: %s", who, why)
            case CollectClaim():
                raise Bug("a claim is collected by the coordinator")
            case _:
                assert_never(step)
        return []

    async def _grant(self, step: GrantClaim) -> list[Line]:
        """Give it to the winner. The ACK follows from how it stands then, so that it is said once."""
        self._rows.touch(step.task)
        granted = await self._watch.claim(agent=step.agent, task=step.task, command=write_mark(step.task, step.mark))
        rejected = step.losers if granted is not None else (step.agent, *step.losers)
        return [RejectLine(step.component, agent, ALREADY_CLAIMED) for agent in rejected]

    async def _hand_in(self, step: RequestAudit) -> None:
        audit = step.audit
        task = await self._watch.submit(
            f"audit of {step.component}",
            run=self._run,
            role=AUDIT_ROLE,
            policy=PLAIN_POLICY,
            barred=[audit.builder],
            payload=msgspec.to_builtins(AuditJob(step.component, audit)),
            key=f"{self._run}.audit.{step.component}.{audit.number}",
        )
        self._rows.touch(task)
        if step.instead_of is not None:
            self._rows.touch(step.instead_of)
            await self._watch.cancel(step.instead_of, "its builder has handed in something newer")

    async def _judge(self, step: GiveVerdict) -> None:
        """Enter a verdict. Whoever was killed while doing so has left the audit held; then it is finished for them."""
        passed, details = step.passed, step.details
        if passed and self._merge is not None and (why := await self._merge(step.component)):
            passed, details = False, why
        self._rows.touch(step.audit.task)
        verdict = msgspec.to_builtins(Audited(passed, step.by, details))
        lease = await self._watch.claim(agent=step.by, task=step.audit.task)
        if lease is not None:
            await lease.complete(verdict)
            return
        row = await self._watch.task(step.audit.task)
        if row is not None and row.lease is not None:
            await self._watch.held(row.task.id, row.lease.token, row.lease.agent).complete(verdict)


_LOOK_EVERY = 5.0
"""Seconds after which a coordinator looks, whether or not anything was said or written."""
_SPEC_EVERY = 2_000
"""Milliseconds between two looks at the spec: it may have been corrected."""
_MOST_ROUNDS = 20
"""So often what is due is done at once; a build that is never at rest would be a mistake of ours."""
_LAST_WORDS = 3.0
"""Seconds for what is owed when we are told to stop."""
_MOST_BUILDERS = 1_000
_MOST_HINTED = 200
"""So many agents are remembered to have been told how a line is written."""
_CLOCKS_DRIFT = 5_000
"""Milliseconds by which two clocks may drift apart; beyond that one of them was set."""
_CATCHING_UP = 0.2
"""Seconds without a message after which the replay has been taken in."""


_OF_BUILDERS = (ClaimLine, ProgressLine, BlockedLine, ReadyLine, AbortLine)


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
        self._inbox: deque[HeardMessage] = deque()
        self._replies: list[Line] = []
        """What has to be said because of what is being done."""
        self._pending: dict[str, set[str]] = {}
        """Messages with claims that are not decided yet, and for which components."""
        self._keyless: dict[str, Millis] = {}
        """Who does not keep its name, and when it was heard last."""
        self._perhaps_said: list[str] = []
        """Our own lines in the replay that came after the last one of which we know that it arrived."""
        self._builders: dict[str, None] = {}
        """Everybody who has spoken as a builder."""
        self._hinted: set[str] = set()
        """Who has just been told how a line is written."""
        self._alive: dict[str, tuple[Token, Millis]] = {}
        """As `BuildMemory.alive`."""
        self._heard_until = Millis(0)
        self._gaps = 0
        """How often the channel was known to have missed lines."""
        self._lines_may_be_missing = False
        self._clocks_apart: int | None = None
        """The store's clock minus ours."""
        self._silent_at = NEVER
        """When the next builder has been silent for too long, by the store's clock."""
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

    async def run(self, build: Lease | None = None) -> BuildStatus:
        """Coordinate to the end, or until the channel ends; how the build stands then.

        `build` is the hold on it, where it was taken before the channel was joined.
        """
        if build is None:
            build = await self._place.take(self._watch, agent=self._channel.who)
        await self._place.keep_spec(self._watch, self._spec)
        await self._catch_up()
        async with Nursery() as nursery:
            nursery.start(self._listen())
            nursery.start(self._speak())
            deeds = BuildActions(self._watch, self._rows, build, self._limits, self._merge)
            while not await self._turn(deeds):
                if build.lost is not None and not await self._is_stopped(build):
                    # We were away for too long, asleep or without the store. Unless somebody else came, we go on.
                    build = await self._place.take(self._watch, agent=self._channel.who)
                    deeds = BuildActions(self._watch, self._rows, build, self._limits, self._merge)
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
        memory = self._place.memory
        self._keyless = dict.fromkeys(memory.keyless, self._now())
        self._alive = dict(memory.alive)
        self._builders = dict.fromkeys(memory.builders)
        self._heard_until = known = max(memory.heard_until, memory.said_until)
        hearing = self._channel.hearing
        self._gaps = hearing.gaps
        self._lines_may_be_missing = not self._place.is_new and (hearing.since is None or hearing.since > known)
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
        said, self._perhaps_said = self._perhaps_said, []
        await self._place.keep(self._watch, lambda memory: memory.having_caught_up(self._channel.who, old, said))

    async def _listen(self) -> None:
        try:
            while not self._closed:
                self._hear(await self._channel.receive())
        except ChannelClosed as closed:
            _log.info("%s", closed)
            self._closed = True
        self._heard.set()

    def _hear(self, heard: HeardMessage) -> None:
        self._heard_until = max(self._heard_until, heard.at)
        if heard.who == self._channel.who or heard.who in self._place.memory.names:
            if heard.at > self._place.memory.said_until:
                self._perhaps_said += heard.text.split("\n")
            return
        if not heard.keyed:
            self._keyless[heard.who] = self._now()
        if self._known.is_new(heard.mark):
            self._inbox.append(heard)
            self._heard.set()

    # --- the turn -----------------------------------------------------------------------------------------------------

    async def _turn(self, deeds: BuildActions) -> bool:
        """Work off what was heard, then what is due; whether there is nothing left to do."""
        await self._mind_the_clock()
        if self._inbox:
            await self._go_on(deeds)  # what follows from the store alone, such as that something can be claimed
        while self._inbox:
            heard = self._inbox.popleft()
            await self._close_windows(deeds, heard.at)
            await self._go_on(deeds, await self._follow(heard, deeds))
        await self._mind_the_gap()
        standing = await self._close_windows(deeds) or await self._go_on(deeds)
        await self._read_again(standing, deeds)
        return standing.is_over or (self._closed and not self._inbox and self._windows.closes_at() is None)

    async def _go_on(self, deeds: BuildActions, acted_on: Sequence[str] = ()) -> BuildStatus:
        """Do what follows from how the build stands, until nothing more does; keep what has to be said of it all."""
        standing = await self._do_what_is_due(deeds)
        now = await self._watch.now()
        replies, self._replies = self._replies, []
        hinted, self._hinted = self._hinted, set()
        url = self._spec.url or self._spec.name
        heard_all = self._has_heard_all()
        held = {one.name: one for one in standing.components.values() if one.state == "held"}
        self._alive = {name: (one.token, one.heard_at) for name, one in held.items()}
        self._silent_at = min((lapses_at(one, self._limits) for one in held.values()), default=NEVER)

        def change(memory: BuildMemory) -> BuildMemory:
            lines, told = news(memory.told, standing, self._limits, url, now, again=heard_all)
            offers = [line for line in lines if isinstance(line, TasksLine | CompleteLine)]
            first = [line for line in lines if not isinstance(line, TasksLine | CompleteLine)]
            builders = [one for one in standing.builders if one in self._keyless and one not in memory.keyless]
            return msgspec.structs.replace(
                memory.having_heard(acted_on).as_whom(self._channel.who),
                told=told,
                owed=owe(memory.owed, [*first, *replies, *offers], self._under_way),
                alive=self._alive,
                heard_until=self._heard_until,
                builders=tuple(self._builders)[-_MOST_BUILDERS:],
                hinted=(*memory.hinted, *hinted)[-_MOST_HINTED:],
                keyless=(*memory.keyless, *builders),
            )

        await self._place.keep(self._watch, change)
        self._news.set()
        return standing

    async def _do_what_is_due(self, deeds: BuildActions) -> BuildStatus:
        for _ in range(_MOST_ROUNDS):
            standing = await self._look()
            now = await self._watch.now()
            steps = due_steps(standing, self._rights, self._limits, now, heard_all=self._has_heard_all())
            if not steps:
                return standing
            for step in steps:
                if isinstance(step, HoldComponent):
                    self._alive[step.component] = (step.token, now)
                self._replies += await deeds.carry_out(step)
        return await self._look()

    def _has_heard_all(self) -> bool:
        """Whether what was said until now was heard and acted on: only then does silence count."""
        return self._channel.hearing.is_current and not self._inbox and not self._lacks_lines()

    def _lacks_lines(self) -> bool:
        return self._lines_may_be_missing or self._channel.hearing.gaps > self._gaps

    async def _mind_the_gap(self) -> None:
        """After an absence of which the server has not told everything, each holder has one more interval."""
        hearing = self._channel.hearing
        if not hearing.is_current or self._inbox or not self._lacks_lines():
            return
        self._lines_may_be_missing, self._gaps = False, hearing.gaps
        least = Millis(await self._watch.now() - self._limits.silence + self._limits.progress_every)
        for one in (await self._look()).components.values():
            if one.state == "held" and one.heard_at < least:
                self._alive[one.name] = (one.token, least)

    async def _mind_the_clock(self) -> None:
        """A clock that was set, or a machine that slept, makes nobody silent."""
        apart = await self._watch.now() - self._now()
        moved = 0 if self._clocks_apart is None else apart - self._clocks_apart
        if self._clocks_apart is None or abs(moved) > _CLOCKS_DRIFT:
            self._clocks_apart = apart
            self._alive = {name: (token, Millis(at + moved)) for name, (token, at) in self._alive.items()}

    async def _follow(self, heard: HeardMessage, deeds: BuildActions) -> list[str]:
        """Do what somebody's lines come to, one after the other; the messages that were acted on to the end."""
        speaker = Speaker(heard.who, heard.at, heard.id, heard.keyed)
        answers: list[Line] = []
        for line in read(heard.text):
            if isinstance(line, _OF_BUILDERS) and (heard.keyed or not self._rights.require_keys):
                self._builders[heard.who] = None
            if isinstance(line, MalformedLine):
                _log.info("%s said something that is no line: %s (%s)", heard.who, line.text, line.why)
                if line.shape and heard.who not in self._place.memory.hinted and heard.who not in self._hinted:
                    self._hinted.add(heard.who)
                    answers.append(HintLine(heard.who, line.text, line.shape))
                continue
            for step in follow_line(await self._look(), line, speaker, self._rights, self._limits):
                if isinstance(step, CollectClaim):
                    self._windows.add(step, self._now())
                    self._pending.setdefault(heard.mark, set()).add(step.component)
                    continue
                answers += await deeds.carry_out(step)
                await self._count_silence_from(step, heard)
        answers, left_out = few_refusals(answers)
        if left_out:
            _log.warning("%s sent many lines that do not count; %d refusals were not sent", heard.who, left_out)
        self._replies += answers
        return [] if heard.mark in self._pending else [heard.mark]

    async def _count_silence_from(self, step: BuildStep, heard: HeardMessage) -> None:
        """A holder was heard, or has something to mend: its time begins when that was said, not when we heard it."""
        said_at = Millis(await self._watch.now() - heard.ago)
        if isinstance(step, HoldComponent):
            token, before = self._alive.get(step.component, (step.token, said_at))
            self._alive[step.component] = (step.token, max(said_at, before) if token == step.token else said_at)
        elif isinstance(step, GiveVerdict):
            self._alive[step.component] = (step.audit.token, said_at)

    async def _close_windows(self, deeds: BuildActions, dated: Millis | None = None) -> BuildStatus | None:
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

    async def _settle(self, claims: list[CollectClaim], standing: BuildStatus, deeds: BuildActions) -> None:
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

    async def _read_again(self, standing: BuildStatus, deeds: BuildActions) -> None:
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

    async def _look(self) -> BuildStatus:
        """How the build stands. Of a builder without a key that was not heard for long it is not expected to be."""
        until = self._now() - self._limits.silence
        gone = {name for name, at in self._keyless.items() if at <= until}
        standing = await self._rows.look(self._spec, self._place.started_at, gone)
        components = dict(standing.components)
        for name, (token, at) in self._alive.items():
            one = components.get(name)
            if one is not None and one.token == token:
                components[name] = msgspec.structs.replace(one, heard_at=at)
        others = [one for one in self._builders if one not in gone and one not in standing.builders]
        return msgspec.structs.replace(standing, components=components, builders=(*standing.builders, *others))

    def _now(self) -> Millis:
        return Millis(self._watch.clock.monotonic())

    async def _wait(self) -> None:
        """Until something was said, a window closes, the store has news, or it is time to look."""
        bell = self._watch.on_event()
        closes = self._windows.closes_at()
        left = _LOOK_EVERY if closes is None else min(_LOOK_EVERY, max(closes - self._now(), 0) / 1_000)
        if self._silent_at != NEVER and self._has_heard_all():
            left = min(left, max(self._silent_at - await self._watch.now(), 10) / 1_000)
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


def _is_rechecked(standing: BuildStatus) -> bool:
    """Whether a human says that the spec is corrected, although there is a cycle in it as it was read last."""
    asked = [question for question in standing.questions if question.options == CYCLE_OPTIONS]
    return bool(standing.cycle) and bool(asked) and asked[-1].choice is not None

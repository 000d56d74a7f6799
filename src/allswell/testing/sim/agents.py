"""The agents of the simulated world, good and bad.

Each claims, then plays one part, drawn anew for every task: most are honest; others are slow, silent, forgetful, dead,
late, repeat themselves, speak out of order, lie, fail or ask. In the calm at the end all are honest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from allswell.domain.command import (
    Ask,
    CheckIn,
    Claim,
    Complete,
    Delegate,
    EndIdle,
    Fail,
    HolderCommand,
    Keep,
    NewTask,
    Recover,
    Release,
)
from allswell.domain.names import NO_COMMAND, AgentId, CommandId, Millis, Token
from allswell.domain.question import CLARIFY, REPLY, SKIP, Act, Option
from allswell.domain.retry import ErrorClass, Failure
from allswell.engine.handle import Lease as Handle
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost
from allswell.testing.sim.desk import Sent
from allswell.testing.sim.process import Process

ROLES = ("", "build", "audit")
_SPLIT = Option("split", "Split it", Act.SPLIT)
_LENGTHS = (None, None, 60_000, 180_000)


class Agent:
    """One agent, at home in a process, that works for as long as the process lives."""

    def __init__(self, id_: str, calm: Callable[[], bool], others: Callable[[], list[Watch]]) -> None:
        self.id = AgentId(id_)
        self._calm = calm
        self._others = others
        self._parts: list[tuple[int, Callable[[Process, Handle], Awaitable[None]]]] = [
            (30, self._honest),
            (8, self._slow),
            (10, self._silent),
            (8, self._vanish),
            (8, self._late),
            (6, self._lie),
            (8, self._repeat),
            (5, self._out_of_order),
            (18, self._fail),
            (8, self._ask),
            (4, self._release),
            (8, self._delegate),
            (4, self._end_idle),
        ]

    async def work(self, home: Process) -> None:
        """Claim and work, over and over."""
        chance = home.chance
        while True:
            await home.sleep(5.0 if self._calm() else 10.0 * chance.randint(1, 80))
            watch = home.watch
            if watch is None:
                continue
            for handle in await self._claim(home, watch):
                if self._calm():
                    await self._complete(home, handle)
                    continue
                parts, weights = [part for _, part in self._parts], [weight for weight, _ in self._parts]
                await chance.choices(parts, weights)[0](home, handle)

    async def _claim(self, home: Process, watch: Watch) -> list[Handle]:
        chance = home.chance
        calm = self._calm()
        roles = None if calm or chance.random() < 0.6 else tuple(chance.sample(ROLES, 2))
        count = 5 if calm else chance.choice((1, 1, 1, 2, 4))
        command = NO_COMMAND if chance.random() < 0.5 else home.desk.new_command()
        claim = Claim(command, self.id, roles, count, chance.choice(_LENGTHS))
        wait = 0 if chance.random() < 0.3 else 900_000
        if command and chance.random() < 0.1:
            handles, twins = await asyncio.gather(
                home.desk.claim(watch, claim, wait), home.desk.claim(watch, claim, wait)
            )
            handles = handles or twins
        else:
            handles = await home.desk.claim(watch, claim, wait)
        if command and handles and chance.random() < 0.2:
            again = await home.desk.claim(self._any_watch(home), claim)
            if {handle.task for handle in again} & {handle.task for handle in handles}:
                home.desk.chronicle.met("a repeated claim was recognised")
        return handles

    def _any_watch(self, home: Process) -> Watch:
        """Mostly its own process's; sometimes another one, as after a reconnect."""
        others = self._others()
        if others and home.chance.random() < 0.3:
            return home.chance.choice(others)
        if home.watch is None:
            raise asyncio.CancelledError
        return home.watch

    async def _say(self, home: Process, command: Sent) -> object:
        return await home.desk.send(self._any_watch(home), command)

    async def _check_in(self, home: Process, handle: Handle, *, token: int | None = None, proof: bool = True) -> object:
        note = "still at it" if proof and home.chance.random() < 0.2 else ""
        said = CheckIn(handle.task, Token(token or handle.token), self.id, proof, note)
        return await home.desk.check_in(self._any_watch(home), said)

    def _completion(self, home: Process, handle: Handle, *, token: int | None = None) -> Complete:
        id_ = home.desk.new_command()
        return Complete(id_, handle.task, Token(token or handle.token), self.id, f'"{id_}"')

    async def _complete(self, home: Process, handle: Handle) -> None:
        await self._say(home, self._completion(home, handle))
        handle.over = True

    # --- the parts --------------------------------------------------------------------------------------------------

    async def _honest(self, home: Process, handle: Handle) -> None:
        """Checks in often enough, stops when told, and completes."""
        for _ in range(home.chance.randint(0, 4)):
            await home.sleep(home.chance.choice((10, 30, 50)))
            if isinstance(await self._check_in(home, handle), LeaseLost) or handle.remaining == 0:
                handle.over = True
                return
        await self._complete(home, handle)

    async def _slow(self, home: Process, handle: Handle) -> None:
        """Shows progress, and comes to no end."""
        while not isinstance(await self._check_in(home, handle), LeaseLost):
            await home.sleep(50)
        await self._complete(home, handle)

    async def _silent(self, home: Process, handle: Handle) -> None:
        """Works without a word; sometimes speaks at the last moment, sometimes its supervisor ends it."""
        length = home.chance.choice((60, 200, 600, 1_200))
        for _ in range(length // 20):
            await home.sleep(20)
            lease = home.desk.tables.leases.get(handle.task)
            if lease is None or lease.token != handle.token:
                break
            if lease.stalled_at is not None:
                if home.chance.random() < 0.3:
                    await self._check_in(home, handle)
                elif home.chance.random() < 0.4:
                    await self._say(home, Recover(home.desk.new_command(), handle.task, handle.token, self.id))
        await self._complete(home, handle)

    async def _vanish(self, home: Process, handle: Handle) -> None:  # noqa: ARG002 - it does not even look around
        """Dies without a word."""
        handle.over = True

    async def _late(self, home: Process, handle: Handle) -> None:
        """Stands still past its lease, then goes on as if nothing had happened."""
        handle.over = True
        await home.sleep(home.chance.choice((70, 190, 400, 1_300)))
        if home.chance.random() < 0.3:
            await self._check_in(home, handle)
        if home.chance.random() < 0.3:
            await self._say(home, self._failure(home, handle))
        await self._say(home, self._completion(home, handle))

    async def _lie(self, home: Process, handle: Handle) -> None:
        """Uses tokens and tasks that are not its own."""
        held = list(home.desk.tables.leases.values())
        for token in (handle.token + 1, handle.token - 1, 10_000):
            await self._check_in(home, handle, token=token or 7)
            await self._say(home, self._completion(home, handle, token=token or 7))
        if held:
            other = home.chance.choice(held)
            id_ = home.desk.new_command()
            if other.agent != self.id:
                await self._say(home, Complete(id_, other.task, other.token, self.id, '"stolen"'))
        await self._complete(home, handle)

    async def _repeat(self, home: Process, handle: Handle) -> None:
        """Sends everything twice: at once, or later, or through another process."""
        pick = home.chance.random()
        command: HolderCommand = self._completion(home, handle)
        if pick < 0.3:
            command = self._failure(home, handle)
        elif pick < 0.5:
            command = Ask(home.desk.new_command(), handle.task, handle.token, self.id, "which one?", hold=pick < 0.4)
        if home.chance.random() < 0.5:
            await asyncio.gather(self._say(home, command), self._say(home, command))
        else:
            await self._say(home, command)
            await home.sleep(home.chance.choice((0, 30, 300)))
            if not isinstance(await self._say(home, command), Exception):
                home.desk.chronicle.met("a repeated command was recognised")
        handle.over = True

    async def _out_of_order(self, home: Process, handle: Handle) -> None:
        """Its check-in and its completion overtake each other."""
        await home.sleep(home.chance.choice((0, 60)))
        await asyncio.gather(
            self._say(home, self._completion(home, handle)), self._check_in(home, handle), self._check_in(home, handle)
        )
        handle.over = True

    def _failure(self, home: Process, handle: Handle) -> Fail:
        chance = home.chance
        error = chance.choice(list(ErrorClass))
        after = Millis(chance.choice((0, 5_000, 40_000, 400_000, 900_000))) if chance.random() < 0.5 else None
        services: tuple[str, ...] = ()
        if error in (ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD) and chance.random() < 0.8:
            row = home.desk.tables.tasks[handle.task]
            services = row.spec.services
        failure = Failure(error, "it broke", after, services)
        return Fail(home.desk.new_command(), handle.task, handle.token, self.id, failure)

    async def _fail(self, home: Process, handle: Handle) -> None:
        """Cannot do it."""
        await home.sleep(home.chance.choice((1, 20, 70)))
        await self._say(home, self._failure(home, handle))
        handle.over = True

    async def _ask(self, home: Process, handle: Handle) -> None:
        """Asks a human, and waits for the answer or goes on meanwhile."""
        hold = home.chance.random() < 0.5
        options = home.chance.choice(((), (_SPLIT, REPLY), (REPLY, CLARIFY, SKIP)))
        id_: CommandId = home.desk.new_command()
        await self._say(home, Ask(id_, handle.task, handle.token, self.id, "how?", options, hold))
        if hold:
            await home.sleep(home.chance.choice((10, 40, 300)))
            await home.chance.choice((self._fail, self._fail, self._release, self._honest))(home, handle)
        handle.over = True

    async def _delegate(self, home: Process, handle: Handle) -> None:
        """Hands a request to an expert, sometimes twice, and goes on whatever comes of it."""
        chance = home.chance
        request = home.desk.new_task()
        new = NewTask(request, "look into it", role=chance.choice(ROLES[1:]), payload=f'{{"task":"{request}"}}')
        timeout = Millis(chance.choice((20_000, 120_000, 600_000)))
        said = Delegate(home.desk.new_command(), handle.task, handle.token, self.id, new, timeout)
        for _ in range(chance.choice((1, 1, 2))):
            await self._say(home, said)
        await chance.choice((self._honest, self._honest, self._silent, self._vanish))(home, handle)

    async def _release(self, home: Process, handle: Handle) -> None:
        """Gives the task back."""
        delay = home.chance.choice((0, 0, 120_000))
        await self._say(home, Release(home.desk.new_command(), handle.task, handle.token, self.id, "not mine", delay))
        handle.over = True

    async def _end_idle(self, home: Process, handle: Handle) -> None:
        """Shows no progress; its supervisor ends it, leaves a receipt, and takes that very task again."""
        await home.sleep(home.chance.choice((20, 60, 200)))
        await self._say(home, EndIdle(home.desk.new_command(), handle.task, handle.token, self.id))
        handle.over = True
        id_ = home.desk.new_command()
        await self._say(home, Keep(id_, handle.task, handle.token, self.id, f"rc_{id_}", "idle"))
        claim = Claim(home.desk.new_command(), self.id, length=home.chance.choice(_LENGTHS), task=handle.task)
        for again in await home.desk.claim(self._any_watch(home), claim):
            home.desk.chronicle.met("a task was claimed by name")
            await self._complete(home, again)

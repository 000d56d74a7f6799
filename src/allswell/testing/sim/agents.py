"""The agents of the simulated world, good and bad.

Each claims, then plays one part, drawn anew for every task: most are honest; others are slow, silent, forgetful, dead,
late, repeat themselves, speak out of order, lie, fail or ask. In the calm at the end all are honest.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.lease.claim import Granted
from allswell.domain.question import CLARIFY, REPLY, SKIP, AnswerAction, Option, Question
from allswell.domain.rules.command import (
    AcquireFlow,
    Answer,
    Ask,
    Cancel,
    CheckIn,
    Claim,
    Complete,
    Delegate,
    EndIdle,
    EndRun,
    Fail,
    HolderCommand,
    NewTask,
    OpenRun,
    RecordReceipt,
    RecordStep,
    Recover,
    Release,
    Submit,
)
from allswell.domain.service.retry import ErrorClass, Failure, RetryPolicy
from allswell.domain.task.aggregate import FLOW_LEFT, FLOW_ROLE
from allswell.domain.task.model import Policy
from allswell.engine.lease import Lease as Handle
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused
from allswell.testing.sim.process import Sent, SimClient, SimProcess

ROLES = ("", "build", "audit")
_SPLIT = Option("split", "Split it", AnswerAction.SPLIT)
_LENGTHS = (None, None, 60_000, 180_000)


class SimAgent:
    """One agent, at home in a process, that works for as long as the process lives."""

    def __init__(self, id_: str, calm: Callable[[], bool], others: Callable[[], list[Watch]]) -> None:
        self.id = AgentId(id_)
        self._calm = calm
        self._others = others
        self._parts: list[tuple[int, Callable[[SimProcess, Handle], Awaitable[None]]]] = [
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

    async def work(self, home: SimProcess) -> None:
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

    async def _claim(self, home: SimProcess, watch: Watch) -> list[Handle]:
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

    def _any_watch(self, home: SimProcess) -> Watch:
        """Mostly its own process's; sometimes another one, as after a reconnect."""
        others = self._others()
        if others and home.chance.random() < 0.3:
            return home.chance.choice(others)
        if home.watch is None:
            raise asyncio.CancelledError
        return home.watch

    async def _say(self, home: SimProcess, command: Sent) -> object:
        return await home.desk.send(self._any_watch(home), command)

    async def _check_in(
        self, home: SimProcess, handle: Handle, *, token: int | None = None, proof: bool = True
    ) -> object:
        note = "still at it" if proof and home.chance.random() < 0.2 else ""
        said = CheckIn(handle.task, Token(token or handle.token), self.id, proof, note)
        return await home.desk.check_in(self._any_watch(home), said)

    def _completion(self, home: SimProcess, handle: Handle, *, token: int | None = None) -> Complete:
        id_ = home.desk.new_command()
        return Complete(id_, handle.task, Token(token or handle.token), self.id, f'"{id_}"')

    async def _complete(self, home: SimProcess, handle: Handle) -> None:
        await self._say(home, self._completion(home, handle))
        handle.over = True

    # --- the parts --------------------------------------------------------------------------------------------------

    async def _honest(self, home: SimProcess, handle: Handle) -> None:
        """Checks in often enough, stops when told, and completes."""
        for _ in range(home.chance.randint(0, 4)):
            await home.sleep(home.chance.choice((10, 30, 50)))
            if isinstance(await self._check_in(home, handle), LeaseLost) or handle.remaining == 0:
                handle.over = True
                return
        await self._complete(home, handle)

    async def _slow(self, home: SimProcess, handle: Handle) -> None:
        """Shows progress, and comes to no end."""
        while not isinstance(await self._check_in(home, handle), LeaseLost):
            await home.sleep(50)
        await self._complete(home, handle)

    async def _silent(self, home: SimProcess, handle: Handle) -> None:
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

    async def _vanish(self, home: SimProcess, handle: Handle) -> None:  # noqa: ARG002 - it does not even look around
        """Dies without a word."""
        handle.over = True

    async def _late(self, home: SimProcess, handle: Handle) -> None:
        """Stands still past its lease, then goes on as if nothing had happened."""
        handle.over = True
        await home.sleep(home.chance.choice((70, 190, 400, 1_300)))
        if home.chance.random() < 0.3:
            await self._check_in(home, handle)
        if home.chance.random() < 0.3:
            await self._say(home, self._failure(home, handle))
        await self._say(home, self._completion(home, handle))

    async def _lie(self, home: SimProcess, handle: Handle) -> None:
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

    async def _repeat(self, home: SimProcess, handle: Handle) -> None:
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

    async def _out_of_order(self, home: SimProcess, handle: Handle) -> None:
        """Its check-in and its completion overtake each other."""
        await home.sleep(home.chance.choice((0, 60)))
        await asyncio.gather(
            self._say(home, self._completion(home, handle)), self._check_in(home, handle), self._check_in(home, handle)
        )
        handle.over = True

    def _failure(self, home: SimProcess, handle: Handle) -> Fail:
        chance = home.chance
        error = chance.choice(list(ErrorClass))
        after = Millis(chance.choice((0, 5_000, 40_000, 400_000, 900_000))) if chance.random() < 0.5 else None
        services: tuple[str, ...] = ()
        if error in (ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD) and chance.random() < 0.8:
            row = home.desk.tables.tasks[handle.task]
            services = row.spec.services
        failure = Failure(error, "it broke", after, services)
        return Fail(home.desk.new_command(), handle.task, handle.token, self.id, failure)

    async def _fail(self, home: SimProcess, handle: Handle) -> None:
        """Cannot do it."""
        await home.sleep(home.chance.choice((1, 20, 70)))
        await self._say(home, self._failure(home, handle))
        handle.over = True

    async def _ask(self, home: SimProcess, handle: Handle) -> None:
        """Asks a human, and waits for the answer or goes on meanwhile."""
        hold = home.chance.random() < 0.5
        options = home.chance.choice(((), (_SPLIT, REPLY), (REPLY, CLARIFY, SKIP)))
        id_: CommandId = home.desk.new_command()
        await self._say(home, Ask(id_, handle.task, handle.token, self.id, "how?", options, hold))
        if hold:
            await home.sleep(home.chance.choice((10, 40, 300)))
            await home.chance.choice((self._fail, self._fail, self._release, self._honest))(home, handle)
        handle.over = True

    async def _delegate(self, home: SimProcess, handle: Handle) -> None:
        """Hands a request to an expert, sometimes twice, and goes on whatever comes of it."""
        chance = home.chance
        request = home.desk.new_task()
        new = NewTask(request, "look into it", role=chance.choice(ROLES[1:]), payload=f'{{"task":"{request}"}}')
        timeout = Millis(chance.choice((20_000, 120_000, 600_000)))
        said = Delegate(home.desk.new_command(), handle.task, handle.token, self.id, new, timeout)
        for _ in range(chance.choice((1, 1, 2))):
            await self._say(home, said)
        await chance.choice((self._honest, self._honest, self._silent, self._vanish))(home, handle)

    async def _release(self, home: SimProcess, handle: Handle) -> None:
        """Gives the task back."""
        delay = home.chance.choice((0, 0, 120_000))
        await self._say(home, Release(home.desk.new_command(), handle.task, handle.token, self.id, "not mine", delay))
        handle.over = True

    async def _end_idle(self, home: SimProcess, handle: Handle) -> None:
        """Shows no progress; its supervisor ends it, leaves a receipt, and takes that very task again."""
        await home.sleep(home.chance.choice((20, 60, 200)))
        await self._say(home, EndIdle(home.desk.new_command(), handle.task, handle.token, self.id))
        handle.over = True
        id_ = home.desk.new_command()
        await self._say(home, RecordReceipt(id_, handle.task, handle.token, self.id, f"rc_{id_}", "idle"))
        claim = Claim(home.desk.new_command(), self.id, length=home.chance.choice(_LENGTHS), task=handle.task)
        for again in await home.desk.claim(self._any_watch(home), claim):
            home.desk.chronicle.met("a task was claimed by name")
            await self._complete(home, again)


# Those who bring work to the watch and decide about it: submitters, humans, and someone who calls things off.

SERVICES = ("anthropic", "github", "search")
_PATIENCE = 300.0


class SimLoad:
    """Everybody who is not an agent; they speak through whichever process is there."""

    def __init__(
        self, desk: SimClient, chance: random.Random, watches: Callable[[], list[Watch]], agents: list[str]
    ) -> None:
        self.desk = desk
        self.chance = chance
        self.agents = agents
        self.calm = False
        self._watches = watches
        self._runs: list[RunId] = []
        self._recent: list[NewTask] = []

    async def _send(self, command: Sent, watch: Watch | None = None) -> object:
        watches = self._watches()
        if watch is None and not watches:
            return None
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self.desk.send(watch or self.chance.choice(watches), command)
        except TimeoutError:
            return None

    # --- submitting -------------------------------------------------------------------------------------------------

    async def submit(self) -> None:
        """Bring work until the calm."""
        while not self.calm:
            await asyncio.sleep(10.0 * self.chance.randint(1, 220))
            drawn = self.chance.random()
            if drawn < 0.15:
                await self._open_run()
            if drawn < 0.25 and self._recent:
                await self._again()
            elif drawn < 0.35:
                await self._refusable()
            else:
                await self._submit(self._some_tasks())

    async def _submit(self, tasks: list[NewTask]) -> None:
        command = Submit(self.desk.new_command(), tuple(tasks))
        twice = self.chance.random() < 0.1
        told = await asyncio.gather(self._send(command), *([self._send(command)] if twice else []))
        if isinstance(told[0], list):
            self._recent = (self._recent + tasks)[-12:]
        elif isinstance(told[0], Refused):
            # Whatever it was, it will be refused again: a run that has ended, a need that was split.
            self._runs = [run for run in self._runs if run != tasks[-1].run]
            needs = {need for new in tasks for need in new.needs}
            self._recent = [new for new in self._recent if new.id not in needs]

    async def _open_run(self) -> None:
        run = RunId(f"r_{self.desk.new_command()}")
        timeout = self.chance.choice((None, Millis(600_000), Millis(1_800_000), Millis(5_400_000)))
        if not isinstance(await self._send(OpenRun(self.desk.new_command(), run, "some run", timeout)), Exception):
            self._runs = [*self._runs, run][-4:]

    async def _again(self) -> None:
        """The same tasks under the same keys, with something new that needs them."""
        old = self.chance.sample(self._recent, min(2, len(self._recent)))
        fresh = self._new(needs=tuple(new.id for new in old), run=None)
        await self._submit([*old, fresh])

    async def _refusable(self) -> None:
        """A cycle, or a task under an id that is taken."""
        first, second = self._new(), self._new()
        if self._recent and self.chance.random() < 0.5:
            taken = self.chance.choice(self._recent)
            await self._send(Submit(self.desk.new_command(), (self._new(id_=taken.id),)))
            return
        first = NewTask(first.id, "egg", needs=(second.id,))
        second = NewTask(second.id, "hen", needs=(first.id,))
        await self._send(Submit(self.desk.new_command(), (first, second)))

    def _some_tasks(self) -> list[NewTask]:
        chance = self.chance
        run = chance.choice(self._runs) if self._runs and chance.random() < 0.4 else None
        made: list[NewTask] = []
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            known = [new.id for new in made] + [new.id for new in self._recent]
            needs: tuple[TaskId, ...] = ()
            if known and chance.random() < 0.5:
                needs = tuple(chance.sample(known, min(len(known), chance.choice((1, 1, 2)))))
            made.append(self._new(needs=needs, run=run))
        return made

    def _new(self, *, needs: tuple[TaskId, ...] = (), run: RunId | None = None, id_: TaskId | None = None) -> NewTask:
        chance = self.chance
        id_ = id_ or self.desk.new_task()
        now = self.desk.ledger.database.see()[0]
        return NewTask(
            id_,
            f"task {id_}",
            run,
            chance.choice(ROLES),
            tuple(sorted(chance.sample(SERVICES, chance.choice((0, 0, 1, 2))))),
            chance.choice((0, 0, 5, 9)),
            needs,
            tuple(AgentId(agent) for agent in chance.sample(self.agents, chance.choice((0, 0, 0, 1, 2)))),
            f'{{"task": "{id_}"}}',
            Millis(now + chance.choice((30_000, 600_000))) if chance.random() < 0.15 else None,
            chance.random() < 0.1,
            "run" if chance.random() < 0.3 else "skip",
            self._policy(),
            keyed=True,
        )

    def _policy(self) -> Policy:
        chance = self.chance
        retry = RetryPolicy(
            backoff=chance.choice((1_000, 20_000)),
            retry_after_default=30_000,
            retry_after_cap=chance.choice((60_000, 300_000)),
            max_attempts=chance.choice((3, 6)),
            retries=chance.choice((None, None, 1)),
        )
        return Policy(
            timeout=chance.choice((120_000, 300_000, 900_000)),
            idle=chance.choice((None, None, 100_000)),
            checkpoint_interval=chance.choice((60_000, 150_000)),
            checkpoint_timeout=20_000,
            stall_threshold=chance.choice((1, 2, 3)),
            timeout_escalation=chance.choice((2, 3)),
            recovery_grace=chance.choice((0, 10_000, 45_000)),
            retry=retry,
        )

    # --- deciding ---------------------------------------------------------------------------------------------------

    async def answer(self) -> None:
        """Answer what is asked, late, with every option, and sometimes twice."""
        while True:
            await asyncio.sleep(30.0 if self.calm else 10.0 * self.chance.randint(3, 120))
            tables = self.desk.tables
            asked = [tables.questions[id_] for ids in tables.open_questions.values() for id_ in ids]
            if not self.calm:
                asked = self.chance.sample(asked, min(len(asked), 3))
            for question in asked:
                if self.calm or question.kind != FLOW_LEFT or self.chance.random() < 0.1:  # else its program comes back
                    await self._answer(question)

    async def _answer(self, question: Question) -> None:
        chance = self.chance
        options = [option for option in question.options if not (self.calm and option.key == "split")]
        option = chance.choice(options)
        subtasks: tuple[NewTask, ...] = ()
        if option.key == "split":
            first = self._new(run=question.run)
            subtasks = (first, self._new(run=question.run, needs=(first.id,)), self._new(run=question.run))
        timeout = Millis(1_200_000) if option.key == "increase_timeout" and chance.random() < 0.5 else None
        command = Answer(self.desk.new_command(), question.id, option.key, "do it so", subtasks, timeout, "a human")
        if chance.random() < 0.1:
            other = Answer(self.desk.new_command(), question.id, chance.choice(options).key, "no, so")
            await asyncio.gather(self._send(command), self._send(other), self._send(command))
        else:
            await self._send(command)

    async def call_off(self) -> None:
        """Cancel tasks and end runs, now and then, until the calm."""
        while not self.calm:
            await asyncio.sleep(10.0 * self.chance.randint(30, 400))
            tasks = list(self.desk.tables.open_tasks)
            if self._runs and self.chance.random() < 0.4:
                await self._send(EndRun(self.desk.new_command(), self.chance.choice(self._runs), "enough"))
            elif tasks:
                await self._call_off(self.chance.choice(tasks))

    async def _call_off(self, task: TaskId) -> None:
        """Sometimes someone else begins to need it at the same moment, in the same batch."""
        cancel = Cancel(self.desk.new_command(), task, "no longer wanted")
        watches = self._watches()
        if watches and self.chance.random() < 0.5:
            watch = self.chance.choice(watches)
            needy = Submit(self.desk.new_command(), (self._new(needs=(task,)),))
            await asyncio.gather(self._send(needy, watch), self._send(cancel, watch))
        else:
            await self._send(cancel)


# Programs that run durable flows in the simulated world: each flow has twelve steps, and several would run it at once.
#
# A program takes a flow up, says its steps one after another or some at once, and repeats itself; it is cut off, sleeps
# past its hold, dies with its process, fails, or goes on speaking after somebody else has gone on. What is recorded
# once must stay as it is, whoever says what. In the calm at the end every flow has ended: finished, or called off by a
# human.

STEPS = 12
FLOWS = 20
_HOLD = 120_000
_POLICY = Policy(timeout=1_800_000, checkpoint_interval=1_800_000, checkpoint_timeout=20_000)


class Program:
    """One program, at home in a process, that runs the flows of the day whenever it can have one."""

    def __init__(self, number: int, chance: random.Random, calm: Callable[[], bool]) -> None:
        self._number = number
        self._chance = chance
        self._calm = calm
        self._runs = 0

    async def work(self, home: SimProcess) -> None:
        """Run flows, over and over, until the calm."""
        chance = self._chance
        while not self._calm():
            await home.sleep(10.0 * chance.randint(1, 60))
            watch = home.watch
            if watch is not None:
                await self._run(home, watch, f"flow-{chance.randint(0, FLOWS)}")

    async def _run(self, home: SimProcess, watch: Watch, name: str) -> None:
        desk, self._runs = home.desk, self._runs + 1
        agent = AgentId(f"program-{self._number}.{self._runs}")
        run = RunId(f"r_{name}")
        # As a program sees it on its own machine: it runs one flow at a time, so an earlier holder of its own is dead.
        held = desk.tables.leases.get(TaskId(f"t_{name}"))
        mine = held is not None and held.agent.startswith(f"program-{self._number}.")
        dead = held.token if held is not None and mine and self._chance.random() < 0.7 else None
        new = NewTask(TaskId(f"t_{name}"), name, run, FLOW_ROLE, policy=_POLICY, flow=True)
        granted = await desk.send(watch, AcquireFlow(desk.new_command(), new, agent, _HOLD, dead))
        if not isinstance(granted, Granted):
            return
        if granted.lease.token > 1:
            desk.chronicle.met("a flow was taken up again")
        watch.hold(granted, asyncio.get_running_loop().time())
        await self._steps(home, watch, new, granted)

    async def _steps(self, home: SimProcess, watch: Watch, new: NewTask, granted: Granted) -> None:
        chance, desk = self._chance, home.desk
        lease = granted.lease
        for number in range(STEPS):
            step = TaskId(f"t_{new.name}-{number}")
            if step in desk.tables.results and chance.random() < 0.9:
                continue  # its result is there: it is not run again
            if not self._calm():
                await home.sleep(chance.choice((0.0, 1.0, 20.0, 20.0, 200.0)))
            said = RecordStep(
                desk.new_command(),
                lease.task,
                lease.token,
                lease.agent,
                RunId(str(new.run)),
                step,
                "step",
                "null",
                f'"{lease.token}"',
                0,
            )
            twice = chance.random() < 0.2
            answers = await asyncio.gather(*(desk.record(watch, said) for _ in range(1 + twice)))
            if any(isinstance(answer, LeaseLost) for answer in answers) and chance.random() < 0.5:
                return  # the other half goes on, and must be refused each time
            if chance.random() < 0.03 and not self._calm():
                failure = Failure(ErrorClass.BUG, "the program broke")
                await desk.send(watch, Fail(desk.new_command(), lease.task, lease.token, lease.agent, failure))
                return
            if chance.random() < 0.02 and not self._calm():
                return  # killed: the hold is left behind
        if all(TaskId(f"t_{new.name}-{number}") in desk.tables.results for number in range(STEPS)):
            await desk.send(watch, Complete(desk.new_command(), lease.task, lease.token, lease.agent, '"all"'))

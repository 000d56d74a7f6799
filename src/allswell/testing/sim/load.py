"""Those who bring work to the watch and decide about it: submitters, humans, and someone who calls things off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from allswell.domain.command import Answer, Cancel, EndRun, NewTask, OpenRun, Submit
from allswell.domain.flow import FLOW_LEFT
from allswell.domain.names import AgentId, Millis, RunId, TaskId
from allswell.domain.policy import Policy
from allswell.domain.question import Question
from allswell.domain.retry import RetryPolicy
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.testing.sim.agents import ROLES
from allswell.testing.sim.desk import Sent, SimDesk

SERVICES = ("anthropic", "github", "search")
_PATIENCE = 300.0


class Load:
    """Everybody who is not an agent; they speak through whichever process is there."""

    def __init__(
        self, desk: SimDesk, chance: random.Random, watches: Callable[[], list[Watch]], agents: list[str]
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

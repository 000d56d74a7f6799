"""Programs that run durable flows in the simulated world: each flow has twelve steps, and several would run it at once.

A program takes a flow up, says its steps one after another or some at once, and repeats itself; it is cut off, sleeps
past its hold, dies with its process, fails, or goes on speaking after somebody else has gone on. What is recorded once
must stay as it is, whoever says what. In the calm at the end every flow has ended: finished, or called off by a
human.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from allswell.domain.claim import Granted
from allswell.domain.command import Complete, Fail, NewTask, RecordStep, TakeUp
from allswell.domain.flow import FLOW_ROLE
from allswell.domain.names import AgentId, RunId, TaskId
from allswell.domain.policy import Policy
from allswell.domain.retry import ErrorClass, Failure
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost
from allswell.testing.sim.process import Process

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

    async def work(self, home: Process) -> None:
        """Run flows, over and over, until the calm."""
        chance = self._chance
        while not self._calm():
            await home.sleep(10.0 * chance.randint(1, 60))
            watch = home.watch
            if watch is not None:
                await self._run(home, watch, f"flow-{chance.randint(0, FLOWS)}")

    async def _run(self, home: Process, watch: Watch, name: str) -> None:
        desk, self._runs = home.desk, self._runs + 1
        agent = AgentId(f"program-{self._number}.{self._runs}")
        run = RunId(f"r_{name}")
        # As a program sees it on its own machine: it runs one flow at a time, so an earlier holder of its own is dead.
        held = desk.tables.leases.get(TaskId(f"t_{name}"))
        mine = held is not None and held.agent.startswith(f"program-{self._number}.")
        dead = held.token if held is not None and mine and self._chance.random() < 0.7 else None
        new = NewTask(TaskId(f"t_{name}"), name, run, FLOW_ROLE, policy=_POLICY, flow=True)
        granted = await desk.send(watch, TakeUp(desk.new_command(), new, agent, _HOLD, dead))
        if not isinstance(granted, Granted):
            return
        if granted.lease.token > 1:
            desk.chronicle.met("a flow was taken up again")
        watch.hold(granted, asyncio.get_running_loop().time())
        await self._steps(home, watch, new, granted)

    async def _steps(self, home: Process, watch: Watch, new: NewTask, granted: Granted) -> None:
        chance, desk = self._chance, home.desk
        lease = granted.lease
        for number in range(STEPS):
            step = TaskId(f"t_{new.name}.{number}")
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
        if all(TaskId(f"t_{new.name}.{number}") in desk.tables.results for number in range(STEPS)):
            await desk.send(watch, Complete(desk.new_command(), lease.task, lease.token, lease.agent, '"all"'))

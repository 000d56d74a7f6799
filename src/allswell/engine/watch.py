"""The Python face of the watch: what programs and all other front doors call.

It translates (names to ids, durations to milliseconds, objects to JSON) and decides nothing. Whatever goes in and comes
out is plain values: the engine behind it, its store and its transactions are nobody else's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from allswell.domain.claim import Granted
from allswell.domain.command import (
    Answer,
    Cancel,
    EndRun,
    NewTask,
    Notice,
    OpenRun,
    Submit,
    TakeUp,
)
from allswell.domain.duration import Duration, parse
from allswell.domain.event import Event
from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.policy import Policy
from allswell.domain.request import FIGURES, MeshFigures
from allswell.engine.backend import Backend
from allswell.engine.budgeting import limit_run, money
from allswell.engine.deciding import Deciding
from allswell.engine.flow import FlowHold, new_flow
from allswell.engine.form import TaskMaker
from allswell.engine.ids import Ids, run_for_key
from allswell.engine.joining import Joining
from allswell.engine.mesh import Mesh
from allswell.engine.needs import with_ids
from allswell.engine.pace import Pace
from allswell.timing.clock import Clock
from allswell.timing.own_loop import OwnLoop

if TYPE_CHECKING:
    from allswell.engine.bulk import Submitted


def to_nobody(*_: object) -> None:
    """For whoever is not asked to hear."""


class Watch(Deciding):
    """An open watch: submit work, hold it, answer questions, look."""

    def __init__(
        self,
        engine: Backend,
        ids: Ids,
        *,
        policies: Mapping[str, Policy] | None = None,
        mesh: MeshFigures = FIGURES,
    ) -> None:
        super().__init__(engine, ids, Mesh(engine, ids, policies=policies or {}, figures=mesh, hold=self.hold))
        self._maker = TaskMaker(ids, policies or {})
        self._own_loop: OwnLoop | None = None

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        self._own_loop = OwnLoop()
        self._engine.start(self._renewing.work(), name="renewals")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own_loop = None
        await self._engine.__aexit__(kind, error, trace)

    # --- work -------------------------------------------------------------------------------------------------------

    async def submit(  # noqa: PLR0913 - all keywords, each a field of the task
        self,
        name: str,
        *,
        payload: object = None,
        role: str = "",
        services: Iterable[str] = (),
        priority: int = 0,
        needs: Iterable[str] = (),
        barred: Iterable[str] = (),
        run: str | None = None,
        not_before: int | None = None,
        critical: bool = False,
        if_need_fails: Literal["skip", "run"] = "skip",
        policy: Policy | None = None,
        timeout: Duration | None = None,
        idle: Duration | None = None,
        retries: int | None = None,
        max_cost_usd: float | None = None,
        verify: str | Sequence[str] | None = None,
        key: str | None = None,
    ) -> TaskId:
        """Hand a task to the watch; when this returns, it is durable. Under the same `key` it is made once.

        What it needs is named by id, or by name where only one task has it.
        """
        fields = {
            "payload": payload,
            "role": role,
            "services": services,
            "priority": priority,
            "needs": needs,
            "barred": barred,
            "run": run,
            "not_before": not_before,
            "critical": critical,
            "if_need_fails": if_need_fails,
            "policy": policy,
            "timeout": timeout,
            "idle": idle,
            "retries": retries,
            "max_cost_usd": max_cost_usd,
            "verify": verify,
            "key": key,
        }
        return (await self.submit_many([{"name": name, **fields}]))[0]

    async def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[TaskId]:
        """Hand over many tasks at once, all or none."""
        made = await self.prepare(tasks)
        await self.submit_prepared(made)
        return [new.id for new in made]

    async def submit_all(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        run_timeout: Duration | None = None,
        run_cost: float | None = None,
        told: Callable[[Sequence[TaskId]], None] = to_nobody,
        progress: Callable[[int, int | None], None] = to_nobody,
    ) -> Submitted:
        """Hand over any number of tasks in parcels; all are looked at before the first is handed over.

        `tasks` is gone through more than once, and where it can be, no more than a parcel is held at a time; a parcel
        is accepted whole or not at all. A task's `run` may be a name here: the run that is open under it is joined, or
        a new one opened, with `run_timeout` and `run_cost` (USD). `told` hears the ids, in the order of the tasks;
        `progress` how many were looked at, and then how many of how many were submitted.
        """
        from allswell.engine.bulk import Bulk

        joining = Joining(self.views, None if run_timeout is None else parse(run_timeout, where="run_timeout"))
        bulk = Bulk(
            self._maker,
            self.views,
            joining,
            submit=self.submit_prepared,
            open_run=lambda name, limit, key: self.open_run(name, timeout=limit, key=key, max_cost_usd=run_cost),
            told=told,
            progress=progress,
        )
        return await bulk.submit(list(tasks) if isinstance(tasks, Iterator) else tasks)

    async def prepare(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings, with ids, for `submit_prepared`; nothing is handed over yet."""
        made = self._maker.new_tasks(tasks)
        return await with_ids(self.views, made) if any(new.needs for new in made) else made

    async def submit_prepared(self, tasks: Sequence[NewTask]) -> None:
        """Hand over tasks that have their ids already, all or none; those that are there already stay as they are."""
        if tasks:
            await self._engine.do(Submit(self._ids.command(), tuple(tasks)))

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._maker.policy_for(role)

    async def cancel(self, task: str, reason: str = "cancelled", *, command: str | None = None) -> None:
        """Call a task off, whoever holds it."""
        await self._engine.do(Cancel(self._command(command), TaskId(task), reason))

    async def open_run(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        run: str | None = None,
        after: str | None = None,
        max_cost_usd: float | None = None,
    ) -> RunId:
        """Open a run; nothing in it outlives its timeout. Under the same `key` or `run` it is opened once.

        It goes on with the work of a run that has ended, if `after` names one.
        """
        limit = None if timeout is None else parse(timeout, where="timeout")
        id_ = RunId(run) if run is not None else self._ids.run() if key is None else run_for_key(key)
        command = self._ids.command() if run is key is None else CommandId(f"open.{id_}")
        before = None if after is None else RunId(after)
        await limit_run(self._engine, id_, max_cost_usd)
        return RunId(str(await self._engine.do(OpenRun(command, id_, name, limit, before))))

    async def end_run(self, run: str, reason: str = "ended", *, command: str | None = None) -> None:
        """End a run and everything in it that is still open."""
        await self._engine.do(EndRun(self._command(command), RunId(run), reason))

    async def answer(  # noqa: PLR0913 - all but three are keywords
        self,
        question: str,
        option: str,
        text: str = "",
        *,
        subtasks: Iterable[Mapping[str, Any]] = (),
        timeout: Duration | None = None,
        by: str = "",
        command: str | None = None,
        max_cost_usd: float | None = None,
    ) -> None:
        """Decide a question; the option acts."""
        row = await self.question(question)
        run = row.run if row is not None else None
        made = await self.prepare([{"run": run, **fields} for fields in subtasks])
        limit: Millis | None = None if timeout is None else parse(timeout, where="timeout")
        id_, cost = self._command(command), None if max_cost_usd is None else money(max_cost_usd, "max_cost_usd")
        await self._engine.do(Answer(id_, QuestionId(question), option, text, made, limit, by, cost))

    # --- for those who speak for others: supervisors, flows, the command line -----------------------------------------

    def new_run(self) -> RunId:
        """An id for a run that is to be opened later, by `open_run(…, run=…)`."""
        return self._ids.run()

    async def take_up(
        self, run: RunId, name: str, *, limit: int, length: int, agent: str, is_dead: Callable[[str], bool]
    ) -> FlowHold:
        """Take a Python flow up, made if it is new; `Refused` while somebody else runs it.

        `limit` bounds this attempt, `length` is how often the hold is renewed, both in ms. `is_dead` says of a holder
        whether it is certain that its process is gone; then its time is not waited out.
        """
        new = new_flow(run, name, limit)
        row = await self.task(new.id)
        dead: Token | None = None
        if row is not None and row.lease is not None and is_dead(row.lease.agent):
            dead = row.lease.token
        sent = asyncio.get_running_loop().time()
        granted = await self._engine.do(TakeUp(self._ids.command(), new, AgentId(agent), length, dead))
        return FlowHold(self._engine, run, self.hold(granted, sent) if isinstance(granted, Granted) else None)

    async def notice(self, event: Event) -> None:
        """Write into the journal what was seen or done; it changes nothing else."""
        await self._engine.do(Notice(self._ids.command(), event))

    async def recall(self, key: str) -> str | None:
        """What the watch keeps about itself under a key."""
        return await self._engine.store.recall(key)

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept under a key; False if that is not there any more."""
        return await self._engine.store.swap(key, before, after)

    async def sweep_once(self) -> bool:
        """Do now what is due: lapsed leases, reached limits, consequences. Whether nothing is left to do."""
        return await self._engine.sweep()

    # --- how it was opened --------------------------------------------------------------------------------------------

    @property
    def own_loop(self) -> OwnLoop | None:
        """Where it lives; None while it is not open."""
        return self._own_loop

    @property
    def pace(self) -> Pace:
        """How patient it is."""
        return self._engine.pace

    @property
    def clock(self) -> Clock:
        """The clock of this process that it goes by."""
        return self._engine.clock

    def draw(self) -> float:
        """A number by chance, from 0 to 1: repeatable where the watch is."""
        return self._engine.draw()

"""A unit of work: locks, reads, picks and hints. The methods are async for the port's sake and never suspend."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId
from allswell.domain.lease.clock_change import TOLERATED
from allswell.domain.mesh.request import awaited_requests
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Lane
from allswell.store.clock import DueTimer
from allswell.store.port import NOTHING, Lock, LockKind, RowChanges, RowRequest, Rows, lock_and_read_in_turn
from allswell.store.postgres.connection_thread import SQL, Session
from allswell.store.postgres.pipeline import Row, ServerAnswer, Statement
from allswell.store.postgres.read import (
    Pick,
    RowPlaces,
    RowReader,
    among,
    covers,
    fill_locked,
    fill_picked,
    fill_places,
    fill_waits,
    is_merged,
    locking,
    loose,
    picking,
)
from allswell.store.postgres.values import integers, lanes_of, services_of, task_of, texts
from allswell.store.postgres.write import writes

log = logging.getLogger(__name__)

Lanes = tuple[Sequence[Lane], dict[str, ServiceRow]]

_PICK_WIDTH = 2
_PICK_ROUNDS = 4
_PICK_WIDENING = 4
_ELAPSING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_FRESH = 60.0
"""Seconds in which two clocks go apart by less than a round trip."""


def _elapsed() -> float:
    """Seconds, those in which the machine slept too: the server has gone on meanwhile."""
    return time.clock_gettime(_ELAPSING)


class ServerClock:
    """The server's clock as this process has seen it; it does not go back, unless the server's was set back."""

    def __init__(self) -> None:
        self._latest = 0
        self._seen: tuple[int, float] | None = None
        """What it said, and when that was."""

    def see(self, moment: int) -> Millis:
        """The moment, or the latest seen if that is a little later; a server whose clock was set back is followed."""
        self._seen = moment, _elapsed()
        if self._latest - moment > TOLERATED:
            log.warning("the clock of the PostgreSQL server was set back by %d ms", self._latest - moment)
            self._latest = moment
        return self._at_least(moment)

    def guess(self) -> Millis:
        """What the server's clock says by now, going by how long ago it was last seen."""
        if self._seen is None:
            return self._at_least(0)
        moment, seen = self._seen
        return self._at_least(moment + int((_elapsed() - seen) * 1_000))

    @property
    def fresh(self) -> bool:
        """Whether it was seen so lately that a guess is as good as a look."""
        return self._seen is not None and _elapsed() - self._seen[1] < _FRESH

    def _at_least(self, moment: int) -> Millis:
        # Two desks may do this at once: the later of the two writes may lose, which is as if it had come first.
        latest = self._latest = max(self._latest, moment)
        return Millis(latest)


class PostgresTransaction:
    """One unit of work. What it writes is sent with the next question, the last of it together with the commit."""

    def __init__(self, session: Session, clock: ServerClock) -> None:
        self._session = session
        self._clock = clock
        self._moment: int | None = None
        self._ahead: tuple[Rows, bool] | None = None
        """What was read of picked tasks, for the question that follows a pick; whether with those who are barred."""
        self._lanes: Lanes | None = None
        """What was read of lanes and services, for the question that follows a look at the clock."""
        self._places = RowPlaces()
        self.call = NOTHING
        """What others are to be told of."""
        self.unsent: list[Statement] = []
        self.wrote = False
        self.repeatable = False
        """Whether it can simply be done again where it is not known if it was committed."""
        self.left = 0
        """How many rows it takes out of `ready`."""
        self.xid: int | None = None
        """What a lost commit will be asked about, once it is known."""

    def _ask_all(self, *statements: Statement) -> list[ServerAnswer]:
        """Send what waits to be written, then these, in one round trip."""
        self._moment = self._ahead = self._lanes = None
        unsent, self.unsent = self.unsent, []
        return self._session.ask(*unsent, *statements)[len(unsent) :]

    def _ask(self, name: str, *values: object) -> ServerAnswer:
        (answer,) = self._ask_all((SQL[name], values))
        return answer

    def number(self) -> int:
        """The number by which the server knows this transaction; asked for before it is committed."""
        (answer,) = self._session.ask((SQL["xid"], ()))
        return _one(answer)

    async def lock(
        self, kind: LockKind, ids: Sequence[str], *, skip: bool = False, shared: bool = False
    ) -> Sequence[str]:
        """Lock rows in the order of their ids; the clock is read right after, in the same round trip."""
        if not ids:
            return []
        locked, clock = self._ask_all(locking(kind, ids, skip=skip, shared=shared), (SQL["clock"], ()))
        self._moment = _one(clock)
        return _column(locked)

    async def lock_and_read(self, locks: Sequence[Lock], wanted: RowRequest) -> tuple[Millis, Rows]:
        """Lock and read what is locked, then the clock, in one round trip.

        Another one follows for open tasks that are not held, as most are: where they stand is in other tables, and must
        be read after the lock was granted. So is whether somebody waits for a task, which its lock covers too.
        """
        if len(locks) == 1 and locks[0].fresh and self._clock.fresh:
            self.repeatable = True
            return self._clock.guess(), Rows()
        if any(lock.skip for lock in locks):
            return await lock_and_read_in_turn(self, locks, wanted)
        reading = RowReader(wanted, without=[lock.kind for lock in locks])
        if not locks and not reading.statements:
            moment, self._lanes = self._look_at_the_lanes()  # a claim begins with this and asks for the lanes next
            return moment, Rows()
        asked = [locking(lock.kind, lock.ids, shared=lock.shared) for lock in locks]
        about = SQL["xid_and_clock" if locks else "clock"]
        *answers, numbers = self._ask_all(*asked, *reading.statements, (about, ()))
        *xid, moment = numbers.fetchall()[0]
        if xid:
            self.xid = xid[0]
        rows = Rows()
        for lock, answer in zip(locks, answers, strict=False):
            fill_locked(rows, lock.kind, answer, self._places)
        reading.fill(rows, answers[len(locks) :])
        if standing := loose(rows):
            ids = texts(standing)
            places, waits = self._ask_all((SQL["read_places"], (ids,)), (SQL["read_waits"], (ids,)))
            fill_places(rows, places)
            fill_waits(rows, waits)
        return self._clock.see(moment), rows

    def _look_at_the_lanes(self) -> tuple[Millis, Lanes]:
        """The clock, all lanes, and the services that something is or was held against; in one round trip."""
        ((lanes, services, moment),) = self._ask("lanes").fetchall()
        return self._clock.see(moment), (lanes_of(lanes), services_of(services))

    async def now(self) -> Millis:
        """The server's clock, read after the last lock was granted."""
        moment = self._moment
        if moment is None:
            moment = _one(self._ask("clock"))
        self._moment = None
        return self._clock.see(moment)

    async def read(self, wanted: RowRequest) -> Rows:
        """Rows as they are now, in one round trip."""
        if self._ahead is not None and covers(*self._ahead, wanted):
            return among(self._ahead[0], wanted)
        reading = RowReader(wanted)
        return reading.fill(Rows(), self._ask_all(*reading.statements) if reading.statements else [])

    async def write(self, changes: RowChanges) -> None:
        """Note what to write; it is sent before anything else is asked."""
        self.unsent += writes(changes, self._places)
        self.wrote = True
        self.left += len(changes.drop_ready)
        self._ahead = None

    async def lanes(self) -> Lanes:
        """All lanes, and the services that something is or was held against."""
        ahead, self._lanes = self._lanes, None  # good for one question: the next one sees what was committed since
        return self._look_at_the_lanes()[1] if ahead is None else ahead

    async def pick(
        self, lanes: Sequence[int], count: int, agent: AgentId | None, outside: Sequence[RunId] = ()
    ) -> Sequence[TaskId]:
        """Lock the best claimable tasks that nobody else has; look further down while others hold the best ones."""
        if not lanes or count < 1:
            return []
        wanted = Pick(tuple(lanes), count, agent, tuple(outside))
        width = count * _PICK_WIDTH
        rows = self._pick(wanted, width)
        for _ in range(_PICK_ROUNDS - 1 if is_merged(wanted) else 0):
            if len(rows.tasks) == count or _one(self._ask("count_ready", integers(lanes), width)) < width:
                break
            width *= _PICK_WIDENING
            rows = self._pick(wanted, width)
        self._ahead = rows, agent is None
        return list(rows.tasks)

    def _pick(self, wanted: Pick, width: int) -> Rows:
        picked, number = self._ask_all(picking(wanted, width), (SQL["known_xid"], ()))
        self.xid = number.fetchall()[0][0]
        return fill_picked(Rows(), picked, self._places)

    async def beside(self, query: str, *values: object) -> list[Row]:
        """A statement of a neighbour in the same database, in this unit of work; the rows that it gives.

        It is the worker's (docs/adr/0046): a message leaves its queue together with the question about it.
        """
        self.wrote = True
        (answer,) = self._ask_all((query, values))
        return answer.fetchall()

    async def find_due(self, now: Millis, limit: int) -> Sequence[DueTimer]:
        """Timers that have fallen due, the oldest first."""
        return [DueTimer(*row) for row in self._ask("find_due", now, limit).fetchall()]

    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        return _column(self._ask("find_spreads", limit))

    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        return [TaskId(task) for task in _column(self._ask("find_waiting", target, limit))]

    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        return [TaskId(task) for task in _column(self._ask("find_open", run, limit))]

    async def runs(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        """Runs as they are committed, or as written by this transaction."""
        return {row[0]: Run(*row) for row in self._ask("read_runs", texts(ids)).fetchall()}

    async def find_runs(self, tasks: Sequence[TaskId]) -> dict[TaskId, RunId]:
        """In which runs these tasks are."""
        return dict(self._ask("find_runs", texts(tasks)).fetchall())

    async def find_held(self, run: RunId, after: str, limit: int) -> Sequence[TaskId]:
        """Tasks of a run that somebody holds, by id."""
        return [TaskId(task) for task in _column(self._ask("find_held", run, after, limit))]

    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        return [QuestionId(question) for question in _column(self._ask("find_questions", task))]

    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made."""
        _, found = self._ask_all((SQL["lock_claim"], (command,)), (SQL["find_claimed"], (command,)))
        return [TaskId(task) for task in _column(found)]

    async def find_target(self, task: TaskId) -> Sequence[str]:
        """A task's role, and who holds it."""
        return [name for row in self._ask("find_target", task).fetchall() for name in row if name is not None]

    async def find_asking(self) -> Sequence[AwaitedRequest]:
        """Which agents wait for an answer of which; whoever asks next waits for the end of this."""
        _, found = self._ask_all((SQL["lock_asking"], ()), (SQL["find_asking"], ()))
        return awaited_requests(
            map(task_of, found.fetchall()), lambda ids: dict(self._ask("find_tokens", texts(ids)).fetchall())
        )

    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id, for a walk over all of them."""
        return [TaskId(task) for task in _column(self._ask("find_leases", after, limit))]


def _column(answer: ServerAnswer) -> list[str]:
    return [row[0] for row in answer.fetchall()]


def _one(answer: ServerAnswer) -> int:
    return int(answer.fetchall()[0][0])

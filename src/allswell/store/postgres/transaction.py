"""A unit of work: locks, reads, picks and hints. The methods are async for the port's sake and never suspend."""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, RunId, TaskId
from allswell.domain.task import Lane
from allswell.store.port import Changes, Due, Kind, Rows, Wanted
from allswell.store.postgres.connection import Answer, Statement
from allswell.store.postgres.read import read_rows
from allswell.store.postgres.session import SQL, Session
from allswell.store.postgres.values import integers, lane_of, texts
from allswell.store.postgres.write import write_changes

_PICK_WIDTH = 2
_PICK_ROUNDS = 4
_PICK_WIDENING = 4


class Clock:
    """The server's clock as this process has seen it; it never goes back."""

    def __init__(self) -> None:
        self._latest = 0

    def see(self, moment: int) -> Millis:
        """The moment, or the latest seen if that is later."""
        # Two desks may do this at once: the later of the two writes may lose, which is as if it had come first.
        latest = self._latest = max(self._latest, moment)
        return Millis(latest)


class PostgresTransaction:
    """One unit of work; `mark` is the statement whose answer its commit is known by."""

    def __init__(self, session: Session, clock: Clock, mark: Statement) -> None:
        self._session = session
        self._clock = clock
        self._mark = mark
        self._moment: int | None = None
        self.xid: int | None = None
        """Set once something was written."""

    def _ask(self, name: str, *values: object) -> Answer:
        self._moment = None
        (answer,) = self._session.ask((SQL[name], values))
        return answer

    async def lock(self, kind: Kind, ids: Sequence[str], *, skip: bool = False, shared: bool = False) -> Sequence[str]:
        """Lock rows in the order of their ids; the clock is read right after, in the same round trip."""
        if not ids:
            return []
        query = f"{SQL[f'lock_{kind}']} FOR {'SHARE' if shared else 'UPDATE'}{' SKIP LOCKED' if skip else ''}"
        locked, clock = self._session.ask((query, (texts(ids),)), (SQL["clock"], ()))
        self._moment = _one(clock)
        return _column(locked)

    async def now(self) -> Millis:
        """The server's clock, read after the last lock was granted."""
        moment = self._moment
        if moment is None:
            moment = _one(self._ask("clock"))
        self._moment = None
        return self._clock.see(moment)

    async def read(self, wanted: Wanted) -> Rows:
        """Rows as they are now, in one round trip."""
        self._moment = None
        return read_rows(self._session, wanted)

    async def write(self, changes: Changes) -> None:
        """Write every table once, in one round trip."""
        self._moment = None
        self.xid = write_changes(self._session, changes, self._mark)

    async def lanes(self) -> tuple[Sequence[Lane], dict[str, Millis]]:
        """All lanes, and until when each parked service is parked."""
        self._moment = None
        lanes, parked = self._session.ask((SQL["lanes"], ()), (SQL["parked"], ()))
        return [lane_of(row) for row in lanes.fetchall()], dict(parked.fetchall())

    async def pick(self, lanes: Sequence[int], count: int, agent: AgentId | None) -> Sequence[TaskId]:
        """Lock the best claimable tasks that nobody else has; look further down while others hold the best ones."""
        if not lanes or count < 1:
            return []
        width = count * _PICK_WIDTH
        alive: list[TaskId] = []
        for _ in range(_PICK_ROUNDS):
            barred = () if agent is None else (agent,)
            name = "pick" if agent is None else "pick_allowed"
            locked = _column(self._ask(name, integers(lanes), width, count, *barred))
            if locked:
                # A task that was claimed between our snapshot and our lock has no ready row any more.
                ready = set(_column(self._ask("still_ready", texts(locked))))
                alive = [TaskId(task) for task in locked if task in ready]
            if len(alive) == count or _one(self._ask("count_ready", integers(lanes), width)) < width:
                break
            width *= _PICK_WIDENING
        return alive

    async def find_due(self, now: Millis, limit: int) -> Sequence[Due]:
        """Timers that have fallen due, the oldest first."""
        return [Due(*row) for row in self._ask("find_due", now, limit).fetchall()]

    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        return _column(self._ask("find_spreads", limit))

    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        return [TaskId(task) for task in _column(self._ask("find_waiting", target, limit))]

    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        return [TaskId(task) for task in _column(self._ask("find_open", run, limit))]

    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        return [QuestionId(question) for question in _column(self._ask("find_questions", task))]

    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made."""
        return [TaskId(task) for task in _column(self._ask("find_claimed", command))]

    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id, for a walk over all of them."""
        return [TaskId(task) for task in _column(self._ask("find_leases", after, limit))]


def _column(answer: Answer) -> list[str]:
    return [row[0] for row in answer.fetchall()]


def _one(answer: Answer) -> int:
    return int(answer.fetchall()[0][0])

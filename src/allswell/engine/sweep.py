"""What happens by itself: timers that fall due, and consequences that are worked off in chunks.

Any number of sweepers may run, in any number of processes; none is leader. What one finds is a hint: it is locked
(skipping what another has), read again, and decided by the core, which re-arms a timer that was found too early.

Telling dependents that their need has ended, withdrawing questions and ending a run's tasks are spreads: written with
their cause, worked off here a chunk at a time, so no batch ever has to lock rows it did not name.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allswell.domain.answer import end_with_run, need_ended, with_parts_of, withdraw
from allswell.domain.case import event, resume_clock
from allswell.domain.decide import Tick, decide, held_to_table
from allswell.domain.ending import tick_run
from allswell.domain.event import Event
from allswell.domain.names import AgentId, QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import MOVED, Run, Spread, run_of_move
from allswell.domain.task import State
from allswell.domain.tick import move_limit, one_more_window
from allswell.engine.batch import Performed
from allswell.engine.book import Book, News
from allswell.store.own_clock import Due
from allswell.store.port import Kind, Transaction, Wanted

CHUNK = 500
"""The most rows that one transaction of a sweeper touches."""


async def look(tx: Transaction) -> tuple[Sequence[Due], Sequence[str]]:
    """What has fallen due, and which consequences are waiting. Only hints: nothing is locked."""
    now = await tx.now()
    return await tx.find_due(now, CHUNK), await tx.find_spreads(CHUNK)


async def find_spreads(tx: Transaction) -> Sequence[str]:
    """Which consequences are waiting."""
    return await tx.find_spreads(CHUNK)


async def tick(tx: Transaction, dues: Sequence[Due]) -> Performed:
    """Let time pass for these timers' owners; the number that were handled is the answer."""
    due_runs = {RunId(due.owner) for due in dues if due.owner.startswith("r_")}
    agents = sorted({due.agent for due in dues if due.agent is not None})
    tasks = sorted({due.owner for due in dues if due.owner.startswith("t_")})
    held = sorted({TaskId(due.owner) for due in dues if due.agent is not None})
    run_of = await tx.find_runs(held) if held else {}
    runs = sorted({*due_runs, *run_of.values()})
    wanted = Wanted()
    if runs:
        wanted.runs = [RunId(id_) for id_ in await tx.lock(Kind.RUN, runs)]
    if agents:
        wanted.agents = [AgentId(id_) for id_ in await tx.lock(Kind.AGENT, agents)]
    if tasks:
        wanted.tasks = [TaskId(id_) for id_ in await tx.lock(Kind.TASK, tasks, skip=True)]
    if wanted.tasks:
        wanted.leases = [TaskId(id_) for id_ in await tx.lock(Kind.LEASE, wanted.tasks)]
        wanted.awaited = wanted.tasks
    now = await tx.now()
    book = Book(await tx.read(wanted), now)
    handled = 0
    in_other_hands = {run for task, run in run_of.items() if task not in book.cases}
    for id_ in wanted.tasks:
        case = book.cases[id_]
        agent = None if case.lease is None else case.lease.agent
        if agent is not None and (agent not in agents or (case.task.run is not None and id_ not in run_of)):
            continue  # claimed by another since we looked; its timer will be found again
        if agent is not None:
            case = replace(case, agent=book.agents.get(agent))
        book.apply(decide(case, Tick(id_), now, 0.0, book.run_of(case.task)), agent)
        handled += 1
    for run in sorted(due_runs & book.rows.runs.keys() - in_other_hands):
        _tick_run(book, book.rows.runs[run])
        handled += 1
    await book.write(tx)
    return Performed([handled], book.news)


def _tick_run(book: Book, run: Run) -> None:
    """Let time pass for a run, after its tasks: what they ask may have stopped its clock in this very moment."""
    ended = tick_run(run, book.now)
    if ended is not None:
        book.enter_run(ended[0])
        book.changes.new_spreads.append(ended[1])
        book.changes.events += ended[2]
    elif run.ended_at is not None or run.limit is None:
        book.changes.drop_timers.append(run.id)
    else:
        book.changes.timers.append((run.id, run.limit))


async def spread(tx: Transaction, id_: str) -> Performed:
    """Work off one chunk of a consequence; the answer is whether there was anything to do."""
    locked = await tx.lock(Kind.SPREAD, [id_], skip=True)
    if not locked:
        return Performed([False], News())
    row = (await tx.read(Wanted(spreads=locked))).spreads[id_]
    if row.outcome == MOVED:
        return await _move_limits(tx, row)
    if id_.startswith("r_"):
        return await _end_tasks_of_run(tx, row)
    return await _tell_dependents(tx, row)


async def _tell_dependents(tx: Transaction, row: Spread) -> Performed:
    ended = TaskId(row.id)
    questions = await tx.find_questions(ended)
    waiting = await tx.find_waiting(ended, CHUNK)
    wanted = Wanted()
    if questions:
        runs = sorted((await tx.find_runs([ended])).values())
        wanted.runs = [RunId(id_) for id_ in await tx.lock(Kind.RUN, runs)] if runs else []
        wanted.questions = [QuestionId(id_) for id_ in await tx.lock(Kind.QUESTION, sorted(questions))]
    concerned = sorted({*waiting, *row.replaced_by}) if waiting else []
    if concerned:
        wanted.tasks = [TaskId(id_) for id_ in await tx.lock(Kind.TASK, concerned)]
        wanted.awaited = wanted.tasks
    now = await tx.now()
    book = Book(await tx.read(wanted), now)
    parts = {id_: book.cases[id_].task for id_ in row.replaced_by if id_ in book.cases}
    if State.SPLIT in {part.state for part in parts.values()}:
        # A part was split itself before anybody was told: its own parts stand in for it, and are locked next time.
        book.changes.drop_spreads.append(row.id)
        book.changes.new_spreads.append(with_parts_of(row, parts))
        await book.write(tx)
        return Performed([True], book.news)
    replacements = {id_: part.state for id_, part in parts.items()}
    for question in book.rows.questions.values():
        if question.closed_at is None:
            _withdraw(book, question)
    for id_ in sorted(waiting):
        case = book.cases[id_]
        book.apply(held_to_table(case, need_ended(case, row, replacements, now)))
    if len(waiting) < CHUNK:
        book.changes.drop_spreads.append(row.id)
    await book.write(tx)
    return Performed([True], book.news)


def _withdraw(book: Book, question: Question) -> None:
    book.changes.questions.append(withdraw(question, book.now))
    told = {"question": question.id}
    book.changes.events.append(Event("question_withdrawn", question.task, question.run, None, None, told))
    run = None if question.run is None else book.rows.runs.get(question.run)
    if run is not None:
        after, events = resume_clock(run, question, book.now)
        book.enter_run(after)
        book.changes.events += events


async def _move_limits(tx: Transaction, row: Spread) -> Performed:
    """Tell the holders of a run's tasks that its clock has stopped or gone on: their leases get the limit of now."""
    run = run_of_move(row)
    found = await tx.find_held(run, row.reason, CHUNK)
    wanted = Wanted(runs=[RunId(id_) for id_ in await tx.lock(Kind.RUN, [run], shared=True)])
    if found:
        wanted.tasks = [TaskId(id_) for id_ in await tx.lock(Kind.TASK, sorted(found))]
        wanted.leases = [TaskId(id_) for id_ in await tx.lock(Kind.LEASE, wanted.tasks)]
    book = Book(await tx.read(wanted), await tx.now())
    for id_ in wanted.tasks:
        case = book.cases[id_]
        book.apply(held_to_table(case, move_limit(case, book.rows.runs[run])))
    book.changes.drop_spreads.append(str(row.id))
    if len(found) == CHUNK:
        book.changes.new_spreads.append(replace(row, reason=max(found)))
    await book.write(tx)
    return Performed([True], book.news)


async def _end_tasks_of_run(tx: Transaction, row: Spread) -> Performed:
    """End what is still open in a run. Done only when a look finds nothing: a split may have added tasks meanwhile."""
    found = await tx.find_open(RunId(row.id), CHUNK)
    wanted = Wanted()
    if found:
        wanted.tasks = [TaskId(id_) for id_ in await tx.lock(Kind.TASK, sorted(found))]
        wanted.leases = [TaskId(id_) for id_ in await tx.lock(Kind.LEASE, wanted.tasks)]
        wanted.awaited = wanted.tasks
    now = await tx.now()
    book = Book(await tx.read(wanted), now)
    for id_ in wanted.tasks:
        case = book.cases[id_]
        book.apply(held_to_table(case, end_with_run(case, row, now)))
    if not found:
        book.changes.drop_spreads.append(row.id)
    await book.write(tx)
    return Performed([True], book.news)


async def wake_up(tx: Transaction, after: str, jumped: int) -> Performed:
    """Give a chunk of leases one more window after the clock jumped; the answer is where the walk goes on."""
    found = await tx.find_leases(TaskId(after), CHUNK)
    if not found:
        return Performed([None], News())
    wanted = Wanted(tasks=[TaskId(id_) for id_ in await tx.lock(Kind.TASK, sorted(found))])
    wanted.leases = [TaskId(id_) for id_ in await tx.lock(Kind.LEASE, wanted.tasks)]
    now = await tx.now()
    book = Book(await tx.read(wanted), now)
    for id_ in wanted.leases:
        case = book.cases[id_]
        book.cases[id_] = one_more_window(case, now)
        book.changes.events.append(event(case.task, "clock_jumped", case.lease, by_ms=jumped))
    await book.write(tx)
    return Performed([found[-1]], book.news)

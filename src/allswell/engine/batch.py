"""One batch of commands, from locks to commit.

Lock every row the commands name (kind by kind, sorted), read the clock, read the rows, decide the named commands in
their order, write; then pick claimable tasks (nothing waits after that), decide the claims, write. The order is the
whole art; `store/port.py` says why.

Each command gets its own answer. A refused one disturbs no other: decisions change nothing until they are entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from allswell.domain import serving
from allswell.domain.answer import answer
from allswell.domain.case import Case, Outcome, RunUnread
from allswell.domain.claim import check_claim
from allswell.domain.command import (
    Admit,
    Answer,
    AskForHelp,
    Cancel,
    Claim,
    Command,
    Complete,
    Delegate,
    EndRun,
    Fail,
    HolderCommand,
    NewTask,
    Notice,
    OpenRun,
    Park,
    Report,
    ServiceCommand,
    Submit,
    TakeUp,
    Word,
)
from allswell.domain.decide import Tick, decide, held_to_table
from allswell.domain.ending import end_run, open_run
from allswell.domain.flow import give_up_the_dead, take_up
from allswell.domain.lease import ends_at
from allswell.domain.names import NO_COMMAND, Millis, QuestionId, RunId, TaskId
from allswell.domain.notice import check_notice
from allswell.domain.question import Question
from allswell.domain.service import open_question
from allswell.domain.submit import accept, awaited_among, check_name, check_needs, check_run, check_task, digest
from allswell.domain.task import Origin
from allswell.engine.book import Book, News
from allswell.engine.claims import Granted, given_before, grants, hand_out
from allswell.engine.plan import Plan, ordered
from allswell.errors import AllswellError, Bug, Refused
from allswell.store.port import Conflict, Transaction, Wanted

Lanes = Mapping[tuple[str, tuple[str, ...]], int]
"""The lane of each (role, services) that the batch submits to."""
Commands = Sequence[Command | Claim]


class Performed(msgspec.Struct):
    """What a unit of work came to: an answer or an error for each command, and what others should know."""

    answers: list[object]
    news: News


async def perform(
    tx: Transaction, commands: Commands, lanes: Lanes, draw: Callable[[], float], *, careful: bool = False
) -> Performed:
    """Decide a batch; the answers, or the errors, in the order of the commands. `careful`: it may have been done."""
    plan = Plan(commands)
    claimed_before = await _claimed_before(tx, commands, plan)
    await plan.find_runs(tx, careful=careful)
    payloads = [id_ for tasks in claimed_before.values() for id_ in tasks] if claimed_before else []
    now, rows = await plan.take(tx, payloads, careful=careful)
    book = Book(rows, now)
    await _read_more(tx, commands, book)
    answers: list[object] = [None] * len(commands)
    claims: list[tuple[int, Claim]] = []
    first: dict[str, int] = {}
    repeated: list[tuple[int, int]] = []  # claims that came twice in this batch: where, and where the first stands
    for place, command in enumerate(commands):
        try:
            if type(command) is Claim:
                check_claim(command)
                if claimed_before and (earlier := given_before(book, command, claimed_before.get(command.id, ()))):
                    answers[place] = grants(book, earlier)
                elif command.id != NO_COMMAND and first.setdefault(command.id, place) != place:
                    repeated.append((place, first[command.id]))
                else:
                    claims.append((place, command))
            else:
                answers[place] = _decide(book, command, lanes, draw)
        except AllswellError as error:
            answers[place] = error
        except RunUnread as unread:
            raise Conflict(f"the run of {unread} is concerned too, and was not locked") from unread
        except Exception as error:  # noqa: BLE001 - a bug in one decision must not take its neighbours along
            answers[place] = Bug(f"deciding {type(command).__name__} failed: {error!r}")
    if len(claims) < len(commands):  # claims have decided nothing yet
        await book.write(tx)
    if claims:
        await hand_out(tx, book, claims, answers)
    for place, earlier_place in repeated:
        answers[place] = answers[earlier_place]
    return Performed(answers, book.news)


async def _read_more(tx: Transaction, commands: Commands, book: Book) -> None:
    """What only the rows themselves name: attempts that are over, and the open questions about services.

    Commands whose token is not the current one may be repetitions, or late. A service's lock covers its questions.
    """
    past = []
    rows, cases = book.rows, book.cases
    asked: list[QuestionId] = []
    if rows.services:
        asked += [id_ for row in rows.services.values() if (id_ := open_question(row)) is not None]
    for command in commands:
        if isinstance(command, Word):
            if (case := cases.get(command.task)) is None:
                continue
            lease = case.lease
            # A token that no column can hold was never given out, and must reach no store.
            if (lease is None or lease.token != command.token) and command.token.bit_length() < 63:
                past.append((command.task, command.token))
        elif isinstance(command, TakeUp) and (case := cases.get(command.flow.id)) is not None:
            # A task's lock covers its questions.
            asked += [QuestionId(wait.target) for wait in case.waits if wait.kind == "question"]
    if past or asked:
        found = await tx.read(Wanted(attempts=past, questions=asked))
        rows.attempts.update(found.attempts)
        rows.questions.update(found.questions)


async def _claimed_before(tx: Transaction, commands: Commands, plan: Plan) -> dict[str, Sequence[TaskId]]:
    found: dict[str, Sequence[TaskId]] = {}
    named = [command.id for command in commands if type(command) is Claim and command.id != NO_COMMAND]
    for id_ in ordered(named):
        tasks = await tx.find_claimed(id_)
        if tasks:
            found[id_] = tasks
            plan.tasks.update(dict.fromkeys(tasks))
            plan.held.update(dict.fromkeys(tasks))
    return found


def _decide(book: Book, command: Command, lanes: Lanes, draw: Callable[[], float]) -> object:
    if isinstance(command, Word):
        return _decide_held(book, command, lanes, draw)
    match command:
        case Submit():
            return _submit(book, command.tasks, lanes)
        case Cancel():
            out = decide(_case(book, command.task), command, book.now, 0.0)
            book.apply(out)
            return out.answer
        case Answer():
            return _answer(book, command, lanes)
        case OpenRun():
            return _open_run(book, command)
        case EndRun():
            return _end_run(book, command)
        case Admit() | Report() | Park() | AskForHelp():
            return _serve(book, command)
        case TakeUp():
            return _take_up(book, command, lanes)
        case Notice():
            check_notice(command.event)
            book.changes.events.append(command.event)
            return None
        case _:
            assert_never(command)


def _decide_held(book: Book, command: HolderCommand, lanes: Lanes, draw: Callable[[], float]) -> object:
    task = command.task
    done = isinstance(command, Complete)
    if not done and isinstance(command, Delegate) and (known := book.cases.get(command.request.id)) is not None:
        return _delegated_before(known, command)
    case = book.cases.get(task)
    if case is None:
        raise _no_such_task(task)
    agent = book.agents.get(command.agent)
    lease = case.lease
    past = None if lease is not None and lease.token == command.token else book.ended(task, command.token)
    if agent is not case.agent or past is not case.past:
        case = replace(case, agent=agent, past=past)
    chance = draw() if not done and isinstance(command, Fail) else 0.0
    out = decide(case, command, book.now, chance, book.run_of(case.task))
    made = None
    if out.request is not None:
        new, limit, origin = out.request
        made = _accept(book, new, lanes, limit, {new.id: 0}, origin)
    book.apply(out, command.agent)
    if made is not None and out.request is not None:
        book.accept(made, out.request[0].payload, out.request[0].barred)
    if out.park_until is not None and isinstance(command, Fail):
        book.park(command.failure, out.park_until)
    return out.error if out.error is not None else out.answer


def _delegated_before(known: Case, command: Delegate) -> TaskId:
    origin = known.task.spec.origin
    if origin is None or origin.command != command.id:
        raise Refused("id_taken", f"task {command.request.id} exists already and is another one", where="id")
    return known.task.id


def _case(book: Book, task: TaskId) -> Case:
    case = book.cases.get(task)
    if case is None:
        raise _no_such_task(task)
    return case


def _no_such_task(task: TaskId) -> Refused:
    return Refused("unknown_task", f"there is no task {task}", where="task")


def _submit(book: Book, tasks: Sequence[NewTask], lanes: Lanes) -> list[TaskId]:
    for new in tasks:
        check_task(new)
    check_needs(tasks)
    fresh = awaited_among([new for new in tasks if new.id not in book.cases])
    accepted = []
    for new in tasks:
        known = book.cases.get(new.id)
        if known is not None:
            if known.task.spec.digest != digest(new):
                raise Refused("id_taken", f"task {new.id} exists already and is a different one", where="id")
            continue
        if new.run is not None:
            check_run(book.rows.runs.get(new.run), new.run)
        accepted.append((_accept(book, new, lanes, None, fresh), new))
    for out, new in accepted:
        book.accept(out, new.payload, new.barred)
    return [new.id for new in tasks]


def _accept(
    book: Book,
    new: NewTask,
    lanes: Lanes,
    limit: Millis | None,
    fresh: Mapping[TaskId, int],
    origin: Origin | None = None,
) -> Outcome:
    needed = {need: book.cases[need].task for need in new.needs if need in book.cases} if new.needs else {}
    return accept(new, lanes[(new.role, new.services)], limit, needed, fresh, book.now, origin)


def _answer(book: Book, command: Answer, lanes: Lanes) -> object:
    question = book.rows.questions.get(command.question)
    if question is None:
        raise Refused("unknown_question", f"there is no question {command.question}", where="question")
    if question.task is None:
        return _answer_about_service(book, question, command)
    case = _case(book, question.task)
    out, closed = answer(case, question, command, book.now, book.run_of(case.task))
    held_to_table(case, out)
    if closed is question:
        return out.answer
    subtasks = []
    if out.case.task.state == "split":
        fresh = awaited_among(command.subtasks)
        for new in command.subtasks:
            check_task(new)
            if new.run != case.task.run:
                raise Refused("wrong_run", f"{new.name} must be in the run of the task it replaces", where="subtasks")
            if new.id in book.cases or not fresh.keys() >= set(new.needs):
                raise Refused("bad_subtask", f"{new.name} may need only its fellow subtasks", where="subtasks")
        check_needs(command.subtasks)
        subtasks = [(_accept(book, new, lanes, None, fresh), new) for new in command.subtasks]
    book.apply(out)
    for made, new in subtasks:
        book.accept(made, new.payload, new.barred)
    book.close(closed)
    return out.answer


def _answer_about_service(book: Book, question: Question, command: Answer) -> object:
    if question.service is None:
        raise Bug(f"question {question.id} is about nothing")
    decided = serving.answer(book.service(question.service), question, command, book.now)
    book.enter(decided)
    return decided.answer


def _serve(book: Book, command: ServiceCommand) -> object:
    """A word about a service: decided by its machine, on the row as this batch has left it."""
    name = command.permit.service if isinstance(command, Report) else command.service
    check_name(name, "service")
    row = book.service(name)
    asked = open_question(row)
    question = None if asked is None else book.rows.questions.get(asked)
    decided = serving.decide(row, question, command, book.now)
    book.enter(decided)
    return decided.answer


def _open_run(book: Book, command: OpenRun) -> RunId:
    known = book.rows.runs.get(command.run)
    if known is not None:
        if known.command == command.id:
            return known.id
        raise Refused("id_taken", f"run {command.run} exists already", where="run")
    check_name(command.name, "name")
    run, events = open_run(command, book.now)
    book.enter_run(run)
    book.changes.events += events
    book.go_on(command.after, run.id)
    return run.id


def _end_run(book: Book, command: EndRun) -> RunId:
    run = book.rows.runs.get(command.run)
    if run is None:
        raise Refused("unknown_run", f"there is no run {command.run}", where="run")
    if run.ended_at is not None and run.command == command.id:
        return run.id
    ended, spread, events = end_run(run, command, book.now)
    book.enter_run(ended)
    book.changes.new_spreads.append(spread)
    book.changes.events += events
    return run.id


def _take_up(book: Book, command: TakeUp, lanes: Lanes) -> Granted | None:
    """Make a flow's run and task, or free it of a holder that is gone; then give it to whoever runs it now."""
    new = command.flow
    check_claim(Claim(command.id, command.agent, length=command.length))
    if new.run is None or not new.flow:
        raise Bug(f"{new.name} is no flow of a run")
    case = book.cases.get(new.id)
    if case is None:
        return _begin_flow(book, new, command, lanes)
    lease = case.lease
    if lease is not None and book.now >= ends_at(lease):
        book.apply(decide(case, Tick(new.id), book.now, 0.0, book.run_of(case.task)))
    elif (gone := give_up_the_dead(case, command, book.now, book.run_of(case.task))) is not None:
        book.apply(held_to_table(case, gone))
    case = book.cases[new.id]
    out, closed = take_up(case, _about_its_leaving(book, case), command, book.now, book.run_of(case.task))
    book.apply(out)
    if closed is not None:
        book.close(closed)
    return _granted(book, out, new)


def _begin_flow(book: Book, new: NewTask, command: TakeUp, lanes: Lanes) -> Granted | None:
    check_task(new)
    run = RunId(str(new.run))
    known = book.rows.runs.get(run)
    if known is None:
        _open_run(book, OpenRun(command.id, run, new.name))
    check_run(book.rows.runs.get(run), run)
    out = _accept(book, new, lanes, None, {new.id: 0})
    begun, _ = take_up(out.case, None, command, book.now, book.rows.runs.get(run))
    begun.events[:0] = out.events
    book.accept(begun, new.payload, ())
    return _granted(book, begun, new)


def _about_its_leaving(book: Book, case: Case) -> Question | None:
    asked = [wait.target for wait in case.waits if wait.kind == "question"]
    return book.question(QuestionId(asked[0])) if asked else None


def _granted(book: Book, out: Outcome, new: NewTask) -> Granted | None:
    lease = out.case.lease
    return None if lease is None else Granted(lease, out.case.task, new.payload, book.now)

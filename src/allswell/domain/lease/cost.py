"""What follows from what attempts cost: it is kept with the attempt, and limits are held to.

A task has a limit of its own (`max_cost_usd` of its policy, raised by a human). When the attempts at it have reached
it, nobody goes on with it before a human has said so: whoever supervises the attempt ends it, with its work kept, and
says `EndCostly`; where the attempt is over already, the task is taken out of the pool.

A role, a run and a day have limits too. At one of them nobody is given work under it: a row like that of a service is
shut, until the day is over or for good, and one human is asked. Lanes are held to it by `budgets_of`.

Sums are always those of the rows of attempts. Nothing is counted twice, and a report that comes again replaces the one
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from allswell.domain.agents.cost import Expense, ExpenseRow, shown, together
from allswell.domain.ids import CommandId, Millis, service_question_id
from allswell.domain.question import MORE_MONEY, SKIP, AnswerAction, Option, Question
from allswell.domain.rules.command import Command, LeaseCommand
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowReads, RowSnapshot, Rule
from allswell.domain.service.service import ServiceRow, park
from allswell.domain.task.aggregate import QuestionDraft, TaskChange, ask, end_attempt, event, requeue
from allswell.domain.task.model import OPEN, Task
from allswell.domain.task.submit import BUDGETS
from allswell.errors import LeaseLost, Refused

COST_LIMIT = "cost_limit"
"""How an attempt ended that was too dear; also the kind of the question about its task."""
BUDGET = "budget_reached"
"""The kind of the question about a role, a run or a day."""
COSTLY_OPTIONS = (MORE_MONEY, SKIP)
BUDGET_OPTIONS = (
    Option("go_on", "Go on: spend as much again before you are asked again", AnswerAction.PROBE),
    Option("wait", "Wait: nothing is begun under this limit until its day is over", AnswerAction.WAIT),
)
RUN_OPTIONS = (BUDGET_OPTIONS[0], Option("wait", "Leave it: nothing more is begun in this run", AnswerAction.WAIT))
"""A run has no day that could be over."""


class Spend(LeaseCommand, frozen=True, gc=False):
    """What an attempt has cost so far, as its supervisor has read it; it may come after the lease has ended."""

    expense: Expense
    while_held: bool = False
    """Whether it counts only as long as the lease lasts: from whoever is an agent, and supervises nobody."""


class EndCostly(LeaseCommand, frozen=True, gc=False):
    """The supervisor has ended an attempt because its task has cost too much: take it back, and ask a human."""


class ReachBudget(Command, frozen=True, gc=False):
    """So much was spent under a role, a run or a day; what follows is decided here."""

    id: CommandId
    budget: str
    """As `budget_of` names it."""
    spent: int
    limit: int
    """Millionths of a dollar."""
    until: Millis | None
    """When its day is over; None: it has none, and only a human's word opens it."""
    name: str = ""
    """What people call it, where that is not in `budget`: a run's name."""


def limit_of(task: Task) -> int | None:
    """What a task may cost, in millionths of a dollar; None: anything."""
    return task.record.cost_override or task.spec.policy.max_cost


def is_over(task: Task, rows: Sequence[ExpenseRow]) -> bool:
    """Whether the attempts at a task have reached what it may cost; what nobody reports reaches nothing."""
    limit, cost = limit_of(task), together(rows).cost
    return limit is not None and cost is not None and cost >= limit


# --- what an attempt cost ---------------------------------------------------------------------------------------------


def spend(situation: RowSnapshot, command: Spend) -> Decision:
    """Keep what an attempt has cost; the answer is whether its task has reached its limit."""
    case = situation.case(command.task)
    task, lease = case.task, case.lease
    held = lease is not None and lease.token == command.token and lease.agent == command.agent
    past = situation.attempts.get((command.task, command.token))
    if not held and (past is None or past.agent != command.agent):
        raise LeaseLost(command.task, command.token, "no such attempt of this agent is known")
    if not held and command.while_held:
        raise LeaseLost(command.task, command.token, "it has ended, and only a supervisor settles what it has cost")
    row = ExpenseRow(
        task.id,
        command.token,
        command.agent,
        task.role,
        task.run,
        situation.now,
        command.expense.cost,
        command.expense.given,
        command.expense.written,
    )
    others = [one for one in situation.expenses.get(task.id, ()) if one.token != command.token]
    over = is_over(task, [*others, row])
    told = Event(
        "attempt_cost",
        task.id,
        task.run,
        command.agent,
        command.token,
        {"cost_usd": None if row.cost is None else row.cost / 1_000_000, "given": row.given, "written": row.written},
    )
    decision = Decision(over, events=(told,), expenses=(row,))
    if over and lease is None and task.state == OPEN and not case.waits and not task.spec.flow:
        out = TaskChange(case, run=situation.run_of(task))
        ask(out, QuestionDraft(COST_LIMIT, _text(task, [*others, row]), COSTLY_OPTIONS), situation.now)
        decision.outcomes = (out,)
    return decision


def end_costly(situation: RowSnapshot, command: EndCostly) -> Decision:
    """Take a task back whose attempts have cost too much, and ask a human."""
    case = situation.case(command.task)
    lease, task = case.lease, case.task
    if lease is None or lease.token != command.token or lease.agent != command.agent:
        raise LeaseLost(command.task, command.token, "no agent holds the task" if lease is None else "it is another's")
    rows = situation.expenses.get(task.id, ())
    if not is_over(task, rows):
        raise Refused("not_costly", f"{task.name} has not reached what it may cost", where="task")
    out = TaskChange(case, answer=task.id, run=situation.run_of(task))
    end_attempt(out, COST_LIMIT, situation.now, command=command.id, detail=f"it has cost {shown(together(rows).cost)}")
    out.events.append(event(task, COST_LIMIT, lease, cost_usd=(together(rows).cost or 0) / 1_000_000))
    if task.spec.flow or task.spec.origin is not None or task.spec.request is not None:
        out.case = requeue(out.case, situation.now)
    else:
        ask(out, QuestionDraft(COST_LIMIT, _text(task, rows), COSTLY_OPTIONS), situation.now)
    return Decision(task.id, outcomes=(out,))


def _text(task: Task, rows: Sequence[ExpenseRow]) -> str:
    spent = together(rows)
    times = "attempt" if spent.attempts == 1 else f"{spent.attempts} attempts"
    return (
        f"Task {task.name} has cost {shown(spent.cost)} in its {times}, and may cost {shown(limit_of(task))}."
        " Its work is kept. How should we proceed?"
    )


# --- roles, runs and days ---------------------------------------------------------------------------------------------


def budget_of(by: str, key: str = "") -> str:
    """The name under which a role, a run or a day is shut: `budget:role:builder`, `budget:run:r_…`, `budget:day`."""
    return f"budget:{by}:{key}" if key else f"budget:{by}"


def budgets_of(role: str) -> tuple[str, ...]:
    """The names under which the lanes of a role may be shut."""
    return (budget_of("day"), *((budget_of("role", role),) if role else ()))


def run_of_budget(budget: str) -> str:
    """The run that a budget is of; empty where it is none."""
    prefix = budget_of("run", "")
    return budget.removeprefix(f"{prefix}:") if budget.startswith(f"{prefix}:") else ""


def budgets_over(task: Task) -> tuple[str, ...]:
    """The names under which a task may be shut: of the day, of its role and of its run."""
    return (*budgets_of(task.role), *(() if task.run is None else (budget_of("run", task.run),)))


def is_budget(service: str) -> bool:
    """Whether a row like that of a service is about money."""
    return service.startswith(BUDGETS)


def said(budget: str, name: str = "") -> str:
    """What a budget is of, as people say it: the role builder, the run nightly, this day."""
    _, by, *key = budget.split(":", 2)
    return "this day" if by == "day" else f"the {by} {name or (key[0] if key else '')}".rstrip()


def is_paid_up(services: Mapping[str, ServiceRow], now: Millis) -> Callable[[Task], bool]:
    """Of which tasks nobody is given anything now, because their role, their run or the day has cost what it may."""
    closed = {name for name, row in services.items() if is_budget(name) and _is_shut(row, now)}

    def paid_up(task: Task) -> bool:
        return not closed.isdisjoint(budgets_over(task))

    return paid_up


def reach_budget(situation: RowSnapshot, command: ReachBudget) -> Decision:
    """Shut a role, a run or a day that has cost what it may, and ask one human; both once."""
    row = situation.service(command.budget)
    if command.spent < command.limit + row.raised or _is_shut(row, situation.now):
        return Decision(False)
    number = row.questions + 1
    id_ = service_question_id(command.budget, number)
    what = said(command.budget, command.name)
    options = RUN_OPTIONS if run_of_budget(command.budget) else BUDGET_OPTIONS
    ends = "" if command.until is None else " Otherwise it goes on when the day is over."
    may = shown(command.limit + row.raised)
    text = f"{what[0].upper()}{what[1:]} has cost {shown(command.spent)}, and may cost {may}.{ends}"
    question = Question(id_, None, None, BUDGET, f"{text} How should we proceed?", options, situation.now, "allswell")
    until = command.until if command.until is not None else Millis(situation.now + _FOR_GOOD)
    shut = replace(park(row, until), questions=number, command=command.id, step=command.limit)
    about = {
        "question": id_,
        "kind": BUDGET,
        "text": question.text,
        "options": [option.label for option in options],
    }
    told = {"budget": command.budget, "spent_usd": command.spent / 1_000_000, "until": until}
    return Decision(
        True,
        events=(Event("budget_reached", data=told), Event("question_asked", data=about)),
        services=(shut,),
        asked=(question,),
    )


_FOR_GOOD = 10 * 365 * 86_400_000


def _is_shut(row: ServiceRow, now: Millis) -> bool:
    until = row.state.parked_until
    return until is not None and until > now


def is_for_good(until: Millis, now: Millis) -> bool:
    """Whether what is shut until then opens by a human's word alone."""
    return until - now > _FOR_GOOD // 2


def budget_answered(row: ServiceRow, option: Option, now: Millis) -> ServiceRow:
    """The row after a human's answer: open with as much again, or shut as it is."""
    if option.act is not AnswerAction.PROBE:
        return row
    return replace(row, state=replace(row.state, parked_until=None), raised=row.raised + row.step, since=now)


# --- the rows ---------------------------------------------------------------------------------------------------------


def _names(command: Spend | EndCostly) -> ReadSet:
    task = (command.task,)
    return ReadSet(held=task, expenses=task, runs_of=task)


def _past(command: Spend, situation: RowSnapshot) -> RowReads | None:
    case = situation.cases.get(command.task)
    if case is None or (case.lease is not None and case.lease.token == command.token):
        return None
    return RowReads(attempts=((command.task, command.token),)) if command.token.bit_length() < 63 else None


RULES = (
    Rule(Spend, spend, _names, reads=_past),
    Rule(EndCostly, end_costly, _names),
    Rule(ReachBudget, reach_budget, lambda command: ReadSet(services=(command.budget,))),
)

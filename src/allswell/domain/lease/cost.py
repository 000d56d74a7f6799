"""What follows from what attempts cost: it is kept with the attempt, and limits are held to.

A task has limits of its own (`max_cost_usd` and `max_tokens` of its policy, raised by a human). When the attempts at it
have reached one, no agent goes on with it before a human has said so: the supervisor of the attempt ends it, with its
work kept, and says `EndCostly`; if the attempt is over already, the task is not ready any more.

A role, a run and a day have limits too. When one is reached, no agent gets work under it: a row like that of a service
is shut, until the day is over or for good, and one human is asked. Lanes are held to it by `budgets_of`.

Sums are always those of the rows of attempts. Nothing is counted twice, and a report that comes again replaces the one
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from allswell.domain.agents.cost import Expense, ExpenseRow, shown, together, usd
from allswell.domain.ids import CommandId, Millis, service_question_id
from allswell.domain.question import MORE_MONEY, MORE_OF_BOTH, MORE_TOKENS, SKIP, AnswerAction, Option, Question
from allswell.domain.rules.command import Command, LeaseCommand
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule, past_of
from allswell.domain.service.service import ServiceRow, park, shut
from allswell.domain.task.aggregate import QuestionDraft, TaskChange, ask, end_attempt, event, requeue
from allswell.domain.task.model import OPEN, Task
from allswell.domain.task.submit import BUDGETS
from allswell.errors import LeaseLost, Refused

COST_LIMIT = "cost_limit"
"""How an attempt ended that was too dear; also the kind of the question about its task."""
TOKEN_LIMIT = "token_limit"  # noqa: S105 - tokens of a model
"""The same of one that used too many tokens, and no more money than it may."""
BUDGET = "budget_reached"
"""The kind of the question about a role, a run or a day."""
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
    """Whether it counts only as long as the lease lasts: for an agent, which is not a supervisor."""


class EndCostly(LeaseCommand, frozen=True, gc=False):
    """The supervisor has ended an attempt at a limit of cost or tokens: take its task back, and ask a human."""


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
    estimated: bool = False
    """Whether a part of what was spent is priced by a table."""


def limit_of(task: Task) -> int | None:
    """What a task may cost, in millionths of a dollar; None: anything."""
    return task.record.cost_override or task.spec.policy.max_cost


def token_limit_of(task: Task) -> int | None:
    """How many tokens a task may use; None: any number."""
    return task.record.tokens_override or task.spec.policy.max_tokens


def limits_in_words(task: Task) -> str:
    """Which limits a task has of what it may use: its cost limit, its token limit, or both."""
    if limit_of(task) is None:
        return "its token limit"
    return "its cost limit" if token_limit_of(task) is None else "its limit of cost or tokens"


def limits_reached(task: Task, rows: Sequence[ExpenseRow]) -> tuple[str, ...]:
    """The limits that the attempts at a task have reached; what is not reported does not count."""
    spent = together(rows)
    pairs = ((COST_LIMIT, spent.cost, limit_of(task)), (TOKEN_LIMIT, spent.tokens, token_limit_of(task)))
    return tuple(kind for kind, used, limit in pairs if limit is not None and used is not None and used >= limit)


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
        command.expense.estimated,
    )
    others = [one for one in situation.expenses.get(task.id, ()) if one.token != command.token]
    reached = limits_reached(task, [*others, row])
    figures = {"cost_usd": usd(row.cost), "given": row.given, "written": row.written, "estimated": row.estimated}
    told = Event("attempt_cost", task.id, task.run, command.agent, command.token, figures)
    decision = Decision(bool(reached), events=(told,), expenses=(row,))
    if reached and lease is None and task.state == OPEN and not case.waits and not task.spec.flow:
        out = TaskChange(case, run=situation.run_of(task))
        ask(out, _question(task, [*others, row], reached), situation.now)
        decision.outcomes = (out,)
    return decision


def end_costly(situation: RowSnapshot, command: EndCostly) -> Decision:
    """Take a task back whose attempts have cost too much, and ask a human."""
    case = situation.case(command.task)
    lease, task = case.lease, case.task
    if lease is None or lease.token != command.token or lease.agent != command.agent:
        raise LeaseLost(command.task, command.token, "no agent holds the task" if lease is None else "it is another's")
    rows = situation.expenses.get(task.id, ())
    reached = limits_reached(task, rows)
    if not reached:
        raise Refused("not_costly", f"{task.name} has not reached what it may cost or use", where="task")
    out = TaskChange(case, answer=task.id, run=situation.run_of(task))
    end_attempt(out, reached[0], situation.now, command=command.id, detail=f"it has {_used(rows, reached)}")
    spent = together(rows)
    for kind in reached:
        figures = {"cost_usd": (spent.cost or 0) / 1_000_000} if kind == COST_LIMIT else {"tokens": spent.tokens}
        out.events.append(event(task, kind, lease, **figures))
    if task.spec.flow or task.spec.origin is not None or task.spec.request is not None:
        out.case = requeue(out.case, situation.now)
    else:
        ask(out, _question(task, rows, reached), situation.now)
    return Decision(task.id, outcomes=(out,))


def _used(rows: Sequence[ExpenseRow], reached: Sequence[str]) -> str:
    """What attempts have used of what they may: "cost $1.20", "used 12,000 tokens", or both."""
    spent = together(rows)
    parts = [f"cost {shown(spent.cost, estimated=spent.estimated > 0)}"] if COST_LIMIT in reached else []
    parts += [f"used {spent.tokens or 0:,} tokens"] if TOKEN_LIMIT in reached else []
    return " and ".join(parts)


def _question(task: Task, rows: Sequence[ExpenseRow], reached: Sequence[str]) -> QuestionDraft:
    attempts = together(rows).attempts
    times = "attempt" if attempts == 1 else f"{attempts} attempts"
    may = [f"cost {shown(limit_of(task))}"] if COST_LIMIT in reached else []
    may += [f"use {token_limit_of(task):,} tokens"] if TOKEN_LIMIT in reached else []
    text = f"Task {task.name} has {_used(rows, reached)} in its {times}, and may {' and '.join(may)}."
    more = MORE_OF_BOTH if len(reached) > 1 else MORE_MONEY if COST_LIMIT in reached else MORE_TOKENS
    return QuestionDraft(reached[0], f"{text} Its work is kept. How should we proceed?", (more, SKIP))


# --- roles, runs and days ---------------------------------------------------------------------------------------------


def budget_of(by: str, key: str = "") -> str:
    """The name under which a role, a run or a day is shut: `budget:role:builder`, `budget:run:r_…`, `budget:day`."""
    return f"budget:{by}:{key}" if key else f"budget:{by}"


def budgets_of(role: str) -> tuple[str, ...]:
    """The names under which the lanes of a role may be shut."""
    return (budget_of("day"), *((budget_of("role", role),) if role else ()))


def run_of_budget(budget: str) -> str:
    """The run whose budget it is; empty if it is not a run's."""
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
    """Which tasks are not given out now, because their role, their run or the day has cost what it may."""
    closed = {name for name, row in services.items() if is_budget(name) and shut(row, now) is not None}

    def paid_up(task: Task) -> bool:
        return not closed.isdisjoint(budgets_over(task))

    return paid_up


def reach_budget(situation: RowSnapshot, command: ReachBudget) -> Decision:
    """Shut a role, a run or a day that has cost what it may, and ask one human; both once."""
    row = situation.service(command.budget)
    if command.spent < command.limit + row.raised or shut(row, situation.now) is not None:
        return Decision(False)
    number = row.questions + 1
    id_ = service_question_id(command.budget, number)
    what = said(command.budget, command.name)
    options = RUN_OPTIONS if run_of_budget(command.budget) else BUDGET_OPTIONS
    ends = "" if command.until is None else " Otherwise it goes on when the day is over."
    has, may = shown(command.spent, estimated=command.estimated), shown(command.limit + row.raised)
    text = f"{what[0].upper()}{what[1:]} has cost {has}, and may cost {may}.{ends}"
    question = Question(id_, None, None, BUDGET, f"{text} How should we proceed?", options, situation.now, "allswell")
    until = command.until if command.until is not None else Millis(situation.now + _FAR)
    closed = replace(park(row, until), questions=number, command=command.id, step=command.limit)
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
        services=(replace(closed, for_good=command.until is None),),
        asked=(question,),
    )


_FAR = 10 * 365 * 86_400_000
"""What is shut for good has a moment too, for the event and for programs that read the row: this long from now."""


def budget_answered(row: ServiceRow, option: Option, now: Millis) -> ServiceRow:
    """The row after a human's answer: open with as much again, or shut as it is."""
    if option.act is not AnswerAction.PROBE:
        return row
    return replace(row, state=replace(row.state, parked_until=None), raised=row.raised + row.step, since=now)


# --- the rows ---------------------------------------------------------------------------------------------------------


def _names(command: Spend | EndCostly) -> ReadSet:
    task = (command.task,)
    return ReadSet(held=task, expenses=task, runs_of=task)


RULES = (
    Rule(Spend, spend, _names, reads=past_of),
    Rule(EndCostly, end_costly, _names),
    Rule(ReachBudget, reach_budget, lambda command: ReadSet(services=(command.budget,))),
)

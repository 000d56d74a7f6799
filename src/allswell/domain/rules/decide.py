"""The one entrance to the rules: every command is decided here, and every move is held to the table of moves.

The table of rules is put together from the modules that have them. A new command needs a rule in a module of its own,
and that module's `RULES` among these. What it locks and reads stands in the rule (rule.py): the engine is not edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from allswell.domain.access.rights import ACT_OF
from allswell.domain.ids import TaskId
from allswell.domain.lease import claim, cost, expiry, holder, suspension
from allswell.domain.mesh import respond
from allswell.domain.rules import outside
from allswell.domain.rules.bounds import check
from allswell.domain.rules.command import Command
from allswell.domain.rules.event import KEY, Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.run import lifecycle
from allswell.domain.service import calls
from allswell.domain.task import answer, fanout, resubmit, submit
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, state
from allswell.domain.task.model import BEGINNINGS, MOVES
from allswell.domain.worker import quarantine
from allswell.errors import Bug, Refused

_WITH_RULES = (
    submit,
    claim,
    holder,
    respond,
    outside,
    lifecycle,
    calls,
    quarantine,
    resubmit,
    answer,
    cost,
    suspension,
    expiry,
    fanout,
)
RULES: dict[type[Command], Rule[Any]] = {rule.command: rule for module in _WITH_RULES for rule in module.RULES}
"""Every command there is, and how it is decided."""


def _refuse(_: RowSnapshot, command: Command) -> Decision:
    check(command)
    raise Bug(f"{type(command).__name__} is within its bounds, and was refused")


_REFUSED = Rule(Command, _refuse)


def rule_of(command: Command) -> Rule[Any]:
    """The rule for a command."""
    rule = RULES.get(type(command))
    if rule is None:
        raise Bug(f"there is no rule for {type(command).__name__}")
    return rule


def check_bounds(command: Command) -> None:
    """Refuse a command with a field out of its bounds; what the watch asks of itself has none."""
    if type(command) in ACT_OF:
        check(command)


def names_of(commands: Sequence[Command]) -> list[tuple[Rule[Any], ReadSet]]:
    """The rule of each command, and the rows that it is about."""
    found = []
    for command in commands:
        rule = rule_of(command)
        try:
            check_bounds(command)
        except Refused:  # `decide` says why; until then it names nothing, locks nothing and looks for nothing
            found.append((_REFUSED, ReadSet()))
        else:
            found.append((rule, rule.names(command)))
    return found


def decide(situation: RowSnapshot, command: Command, chance: float = 0.0) -> Decision:
    """What a command comes to: a function of its arguments and of nothing else.

    Refusals are raised, and then nothing is to be entered. Where a task's run was not read and turns out to be needed,
    that is `RunUnread`.
    """
    rule = rule_of(command)
    check_bounds(command)
    decision = rule.decide(replace(situation, chance=chance) if rule.chance else situation, command)
    if command.key:
        decision.events = [signed(event, command.key) for event in decision.events]
        for out in decision.outcomes:
            out.events = [signed(event, command.key) for event in out.events]
    stands: dict[TaskId, TaskAggregate] = {}
    for out in decision.outcomes:
        id_ = out.case.task.id
        held_to_table(stands.get(id_) or situation.cases.get(id_), out)
        stands[id_] = out.case
    return decision


def signed(event: Event, key: str) -> Event:
    """An event that says with whose key it was asked for."""
    return replace(event, data={**event.data, KEY: key})


def held_to_table(before: TaskAggregate | None, out: TaskChange) -> TaskChange:
    """The outcome, if it is a move that the table allows; otherwise `Bug`. A task that is new begins somewhere."""
    new = state(out.case)
    if before is None:
        if new not in BEGINNINGS:
            raise Bug(f"task {out.case.task.id} would begin as {new}, which no rule allows")
        return out
    old = state(before)
    if new is not old and new not in MOVES[old]:
        raise Bug(f"task {before.task.id} would go from {old} to {new}, which no rule allows")
    return out

"""The one entrance to the rules: every command is decided here, and every move is held to the table of moves.

The table of rules is put together from the modules that have them. A new command needs a rule in a module of its own,
and that module's `RULES` among these. What it locks and reads stands in the rule (rule.py): the engine is not edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from allswell.domain import (
    answering,
    claim,
    dismissal,
    ending,
    notice,
    paying,
    quarantine,
    responding,
    resubmission,
    serving,
    spreading,
    step,
    submit,
    taking_up,
    tick,
    verifying,
    word,
)
from allswell.domain.case import Case, Outcome, state
from allswell.domain.command import Command
from allswell.domain.decision import Decision
from allswell.domain.event import KEY, Event
from allswell.domain.names import TaskId
from allswell.domain.rule import Names, Rule
from allswell.domain.situation import Situation
from allswell.domain.task import BEGINNINGS, MOVES
from allswell.errors import Bug

_WITH_RULES = (
    submit,
    claim,
    word,
    responding,
    answering,
    ending,
    taking_up,
    step,
    serving,
    notice,
    quarantine,
    resubmission,
    dismissal,
    paying,
    verifying,
    tick,
    spreading,
)
RULES: dict[type[Command], Rule[Any]] = {rule.command: rule for module in _WITH_RULES for rule in module.RULES}
"""Every command there is, and how it is decided."""


def rule_of(command: Command) -> Rule[Any]:
    """The rule for a command."""
    rule = RULES.get(type(command))
    if rule is None:
        raise Bug(f"there is no rule for {type(command).__name__}")
    return rule


def names_of(commands: Sequence[Command]) -> list[tuple[Rule[Any], Names]]:
    """The rule of each command, and the rows that it is about."""
    found = []
    for command in commands:
        rule = rule_of(command)
        found.append((rule, rule.names(command)))
    return found


def decide(situation: Situation, command: Command, chance: float = 0.0) -> Decision:
    """What a command comes to: a function of its arguments and of nothing else.

    Refusals are raised, and then nothing is to be entered. Where a task's run was not read and turns out to be needed,
    that is `RunUnread`.
    """
    rule = rule_of(command)
    decision = rule.decide(replace(situation, chance=chance) if rule.chance else situation, command)
    if command.key:
        decision.events = [signed(event, command.key) for event in decision.events]
        for out in decision.outcomes:
            out.events = [signed(event, command.key) for event in out.events]
    stands: dict[TaskId, Case] = {}
    for out in decision.outcomes:
        id_ = out.case.task.id
        held_to_table(stands.get(id_) or situation.cases.get(id_), out)
        stands[id_] = out.case
    return decision


def signed(event: Event, key: str) -> Event:
    """An event that says with whose key it was asked for."""
    return replace(event, data={**event.data, KEY: key})


def held_to_table(before: Case | None, out: Outcome) -> Outcome:
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

"""The table of rules: every command is in it, once, and says as data what it is about."""

import pytest

from allswell.domain.ids import AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.lease.expiry import Tick
from allswell.domain.rules.command import (
    Cancel,
    Claim,
    Command,
    Complete,
    Delegate,
    Fail,
    LeaseCommand,
    NewTask,
    OpenRun,
    Submit,
)
from allswell.domain.rules.decide import RULES, decide, rule_of
from allswell.domain.rules.rule import ReadSet, RowSearch, RowSnapshot
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.errors import Bug, Refused

A, B, RUN, BOB = TaskId("t_a"), TaskId("t_b"), RunId("r_1"), AgentId("bob")
LANE = {("", ()): None}
SIGNED = (CommandId("c"), A, Token(1), BOB)


def commands(kind: type[Command] = Command) -> set[type[Command]]:
    """Every kind of command that the core has."""
    ours = {one for one in kind.__subclasses__() if one.__module__.startswith("allswell.domain.")}
    return ours | {one for above in ours for one in commands(above)}


def test_every_command_has_one_rule() -> None:
    assert commands() - {LeaseCommand} == set(RULES)
    assert all(rule.command is kind for kind, rule in RULES.items())


def test_what_has_no_rule_is_our_mistake() -> None:
    with pytest.raises(Bug, match="there is no rule for LeaseCommand"):
        decide(RowSnapshot(Millis(1)), LeaseCommand(*SIGNED))


@pytest.mark.parametrize(
    "command, names",
    [
        (Complete(*SIGNED), ReadSet(held=(A,), agents=(BOB,), perhaps_runs_of=(A,))),
        (
            Fail(*SIGNED, Failure(ErrorClass.RATE_LIMIT, "slow", services=("api",))),
            ReadSet(held=(A,), agents=(BOB,), runs_of=(A,), services=("api",)),
        ),
        (
            Delegate(*SIGNED, NewTask(B, "help"), Millis(1)),
            ReadSet(held=(A,), agents=(BOB,), perhaps_runs_of=(A,), tasks=(B,), lanes=LANE),
        ),
        (Cancel(CommandId("c"), A), ReadSet(held=(A,))),
        (Tick(A, BOB), ReadSet(free=(A,), agents=(BOB,), runs_of=(A,))),
        (OpenRun(CommandId("c"), RUN, "build", after=RunId("r_0")), ReadSet(runs=(RUN, RunId("r_0")))),
        (
            Submit(CommandId("c"), (NewTask(A, "a", RUN, needs=(B,)),)),
            ReadSet(made=[A], tasks=[B], runs_shared=[RUN], lanes=LANE),
        ),
        (
            Submit(CommandId("c"), (NewTask(A, "a", keyed=True),)),
            ReadSet(made=[], tasks=[A], runs_shared=[], lanes=LANE),
        ),
        (Claim(CommandId("c"), BOB), ReadSet(searches=(RowSearch("claimed", "c"),))),
    ],
)
def test_a_command_says_what_it_locks(command: Command, names: ReadSet) -> None:
    said = {field: [*ids] for field, ids in rule_of(command).names(command).items() if ids}  # type: ignore[misc]
    assert said == {field: [*ids] for field, ids in names.items() if ids}  # type: ignore[misc]


def test_a_rule_is_decided_on_what_it_is_given_and_a_refusal_changes_nothing() -> None:
    empty = RowSnapshot(Millis(1))
    with pytest.raises(Refused, match="there is no task t_a"):
        decide(empty, Cancel(CommandId("c"), A))
    assert empty == RowSnapshot(Millis(1))

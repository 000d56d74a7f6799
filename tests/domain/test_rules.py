"""The table of rules: every command is in it, once, and says as data what it is about."""

import pytest

from allswell.domain.command import Cancel, Claim, Command, Complete, Delegate, Fail, NewTask, OpenRun, Submit, Word
from allswell.domain.decide import RULES, decide, rule_of
from allswell.domain.names import AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.rule import Names, Search
from allswell.domain.situation import Situation
from allswell.domain.tick import Tick
from allswell.errors import Bug, Refused

A, B, RUN, BOB = TaskId("t_a"), TaskId("t_b"), RunId("r_1"), AgentId("bob")
LANE = {("", ()): None}
SIGNED = (CommandId("c"), A, Token(1), BOB)


def commands(kind: type[Command] = Command) -> set[type[Command]]:
    """Every kind of command that the core has."""
    ours = {one for one in kind.__subclasses__() if one.__module__.startswith("allswell.domain.")}
    return ours | {one for above in ours for one in commands(above)}


def test_every_command_has_one_rule() -> None:
    assert commands() - {Word} == set(RULES)
    assert all(rule.command is kind for kind, rule in RULES.items())


def test_what_has_no_rule_is_our_mistake() -> None:
    with pytest.raises(Bug, match="there is no rule for Word"):
        decide(Situation(Millis(1)), Word(*SIGNED))


@pytest.mark.parametrize(
    "command, names",
    [
        (Complete(*SIGNED), Names(held=(A,), agents=(BOB,), perhaps_runs_of=(A,))),
        (
            Fail(*SIGNED, Failure(ErrorClass.RATE_LIMIT, "slow", services=("api",))),
            Names(held=(A,), agents=(BOB,), runs_of=(A,), services=("api",)),
        ),
        (
            Delegate(*SIGNED, NewTask(B, "help"), Millis(1)),
            Names(held=(A,), agents=(BOB,), perhaps_runs_of=(A,), tasks=(B,), lanes=LANE),
        ),
        (Cancel(CommandId("c"), A), Names(held=(A,))),
        (Tick(A, BOB), Names(free=(A,), agents=(BOB,), runs_of=(A,))),
        (OpenRun(CommandId("c"), RUN, "build", after=RunId("r_0")), Names(runs=(RUN, RunId("r_0")))),
        (
            Submit(CommandId("c"), (NewTask(A, "a", RUN, needs=(B,)),)),
            Names(made=[A], tasks=[B], runs_shared=[RUN], lanes=LANE),
        ),
        (Submit(CommandId("c"), (NewTask(A, "a", keyed=True),)), Names(made=[], tasks=[A], runs_shared=[], lanes=LANE)),
        (Claim(CommandId("c"), BOB), Names(searches=(Search("claimed", "c"),))),
    ],
)
def test_a_command_says_what_it_locks(command: Command, names: Names) -> None:
    said = {field: [*ids] for field, ids in rule_of(command).names(command).items() if ids}  # type: ignore[misc]
    assert said == {field: [*ids] for field, ids in names.items() if ids}  # type: ignore[misc]


def test_a_rule_is_decided_on_what_it_is_given_and_a_refusal_changes_nothing() -> None:
    empty = Situation(Millis(1))
    with pytest.raises(Refused, match="there is no task t_a"):
        decide(empty, Cancel(CommandId("c"), A))
    assert empty == Situation(Millis(1))

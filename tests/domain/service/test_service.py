"""A service's row: what commands make of it, the one question about it, and whom it lets in (F5, F8)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, service_of_question, service_question_id
from allswell.domain.question import Question
from allswell.domain.rules.bounds import check
from allswell.domain.rules.command import Admit, Answer, Park, Report
from allswell.domain.rules.event import KINDS
from allswell.domain.service.breaker import (
    BreakerNotice,
    BreakerPolicy,
    BreakerState,
    CallOutcome,
    CallRefused,
    Permit,
    Service,
)
from allswell.domain.service.calls import ServiceDecision, ServiceReply, admit, answer, pause, report
from allswell.domain.service.service import REOPENING, ServiceRow, lets_in, open_question, shut
from allswell.errors import Refused

POLICY = BreakerPolicy(open_after=3, pause=30_000, escalate_after=5, probe_lease=60_000)
ANN = AgentId("ann")


class Life:
    """One service: its row, its open question, and all that was told."""

    def __init__(self, policy: BreakerPolicy = POLICY) -> None:
        self.policy = policy
        self.row = ServiceRow("api")
        self.question: Question | None = None
        self.now = 1_000_000
        self.told: list[str] = []
        self._number = 0

    def id(self) -> CommandId:
        self._number += 1
        return CommandId(f"c{self._number}")

    def enter(self, decided: ServiceDecision) -> object:
        for event in decided.events:
            assert set(event.data) == set(KINDS[event.kind].fields), event
            self.told.append(event.kind)
        if decided.asked is not None:
            assert self.question is None
            self.question = decided.asked
        if decided.closed is not None:
            assert decided.closed.closed_at == self.now
            self.question = None
        self.row = decided.row
        assert open_question(self.row) == (None if self.question is None else self.question.id)
        return decided.answer

    def admit(self, id_: CommandId | None = None) -> Permit | CallRefused:
        said = self.enter(admit(self.row, self.question, Admit(id_ or self.id(), "api", self.policy), Millis(self.now)))
        assert isinstance(said, ServiceReply)
        assert said.given is not None
        return said.given

    def report(self, permit: Permit, outcome: CallOutcome, id_: CommandId | None = None) -> ServiceReply:
        command = Report(id_ or self.id(), permit, outcome, self.policy)
        said = self.enter(report(self.row, self.question, command, Millis(self.now)))
        assert isinstance(said, ServiceReply)
        return said

    def permit(self) -> Permit:
        given = self.admit()
        assert isinstance(given, Permit)
        return given

    def fails(self, times: int) -> None:
        """So many in a row, each as soon as the service may be called."""
        for _ in range(times):
            if self.row.state.open_until is not None:
                self.now = max(self.now, self.row.state.open_until)
            self.report(self.permit(), CallOutcome.FAILED)

    def answer(self, option: str, text: str = "") -> object:
        assert self.question is not None
        command = Answer(self.id(), self.question.id, option, text, by="eve")
        return self.enter(answer(self.row, self.question, command, Millis(self.now)))


def test_a_success_on_a_clean_service_changes_nothing() -> None:
    life = Life()
    clean = life.row
    life.report(life.permit(), CallOutcome.HEALTHY)
    life.report(life.permit(), CallOutcome.UNTOLD)
    assert life.row is clean
    assert life.told == []


@pytest.mark.row("F8")
def test_one_question_at_the_fifth_failure_withdrawn_by_recovery() -> None:
    life = Life()
    life.fails(5)
    assert life.question is not None
    assert life.question.id == "q_@api.1"
    assert (life.question.task, life.question.run, life.question.service) == (None, None, "api")
    assert "failed 5 times in a row" in life.question.text
    life.fails(3)
    assert life.told.count("question_asked") == life.told.count("breaker_escalated") == 1
    life.now += 30_000
    life.report(life.permit(), CallOutcome.HEALTHY)
    assert open_question(life.row) is None
    assert life.told[-2:] == ["breaker_closed", "question_withdrawn"]
    life.fails(5)
    assert life.question is not None
    assert life.question.id == "q_@api.2"


@pytest.mark.row("F8")
def test_the_probe_is_given_again_to_the_command_that_got_it_and_to_no_other() -> None:
    life = Life()
    life.fails(3)
    life.now += 30_000
    probe = life.admit(CommandId("mine"))
    assert isinstance(probe, Permit)
    assert probe.probe
    assert life.admit(CommandId("mine")) == probe
    assert isinstance(life.admit(CommandId("other")), CallRefused)
    assert life.told.count("breaker_probe") == 1
    life.now += 60_000  # its lease is over: it has failed, and is nobody's
    assert isinstance(life.admit(CommandId("mine")), CallRefused)
    assert life.row.state.failures == 4


def test_a_repeated_failure_counts_once() -> None:
    life = Life()
    permit = life.permit()
    for _ in range(5):
        life.report(permit, CallOutcome.FAILED, CommandId("same"))
    assert life.row.state.failures == 1


@pytest.mark.row("F8")
def test_late_results_of_older_generations_change_nothing() -> None:
    life = Life()
    old = [life.permit() for _ in range(4)]
    life.fails(3)
    opened = life.row
    life.report(old[0], CallOutcome.FAILED)
    life.report(old[1], CallOutcome.HEALTHY)
    assert life.row is opened
    life.now += 30_000
    life.report(life.permit(), CallOutcome.HEALTHY)
    closed = life.row
    for permit in old:
        life.report(permit, CallOutcome.FAILED)
    assert life.row is closed
    assert shut(closed, Millis(life.now)) is None


@pytest.mark.row("F8")
@pytest.mark.parametrize("then", ["probe", "wait"])
@pytest.mark.parametrize("option", ["probe", "wait"])
def test_each_answer_acts(then: str, option: str) -> None:
    life = Life(replace(POLICY, then=then))
    life.fails(5)
    assert isinstance(life.admit(), CallRefused)
    assert life.answer(option, "they are working on it") == "q_@api.1"
    assert life.told[-1] == "question_answered"
    if option == "wait" and then == "probe":
        assert isinstance(life.admit(), CallRefused)  # its pause is not over
        life.now += 30_000
    life.report(life.permit(), CallOutcome.FAILED)
    asks_again = option == "probe"
    assert (life.question is not None) == asks_again
    assert life.row.state.held == (asks_again and then == "wait")
    if not asks_again:
        life.fails(10)
        assert life.told.count("question_asked") == 1
        life.now += 30_000
        life.report(life.permit(), CallOutcome.HEALTHY)
        life.fails(5)
        assert life.question is not None  # a new outage is news again


def test_an_answer_that_is_none_is_refused_and_one_that_is_repeated_is_not() -> None:
    life = Life()
    life.fails(5)
    with pytest.raises(Refused, match="choose one of: probe, wait"):
        life.answer("skip")
    question = life.question
    assert question is not None
    command = Answer(CommandId("a"), question.id, "probe")
    closed = answer(life.row, question, command, Millis(life.now)).closed
    assert closed is not None
    again = answer(life.row, closed, command, Millis(life.now))
    assert (again.row, again.closed) == (life.row, None)
    with pytest.raises(Refused, match="is closed: probe"):
        answer(life.row, closed, replace(command, id=CommandId("b")), Millis(life.now))


@pytest.mark.row("F5", "F8")
def test_a_service_lets_nobody_in_while_it_is_shut() -> None:
    life = Life()

    def stands() -> str | None:
        closed = shut(life.row, Millis(life.now))
        assert closed is None or not lets_in(life.row, ANN, Millis(life.now))
        return None if closed is None else str(closed.stand)

    assert lets_in(life.row, ANN, Millis(life.now))
    life.fails(2)
    assert stands() is None
    assert lets_in(life.row, ANN, Millis(life.now))  # nothing was ever shut, so nothing is staggered
    life.fails(1)
    assert stands() == BreakerState.OPEN
    life.now += 30_000
    assert stands() is None
    assert lets_in(life.row, ANN, Millis(life.now + REOPENING))
    life.permit()
    assert stands() == BreakerState.PROBING
    life.now += 60_000
    assert stands() is None  # a probe that died shuts nobody out: the next one tries
    life.policy = replace(POLICY, then="wait", escalate_after=4)
    life.admit()
    assert stands() == BreakerState.HELD
    held = shut(life.row, Millis(life.now))
    assert held is not None
    assert held.until is None
    life.answer("probe")
    life.report(life.permit(), CallOutcome.HEALTHY)
    assert stands() is None
    life.enter(pause(life.row, Park(life.id(), "api", 7_000), Millis(life.now)))
    assert stands() == "parked"
    life.now += 7_000
    assert stands() is None


def test_agents_come_back_at_places_of_their_own() -> None:
    row = ServiceRow("api", Service(parked_until=Millis(1_000)))
    agents = [AgentId(f"agent {number}") for number in range(100)]
    let_in = [sum(lets_in(row, agent, Millis(1_000 + passed)) for agent in agents) for passed in range(0, 5_001, 500)]
    assert let_in == sorted(let_in)
    assert let_in[0] <= 2
    assert let_in[-1] == 100
    assert max(after - before for before, after in pairwise(let_in)) <= 25
    settled = admit(row, None, Admit(CommandId("c"), "api", POLICY), Millis(1_500)).row
    assert settled.state.parked_until is None
    assert sum(lets_in(settled, agent, Millis(1_500)) for agent in agents) == let_in[1]


def test_parking_twice_keeps_the_later_end_and_tells_once() -> None:
    life = Life()
    for delay in (9_000, 5_000, 9_000):
        life.enter(pause(life.row, Park(life.id(), "api", delay), Millis(life.now)))
    assert life.row.state.parked_until == life.now + 9_000
    assert life.told == ["service_parked"]
    with pytest.raises(Refused, match="delay must be a length of time"):
        check(Park(life.id(), "api", -1))


@pytest.mark.parametrize("name", ["anthropic", "a b", "v1.2", "@", "Ω.3"])
def test_a_services_question_names_it(name: str) -> None:
    assert service_of_question(service_question_id(name, 12)) == name
    assert service_of_question(QuestionId("q_abc.1")) is None


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(Refused, match=r"breaker.pause \(0 ms\) must be positive"):
        check(Admit(CommandId("a"), "api", replace(POLICY, pause=0)))


def test_effects_are_told_to_whom_they_happened() -> None:
    life = Life()
    life.fails(2)
    assert life.report(life.permit(), CallOutcome.FAILED).effects == (BreakerNotice.OPENED,)

"""The breaker against a model that knows every call by identity instead of by generation (F8).

The model is naive on purpose: it keeps the calls that were let through since the last change, forgets them at each
change, and looks a result up among them. The machine has only a number; both must always agree.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from allswell.domain.service.breaker import (
    CLEAN,
    MOVES,
    BreakerNotice,
    BreakerPolicy,
    BreakerState,
    CallOutcome,
    CallRefused,
    Permit,
    Service,
    acknowledged,
    admit,
    answered,
    park,
    pause_left,
    report,
    settle,
    stand,
)

POLICIES = st.builds(
    lambda opens, more, pause, lease, then: BreakerPolicy(opens, pause, opens + more, lease, then),
    opens=st.integers(1, 3),
    more=st.integers(0, 2),
    pause=st.integers(1, 40),
    lease=st.integers(1, 60),
    then=st.sampled_from(["probe", "wait"]),
)
EDGES = {(before, after) for (before, _), after in MOVES.items()}


class Call:
    """One call that was let through."""

    def __init__(self, permit: Permit) -> None:
        self.permit = permit


class Model(RuleBasedStateMachine):
    """Calls overlap, end in any order, twice or never; time passes; humans answer."""

    @initialize(policy=POLICIES)
    def begin(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.now = 1_000
        self.service = CLEAN
        self.calls: list[Call] = []
        self.questions = 0
        # what the model knows
        self.counted: list[Call] = []  # calls whose result still counts
        self.failures = 0
        self.shut_until: int | None = None
        self.probe: tuple[Call, int] | None = None
        self.waits_for_human = False
        self.question_open = False
        self.knows = False
        self.parked_until = 0

    # -- the model ----------------------------------------------------------------------------------------------

    def expected(self) -> BreakerState:
        if self.shut_until is None:
            return BreakerState.CLOSED
        if self.waits_for_human:
            return BreakerState.HELD
        if self.probe is not None:
            return BreakerState.PROBING
        return BreakerState.OPEN if self.now < self.shut_until else BreakerState.HALF_OPEN

    def one_more_failure(self, at: int) -> None:
        self.failures += 1
        if self.probe is not None or self.failures >= self.policy.open_after:
            self.shut(at)
        if self.failures >= self.policy.escalate_after:
            if not self.question_open and not self.knows:
                self.question_open = True
                self.expected_effects.append(BreakerNotice.ASK)
            self.waits_for_human = self.policy.then == "wait" and not self.knows

    def shut(self, at: int) -> None:
        if self.shut_until is None:
            self.expected_effects.append(BreakerNotice.OPENED)
        self.shut_until = at + self.policy.pause
        self.probe = None
        self.counted.clear()

    def time_has_passed(self) -> None:
        self.expected_effects: list[BreakerNotice] = []
        if self.probe is not None and self.now >= self.probe[1]:
            self.one_more_failure(self.probe[1])

    def becomes(self, service: Service, effects: tuple[BreakerNotice, ...]) -> None:
        assert list(effects) == self.expected_effects
        self.expected_effects = []
        before, after = stand(self.service, self.now), stand(service, self.now)
        # One decision may settle an expired probe and then move on: each move by itself is in the table.
        assert before == after or (before, after) in EDGES or (before, after) in two_moves(), (before, after)
        self.service = service
        self.questions += effects.count(BreakerNotice.ASK) - effects.count(BreakerNotice.WITHDRAW)

    # -- what happens -------------------------------------------------------------------------------------------

    @rule()
    def call(self) -> None:
        self.time_has_passed()
        given, change = admit("s", self.service, self.policy, self.now)
        if self.now < self.parked_until:
            assert isinstance(given, CallRefused)
            assert (given.stand, given.wait) == ("parked", self.parked_until - self.now)
        else:
            allowed = self.expected() in (BreakerState.CLOSED, BreakerState.HALF_OPEN)
            assert isinstance(given, Permit) == allowed
            if isinstance(given, Permit):
                made = Call(given)
                assert given.probe == (self.shut_until is not None)
                if given.probe:
                    self.counted.clear()
                    self.probe = (made, self.now + self.policy.probe_lease)
                self.calls.append(made)
                self.counted.append(made)
            else:
                assert given.stand == self.expected()
                assert (given.wait is None) == (given.stand == BreakerState.HELD)
                assert given.wait is None or given.wait > 0
        self.becomes(change.service, change.effects)

    @rule(
        outcome=st.sampled_from(
            [CallOutcome.FAILED, CallOutcome.FAILED, CallOutcome.FAILED, CallOutcome.HEALTHY, CallOutcome.UNTOLD]
        )
    )
    def wait_out_the_pause_and_try(self, outcome: CallOutcome) -> None:
        """The way into the rarer corners: one probe after the other."""
        self.wait(max(self.policy.pause, self.parked_until - self.now))
        before = len(self.calls)
        self.call()
        if len(self.calls) > before:
            self.ends(self.calls.pop(), outcome)

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 100), outcome=st.sampled_from(CallOutcome), again=st.booleans())
    def end(self, which: int, outcome: CallOutcome, again: bool) -> None:
        """Of any call, however old; again: it reports a second time later on."""
        call = self.calls[-1 - which % len(self.calls)]
        if not again:
            self.calls.remove(call)
        self.ends(call, outcome)

    def ends(self, which: Call, outcome: CallOutcome) -> None:
        self.time_has_passed()
        counts = which in self.counted
        probed = self.probe is not None and self.probe[0] is which
        if counts and outcome is CallOutcome.FAILED:
            self.one_more_failure(self.now)
        elif counts and outcome is CallOutcome.HEALTHY:
            self.failures = 0
            if probed:
                self.expected_effects.append(BreakerNotice.CLOSED)
                if self.question_open:
                    self.expected_effects.append(BreakerNotice.WITHDRAW)
                self.shut_until, self.probe, self.question_open, self.waits_for_human = None, None, False, False
                self.knows = False
                self.counted.clear()
        elif counts and probed:
            self.shut(self.now)
        change = report(self.service, self.policy, which.permit, outcome, self.now)
        self.becomes(change.service, change.effects)

    @rule(by=st.integers(1, 70))
    def wait(self, by: int) -> None:
        self.now += by
        self.time_has_passed()
        change = settle(self.service, self.policy, self.now)
        self.becomes(change.service, change.effects)

    @rule(length=st.integers(0, 50))
    def limit(self, length: int) -> None:
        self.parked_until = max(self.parked_until, self.now + length)
        self.service = park(self.service, self.now + length)

    @rule(patient=st.booleans())
    def human(self, patient: bool) -> None:
        """Says: try it now, or, patient: go on by yourself."""
        self.time_has_passed()
        settled = settle(self.service, self.policy, self.now)
        self.becomes(settled.service, settled.effects)
        after = (acknowledged if patient else answered)(self.service, self.now)
        tries = not patient or self.waits_for_human
        self.questions = 0
        self.question_open = self.waits_for_human = False
        if self.shut_until is not None:
            self.knows = patient or self.knows
            if tries and self.probe is None:
                self.shut_until = min(self.shut_until, self.now)
                self.counted.clear()
        self.becomes(after, ())

    # -- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def they_agree(self) -> None:
        self.time_has_passed()
        service = settle(self.service, self.policy, self.now).service
        assert stand(service, self.now) == self.expected()
        assert service.failures == self.failures
        assert service.asked == self.question_open

    @invariant()
    def one_question_at_most_and_a_clean_row_when_all_is_well(self) -> None:
        assert self.questions in (0, 1)
        if stand(self.service, self.now) is BreakerState.CLOSED:
            assert (self.service.probe_until, self.service.held, self.service.asked) == (None, False, False)
        if (
            stand(self.service, self.now) in (BreakerState.CLOSED, BreakerState.HALF_OPEN)
            and self.now >= self.parked_until
        ):
            assert pause_left(self.service, self.now) == 0


def two_moves() -> set[tuple[BreakerState, BreakerState]]:
    return {(a, d) for a, b in EDGES for c, d in EDGES if b == c}


@pytest.mark.row("F8")
def test_the_machine_and_the_model_agree_whatever_happens() -> None:
    tried = settings(derandomize=True, database=None, deadline=None, max_examples=150, stateful_step_count=60)
    run_state_machine_as_test(Model, settings=tried)

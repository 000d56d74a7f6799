"""The states of a supervised agent are told apart, each with what it was read off."""

import pytest

from allswell.domain.agents.evidence import Evidence, EvidenceKind, EvidenceState
from allswell.domain.agents.status import AgentCondition, AttemptFacts, judge

BEGAN = 1_000_000


def seen(sign: EvidenceKind, after: int, what: str = "x") -> EvidenceState:
    return EvidenceState(BEGAN).heard(Evidence(sign, BEGAN + after, what))


@pytest.mark.parametrize(
    "standing, known, after, condition, evidence",
    [
        (EvidenceState(BEGAN), AttemptFacts(), 5_000, AgentCondition.SPAWNING, "started 5s ago"),
        (
            seen(EvidenceKind.OUTPUT, 4_000),
            AttemptFacts(),
            5_000,
            AgentCondition.WORKING,
            "it prints, the last time 1s ago",
        ),
        (EvidenceState(BEGAN), AttemptFacts(), 30_000, AgentCondition.QUIET, "no sign of progress in 30s"),
        (
            seen(EvidenceKind.PROTOCOL, 0, "claude: Bash"),
            AttemptFacts(),
            59_999,
            AgentCondition.WORKING,
            "protocol 59s ago: claude: Bash",
        ),
        (seen(EvidenceKind.PROTOCOL, 0), AttemptFacts(), 60_000, AgentCondition.QUIET, "protocol 1m ago: x"),
        (seen(EvidenceKind.OUTPUT, 40_000), AttemptFacts(), 41_000, AgentCondition.QUIET, "only output 1s ago"),
        (seen(EvidenceKind.WORK, 0), AttemptFacts(stalled=True), 1_000, AgentCondition.STALLED, "work 1s ago"),
        (EvidenceState(BEGAN), AttemptFacts(for_human="q_1"), 99_000, AgentCondition.FOR_HUMAN, "q_1"),
        (EvidenceState(BEGAN), AttemptFacts(for_agent="t_9"), 99_000, AgentCondition.FOR_AGENT, "t_9"),
        (
            seen(EvidenceKind.WORK, 0),
            AttemptFacts(for_limit="resets 3pm"),
            1_000,
            AgentCondition.FOR_LIMIT,
            "resets 3pm",
        ),
        (seen(EvidenceKind.WORK, 0), AttemptFacts(ended="exit code 1"), 1_000, AgentCondition.DEAD, "exit code 1"),
        (None, AttemptFacts(), 0, AgentCondition.UNKNOWN, "nothing can be seen of it from here"),
    ],
)
def test_each_state(
    standing: EvidenceState | None, known: AttemptFacts, after: int, condition: AgentCondition, evidence: str
) -> None:
    verdict = judge(standing, known, BEGAN + after)
    assert verdict.condition is condition
    assert evidence in verdict.evidence


def test_a_spinner_is_not_at_work_and_a_check_in_is() -> None:
    spinning = seen(EvidenceKind.OUTPUT, 100_000)
    assert judge(spinning, AttemptFacts(), BEGAN + 100_000).condition is AgentCondition.QUIET
    answered = spinning.heard(Evidence(EvidenceKind.CHECKIN, BEGAN + 100_000, "half"))
    assert judge(answered, AttemptFacts(), BEGAN + 100_000).condition is AgentCondition.WORKING

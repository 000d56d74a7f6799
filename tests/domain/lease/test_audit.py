"""Audits: the one rule for builds, for flows' steps, and for whatever else is judged before it counts."""

import pytest

from allswell.domain.ids import Millis
from allswell.domain.lease.audit import (
    AUDIT_FAILURES,
    AfterAudit,
    AuditVerdict,
    HumanDecision,
    after_verdict,
    failed_audits,
    why_no_verdict,
)

pytestmark = pytest.mark.row("C2")


def test_what_follows_from_a_verdict() -> None:
    assert after_verdict(passed=True, failed=9) is AfterAudit.ACCEPT
    assert after_verdict(passed=False, failed=AUDIT_FAILURES - 1, others=True) is AfterAudit.MEND
    assert after_verdict(passed=False, failed=AUDIT_FAILURES, others=True) is AfterAudit.REASSIGN
    assert after_verdict(passed=False, failed=AUDIT_FAILURES) is AfterAudit.ASK
    assert after_verdict(passed=False, failed=1, most=1) is AfterAudit.ASK


def test_failures_count_for_one_builder_since_a_human_decided() -> None:
    failed, other, passed = (
        AuditVerdict("a", passed=False),
        AuditVerdict("b", passed=False),
        AuditVerdict("a", passed=True),
    )
    assert failed_audits([failed, other, passed, failed], "a") == 2
    assert failed_audits([failed, other, passed, failed], "b") == 1
    assert failed_audits([failed, failed, HumanDecision(), failed], "a") == 1
    assert failed_audits([], "a") == 0


@pytest.mark.parametrize(
    "auditor, listed, said_at, why",
    [
        ("b", (), 5, ""),
        ("b", ("b", "c"), 5, ""),
        ("b", ("c",), 5, "you are not among the auditors of this build"),
        ("a", (), 5, "an agent cannot audit its own build"),
        ("a", ("a",), 5, "an agent cannot audit its own build"),
        ("b", (), 4, "it was said before the work was handed in"),
    ],
)
def test_whose_word_is_a_verdict(auditor: str, listed: tuple[str, ...], said_at: int, why: str) -> None:
    told = why_no_verdict(auditor, "a", listed=listed, said_at=Millis(said_at), handed_in_at=Millis(5))
    assert told == why

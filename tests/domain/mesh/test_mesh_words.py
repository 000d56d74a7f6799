"""The protocol's sentences, word by word."""

import pytest

from allswell.domain.ids import AgentId, TaskId
from allswell.domain.mesh.comms import SentenceContext, claiming, mesh_words, no_response, unblocked
from allswell.domain.rules.event import Event


@pytest.mark.row("M2", "M5")
def test_the_sentences_of_the_first_example() -> None:
    """Clean timeout handling, as the protocol shows it."""
    assert claiming("Deploy webhook monitoring") == "🎯 Claiming: Deploy webhook monitoring"
    assert no_response("Oracle", "server access", "doc task") == (
        "⏱️ Timeout: No response from Oracle on server access. Logging block, moving to doc task."
    )
    assert no_response("Oracle", "server access") == (
        "⏱️ Timeout: No response from Oracle on server access. Logging block, moving on."
    )
    assert unblocked("Oracle provided access", "webhook task") == (
        "✅ Unblocked: Oracle provided access. Re-queuing webhook task."
    )


ABOUT = SentenceContext("Deploy webhook monitoring", "server access", "Oracle", ("@ann", "@bob"))


def told(kind: str, **data: object) -> str | None:
    asked = {"request": "m_1.a", "kind": "handoff", "to": "Oracle", **data}
    return mesh_words(Event(kind, TaskId("t_1"), agent=AgentId("Sandman"), data=asked), ABOUT)


@pytest.mark.row("M2", "M5")
def test_each_sentence_comes_with_its_event() -> None:
    assert told("task_claimed") == "🎯 Claiming: Deploy webhook monitoring"
    assert told("request_blocked", attempts=3, next="doc task") == (
        "⏱️ Timeout: No response from Oracle on server access. Logging block, moving to doc task."
    )
    assert told("request_blocked", attempts=3, next="") == no_response("Oracle", "server access")
    assert told("request_resolved", by="Oracle", blocked_ms=1, requeued=True) == (
        "✅ Unblocked: Oracle answered server access. Re-queuing Deploy webhook monitoring."
    )
    assert told("request_resolved", by="Oracle", blocked_ms=1, requeued=False) == (
        "✅ Unblocked: Oracle answered server access. Deploy webhook monitoring is not needed any more."
    )
    assert told("mesh_asked") == (
        "🙋 Can any agent help? Oracle has not answered server access, and Deploy webhook monitoring needs it."
        " `allswell respond m_1.a` answers."
    )


@pytest.mark.row("M6")
def test_a_long_block_is_told_with_a_summary_and_humans_are_tagged_if_it_is_critical() -> None:
    assert told("task_blocked_long", blocked_ms=3_600_000, critical=False, count=1) == (
        "🚨 Blocked for 1h: Deploy webhook monitoring waits for Oracle on server access, asked by Sandman."
        " Marked for review (m_1.a)."
    )
    assert told("task_blocked_long", blocked_ms=90_000_000, critical=True, count=2) == (
        "🚨 @ann @bob Still blocked for 1d 1h: Deploy webhook monitoring waits for Oracle on server access, asked by"
        " Sandman. Critical, marked for review (m_1.a)."
    )


@pytest.mark.row("M9")
def test_the_sentence_of_the_second_example() -> None:
    """Retry success, as the protocol shows it."""
    made = Event("delivery_made", data={"sink": "x", "delivery": "m", "tries": 2, "says": "✅ Delivered on retry 2"})
    assert mesh_words(made, SentenceContext()) == "✅ Delivered on retry 2"


def test_what_is_no_matter_of_the_channel_is_not_said() -> None:
    closed = Event("request_closed", data={"request": "t_1", "outcome": "done", "reason": ""})
    late = Event("request_closed", data={"request": "t_1", "outcome": "failed", "reason": "delegation_timeout"})
    assert mesh_words(closed, ABOUT) is None
    assert mesh_words(late, ABOUT) == no_response("Oracle", "server access")
    assert mesh_words(Event("task_completed", data={"elapsed_ms": 1}), ABOUT) is None

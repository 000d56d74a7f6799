"""The protocol's sentences, word by word."""

import pytest

from allswell.domain.event import Event
from allswell.domain.mesh_words import claiming, mesh_words, no_response, unblocked


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


@pytest.mark.row("M9")
def test_the_sentence_of_the_second_example() -> None:
    """Retry success, as the protocol shows it."""
    made = Event("delivery_made", data={"sink": "x", "delivery": "m", "tries": 2, "says": "✅ Delivered on retry 2"})
    assert mesh_words(made, "") == "✅ Delivered on retry 2"


def test_what_is_no_matter_of_the_channel_is_not_said() -> None:
    closed = Event("request_closed", data={"request": "t_1", "outcome": "done", "reason": ""})
    late = Event("request_closed", data={"request": "t_1", "outcome": "failed", "reason": "delegation_timeout"})
    assert mesh_words(closed, "deploy", "server access", "Oracle") is None
    assert mesh_words(late, "deploy", "server access", "Oracle") == no_response("Oracle", "server access")
    assert mesh_words(Event("task_claimed", data={"deadline": 1}), "deploy") == "🎯 Claiming: deploy"
    assert mesh_words(Event("task_completed", data={"elapsed_ms": 1}), "deploy") is None

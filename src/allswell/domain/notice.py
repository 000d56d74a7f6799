"""What supervisors, guards and sinks may enter into the journal: what they saw and did, never what is decided here."""

from __future__ import annotations

from allswell.domain.command import Notice
from allswell.domain.decision import Decision
from allswell.domain.event import KINDS, Event
from allswell.domain.names import can_name
from allswell.domain.rule import Rule
from allswell.domain.situation import Situation
from allswell.domain.submit import check_text
from allswell.errors import Refused

NOTICES = frozenset(
    (
        "agent_state",
        "checkin_asked",
        "agent_stopped",
        "agent_nudged",
        "request_told",
        "usage_limit",
        "supervisor_started",
        "supervisor_stopped",
        "checkpoints_collected",
        "context_compacted",
        "session_paused",
        "session_resumed",
        "questions_open",
        "rate_limited",
        "delivery_made",
        "delivery_given_up",
        "sink_down",
        "question_told",
        "key_created",
        "key_revoked",
        "link_made",
        "session_opened",
    )
)
TEXT_MAX = 16_384


def check_notice(event: Event) -> None:
    """Refuse what is no notice, or not as the catalogue has it."""
    if event.kind not in NOTICES:
        raise Refused("bad_notice", f"{event.kind} is decided by the watch, and cannot be told to it", where="kind")
    if set(event.data) != set(KINDS[event.kind].fields):
        text = f"{event.kind} has the fields {sorted(KINDS[event.kind].fields)}, not {sorted(event.data)}"
        raise Refused("bad_notice", text, where="data")
    for name in (event.task, event.run, event.agent):
        if name is not None and not can_name(name):
            raise Refused("bad_notice", f"{name!r} names nothing", where="event")
    for field, value in event.data.items():
        if isinstance(value, str):
            check_text(value, field, TEXT_MAX)


def tell(_: Situation, command: Notice) -> Decision:
    """Enter a notice into the journal."""
    check_notice(command.event)
    return Decision(events=(command.event,))


RULES = (Rule(Notice, tell),)

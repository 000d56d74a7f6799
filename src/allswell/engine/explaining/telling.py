"""One event as a sentence: the catalogue of events, in words. A test holds it to `domain.event.KINDS`."""

from __future__ import annotations

from collections.abc import Mapping

from allswell.domain.event import Event
from allswell.domain.receipt import HOW, End
from allswell.engine.explaining.words import clean, length, quoted

SENTENCES: Mapping[str, str] = {
    "task_submitted": "is on the list",
    "task_ready": "can be claimed: {reason}",
    "task_claimed": "is held by {agent}{attempt}",
    "task_checked_in": "{agent} checks in: {note}{progress}",
    "task_completed": "is done: {agent} finished it in {elapsed_ms}",
    "task_said_done": "{agent} says that it is done; `{verify}` is to prove it",
    "task_verified": "`{verify}` {passed} ({why}) after {elapsed_ms}{by}",
    "task_sent_back": "was said to be done and is not: sent back to {agent}, {failed} of {most}",
    "task_accepted": "is done: accepted as it is{by}",
    "step_recorded": "is done: {agent} took {elapsed_ms}",
    "step_refused": "{agent} came back too late with {name}: it runs the flow no more",
    "task_retried": "failed for {agent} ({message}); the next try comes in {delay_ms}",
    "task_failed": "failed for good: {reason}",
    "task_returned": "is back in the pool: {reason}",
    "task_cancelled": "was called off: {reason}",
    "task_skipped": "is skipped: {reason}",
    "task_resubmitted": "is handed over again{by}, as {new_task}",
    "task_dismissed": "was dismissed{by}",
    "task_split": "was split into smaller tasks",
    "checkpoint_timeout": "{agent} did not answer when asked for a check-in (miss {checkpoint_count})",
    "agent_stalled": "{agent} is stalled: too many check-ins missed",
    "stalled_agent_recovered": "was taken back from {agent}, which had stalled",
    "agent_timeout": "{agent} reached its limit after {elapsed_ms}",
    "agent_idle": "{agent} gave no sign of progress; ended after {elapsed_ms}",
    "lease_lapsed": "{agent} went silent: its lease is over after {elapsed_ms}",
    "task_repeated_timeout": "timed out for the {count}. time: a human is asked",
    "late_result": "{agent} came back too late{attempt}: refused, and kept",
    "late_word": "{agent} spoke too late{attempt} ({verb}): refused, and kept",
    "receipt_written": "left a receipt{attempt}: {receipt} ({status})",
    "question_asked": "asks you: {text}",
    "question_answered": "was answered{by}: {choice}",
    "question_dismissed": "was dismissed{by}, and stays open",
    "question_withdrawn": "needs no answer any more",
    "run_opened": "run {name} was opened",
    "run_ended": "the run has ended: {reason}",
    "run_stands": "the run's clock stands while {question} is open",
    "run_goes_on": "the run's clock goes on; it stood for {stood_ms}",
    "limit_moved": "has another limit, as the clock of its run stood",
    "service_parked": "{service} asked everybody to wait",
    "rate_limited": "{service} says that it is called too often (attempt {count} of a call)",
    "service_escalated": "{service} needs help ({cause}: {reason}): a human is asked ({question})",
    "breaker_opened": "{service} failed {failures} times in a row: it is left alone for {pause_ms}",
    "breaker_probe": "{service} is tried by one call",
    "breaker_escalated": "{service} has failed {failures} times in a row: a human is asked ({question})",
    "breaker_closed": "{service} works again, after {shut_ms}",
    "attempt_cost": "{agent} reports what it cost: ${cost_usd}, {given} tokens in, {written} out",
    "cost_limit": "{agent} was ended: the task has cost ${cost_usd}, and a human is asked",
    "budget_reached": "{budget} has cost ${spent_usd}: nothing is begun under it",
    "request_sent": "{agent} asks {to} for help; it has {timeout_ms}",
    "request_delivered": "{agent} asks {to} again ({request}); it has {timeout_ms}",
    "request_expired": "{to} has not answered {request} within {timeout_ms}",
    "request_told": "{agent} is told of {request} ({heard_by})",
    "mesh_asked": "everybody is asked: who can answer {request} for {to}?",
    "request_blocked": "waits for {request}: {to} has not answered, and {agent} moved on",
    "request_resolved": "{request} was answered{by} after {blocked_ms}",
    "task_blocked_long": "the task is still blocked after {blocked_ms}: {to} has not answered {request}",
    "request_closed": "the request {request} is {outcome}: {reason}",
    "agent_state": "{agent} is {state}: {evidence}",
    "agent_nudged": "{agent} is nudged ({heard_by}): {evidence}",
    "checkin_asked": "{agent} is asked for a check-in ({heard_by}): {evidence}",
    "agent_stopped": "{agent} was ended ({reason}): {evidence}",
    "usage_limit": "{agent} has used up the quota of {account}: {said}",
    "supervisor_started": "supervisor {supervisor} watches {slots} slots from {host}",
    "supervisor_stopped": "supervisor {supervisor} has stopped: {how}",
    "checkpoints_collected": "check-ins were collected ({why}): {answered} answered, {silent} did not",
    "context_compacted": "the context was compacted: {outcome}",
    "session_paused": "nothing new is dispatched: {remaining} % of the session is left",
    "session_resumed": "the fleet dispatches again",
    "questions_open": "{count} questions wait for you",
    "question_told": "{sink} was told of the question {question}",
    "message_settled": "the message {message} of {queue} was settled{by}: {choice}",
    "message_quarantined": "the message {message} of {queue} was set aside for a human ({question}): {reason}",
    "delivery_made": "the delivery {delivery} to {sink} was made after {tries} tries",
    "delivery_given_up": "the delivery {delivery} to {sink} was given up: {reason}",
    "sink_down": "{sink} takes no deliveries: {reason}",
    "key_created": "the key {name} was made, for: {rights}",
    "key_revoked": "the key {name} was revoked",
    "link_made": "a link for the browser was made for {name}",
    "session_opened": "{name} has logged in at a browser, by a {how}",
    "clock_jumped": "the machine slept for {by_ms}: every holder gets one more window",
    "clock_set": "the clock was set by {by_ms}: what runs goes on with the time it had left",
}
MARKS: Mapping[str, str] = {
    "task_completed": "✓",
    "task_accepted": "✓",
    "task_sent_back": "✗",
    "step_recorded": "✓",
    "step_refused": "✋",
    "task_failed": "✗",
    "task_retried": "✗",
    "lease_lapsed": "✗",
    "agent_timeout": "✗",
    "agent_idle": "✗",
    "agent_stalled": "✗",
    "late_result": "✋",
    "late_word": "✋",
    "breaker_opened": "✗",
    "breaker_closed": "✓",
    "question_asked": "?",
    "task_repeated_timeout": "?",
}
_REASONS = {
    "lease_lapsed": "its holder went silent",
    "agent_timeout": "its limit was reached",
    "agent_idle": "its holder made no progress",
    "agent_stalled": "its holder stalled",
    "service_parked": "a service asked to wait",
    "run_timeout": "its run's deadline passed",
    "delegation_timeout": "the request's time was up",
    "usage_limit": "a usage limit was reached",
    "supervisor_stopped": "its supervisor stopped",
    "supervisor_died": "its supervisor died",
    "released": "its holder gave it back",
}
"""What stands for a reason, an outcome or a cause that is a name of ours."""


def tell(event: Event) -> str:
    """What an event says, without the name of what it is about."""
    data = {key: _say(key, value) for key, value in event.data.items()}
    data["agent"] = clean(event.agent or "nobody", 40)
    data["attempt"] = f" (attempt {event.token})" if event.token is not None and event.token > 1 else ""
    data["by"] = f" by {data['by']}" if data.get("by") else ""
    data["passed"] = "passed" if event.data.get("passed") else "failed"
    share = event.data.get("progress")
    data["progress"] = f" ({share:.0%})" if isinstance(share, float | int) else ""
    sentence = SENTENCES.get(event.kind)
    return event.kind.replace("_", " ") if sentence is None else sentence.format_map(data)


def _say(key: str, value: object) -> str:
    if key.endswith("_ms") and isinstance(value, int):
        return length(value)
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value)))
    if key in ("given", "written") and isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    if key == "status" and text in list(End):
        return HOW[End(text)]
    if key in ("reason", "outcome", "cause"):
        return _REASONS.get(text, clean(text if " " in text else text.replace("_", " ")))
    return quoted(text) if key in ("note", "text", "message") else clean(text)

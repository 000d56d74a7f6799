"""The journal read from its end: the newest events first, a page at a time, with a bound on how far one look goes.

The journal itself is read forward only (engine/watch.py). A page is found by looking at one piece of it after the
other, each before the last; where hardly anything fits, a page says how far it has got, and the next one goes on there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import TaskId
from allswell.domain.lease.model import AgentRecord
from allswell.domain.mesh.comms import COMMS_HEARS, Comm, RequestText, comm_for
from allswell.domain.mesh.health import NEUTRAL, Ledger, ledger_of
from allswell.domain.question import Question
from allswell.domain.receipts.receipt import HOW, End
from allswell.domain.rules.event import Entry, Event, Position
from allswell.engine.status.explanation import clean, length, quoted
from allswell.store.views import Views

LOOKED_AT = 6_000
"""Events that one look goes through."""
_PIECE, _PIECE_MOST = 8, 1 << 20
_FEW, _MANY = 256, 2_048
"""A piece is a number of events, or of transactions that have one event or thousands: the next one is made to fit."""
_CHUNK = 1_000


# Places in a journal that has grown long.
#
# The journal is read forward only, from a position. Its positions grow with time, so any place in it is found by
# halving, with a few looks, however long it has become.


async def numbering(views: Views) -> Callable[[int], Position]:
    """Positions by one number: a transaction's, where the store has them, else the event's."""
    first = await views.journal(Position(), 1)
    return (lambda number: Position(number, 0)) if first and first[0].position.xid else (lambda n: Position(0, n))


async def first_number(views: Views, at: Callable[[int], Position], late: Callable[[list[Entry]], bool]) -> int:
    """The least number after which the journal goes on in a way that is `late`."""
    low, high = 0, 1
    while not late(await views.journal(at(high), 1)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if late(await views.journal(at(middle), 1)):
            high = middle
        else:
            low = middle
    return high


async def journal_end(views: Views) -> Position:
    """Behind the last event; the very beginning, if the journal is empty."""
    if not await views.journal(Position(), 1):
        return Position()
    at = await numbering(views)
    return at(await first_number(views, at, lambda entries: not entries))


async def entries_after(views: Views, after: Position) -> AsyncIterator[Entry]:
    """The journal behind a place, to its end."""
    while entries := await views.journal(after, _CHUNK):
        for entry in entries:
            yield entry
        after = entries[-1].position


async def number_before(views: Views, at: Callable[[int], Position], since: int) -> int:
    """A number behind which all stands that happened since a moment, and perhaps a minute of what was before."""
    early = since - _MARGIN
    return await first_number(views, at, lambda entries: not entries or entries[0].at >= early) - 1


async def place_before(views: Views, since: int) -> Position:
    """The same as a place."""
    at = await numbering(views)
    return at(await number_before(views, at, since))


def about(kinds: Collection[str] = (), **ids: str | None) -> Callable[[Entry], bool]:
    """Whether an entry is of one of these kinds, if any is named, and about this task, this run, this agent."""
    named = [(field, value) for field, value in ids.items() if value is not None]

    def fits(entry: Entry) -> bool:
        event = entry.event
        return (not kinds or event.kind in kinds) and all(getattr(event, field) == value for field, value in named)

    return fits


class BackwardPage(msgspec.Struct, frozen=True):
    """Events, the newest first; `before` is where to go on, None at the beginning of the journal."""

    entries: list[Entry]
    before: int | None
    looked_at: int


async def look_back(
    views: Views,
    fits: Callable[[Entry], bool],
    most: int,
    before: int | None = None,
    *,
    bound: int = LOOKED_AT,
    start: int = 0,
) -> BackwardPage:
    """The last events that fit, before a place that an earlier page named, and behind the place `start`."""
    at = await numbering(views)
    end = before if before is not None else await first_number(views, at, lambda found: not found)
    found: list[Entry] = []
    looked, piece = 0, _PIECE
    while end > start and len(found) < most and looked < bound:
        begin = max(end - piece, start)
        entries = await _between(views, at(begin), at(end))
        looked += len(entries)
        fitting = [entry for entry in reversed(entries) if fits(entry)]
        room = most - len(found)
        found += fitting[:room]
        if len(fitting) > room:
            last = fitting[room - 1].position
            whole = last.xid or last.id  # where one transaction has several, none of them is shown twice or left out
            same = [entry for entry in fitting[room:] if last.xid and entry.position.xid == last.xid]
            found += same
            return BackwardPage(found, whole - (0 if last.xid else 1), looked)
        if len(entries) < _FEW:
            piece = min(piece * 2, _PIECE_MOST)
        elif len(entries) > _MANY:
            piece = max(piece // 4, 1)
        end = begin
    return BackwardPage(found, end or None, looked)


async def _between(views: Views, after: Position, upto: Position) -> list[Entry]:
    found: list[Entry] = []
    while entries := await views.journal(after, _CHUNK):
        found += [entry for entry in entries if entry.position <= upto]
        if len(entries) < _CHUNK or entries[-1].position > upto:
            break
        after = entries[-1].position
    return found


# An agent's ledger, read from the journal: a day of it, or as far back as is asked for.

MOST = 100_000
"""Events at the end of the journal that are looked at, if nothing else is said."""
_MARGIN = 60_000
"""Transactions that overlap may be stamped a little out of order."""


async def read_ledger(views: Views, agent: str, since: int, most: int | None = None) -> Ledger:
    """What the journal says of an agent since a moment, from about so many events at the end of it at most."""
    if most is not None:
        # From the end: a store that numbers transactions does not say how many events they have.
        last = await look_back(views, lambda entry: entry.at >= since, most, bound=most)
        is_cut = last.before is not None and len(last.entries) >= min(
            most, last.looked_at
        )  # all that was seen is younger
        told = ledger_of(agent, [(entry.at, entry.event) for entry in reversed(last.entries)])
        return replace(told, cut=most if is_cut else None)
    most = MOST
    at = await numbering(views)
    begin = await number_before(views, at, since)
    bound = await first_number(views, at, lambda found: not found) - most
    read = entries_after(views, at(max(begin, bound)))
    entries = [(entry.at, entry.event) async for entry in read if entry.at >= since]
    return replace(ledger_of(agent, entries), cut=most if bound > begin else None)


async def read_health(views: Views, agent: str) -> AgentRecord:
    """What is kept of an agent, and decides who is asked."""
    return (await views.view_health()).get(agent, NEUTRAL)


# The communication log, read from the journal.


async def comm_of(views: Views, entry: Entry) -> Comm | None:
    """The row that an entry of the journal is; None for what is no message between agents."""
    event = entry.event
    return comm_for(event, entry.at, await asked_of(views, event)) if event.kind in COMMS_HEARS else None


async def asked_of(views: Views, event: Event) -> RequestText:
    """What the request says of itself that an event is about."""
    row = await views.view_task(TaskId(str(event.data["request"])))
    asker = None if event.task is None else await views.view_task(event.task)
    blocked = str(event.task or "") if asker is None else asker.task.name
    if row is None:  # kept by an older version, or not any more: the event itself has the most of it
        return RequestText(str(event.data["request"]), str(event.data.get("to", "")), None, blocked)
    spec, record = row.task.spec.request, row.task.record.request
    if spec is None or record is None:
        return RequestText(row.task.name, row.task.role, row.task.spec.policy.timeout, blocked)
    to, has_blocked = spec.to.removeprefix("role:"), record.blocked_at is not None
    return RequestText(row.task.name, to, spec.timeout, blocked, record.attempt, has_blocked, bool(record.declined))


# One event as a sentence: the catalogue of events, in words. A test holds it to `domain.rules.event.KINDS`.

SENTENCES: Mapping[str, str] = {
    "task_submitted": "was submitted",
    "task_ready": "can be claimed: {reason}",
    "task_claimed": "is held by {agent}{attempt}",
    "task_checked_in": "{agent} checks in: {note}{progress}",
    "task_completed": "is done: {agent} finished it in {elapsed_ms}",
    "task_said_done": "{agent} reports that it is done; `{verify}` verifies it",
    "task_verified": "`{verify}` {passed} ({why}) after {elapsed_ms}{by}",
    "task_sent_back": "was reported as done and is not: sent back to {agent}, {failed} of {most}",
    "task_accepted": "is done: accepted as it is{by}",
    "step_recorded": "is done: {agent} took {elapsed_ms}",
    "step_refused": "{agent} came back too late with {name}: it no longer runs the flow",
    "task_retried": "failed for {agent} ({message}); the next try comes in {delay_ms}",
    "task_failed": "failed for good: {reason}",
    "task_returned": "is ready again: {reason}",
    "task_cancelled": "was cancelled: {reason}",
    "task_skipped": "is skipped: {reason}",
    "task_resubmitted": "was submitted again{by}, as {new_task}",
    "task_dismissed": "was dismissed{by}",
    "task_split": "was split into smaller tasks",
    "checkpoint_timeout": "{agent} did not answer when asked for a check-in (miss {checkpoint_count})",
    "agent_stalled": "{agent} is stalled: too many check-ins missed",
    "stalled_agent_recovered": "was taken back from {agent}, which had stalled",
    "agent_timeout": "{agent} reached its limit after {elapsed_ms}",
    "agent_idle": "{agent} gave no sign of progress; ended after {elapsed_ms}",
    "lease_lapsed": "{agent} went silent: its lease is over after {elapsed_ms}",
    "task_repeated_timeout": "timed out {count} times: a human is asked",
    "late_result": "{agent} reported too late{attempt}: refused, and kept",
    "late_word": "{agent} reported too late{attempt} ({verb}): refused, and kept",
    "task_suspended": "was stopped ({signal}); its limits are paused",
    "task_continued": "goes on; it was stopped for {stood_ms}",
    "receipt_written": "left a receipt{attempt}: {receipt} ({status})",
    "question_asked": "asks you: {text}",
    "question_answered": "was answered{by}: {choice}",
    "question_dismissed": "was dismissed{by}, and stays open",
    "question_withdrawn": "needs no answer any more",
    "run_opened": "run {name} was opened",
    "run_ended": "the run has ended: {reason}",
    "run_stands": "the run's time limit is paused while {question} is open",
    "run_goes_on": "the run's time limit runs again; it was paused for {stood_ms}",
    "limit_moved": "has a later limit, because the limit of its run was paused",
    "service_parked": "{service} asked to wait",
    "service_unparked": "{service} is used again{by}",
    "rate_limited": "{service} says that it is called too often (attempt {count} of a call)",
    "service_escalated": "{service} needs help ({cause}: {reason}): a human is asked ({question})",
    "breaker_opened": "{service} failed {failures} times in a row: it is not called for {pause_ms}",
    "breaker_probe": "{service} is tried with one call",
    "breaker_escalated": "{service} has failed {failures} times in a row: a human is asked ({question})",
    "breaker_closed": "{service} works again, after {shut_ms}",
    "attempt_cost": "{agent} reports what it cost: {cost_usd}{estimated}, {given} tokens in, {written} out",
    "cost_limit": "{agent} was ended: the task has cost {cost_usd}, and a human is asked",
    "token_limit": "{agent} was ended: the task has used {tokens} tokens, and a human is asked",
    "budget_reached": "{budget} has cost {spent_usd}: no task of it is started",
    "request_sent": "{agent} asks {to} for help; it has {timeout_ms}",
    "request_delivered": "{agent} asks {to} again ({request}); it has {timeout_ms}",
    "request_expired": "{to} has not answered {request} within {timeout_ms}",
    "request_told": "{agent} was notified of {request} ({heard_by})",
    "mesh_asked": "all agents are asked: who can answer {request} for {to}?",
    "request_blocked": "waits for {request}: {to} has not answered, and {agent} moved on",
    "request_resolved": "{request} was answered{by} after {blocked_ms}",
    "task_blocked_long": "the task is still blocked after {blocked_ms}: {to} has not answered {request}",
    "request_declined": "{by} has declined {request}: {reason}",
    "request_closed": "the request {request} is {outcome}: {reason}",
    "agent_state": "{agent} is {state}: {evidence}",
    "reaper_stopped": "{agent}: {evidence}",
    "agent_resumed": "{agent} goes on with its own session",
    "agent_restarted": "{agent} begins a new session of its own: {why}",
    "agent_waits": "{agent} waits for a human ({kind}): {text}",
    "human_session_began": "{agent} began, started by a human in {folder}",
    "human_session_ended": "{agent}, started by a human in {folder}, has ended",
    "agent_turn_failed": "a turn of {agent} has failed ({kind}): {text}",
    "agent_nudged": "{agent} was reminded ({heard_by}): {evidence}",
    "checkin_asked": "{agent} is asked for a check-in ({heard_by}): {evidence}",
    "agent_stopped": "{agent} was ended ({reason}): {evidence}",
    "survivors_left": "{agent} was told to stop, and {processes} did not end: its folder and its slot are kept",
    "survivors_gone": "what was left of {agent} has ended ({processes}): its folder and its slot are free",
    "survivors_freed": "folder and slot of {agent} were freed{by}; {processes} may still run",
    "run_silent": "no sign of progress for {silent_ms}, and {printed}; it goes on",
    "usage_limit": "{agent} has used up the quota of {account}: {said}",
    "supervisor_started": "supervisor {supervisor} watches {slots} slots from {host}",
    "supervisor_stopped": "supervisor {supervisor} has stopped: {how}",
    "checkpoints_collected": "check-ins were collected ({why}): {who_answered}",
    "context_compacted": "the context was compacted: {outcome}",
    "session_paused": "no new task is started{to_account}: {remaining} % of the session is left",
    "session_resumed": "tasks are started again{to_account}",
    "questions_open": "{count} questions wait for you",
    "question_told": "{sink} was notified of the question {question}",
    "message_settled": "the message {message} of {queue} was decided{by}: {choice}",
    "message_quarantined": "the message {message} of {queue} was set aside for a human ({question}): {reason}",
    "delivery_made": "the message {delivery} to {sink} was delivered after {tries} tries",
    "delivery_given_up": "the message {delivery} to {sink} was given up: {reason}",
    "sink_down": "{sink} accepts no messages: {reason}",
    "key_created": "the key {name} was made, for: {rights}",
    "key_revoked": "the key {name} was revoked",
    "link_made": "a link for the browser was made for {name}",
    "session_opened": "{name} has logged in with a browser, by a {how}",
    "links_revoked": "all answer links were revoked{by}",
    "clock_jumped": "the machine slept for {by_ms}: every agent gets more time to renew its lease",
    "clock_set": "the clock was changed by {by_ms}: everything keeps the time it had left",
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
    "survivors_left": "✗",
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
    data["to_account"] = f" to agents of {data['account']}" if data.get("account") else ""
    data["who_answered"] = _who_answered(data.get("answered", ""), data.get("silent", ""))
    data["passed"] = "passed" if event.data.get("passed") else "failed"
    share = event.data.get("progress")
    data["progress"] = f" ({share:.0%})" if isinstance(share, float | int) else ""
    data.setdefault("estimated", "")  # of an event of before there were estimates
    sentence = SENTENCES.get(event.kind)
    return event.kind.replace("_", " ") if sentence is None else sentence.format_map(data)


def _who_answered(answered: str, silent: str) -> str:
    if not answered:
        return f"{silent} did not answer" if silent else "no agent was at work"
    return f"{answered} answered" + (f", {silent} did not" if silent else "")


def _say(key: str, value: object) -> str:
    if key.endswith("_ms") and isinstance(value, int):
        return length(value)
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value)))
    if key in ("given", "written", "tokens", "cost_usd", "spent_usd"):
        if isinstance(value, int | float):
            return f"{value:,}" if key in ("given", "written", "tokens") else f"${value}"
        return "unknown" if value is None else clean(str(value))
    if key == "estimated":
        return " (estimated)" if value is True else ""
    text = str(value)
    if key == "status" and text in list(End):
        return HOW[End(text)]
    if key in ("reason", "outcome", "cause"):
        return _REASONS.get(text, clean(text if " " in text else text.replace("_", " ")))
    return quoted(text) if key in ("note", "text", "message") else clean(text)


# Questions about which no alert has gone out: read from the journal, where every alert that went out is.


async def untold_questions(views: Views, questions: Sequence[Question]) -> list[str]:
    """Of these, the open ones about which no alert has gone out."""
    left = {str(question.id): question.asked_at for question in questions if question.closed_at is None}
    if not left:
        return []
    async for entry in entries_after(views, await place_before(views, min(left.values()))):
        if entry.event.kind == "question_told":
            left.pop(str(entry.event.data["question"]), None)
            if not left:
                break
    return list(left)

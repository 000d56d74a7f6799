"""Whether what the processes were told and what the store says can both be true; every way in which they cannot.

The journal is replayed task by task: tokens grow, one holder at a time, timers in their time, nothing after the end.
Then every answer is held against it: what was acknowledged is there, once, and by the one who said it; what was
refused is not. Last come the moments: nobody is given a task that another can still trust to be its own, and nothing is
accepted from one whose task another had already been given. What was asked and never answered may have happened or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain, pairwise

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.rules.event import Entry
from tests.support.history.found import Found
from tests.support.history.scribe import Fate, Op

_HOLDER = ("checkin", "complete", "fail", "release")
_ENDING = ("complete", "fail", "release")
_ENDS = (
    "task_completed",
    "task_retried",
    "task_failed",
    "task_returned",
    "task_cancelled",
    "task_skipped",
    "task_split",
)
"""Events that take a task out of its holder's hands."""
_SPOKEN = ("task_checked_in", "task_completed", "task_retried", "question_asked")
"""Events that only a holder's own word can make."""
_OVER = ("task_completed", "task_cancelled", "task_skipped", "task_split")


Lengths = dict[tuple[str | None, int | None], int | None]
"""How long the holder of each token promised to renew, in ms."""


class Wrong(StrEnum):
    """What can be wrong with a history."""

    LOST = "acknowledged and lost"
    CHANGED = "came out other than it went in"
    INVENTED = "came out and never went in"
    DOUBLED = "done more than once"
    STALE = "accepted under a token that was not the current one"
    REFUSED_BUT_DONE = "refused and done all the same"
    DISORDER = "tokens or holders out of order"
    EARLY = "ended before its time"
    UNACCOUNTED = "open, and nothing will ever move it"
    UNFINISHED = "still open when all was over"


class Anomaly(msgspec.Struct, frozen=True):
    """One thing that cannot be, with what shows it."""

    wrong: Wrong
    task: str
    story: str

    def __str__(self) -> str:
        return f"{self.wrong}: {self.task}: {self.story}"


def check(ops: Sequence[Op], found: Found) -> list[Anomaly]:
    """Every anomaly of a history that has come to its end: all work done, nobody at work any more."""
    parts = (
        _went_in(ops, found),
        _came_out(ops, found),
        _replay(ops, found),
        _answers(ops, found),
        _moments(ops, found),
    )
    return list(chain(*parts))


# --- what went in, and what came out ----------------------------------------------------------------------------------


def _submits(ops: Sequence[Op]) -> dict[str, Op]:
    return {op.said["task"]: op for op in ops if op.verb == "submit"}


def _went_in(ops: Sequence[Op], found: Found) -> Iterator[Anomaly]:
    """What was accepted is there as it was given; what was refused is not."""
    asked = _submits(ops)
    for task, op in asked.items():
        there = found.tasks.get(task)
        if there is None:
            if op.fate is Fate.DONE:
                yield Anomaly(Wrong.LOST, task, f"{op.process} was told that it is accepted, and it is not there")
        elif op.fate is Fate.REFUSED:
            yield Anomaly(Wrong.REFUSED_BUT_DONE, task, f"{op.process}'s submit was refused, and the task is there")
        elif there.payload != op.said["payload"]:
            yield Anomaly(Wrong.CHANGED, task, f"{op.said['payload']!r} went in, {there.payload!r} came out")
    for op in ops:
        if op.verb == "claim" and op.task in asked and op.told["payload"] != asked[op.task].said["payload"]:
            yield Anomaly(Wrong.CHANGED, str(op.task), f"{op.process} was handed {op.told['payload']!r}")


def _came_out(ops: Sequence[Op], found: Found) -> Iterator[Anomaly]:
    """What is there was given by somebody, and has come to its end."""
    asked = _submits(ops)
    for task in found.tasks:
        if task not in asked:
            yield Anomaly(Wrong.INVENTED, task, "nobody submitted it")
    for task in found.unaccounted:
        yield Anomaly(Wrong.UNACCOUNTED, task, "no lease, no timer, not ready, and no live thing it waits for")
    for task, row in found.tasks.items():
        if row.state == "open":
            yield Anomaly(Wrong.UNFINISHED, task, "it was to be worked off at the end")


# --- the journal ------------------------------------------------------------------------------------------------------


def _replay(ops: Sequence[Op], found: Found) -> Iterator[Anomaly]:
    """One holder at a time, tokens that grow, timers in their time, and nothing after the end.

    In the journal's own order, as every follower reads it: what is told about a task is told as it happened.
    """
    lengths: Lengths = {(op.task, op.token): op.said["length"] for op in ops if op.verb == "claim"}
    by_task: dict[str, list[Entry]] = defaultdict(list)
    off = 0
    for entry in found.journal:
        if entry.event.kind == "clock_set":
            off += entry.event.data["by_ms"]
        if entry.event.task is not None:
            by_task[entry.event.task].append(_as_if_never_set(entry, off) if off else entry)
    for task, entries in by_task.items():
        yield from _replay_task(task, entries, lengths)
    for task in found.tasks:
        if task not in by_task:
            yield Anomaly(Wrong.LOST, task, "it is there, and the journal does not know of it")


def _as_if_never_set(entry: Entry, off: int) -> Entry:
    """The entry as it would be if the store's clock had not been set by so much before it: what runs moves along."""
    data = dict(entry.event.data)
    if "deadline" in data:
        data["deadline"] -= off
    return replace(entry, at=Millis(entry.at - off), event=replace(entry.event, data=data))


def _replay_task(task: str, entries: Sequence[Entry], lengths: Lengths) -> Iterator[Anomaly]:
    kinds = Counter(entry.event.kind for entry in entries)
    for kind in ("task_submitted", "task_completed"):
        if kinds[kind] > 1:
            yield Anomaly(Wrong.DOUBLED, task, f"{kind} stands in the journal {kinds[kind]} times")
    holder: Entry | None = None
    last = 0
    over = ""
    asking = False  # a question ends an attempt, unless its holder holds on meanwhile: both are right
    for entry in entries:
        event = entry.event
        if over and event.kind in ("task_claimed", *_SPOKEN):
            yield Anomaly(Wrong.DISORDER, task, f"{event.kind} after {over}")
        if event.kind == "task_claimed":
            if holder is not None and not asking:
                yield Anomaly(Wrong.DISORDER, task, f"claimed by {event.agent} while {holder.event.agent} had it")
            if (event.token or 0) <= last:
                yield Anomaly(Wrong.DISORDER, task, f"token {event.token} after token {last}")
            last = max(last, event.token or 0)
            holder, asking = entry, False
            continue
        if event.kind in _SPOKEN and event.token is not None and (holder is None or event.token != holder.event.token):
            now = "nobody's" if holder is None else f"token {holder.event.token}'s"
            yield Anomaly(Wrong.STALE, task, f"{event.kind} under token {event.token} when it was {now}")
        if holder is not None and event.token == holder.event.token:
            yield from _early(task, entry, holder, lengths.get((task, event.token)))
        asking = asking or event.kind == "question_asked"
        if event.kind in _ENDS:
            holder = None
        if event.kind in _OVER:
            over = event.kind


def _early(task: str, entry: Entry, claimed: Entry, length: int | None) -> Iterator[Anomaly]:
    """On the store's own clock: a limit at the limit, a lapse after at least one whole lease."""
    lasted = entry.at - claimed.at
    if entry.event.kind == "agent_timeout" and entry.at < claimed.event.data["deadline"]:
        early = claimed.event.data["deadline"] - entry.at
        yield Anomaly(Wrong.EARLY, task, f"token {entry.event.token} reached its limit {early} ms early")
    if entry.event.kind == "lease_lapsed" and length is not None and lasted < length:
        yield Anomaly(Wrong.EARLY, task, f"token {entry.event.token} lapsed after {lasted} of {length} ms")


# --- the answers ------------------------------------------------------------------------------------------------------


def _answers(ops: Sequence[Op], found: Found) -> Iterator[Anomaly]:
    """What was acknowledged was said by the one who had the task."""
    claimed = _holders(found, "task_claimed")
    for op in ops:
        task, agent = str(op.task), claimed.get((op.task, op.token))
        if op.verb == "claim" and op.token is not None and agent != op.said["agent"]:
            story = f"{op.process} was granted token {op.token}, and the journal has no such claim"
            yield Anomaly(Wrong.LOST, task, story)
        if op.verb in _HOLDER and op.fate is Fate.DONE and agent != op.said["agent"]:
            story = f"{op.verb} of {op.said['agent']} was accepted under token {op.token}, which is {agent}'s"
            yield Anomaly(Wrong.STALE, task, story)
    yield from _completions([op for op in ops if op.verb == "complete" and op.task in found.tasks], found)
    for task, row in found.tasks.items():
        if len(row.done_by) > 1:
            yield Anomaly(Wrong.DOUBLED, task, f"the attempts {row.done_by} all ended as done")


def _completions(ops: Sequence[Op], found: Found) -> Iterator[Anomaly]:
    """An acknowledged completion is in the journal, the attempts and the result, and is the only one."""
    completed = _holders(found, "task_completed")
    acknowledged: Counter[str] = Counter()
    for op in ops:
        task, row = str(op.task), found.tasks[str(op.task)]
        if op.fate is Fate.DONE:
            acknowledged[task] += 1
            if (task, op.token) not in completed or row.state != "done" or op.token not in row.done_by:
                story = f"{op.process} completed it under token {op.token}; it is {row.state}, done by {row.done_by}"
                yield Anomaly(Wrong.LOST, task, story)
            elif row.result != op.said["result"]:
                yield Anomaly(Wrong.CHANGED, task, f"its result {op.said['result']!r} came out as {row.result!r}")
        elif op.fate is Fate.REFUSED and row.state == "done" and row.result == op.said["result"]:
            story = f"{op.process}'s result was refused ({op.told['code']}) and kept"
            yield Anomaly(Wrong.REFUSED_BUT_DONE, task, story)
    for task, times in acknowledged.items():
        if times > 1:
            yield Anomaly(Wrong.DOUBLED, task, f"{times} holders were told that they completed it")


def _holders(found: Found, kind: str) -> dict[tuple[str | None, int | None], str | None]:
    """Who an event of this kind speaks of, for each task and token."""
    return {(e.event.task, e.event.token): e.event.agent for e in found.journal if e.event.kind == kind}


# --- the moments ------------------------------------------------------------------------------------------------------


def _moments(ops: Sequence[Op], found: Found) -> Iterator[Anomaly]:
    """Across processes, on one clock: who was told when, and who asked or still trusted after that."""
    grants: dict[str, list[Op]] = defaultdict(list)
    words: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in ops:
        if op.task is None or op.token is None:
            continue
        if op.verb == "claim":
            grants[op.task].append(op)
        elif op.verb in _HOLDER:
            words[(op.task, op.token)].append(op)
    jumps = [] if found.shared_clock else [op.asked_at for op in ops if op.verb == "clock_jump"]
    for task, held in grants.items():
        held.sort(key=lambda op: op.token or 0)
        for before, after in pairwise(held):
            own = words[(task, before.token or 0)]
            yield from _stale(task, own, after)
            yield from _given_away(task, before, own, after, jumps)


def _stale(task: str, own: Sequence[Op], after: Op) -> Iterator[Anomaly]:
    """A word that was first said when another already had the task, and was accepted."""
    for op in own:
        if op.fate is Fate.DONE and op.asked_at > (after.told_at or 0):
            late = (op.asked_at - (after.told_at or 0)) / 1e6
            story = f"{op.verb} under token {op.token}, asked {late:.0f} ms after token {after.token} was granted"
            yield Anomaly(Wrong.STALE, task, story)


def _given_away(task: str, before: Op, own: Sequence[Op], after: Op, jumps: Sequence[int]) -> Iterator[Anomaly]:
    """A lease that its holder had not ended and could still trust when another was told that it has the task."""
    granted = after.told_at or 0
    if any(op.verb in _ENDING and op.asked_at <= granted for op in own):
        return
    until = max(op.told.get("trusted_until", 0) for op in (before, *own) if op.fate is Fate.DONE)
    if granted < until and not any(before.asked_at <= jump <= granted for jump in jumps):
        story = f"token {after.token} was granted {(until - granted) / 1e6:.0f} ms before token {before.token}'s end"
        yield Anomaly(Wrong.EARLY, task, story)

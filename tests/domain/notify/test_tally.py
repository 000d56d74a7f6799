"""A tally is a function of the journal: each attempt once, under what ended it first, however it is read."""

import random

import msgspec

from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.rules.event import Event, Position
from allswell.interfaces.http.metrics import BUCKETS, JournalTally, StoredTally


def played(chance: random.Random, tasks: int) -> list[tuple[Position, Millis, Event]]:
    """Lives of tasks, mixed: what ends an attempt is followed by what becomes of its task."""
    entries: list[tuple[Position, Millis, Event]] = []
    lives = {TaskId(f"t_{number}"): 0 for number in range(tasks)}
    for number in range(tasks * 6):
        task = chance.choice(list(lives))
        token = lives[task]
        at = Millis(1_000 * number)

        def tell(kind: str, task: TaskId = task, at: Millis = at, **data: object) -> None:
            event = Event(kind, task, None, AgentId("ada"), Token(1), data)
            entries.append((Position(0, len(entries) + 1), at, event))

        if token == 0:
            tell("task_submitted")
            lives[task] = 1
        elif token % 2:
            tell("task_claimed")
            lives[task] += 1
        else:
            ending = chance.choice([["task_completed"], ["agent_timeout", "task_returned"], ["task_retried"], []])
            for kind in ending:
                tell(kind)
            lives[task] += 1
    return entries


def test_each_attempt_counts_once() -> None:
    tally = JournalTally()
    for place, (kind, at) in enumerate(
        [
            ("task_submitted", 0),
            ("task_claimed", 700),
            ("lease_lapsed", 5_000),
            ("task_returned", 5_000),
            ("task_claimed", 65_001),
            ("question_asked", 66_000),
            ("task_ready", 70_000),
            ("task_claimed", 70_050),
            ("task_completed", 80_000),
            ("late_result", 81_000),
        ]
    ):
        tally.take(Position(0, place + 1), Millis(at), Event(kind, TaskId("t_1"), token=Token(1)))
    assert tally.ends == {"lapsed": 1, "asked": 1, "done": 1}
    bounds = dict(zip((*BUCKETS, None), tally.waits, strict=True))
    assert (bounds[100], bounds[1_000], bounds[300_000]) == (1, 1, 1)
    assert tally.waited == 700 + 60_001 + 50


def test_a_restart_anywhere_changes_no_number() -> None:
    """Read at one go or by twenty processes one after another, what is counted is the same, and never goes back."""
    chance = random.Random(5)
    entries = played(chance, 40)
    whole = JournalTally()
    for entry in entries:
        whole.take(*entry)
    parts = JournalTally()
    last = 0
    for entry in entries:
        parts.take(*entry)
        if chance.random() < 0.2:
            before = sum(parts.ends.values())
            written = msgspec.json.encode(parts.kept())
            parts = JournalTally(msgspec.json.decode(written, type=StoredTally))
            assert sum(parts.ends.values()) == before >= last
            assert parts.position == entry[0]
            last = before
    assert (parts.ends, parts.waits, parts.waited) == (whole.ends, whole.waits, whole.waited)

"""The history checker is right about a good history, and finds every anomaly that is planted in it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import allswell
from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.rules.event import Entry, Event, Position
from tests.support.history import Fate, Found, FoundTask, Op, Scribe, Witness, Wrong, check, inspect, read

MS = 1_000_000
T = "t_a"


class Story:
    """A small history that is as it should be: two holders, the first of which fell silent; and a second task.

    Moments are milliseconds; the store's clock and the machine's are the same here.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.journal: list[Entry] = []
        self.shared_clock = True
        self.unaccounted: list[str] = []
        self.ask("submit", 0, 5, said={"task": T, "payload": 1})
        self.event(4, "task_submitted", name="a")
        self.ask("claim", 10, 15, {"agent": "ann", "length": 100}, {"task": T, "token": 1, "trusted_until": 110 * MS})
        self.event(12, "task_claimed", 1, "ann", deadline=1_012)
        self.ask("checkin", 50, 55, self.by("ann", 1), {"trusted_until": 150 * MS})
        self.event(160, "lease_lapsed", 1, "ann", elapsed_ms=148)
        self.event(160, "task_returned", 1, "ann", reason="lease_lapsed")
        self.ask("claim", 150, 170, {"agent": "bob", "length": 100}, {"task": T, "token": 2, "trusted_until": 250 * MS})
        self.event(165, "task_claimed", 2, "bob", deadline=1_165)
        self.ask("complete", 180, 190, {**self.by("ann", 1), "result": "old"}, {"code": "LeaseLost"}, Fate.REFUSED)
        self.event(185, "late_result", 1, "ann", verb="complete")
        self.ask("complete", 200, 210, {**self.by("bob", 2), "result": "new"})
        self.event(205, "task_completed", 2, "bob", elapsed_ms=40)
        self.tasks = {T: FoundTask(T, "done", 1, "new", (2,))}
        for op in self.ops:
            if op.verb == "claim":
                op.told["payload"] = 1

    @staticmethod
    def by(agent: str, token: int) -> dict[str, object]:
        return {"task": T, "token": token, "agent": agent}

    def ask(
        self,
        verb: str,
        asked: int,
        told: int,
        said: dict[str, object],
        answer: dict[str, object] | None = None,
        fate: Fate = Fate.DONE,
    ) -> Op:
        op = Op("p1", len(self.ops) + 1, verb, asked * MS, said, fate, told * MS, answer or {})
        self.ops.append(op)
        return op

    def event(self, at: int, kind: str, token: int | None = None, agent: str | None = None, **data: object) -> None:
        event = Event(
            kind, TaskId(T), None, AgentId(agent) if agent else None, None if token is None else Token(token), data
        )
        self.journal.append(Entry(Position(1, len(self.journal) + 1), Millis(at), event))

    def op(self, verb: str, number: int = 0) -> Op:
        return [op for op in self.ops if op.verb == verb][number]

    def drop(self, kind: str, number: int = 0) -> None:
        self.journal.remove([entry for entry in self.journal if entry.event.kind == kind][number])

    def set_task(self, **changes: object) -> None:
        self.tasks[T] = replace(self.tasks[T], **changes)

    def wrong(self) -> list[Wrong]:
        found = Found(self.tasks, self.journal, self.unaccounted, self.shared_clock)
        return [anomaly.wrong for anomaly in check(self.ops, found)]


def test_a_good_history_has_no_anomaly() -> None:
    assert Story().wrong() == []


def forgotten(story: Story) -> None:
    story.tasks.clear()
    story.journal.clear()
    story.ops = story.ops[:1]


def payload_changed(story: Story) -> None:
    story.set_task(payload=2)


def handed_another_payload(story: Story) -> None:
    story.op("claim").told["payload"] = 7


def out_of_nowhere(story: Story) -> None:
    story.tasks["t_b"] = FoundTask("t_b", "failed", None, None)
    story.journal.append(Entry(Position(1, 99), Millis(1), Event("task_submitted", TaskId("t_b"))))


def refused_and_there(story: Story) -> None:
    story.op("submit").fate = Fate.REFUSED


def submitted_twice(story: Story) -> None:
    story.journal.insert(1, story.journal[0])


def not_in_the_journal(story: Story) -> None:
    story.journal.clear()
    story.ops = story.ops[:1]
    story.set_task(state="cancelled", result=None, done_by=())


def completed_twice_in_the_journal(story: Story) -> None:
    story.event(206, "task_completed", 2, "bob", elapsed_ms=41)


def completed_twice_by_attempts(story: Story) -> None:
    story.set_task(done_by=(1, 2))


def two_were_told_done(story: Story) -> None:
    story.op("complete").fate = Fate.DONE


def a_completion_is_lost(story: Story) -> None:
    story.set_task(state="failed", result=None, done_by=())


def a_result_is_another(story: Story) -> None:
    story.set_task(result="something else")


def a_refused_result_was_kept(story: Story) -> None:
    story.op("complete", 1).fate = Fate.UNKNOWN
    story.set_task(result="old")


def a_zombies_completion_was_accepted(story: Story) -> None:
    story.drop("task_completed")
    story.event(205, "task_completed", 1, "ann", elapsed_ms=190)
    story.op("complete").fate = Fate.DONE
    story.op("complete", 1).fate = Fate.REFUSED
    story.op("complete", 1).told = {"code": "LeaseLost"}
    story.set_task(result="old", done_by=(1,))


def a_zombies_checkin_was_accepted(story: Story) -> None:
    story.ask("checkin", 175, 178, story.by("ann", 1), {"trusted_until": 275 * MS})


def accepted_from_somebody_else(story: Story) -> None:
    story.ask("checkin", 175, 178, story.by("eve", 2), {"trusted_until": 275 * MS})


def a_claim_the_journal_does_not_know(story: Story) -> None:
    told = {"task": T, "token": 3, "trusted_until": 350 * MS, "payload": 1}
    story.ask("claim", 300, 310, {"agent": "eve", "length": 100}, told)


def two_holders_at_once(story: Story) -> None:
    story.drop("task_returned")


def a_token_used_again(story: Story) -> None:
    story.journal = [replace(e, event=replace(e.event, token=1)) if e.event.token else e for e in story.journal]
    for op in story.ops:
        if op.said.get("token") == 2:
            op.said["token"] = 1
    story.op("claim", 1).told["token"] = 1
    story.op("complete").said["token"] = 0
    story.set_task(done_by=(1,))
    story.ops = [op for op in story.ops if op.said.get("agent") != "ann" or op.verb == "complete"]


def claimed_after_the_end(story: Story) -> None:
    story.event(300, "task_claimed", 3, "eve", deadline=9_999)
    story.event(301, "task_returned", 3, "eve", reason="released")


def lapsed_early_on_the_stores_clock(story: Story) -> None:
    place = next(n for n, entry in enumerate(story.journal) if entry.event.kind == "lease_lapsed")
    story.journal[place] = replace(story.journal[place], at=Millis(111))


def limited_early_on_the_stores_clock(story: Story) -> None:
    place = next(n for n, entry in enumerate(story.journal) if entry.event.kind == "lease_lapsed")
    entry = story.journal[place]
    story.journal[place] = replace(entry, event=replace(entry.event, kind="agent_timeout"))


def given_away_while_trusted(story: Story) -> None:
    story.op("checkin").told["trusted_until"] = 171 * MS


def hangs_silently(story: Story) -> None:
    story.unaccounted.append(T)


def left_open(story: Story) -> None:
    story.ops = story.ops[:1]
    story.journal = story.journal[:1]
    story.set_task(state="open", result=None, done_by=())


PLANTED: list[tuple[Callable[[Story], None], Wrong]] = [
    (forgotten, Wrong.LOST),
    (payload_changed, Wrong.CHANGED),
    (handed_another_payload, Wrong.CHANGED),
    (out_of_nowhere, Wrong.INVENTED),
    (refused_and_there, Wrong.REFUSED_BUT_DONE),
    (submitted_twice, Wrong.DOUBLED),
    (not_in_the_journal, Wrong.LOST),
    (completed_twice_in_the_journal, Wrong.DOUBLED),
    (completed_twice_by_attempts, Wrong.DOUBLED),
    (two_were_told_done, Wrong.DOUBLED),
    (a_completion_is_lost, Wrong.LOST),
    (a_result_is_another, Wrong.CHANGED),
    (a_refused_result_was_kept, Wrong.REFUSED_BUT_DONE),
    (a_zombies_completion_was_accepted, Wrong.STALE),
    (a_zombies_checkin_was_accepted, Wrong.STALE),
    (accepted_from_somebody_else, Wrong.STALE),
    (a_claim_the_journal_does_not_know, Wrong.LOST),
    (two_holders_at_once, Wrong.DISORDER),
    (a_token_used_again, Wrong.DISORDER),
    (claimed_after_the_end, Wrong.DISORDER),
    (lapsed_early_on_the_stores_clock, Wrong.EARLY),
    (limited_early_on_the_stores_clock, Wrong.EARLY),
    (given_away_while_trusted, Wrong.EARLY),
    (hangs_silently, Wrong.UNACCOUNTED),
    (left_open, Wrong.UNFINISHED),
]


@pytest.mark.parametrize("plant, wrong", PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_anomaly_is_found(plant: Callable[[Story], None], wrong: Wrong) -> None:
    story = Story()
    plant(story)
    assert wrong in story.wrong()


def test_every_kind_of_anomaly_is_planted() -> None:
    assert {wrong for _, wrong in PLANTED} == set(Wrong)


def test_what_nobody_was_told_may_have_happened_or_not() -> None:
    story = Story()
    story.op("complete", 1).fate = Fate.UNKNOWN
    assert story.wrong() == [], "it did"
    story.drop("task_completed")
    story.event(205, "task_cancelled", reason="cancelled")
    story.set_task(state="cancelled", result=None, done_by=())
    assert story.wrong() == [], "it did not"


def test_a_jump_of_the_clock_excuses_what_it_touched_unless_the_clock_is_a_servers() -> None:
    for shared in (False, True):
        story = Story()
        given_away_while_trusted(story)
        story.ask("clock_jump", 100, 100, {"by_ms": 60_000})
        story.shared_clock = shared
        assert story.wrong() == ([Wrong.EARLY] if shared else [])


def test_a_holder_that_hears_of_its_lease_when_it_is_over_trusts_nothing() -> None:
    """It was stopped while its claim was answered: others may have had the task meanwhile."""
    story = Story()
    story.ops.remove(story.op("checkin"))
    first = story.op("claim")
    first.told_at, first.told["trusted_until"] = 172 * MS, 0
    assert story.wrong() == []
    first.told["trusted_until"] = 173 * MS
    assert story.wrong() == [Wrong.EARLY], "but it must know it"


def test_what_a_killed_process_wrote_is_read_up_to_the_kill(tmp_path: Path) -> None:
    scribe = Scribe(tmp_path / "p1.jsonl", "p1")
    first = scribe.ask("submit", task=T, payload={"n": 1})
    scribe.done(first)
    second = scribe.ask("claim", agent="ann", length=None)
    scribe.failed(second, allswell.Unavailable("try later"))
    third = scribe.ask("complete", task=T, token=1, agent="ann", result=None)
    scribe.failed(third, allswell.LeaseLost(TaskId(T), Token(1), "too late"))
    scribe.ask("complete", task=T, token=2, agent="ann", result=None)
    scribe.close()
    with (tmp_path / "p1.jsonl").open("ab") as file:
        file.write(b'{"process":"p1","number":5,"at":1,"ve')
    ops = read([tmp_path / "p1.jsonl"])
    assert [(op.verb, op.fate) for op in ops] == [
        ("submit", Fate.DONE),
        ("claim", Fate.UNKNOWN),
        ("complete", Fate.REFUSED),
        ("complete", Fate.UNKNOWN),
    ]
    assert ops == sorted(copy.copy(ops), key=lambda op: op.asked_at)


def test_a_name_that_two_processes_use_is_refused(tmp_path: Path) -> None:
    for file in ("a", "b"):
        scribe = Scribe(tmp_path / file, "p1")
        scribe.note("hello")
        scribe.close()
    with pytest.raises(ValueError, match="a name is used once"):
        read(tmp_path.iterdir())


def test_a_witnessed_watch_gives_a_good_history(tmp_path: Path) -> None:
    async def scene() -> None:
        scribe = Scribe(tmp_path / "p1.jsonl", "p1")
        async with allswell.open("memory:") as watch:
            witness = Witness(watch, scribe)
            for number in range(4):
                await witness.submit(f"task {number}", payload={"n": number})
            assert await witness.claim("ann", roles=["none"]) is None
            held = [await witness.claim("ann", lease="1m", wait="1s") for _ in range(4)]
            completed, failed, released, cancelled = [lease for lease in held if lease is not None]
            await completed.checkin("half way")
            await completed.complete("ok")
            await failed.fail("no such thing", error_class="validation")
            await released.release()
            again = await witness.claim("bob")
            assert again is not None
            await again.complete("done by bob")
            await watch.cancel(cancelled.lease.task)
            with pytest.raises(allswell.LeaseLost):
                await cancelled.complete("too late")
            ops = read([tmp_path / "p1.jsonl"])
            assert check(ops, await inspect(watch)) == []
            assert len([op for op in ops if op.fate is Fate.REFUSED]) == 1
        scribe.close()

    asyncio.run(scene())

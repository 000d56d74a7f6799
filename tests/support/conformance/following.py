"""The journal and those who follow it: every event once, in one order, none lost that commits late."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.domain.rules.event import Event, Position
from allswell.store.port import LockKind, RowChanges, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import AT, PATIENCE, Case, Place, linger, until, whole_journal, write


async def events_come_back_unchanged(place: Place) -> None:
    """With their moment, whatever their data holds."""
    data: dict[str, object] = {
        "text": rows.TEXT,
        "none": None,
        "big": rows.BIG,
        "share": 0.1 + 0.2,
        "list": [1, "a", None],
        "deep": {"": {}},
    }
    full = Event("task_claimed", TaskId("t_1"), RunId("r_1"), AgentId("ågent"), Token(rows.BIG), data)
    async with place.store() as store:
        await write(store, RowChanges(events=[full, Event("run_opened")], at=Millis(AT)))
        entries = await whole_journal(store, 2)
    assert [entry.event for entry in entries] == [full, Event("run_opened")]
    assert [entry.at for entry in entries] == [AT, AT]


async def the_journal_keeps_its_order(place: Place) -> None:
    """Events of one transaction stay in their order, later commits come later, and paging loses nothing."""
    async with place.store() as store:
        for batch in range(4):
            await write(store, RowChanges(events=[rows.event(number=batch * 3 + number) for number in range(3)]))
        entries = await whole_journal(store, 12)
        assert [entry.event.data["number"] for entry in entries] == list(range(12))
        positions = [entry.position for entry in entries]
        assert positions == sorted(set(positions))
        assert await store.journal(positions[-1], 10) == []
        seen, after = [], Position()
        while page := await store.journal(after, 5):
            assert len(page) <= 5
            seen += page
            after = page[-1].position
        assert seen == entries
        assert await store.journal(positions[4], 1) == [entries[5]]


async def events_of_a_failed_transaction_are_not_in_it(place: Place) -> None:
    """Only what was committed is told."""

    async def work(tx: Transaction) -> None:
        await tx.write(RowChanges(events=[rows.event("task_failed")]))
        raise KeyError

    async with place.store() as store:
        await write(store, RowChanges(events=[rows.event("run_opened")]))
        with contextlib.suppress(KeyError):
            await store.transact(work)
        await write(store, RowChanges(events=[rows.event("run_ended")]))
        entries = await whole_journal(store, 2)
    assert [entry.event.kind for entry in entries] == ["run_opened", "run_ended"]


async def a_late_commit_is_not_overtaken(place: Place) -> None:
    """A follower that reads on never passes a transaction that wrote earlier and commits later."""
    place.needs_concurrency()
    written, overtaken = threading.Event(), threading.Event()

    async def slow(tx: Transaction) -> None:
        await tx.write(RowChanges(events=[rows.event("run_opened")]))
        await tx.lanes()  # a store may send what is written with the next question
        written.set()
        await linger(tx, overtaken.is_set)

    async with place.two_stores() as (first, second):
        running = asyncio.ensure_future(first.transact(slow))
        await until(second, written.is_set, running)
        await write(second, RowChanges(events=[rows.event("run_ended")]))
        seen = await second.journal(Position(), 10)
        assert seen == [], "this follower would now read on after the event that is still to come"
        overtaken.set()
        await running
        entries = await whole_journal(second, 2)
    assert [entry.event.kind for entry in entries] == ["run_opened", "run_ended"]


async def what_waited_for_another_is_told_after_it(place: Place) -> None:
    """The order of events about one task is that of its locks, whichever transaction began first."""
    place.needs_concurrency()
    begun, taken = threading.Event(), threading.Event()

    async def early(tx: Transaction) -> None:
        await tx.lock(LockKind.RUN, ["r_1"])
        begun.set()
        await linger(tx, taken.is_set)
        await tx.lock(LockKind.TASK, ["t_1"])
        await tx.write(RowChanges(events=[rows.event("task_claimed", "t_1")]))

    async with place.two_stores() as (first, second):
        await write(first, RowChanges(new_runs=[rows.run("r_1")]))
        await write(first, rows.new_tasks(rows.task("t_1")))
        running = asyncio.ensure_future(first.transact(early))
        await until(second, begun.is_set, running)
        await write(second, RowChanges(events=[rows.event("task_returned", "t_1")]), {LockKind.TASK: ["t_1"]})
        taken.set()
        await running
        entries = await whole_journal(second, 2)
    assert [entry.event.kind for entry in entries] == ["task_returned", "task_claimed"]


async def a_follower_under_load_loses_nothing(place: Place) -> None:
    """Whatever commits while somebody reads along, each event is read once and in order."""
    place.needs_concurrency()
    writers, each = 6, 5
    seen: list[str] = []

    async def write_some(number: int) -> None:
        store = stores[number % 2]
        for step in range(each):
            await write(
                store, RowChanges(events=[rows.event(name=f"{number}.{step}"), rows.event(name=f"{number}.{step}b")])
            )

    async def follow() -> None:
        after = Position()
        for _ in range(PATIENCE):
            for entry in await stores[1].journal(after, 4):
                assert entry.position > after
                after = entry.position
                seen.append(str(entry.event.data["name"]))
            if len(seen) >= writers * each * 2:
                return
        raise AssertionError("the follower did not see everything")

    async with place.two_stores() as stores:
        await asyncio.gather(follow(), *(write_some(number) for number in range(writers)))
    assert len(seen) == len(set(seen)) == writers * each * 2
    for number in range(writers):
        own = [name for name in seen if name.startswith(f"{number}.")]
        assert own == [f"{number}.{step}{part}" for step in range(each) for part in ("", "b")]


async def cursors_never_go_back(place: Place) -> None:
    """Each follower has its own place, and an older one does not replace it."""
    async with place.two_stores() as (first, second):
        assert await first.cursor("chat") == Position()
        await first.advance("chat", Position(5, 7))
        for older in (Position(5, 6), Position(4, 9), Position(), Position(5, 7)):
            await second.advance("chat", older)
            assert await second.cursor("chat") == Position(5, 7)
        await second.advance("chat", Position(6, 1))
        await first.advance("wêb", Position(rows.BIG, 2))
        assert await first.cursor("chat") == Position(6, 1)
        assert await second.cursor("wêb") == Position(rows.BIG, 2)


async def all_cursors_are_seen_at_once(place: Place) -> None:
    """Whoever looks after the watch sees every follower, also one that nobody runs any more."""
    async with place.two_stores() as (first, second):
        assert await first.view_cursors() == {}
        await first.advance("chat", Position(5, 7))
        await second.advance("wêb", Position(rows.BIG, 2))
        assert await first.view_cursors() == {"chat": Position(5, 7), "wêb": Position(rows.BIG, 2)}


async def what_the_watch_keeps_about_itself_is_seen_by_all(place: Place) -> None:
    """A word under a key, replaced by the next; it has nothing to do with the store's own notes."""
    async with place.two_stores() as (first, second):
        assert await first.get("clock") is None
        await first.put("clock", "one")
        assert await second.get("clock") == "one"
        await second.put("clock", rows.TEXT)
        await second.put("schema", "not yours")
        await second.put("schema_version", "not yours")
        assert await first.get("clock") == rows.TEXT
        assert await first.view_kept("clo") == {"clock": rows.TEXT}
        assert await first.view_kept("nothing") == {}
        assert await first.compare_and_set("name", None, "one")
        assert not await second.compare_and_set("name", None, "two")
        assert not await second.compare_and_set("name", "two", "three")
        assert await second.compare_and_set("name", "one", rows.TEXT)
        assert await first.get("name") == rows.TEXT
    async with place.store() as again:
        assert await again.view_counts() is not None, "the schema is still known"


CASES: tuple[Case, ...] = (
    events_come_back_unchanged,
    the_journal_keeps_its_order,
    events_of_a_failed_transaction_are_not_in_it,
    a_late_commit_is_not_overtaken,
    what_waited_for_another_is_told_after_it,
    a_follower_under_load_loses_nothing,
    cursors_never_go_back,
    all_cursors_are_seen_at_once,
    what_the_watch_keeps_about_itself_is_seen_by_all,
)

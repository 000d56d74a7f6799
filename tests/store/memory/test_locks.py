"""The lock table: first come, first served; nobody waits for ever while the order of locks is kept."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.errors import Bug
from allswell.store.memory.locks import Key, LockTable, Owner
from allswell.store.port import LockKind
from allswell.testing.loop import DeterministicLoop

T = TypeVar("T")
A, B = (LockKind.TASK, "t_a"), (LockKind.TASK, "t_b")


def run(seed: int | None, work: Coroutine[object, object, T]) -> T:
    loop = DeterministicLoop(seed=seed, max_steps=100_000)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_a_writer_is_not_starved_by_readers_who_come_later() -> None:
    async def main() -> list[str]:
        table = LockTable()
        order: list[str] = []

        async def take(name: str, *, exclusive: bool) -> None:
            owner = Owner(name)
            await table.acquire(owner, A, exclusive=exclusive)
            order.append(name)
            await asyncio.sleep(1)
            table.release_all(owner)

        names = [("reader 1", False), ("writer", True), ("reader 2", False), ("reader 3", False)]
        await asyncio.gather(*(take(name, exclusive=exclusive) for name, exclusive in names))
        assert table.is_idle()
        return order

    assert run(None, main()) == ["reader 1", "writer", "reader 2", "reader 3"]


def test_readers_share_and_a_sole_reader_becomes_a_writer() -> None:
    table = LockTable()
    one, two = Owner("one"), Owner("two")
    assert table.try_acquire(one, A, exclusive=False)
    assert table.try_acquire(two, A, exclusive=False)
    assert not table.try_acquire(one, A, exclusive=True)
    table.release_all(two)
    assert table.try_acquire(one, A, exclusive=True)
    assert not table.try_acquire(two, A, exclusive=False)
    assert table.try_acquire(one, A, exclusive=False), "who has it alone has it shared as well"
    assert one.held == {A: True}
    table.release_all(one)
    assert table.is_idle()


def test_a_circle_of_waiting_is_a_bug_that_names_everyone_in_it() -> None:
    async def main() -> None:
        table = LockTable()
        one, two, three = Owner("one"), Owner("two"), Owner("three")
        third = (LockKind.LEASE, "t_c")
        for owner, key in ((one, A), (two, B), (three, third)):
            await table.acquire(owner, key, exclusive=True)
        waiting = [
            asyncio.ensure_future(table.acquire(one, B, exclusive=True)),
            asyncio.ensure_future(table.acquire(two, third, exclusive=False)),
        ]
        await asyncio.sleep(0)
        with pytest.raises(Bug, match="three waits for task t_a, one waits for task t_b, two waits for lease t_c"):
            await table.acquire(three, A, exclusive=True)
        table.release_all(three)
        await waiting[1]
        table.release_all(two)
        await waiting[0]
        table.release_all(one)
        assert table.is_idle()

    run(None, main())


def test_who_is_cancelled_while_waiting_makes_room() -> None:
    async def main() -> None:
        table = LockTable()
        reader, writer, late = Owner("reader"), Owner("writer"), Owner("late")
        await table.acquire(reader, A, exclusive=False)
        waits = asyncio.ensure_future(table.acquire(writer, A, exclusive=True))
        follows = asyncio.ensure_future(table.acquire(late, A, exclusive=False))
        await asyncio.sleep(0)
        waits.cancel()
        await follows
        assert not writer.held
        table.release_all(reader)
        table.release_all(late)
        assert table.is_idle()

    run(None, main())


class Noted(dict[Key, bool]):
    """What an owner holds, noting each lock at the moment it is given."""

    def __init__(self, name: str, log: list[tuple[Key, str]]) -> None:
        self._name = name
        self._log = log

    def __setitem__(self, key: Key, exclusive: bool) -> None:
        self._log.append((key, self._name))
        super().__setitem__(key, exclusive)


plans = st.lists(st.dictionaries(st.integers(0, 3), st.booleans(), min_size=1), min_size=1, max_size=7)


@given(plans=plans, seed=st.integers(0, 2**32))
def test_whoever_keeps_the_order_gets_through(plans: list[dict[int, bool]], seed: int) -> None:
    """Any schedule: no deadlock, never two where one must be alone, and each row is given in the order of asking."""

    async def main() -> None:
        table = LockTable()
        inside: dict[Key, list[bool]] = {}
        asked: list[tuple[Key, str]] = []
        given_out: list[tuple[Key, str]] = []

        async def transaction(name: str, plan: dict[int, bool]) -> None:
            owner = Owner(name)
            owner.held = Noted(name, given_out)
            for row, exclusive in sorted(plan.items()):
                key = (LockKind.TASK, str(row))
                await asyncio.sleep(0)
                asked.append((key, name))
                await table.acquire(owner, key, exclusive=exclusive)
                present = inside.setdefault(key, [])
                present.append(exclusive)
                assert len(present) == 1 or not any(present)
            await asyncio.sleep(0)
            for row, exclusive in plan.items():
                inside[(LockKind.TASK, str(row))].remove(exclusive)
            table.release_all(owner)

        await asyncio.gather(*(transaction(str(number), plan) for number, plan in enumerate(plans)))
        assert table.is_idle()
        for key in inside:
            assert [name for of, name in given_out if of == key] == [name for of, name in asked if of == key]

    run(seed, main())

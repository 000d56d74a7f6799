"""Row locks with waiters, as a database has them: shared or exclusive, first come, first served.

A lock is handed over at the moment it is let go, so nobody who comes later can slip in between. Before somebody begins
to wait, the chain of who waits for whom is followed: a circle is a deadlock, and since the order of locks is meant to
make that impossible, it is a `Bug` that names everyone in the circle.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Literal

from allswell.errors import Bug
from allswell.store.port import LockKind

Row = tuple[LockKind, str]
Key = Row | tuple[Literal["claim", "asking"], str]
"""A row, or the name of a claim: there is no row for that."""


class Owner:
    """Whoever can hold locks; `held` says for each whether it is exclusive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: dict[Key, bool] = {}
        self.waits_for: Key | None = None


class _Waiter:
    def __init__(self, owner: Owner, *, exclusive: bool, granted: asyncio.Future[None]) -> None:
        self.owner = owner
        self.exclusive = exclusive
        self.granted = granted


class _Row:
    """The lock of one row: who holds it and who waits, in the order of coming."""

    __slots__ = ("holders", "waiters")

    def __init__(self) -> None:
        self.holders: dict[Owner, bool] = {}
        self.waiters: list[_Waiter] = []

    def admits(self, owner: Owner, *, exclusive: bool) -> bool:
        """Whether the present holders leave room for this one."""
        return not any(self.bars(owner, exclusive=exclusive))

    def bars(self, owner: Owner, *, exclusive: bool) -> Iterator[Owner]:
        """The holders that leave no room for this one."""
        return (holder for holder, alone in self.holders.items() if holder is not owner and (alone or exclusive))


class LockTable:
    """Every row lock of one database."""

    def __init__(self) -> None:
        self._rows: dict[Key, _Row] = {}

    def try_acquire(self, owner: Owner, key: Key, *, exclusive: bool) -> bool:
        """Take the lock if that needs no waiting."""
        if owner.held.get(key, False) or (not exclusive and key in owner.held):
            return True
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row()
        elif not row.admits(owner, exclusive=exclusive) or (row.waiters and key not in owner.held):
            return False
        row.holders[owner] = owner.held[key] = exclusive
        return True

    async def acquire(self, owner: Owner, key: Key, *, exclusive: bool) -> None:
        """Take the lock, waiting behind those who came before."""
        if self.try_acquire(owner, key, exclusive=exclusive):
            return
        waiter = _Waiter(owner, exclusive=exclusive, granted=asyncio.get_running_loop().create_future())
        row = self._rows[key]
        row.waiters.append(waiter)
        owner.waits_for = key
        try:
            self._refuse_circle(owner)
            await waiter.granted
        finally:
            owner.waits_for = None
            if waiter in row.waiters:
                row.waiters.remove(waiter)
                self._hand_over(key, row)

    def release(self, owner: Owner, key: Key) -> None:
        """Let one lock go."""
        del owner.held[key]
        row = self._rows[key]
        del row.holders[owner]
        self._hand_over(key, row)

    def release_all(self, owner: Owner) -> None:
        """Let everything go, as the end of a transaction does."""
        for key in list(owner.held):
            self.release(owner, key)

    def is_idle(self) -> bool:
        """Whether nobody holds or awaits anything."""
        return not self._rows

    def _hand_over(self, key: Key, row: _Row) -> None:
        while row.waiters:
            waiter = row.waiters[0]
            if not waiter.granted.done():
                if not row.admits(waiter.owner, exclusive=waiter.exclusive):
                    return
                row.holders[waiter.owner] = waiter.owner.held[key] = waiter.exclusive
                waiter.owner.waits_for = None  # not only when it wakes up: it would seem to wait for itself till then
                waiter.granted.set_result(None)
            del row.waiters[0]
        if not row.holders:
            self._rows.pop(key, None)

    def _blockers(self, owner: Owner) -> Iterator[Owner]:
        key = owner.waits_for
        if key is None:
            return
        row = self._rows[key]
        exclusive = next((waiter.exclusive for waiter in row.waiters if waiter.owner is owner), True)
        yield from row.bars(owner, exclusive=exclusive)
        for waiter in row.waiters:
            if waiter.owner is owner:
                return
            yield waiter.owner

    def _refuse_circle(self, owner: Owner) -> None:
        path: list[Owner] = []
        seen: set[Owner] = set()

        def leads_back(current: Owner) -> bool:
            for blocker in self._blockers(current):
                if blocker is owner:
                    path.append(current)
                    return True
                if blocker not in seen:
                    seen.add(blocker)
                    if leads_back(blocker):
                        path.append(current)
                        return True
            return False

        if leads_back(owner):
            told = ", ".join(f"{member.name} waits for {_say(member.waits_for)}" for member in reversed(path))
            raise Bug(f"deadlock: {told}")


def _say(key: Key | None) -> str:
    return "nothing" if key is None else f"{key[0]} {key[1]}"


# A turn for everybody else, which every statement of a strict store begins with.
#
# `asyncio.sleep(0)` without its wrapping. An event loop that knows when nobody else is ready can say so instead (the
# deterministic one does): then there is nobody to give way to, and the statement goes straight on.

Turn = Callable[[], Awaitable[None] | None]
"""Gives everybody else who is ready a turn; None where nobody is."""


@types.coroutine
def a_turn() -> Generator[None, None, None]:
    """Let everybody who is ready run before going on."""
    yield

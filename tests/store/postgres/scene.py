"""What the tests of the PostgreSQL store are made of: plain rows, a second client, and a wire that can be cut."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.lease.model import LeaseRow
from allswell.domain.rules.event import Event
from allswell.domain.task.model import OPEN, ReadyTask, Spec, Task, TaskHistory, rank
from allswell.store.port import RowChanges, Transaction
from allswell.store.postgres import PostgresStore

T = TypeVar("T")
AT = Millis(1_700_000_000_000)
PATIENCE = 5_000


def task(id_: str, lane: int = 1) -> Task:
    return Task(TaskId(id_), id_, None, "", lane, 0, OPEN, AT, None, Spec(), TaskHistory(), rank(0, AT))


def lease(id_: str, token: int = 1) -> LeaseRow:
    agent, command = AgentId("alice"), CommandId("")
    return LeaseRow(TaskId(id_), Token(token), agent, AT, Millis(AT + 9), None, None, 3, 1, 1, command)


def names(count: int, prefix: str = "t_") -> list[TaskId]:
    return [TaskId(f"{prefix}{number:05d}") for number in range(count)]


@asynccontextmanager
async def opened(url: str, **settings: float | None) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, **settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def run(url: str, test: Callable[[PostgresStore], Awaitable[T]], **settings: float | None) -> T:
    """Run a test on a fresh store."""

    async def main() -> T:
        async with opened(url, **settings) as store:
            return await test(store)

    return asyncio.run(main())


async def put(store: PostgresStore, changes: RowChanges) -> None:
    """Commit changes that need no lock."""

    async def work(tx: Transaction) -> None:
        changes.at = await tx.now()
        await tx.write(changes)

    await store.transact(work)


async def put_tasks(store: PostgresStore, ids: Sequence[str], *, ready: int | None = None) -> None:
    """Commit plain tasks; with a lane, as ready ones in the order given."""
    ages = enumerate(ids, AT)
    tasks = [replace(task(id_, ready or 1), created_at=Millis(at), rank=rank(0, at)) for at, id_ in ages]
    rows = [] if ready is None else [ReadyTask(row.id, ready, row.rank) for row in tasks]
    await put(store, RowChanges(new_tasks=[(row, "null") for row in tasks], new_ready=rows))


def told(*kinds: str) -> list[Event]:
    return [Event(kind) for kind in kinds]


@contextmanager
def client(url: str) -> Iterator[psycopg.Connection]:
    """A second client, by hand; nothing is committed unless the test does."""
    with psycopg.connect(url) as connection:
        try:
            yield connection
        finally:
            connection.rollback()


def await_waiter(url: str, count: int = 1) -> None:
    """Return once so many sessions of this database wait for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(PATIENCE):
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchone()
            if found is not None and found[0] >= count:
                return
    raise AssertionError("nobody waited for the lock")


def await_alone(url: str) -> None:
    """Return once no other session is left: the server sees a moment later than its client that one has ended."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(PATIENCE):
            others = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
            if others == (0,):
                return
    raise AssertionError("a session was left behind")


class Wire:
    """A TCP proxy before the server; `next` is the fate of the connection on which a client next says something.

    `pass and cut`: the server hears it, the connection is cut instead of its answer. `swallow`: the server hears
    nothing more from it, and the client, unless it is cut too, no more from the server.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.next: Literal["pass", "pass and cut", "swallow and cut", "swallow"] = "pass"
        self.tripped = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        user, password = self._parts.username, self._parts.password
        port = self._listener.getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{user}:{password}@127.0.0.1:{port}"))

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._parts.hostname, self._parts.port))
                self._ends += [near, far]
                fate = ["pass"]
                threading.Thread(target=self._say, args=(near, far, fate), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near, fate), daemon=True).start()

    def _say(self, near: socket.socket, far: socket.socket, fate: list[str]) -> None:
        with suppress(OSError):
            while said := near.recv(65_536):
                if self.next != "pass":
                    fate[0], self.next = self.next, "pass"
                    self.tripped.set()
                if fate[0].startswith("pass"):
                    far.sendall(said)
                elif fate[0].endswith("cut"):
                    near.shutdown(socket.SHUT_RDWR)
                    return
            # The far end stays open, as behind a dead network: the server learns nothing.

    def _answer(self, far: socket.socket, near: socket.socket, fate: list[str]) -> None:
        with suppress(OSError):
            while answered := far.recv(65_536):
                if fate[0] == "pass":
                    near.sendall(answered)
                elif fate[0] == "pass and cut":
                    near.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """A wire to the server, gone at the end."""
    made = Wire(url)
    try:
        yield made
    finally:
        made.close()

"""Wires the parts: a store for a URL, an engine on it, and a watch to talk to.

async with allswell.open() as watch:          # in async code
    await watch.submit("summarise", payload={"file": "notes.md"})

with allswell.open("sqlite:///watch.db") as watch:      # anywhere else
    watch.submit("summarise")
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allswell.domain.mesh.request import FIGURES, MeshFigures
from allswell.domain.question import Pause
from allswell.domain.task.model import Policy
from allswell.domain.values import hide, scheme_of
from allswell.engine.backend import TellsOfWait, log_wait, open_patiently
from allswell.engine.engine import Engine
from allswell.engine.ids import Ids
from allswell.engine.timings import DEFAULT_PACE, Timings
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.settings import Settings, load
from allswell.store.port import Store
from allswell.store.views import Views
from allswell.timing.clock import Clock, SystemClock, this_machine
from allswell.timing.loops import refuse_other_loops

if TYPE_CHECKING:
    from allswell.engine.access.gate import Gate
    from allswell.engine.sync import SyncWatch
    from allswell.remote.backend import RemoteServer


def store_for(url: str) -> Store:
    """The store that a URL names; drivers are imported only when they are needed."""
    scheme = scheme_of(url)
    if scheme == "memory":
        from allswell.store.memory import MemoryStore

        return MemoryStore(strict=False)
    if scheme == "sqlite":
        from allswell.store.sqlite import SqliteStore

        return SqliteStore(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from allswell.store.postgres import PostgresStore
        except ImportError as error:
            hint = "PostgreSQL needs the extra `postgres`: in Allswell's clone, type `uv tool install '.[postgres]'`"
            raise Refused("no_driver", hint, where="store") from error
        return PostgresStore(url)
    if is_remote(url):
        text = f"{hide(url)!r} is a server; this needs the store itself"
        raise Refused("not_remote", text, where="store")
    text = f"{hide(url)!r} names no store; write memory:, sqlite:///path or postgresql://user@host/database"
    raise Refused("bad_url", text, where="store")


def make_watch(  # noqa: PLR0913 - each has a name
    store: Store,
    *,
    clock: Clock | None = None,
    chance: random.Random | None = None,
    pace: Timings = DEFAULT_PACE,
    policies: Mapping[str, Policy] | None = None,
    sweeping: bool = True,
    pause_on_question: Pause = "task",
    mesh: MeshFigures = FIGURES,
    tell_of_wait: TellsOfWait = log_wait,
) -> Watch:
    """A watch on a store; clock and chance can be given, so that a history can be repeated."""
    machine = this_machine() if clock is None and not store.shared_clock else None
    clock = clock or SystemClock()
    chance = chance or random.Random()
    engine = Engine(
        store,
        rng=chance.random,
        clock=clock,
        pace=pace,
        sweeping=sweeping,
        machine=machine,
        pause_on_question=pause_on_question,
        tell_of_wait=tell_of_wait,
    )
    return Watch(engine, Ids(clock.wall, chance.getrandbits), policies=policies, mesh=mesh)


def is_remote(url: str) -> bool:
    """Whether a URL names a server (`allswell serve`) and no store."""
    return scheme_of(url) in ("https", "http", "http+unix")


def watch_on(
    url: str,
    *,
    pace: Timings = DEFAULT_PACE,
    policies: Mapping[str, Policy] | None = None,
    sweeping: bool = True,
    pause_on_question: Pause = "task",
    mesh: MeshFigures = FIGURES,
    tell_of_wait: TellsOfWait = log_wait,
) -> Watch:
    """A watch on the store that a URL names, or on the server, which knows itself how it pauses and whom it knows."""
    if is_remote(url):
        from allswell.remote.backend import RemoteBackend

        clock, chance = SystemClock(), random.Random()
        ids = Ids(clock.wall, chance.getrandbits)
        behind = RemoteBackend(server_at(url, pace, tell_of_wait), ids, clock=clock, rng=chance.random, pace=pace)
        return Watch(behind, ids, policies=policies, mesh=replace(mesh, agents=None))
    return make_watch(
        store_for(url),
        pace=pace,
        policies=policies,
        sweeping=sweeping,
        pause_on_question=pause_on_question,
        mesh=mesh,
        tell_of_wait=tell_of_wait,
    )


def server_at(url: str, pace: Timings, tell_of_wait: TellsOfWait) -> RemoteServer:
    """The server that a URL names, called with the key of the environment."""
    from allswell.remote.backend import RemoteServer
    from allswell.remote.connection import ConnectionPool
    from allswell.remote.discovery import key_from

    return RemoteServer(ConnectionPool(url, key_from(os.environ)), pace, tell_of_wait)


@contextlib.asynccontextmanager
async def views_on(url: str, pace: Timings, tell_of_wait: TellsOfWait) -> AsyncIterator[Views]:
    """What can be looked at in a store, or on a server, without a watch."""
    if is_remote(url):
        from allswell.remote.backend import RemoteRecords

        server = server_at(url, pace, tell_of_wait)
        try:
            yield RemoteRecords(server)
        finally:
            server.close()
        return
    store = store_for(url)
    await open_patiently(store, pace, tell_of_wait)
    try:
        yield store
    finally:
        await store.close()


def make_gate(url: str, settings: Settings, *, tell_of_wait: TellsOfWait = log_wait) -> Gate:
    """A watch on a store for callers from elsewhere, each with a key."""
    from allswell.engine.access.gate import Gate

    store, clock, chance = store_for(url), SystemClock(), random.Random()
    engine = Engine(
        store,
        rng=chance.random,
        clock=clock,
        pace=settings.pace(),
        machine=None if store.shared_clock else this_machine(),
        pause_on_question=settings.pause_on_question,
        tell_of_wait=tell_of_wait,
    )
    ids = Ids(clock.wall, chance.getrandbits)
    return Gate(
        engine,
        ids,
        policies=settings.policies(),
        mesh=settings.mesh(),
        budgets=settings.budgets(),
        breaker=settings.breaker(),
        quota=settings.quota(),
    )


class Opening:
    """A watch about to be opened: `async with` gives the async face, `with` the sync one."""

    def __init__(self, url: str | None, pace: Timings | None, policies: Mapping[str, Policy] | None) -> None:
        settings = load()
        self._url = url or settings.store
        self._pace = pace or settings.pace()
        self._policies = settings.policies() if policies is None else policies
        self._pause_on_question = settings.pause_on_question
        self._mesh = settings.mesh()
        self._watch: Watch | None = None
        self._sync: SyncWatch | None = None

    def _make(self) -> Watch:
        return watch_on(
            self._url,
            pace=self._pace,
            policies=self._policies,
            pause_on_question=self._pause_on_question,
            mesh=self._mesh,
        )

    async def __aenter__(self) -> Watch:
        refuse_other_loops()
        self._watch = self._make()
        return await self._watch.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            await self._watch.__aexit__(kind, error, trace)

    def __enter__(self) -> SyncWatch:
        from allswell.engine.sync import SyncWatch  # a thread's worth of machinery that async code does without

        self._sync = SyncWatch(self._make)
        return self._sync.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sync is not None:
            self._sync.stop()


def open(  # noqa: A001 - `allswell.open` is how one says it
    url: str | None = None, *, pace: Timings | None = None, policies: Mapping[str, Policy] | None = None
) -> Opening:
    """Open a watch: `memory:`, `sqlite:///path`, `postgresql://…`, or a server's `https://…`; else settings say."""
    return Opening(url, pace, policies)

"""One call, as routes have it: whose it is, the watch as that one's key shows it, and what was asked.

Times travel both ways in `Allswell-Remaining-Ms`: what a caller still has, so that nothing is waited for longer, and
what a lease still has, in the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from allswell.actions.operator import Operator
from allswell.domain.access.key import Key
from allswell.domain.access.rights import Operation, may
from allswell.domain.ids import can_name
from allswell.domain.scopes import HEADER, read_remaining
from allswell.domain.task.model import TaskRow
from allswell.domain.values import hide, values_in
from allswell.engine.access.gate import Gate
from allswell.engine.backend import Backend, Claimed
from allswell.engine.lookup import find_task
from allswell.engine.status.verdict import LocalFacts
from allswell.engine.watch import Watch
from allswell.errors import Refused, unavailable_outward
from allswell.remote.wire import WAIT_MOST
from allswell.settings import Settings
from allswell.timing.clock import SystemClock
from allswell.views.artifacts import ServedArtifacts
from allswell.views.status import place_here

if TYPE_CHECKING:
    from allswell.interfaces.http.events import Journal
    from allswell.interfaces.http.metrics import ServerTally
    from allswell.store.views import Views

T = TypeVar("T")
BODY_MOST = 8 << 20
"""Bytes: a submission of eight tasks with the largest payload there is."""
BODY_SECONDS = 30.0
VALUES_MOST = 100_000
"""Values of JSON in one body."""
_ID_MOST = 64
STOPS = "the server stops"
_TWICE = "the same request came again, and is answered there"


@dataclass
class ServerState:
    """What all calls share: the gate, the settings, the folder beside the store, the journal that is read for all."""

    gate: Gate
    url: str
    """The store's own, with its password: for nobody who calls."""
    settings: Settings
    home: Path
    journal: Journal
    closing: asyncio.Event
    """Set when the server stops: whoever waits or follows is let go."""
    counting: ServerTally | None = None
    """What the journal counts, for `/metrics`."""
    waiting: dict[str, asyncio.Task[Claimed]] = field(default_factory=dict)
    """Claims that wait, by the key and the id that they came with."""

    @cached_property
    def place(self) -> LocalFacts:
        """From where the verdict on the watch is made."""
        return place_here(self.settings, self.home, clock=SystemClock())

    def artifacts_for(self, key: Key) -> ServedArtifacts:
        """What lies beside the store, as far as a key may see it."""
        alerts = any(spec.kind == "alerts" for spec in (self.settings.told or {}).values())
        return ServedArtifacts(self.home, self.url, alerts=alerts, full=may(key, Operation.LOOK))


class RequestContext:
    """One call."""

    def __init__(self, request: Request, house: ServerState, key: Key) -> None:
        self._request = request
        self.house = house
        self.key = key
        self._body: bytes | None = None

    @property
    def place(self) -> LocalFacts:
        """From where the verdict on the watch is made: the server's machine."""
        return self.house.place

    @cached_property
    def backend(self) -> Backend:
        """Where its commands go, as far as the key allows them."""
        return self.house.gate.backend_for(self.key)

    @cached_property
    def artifacts(self) -> ServedArtifacts:
        """What lies beside the store, as far as the key may see it."""
        return self.house.artifacts_for(self.key)

    @cached_property
    def watch(self) -> Watch:
        """The watch as the key shows it."""
        return self.house.gate.watch_for(self.key)

    def operator(self, by: str = "") -> Operator:
        """Who decides something by this call: the key, and before it whoever the caller says that it is."""
        return Operator(self.watch, by, self.command)

    @property
    def store(self) -> str:
        """Where what is kept is, without a password."""
        return hide(self.backend.store.url)

    @property
    def views(self) -> Views:
        """What the key may look at."""
        return self.backend.store

    async def task_row(self) -> TaskRow:
        """The task that the path names."""
        row = await self.views.view_task(await find_task(self.views, self.named("task")))
        if row is None:
            raise Refused("unknown_task", f"there is no task {self.named('task')!r}", where="task")
        return row

    @property
    def query(self) -> QueryParams:
        """What stands behind the question mark."""
        return self._request.query_params

    def named(self, place: str) -> str:
        """What stands in a place of the path; nothing that a store cannot hold gets further."""
        name = str(self._request.path_params[place])
        if not can_name(name):
            raise Refused("bad_path", f"the {place} in the path has characters that no id has", where=place)
        return name

    def header(self, name: str) -> str | None:
        """A header of the call."""
        value: str | None = self._request.headers.get(name)
        return value

    @property
    def command(self) -> str | None:
        """The id that the caller has given what it asks for: said twice, it counts once."""
        given = self.header("Idempotency-Key")
        if given is None:
            return None
        if not 0 < len(given) <= _ID_MOST or not can_name(given):
            text = f"Idempotency-Key must have 1 to {_ID_MOST} characters that can be printed"
            raise Refused("bad_header", text, where="Idempotency-Key")
        return f"{self.key.name}/{given}"

    @property
    def remaining(self) -> int | None:
        """How many milliseconds the caller still has, if it says so."""
        given = self.header(HEADER)
        return None if given is None else read_remaining(given, HEADER)

    def patience(self, asked: int) -> float:
        """How long may be waited, in seconds: as asked, but neither longer than a call may, nor than its caller has."""
        left = self.remaining
        most = WAIT_MOST if left is None else min(WAIT_MOST, left * 9 // 10)
        return max(0, min(asked, most)) / 1000

    async def unless_gone(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """Wait for something for as long as the caller does; what it had claimed goes back if it has hung up."""
        working = work if isinstance(work, asyncio.Task) else asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
                await leaving  # says so if the key is over
                raise unavailable_outward(STOPS, hint="call again: it may be back by then")
            if working.cancelled():
                raise unavailable_outward(_TWICE)
            return await working
        finally:
            leaving.cancel()

    async def _gone(self) -> None:
        """Until the caller has hung up, or the server stops; `Refused` if its key is over before that."""
        closing = asyncio.ensure_future(self.house.closing.wait())
        keyless = asyncio.ensure_future(self.house.gate.until_over(self.key))
        try:
            while not closing.done() and not keyless.done():
                hearing = asyncio.ensure_future(self._request.receive())
                await asyncio.wait([hearing, closing, keyless], return_when=asyncio.FIRST_COMPLETED)
                if not hearing.done():
                    hearing.cancel()
                elif hearing.result()["type"] == "http.disconnect":
                    return
            if keyless.done():
                await keyless
        finally:
            closing.cancel()
            keyless.cancel()

    async def body(self) -> bytes:
        """The body, which has a bound and must have come in time; a second time it is the same."""
        if self._body is None:
            self._body = await self._read()
        return self._body

    async def _read(self) -> bytes:
        body = await read_body(self._request, BODY_MOST)
        check_values(body, VALUES_MOST)
        return body


def check_values(body: bytes, most: int) -> None:
    """Refuse a body of which more values would be made: meanwhile no other caller is served."""
    if values_in(body, most) > most:
        text = f"the body has more than {most:,} values; send it in parts, or as a text"
        raise Refused("too_many", text, where="body")


async def read_body(request: Request, most: int, came: Callable[[int], None] | None = None) -> bytes:
    """The body of a call, which has at most so many bytes and must have come in time; `came` hears of each piece."""
    length = request.headers.get("Content-Length")
    if length is not None and length.isdigit() and int(length[:15]) > most:
        raise too_big(most)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if came is not None:
                    came(len(part))
                if len(body) > most:
                    raise too_big(most)
    except ClientDisconnect:
        raise Refused("too_slow", "the caller has gone before its body had come", where="body") from None
    except TimeoutError:
        text = f"the body did not come within {BODY_SECONDS:g} s"
        raise Refused("too_slow", text, where="body") from None
    return bytes(body)


def too_big(most: int) -> Refused:
    """A body with more bytes than it may have."""
    return Refused("too_big", f"the body has more than {most:,} bytes; send it in parts", where="body")

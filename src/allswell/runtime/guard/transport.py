"""A guard under an SDK: httpx transports, sync and async, around every single request.

    client = anthropic.AsyncAnthropic(
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(
            transport=allswell.guard("anthropic").transport(httpx2.AsyncHTTPTransport())
        ),
    )

The SDK above sees one request and one answer: the last one, with the provider's own words, so its own errors stay what
they are. Below, each attempt has its own timeout, answers with an error status are judged like exceptions, and nothing
is sent twice after something has reached the SDK.

**What is repeated.** An answer that is JSON is read to its end inside the attempt, so that a body that breaks off,
drips or is no JSON is repeated like any other failure: nobody has seen it. Of every other answer (a stream of events, a
download) the first bytes are waited for inside the attempt; once they are there the answer is handed on (`answers`),
and what happens later is told to the breaker, and to the reader, but not repeated. A request whose body can be read
only once is sent once.

**The SDK's own retries** would multiply with ours. They are turned off by `max_retries=0`; where somebody forgets it,
answers that were given up say `x-should-retry: false`, which these SDKs obey, and a request that an SDK repeats all the
same (it says so in `x-stainless-retry-count`) is sent once and not repeated here. It is told, and the first time warned
of (`SdkRepeats`).

`httpx` is not imported: `httpx` and its successor `httpx2` live side by side, and the transport that is handed in says
which one it belongs to.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from allswell.domain.breaker import Permit
from allswell.domain.incident import SdkRepeats
from allswell.errors import Refused
from allswell.runtime.calling import call_in_thread
from allswell.runtime.guard.answers import STILL_COMES, AsyncRest, Rest, SyncRest, Theirs, joined
from allswell.runtime.guard.ledger import Tape, in_ledger
from allswell.runtime.guard.nesting import ATTEMPT, HEADER, probing
from allswell.runtime.guard.trial import AsyncTrial, SyncTrial
from allswell.timing.scope import Scope, ScopeTimeout, current

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard

T = TypeVar("T")

FLAVOURS = ("httpx", "httpx2")
"""What a transport can belong to. (A class's `__module__` does not say: the openai package changes it.)"""
_LARGEST_BODY = 64 * 1024 * 1024
"""An answer that is JSON and longer than this is handed on as it comes."""


class Answered(Exception):
    """An answer that is a failure: by its status, or because it is not what it says it is."""

    def __init__(self, response: Theirs, status: int | None, body: object) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response
        self.status_code = status
        self.body = body


def guarded(guard: Guard, inner: T) -> T:
    """The same transport with a guard around every request."""
    for name in FLAVOURS:
        flavour = sys.modules.get(name)
        if flavour is not None:
            for ours, theirs in ((AsyncGuarded, flavour.AsyncBaseTransport), (SyncGuarded, flavour.BaseTransport)):
                if isinstance(inner, theirs):
                    made: T = joined(ours, theirs)(guard, inner, flavour)
                    return made
    text = f"{inner!r} is no httpx transport; hand in an HTTPTransport or AsyncHTTPTransport of httpx or httpx2"
    raise Refused("bad_transport", text, where="transport")


class _Requests:
    """What both transports know about requests and answers."""

    def __init__(self, guard: Guard, inner: Theirs, flavour: ModuleType) -> None:
        self.guard = guard
        self.inner = inner
        self.flavour = flavour
        self._repeats = itertools.count(1)

    def _once(self, request: Theirs) -> bool:
        """Whether a request can or should be sent only once."""
        repeated = str(request.headers.get("x-stainless-retry-count", "0")) != "0"
        if repeated:
            self.guard.tell(SdkRepeats(self.guard.service, next(self._repeats)))
        try:
            request.content  # noqa: B018 - it raises where the body is a stream, which can be read once
        except self.flavour.RequestNotRead:
            return True
        return repeated

    def _is_whole(self, response: Theirs) -> bool:
        """Whether an answer is read to its end before anybody sees it."""
        if response.status_code >= 400:
            return True
        kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
        length = str(response.headers.get("content-length", "0"))
        return (kind == "application/json" or kind.endswith("+json")) and (
            not length.isdecimal() or int(length) <= _LARGEST_BODY
        )

    def _judged(self, request: Theirs, response: Theirs, raw: bytes) -> Theirs:
        """An answer that was read to its end: itself, with its body in hand, or `Answered` if it is a failure."""
        response.stream = self.flavour.ByteStream(raw)
        whole = self.flavour.Response(response.status_code, headers=response.headers, content=raw)
        body, is_json = None, True
        try:
            body = msgspec.json.decode(whole.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, self.flavour.DecodingError):
            is_json = False
        if response.status_code >= 400:
            raise Answered(response, response.status_code, body if is_json else _text(whole))
        if not is_json:
            raise Answered(response, None, None)
        ledger = in_ledger.get()
        if ledger is not None:
            ledger.note(self.guard.service, request, response, whole.content)
        return response

    def _tape(self, request: Theirs, response: Theirs) -> Tape | None:
        """What keeps an answer that is handed on as it comes."""
        ledger = in_ledger.get()
        return None if ledger is None else Tape(ledger, self.guard.service, request, response, self.flavour)

    def _handed_back(self, answered: Answered) -> Theirs:
        """An answer that was given up: the SDK makes its own error of it, and does not try again."""
        response = answered.response
        response.headers["x-should-retry"] = "false"
        response.headers[HEADER] = self.guard.service
        return response


def _text(whole: Theirs) -> str:
    try:
        return str(whole.text)
    except Exception:  # noqa: BLE001 - an encoding that nobody knows
        return ""


class AsyncGuarded(_Requests):
    """An async transport with a guard around every request."""

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.inner.__aexit__(*ended)

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self.inner.aclose()

    async def handle_async_request(self, request: Theirs) -> Theirs:
        """Send a request, again if need be; the answer is the last one."""
        trial = AsyncTrial(self.guard, single=self._once(request))
        try:
            while True:
                permit = await trial.admit()
                try:
                    with probing(permit):
                        return await self._attempt(request, trial, permit)
                except BaseException as error:
                    pause = await trial.failed(error, permit)
                    if pause is None:
                        raise
                await asyncio.sleep(pause)
        except Answered as answered:
            return self._handed_back(answered)
        except ScopeTimeout as late:
            raise self.flavour.ReadTimeout(str(late), request=request) from late

    async def _attempt(self, request: Theirs, trial: AsyncTrial, permit: Permit) -> Theirs:
        limit: float | None = trial.limit()
        time = asyncio.get_running_loop().time
        began = time()
        async with Scope(limit, kind=ATTEMPT, name=self.guard.service):
            response = await self.inner.handle_async_request(request)
            try:
                chunks = aiter(response.stream)
                if self._is_whole(response):
                    raw = b"".join([chunk async for chunk in chunks])
                    await response.stream.aclose()
                    response = self._judged(request, response, raw)
                    await trial.succeeded(permit)
                    return response
                first = await anext(chunks, b"")
            except BaseException:
                with suppress(Exception):
                    await response.stream.aclose()
                raise
        left = None if limit is None else max(limit - (time() - began) * 1_000, 1)
        rest = Rest(
            first,
            chunks,
            response.stream,
            self.flavour,
            trial,
            await trial.answering(permit),
            left,
            self._tape(request, response),
        )
        response.stream = joined(AsyncRest, self.flavour.AsyncByteStream)(rest)
        return response


class SyncGuarded(_Requests):
    """A sync transport with a guard around every request."""

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        self.inner.__exit__(*ended)

    def close(self) -> None:
        """Close the transport inside."""
        self.inner.close()

    def handle_request(self, request: Theirs) -> Theirs:
        """Send a request, again if need be; the answer is the last one."""
        trial = SyncTrial(self.guard, single=self._once(request))
        try:
            while True:
                permit = trial.admit()
                try:
                    with probing(permit):
                        return self._attempt(request, trial, permit)
                except BaseException as error:
                    pause = trial.failed(error, permit)
                    if pause is None:
                        raise
                self.guard.sleep(pause)
        except Answered as answered:
            return self._handed_back(answered)
        except ScopeTimeout as late:
            raise self.flavour.ReadTimeout(str(late), request=request) from late

    def _attempt(self, request: Theirs, trial: SyncTrial, permit: Permit) -> Theirs:
        """One request, in a thread: per read, nothing bounds a server that drips its headers."""
        until = self._bounded(request, trial)
        scope = trial.scope()
        response, seen = call_in_thread(scope, lambda: self._exchange(request, until))
        if isinstance(seen, bytes):
            response = self._judged(request, response, seen)
            trial.succeeded(permit)
            return response
        first, chunks = seen
        left = None if until is None else float(max(until - self.guard.clock.monotonic(), 0))
        rest = Rest(
            first,
            chunks,
            response.stream,
            self.flavour,
            trial,
            trial.answering(permit),
            left,
            self._tape(request, response),
        )
        response.stream = joined(SyncRest, self.flavour.SyncByteStream)(rest)
        return response

    def _exchange(self, request: Theirs, until: int | None) -> tuple[Theirs, bytes | tuple[bytes, Iterator[bytes]]]:
        """An answer with its whole body, or with its first bytes and the rest to come; given up, it decides nothing."""
        response = self.inner.handle_request(request)
        seen: bytes | tuple[bytes, Iterator[bytes]]
        try:
            chunks = iter(response.stream)
            if self._is_whole(response):
                seen = b"".join(self._in_time(chunks, until, request))
            else:
                seen = (next(chunks, b""), chunks)
        except BaseException:
            with suppress(Exception):
                response.stream.close()
            raise
        scope = current()
        if isinstance(seen, bytes) or (scope is not None and scope.fenced):
            response.stream.close()
        return response, seen

    def _bounded(self, request: Theirs, trial: SyncTrial) -> int | None:
        """No single wait of this request may be longer than the whole attempt; returns when that is over."""
        left = [time for time in (trial.limit(), trial.left()) if time is not None]
        if not left:
            return None
        most = max(min(left), 1)
        asked = request.extensions.get("timeout", {})
        bounded = {name: _least(asked.get(name), most / 1_000) for name in ("connect", "read", "write", "pool")}
        request.extensions = {**request.extensions, "timeout": bounded}
        return self.guard.clock.monotonic() + most

    def _in_time(self, chunks: Iterator[bytes], until: int | None, request: Theirs) -> Iterator[bytes]:
        """What comes while the attempt's time lasts: who drips is in time with every byte, and late as a whole."""
        for chunk in chunks:
            if until is not None and self.guard.clock.monotonic() >= until:
                raise self.flavour.ReadTimeout(STILL_COMES, request=request)
            yield chunk


def _least(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)

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
download) the first bytes are waited for inside the attempt; once they are there the answer is handed on
(`FailedAnswer`),
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
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import msgspec

from allswell.domain.agents.cost import Expense, Tokens, of_answer, of_events, plus
from allswell.domain.service.breaker import Permit
from allswell.domain.service.incident import SdkRepeats
from allswell.errors import Refused, ServiceParked
from allswell.runtime.call_timeouts import ATTEMPT, in_timeouts
from allswell.runtime.calls import call_in_thread
from allswell.runtime.guard.call import HEADER, AsyncTrial, SyncTrial, probing
from allswell.timing.scopes import Scope, ScopeTimeout, current

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard


# What models were asked and answered by way of guarded transports, for whoever keeps a record of it.
#
# Who wants one puts an `ExchangeLedger` into effect; every task and thread that is started inside inherits it. Bodies
# are kept as they were sent and received, up to a size; headers are not, and of an address neither user nor query, for
# that is where keys are. Nothing here can fail a call: what cannot be read is left out.

Theirs = Any
"""An object of `httpx` or of `httpx2`."""
_BODY_MOST = 1 << 20
"""Bytes of one body; a longer one is cut off."""
_WHOLE_MOST = 64 << 20
"""Bytes of all bodies; beyond that only tokens are counted."""


class HttpExchange(msgspec.Struct, frozen=True):
    """One request, and its answer where one came."""

    service: str
    url: str
    status: int | None
    """None: it was not answered."""
    request: Any
    """JSON as it was, or text; None where there was none or it could be read only once."""
    answer: Any
    tokens: Tokens | None
    error: str | None = None
    """Why there is no answer."""


def not_seen(name: str, error: str) -> HttpExchange:
    """A call whose time was up, and whose request went past us."""
    return HttpExchange(name, "", None, None, None, None, error[:1_000])


class ExchangeLedger:
    """The exchanges of one piece of work, in the order in which they ended; tokens alone, where no more is wanted."""

    def __init__(self, *, bodies: bool = True) -> None:
        self._bodies = bodies
        self.exchanges: list[HttpExchange] = []
        self.tokens: Tokens | None = None
        """All together; None where no answer said anything of it."""
        self._kept = 0
        self._told = 0
        """Exchanges that were given out as lines."""

    def note(self, service: str, request: Theirs, response: Theirs, content: bytes) -> None:
        """Keep an answer; `content` is its body, decoded."""
        answer = _body(content)
        tokens = of_events(content) if isinstance(answer, str) else of_answer(answer)
        self.tokens = plus(self.tokens, tokens)
        if not self._bodies:
            return
        self._add(service, request, int(response.status_code), len(content), answer, tokens)

    def unanswered(self, service: str, request: Theirs, error: BaseException) -> HttpExchange | None:
        """Keep a request to which no answer came; None where there is no room for it."""
        return self._add(service, request, None, 0, None, None, f"{type(error).__name__}: {error}"[:1_000])

    def hung(self, name: str, error: str) -> None:
        """Keep a call whose time was up, unless its request is kept; what was asked in it was not seen here."""
        last = self.exchanges[-1] if self.exchanges else None
        if last is None or last.status is not None:
            self.exchanges.append(not_seen(name, error))

    def _add(
        self,
        service: str,
        request: Theirs,
        status: int | None,
        size: int,
        answer: object,
        tokens: Tokens | None,
        error: str | None = None,
    ) -> HttpExchange | None:
        asked, url = b"", ""
        with suppress(Exception):  # a body that was a stream is gone
            url = f"{request.url.scheme}://{request.url.host}{request.url.path}"
            asked = bytes(request.content)
        self._kept += len(asked) + size
        if self._kept > _WHOLE_MOST:
            return None
        self.exchanges.append(HttpExchange(service, url, status, _body(asked), answer, tokens, error))
        return self.exchanges[-1]

    def lines(self) -> list[bytes]:
        """A JSON object for each exchange since the last time."""
        since, self._told = self._told, len(self.exchanges)
        return [msgspec.json.encode(exchange) for exchange in self.exchanges[since : self._told]]


class RecordedStream:
    """An answer that is handed on as it comes, kept on the way."""

    def __init__(
        self, ledger: ExchangeLedger, service: str, request: Theirs, response: Theirs, flavour: Theirs
    ) -> None:
        self._ledger = ledger
        self._service = service
        self._request = request
        self._response = response
        self._flavour = flavour
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """A piece of it has come."""
        self._size += len(chunk)
        if self._size <= _BODY_MOST * 8:
            self._chunks.append(chunk)

    def end(self) -> None:
        """It is over, or was left."""
        with suppress(Exception):  # a stream that broke off inside what was compressed
            made = self._flavour.Response(
                self._response.status_code, headers=self._response.headers, content=b"".join(self._chunks)
            )
            self._ledger.note(self._service, self._request, self._response, made.content)


def expense_of(tokens: Tokens | None) -> Expense | None:
    """What these tokens are as an expense: what they cost in money nobody has said."""
    return None if tokens is None else Expense(None, tokens.prompt, tokens.completion)


in_ledger: ContextVar[ExchangeLedger | None] = ContextVar("allswell_ledger", default=None)
"""The ledger in effect."""


def _body(content: bytes) -> object:
    if not content:
        return None
    if len(content) <= _BODY_MOST:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(content)
    return content[:_BODY_MOST].decode("utf-8", "replace")


# Answers whose beginning has been seen: what is left of them is handed on, and their end is told to the breaker, once.
#
# Nothing is repeated any more (F7): whoever reads has seen bytes. A stream that breaks off, or outlasts its attempt, is
# a failure of its service all the same; one that its reader leaves in the middle was answering when it was left.
#
# **A reader's own time is not the service's.** The attempt's limit bounds the waits for the next piece, all of them
# together; who reads a piece an hour long takes nothing from it. For the same reason a probe has done its work when the
# answer has begun: its lease would run out while the reader reads (`test_a_slow_reader_says_nothing_about_a_service`).

"""An object of `httpx` or of `httpx2`: which one is known at run time only."""
STILL_COMES = "The attempt's time is up, and the answer still comes."
"""What the error of an answer says that is in time with every byte, and late as a whole."""


@cache
def joined(ours: type, theirs: type) -> Theirs:
    """Our class as one of their family: httpx asks its streams for that, and type checkers its transports."""
    return type(ours.__name__, (ours, theirs), {})


class StreamRest(NamedTuple):
    """The rest of an answer whose beginning has been seen."""

    first: bytes
    chunks: Any
    source: Any
    flavour: ModuleType
    trial: Any
    permit: Permit
    limit: float | None
    """Milliseconds that the attempt still has."""
    tape: RecordedStream | None
    """Keeps what comes, where somebody wants it."""

    def seen(self, chunk: bytes) -> bytes:
        """A piece that is handed on."""
        if self.tape is not None:
            self.tape.add(chunk)
        return chunk


class AsyncStreamRest:
    """Hands on the rest of an answer; its end is told to the breaker, once."""

    def __init__(self, rest: StreamRest) -> None:
        self._rest = rest
        self._trial: AsyncTrial = rest.trial
        self._open = True
        self._trial.no_more()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunk: bytes | None = self._rest.first
        left, time = self._rest.limit, asyncio.get_running_loop().time
        while chunk is not None:
            if chunk:
                yield self._rest.seen(chunk)
            began = time()
            try:
                async with Scope(left, kind=ATTEMPT, name=self._trial.guard.service):
                    chunk = await anext(self._rest.chunks, None)
            except BaseException as error:
                await self._ended(error)
                if isinstance(error, ScopeTimeout):
                    raise self._rest.flavour.ReadTimeout(str(error)) from error
                raise
            left = None if left is None else max(left - (time() - began) * 1_000, 1)
        await self._ended(None)

    async def aclose(self) -> None:
        """Close the answer; one that is left in the middle was answering when it was left."""
        await self._ended(None)
        await self._rest.source.aclose()

    async def _ended(self, error: BaseException | None) -> None:
        if not self._open:
            return
        self._open = False
        if self._rest.tape is not None:
            self._rest.tape.end()
        if error is None:
            await self._trial.succeeded(self._rest.permit)
        else:
            with suppress(ServiceParked):
                await self._trial.failed(error, self._rest.permit)


class SyncStreamRest:
    """Hands on the rest of an answer; its end is told to the breaker, once."""

    def __init__(self, rest: StreamRest) -> None:
        self._rest = rest
        self._trial: SyncTrial = rest.trial
        self._open = True
        self._trial.no_more()

    def __iter__(self) -> Iterator[bytes]:
        left, now = self._rest.limit, self._trial.guard.clock.monotonic
        if self._rest.first:
            yield self._rest.seen(self._rest.first)
        while True:
            began = now()
            try:
                chunk = next(self._rest.chunks, None)
                left = None if left is None else left - (now() - began)
                if chunk is not None and left is not None and left <= 0:
                    raise self._rest.flavour.ReadTimeout(STILL_COMES)  # noqa: TRY301 - told like any other
            except BaseException as error:
                self._ended(error)
                raise
            if chunk is None:
                self._ended(None)
                return
            yield self._rest.seen(chunk)

    def close(self) -> None:
        """Close the answer; one that is left in the middle was answering when it was left."""
        self._ended(None)
        self._rest.source.close()

    def _ended(self, error: BaseException | None) -> None:
        if not self._open:
            return
        self._open = False
        if self._rest.tape is not None:
            self._rest.tape.end()
        if error is None:
            self._trial.succeeded(self._rest.permit)
        else:
            with suppress(ServiceParked):
                self._trial.failed(error, self._rest.permit)


T = TypeVar("T")

FLAVOURS = ("httpx", "httpx2")
"""What a transport can belong to. (A class's `__module__` does not say: the openai package changes it.)"""
_LARGEST_BODY = 64 * 1024 * 1024
"""An answer that is JSON and longer than this is handed on as it comes."""


class FailedAnswer(Exception):
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
        """An answer that was read to its end: itself, with its body in hand, or `FailedAnswer` if it is a failure."""
        response.stream = self.flavour.ByteStream(raw)
        whole = self.flavour.Response(response.status_code, headers=response.headers, content=raw)
        body, is_json = None, True
        try:
            body = msgspec.json.decode(whole.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, self.flavour.DecodingError):
            is_json = False
        if response.status_code >= 400:
            raise FailedAnswer(response, response.status_code, body if is_json else _text(whole))
        if not is_json:
            raise FailedAnswer(response, None, None)
        ledger = in_ledger.get()
        if ledger is not None:
            ledger.note(self.guard.service, request, response, whole.content)
        return response

    def _unanswered(self, request: Theirs, error: BaseException) -> None:
        ledger = in_ledger.get()
        if ledger is not None and not isinstance(error, FailedAnswer):
            exchange = ledger.unanswered(self.guard.service, request, error)
            record = in_timeouts.get()
            if exchange is not None and record is not None:
                record.unanswered(error, exchange)

    def _tape(self, request: Theirs, response: Theirs) -> RecordedStream | None:
        """What keeps an answer that is handed on as it comes."""
        ledger = in_ledger.get()
        return None if ledger is None else RecordedStream(ledger, self.guard.service, request, response, self.flavour)

    def _handed_back(self, answered: FailedAnswer) -> Theirs:
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
                    self._unanswered(request, error)
                    pause = await trial.failed(error, permit)
                    if pause is None:
                        raise
                await asyncio.sleep(pause)
        except FailedAnswer as answered:
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
        rest = StreamRest(
            first,
            chunks,
            response.stream,
            self.flavour,
            trial,
            await trial.answering(permit),
            left,
            self._tape(request, response),
        )
        response.stream = joined(AsyncStreamRest, self.flavour.AsyncByteStream)(rest)
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
                    self._unanswered(request, error)
                    pause = trial.failed(error, permit)
                    if pause is None:
                        raise
                self.guard.sleep(pause)
        except FailedAnswer as answered:
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
        rest = StreamRest(
            first,
            chunks,
            response.stream,
            self.flavour,
            trial,
            trial.answering(permit),
            left,
            self._tape(request, response),
        )
        response.stream = joined(SyncStreamRest, self.flavour.SyncByteStream)(rest)
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

"""What models were asked and answered by way of guarded transports, for whoever keeps a record of it.

Who wants one puts an `ExchangeLedger` into effect; every task and thread that is started inside inherits it. Bodies are
kept as they were sent and received, up to a size; headers are not, and of an address neither user nor query, for that
is where keys are. Nothing here can fail a call: what cannot be read is left out.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import msgspec

from allswell.domain.expense import Expense
from allswell.domain.model_usage import of_answer, of_events, plus
from allswell.domain.step_receipt import Tokens

Theirs = Any
"""An object of `httpx` or of `httpx2`."""
_BODY_MOST = 1 << 20
"""Bytes of one body; a longer one is cut off."""
_WHOLE_MOST = 64 << 20
"""Bytes of all bodies; beyond that only tokens are counted."""


class Exchange(msgspec.Struct, frozen=True):
    """One request that was answered."""

    service: str
    url: str
    status: int
    request: Any
    """JSON as it was, or text; None where there was none or it could be read only once."""
    answer: Any
    tokens: Tokens | None


class ExchangeLedger:
    """The exchanges of one piece of work, in the order in which they ended; tokens alone, where no more is wanted."""

    def __init__(self, *, bodies: bool = True) -> None:
        self._bodies = bodies
        self.exchanges: list[Exchange] = []
        self.tokens: Tokens | None = None
        """All together; None where no answer said anything of it."""
        self._kept = 0

    def note(self, service: str, request: Theirs, response: Theirs, content: bytes) -> None:
        """Keep an answer; `content` is its body, decoded."""
        answer = _body(content)
        tokens = of_events(content) if isinstance(answer, str) else of_answer(answer)
        self.tokens = plus(self.tokens, tokens)
        if not self._bodies:
            return
        asked = b""
        with suppress(Exception):  # a body that was a stream is gone
            asked = bytes(request.content)
        self._kept += len(asked) + len(content)
        if self._kept > _WHOLE_MOST:
            return
        url = f"{request.url.scheme}://{request.url.host}{request.url.path}"
        self.exchanges.append(Exchange(service, url, int(response.status_code), _body(asked), answer, tokens))

    def lines(self) -> list[bytes]:
        """A JSON object for each exchange."""
        return [msgspec.json.encode(exchange) for exchange in self.exchanges]


class Tape:
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

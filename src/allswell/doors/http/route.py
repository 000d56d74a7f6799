"""How a route is declared: a method, a path, what it takes, what it answers, and the function that does it.

What a GET takes stands in its query, what a POST takes is a JSON object in its body; both are one Struct, so that
OpenAPI, decoding and the function's own type cannot disagree. The function's docstring is what OpenAPI says about it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_origin

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.responses import Response

from allswell.doors.http.call import Call
from allswell.errors import Refused

T = TypeVar("T", bound=Struct)


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """For a route that takes nothing but its path."""


@dataclass(frozen=True)
class Route(Generic[T]):
    """One route under `/api/v1`."""

    method: Literal["GET", "POST"]
    path: str
    does: Callable[[Call, T], Awaitable[Struct | Response]]
    takes: type[T]
    answers: tuple[type[Struct], ...]
    status: int = 200
    also: tuple[str, ...] = ()
    """What else it can answer with, beside JSON: `text/event-stream`, where it can be followed."""

    @property
    def says(self) -> str:
        """What it does, in a sentence or more."""
        return " ".join((self.does.__doc__ or "").split())

    @property
    def name(self) -> str:
        """What it is called in OpenAPI."""
        return self.does.__name__

    async def carried_out(self, call: Call) -> Struct | Response:
        """The answer to a call."""
        return await self.does(call, self._asked(call.query) if self.method == "GET" else await self._taken(call))

    def _asked(self, query: QueryParams) -> T:
        kinds = {field.name: field.type for field in msgspec.structs.fields(self.takes)}
        given: dict[str, Any] = {}
        for name in query:
            many = get_origin(kinds.get(name)) is tuple
            given[name] = query.getlist(name) if many else query[name]
        try:
            return msgspec.convert(given, self.takes, strict=False)
        except msgspec.ValidationError as error:
            raise Refused("bad_query", f"the query does not fit: {error}", where="query") from None

    async def _taken(self, call: Call) -> T:
        body = await call.body() or b"{}"
        try:
            return msgspec.json.decode(body, type=self.takes)
        except msgspec.ValidationError as error:
            raise Refused("bad_body", f"the body does not fit: {error}", where="body") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused("not_json", f"the body is not JSON: {error}", where="body") from None

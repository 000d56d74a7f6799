"""A Notion for tests: it holds databases and pages, and enforces the documented shapes and limits.

Only what a log needs: pages under a shared page, databases with one data source, queries by a text that equals. What is
wrong is answered as Notion answers: `{"object": "error", "status", "code", "message"}`. More than three requests a
second on average (measured over `window` seconds) are answered 429 with Retry-After.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import msgspec

from tests.support.fakes.server import Answered, Asked, StandIn

VERSION = "2026-03-11"
TEXT_MOST = 2_000
PAYLOAD_MOST = 500_000
ARRAY_MOST = 100


class _Wrong(Exception):
    """A request that Notion would not take."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class NotionServer(StandIn):
    """Takes requests with its token."""

    def __init__(self, *, rate: float = 3.0, window: float = 2.0) -> None:
        super().__init__()
        self.token = "ntn_" + "0" * 16
        self.page = "0" * 32
        """The page that is shared with the integration."""
        self._rate, self._window = rate, window
        self._numbers = itertools.count(1)
        self._recent: deque[float] = deque()
        self.databases: dict[str, str] = {}
        """The data source of each."""
        self.schemas: dict[str, dict[str, str]] = {}
        """By data source: the type of each property."""
        self.pages: dict[str, dict[str, Any]] = {}
        """Properties by page, in the order of making."""
        self.trash: dict[str, dict[str, Any]] = {}
        """Pages that somebody has thrown away: they are found by no query, and nothing can be written to them."""
        self._sources: dict[str, str] = {}
        self.refused = 0
        """How many requests came too soon."""

    def add_database(self, types: dict[str, str]) -> str:
        """A database that somebody has made by hand."""
        database, source = self._new(), self._new()
        self.databases[database] = source
        self.schemas[source] = dict(types)
        return database

    def column(self, name: str) -> list[Any]:
        """What all pages have in one property, in plain values."""
        return [_plain(properties.get(name)) for properties in self.pages.values()]

    def throw_away(self) -> None:
        """Put all pages into the trash."""
        self.trash |= self.pages
        self.pages.clear()

    def answer(self, asked: Asked) -> Answered:
        """Do what is asked, or say what is wrong with it."""
        try:
            self._check_pace(asked)
            body = self._check(asked)
            found = self._route(asked.method, asked.path.removeprefix("/v1/").split("/"), body)
        except _Wrong as wrong:
            told = {"object": "error", "status": wrong.status, "code": wrong.code, "message": str(wrong)}
            headers = {"retry-after": "1"} if wrong.status == 429 else {}
            return Answered(wrong.status, msgspec.json.encode(told), headers)
        return Answered(200, msgspec.json.encode(found))

    def _check_pace(self, asked: Asked) -> None:
        while self._recent and self._recent[0] <= asked.at - self._window:
            self._recent.popleft()
        if len(self._recent) >= self._rate * self._window + 1:
            self.refused += 1
            raise _Wrong(429, "rate_limited", "You have been rate limited. Please try again in a few minutes.")
        self._recent.append(asked.at)

    def _check(self, asked: Asked) -> dict[str, Any]:
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            raise _Wrong(401, "unauthorized", "API token is invalid.")
        if asked.headers.get("notion-version") != VERSION:
            raise _Wrong(400, "missing_version", f"Notion-Version header should be {VERSION}")
        if len(asked.body) > PAYLOAD_MOST:
            raise _Wrong(413, "validation_error", "body failed validation: the payload is too large")
        try:
            body = msgspec.json.decode(asked.body, type=dict[str, Any]) if asked.body else {}
        except msgspec.DecodeError:
            raise _Wrong(400, "invalid_json", "Error parsing JSON body.") from None
        _check_sizes(body)
        return body

    def _route(self, method: str, path: list[str], body: dict[str, Any]) -> dict[str, Any]:
        match method, path:
            case "POST", ["databases"]:
                return self._make_database(body)
            case "GET", ["databases", id_]:
                source = self._there(self.databases, id_, "database")
                return {"object": "database", "id": id_, "data_sources": [{"id": source, "name": "Log"}]}
            case "GET", ["data_sources", id_]:
                types = self._there(self.schemas, id_, "data source")
                properties = {
                    name: {"id": name, "name": name, "type": type_, type_: {}} for name, type_ in types.items()
                }
                return {"object": "data_source", "id": id_, "properties": properties}
            case "POST", ["data_sources", id_, "query"]:
                return self._query(id_, body)
            case "POST", ["pages"]:
                return self._make_page(body)
            case "PATCH", ["pages", id_] if id_ in self.trash:
                message = "Can't edit block that is archived. You must unarchive the block before editing."
                raise _Wrong(400, "validation_error", message)
            case "PATCH", ["pages", id_]:
                page = self._there(self.pages, id_, "page")
                page |= self._properties(self._sources[id_], body)
                return {"object": "page", "id": id_, "in_trash": False, "properties": page}
            case _:
                raise _Wrong(400, "invalid_request_url", "Invalid request URL.")

    def _make_database(self, body: dict[str, Any]) -> dict[str, Any]:
        parent = body.get("parent", {})
        if parent.get("type") != "page_id" or str(parent.get("page_id", "")).replace("-", "") != self.page:
            raise _Wrong(404, "object_not_found", "Could not find page with this ID; share it with your integration.")
        wanted = body.get("initial_data_source", {}).get("properties")
        if not isinstance(wanted, dict) or "properties" in body:
            raise _Wrong(400, "validation_error", "body.initial_data_source.properties should be defined")
        types = {name: next(iter(about)) for name, about in wanted.items()}
        if list(types.values()).count("title") != 1:
            raise _Wrong(400, "validation_error", "a database has exactly one title property")
        database = self.add_database(types)
        return {"object": "database", "id": database, "data_sources": [{"id": self.databases[database], "name": "Log"}]}

    def _make_page(self, body: dict[str, Any]) -> dict[str, Any]:
        parent = body.get("parent", {})
        if parent.get("type") != "data_source_id":
            raise _Wrong(400, "validation_error", "body.parent.data_source_id should be defined")
        source = str(parent.get("data_source_id"))
        self._there(self.schemas, source, "data source")
        properties = self._properties(source, body)
        page = self._new()
        self.pages[page] = properties
        self._sources[page] = source
        return {"object": "page", "id": page, "in_trash": False, "properties": properties}

    def _query(self, source: str, body: dict[str, Any]) -> dict[str, Any]:
        types = self._there(self.schemas, source, "data source")
        which = body.get("filter", {})
        name, wanted = which.get("property"), which.get("rich_text", {}).get("equals")
        if types.get(name) != "rich_text" or not isinstance(wanted, str):
            raise _Wrong(400, "validation_error", f"Could not find property with name or id: {name}")
        found = [
            {"object": "page", "id": page, "in_trash": False, "properties": properties}
            for page, properties in self.pages.items()
            if self._sources[page] == source and _plain(properties.get(name)) == wanted
        ]
        return {"object": "list", "results": found[: int(body.get("page_size", 100))], "has_more": False}

    def _properties(self, source: str, body: dict[str, Any]) -> dict[str, Any]:
        types = self.schemas[source]
        given = body.get("properties")
        if not isinstance(given, dict):
            raise _Wrong(400, "validation_error", "body.properties should be an object")
        for name, value in given.items():
            if name not in types:
                raise _Wrong(400, "validation_error", f"{name} is not a property that exists.")
            if list(value) != [types[name]]:
                raise _Wrong(400, "validation_error", f"{name} is expected to be {types[name]}.")
            _check_value(name, types[name], value[types[name]])
        return given

    def _there(self, known: dict[str, Any], id_: str, what: str) -> Any:  # noqa: ANN401 - whatever is kept there
        for key, value in known.items():
            if key.replace("-", "") == id_.replace("-", ""):
                return value
        raise _Wrong(404, "object_not_found", f"Could not find {what} with ID: {id_}.")

    def _new(self) -> str:
        return f"{next(self._numbers):032x}"


def _check_value(name: str, type_: str, value: object) -> None:
    fits = {
        "title": isinstance(value, list),
        "rich_text": isinstance(value, list),
        "select": value is None or (isinstance(value, dict) and isinstance(value.get("name"), str)),
        "number": value is None or (isinstance(value, int | float) and not isinstance(value, bool)),
        "date": value is None or (isinstance(value, dict) and isinstance(value.get("start"), str)),
        "checkbox": isinstance(value, bool),
    }
    if not fits.get(type_, False):
        raise _Wrong(400, "validation_error", f"body.properties.{name} is no {type_}")


def _check_sizes(value: object) -> None:
    if isinstance(value, dict):
        content = value.get("content")
        if isinstance(content, str) and len(content.encode("utf-16-le")) > TEXT_MOST * 2:
            raise _Wrong(400, "validation_error", f"content.length should be ≤ `{TEXT_MOST}`")
        for inner in value.values():
            _check_sizes(inner)
    elif isinstance(value, list):
        if len(value) > ARRAY_MOST:
            raise _Wrong(400, "validation_error", f"an array has more than {ARRAY_MOST} elements")
        for inner in value:
            _check_sizes(inner)


def _plain(value: Any) -> Any:  # noqa: ANN401 - as it comes, and as people see it
    """A property's value as people see it."""
    if not value:
        return None
    ((type_, inner),) = value.items()
    if type_ in ("title", "rich_text"):
        return "".join(part["text"]["content"] for part in inner)
    if type_ == "select":
        return inner and inner["name"]
    return inner and inner["start"] if type_ == "date" else inner

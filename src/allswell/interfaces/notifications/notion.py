"""The Notion sink: the communication log as a database of pages, one for each request.

A page is looked for by its `Allswell Id` before one is made, and one thing is written at a time, so a lost answer makes
no second page. Notion takes three requests a second on average; more are not sent. What goes wrong is tried again, by
the sink's own patience: the library's retries are off, or there would be two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from allswell.domain.mesh.comms import STATUSES, Comm
from allswell.domain.notify.delivery import Delivery, DeliveryFailure
from allswell.domain.notify.spec import SinkSpec
from allswell.domain.rules.event import Entry
from allswell.domain.service.classify import asked_wait
from allswell.engine.status.journal import comm_of
from allswell.errors import Refused
from allswell.interfaces.notifications.sink import NotDelivered, SinkDefaults, SinkMessage, variable
from allswell.store.views import Views
from allswell.timing.moment import moment

if TYPE_CHECKING:
    from notion_client import AsyncClient

VERSION = "2026-03-11"
_APART = 1 / 3
"""Seconds between two requests."""
_REMEMBERED = 1_000
_decode = msgspec.json.Decoder(Comm).decode


class NotionSink(SinkDefaults):
    """Keeps the log."""

    def __init__(self, spec: SinkSpec, environ: Mapping[str, str], wall: Callable[[], int]) -> None:
        super().__init__(spec)
        self._spec = spec
        self._wall = wall
        self._client = _client(spec, variable(spec.token_env, environ, f"sinks.{spec.name}.token_env"))
        self._source: str | None = None
        """The data source in the database; it never changes."""
        self._pages: dict[str, str] = {}
        """The pages of the last requests, by request."""
        self._free_at = 0.0

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        """A row of the log."""
        comm = await comm_of(views, entry)
        return () if comm is None else [SinkMessage(msgspec.json.encode(comm).decode())]

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Write a row into its request's page."""
        (delivery,) = batch
        comm = _decode(delivery.body)
        source = await self._data_source()
        properties = page_of(comm, str(moment(comm.at)))
        page = self._pages.get(comm.request) or await self._find(source, comm.request)
        if page is not None:
            await self._update(comm.request, page, news_of(properties))
        else:
            parent = {"type": "data_source_id", "data_source_id": source}
            made = await self._call(self._client.pages.create, parent=parent, properties=properties)
            page = str(_part(made, "id"))
        if len(self._pages) >= _REMEMBERED:
            del self._pages[next(iter(self._pages))]
        self._pages[comm.request] = page

    async def _find(self, source: str, request: str) -> str | None:
        which = {"property": ID, "rich_text": {"equals": request}}
        found = await self._call(self._client.data_sources.query, source, filter=which, page_size=1)
        return str(_part(found, "results", 0, "id")) if _part(found, "results") else None

    async def _update(self, request: str, page: str, properties: Mapping[str, Any]) -> None:
        try:
            await self._call(self._client.pages.update, page, properties=properties)
        except NotDelivered:
            self._pages.pop(request, None)  # somebody may have thrown it away: it is looked for again
            raise

    async def _data_source(self) -> str:
        if self._source is None:
            found = await self._call(self._client.databases.retrieve, self._spec.database)
            self._source = str(_part(found, "data_sources", 0, "id"))
        return self._source

    # --- looking after it ---------------------------------------------------------------------------------------------

    async def check(self) -> str:
        """Whether the database is there, and fits."""
        where = f"sinks.{self.name}.database"
        if not self._spec.database:
            text = f"{where}: there is none yet; `allswell sinks setup {self.name}` makes one"
            raise Refused("no_notion_database", text, where=where)
        try:
            source = await self._data_source()
            found = await self._call(self._client.data_sources.retrieve, source)
            wrong = wrong_with_schema(_part(found, "properties"))
        except NotDelivered as error:
            raise Refused("no_notion_database", f"{where}: {error.failure.reason}", where=where) from None
        if wrong:
            raise Refused("notion_does_not_fit", f"{where}: {'; '.join(wrong)}", where=where)
        return f"the database {self._spec.database} fits"

    async def set_up(self) -> str:
        """Make the database; its id."""
        where = f"sinks.{self.name}.page"
        if not self._spec.page:
            text = f"{where}: under which page? write page = the id from its link, and share it with the integration"
            raise Refused("no_notion_page", text, where=where)
        try:
            made = await self._call(
                self._client.databases.create,
                parent={"type": "page_id", "page_id": self._spec.page},
                title=[{"text": {"content": TITLE}}],
                initial_data_source={"properties": schema()},
            )
            return str(_part(made, "id"))
        except NotDelivered as error:
            raise Refused("no_notion_page", f"{where}: {error.failure.reason}", where=where) from None

    async def close(self) -> None:
        """Close what is open to Notion."""
        await self._client.aclose()

    async def _call(self, ask: Callable[..., Any], *given: object, **named: object) -> Any:  # noqa: ANN401 - as Notion has it
        """Ask Notion, no sooner than it wants."""
        import httpx
        from notion_client.errors import HTTPResponseError, RequestTimeoutError

        loop = asyncio.get_running_loop()
        free_at, self._free_at = self._free_at, max(self._free_at, loop.time()) + _APART
        await asyncio.sleep(max(free_at - loop.time(), 0))
        try:
            asked: Awaitable[Any] = ask(*given, **named)
            return await asked
        except HTTPResponseError as error:
            if error.status == 404:
                self._pages.clear()  # somebody has removed a page, or the whole database
            wait = asked_wait({key.lower(): value for key, value in error.headers.items()}, self._wall())
            raise NotDelivered(DeliveryFailure(f"Notion answered {error.status}: {error}", retry_after=wait)) from None
        except RequestTimeoutError:
            raise NotDelivered(DeliveryFailure("Notion did not answer in time")) from None
        except httpx.HTTPError as error:
            raise NotDelivered(
                DeliveryFailure(f"Notion cannot be reached: {str(error) or type(error).__name__}")
            ) from None
        except ValueError:
            raise NotDelivered(DeliveryFailure("Notion's answer cannot be read: it is not JSON")) from None


def _part(answer: Any, *path: str | int) -> Any:  # noqa: ANN401 - as Notion has it
    """A part of an answer; `NotDelivered` where it is not there."""
    try:
        for step in path:
            answer = answer[step]
    except (KeyError, IndexError, TypeError):
        raise NotDelivered(DeliveryFailure(f"Notion's answer has no {'.'.join(map(str, path))}")) from None
    return answer


def _client(spec: SinkSpec, token: str) -> AsyncClient:
    if not token.isascii() or not token.isprintable() or " " in token:
        where = f"sinks.{spec.name}.token_env"
        raise Refused("bad_token", f"{where}: what {spec.token_env} holds is not a token of Notion's", where=where)
    try:
        from notion_client import AsyncClient
    except ImportError as error:
        text = "the Notion sink needs the extra `sinks`: in Allswell's clone, type `uv tool install '.[sinks]'`"
        raise Refused("no_driver", text, where=f"sinks.{spec.name}") from error
    own: dict[str, Any] = {"base_url": spec.url.rstrip("/")} if spec.url else {}
    return AsyncClient(
        auth=token,
        notion_version=VERSION,
        retry=False,
        timeout_ms=spec.timeout,
        logger=logging.getLogger(__name__),
        log_level=logging.CRITICAL,
        **own,
    )


# A row of the communication log as a page of Notion's, and what its database must be like.
#
# One page stands for one request, from `Sent` to its end: what each message of it says is written over what was there.
# `Allswell Id` says which request it is, and is how a page is found again; `Review` is a tick for people.

TITLE = "Mesh Communication Log"
ID = "Allswell Id"
REVIEW = "Review"
TYPES: Mapping[str, str] = {
    "Event": "title",
    "Source Agent": "rich_text",
    "Target Agent": "rich_text",
    "Status": "select",
    "Timeout (min)": "number",
    "Blocked Task": "rich_text",
    "Resolution": "rich_text",
    "Timestamp": "date",
    "Retry Count": "number",
    REVIEW: "checkbox",
    ID: "rich_text",
}
"""Every property, with its type."""
_LONGEST = 2_000
"""Of a text, counted as Notion counts: in UTF-16."""


def schema() -> dict[str, Any]:
    """The properties of a database that is made for the log."""
    made: dict[str, Any] = {name: {type_: {}} for name, type_ in TYPES.items()}
    made["Status"] = {"select": {"options": [{"name": status} for status in STATUSES]}}
    return made


def wrong_with_schema(properties: Mapping[str, Any]) -> list[str]:
    """What does not fit in a database that is there; nothing, if all of it does."""
    faults = []
    for name, type_ in TYPES.items():
        there = properties.get(name)
        if there is None:
            titles = [other for other, about in properties.items() if about.get("type") == "title"]
            rename = f": rename {titles[0]!r}" if type_ == "title" and titles else ""
            faults.append(f"there is no property {name!r} ({type_}){rename}")
        elif there.get("type") != type_:
            faults.append(f"{name!r} is of type {there.get('type')}, and should be {type_}")
    return faults


def page_of(comm: Comm, moment: str) -> dict[str, Any]:
    """The properties of a request's page after this message; `moment` is its time as text."""
    return {
        "Event": {"title": _text(comm.event)},
        "Source Agent": {"rich_text": _text(comm.source)},
        "Target Agent": {"rich_text": _text(comm.target)},
        "Status": {"select": {"name": comm.status}},
        "Timeout (min)": {"number": comm.timeout_min},
        "Blocked Task": {"rich_text": _text(comm.blocked_task)},
        "Resolution": {"rich_text": _text(comm.resolution)},
        "Timestamp": {"date": {"start": moment}},
        "Retry Count": {"number": comm.retries},
        REVIEW: {"checkbox": comm.review},
        ID: {"rich_text": _text(comm.request)},
    }


def news_of(page: Mapping[str, Any]) -> dict[str, Any]:
    """What is written over a page that is there: what this message says nothing about stays as it was.

    So a request that was answered late still shows how long was waited, and for what.
    """
    return {name: value for name, value in page.items() if any(value.values())}


def _text(text: str) -> list[dict[str, Any]]:
    return [{"text": {"content": cut_utf16(text, _LONGEST)}}] if text else []


def cut_utf16(text: str, most: int) -> str:
    """As much of a text as has so many units of UTF-16."""
    raw = text.encode("utf-16-le", "replace")
    if len(raw) <= most * 2:
        return text
    return raw[: (most - 1) * 2].decode("utf-16-le", "ignore") + "…"

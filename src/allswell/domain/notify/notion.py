"""A row of the communication log as a page of Notion's, and what its database must be like.

One page stands for one request, from `Sent` to its end: what each message of it says is written over what was there.
`Allswell Id` says which request it is, and is how a page is found again; `Review` is a tick for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allswell.domain.mesh.comms import STATUSES, Comm

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

"""What was handed over, and the runs that it joined."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct


class JoinedRunShape(Struct, frozen=True):
    """A run that new tasks belong to, by what it was called; whether it was opened for them."""

    run_id: str
    name: str
    opened: bool


class SubmittedShape(Struct, frozen=True):
    """A task was accepted: it is durable."""

    task_id: str
    name: str
    runs: list[JoinedRunShape]


class SubmittedManyShape(Struct, frozen=True):
    """So many tasks were accepted; their ids stand in the order of the lines, as a list of texts."""

    submitted: int
    task_ids: Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {"type": "string"}})]
    runs: list[JoinedRunShape]

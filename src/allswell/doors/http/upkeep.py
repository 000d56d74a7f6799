"""The watch itself: whether all is well with it, what is set, and the queues of messages beside it."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.doors.examining import examined
from allswell.doors.http.call import Call
from allswell.doors.http.route import Nothing, Route
from allswell.doors.queues import queues_at
from allswell.doors.shapes.checkup import CheckupShape
from allswell.doors.shapes.setting import SettingsShape
from allswell.doors.shapes.worker import QueuesShape

_ONE_AT_A_TIME = asyncio.Lock()
"""A check-up opens the store anew and may look twice, two seconds apart."""


class UnaccountedShape(Struct, frozen=True):
    """Open tasks that would wait for ever; there should be none."""

    task_ids: list[str]


async def show_checkup(call: Call, _: Nothing) -> CheckupShape:
    """Check that all is well with the watch, as `allswell doctor` does where the store is."""
    check_beside(call.key, "checkup")
    async with _ONE_AT_A_TIME:
        return CheckupShape.of(await examined(call.house.url, call.house.settings))


async def list_unaccounted(call: Call, _: Nothing) -> UnaccountedShape:
    """List open tasks that nothing will ever move again, a hundred at most."""
    return UnaccountedShape([str(one) for one in await call.views.view_unaccounted()])


async def show_settings(call: Call, _: Nothing) -> SettingsShape:
    """Show every setting of the server with its value, its default and where it comes from."""
    check_beside(call.key, "settings")
    settings = call.house.settings
    return SettingsShape.of(settings, settings.explain())


async def list_queues(call: Call, _: Nothing) -> QueuesShape:
    """How the queues of messages stand, which are in trouble, and which processes work on them.

    What only a human can decide about a message is a question like any other.
    """
    check_beside(call.key, "queues")
    return QueuesShape.of(await asyncio.to_thread(queues_at, call.house.url))


ROUTES = (
    Route("GET", "/doctor", show_checkup, Nothing, (CheckupShape,)),
    Route("GET", "/unaccounted", list_unaccounted, Nothing, (UnaccountedShape,)),
    Route("GET", "/config", show_settings, Nothing, (SettingsShape,)),
    Route("GET", "/queues", list_queues, Nothing, (QueuesShape,)),
)

"""What is set where the server runs: each setting with its value and where that comes from. Only to be looked at."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.domain.journal import Entry
from allswell.domain.listing import folded
from allswell.doors.http.call import Call
from allswell.doors.page.query import text_of
from allswell.doors.shapes.setting import SettingShape, SettingsShape


class SettingsScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    settings: list[SettingShape]
    files: tuple[str, ...]
    unknown: tuple[str, ...]
    text: str


def never(_: Call, _entry: Entry) -> bool:
    """No event changes a setting: they are read when the server starts."""
    return False


async def look(call: Call) -> SettingsScreen:
    """Look at the settings."""
    check_beside(call.key, "settings")
    settings, text = call.house.settings, text_of(call, "text")
    told = SettingsShape.of(settings, settings.explain())
    wanted = folded(text)
    found = [one for one in told.settings if wanted in folded(f"{one.name}\n{one.description}\n{one.shown}")]
    return SettingsScreen("Settings", (await call.views.view_agenda()).now, found, told.files, told.unknown, text)

"""All screens, put together; the navigation shows those that have a label, in this order."""

from __future__ import annotations

from allswell.doors.page import front
from allswell.doors.page.screen import PageScreen

SCREENS: tuple[PageScreen, ...] = (PageScreen("/", "front.html", front.look, label="Now"),)

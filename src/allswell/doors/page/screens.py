"""All screens, put together; the navigation shows those that have a label, in this order."""

from __future__ import annotations

from allswell.doors.page import changed, front, printed, run, runs, task
from allswell.doors.page.screen import PageScreen

_FOLLOWS = 2.0
"""Seconds between two looks at what an attempt prints: that is in no journal."""
_RARELY = 60.0

SCREENS: tuple[PageScreen, ...] = (
    PageScreen("/", "front.html", front.look, label="Now"),
    PageScreen("/runs", "runs.html", runs.look, label="Runs"),
    PageScreen("/runs/{run}", "run.html", run.look, refreshes=run.is_about),
    PageScreen("/tasks/{task}", "task.html", task.look, refreshes=task.is_about, beat=_FOLLOWS),
    PageScreen("/tasks/{task}/log", "log.html", printed.look, refreshes=task.is_about, beat=_FOLLOWS),
    PageScreen("/tasks/{task}/diff", "diff.html", changed.look, refreshes=task.is_about, beat=_RARELY),
)

"""All screens, put together; the navigation shows those that have a label, in this order."""

from __future__ import annotations

from allswell.doors.page import (
    agent,
    agents,
    build,
    changed,
    front,
    journal,
    messages,
    printed,
    run,
    runs,
    settings,
    task,
    tasks,
    worker,
)
from allswell.doors.page.screen import PageScreen

_FOLLOWS = 2.0
"""Seconds between two looks at what an attempt prints: that is in no journal."""
_RARELY = 60.0

SCREENS: tuple[PageScreen, ...] = (
    PageScreen("/", "front.html", front.look, label="Now"),
    PageScreen("/runs", "runs.html", runs.look, label="Runs"),
    PageScreen("/runs/{run}", "run.html", run.look, refreshes=run.is_about),
    PageScreen("/tasks", "tasks.html", tasks.look, label="Tasks"),
    PageScreen("/tasks/{task}", "task.html", task.look, refreshes=task.is_about, beat=_FOLLOWS),
    PageScreen("/tasks/{task}/log", "log.html", printed.look, refreshes=task.is_about, beat=_FOLLOWS),
    PageScreen("/tasks/{task}/diff", "diff.html", changed.look, refreshes=task.is_about, beat=_RARELY),
    PageScreen("/agents", "agents.html", agents.look, label="Agents"),
    PageScreen("/agents/{agent:path}", "agent.html", agent.look),
    PageScreen("/messages", "messages.html", messages.look, label="Messages", refreshes=messages.is_about),
    PageScreen("/builds", "builds.html", build.look_at_all, label="Builds"),
    PageScreen("/builds/{run}", "build.html", build.look, refreshes=run.is_about),
    PageScreen("/worker", "worker.html", worker.look, label="Worker"),
    PageScreen("/journal", "journal.html", journal.look, label="Journal"),
    PageScreen("/settings", "settings.html", settings.look, label="Settings", refreshes=settings.never, beat=_RARELY),
)

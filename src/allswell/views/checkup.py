"""A check-up: the verdict on the watch as a list of checks, with those that found nothing, for every `doctor`.

It only looks, and enforces no time limit first: what is overdue shall be seen. What is wrong is decided by the verdict
(engine/status/verdict.py), as everywhere; here it becomes findings, after those about reaching the store at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from allswell.domain.notify.spec import MESH
from allswell.domain.values import hide
from allswell.engine.status.explanation import many, typed
from allswell.engine.status.verdict import (
    EXIT_CODES,
    Check,
    VerdictItem,
    VerdictLevel,
    check_disk,
    headline,
    look,
)
from allswell.errors import Refused, Unavailable
from allswell.settings import Settings
from allswell.timing.clock import SystemClock
from allswell.views.fields import outside
from allswell.views.status import place_here

TITLES = {"sweeper": "timers", "pool": "ready"}
"""Checks whose names in JSON are not words for people."""
_EACH_MOST = 4
"""How many concerns of one check are listed one by one."""
_UNREACHABLE = 75
_MARKS: Mapping[VerdictLevel, Literal["ok", "warn", "bad"]] = {
    VerdictLevel.BROKEN: "bad",
    VerdictLevel.NEEDS_HUMAN: "warn",
}


class FindingShape(Struct, frozen=True):
    """What one check found; `next` is what to type, `data` has the exact figures behind the words.

    Of a concern of the verdict there are also its kind, and the name or id of what it is about.
    """

    check: str
    verdict: Literal["ok", "warn", "bad"]
    says: str
    next: str | None
    data: dict[str, Any]
    level: VerdictLevel
    kind: str
    about: str

    @property
    def title(self) -> str:
        """The check as people read it; `check` is its name for programs."""
        return TITLES.get(self.check, self.check)

    @classmethod
    def of(
        cls,
        check: str,
        level: VerdictLevel,
        says: str,
        command: str | None = None,
        data: Mapping[str, object] = {},
        concern: VerdictItem | None = None,
    ) -> FindingShape:
        """What a check says; of a concern, where it is one."""
        kind, about = ("", "") if concern is None else (concern.kind, concern.id)
        return cls(check, _MARKS.get(level, "ok"), says, command, outside(data), level, kind, about)


class CheckupShape(Struct, frozen=True):
    """What all checks found, and what the command ends with."""

    exit: int
    findings: list[FindingShape]
    headline: str


async def load_checkup(url: str, settings: Settings, folder: Path | None) -> CheckupShape:
    """What all checks found, the settings last, of a store with the settings that hold there.

    The exit code is the worst of it: 0 fine or waiting, 3 a human must act, 1 broken, 75 out of reach.
    """
    concerns: tuple[VerdictItem, ...] = ()
    reachable = True
    try:
        findings, concerns, reachable = await _examine(url, settings, folder)
    except Refused as error:
        broken = (VerdictLevel.BROKEN, error.message, "allswell config store", {"code": error.code})
        findings = [FindingShape.of("store", *broken)]
    if not any(one.kind == "settings" for one in findings):
        findings.append(_of_settings(settings))
    findings += _of_links(settings)
    worst = min((one.level for one in findings), key=list(VerdictLevel).index)
    beside = [one.level for one in findings if not one.kind]
    text = headline([*beside, *(one.level for one in concerns)])
    return CheckupShape(EXIT_CODES[worst] if reachable else _UNREACHABLE, findings, text)


async def _examine(
    url: str, settings: Settings, folder: Path | None
) -> tuple[list[FindingShape], tuple[VerdictItem, ...], bool]:
    """Open the store, look at everything, close it: the findings, all concerns, and whether it could be reached."""
    from allswell.app import store_for  # with all that opens a store, which is open where only its state is shown

    store, clock = store_for(url), SystemClock()
    path = getattr(store, "path", None)
    database = path if isinstance(path, Path) else None
    place = place_here(settings, folder if database is None else database.parent, clock=clock)
    name = hide(store.url)
    try:
        missing = database is not None and not database.exists()
    except OSError as error:
        says = f"{name} cannot be reached: {error.strerror}"
        return [FindingShape.of("store", VerdictLevel.BROKEN, says)], (), False
    if missing:
        says = f"nothing here yet; the first task makes the store {name}"
        return [FindingShape.of("store", VerdictLevel.WELL, says, typed("submit", "NAME"))], (), True
    began = clock.monotonic()
    try:
        await store.open()
        try:
            await store.view_agenda()
            took = clock.monotonic() - began
            says = f"{name} answers in {took} ms"
            reached = FindingShape.of("store", VerdictLevel.WELL, says, data={"took_ms": took})
            schema = FindingShape.of("schema", VerdictLevel.WELL, "the schema is that of this version")
            seen = await look(store, place)
            return [reached, schema, *(one for check in seen.checks for one in _findings(check))], seen.concerns, True
        finally:
            await store.close()
    except Unavailable as error:
        says = f"{name} cannot be reached: {error.message}"
        finding, disk = FindingShape.of("store", VerdictLevel.BROKEN, says, error.hint), check_disk(place)
        full = [] if disk is None or not disk.concerns else _findings(disk)  # which is why it cannot be opened
        return [finding, *full], (), bool(full)
    except Refused as error:
        reached = FindingShape.of("store", VerdictLevel.WELL, f"{name} is there")
        return (
            [reached, FindingShape.of("schema", VerdictLevel.BROKEN, error.message, data={"code": error.code})],
            (),
            True,
        )


def _findings(check: Check) -> list[FindingShape]:
    """The findings of a check: its concerns one by one, the first few; or that all is fine."""
    if not check.concerns:
        return [FindingShape.of(check.name, VerdictLevel.WELL, check.fine, data=check.data)]
    findings = [
        FindingShape.of(check.name, item.level, "; ".join((item.what, *item.evidence)), item.command, item.data, item)
        for item in check.concerns[:_EACH_MOST]
    ]
    more = len(check.concerns) - len(findings)
    if more:
        findings[-1] = replace(findings[-1], says=f"{findings[-1].says}; and {many(more, 'more', 'more')}")
    return findings


def _of_links(settings: Settings) -> list[FindingShape]:
    """That alerts have no answer links, and what to set; nothing where they have some, or there are no alerts."""
    alerts = [spec for spec in (settings.told or {}).values() if spec.kind == "alerts" and MESH not in spec.hears]
    if not any(routes for spec in alerts for routes in spec.routes.values()) or settings.public_origin is not None:
        return []
    url = settings.value("public_url")
    why = f"public_url is {hide(str(url))!r}; set it" if url else "set public_url"
    says = f"alerts have no links that answer questions: {why} to the https address of `allswell serve`"
    return [FindingShape.of("links", VerdictLevel.WELL, says, "allswell help notifications", {"set": url is not None})]


def _of_settings(settings: Settings) -> FindingShape:
    """What is to be said about the settings, as far as they can be read."""
    if settings.problems:
        problems = [str(problem) for problem in settings.problems]
        broken = ("; ".join(problems), "allswell config", {"problems": problems})
        return FindingShape.of("settings", VerdictLevel.BROKEN, *broken)
    if settings.strangers:
        says = f"{', '.join(settings.strangers)} in the environment: no settings, so they are ignored"
        return FindingShape.of("settings", VerdictLevel.WELL, says)
    count = len(settings.given) + sum(map(len, settings.roles.values()))
    says = f"coherent; {count or 'none'} of them set"
    return FindingShape.of("settings", VerdictLevel.WELL, says, data={"set": count})

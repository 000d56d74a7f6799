"""What a check-up of the watch found, as `doctor` tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from allswell.app import store_for
from allswell.domain.values import hide
from allswell.engine.status.overview import CheckResult, Checkup, DoctorInput, examine
from allswell.engine.status.verdict import VerdictLevel
from allswell.errors import Refused
from allswell.settings import Settings
from allswell.timing.clock import SystemClock
from allswell.views.fields import outside
from allswell.views.status import place_here


class FindingShape(Struct, frozen=True):
    """What one check of the watch found; `next` is what to type, `data` has the exact figures behind the words.

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

    @classmethod
    def of(cls, found: CheckResult) -> FindingShape:
        """One finding."""
        data = outside(found.data)
        return cls(found.check, found.verdict, found.says, found.next, data, found.level, found.kind, found.id)


class CheckupShape(Struct, frozen=True):
    """What all checks found, and what the command ends with."""

    exit: int
    findings: list[FindingShape]
    headline: str

    @classmethod
    def of(cls, checkup: Checkup) -> CheckupShape:
        """All of it; the code is the worst of it: 0 fine or waiting, 3 a human must act, 1 broken, 75 out of reach."""
        return cls(checkup.exit_code, [FindingShape.of(one) for one in checkup.findings], checkup.headline)


# A check-up of a store with the settings that hold there: for `doctor`, and for the server.


async def examined(url: str, settings: Settings, folder: Path | None) -> Checkup:
    """What all checks found, the settings last."""
    try:
        patient = _patient(url, settings, folder)
    except Refused as error:
        data = {"code": error.code}
        checkup = Checkup([CheckResult("store", VerdictLevel.BROKEN, error.message, "allswell config store", data)])
    else:
        checkup = await examine(patient)
    if not any(one.kind == "settings" for one in checkup.findings):
        checkup.findings.append(_of_settings(settings))
    return checkup


def _of_settings(settings: Settings) -> CheckResult:
    """What is to be said about the settings, as far as they can be read."""
    if settings.problems:
        says = "; ".join(str(problem) for problem in settings.problems)
        data = {"problems": [str(problem) for problem in settings.problems]}
        return CheckResult("settings", VerdictLevel.BROKEN, says, "allswell config", data)
    if settings.strangers:
        says = f"{', '.join(settings.strangers)} in the environment: no settings, so they are ignored"
        return CheckResult("settings", VerdictLevel.WELL, says)
    count = len(settings.given) + sum(map(len, settings.roles.values()))
    return CheckResult("settings", VerdictLevel.WELL, f"coherent; {count or 'none'} of them set", data={"set": count})


def _patient(url: str, settings: Settings, folder: Path | None) -> DoctorInput:
    store, clock = store_for(url), SystemClock()
    path = getattr(store, "path", None)
    database = path if isinstance(path, Path) else None
    place = place_here(settings, folder if database is None else database.parent, clock=clock)
    return DoctorInput(store, clock, hide(store.url), place, database)

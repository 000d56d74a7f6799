"""A check-up of a store with the settings that hold there: for `doctor`, and for the server."""

from __future__ import annotations

from pathlib import Path

from allswell.app import store_for
from allswell.domain.store_url import hide
from allswell.engine.checkup import Checkup, Finding, Patient, examine
from allswell.errors import Refused
from allswell.runtime.supervisor.presence import has_died
from allswell.settings import Settings
from allswell.timing.clock import SystemClock


async def examined(url: str, settings: Settings) -> Checkup:
    """What all checks found, the settings last."""
    try:
        patient = _patient(url, settings)
    except Refused as error:
        checkup = Checkup([Finding("store", "bad", error.message, "allswell config store", {"code": error.code})])
    else:
        checkup = await examine(patient)
    checkup.findings.append(_of_settings(settings))
    return checkup


def _of_settings(settings: Settings) -> Finding:
    """What is to be said about the settings, as far as they can be read."""
    if settings.problems:
        says = "; ".join(str(problem) for problem in settings.problems)
        data = {"problems": [str(problem) for problem in settings.problems]}
        return Finding("settings", "bad", says, "allswell config", data)
    if settings.strangers:
        says = f"{', '.join(settings.strangers)} in the environment: no settings, so they are ignored"
        return Finding("settings", "ok", says)
    count = len(settings.given) + sum(map(len, settings.roles.values()))
    return Finding("settings", "ok", f"coherent; {count or 'none'} of them set", data={"set": count})


def _patient(url: str, settings: Settings) -> Patient:
    store = store_for(url)
    path = getattr(store, "path", None)
    return Patient(
        store,
        SystemClock(),
        settings.tolerance(),
        hide(store.url),
        path if isinstance(path, Path) else None,
        frozenset(settings.told or {}),
        2 * settings.pace().sweep_most,
        has_died,
    )

"""The limits that scopes go by in this process: those of the settings, unless the program says otherwise."""

from __future__ import annotations

from allswell.domain.deadline import Limits, broken_rules
from allswell.errors import Refused

_in_force: Limits | None = None


def limits() -> Limits:
    """The limits in force; the settings are loaded when they are first asked for."""
    global _in_force  # noqa: PLW0603 - one set of settings for one process
    if _in_force is None:
        from allswell.settings import load

        _in_force = load().limits()
    return _in_force


def use_limits(given: Limits | None) -> None:
    """Let scopes go by these limits; None: by the settings, loaded anew when they are next asked for."""
    global _in_force  # noqa: PLW0603
    broken = () if given is None else broken_rules(given)
    if broken:
        raise Refused("bad_limits", "impossible limits: " + "; ".join(broken), where="limits")
    _in_force = given

"""Secrets come from the environment; a settings file only names the variable."""

from __future__ import annotations

from collections.abc import Mapping

from allswell.errors import Refused


def variable(name: str, environ: Mapping[str, str], where: str) -> str:
    """What a variable of the environment holds; `Refused` if it is not set."""
    value = environ.get(name, "").strip()
    if not value:
        raise Refused("no_variable", f"{where}: the variable {name} is not set, or empty", where=where)
    return value

"""`allswell check`: what the figures of a flow file or of the settings say about each other, before anything runs."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.errors import AllswellError, Refused
from allswell.interfaces.cli.commands.flow import STDIN, read_bytes
from allswell.interfaces.cli.context import CliContext, CliExit, Exit, write
from allswell.interfaces.cli.options import Argument, Option, Storeless
from allswell.interfaces.cli.registry import UPKEEP, Commands
from allswell.interfaces.cli.rendering import cut, nearer, paint, plain, prose, width

if TYPE_CHECKING:
    from allswell.domain.check.model import Finding, Location
    from allswell.settings.settings import Settings

_INDENT = " " * 9
_MOMENT = 3.0
"""Seconds that a store's server has to answer: what is checked here is mostly in files."""
_STYLES = {"error": "failed", "warning": "warn", "note": "dim"}


def add_to(app: Commands) -> None:
    """Register the command."""
    app.add(
        UPKEEP,
        "check",
        check,
        "allswell check flow.yaml       a flow, with the settings that hold here",
        "allswell check                 the settings alone",
        "allswell check --strict --json flow.yaml",
        "allswell check --schema > flow.schema.json",
    )


def check(
    file: Annotated[
        str | None, Argument(metavar="FILE", help="A flow (YAML), `-` for standard input, or settings (TOML).")
    ] = None,
    *,
    config: Annotated[bool, Option("--config", help="Check the settings as well; without FILE, only them.")] = False,
    strict: Annotated[bool, Option("--strict", help="Treat warnings as errors.")] = False,
    schema: Annotated[bool, Option("--schema", help="Print a JSON Schema for flows.")] = False,
    context: Storeless,
) -> None:
    """Check that time limits, retries and check-ins fit together, before anything runs.

    Exit code 0: nothing is wrong (there may be warnings), 1: something is, 2: the file cannot be read at all.
    """
    from allswell.views.settings import CheckedShape

    if schema:
        from importlib.resources import files

        write(files("allswell.flows").joinpath("flow.schema.json").read_text(encoding="utf-8"))
        return
    found, texts = _checked(file, config=config)
    code = _code(found, strict=strict)
    context.say(CheckedShape.of(int(code), found), lambda: _report(found, texts))
    raise CliExit(code)


def _checked(file: str | None, *, config: bool) -> tuple[list[Finding], _FileTexts]:
    """The findings in the order of their places, and the texts that they are about."""
    from allswell.domain.check.fleet import secrets_set
    from allswell.domain.check.model import Location
    from allswell.settings import look
    from allswell.settings.check import findings as of_settings
    from allswell.settings.check import refusals

    settings_file = file is not None and file.endswith(".toml")
    texts = _FileTexts()
    if file is not None and settings_file:
        texts.read(file)
        path = Path(file).resolve()
        settings = look(path.parent, instead=None if path.name == "pyproject.toml" else path, untrusted="read")
        if not settings.problems and str(path) not in settings.files:
            said = f"{file!r} has no settings: there is no [tool.allswell]"
            raise Refused("no_settings", said, where="FILE")
    else:
        settings = look(untrusted="read")
    found = refusals(settings)
    if found:
        return found, texts  # figures that are refused prove nothing
    if file is None or config or settings_file:
        found += of_settings(settings)
        found += secrets_set(settings.secrets, os.environ, next((Location(file) for file in settings.files), None))
    if file is None:
        found += _of_store(settings)
    if file is not None and not settings_file:
        from allswell.flows.schema import findings as of_flow

        found += of_flow(texts.read(file), STDIN if file == "-" else file, settings)
    return sorted(dict.fromkeys(found), key=_order), texts


def _of_store(settings: Settings) -> list[Finding]:
    """What is asked of nobody, as far as there is a store to look at: the figures are checked without one, too."""
    from allswell.domain.check.fleet import handlers_before_visibility, has_role, roles_asked
    from allswell.engine.mesh import unserved_roles
    from allswell.views.worker import queues_at

    context = CliContext(None, json=True)
    try:
        asked = context.look(partial(unserved_roles, has_role=partial(has_role, settings.fleet)), within=_MOMENT)
        queues = queues_at(context.url)
    except (AllswellError, TimeoutError):
        return []
    slow = [found for one in queues for found in handlers_before_visibility(one.queue, one.too_slow, one.too_late)]
    return [*roles_asked(asked), *slow]


def _order(finding: Finding) -> tuple[str, int, int]:
    place = finding.place
    return ("", 0, 0) if place is None else (place.source, place.line or 0, place.column or 0)


class _FileTexts:
    """The files that findings are about; each is read once."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def read(self, file: str) -> bytes:
        """The content of a file that was named."""
        content = read_bytes(file)
        self._lines[STDIN if file == "-" else file] = content.decode("utf-8", "replace").split("\n")
        return content

    def line(self, place: Location) -> str | None:
        """The line that a place is on, where it is one of a file."""
        if place.line is None:
            return None
        if place.source not in self._lines:
            try:
                self._lines[place.source] = Path(place.source).read_text("utf-8", "replace").split("\n")
            except (OSError, ValueError):
                self._lines[place.source] = []
        lines = self._lines[place.source]
        return lines[place.line - 1].rstrip() if place.line <= len(lines) else None


# --- how it is told ---------------------------------------------------------------------------------------------------


def _counts(found: list[Finding]) -> dict[str, int]:
    return {f"{kind}s": sum(finding.severity == kind for finding in found) for kind in _STYLES}


def _code(found: list[Finding], *, strict: bool) -> Exit:
    counts = _counts(found)
    return Exit.FAILED if counts["errors"] or (strict and counts["warnings"]) else Exit.FINE


def _report(found: list[Finding], texts: _FileTexts) -> str:
    told = [_told(finding, texts) for finding in found]
    counts = [f"{count} {kind[:-1] if count == 1 else kind}" for kind, count in _counts(found).items() if count]
    end = f"{', '.join(counts)}." if counts else paint("All's well:", "ready") + " everything fits."
    return "\n\n".join([*told, end])


def _told(finding: Finding, texts: _FileTexts) -> str:
    place = finding.place
    head = paint(f"{finding.severity.value:<9}", _STYLES[finding.severity])
    where = "the defaults" if place is None else nearer(str(place))
    lines = [head + paint(plain(where), "bold") + paint(f"  {finding.rule}", "dim")]
    lines.append(prose(plain(finding.says), indent=_INDENT))
    if finding.sum is not None:
        lines.append(prose(str(finding.sum), indent=_INDENT + "  ", further=_INDENT + "    "))
    if place is not None:
        lines += _quoted(place, texts)
    lines.append(prose(plain(finding.fix), indent=_INDENT + "→ ", further=_INDENT + "  "))
    return "\n".join(lines)


def _quoted(place: Location, texts: _FileTexts) -> list[str]:
    line = texts.line(place)
    if not line:
        return []
    number = f"{_INDENT}{place.line:>4} │ "
    room = max(width() - len(number), 20)
    return [paint(number, "dim") + cut(plain(line[: 2 * room]), room)]

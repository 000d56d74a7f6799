"""The commands that look after the watch itself: `config` says what is set and where, `doctor` whether all is well."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.advice import typed_in
from allswell.doors.cli.commands import UPKEEP, Commands
from allswell.doors.cli.frame import Frame, Left, write
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import Column, paint, pairs, plain, table
from allswell.doors.cli.width import columns, wrapped
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.doors.shapes.checkup import FindingShape
    from allswell.settings import Row, Settings

_STYLES = {"ok": "ready", "warn": "warn", "bad": "failed"}
_NAME_WIDTH = 11
_WIDE = 140
"""From this width on, a table has room for descriptions."""


def add_to(app: Commands) -> None:
    """Register the commands of this group."""
    app.add(
        UPKEEP,
        "config",
        config,
        "allswell config agent_timeout",
        "allswell config roles.critic",
        "allswell config --schema > allswell.schema.json",
    )
    app.add(UPKEEP, "doctor", doctor)


def config(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Explain one setting, or those of one table.", of=("setting",))
    ] = None,
    *,
    schema: Annotated[bool, Option("--schema", help="Print a JSON Schema for allswell.toml.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show every setting with its value, its default and where it comes from."""
    frame = Frame(store, json=json)
    if schema:
        import msgspec

        from allswell.settings.schema import schema as made

        write(msgspec.json.format(msgspec.json.encode(made())).decode() + "\n")
        return
    from allswell.doors.shapes.setting import SettingsShape
    from allswell.settings import look

    settings = look(flags=_flags(store)).without("all", "figures", "agents", "sinks")
    if name is not None:
        _explain(frame, settings, name)
    elif json:
        frame.say(SettingsShape.of(settings, settings.explain()))
    else:
        write(_all(settings))


def doctor(*, store: Store = None, json: Json = False) -> None:
    """Check that all is well, and say what to type where it is not.

    Exit code 0: fine, 3: a human must act, 1: something is broken, 75: the store cannot be reached.
    """
    import asyncio

    from allswell.doors.shapes.checkup import CheckupShape
    from allswell.settings import look

    frame = Frame(store, json=json)
    settings = look(flags=_flags(store))
    if settings.store.startswith("http"):
        found = frame.ask("/doctor", CheckupShape)
    else:
        from allswell.doors.examining import examined

        checkup = asyncio.run(examined(settings.store, settings))
        checkup.findings[:] = map(typed_in, checkup.findings)
        found = CheckupShape.of(checkup)
    if json:
        frame.say(found)
    else:
        write(_report(found.findings))
    raise Left(found.exit)


def _flags(store: str | None) -> dict[str, str]:
    return {} if store is None else {"store": store}


# --- settings ---------------------------------------------------------------------------------------------------------


def _explain(frame: Frame, settings: Settings, name: str) -> None:
    """One setting, or a table of them."""
    rows = _named(settings, name)
    if frame.json:
        from allswell.doors.shapes.setting import SettingsShape

        frame.say(SettingsShape.of(settings, rows))
    elif len(rows) > 1:
        write(_rows(rows))
    else:
        write(_one(settings, rows[0]))


def _named(settings: Settings, name: str) -> list[Row]:
    from allswell.settings.catalogue import PER_ROLE
    from allswell.settings.load import hint

    rows = settings.explain()
    exact = [row for row in rows if row.name == name] or [row for row in rows if row.name.startswith(f"{name}.")]
    if exact:
        return exact
    for setting in PER_ROLE:  # what a role has not of its own, it inherits
        role = name.removeprefix("roles.").removesuffix(f".{setting}")
        if role and name == f"roles.{role}.{setting}":
            return [settings.explain_one(setting, role)]
    raise Refused("unknown_setting", f"there is no setting {name!r}; {hint(name)}", where=name)


def _one(settings: Settings, row: Row) -> str:
    from allswell.settings.catalogue import PER_ROLE

    written = row.shown if row.kind in ("count", "share") and row.value is not None else f'"{row.shown}"'
    bare = re.fullmatch(r"[a-z0-9_]*", row.role)
    place, _, key = row.name.rpartition(".")
    place = place if bare else place.replace(row.role, f'"{row.role}"')
    ways = [f"{key} = {written} in allswell.toml" + (f", below [{place}]" if place else "")]
    if bare:  # a variable's name cannot say every role's
        ways.append(f"or {row.env}={shlex.quote(row.shown)}")
    roles = [settings.explain_one(row.name, role) for role in settings.known_roles() if row.name in PER_ROLE]
    own = [f"{one.name.split('.')[1]} {one.shown}" for one in roles if one.shown != row.shown]
    told = [
        ("", row.description),
        ("from", _origin(row)),
        ("default", row.shown_default),
        ("roles", ", ".join(own)),
        ("set it", "\n".join(map(plain, ways))),
    ]
    return f"{paint(plain(row.name), 'bold')} = {plain(row.shown)}\n{pairs(told)}\n"


def _all(settings: Settings) -> str:
    rows = settings.explain()
    store = next(row for row in rows if row.name == "store")
    above = [("store", f"{plain(store.shown)} ({plain(_origin(store))})")]
    above += [("file", plain(_near(file))) for file in settings.files]
    above += [("note", f"{plain(name)} is no setting, and is ignored") for name in settings.strangers]
    return f"{pairs(above)}\n\n" + _rows([row for row in rows if row.name != "store"])


def _rows(rows: Sequence[Row]) -> str:
    """A table; what was set stands out, and a wide terminal has room for what each is for."""
    wide = _width() >= _WIDE
    heads = [Column("setting"), Column("value"), Column("default"), Column("from", 12), Column("what it is for", 20)]
    cells = [(row.name, row.shown, row.shown_default, _origin(row), row.description if wide else "") for row in rows]
    title, *lines = table(heads, cells).splitlines()
    marked = [line if row.source == "default" else paint(line, "bold") for row, line in zip(rows, lines, strict=True)]
    return "\n".join([title, *marked]) + "\n"


def _origin(row: Row) -> str:
    """Where a value comes from, as short as it can be said."""
    return _near(row.where) if row.where else row.source


def _near(path: str) -> str:
    """A path from here, where that is shorter."""
    if not path.startswith("/"):
        return path
    try:
        relative = os.path.relpath(path)
    except OSError:
        return path
    return relative if len(relative) < len(path) else path


# --- the check-up -----------------------------------------------------------------------------------------------------


def _report(findings: Sequence[FindingShape]) -> str:
    indent = " " * (6 + _NAME_WIDTH + 2)
    lines: list[str] = []
    for finding in findings:
        room = max(_width() - len(indent), 20)
        first, *rest = wrapped(plain(finding.says), room)
        lines.append(
            f"{paint(finding.verdict.ljust(6), _STYLES[finding.verdict])}{finding.check:{_NAME_WIDTH}}  {first}"
        )
        lines += [indent + line for line in rest]
        if finding.next is not None:
            lines.append(f"{indent}→ {paint(plain(finding.next), 'bold')}")
    broken = sum(finding.verdict == "bad" for finding in findings)
    wanting = sum(finding.verdict == "warn" for finding in findings)
    counts = [f"{broken} broken"] * bool(broken) + [f"{wanting} for you to look at"] * bool(wanting)
    return "\n".join([*lines, "", ", ".join(counts) + "." if counts else "All's well."]) + "\n"


def _width() -> int:
    return columns() or 100

"""Reading `[hooks.NAME]`: strict, every mistake with its line, all of them at once.

What a file says about a hook is merged, field by field, over what a weaker file says. Rules about the whole of a hook
stand in `domain.hook_spec`; here it is about kinds of values, and places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allswell.domain.hook_spec import HookSpec, wrong_with_hook
from allswell.domain.meant import nearest
from allswell.settings.fleet import Fields, Unfit, count, length, text
from allswell.settings.sinks import one_or_more
from allswell.settings.sources import Found, Problem, Source

TABLE = "hooks"
HOOK: Fields = {
    "secret_env": one_or_more,
    "secret_file": one_or_more,
    "types": one_or_more,
    "tolerance": length,
    "max_body": count,
    "task": text,
    "role": text,
    "run": text,
    "priority": count,
    "payload": text,
    "question": text,
    "option": text,
    "text": text,
}


class HookReading:
    """What the files have said so far about hooks."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._hooks: dict[str, dict[str, Any]] = {}
        self._sources: dict[tuple[str, ...], Source] = {}
        self._unread: set[str] = set()
        """What could not be read as it was meant: rules about the whole of it would only repeat that."""

    def take(self, found: Found) -> None:
        """The tables of one file; they are taken out of it."""
        tables = found.table.pop(TABLE, {})
        if not isinstance(tables, dict):
            self._wrong("hooks must be tables such as [hooks.deploys]", found.source((TABLE,)))
            return
        for name, table in tables.items():
            self._sources.setdefault((name,), found.source((TABLE, name)))
            if isinstance(table, dict):
                self._fields(found, name, table)
            else:
                self._wrong(f"hooks.{name} must be a table: [hooks.{name}]", found.source((TABLE, name)))

    def _fields(self, found: Found, name: str, table: Mapping[str, Any]) -> None:
        kept = self._hooks.setdefault(name, {})
        for key, raw in table.items():
            source = found.source((TABLE, name, key))
            read = HOOK.get(key)
            if read is None:
                near = nearest(key, HOOK)
                hint = f"did you mean {near!r}?" if near else "there are " + ", ".join(HOOK)
                self._wrong(f"hooks.{name} has no {key!r}; {hint}", source)
                self._unread.add(name)
                continue
            try:
                kept[key] = read(raw)
            except Unfit as error:
                self._wrong(f"hooks.{name}.{key} {error}", source)
                self._unread.add(name)
                continue
            if key == "secret_file" and source.folder is not None:
                folder = source.folder
                kept[key] = tuple(one if one.startswith("~") else str(folder / one) for one in kept[key])
            self._sources[name, key] = source

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(Problem(says, source.where, source.place, "hooks"))

    def hooks(self) -> dict[str, HookSpec]:
        """All hooks, as far as they could be read; what is wrong with the whole of one is a problem too."""
        found = {}
        for name, given in self._hooks.items():
            spec = found[name] = HookSpec(name=name, **given)
            for field, says in () if name in self._unread else wrong_with_hook(spec, given):
                label = f"hooks.{name}.{field}" if field else f"hooks.{name}"
                self._wrong(f"{label}: {says}", self._sources.get((name, field)) or self._sources[(name,)])
        return found

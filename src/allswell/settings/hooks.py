"""`[hooks.NAME]` in a file of settings: which fields a hook has."""

from __future__ import annotations

from allswell.domain.hook_spec import HookSpec, wrong_with_hook
from allswell.settings.fleet import Fields, count, length, text
from allswell.settings.named_tables import NamedTables, one_or_more
from allswell.settings.sources import Problem

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


def hook_tables(problems: list[Problem]) -> NamedTables[HookSpec]:
    """A reader of such tables, which tells `problems` what is wrong."""
    return NamedTables(
        problems,
        kind="hooks",
        example="deploys",
        fields=HOOK,
        place="secret_file",
        spec=HookSpec,
        wrong_with=wrong_with_hook,
    )

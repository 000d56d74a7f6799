"""What came with a folder and waits to be trusted, with what it would run; and trusting it (`store/trusted.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from allswell.errors import Refused
from allswell.settings.nearby import FoundStore, distrusted, find_store
from allswell.settings.sources import USER, SettingsFile, SettingsProblem, files
from allswell.store.files import DATABASE
from allswell.store.sqlite.connection import read_store_id
from allswell.store.trusted import (
    NO_DATABASE,
    distrust,
    read_record,
    settings_digest,
    trust_folder,
    trust_link,
    trust_settings,
    trust_store,
    trusts_settings,
)

__all__ = ["Untrusted", "distrust", "known_paths", "trust_file", "trust_folder", "waiting_for_trust"]

_TELLING = frozenset(
    (
        *("command", "acp", "resume", "function", "verify", "prompt", "cwd", "env", "pass_env", "defer", "account"),
        *("store", "humans", "speaks_as", "question", "option", "text", "page"),
        *("url", "routes", "channel", "key", "database", "token_env", "secret_env", "secret_file", "webhook_secrets"),
        *("socket_speakers", "webhook_hosts", "allow_private", "public_url"),
    )
)
"""Names of settings and tables that say what would be run, and who would be called and told, with whose keys.

Who would be heard belongs to them: humans in a chat, and hooks that answer questions."""


@dataclass(frozen=True)
class Untrusted:
    """A file with settings, or the folder of a store, that its user has not trusted yet."""

    path: Path
    says: tuple[str, ...]
    """What it would run and whom it would call, a line each."""
    trust: Callable[[], None]


def waiting_for_trust(here: Path) -> list[Untrusted]:
    """What is found from a folder upward and waits to be trusted."""
    problems: list[SettingsProblem] = []
    waiting = [
        Untrusted(found.path, tuple(_telling(found.table, ())), partial(_trust, found))
        for found in files(here, problems)
        if found.kind != USER and not trusts_settings(found.path, settings_digest(found.table))
    ]
    if problems:
        raise Refused("bad_setting", f"the settings are wrong: {problems[0]}", where=problems[0].where or None)
    store = find_store(here)
    if store is not None and distrusted(store) is not None:
        leads = () if store.link is None else (f"it leads to {store.folder}",)
        says = (*leads, "a store: tasks, and keys that open it to others")
        waiting.append(Untrusted(store.link or store.folder, says, partial(_trust_store, store)))
    return waiting


def _trust_store(store: FoundStore) -> None:
    trust_store(store.folder, _store_id(store.folder))
    if store.link is not None:
        trust_link(store.link)


def trust_file(path: Path) -> None:
    """Trust a file with settings as it is now."""
    import tomllib

    trust_settings(path, settings_digest(tomllib.loads(path.read_text(encoding="utf-8"))))


def known_paths(below: Path | None = None) -> list[str]:
    """What is trusted by the record: all of it, or what lies in a folder."""
    record = read_record()
    paths = sorted([*record.settings, *record.stores, *record.folders])
    return [path for path in paths if below is None or below in (Path(path), *Path(path).parents)]


def _trust(found: SettingsFile) -> None:
    trust_settings(found.path, settings_digest(found.table))


def _telling(table: Mapping[str, object], names: tuple[str, ...]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _telling(value, (*names, name))
        elif not _TELLING.isdisjoint((*names, name)):
            words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{'.'.join((*names, name))} = {words}"


def _store_id(folder: Path) -> str:
    """The id of a store; one that was made before there were ids is given one by being opened."""
    database = folder / DATABASE
    if not database.exists():
        return NO_DATABASE
    store_id = read_store_id(database)
    if store_id is None:
        from allswell.store.sqlite import SqliteStore

        async def open_once() -> None:
            store = SqliteStore(f"sqlite:///{database}")
            await store.open()
            await store.close()

        asyncio.run(open_once())
        store_id = read_store_id(database)
    if store_id is None:
        raise Refused("not_a_store", f"{database} is not a store of Allswell's", where="FOLDER")
    return store_id

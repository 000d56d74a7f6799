"""Commands that are printed for people to type: whatever the command line prints of them has passed here.

A command typed as it was printed must be about the same store. The folder in which somebody types gives one; where
another was meant, by `--store` or by `$ALLSWELL_STORE`, the printed command names it. A password is never printed:
the variable is named where it holds one.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar, cast

import msgspec

VARIABLE = "ALLSWELL_STORE"
STORELESS = ("audit-agent", "build-agent", "check", "completion", "demo", "drill", "graph", "init")
"""Commands that look into no store."""
_FIELDS = ("command", "next", "ahead")
"""What a field of a shape is called that holds a command."""
_QUOTED = re.compile(r"`(allswell(?: [^`\n]*)?)`")
_GIVEN: ContextVar[str | None] = ContextVar("the store that was given", default=None)

T = TypeVar("T")


def use_store(url: str | None) -> None:
    """From here on printed commands are about this store; None: about what the folder gives, or the environment."""
    _GIVEN.set(url)


def typed_here(command: str) -> str:
    """A command of ours as it is to be typed here; others are left as they are."""
    words = command.split(" ", 2)
    if words[0] != "allswell" or (len(words) > 1 and words[1] in STORELESS):
        return command
    flag = _flag()
    if not flag or "--store" in command or "--help" in command:
        return command
    before, sign, behind = command.partition(" -- ")
    return f"{before} {flag}{sign}{behind}"


def in_words(text: str) -> str:
    """A text with every command in backticks as it is to be typed here."""
    return _QUOTED.sub(lambda found: f"`{typed_here(found[1])}`", text) if "`allswell" in text else text


def typed_in(shape: T) -> T:
    """A shape of the engine's, with each command in it as it is to be typed here."""
    return cast("T", _typed_in(shape)) if _flag() else shape


def _typed_in(value: object, name: str = "") -> object:
    if isinstance(value, str):
        return typed_here(value) if name in _FIELDS else value
    if isinstance(value, (tuple, list)):
        return type(value)(_typed_in(one) for one in value)
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: _typed_in(one, name) for name, one in found.items()}
        return msgspec.structs.replace(value, **changed)
    return value


def _flag() -> str:
    """What says which store is meant; empty where the folder gives it."""
    given, around = _GIVEN.get(), os.environ.get(VARIABLE)
    url = given or around
    if not url:
        return ""
    import shlex

    from allswell.domain.store_url import hide

    if hide(url) != url:
        return f'--store "${VARIABLE}"' if url == around else f"--store {shlex.quote(hide(url))}"
    if url.startswith("sqlite:"):
        from allswell.errors import Refused
        from allswell.store.sqlite.place import locate

        with suppress(Refused):  # it names no file: whoever opens it is told
            url = f"sqlite:///{locate(url)}"  # whoever types it may be somewhere else by then
    return f"--store {shlex.quote(url)}"

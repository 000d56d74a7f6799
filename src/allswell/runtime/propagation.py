"""Deadlines that travel: out of this process into a child or a request, and in again on the other side.

    subprocess.run(command, env={**os.environ, **allswell.deadline_environment()})

    with allswell.inherit_deadline():       # in the child, as the outermost scope
        ...

What has no deadline sends none, and what gets none has none: the same code works with and without.

What an attempt is told of what came before it travels the same way, and is read with `handover`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextvars import ContextVar
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, cast

from allswell.domain.scopes import HEADER, META, VARIABLE, read_instant, read_remaining, write_instant, write_remaining
from allswell.errors import Refused
from allswell.runtime.host import boot_id
from allswell.timing.scopes import Scope, current

if TYPE_CHECKING:
    from mcp_types import RequestParamsMeta  # only its type: where it is not installed, nobody needs it

HANDOVER = "ALLSWELL_HANDOVER"
HANDOVER_FILE = "ALLSWELL_HANDOVER_FILE"
in_attempt: ContextVar[str | None] = ContextVar("allswell_handover", default=None)
"""What came before the attempt by a function that runs in this process; None: this is none."""
_KEYS = (HEADER.lower(), META)


def deadline_environment(scope: Scope | None = None) -> dict[str, str]:
    """The variable that tells a child process of the deadline in effect (or of this scope's); empty without one."""
    scope = scope or current()
    now = time.monotonic_ns()  # before asking what is left: rather a moment too little than too much
    left = inf if scope is None else scope.remaining()
    return {} if left == inf else {VARIABLE: write_instant(boot_id(), now + int(left * 1e9))}


class InheritedScope(Scope):
    """A scope whose end is an instant: what is left is worked out when it is entered."""

    __slots__ = ("_until_ns",)

    def __init__(self, until_ns: int | None, name: str = "") -> None:
        super().__init__(None, kind="inherited", name=name)
        self._until_ns = until_ns

    def _opened(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        if self._until_ns is not None:
            self.timeout_ms = (self._until_ns - time.monotonic_ns()) / 1e6
            if self.timeout_ms <= 0:
                self.deadline = self.now()
                raise self.timed_out()
        return super()._opened(loop)


def inherit_deadline(environ: Mapping[str, str] | None = None, *, name: str = "") -> InheritedScope:
    """A scope that ends when the environment says (`ALLSWELL_DEADLINE`); one without a limit where it says nothing."""
    text = (os.environ if environ is None else environ).get(VARIABLE, "")
    return InheritedScope(read_instant(text, boot_id()) if text else None, name)


def remaining_headers(scope: Scope | None = None) -> dict[str, str]:
    """The header that tells another service how much time is left; empty without a deadline."""
    left = _left(scope)
    return {} if left is None else {HEADER: str(left)}


def remaining_meta(scope: Scope | None = None) -> RequestParamsMeta:
    """What the `_meta` of a request over MCP says about the time that is left; empty without a deadline."""
    left = _left(scope)
    return cast("RequestParamsMeta", {} if left is None else {META: left})


def _left(scope: Scope | None) -> int | None:
    scope = scope or current()
    left = None if scope is None else scope.remaining_ms()
    return None if left is None else write_remaining(left)


def inherit_remaining(sent: Mapping[str, object] | None, name: str = "") -> InheritedScope:
    """A scope for as long as a request's headers or its `_meta` say, from now; without a limit if they say nothing."""
    given = [(key, value) for key, value in (sent or {}).items() if key.lower() in _KEYS]
    if len(given) > 1:
        said = f"{given[0][0]} must be sent once, and came {len(given)} times"
        raise Refused("bad_remaining", said, where=given[0][0])
    until = [time.monotonic_ns() + read_remaining(value, key) * 1_000_000 for key, value in given]
    return InheritedScope(until[0] if until else None, name)


def handover() -> str:
    """What earlier attempts and humans left for the attempt in which this runs, in words; empty if there is nothing."""
    here = in_attempt.get()
    if here is not None:
        return here
    try:
        return Path(os.environ[HANDOVER_FILE]).read_text(errors="surrogateescape").removesuffix("\n")
    except (KeyError, OSError):
        return os.environ.get(HANDOVER, "")

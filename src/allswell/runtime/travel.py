"""Deadlines that travel: out of this process into a child or a request, and in again on the other side.

    subprocess.run(command, env={**os.environ, **allswell.deadline_environment()})

    with allswell.inherit_deadline():       # in the child, as the outermost scope
        ...

What has no deadline sends none, and what gets none has none: the same code works with and without.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from math import inf

from allswell.domain.carried import (
    HEADER,
    VARIABLE,
    read_instant,
    read_remaining,
    write_instant,
    write_remaining,
)
from allswell.errors import Refused
from allswell.runtime.boot import boot_id
from allswell.timing.scope import Scope, current


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
    scope = scope or current()
    left = None if scope is None else scope.remaining_ms()
    return {} if left is None else {HEADER: write_remaining(left)}


def inherit_remaining(headers: Mapping[str, str], name: str = "") -> InheritedScope:
    """A scope for as long as a request's header says, counted from now; one without a limit where it says nothing."""
    given = [value for key, value in headers.items() if key.lower() == HEADER.lower()]
    if len(given) > 1:
        raise Refused("bad_remaining", f"{HEADER} must be sent once, and came {len(given)} times", where=HEADER)
    return InheritedScope(time.monotonic_ns() + read_remaining(given[0]) * 1_000_000 if given else None, name)

"""What a command is told that is run again because its work was not what it said: done.

The command stays the same, so it finds this beside its own words: in `ALLSWELL_HANDOVER`, where it has `{handover}`
among its arguments, and on its standard input, if that would be empty. Agents such as `claude -p` and `codex exec` read
what is piped to them along with their prompt.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile

from allswell.domain.handing_over import in_words
from allswell.domain.verification import NOT_VERIFIED
from allswell.engine.handle import Lease
from allswell.runtime.attempt.order import Order

VARIABLE = "ALLSWELL_HANDOVER"
PLACE = "{handover}"


def handed_over(lease: Lease) -> str:
    """What the last attempt at this task came to; empty where it was not sent back."""
    last = lease.handover
    if last is None or last.reason != NOT_VERIFIED:
        return ""
    return in_words(lease.attempt, last, lease.notes)


class ToldOrder:
    """The order of one attempt, with what it is told; whoever made it closes it."""

    def __init__(self, order: Order, lease: Lease) -> None:
        self._input: int | None = None
        text = handed_over(lease)
        argv = tuple(word.replace(PLACE, text) for word in order.argv) if lease.verify else order.argv
        self.order = dataclasses.replace(order, argv=argv)
        if not text:
            return
        if order.stdin is None:
            with tempfile.TemporaryFile() as file:
                file.write(text.encode() + b"\n")
                file.seek(0)
                self._input = os.dup(file.fileno())
        stdin = order.stdin if self._input is None else self._input
        self.order = dataclasses.replace(self.order, env={**order.env, VARIABLE: text}, stdin=stdin)

    def close(self) -> None:
        """The attempt is over."""
        if self._input is not None:
            os.close(self._input)
            self._input = None

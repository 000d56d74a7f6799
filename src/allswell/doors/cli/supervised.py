"""What an agent says under a supervisor: through the socket of its attempt, which knows its lease.

It needs nothing but `ALLSWELL_SOCKET`: neither the store nor its address. Whoever names a store speaks to that instead.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from allswell.doors.cli.render import block, plain, when

if TYPE_CHECKING:
    from allswell.doors.cli.frame import Frame
    from allswell.doors.shapes.orders import OrdersShape
    from allswell.runtime.speaking.words import AnyWord, Reply


def socket_of(store: str | None) -> str | None:
    """The socket to speak through; None where there is no supervisor, or another store is meant."""
    return os.environ.get("ALLSWELL_SOCKET") or None if store is None else None


def tell(path: str, word: AnyWord) -> Reply:
    """Say a word and hear the answer; raises what is refused."""
    from allswell.runtime.speaking.client import say

    return say(path, word)


def orders_of(reply: Reply) -> OrdersShape | None:
    """The orders for programs; the names are those that an agent without a supervisor is told, too."""
    from allswell.doors.shapes.orders import OrdersShape

    return None if reply.orders is None else OrdersShape.told_by(reply.orders)


def in_words(told: OrdersShape | None) -> str:
    """The orders for people and models: one thing on a line."""
    if told is None:
        return ""
    lines = [f"noted; your time is up {when(told.remaining_ms, 0)}"]
    if told.stop is not None:
        lines = [f"stop now: {plain(told.stop)}"]
    for one in told.answers:
        lines.append(f"{one.question_id} was answered: {plain(one.choice)}")
        lines += [block(one.answer, "  ")] if one.answer else []
    lines += [f"{plain(request)} waits for your answer: `allswell inbox`" for request in told.inbox]
    lines += [] if told.order is None else [plain(told.order)]
    return "\n".join(lines)


def end(frame: Frame, path: str, word: AnyWord) -> None:
    """Say a last word, and tell where the task stands then."""
    from allswell.doors.shapes.orders import LastWordShape

    reply = tell(path, word)
    said = reply.state or "done"
    states = {"done": "done", "fail": "failed, or tried again later", "release": "back in the pool"}
    states["verifying"] = "verified once you have ended"
    frame.say(
        LastWordShape(os.environ.get("ALLSWELL_TASK", ""), said, None, orders_of(reply)),
        f"noted: the task is {states.get(said, said)}; end now",
    )

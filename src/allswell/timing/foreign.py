"""Other event loops than asyncio's: there our deadlines would do nothing, silently, so they are refused.

A scope ends what is inside it by cancelling an asyncio task. A trio task is none, and code that is driven by hand or by
another library has none either: a deadline around it would never come. `with` in plain threads is another matter (it is
checked, as it says), and so are calls that block: those hold wherever they are made.

trio is not imported for this: a program that runs under it has imported it already.
"""

from __future__ import annotations

import asyncio
import sys

from allswell.errors import Refused
from allswell.timing.running_loop import running_loop

_DO = (
    "run this part under asyncio (asyncio.run, or anyio.run with backend='asyncio'), or call it from a thread"
    " (trio.to_thread.run_sync) by its sync form"
)


def refuse_trio() -> None:
    """Raise `Refused` in code that trio runs; threads that trio has started are threads like any other."""
    trio = sys.modules.get("trio")
    if trio is None:
        return
    try:
        trio.lowlevel.current_trio_token()
    except (AttributeError, RuntimeError):  # half imported, or not inside `trio.run`
        return
    raise Refused("not_asyncio", f"Allswell needs asyncio, and this runs under trio: {_DO}")


def refuse_other_loops() -> None:
    """Raise `Refused` in async code that is not run by asyncio."""
    if running_loop() is None:
        refuse_trio()
        raise Refused("not_asyncio", f"Allswell needs asyncio, and no asyncio loop runs here: {_DO}")
    if asyncio.current_task() is None:  # trio as a guest of asyncio's loop
        refuse_trio()

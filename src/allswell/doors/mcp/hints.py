"""What each tool promises to clients, and whether a call of it that got no answer may simply be sent again.

Apart from the table of tools, since the proxy needs it and must start at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Hints(NamedTuple):
    """What a client may think of a tool; none of ours destroys anything, or reaches out of the watch."""

    title: str
    reads_only: bool = False
    """It changes nothing."""
    counts_once: bool = False
    """Called again with the same arguments, it has no further effect."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a call whose answer was lost can be made again."""
        return self.reads_only or self.counts_once


HINTS: Mapping[str, Hints] = {
    "claim": Hints("Claim a task"),
    "checkin": Hints("Check in", counts_once=True),
    "done": Hints("Finish a task", counts_once=True),
    "fail": Hints("Report a failure", counts_once=True),
    "release": Hints("Give a task back", counts_once=True),
    "ask": Hints("Ask a human"),
    "answers": Hints("Wait for answers", reads_only=True),
    "request": Hints("Ask another agent"),
    "inbox": Hints("See what others ask", reads_only=True),
    "respond": Hints("Answer another agent", counts_once=True),
    "submit": Hints("Hand over a task"),
    "status": Hints("See how things stand", reads_only=True),
}
"""By name, in the order in which the tools are listed."""

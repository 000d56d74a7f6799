"""What the next holder is told of what came before it, in words: the reason, the last check-in, the work that was kept.

Structured agents read the handover as JSON; an agent that reads a prompt gets this.
"""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.checkpoint import Checkpoint, read
from allswell.domain.task import Handover

REASONS = {
    "agent_timeout": "it reached its time limit",
    "agent_idle": "it gave no proof of progress for too long",
    "agent_stalled": "it stopped answering when asked for check-ins",
    "lease_lapsed": "its holder was lost",
    "released": "it gave the task back",
    "parked": "a usage limit was reached",
    "asked": "it asked a human",
    "not_verified": "what it said to be done was not",
}


def in_words(attempt: int, handover: Handover | None, notes: Sequence[str], receipt: str = "") -> str:
    """What earlier attempts and humans have left for this one; empty if there is nothing.

    `receipt` are the lines of the last attempt's receipt: where its work is and how to get it.
    """
    parts = []
    if handover is not None:
        parts.append(_told(attempt, handover))
    if receipt:
        parts.append(receipt.strip())
    if notes:
        parts.append("\n".join(["Notes from a human, the newest last:", *(f"- {note}" for note in notes)]))
    return "\n\n".join(parts)


def _told(attempt: int, handover: Handover) -> str:
    reason, _, error = handover.reason.partition(":")
    why = REASONS.get(reason, f"it failed ({error})" if error else reason)
    lines = [f"This is attempt {attempt}. The last one, by {handover.agent}, ended because {why}."]
    if handover.reason == "not_verified":
        lines.append(handover.message)
        lines.append("Mend what is wrong; then say that it is done, and it is verified again.")
    elif handover.message:
        lines.append(f"It said: {handover.message}")
    if handover.answer:
        lines.append(f"A human has answered: {handover.answer}")
    if handover.note:
        share = "" if handover.progress is None else f" ({handover.progress:.0%} done)"
        lines.append(f"Its last check-in{share}:\n{_indented(handover.note)}")
        if (found := read(handover.note)) is not None:
            lines += _from_checkpoint(found)
    return "\n".join(lines)


def _from_checkpoint(found: Checkpoint) -> list[str]:
    remaining = f"Go on with: {', '.join(found.remaining)}" if found.remaining else ""
    blockers = f"What blocked it: {', '.join(found.blockers)}" if found.blockers else ""
    return [line for line in (remaining, blockers) if line]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())

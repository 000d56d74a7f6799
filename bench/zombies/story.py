"""What each script of this folder tells: who called what, and what came back.

Two holders, A and B. A takes a task; its lease lapses while A is alive but silent; B takes the same task; then A says
that it is done. The verdict is about that last call:

accepted   it changed the task, although A no longer held it
refused    it changed nothing (whether or not A is told)
lost       there is no lease that could lapse: B never gets the task at all

Run in an environment that has the peer, not Allswell.
"""

from __future__ import annotations

import json
import sys

ACCEPTED, REFUSED, LOST = "accepted", "refused", "lost"


class Story:
    """The calls of one run."""

    def __init__(self, lapse: str) -> None:
        """`lapse` says what ends A's hold."""
        self.lapse = lapse
        self.calls: list[dict[str, str]] = []

    def say(self, who: str, call: str, answer: object) -> None:
        """Note a call and what came back; an exception is an answer too."""
        if isinstance(answer, BaseException):
            first = (str(answer).splitlines() or [""])[0]
            answer = f"{type(answer).__name__}: {first}"
        self.calls.append({"who": who, "call": call, "answer": str(answer)})

    def end(self, verdict: str, after: str) -> None:
        """Print the whole as one JSON line."""
        told = {"lapse": self.lapse, "calls": self.calls, "verdict": verdict, "after": after}
        sys.stdout.write(json.dumps(told) + "\n")

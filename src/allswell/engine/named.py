"""What commands name: those that name the same thing are not sent to the store at once, so they keep their order.

Locks alone would not do. Two units of work at once are decided in whichever order the locks are got, and something that
does not exist yet has no lock: of two submits, the second of which needs the first one's task, the second would be
refused; a claim that is repeated with its id would be granted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allswell.domain.command import Claim
from allswell.domain.names import NO_COMMAND
from allswell.engine.plan import Plan


class Named:
    """The rows that commands name, and the ids of claims."""

    __slots__ = ("_claims", "_plan")

    def __init__(self, commands: Sequence[Any]) -> None:
        self._plan: Plan | None
        try:
            self._plan = Plan(commands)
            self._claims = {one.id for one in commands if isinstance(one, Claim) and one.id != NO_COMMAND}
        except Exception:  # noqa: BLE001 - whoever decides them meets it again, and has words for it
            self._plan = None

    def meets(self, other: Named) -> bool:
        """Whether both name the same thing; what cannot be read might name anything."""
        mine, its = self._plan, other._plan
        if mine is None or its is None:
            return True
        runs_apart = (mine.runs_shared and its.runs_shared) or mine.runs.keys().isdisjoint(its.runs)
        return not (
            runs_apart
            and mine.tasks.keys().isdisjoint(its.tasks)
            and mine.services.keys().isdisjoint(its.services)
            and mine.questions.keys().isdisjoint(its.questions)
            and self._claims.isdisjoint(other._claims)
        )

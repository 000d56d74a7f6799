"""How the limit of a run is told: when its time is up, or what its clock stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.render import short, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allswell.domain.names import QuestionId
    from allswell.domain.run import Run


def limit_of(run: Run, asked: Sequence[QuestionId], now: int) -> str:
    """The limit of a run that has not ended, in words; `asked` are the questions that its clock stands for."""
    from allswell.domain.run import time_left

    left = time_left(run, now)
    if left is None or run.ended_at is not None:
        return ""
    if run.limit is not None:
        return when(run.limit, now)
    named = asked[0] if asked else "a question"
    more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
    are = "is" if len(asked) <= 1 else "are"
    return f"its clock stands while {named}{more} {are} open ({short(left)} left)"

"""The lines that a coordinator has yet to say, in order, word for word.

They are kept in the store together with the decisions that they tell of, and are taken off when they have arrived. So
a coordinator that is killed owes the channel exactly what its next life says, except for what the replay shows.

    TASKS      is always the whole list: a newer one takes the place of those that nobody has heard yet.
    READY      that is announced again is said once, however long the channel was away.
    REJECT     of one message at most so many, lest one stranger's nonsense keep everybody else waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from allswell.domain.build.line import Line, ReadyLine, RejectLine, TasksLine
from allswell.domain.build.wording import write

MOST_REFUSALS = 10
"""So many refusals are told of one message; the log has the others."""
_TASKS = "TASKS "


def owe(owed: Sequence[str], lines: Iterable[Line], under_way: int = 0) -> tuple[str, ...]:
    """What is to be said once these lines are too; the first `under_way` are being said at this moment."""
    said, waiting = list(owed[:under_way]), list(owed[under_way:])
    given = list(lines)
    if any(isinstance(line, TasksLine) for line in given):
        waiting = [text for text in waiting if not text.startswith(_TASKS)]
    for line in given:
        text = write(line)
        if not isinstance(line, ReadyLine) or text not in waiting:
            waiting.append(text)
    return (*said, *waiting)


def still_owed(owed: Sequence[str], said: Counter[str]) -> tuple[str, ...]:
    """What is left to be said after a restart; `said` are our lines that the replay shows."""
    left = Counter(said)
    kept: list[str] = []
    for text in owed:
        if left[text] > 0:
            left[text] -= 1
        else:
            kept.append(text)
    return tuple(kept)


def few_refusals(replies: Sequence[Line]) -> tuple[list[Line], int]:
    """Answers to one message, with the first refusals only; how many were left out."""
    kept: list[Line] = []
    refusals = 0
    for line in replies:
        refusals += isinstance(line, RejectLine)
        if not isinstance(line, RejectLine) or refusals <= MOST_REFUSALS:
            kept.append(line)
    return kept, len(replies) - len(kept)

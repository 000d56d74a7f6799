"""Questions that no alert has told anybody of: read from the journal, where every alert that went out is."""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.question import Question
from allswell.engine.journal_end import first_number, numbering
from allswell.store.views import Views

_CHUNK = 2_000
_MARGIN = 60_000
"""Transactions that overlap may be stamped a little out of order."""


async def untold_questions(views: Views, questions: Sequence[Question]) -> list[str]:
    """Of these, the open ones that nobody was told of."""
    left = {str(question.id): question.asked_at for question in questions if question.closed_at is None}
    if not left:
        return []
    since = min(left.values()) - _MARGIN
    at = await numbering(views)
    after = at(await first_number(views, at, lambda entries: not entries or entries[0].at >= since) - 1)
    while left and (entries := await views.journal(after, _CHUNK)):
        for entry in entries:
            if entry.event.kind == "question_told":
                left.pop(str(entry.event.data["question"]), None)
        after = entries[-1].position
    return list(left)

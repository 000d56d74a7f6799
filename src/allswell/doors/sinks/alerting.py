"""What people or a channel are told of an event, with the names and options that only the store knows."""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.alert import Alert, alert_for, sentence
from allswell.domain.comms import HEARS as COMM_HEARS
from allswell.domain.journal import Entry
from allswell.domain.mesh_words import HEARS as MESH_HEARS
from allswell.domain.mesh_words import About, mesh_words
from allswell.domain.names import QuestionId
from allswell.engine.explaining.communication import asked_of
from allswell.store.views import Views


async def alert_of(entry: Entry, views: Views, *, mesh: bool, humans: Sequence[str] = ()) -> Alert | None:
    """What to say about an event; with `mesh`, in the protocol's own sentences where it has one. None: nothing."""
    event = entry.event
    row = None if event.task is None else await views.view_task(event.task)
    name = "" if row is None else row.task.name
    if mesh and event.kind in MESH_HEARS:
        asked = await asked_of(views, event) if event.kind in COMM_HEARS else None
        about = About(name, humans=humans)
        if asked is not None:
            about = About(name, asked.summary, asked.to, humans)
        words = mesh_words(event, about)
        cause = f"{entry.position.xid}.{entry.position.id}"
        return None if words is None else sentence(words, cause, urgent=bool(event.data.get("critical")))
    question = None
    if event.kind == "question_asked":
        question = await views.view_question(QuestionId(str(event.data["question"])))
    return alert_for(event, name, () if question is None else question.options)

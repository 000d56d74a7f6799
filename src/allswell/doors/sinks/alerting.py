"""What people or a channel are told of an event, with the names and options that only the store knows."""

from __future__ import annotations

from allswell.domain.alert import Alert, alert_for, sentence
from allswell.domain.journal import Entry
from allswell.domain.mesh_words import HEARS as MESH_HEARS
from allswell.domain.mesh_words import mesh_words
from allswell.domain.names import QuestionId
from allswell.engine.explaining.communication import asked_of
from allswell.store.views import Views


async def alert_of(entry: Entry, views: Views, *, mesh: bool) -> Alert | None:
    """What to say about an event; with `mesh`, in the protocol's own sentences where it has one. None: nothing."""
    event = entry.event
    row = None if event.task is None else await views.view_task(event.task)
    name = "" if row is None else row.task.name
    if mesh and event.kind in MESH_HEARS:
        asked = await asked_of(views, event) if "request" in event.data else None
        about = ("", "") if asked is None else (asked.summary, asked.to)
        words = mesh_words(event, name, *about)
        return None if words is None else sentence(words, f"{entry.position.xid}.{entry.position.id}")
    question = None
    if event.kind == "question_asked":
        question = await views.view_question(QuestionId(str(event.data["question"])))
    return alert_for(event, name, () if question is None else question.options)

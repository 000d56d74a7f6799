"""Writing changes: each table is one statement, all of them one round trip.

What goes is deleted before what comes is inserted, so that a task may leave and enter the same table in one batch.
An update or a fenced delete must meet every row it names: one that does not means that a lock was missing.
"""

from __future__ import annotations

from allswell.errors import Bug
from allswell.store.port import Changes
from allswell.store.postgres.connection import Statement
from allswell.store.postgres.session import SQL, Session
from allswell.store.postgres.values import integers, json, texts


def write_changes(session: Session, changes: Changes, mark: Statement) -> int:
    """Write everything; the answer to `mark`, which comes last, is returned."""
    work = [*_deletes(changes), *_updates(changes), *_inserts(changes)]
    *answers, marked = session.ask(*((SQL[name], values) for name, values, _ in work), mark)
    for (name, _, expected), answer in zip(work, answers, strict=True):
        if expected is not None and answer.rowcount != expected:
            raise Bug(f"{name} met {answer.rowcount} of {expected} rows: one was changed without its lock")
    row = marked.fetchone()
    if row is None:
        raise Bug("the mark of a transaction was not written")
    return int(row[0])


Piece = tuple[str, tuple[object, ...], int | None]
"""A statement's name, its parameters, and how many rows it must meet, if that is known."""


def _deletes(changes: Changes) -> list[Piece]:
    pieces: list[Piece] = []
    if changes.drop_leases:
        tasks, tokens = zip(*changes.drop_leases, strict=True)
        pieces.append(("delete_leases", (texts(tasks), integers(tokens)), len(tasks)))
    if changes.drop_ready:
        pieces.append(("delete_ready", (texts(changes.drop_ready),), len(changes.drop_ready)))
    if changes.drop_timers:
        pieces.append(("delete_timers", (texts(changes.drop_timers),), None))
    if changes.drop_waits:
        pieces.append(("delete_waits", (json(changes.drop_waits),), None))
    if changes.drop_agents:
        pieces.append(("delete_agents", (texts(changes.drop_agents),), None))
    if changes.drop_spreads:
        pieces.append(("delete_spreads", (texts(changes.drop_spreads),), None))
    return pieces


def _updates(changes: Changes) -> list[Piece]:
    pieces: list[Piece] = []
    for name, rows in (
        ("update_leases", changes.leases),
        ("update_runs", changes.runs),
        ("update_questions", changes.questions),
        ("update_attempts", changes.late_attempts),
    ):
        if rows:
            pieces.append((name, (json(rows),), len(rows)))
    if changes.tasks:
        tasks, results = zip(*changes.tasks, strict=True)
        pieces.append(("update_tasks", (json(tasks), json(results)), len(tasks)))
    return pieces


def _inserts(changes: Changes) -> list[Piece]:
    pieces: list[Piece] = []
    if changes.new_tasks:
        tasks, payloads = zip(*changes.new_tasks, strict=True)
        pieces.append(("insert_tasks", (json(tasks), json(payloads)), len(tasks)))
    for name, rows in (
        ("insert_runs", changes.new_runs),
        ("put_services", changes.services),
        ("insert_agents", changes.new_agents),
        ("put_agents", changes.agents),
        ("insert_questions", changes.new_questions),
        ("insert_ready", changes.new_ready),
        ("insert_waits", changes.new_waits),
        ("insert_bars", changes.new_bars),
        ("insert_leases", changes.new_leases),
        ("insert_attempts", changes.new_attempts),
        ("insert_spreads", changes.new_spreads),
    ):
        if rows:
            pieces.append((name, (json(rows),), len(rows)))
    if changes.timers:
        owners, moments = zip(*changes.timers, strict=True)
        pieces.append(("put_timers", (texts(owners), integers(moments)), len(owners)))
    if changes.events:
        pieces.append(("insert_events", (json(changes.events), changes.at), len(changes.events)))
    return pieces

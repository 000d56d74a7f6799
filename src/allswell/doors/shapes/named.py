"""Which thing is meant, where it can be a task, a run or a question: its id under its name, the others null."""

from __future__ import annotations

from typing import TypedDict


class Named(TypedDict):
    """The ids of a shape that can be about any of them."""

    task_id: str | None
    run_id: str | None
    question_id: str | None


def named(id_: str) -> Named:
    """An id under its name; what kind of id it is, its beginning tells."""
    return {
        "task_id": id_ if id_.startswith("t_") else None,
        "run_id": id_ if id_.startswith("r_") else None,
        "question_id": id_ if id_.startswith("q_") else None,
    }

"""The ids and small scalar types that every other module speaks in.

Ids are prefixed, so that one command line argument can name any of them: `t_` task, `r_` run, `q_` question, `m_`
request of the mesh. A question's id contains its task's, or its service's after an `@`, and a request's id contains
that of the task that asks: so the rows that a decision about it needs are known before anything is locked.
"""

from __future__ import annotations

import re
from typing import NewType

from allswell.errors import Refused

TaskId = NewType("TaskId", str)
RunId = NewType("RunId", str)
QuestionId = NewType("QuestionId", str)
AgentId = NewType("AgentId", str)
CommandId = NewType("CommandId", str)
Token = NewType("Token", int)
"""Grows with every lease of a task; the fence that keeps a stale holder out."""
Millis = NewType("Millis", int)
"""An instant of the store's clock (since the Unix epoch) or a length of time, in milliseconds."""

NO_COMMAND = CommandId("")
_PARTS = (3, 4)
"""Of the id of a question about a message; older ones have no moment at their end."""


def can_name(id_: object) -> bool:
    """Whether any row could have this id: what no store can hold must reach none, or it spoils a whole batch."""
    return isinstance(id_, str) and id_.isprintable()


_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def is_file_name(text: str) -> bool:
    """Whether this is the name of a file and nothing else: no part of a path, hidden, or an option."""
    return _FILE_NAME.fullmatch(text) is not None


def file_name(id_: str) -> str:
    """An id as part of a path; `Refused` where it could lead elsewhere. No path is made of an id without this."""
    if not is_file_name(id_):
        raise Refused("bad_id", f"no file can be named after the id {id_[:100]!r}", where="id")
    return id_


def is_session(text: str) -> bool:
    """Whether this can be the id of an agent's session: what an agent says is data, and this may be typed."""
    return _SESSION.fullmatch(text) is not None


def question_id(task: TaskId, number: int) -> QuestionId:
    """The id of a task's n-th question."""
    return QuestionId(f"q_{task[2:]}.{number}")


def service_question_id(service: str, number: int) -> QuestionId:
    """The id of the n-th question about a service."""
    return QuestionId(f"q_@{service}.{number}")


def message_question_id(queue: str, message: int, read_count: int, sent: int) -> QuestionId:
    """The id of the question about a reading of a message that was sent then, in microseconds.

    A queue that was dropped and made anew counts its messages from 1 again: when one was sent tells them apart.
    """
    return QuestionId(f"q_:{queue}.{message}.{read_count}.{sent:x}")


def message_of_question(question: QuestionId) -> tuple[str, int] | None:
    """The queue and the message that a question is about, read off its id; None if it is about no message."""
    parts = question[3:].split(".")
    if not question.startswith("q_:") or len(parts) not in _PARTS or not parts[0] or not parts[1].isdecimal():
        return None
    return parts[0], int(parts[1])


def task_of_question(question: QuestionId) -> TaskId:
    """The task that a question is about, read off its id."""
    return TaskId(f"t_{question[2:].rpartition('.')[0]}")


def service_of_question(question: QuestionId) -> str | None:
    """The service that a question is about, read off its id; None if it is about a task."""
    return question[3:].rpartition(".")[0] if question.startswith("q_@") else None


def request_id(task: TaskId, mark: str) -> TaskId:
    """The id of a request that this task asks; the mark has no dot, and no other request of the task has it."""
    return TaskId(f"m_{task if is_request(task) else task[2:]}.{mark}")


def is_request(id_: str) -> bool:
    """Whether this is the id of a request of the mesh."""
    return id_.startswith("m_")


def asker_of(request: TaskId) -> TaskId:
    """The task that asks a request, read off its id."""
    asking = request[2:].rpartition(".")[0]
    return TaskId(asking if is_request(asking) else f"t_{asking}")

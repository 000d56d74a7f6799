"""`request`: an agent's focused request to an expert, and waiting for what comes of it (O5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.given import json_of
from allswell.doors.cli.held import hold_of
from allswell.doors.cli.options import Agent, Argument, Json, Option, Store, Task, Token
from allswell.doors.cli.supervised import socket_of, tell

if TYPE_CHECKING:
    from allswell.domain.names import TaskId
    from allswell.engine.held import Held
    from allswell.engine.watch import Watch

_POLL_SECONDS = 0.25
Answer = tuple[str, str, object]
"""The request, how it stands, and its result or the reason."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        WORKING,
        "request",
        request,
        'allswell request expert "which index does this query need?"',
        'allswell request critic "review it" @diff.json --timeout 5m',
        'allswell request critic "look into it" --no-wait',
    )


def request(
    role: Annotated[str, Argument(metavar="ROLE", help="The expert's role.")],
    text: Annotated[str, Argument(metavar="TEXT", help="What is asked of it, in a line.")],
    payload: Annotated[
        str | None, Argument(metavar="PAYLOAD", help="JSON, @file, or - for standard input.", show_default=False)
    ] = None,
    timeout: Annotated[
        str | None, Option("--timeout", metavar="TIME", help="At most so long; never more than you have left.")
    ] = None,
    no_wait: Annotated[bool, Option("--no-wait", help="Do not wait for the answer; its id is printed.")] = False,
    task: Task = None,
    token: Token = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Hand a focused request to an expert, and wait for the answer.

    You keep your own task meanwhile. The request is tried once; that it fails or expires is yours to deal with. Exit
    code 1 says that it failed, 124 that its time ran out.
    """
    from allswell.domain.duration import parse
    from allswell.doors.shapes.request import RequestedShape

    frame = Frame(store, json=json)
    given = json_of(payload, "PAYLOAD")
    limit = None if timeout is None else parse(timeout, where="--timeout")
    socket = socket_of(store)
    if socket is not None:
        answer = _by_socket(socket, role, text, given, limit, wait=not no_wait)
    else:

        async def work(watch: Watch) -> Answer:
            held = await hold_of(frame, watch, task, token, agent)
            return await _by_store(watch, held, (role, text, given, limit), wait=not no_wait)

        answer = frame.run(work)
    id_, state, result = answer
    if no_wait:
        frame.say(RequestedShape(id_, state, None), id_)
        return
    frame.say(RequestedShape(id_, state, result), result if isinstance(result, str) else _json(result))
    if state != "done":
        code = Exit.TIMED_OUT if result == "delegation_timeout" else Exit.FAILED
        frame.leave(code, f"the request {id_} is {state}: {result}")


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _by_socket(path: str, role: str, text: str, payload: object, limit: int | None, *, wait: bool) -> Answer:
    import time

    import msgspec

    from allswell.runtime.speaking import words

    raw = msgspec.Raw(msgspec.json.encode(payload))
    made = tell(path, words.Request(role=role, name=text, payload=raw, timeout=limit)).request or ""
    if not wait:
        return made, "open", None

    def look() -> words.Reply:
        return tell(path, words.Look(request=_task(made)))

    while (reply := look()).state == "open":
        time.sleep(_POLL_SECONDS)
    return made, reply.state or "", msgspec.json.decode(reply.result)


def _task(id_: str) -> TaskId:
    from allswell.domain.names import TaskId

    return TaskId(id_)


async def _by_store(watch: Watch, held: Held, asked: tuple[str, str, object, int | None], *, wait: bool) -> Answer:
    import asyncio

    role, text, payload, limit = asked
    request = await held.delegate(role, text, payload=payload, timeout=limit)
    while True:
        row = await watch.task(request)
        if row is None or not wait or row.task.ended_at is not None:
            break
        await asyncio.sleep(_POLL_SECONDS)
    state = "open" if row is None else row.task.state
    if state == "done":
        return request, state, await watch.result(request)
    return request, state, None if row is None or state == "open" else row.task.record.reason

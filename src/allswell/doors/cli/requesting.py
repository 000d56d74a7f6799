"""`request`: what an agent asks of another one, and waiting for what comes of it (O5, M1, M2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.given import json_of
from allswell.doors.cli.held import hold_of
from allswell.doors.cli.options import Agent, Argument, Json, Option, Store, Task, Token
from allswell.doors.cli.supervised import socket_of, tell
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.claim import Granted
    from allswell.domain.names import TaskId
    from allswell.engine.held import Held
    from allswell.engine.watch import Watch
    from allswell.runtime.speaking.words import Reply

_POLL_SECONDS = 0.25
_DELEGATION = "delegation"


class Asked(NamedTuple):
    """What is asked."""

    to: str
    kind: str
    text: str
    payload: object
    timeout: int | None
    retries: int | None
    again: int | None
    role: str
    lease: int | None
    wait: bool


class Came(NamedTuple):
    """What came of it: the request, how it stands, its result or the reason, and what to do instead."""

    id: str
    state: str
    result: object
    next: Granted | None = None


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        WORKING,
        "request",
        request,
        'allswell request expert "which index does this query need?"  a focused request to an expert',
        'allswell request oracle "server access" --kind handoff  ask the agent oracle; 5 minutes, 2 retries',
        'allswell request role:ops "restart it" --kind collaboration --retries 1',
        'allswell request https://oracle.example/hook "deploy" @body.json --kind webhook',
        'allswell request critic "look into it" --no-wait',
    )


def request(
    to: Annotated[
        str, Argument(metavar="TO", help="A role (of a delegation); else an agent, role:ROLE, or an address.")
    ],
    text: Annotated[str, Argument(metavar="TEXT", help="What is asked of it, in a line.")],
    payload: Annotated[
        str | None, Argument(metavar="PAYLOAD", help="JSON, @file, or - for standard input.", show_default=False)
    ] = None,
    kind: Annotated[
        str,
        Option("--kind", "-k", metavar="KIND", help="delegation, handoff, status_check, collaboration or webhook."),
    ] = _DELEGATION,
    timeout: Annotated[
        str | None, Option("--timeout", metavar="TIME", help="Of each delivery; never more than you have left.")
    ] = None,
    retries: Annotated[
        int | None, Option("--retries", metavar="N", min=0, help="How often it is delivered again.")
    ] = None,
    again: Annotated[
        str | None, Option("--again", metavar="TIME", help="Once it has blocked your task: ask anew so much later.")
    ] = None,
    role: Annotated[
        str, Option("--role", metavar="ROLE", help="Who else may answer before it is given up; default: anybody.")
    ] = "",
    lease: Annotated[
        str | None, Option("--lease", "-l", metavar="TIME", help="As of claim, for what you get instead.")
    ] = None,
    no_wait: Annotated[bool, Option("--no-wait", help="Do not wait for the answer; its id is printed.")] = False,
    task: Task = None,
    token: Token = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Ask another agent, and wait for the answer.

    You keep your own task meanwhile. A delegation is tried once; that it fails or expires is yours to deal with.

    All other kinds are delivered again, and where nobody answers (exit code 124), your task waits for the answer: you
    are done with it, and are given the next one. Exit code 1 says that it failed.
    """
    from allswell.domain.duration import parse

    frame = Frame(store, json=json)
    lengths = {"--timeout": timeout, "--again": again, "--lease": lease}
    limit, later, length = (None if one is None else parse(one, where=where) for where, one in lengths.items())
    asked = Asked(to, kind, text, json_of(payload, "PAYLOAD"), limit, retries, later, role, length, not no_wait)
    if kind == _DELEGATION and (retries is not None or again is not None or role):
        raise Refused("usage", "a delegation is tried once: --retries, --again and --role are for the other kinds")
    socket = socket_of(store)
    if socket is not None:
        came = _by_socket(socket, asked)
    else:

        async def work(watch: Watch) -> Came:
            held = await hold_of(frame, watch, task, token, agent)
            if kind == _DELEGATION:
                return await _delegated(watch, held, asked)
            return await _by_store(held, asked)

        came = frame.run(work)
    _tell(frame, asked, came)


def _tell(frame: Frame, asked: Asked, came: Came) -> None:
    from allswell.doors.shapes.claim import ClaimShape
    from allswell.doors.shapes.request import RequestedShape

    blocked = came.state == "blocked"
    following = None if came.next is None else ClaimShape.of(came.next)
    fallback: Literal["next_task"] | None = "next_task" if blocked else None
    shape = RequestedShape(came.id, came.state, came.result if asked.wait else None, blocked, fallback, following)
    if not asked.wait:
        frame.say(shape, came.id)
        return
    if blocked:
        frame.say(shape, _instead(came))
        frame.leave(Exit.TIMED_OUT, f"nobody has answered {came.id}: your task waits for that, and is not yours now")
    frame.say(shape, came.result if isinstance(came.result, str) else _json(came.result))
    if came.state != "done":
        code = Exit.TIMED_OUT if came.result in ("delegation_timeout", "request_timeout") else Exit.FAILED
        frame.leave(code, f"the request {came.id} is {came.state}: {came.result}")


def _instead(came: Came) -> str:
    from allswell.doors.cli.agents import told_claim

    return "nothing else is there to do" if came.next is None else told_claim(came.next)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# --- through the supervisor -------------------------------------------------------------------------------------------


def _by_socket(path: str, asked: Asked) -> Came:
    import time

    import msgspec

    from allswell.runtime.speaking import words

    raw = msgspec.Raw(msgspec.json.encode(asked.payload))
    if asked.kind == _DELEGATION:
        said: Any = words.Request(role=asked.to, name=asked.text, payload=raw, timeout=asked.timeout)
    else:
        said = words.AskAgent(
            to=asked.to,
            kind=asked.kind,
            summary=asked.text,
            payload=raw,
            timeout=asked.timeout,
            retries=asked.retries,
            again=asked.again,
            role=asked.role,
        )
    made = tell(path, said).request or ""
    if not asked.wait:
        return Came(made, "open", None)

    def look() -> Reply:
        return tell(path, words.Look(request=_task(made)))

    while (reply := look()).state == "open":
        if reply.orders is not None and reply.orders.stop is not None:
            return Came(made, "blocked", None)  # it is being ended for it: its slot takes the next task
        time.sleep(_POLL_SECONDS)
    return Came(made, reply.state or "", msgspec.json.decode(reply.result))


def _task(id_: str) -> TaskId:
    from allswell.domain.names import TaskId

    return TaskId(id_)


# --- at the store -----------------------------------------------------------------------------------------------------


async def _by_store(held: Held, asked: Asked) -> Came:
    from allswell.engine.mesh import COMES_WITHIN

    sent = await held.send_request(
        asked.to,
        asked.kind,
        asked.text,
        waits=COMES_WITHIN if asked.wait else 0,
        payload=asked.payload,
        timeout=asked.timeout,
        retries=asked.retries,
        again=asked.again,
        role=asked.role,
    )
    if not asked.wait:
        return Came(sent, "open", None)
    ended = await held.wait_for(sent, lease=asked.lease)
    following = None if ended.next is None else ended.next.granted
    return Came(sent, ended.state, ended.answer if ended.state == "done" else ended.reason, following)


async def _delegated(watch: Watch, held: Held, asked: Asked) -> Came:
    import asyncio

    made = await held.delegate(asked.to, asked.text, payload=asked.payload, timeout=asked.timeout)
    while True:
        row = await watch.task(made)
        if row is None or not asked.wait or row.task.ended_at is not None:
            break
        await asyncio.sleep(_POLL_SECONDS)
    state = "open" if row is None else row.task.state
    if state == "done":
        return Came(made, state, await watch.result(made))
    return Came(made, state, None if row is None or state == "open" else row.task.record.reason)

"""`request`, `inbox` and `respond`: what agents ask of each other, and what comes of it (O5, M1, M2, M5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from allswell.errors import Refused
from allswell.interfaces.cli.arguments import hold_of, json_of, socket_of, tell
from allswell.interfaces.cli.context import CliContext, Exit
from allswell.interfaces.cli.options import Agent, Argument, Json, Option, Store, Task, Token
from allswell.interfaces.cli.registry import WORKING, Commands

if TYPE_CHECKING:
    from allswell.domain.ids import TaskId
    from allswell.domain.lease.claim import Granted
    from allswell.domain.mesh.request import InboxItem
    from allswell.engine.lease import Held
    from allswell.engine.watch import Watch
    from allswell.runtime.agent_socket import SocketReply


_POLL_SECONDS = 0.25
_DELEGATION = "delegation"


class RequestArguments(NamedTuple):
    """What is asked."""

    to: str
    kind: str | None
    """None: what is meant is read off whom it is for."""
    text: str
    payload: object
    timeout: int | None
    retries: int | None
    again: int | None
    role: str
    lease: int | None
    wait: bool


class RequestResult(NamedTuple):
    """What came of it: the request, how it stands, its result or the reason, and what to do instead."""

    id: str
    state: str
    result: object
    kind: str | None
    next: Granted | None = None


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    _add_inbox(app)
    app.add(
        WORKING,
        "request",
        request,
        'allswell request expert "which index does this query need?"  a short request to an agent with this role',
        'allswell request oracle "server access"  ask the agent oracle: 5 minutes, 2 retries',
        'allswell request oracle "server access" --kind handoff',
        'allswell request role:ops "restart it" --kind collaboration --retries 1',
        'allswell request https://oracle.example/hook "deploy" @body.json --kind webhook',
        'allswell request critic "look into it" --no-wait',
    )


def request(
    to: Annotated[
        str, Argument(metavar="TO", help="A role (of a delegation); else an agent, role:ROLE, or an address.")
    ],
    text: Annotated[str, Argument(metavar="TEXT", help="The request, in one line.")],
    payload: Annotated[
        str | None, Argument(metavar="PAYLOAD", help="JSON, @file, or - for standard input.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None,
        Option(
            "--kind",
            "-k",
            metavar="KIND",
            help="delegation, handoff, status_check, collaboration or webhook. Default: depends on TO.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        Option(
            "--timeout",
            metavar="TIME",
            help="Time limit of each delivery; never more than your own. Default: by kind (2m to 10m).",
        ),
    ] = None,
    retries: Annotated[
        int | None,
        Option("--retries", metavar="N", min=0, help="Number of further deliveries. Default: by kind (0 to 3)."),
    ] = None,
    again: Annotated[
        str | None,
        Option("--again", metavar="TIME", help="If it blocks your task, ask again after this time. Default: never."),
    ] = None,
    role: Annotated[
        str, Option("--role", metavar="ROLE", help="Who else may answer before it is given up. Default: any agent.")
    ] = "",
    lease: Annotated[
        str | None, Option("--lease", "-l", metavar="TIME", help="As in `claim`, for the task that you get instead.")
    ] = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Do not wait: the id is printed, and a later check-in shows the answer.")
    ] = False,
    task: Task = None,
    token: Token = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Ask another agent, and wait for the answer.

    You keep your own task meanwhile. An agent that is known, and role:ROLE, are asked for collaboration, an address by
    a webhook; anything else is a role, and a delegation to it. A delegation is tried once; if it fails or expires,
    you must deal with it.

    All other kinds are delivered again, and if no answer comes (exit code 124), your task waits for the answer: you
    are done with it, and are given the next one. Exit code 1 says that it failed, or that a delegation expired.
    """
    from allswell.domain.duration import parse

    context = CliContext(store, json=json)
    lengths = {"--timeout": timeout, "--again": again, "--lease": lease}
    limit, later, length = (None if one is None else parse(one, where=where) for where, one in lengths.items())
    asked = RequestArguments(
        to, kind, text, json_of(payload, "PAYLOAD"), limit, retries, later, role, length, not no_wait
    )
    _check_once(asked, kind)
    socket = socket_of(store)
    if socket is not None:
        came = _by_socket(socket, asked)
    else:

        async def work(watch: Watch) -> RequestResult:
            held = await hold_of(context, watch, task, token, agent)
            meant = asked.kind or await held.kind_for(to)
            _check_once(asked, meant)
            if meant == _DELEGATION:
                return await _delegated(watch, held, asked)
            return await _by_store(held, asked, meant)

        came = context.run(work)
    _tell(context, asked, came)


def _check_once(asked: RequestArguments, kind: str | None) -> None:
    if kind == _DELEGATION and (asked.retries is not None or asked.again is not None or asked.role):
        text = f"{asked.to} is a role, and a delegation is tried once: no --retries, --again or --role"
        raise Refused("usage", text)


def _tell(context: CliContext, asked: RequestArguments, came: RequestResult) -> None:
    from allswell.views.message import RequestedShape

    shape = RequestedShape.of(came.id, came.state, came.result if asked.wait else None, came.next, came.kind)
    if not asked.wait:
        context.say(shape, came.id)
        return
    if shape.blocked:
        context.say(shape, _instead(came))
        context.leave(Exit.TIMED_OUT, f"no answer from {came.id}: your task waits for that, and is not yours now")
    context.say(shape, came.result if isinstance(came.result, str) else _json(came.result))
    if came.state != "done":
        context.leave(Exit.FAILED, f"the {came.kind} {came.id} is {came.state}: {came.result}")


def _instead(came: RequestResult) -> str:
    from allswell.interfaces.cli.commands.work import told_claim

    return "there is no other task" if came.next is None else told_claim(came.next)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# --- through the supervisor -------------------------------------------------------------------------------------------


def _by_socket(path: str, asked: RequestArguments) -> RequestResult:
    import time

    import msgspec

    from allswell.runtime import agent_socket

    raw = msgspec.Raw(msgspec.json.encode(asked.payload))
    if asked.kind == _DELEGATION:
        said: Any = agent_socket.RequestMessage(role=asked.to, name=asked.text, payload=raw, timeout=asked.timeout)
    else:
        said = agent_socket.AskAgentMessage(
            to=asked.to,
            kind=asked.kind or "",
            summary=asked.text,
            payload=raw,
            timeout=asked.timeout,
            retries=asked.retries,
            again=asked.again,
            role=asked.role,
            blocks=asked.wait,
        )
    reply = tell(path, said)
    made, kind = reply.request or "", reply.kind
    if not asked.wait:
        return RequestResult(made, "open", None, kind)

    def look() -> SocketReply:
        return tell(path, agent_socket.LookMessage(request=_task(made)))

    while (reply := look()).state == "open":
        if reply.orders is not None and reply.orders.stop is not None:
            return RequestResult(made, "blocked", None, kind)  # it is being ended for it: its slot takes the next task
        time.sleep(_POLL_SECONDS)
    return RequestResult(made, reply.state or "", msgspec.json.decode(reply.result), kind)


def _task(id_: str) -> TaskId:
    from allswell.domain.ids import TaskId

    return TaskId(id_)


# --- at the store -----------------------------------------------------------------------------------------------------


async def _by_store(held: Held, asked: RequestArguments, kind: str) -> RequestResult:
    from allswell.engine.mesh import COMES_WITHIN

    sent = await held.send_request(
        asked.to,
        kind,
        asked.text,
        waits=COMES_WITHIN if asked.wait else 0,
        payload=asked.payload,
        timeout=asked.timeout,
        retries=asked.retries,
        again=asked.again,
        role=asked.role,
        blocks=asked.wait,
    )
    if not asked.wait:
        return RequestResult(sent, "open", None, kind)
    ended = await held.wait_for(sent, lease=asked.lease)
    following = None if ended.next is None else ended.next.granted
    return RequestResult(sent, ended.state, ended.answer if ended.state == "done" else ended.reason, kind, following)


async def _delegated(watch: Watch, held: Held, asked: RequestArguments) -> RequestResult:
    import asyncio

    made = await held.delegate(asked.to, asked.text, payload=asked.payload, timeout=asked.timeout)
    while True:
        row = await watch.task(made)
        if row is None or not asked.wait or row.task.ended_at is not None:
            break
        await asyncio.sleep(_POLL_SECONDS)
    state = "open" if row is None else row.task.state
    if state == "done":
        return RequestResult(made, state, await watch.result(made), _DELEGATION)
    return RequestResult(made, state, None if row is None or state == "open" else row.task.record.reason, _DELEGATION)


# `inbox`, `respond` and `decline`: what other agents ask of this one, and what it answers (M2, M5).

Roles = Annotated[
    list[str] | None,
    Option("--role", "-r", metavar="ROLE", help="A role of yours; repeatable.", of=("role",)),
]


def _add_inbox(app: Commands) -> None:
    """Add the commands to the command line."""
    app.add(
        WORKING,
        "inbox",
        inbox,
        "allswell inbox --agent oracle",
        "allswell inbox --agent oracle --role ops --wait 10m  wait for a new one",
        "allswell inbox --agent oracle --mesh                 also requests to others",
    )
    app.add(
        WORKING,
        "respond",
        respond,
        "allswell respond m_06x… 'the key is in the vault' --agent oracle",
        "allswell respond m_06x… @answer.json --agent oracle",
    )
    app.add(WORKING, "decline", decline, "allswell decline m_06x… 'I have no access to it' --agent oracle")


def inbox(
    wait: Annotated[str, Option("--wait", "-w", metavar="TIME", help="Wait this long for a new one.")] = "0",
    mesh: Annotated[bool, Option("--mesh", help="Also requests to other agents that you may answer.")] = False,
    role: Roles = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List requests of other agents to you; exit code 5 if there are none."""
    from allswell.domain.duration import parse
    from allswell.views.message import InboxShape

    context = CliContext(store, json=json)
    patience = parse(wait, where="--wait")
    socket = socket_of(store)
    if socket is not None:
        items = _inbox_by_socket(socket, patience, mesh=mesh)
    else:
        items = _inbox_by_store(context, agent, role or [], patience, mesh=mesh)
    shown = "\n\n".join(map(_in_words, items))
    context.say(InboxShape.of(items), shown)
    if not items:
        context.leave(Exit.NOTHING, None if json else f"no open request to {'the mesh' if mesh else 'you'}")


def _inbox_by_store(
    context: CliContext, agent: str | None, roles: list[str], patience: int, *, mesh: bool
) -> list[InboxItem]:
    if not agent:
        raise Refused("no_agent", "which agent? use --agent NAME, or set ALLSWELL_AGENT", where="agent")
    context.for_its_agent(agent)

    async def work(watch: Watch) -> list[InboxItem]:
        return await watch.inbox(agent, roles=roles, wait=patience, mesh=mesh)

    return context.run(work)


def _inbox_by_socket(path: str, patience: int, *, mesh: bool) -> list[InboxItem]:
    import time

    from allswell.runtime.agent_socket import InboxMessage

    until = time.monotonic() + patience / 1_000
    while True:
        found = tell(path, InboxMessage(mesh=mesh)).inbox
        if any(item.new for item in found) or time.monotonic() >= until:
            return list(found)
        time.sleep(0.25)


def _in_words(item: InboxItem) -> str:
    from allswell.interfaces.cli.rendering import harmless, pairs, plain, short, typed_here, when

    now = item.asked_at + item.age
    deadline = "passed; an answer still counts" if item.expires_at is None else when(item.expires_at, now)
    payload = "" if item.payload is None else _json(item.payload)
    verbs = [("respond", "ANSWER")] if item.mesh else [("respond", "ANSWER"), ("decline", "REASON")]
    typed = [f"\n  {typed_here(f'allswell {verb} {item.request_id} {what}')}" for verb, what in verbs]
    shown = [
        ("request", f"{plain(item.summary)}  {item.request_id}{'' if item.new else '  (listed before)'}"),
        ("from", f"{plain(item.sender)}, for {item.task}"),
        ("to", plain(item.to)),
        ("kind", item.kind),
        ("age", f"{short(item.age)}; delivery {item.attempt}"),
        ("deadline", deadline),
        ("payload", harmless(payload)),
    ]
    return pairs(shown) + "".join(typed)


def respond(
    request: Annotated[str, Argument(metavar="REQUEST", help="Its id, as `allswell inbox` shows it.")],
    answer: Annotated[
        str | None, Argument(metavar="ANSWER", help="Text or JSON, @file, or - for standard input.", show_default=False)
    ] = None,
    role: Roles = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Answer a request; the first answer counts, also if it is late."""
    from allswell.views.message import RespondedShape

    context = CliContext(store, json=json)
    said = _answer_of(answer)
    socket = socket_of(store)
    if socket is not None:
        import msgspec

        from allswell.domain.ids import TaskId
        from allswell.runtime.agent_socket import RespondMessage

        raw = msgspec.Raw(msgspec.json.encode(said))
        tell(socket, RespondMessage(request=TaskId(request), answer=raw))
    else:
        if not agent:
            raise Refused("no_agent", "which agent? use --agent NAME, or set ALLSWELL_AGENT", where="agent")
        context.for_its_agent(agent)

        async def work(watch: Watch) -> None:
            await watch.respond(request, said, agent=agent, roles=role or [])

        context.run(work)
    context.say(RespondedShape(request), f"{request} is answered")


def decline(
    request: Annotated[str, Argument(metavar="REQUEST", help="Its id, as `allswell inbox` shows it.")],
    reason: Annotated[
        str, Argument(metavar="REASON", help="Reason, for the agent that asked.", show_default=False)
    ] = "",
    role: Roles = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Decline a request to you; the agent that asked is told at once."""
    from allswell.views.message import DeclinedShape

    context = CliContext(store, json=json)
    socket = socket_of(store)
    if socket is not None:
        from allswell.domain.ids import TaskId
        from allswell.runtime.agent_socket import DeclineMessage

        tell(socket, DeclineMessage(request=TaskId(request), reason=reason))
    else:
        if not agent:
            raise Refused("no_agent", "which agent? use --agent NAME, or set ALLSWELL_AGENT", where="agent")
        context.for_its_agent(agent)

        async def work(watch: Watch) -> None:
            await watch.decline(request, reason, agent=agent, roles=role or [])

        context.run(work)
    context.say(DeclinedShape(request), f"{request} is declined")


def _answer_of(given: str | None) -> object:
    """JSON as it is; whatever is not JSON, and does not look like it, is text."""
    if given is None or given[:1] in ("@", "-"):
        return json_of(given, "ANSWER")
    try:
        return json_of(given, "ANSWER")
    except Refused:
        if given[:1] in '{["':
            raise
        return given

"""`inbox` and `respond`: what other agents ask of this one, and what it answers (M2, M5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.given import json_of
from allswell.doors.cli.options import Agent, Argument, Json, Option, Store
from allswell.doors.cli.supervised import socket_of, tell
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.inbox import InboxItem
    from allswell.engine.watch import Watch

Roles = Annotated[
    list[str] | None,
    Option("--role", "-r", metavar="ROLE", help="A role that you have; repeatable.", of=("role",)),
]


def add_to(app: Commands) -> None:
    """Add the commands to the command line."""
    app.add(
        WORKING,
        "inbox",
        inbox,
        "allswell inbox --agent oracle",
        "allswell inbox --agent oracle --role ops --wait 10m  wait for the first",
    )
    app.add(
        WORKING,
        "respond",
        respond,
        "allswell respond m_06x… 'the key is in the vault' --agent oracle",
        "allswell respond m_06x… @answer.json --agent oracle",
    )


def inbox(
    wait: Annotated[str, Option("--wait", "-w", metavar="TIME", help="Wait so long for the first request.")] = "0",
    role: Roles = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show what other agents ask of you; exit code 5 when there is nothing."""
    from allswell.domain.duration import parse
    from allswell.doors.shapes.inbox import InboxShape

    frame = Frame(store, json=json)
    patience = parse(wait, where="--wait")
    socket = socket_of(store)
    items = _by_socket(socket, patience) if socket is not None else _by_store(frame, agent, role or [], patience)
    shown = "\n\n".join(map(_in_words, items))
    frame.say(InboxShape.of(items), shown)
    if not items:
        frame.leave(Exit.NOTHING, None if json else "nobody asks anything of you")


def _by_store(frame: Frame, agent: str | None, roles: list[str], patience: int) -> list[InboxItem]:
    if not agent:
        raise Refused("no_agent", "whose inbox? give --agent NAME, or set ALLSWELL_AGENT", where="agent")

    async def work(watch: Watch) -> list[InboxItem]:
        return await watch.inbox(agent, roles=roles, wait=patience)

    return frame.run(work)


def _by_socket(path: str, patience: int) -> list[InboxItem]:
    import time

    from allswell.runtime.speaking.words import Inbox

    until = time.monotonic() + patience / 1_000
    while True:
        found = tell(path, Inbox()).inbox
        if found or time.monotonic() >= until:
            return list(found)
        time.sleep(0.25)


def _in_words(item: InboxItem) -> str:
    from allswell.doors.cli.advice import typed_here
    from allswell.doors.cli.render import harmless, pairs, plain

    late = "nobody answered in time; an answer still counts" if item.expires_at is None else ""
    payload = "" if item.payload is None else _json(item.payload)
    return (
        pairs(
            [
                ("request", f"{plain(item.summary)}  {item.request_id}"),
                ("from", f"{plain(item.sender)} ({item.kind}, for {item.task})"),
                ("delivery", f"{item.attempt}{'; ' if late else ''}{late}"),
                ("payload", harmless(payload)),
            ]
        )
        + f"\n  {typed_here(f'allswell respond {item.request_id} ANSWER')}"
    )


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


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
    """Answer a request; the first answer counts, and a late one too."""
    from allswell.doors.shapes.inbox import RespondedShape

    frame = Frame(store, json=json)
    said = _answer_of(answer)
    socket = socket_of(store)
    if socket is not None:
        import msgspec

        from allswell.domain.names import TaskId
        from allswell.runtime.speaking.words import Respond

        raw = msgspec.Raw(msgspec.json.encode(said))
        tell(socket, Respond(request=TaskId(request), answer=raw))
    else:
        if not agent:
            raise Refused("no_agent", "who answers? give --agent NAME, or set ALLSWELL_AGENT", where="agent")

        async def work(watch: Watch) -> None:
            await watch.respond(request, said, agent=agent, roles=role or [])

        frame.run(work)
    frame.say(RespondedShape(request), f"{request} is answered")


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

"""`request`, `inbox` and `respond`: what agents ask of each other, and what comes of it (O5, M1, M2, M5)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from allswell.domain.duration import parse
from allswell.errors import Refused
from allswell.interfaces.cli.arguments import inbox_work, json_of, spoken
from allswell.interfaces.cli.context import CliContext, Exit
from allswell.interfaces.cli.options import Agent, Argument, LeaseOptions, Option
from allswell.interfaces.cli.registry import WORKING, Commands
from allswell.interfaces.cli.rendering import as_json, harmless, pairs, plain, short, typed_here, when

if TYPE_CHECKING:
    from allswell.actions.holder import Holder
    from allswell.domain.mesh.request import InboxItem
    from allswell.views.lease import RequestedShape


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
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
    *,
    holder: LeaseOptions,
    context: CliContext,
) -> None:
    """Ask another agent, and wait for the answer.

    You keep your own task meanwhile. An agent that is known, and role:ROLE, are asked for collaboration, an address by
    a webhook; anything else is a role, and a delegation to it. A delegation is tried once; if it fails or expires,
    you must deal with it.

    All other kinds are delivered again, and if no answer comes (exit code 124), your task waits for the answer: you
    are done with it, and are given the next one. Exit code 1 says that it failed, or that a delegation expired.
    """
    from allswell.actions.holder import RequestDraft
    from allswell.domain.mesh.request import DELEGATION, check_delegation

    lengths = {"--timeout": timeout, "--again": again, "--lease": lease}
    limit, later, length = (None if one is None else parse(one, where=where) for where, one in lengths.items())
    draft = RequestDraft(
        to=to,
        text=text,
        kind=kind or "",
        payload=json_of(payload, "PAYLOAD"),
        timeout=limit,
        retries=retries,
        again=later,
        role=role,
        blocks=not no_wait,
    )
    if kind == DELEGATION:
        check_delegation(to, retries, later, role)

    async def said(speaker: Holder) -> RequestedShape:
        made = await speaker.request(draft)
        return made if no_wait else await speaker.wait_for(made, length)

    came = spoken(context, holder, said)
    if no_wait:
        context.say(came, came.request_id)
    else:
        _tell(context, came)


def _tell(context: CliContext, came: RequestedShape) -> None:
    """What came of a request that was waited for; an answer is another agent's text, and does nothing to a terminal."""
    from allswell.interfaces.cli.commands.work import told_claim

    if came.blocked:
        context.say(came, "there is no other task" if came.next is None else told_claim(came.next))
        text = f"no answer from {came.request_id}: your task waits for that, and is not yours now"
        context.leave(Exit.TIMED_OUT, text)
    from allswell.domain.agents.result import answer_text

    result = answer_text(came.result)
    answer = result if isinstance(result, str) else as_json(result)
    context.say(came, harmless(answer) if sys.stdout.isatty() else answer)
    if came.state != "done":
        context.leave(Exit.FAILED, f"the {came.kind} {came.request_id} is {came.state}: {came.result}")


# `inbox`, `respond` and `decline`: what other agents ask of this one, and what it answers (M2, M5).

Roles = Annotated[
    list[str] | None,
    Option("--role", "-r", metavar="ROLE", help="A role of yours; repeatable.", of=("role",)),
]


def inbox(
    wait: Annotated[str, Option("--wait", "-w", metavar="TIME", help="Wait this long for a new one.")] = "0",
    mesh: Annotated[bool, Option("--mesh", help="Also requests to other agents that you may answer.")] = False,
    role: Roles = None,
    agent: Agent = None,
    *,
    context: CliContext,
) -> None:
    """List requests of other agents to you; exit code 5 if there are none."""
    from allswell.views.lease import InboxShape

    patience = parse(wait, where="--wait")
    items = inbox_work(context, (agent, role), "whose inbox", lambda inbox: inbox.inbox(patience / 1_000, mesh=mesh))
    shown = "\n\n".join(map(_in_words, items))
    context.say(InboxShape.of(items), shown)
    if not items:
        context.leave(Exit.NOTHING, None if context.json else f"no open request to {'the mesh' if mesh else 'you'}")


def _in_words(item: InboxItem) -> str:
    now = item.asked_at + item.age
    deadline = "passed; an answer still counts" if item.expires_at is None else when(item.expires_at, now)
    payload = "" if item.payload is None else as_json(item.payload)
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
    *,
    context: CliContext,
) -> None:
    """Answer a request; the first answer counts, also if it is late."""
    from allswell.views.lease import RespondedShape

    said = _answer_of(answer)
    inbox_work(context, (agent, role), "which agent", lambda inbox: inbox.respond(request, said))
    context.say(RespondedShape(request), f"{request} is answered")


def decline(
    request: Annotated[str, Argument(metavar="REQUEST", help="Its id, as `allswell inbox` shows it.")],
    reason: Annotated[
        str, Argument(metavar="REASON", help="Reason, for the agent that asked.", show_default=False)
    ] = "",
    role: Roles = None,
    agent: Agent = None,
    *,
    context: CliContext,
) -> None:
    """Decline a request to you; the agent that asked is told at once."""
    from allswell.views.lease import RespondedShape

    inbox_work(context, (agent, role), "which agent", lambda inbox: inbox.decline(request, reason))
    context.say(RespondedShape(request), f"{request} is declined")


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

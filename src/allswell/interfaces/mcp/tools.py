"""The MCP tools: name, description, parameters, answer and hints of each. Schemas are made from the Structs.

The answers are the shapes of `--json` (views). Nothing here refers to anything else (`$ref`): some clients
understand only what is written out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from allswell.errors import Refused
from allswell.interfaces.mcp import arguments as given
from allswell.interfaces.mcp.arguments import HINTS, Hints
from allswell.interfaces.mcp.handlers import ToolHandlers
from allswell.views.explanation import ExplanationShape
from allswell.views.lease import (
    AnswersShape,
    ClaimsShape,
    InboxShape,
    LastWordShape,
    OrdersShape,
    RequestedShape,
    RespondedShape,
)
from allswell.views.question import QuestionShape
from allswell.views.status import StatusShape
from allswell.views.task import SubmittedShape

T = TypeVar("T", bound=given.ToolParams)
Json = dict[str, Any]
_LEASE = ("task", "token")
_NAMED = ("agent", "roles")


@dataclass(frozen=True)
class Tool(Generic[T]):
    """One tool."""

    name: str
    says: str
    takes: type[T]
    does: Callable[[ToolHandlers, T], Awaitable[Struct]]
    answers: tuple[type[Struct], ...]
    left_out: tuple[str, ...] = ()
    """Parameters that the input schema does not show: the caller has one lease, so their values are known."""

    @property
    def hints(self) -> Hints:
        """What it promises."""
        return HINTS[self.name]

    @cached_property
    def input_schema(self) -> Json:
        """What it takes, as JSON Schema."""
        written = written_out(self.takes)
        written["properties"] = {
            name: schema for name, schema in written["properties"].items() if name not in self.left_out
        }
        written["required"] = [name for name in written.get("required", ()) if name not in self.left_out]
        return written

    @cached_property
    def output_schema(self) -> Json:
        """What it answers, as JSON Schema; always an object."""
        written = [written_out(shape) for shape in self.answers]
        return written[0] if len(written) == 1 else {"type": "object", "anyOf": written}

    def taken(self, arguments: Json) -> T:
        """The arguments as the tool takes them, or `Refused`. Models write numbers as text, and null for nothing."""
        present = {name: value for name, value in arguments.items() if value is not None}
        try:
            return msgspec.convert(present, self.takes, strict=False)
        except msgspec.ValidationError as error:
            known = ", ".join(self.input_schema["properties"]) or "nothing"
            text = f"{self.name} does not take this: {error}"
            raise Refused("bad_arguments", text, where="arguments", hint=f"it takes: {known}") from None


def written_out(shape: type[Struct]) -> Json:
    """The JSON Schema of a Struct, each `$ref` replaced by what it refers to."""
    (_,), definitions = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")

    def placed(part: object) -> object:
        if isinstance(part, dict):
            if "$ref" in part:
                return placed(definitions[part["$ref"].rpartition("/")[2]])
            return {
                name: placed(value) for name, value in part.items() if name != "title" or not isinstance(value, str)
            }
        return [placed(item) for item in part] if isinstance(part, list) else part

    written = placed(definitions[shape.__name__])
    assert isinstance(written, dict)  # noqa: S101 - a Struct is an object
    return written


_CLAIM: Tool[Any] = Tool(
    "claim",
    "Take a task to work on. The answer has the task with its payload, a token, how much time you have "
    "(remaining_ms), and what an earlier attempt left (handover). Every other call about the task takes its task_id "
    "and token. Nothing keeps the task yours but your check-ins: call checkin at least every renew_every_ms, better "
    "every few minutes, or it is given to another. An empty list means that there is nothing to do: call again with "
    "wait_s.",
    given.ClaimToolParams,
    lambda handlers, params: handlers.claim(params),
    (ClaimsShape,),
)
_SUBMIT: Tool[Any] = Tool(
    "submit",
    "Submit a task for another agent. It is kept on disk, and done even if you end. It is not done by you unless "
    "you claim it.",
    given.SubmitToolParams,
    lambda handlers, params: handlers.submit(params),
    (SubmittedShape,),
)
_STATUS: Tool[Any] = Tool(
    "status",
    "See how things stand. With a task: why it is in its state, what comes next and what can be done. Without a task: "
    "all work, which an agent's key does not show.",
    given.StatusToolParams,
    lambda handlers, params: handlers.status(params),
    (StatusShape, ExplanationShape),
)
_OWN_STATUS: Tool[Any] = Tool(
    "status",
    "See how much time you have, and what you are asked to do. It proves nothing: checkin does.",
    given.OwnStatusToolParams,
    lambda handlers, _: handlers.own_status(),
    (OrdersShape,),
)
_SHARED: tuple[Tool[Any], ...] = (
    Tool(
        "checkin",
        "Prove progress on your task, every few minutes and whenever something is worth saying; this keeps it yours. "
        "The answer says how much time is left and what to do: `stop` means save what there is and end; `asked` that a "
        "check-in with a note is owed; `answers` are those to questions you asked with hold, `requests` those of other "
        "agents to requests you did not wait for; `inbox` are requests of "
        "other agents, to be read with inbox.",
        given.CheckInToolParams,
        lambda handlers, params: handlers.checkin(params),
        (OrdersShape,),
    ),
    Tool(
        "done",
        "The task is done: say so once, with its result. Then you hold it no longer.",
        given.DoneToolParams,
        lambda handlers, params: handlers.done(params),
        (LastWordShape,),
    ),
    Tool(
        "fail",
        "You could not do the task: say why. The class of the error decides whether it is tried again, ends, or goes "
        "to a human. Then you hold it no longer.",
        given.FailToolParams,
        lambda handlers, params: handlers.fail(params),
        (LastWordShape,),
    ),
    Tool(
        "release",
        "Give the task back, neither done nor failed: another agent will get it.",
        given.ReleaseToolParams,
        lambda handlers, params: handlers.release(params),
        (LastWordShape,),
    ),
    Tool(
        "ask",
        "Put a question to a human. The answer has its question_id; wait for the human with the tool answers. With "
        "hold you keep the task meanwhile and go on with what does not depend on it. Without, this attempt is over, "
        "and the task can be claimed again once they have answered.",
        given.AskToolParams,
        lambda handlers, params: handlers.ask(params),
        (QuestionShape,),
    ),
    Tool(
        "answers",
        "See what has come of your questions and requests, waiting up to wait_s for the first answer. A question is "
        "answered once closed_at is set: `choice` and `answer` have what was said. A request is open until its state "
        "says otherwise. Where it is blocked, your task waits for it and is not yours any more: go on with `next`, "
        "which is yours already, or claim another if it is null.",
        given.AnswersToolParams,
        lambda handlers, params: handlers.answers(params),
        (AnswersShape,),
    ),
    Tool(
        "request",
        "Ask another agent for something while you keep your task. The answer has a request_id; with wait_s also what "
        "came of it, else ask for it with the tool answers.",
        given.RequestToolParams,
        lambda handlers, params: handlers.request(params),
        (RequestedShape,),
    ),
    Tool(
        "inbox",
        "See what other agents ask of you; with mesh, requests to others that you may answer. With wait_s, "
        "wait for one that is new: that was not listed to you before.",
        given.InboxToolParams,
        lambda handlers, params: handlers.inbox(params),
        (InboxShape,),
    ),
    Tool(
        "respond",
        "Answer a request of another agent. The first answer counts, and a late one too.",
        given.RespondToolParams,
        lambda handlers, params: handlers.respond(params),
        (RespondedShape,),
    ),
    Tool(
        "decline",
        "Decline a request of another agent that is addressed to you: it learns that, and why, at once.",
        given.DeclineToolParams,
        lambda handlers, params: handlers.decline(params),
        (RespondedShape,),
    ),
)


def _own(tool: Tool[Any]) -> Tool[Any]:
    """The same tool for a caller that has one lease only: it need not name its task, token, agent and roles."""
    return Tool(tool.name, tool.says, tool.takes, tool.does, tool.answers, (*_LEASE, *_NAMED))


_ORDER = list(HINTS)


def _listed(*tools: Tool[Any]) -> dict[str, Tool[Any]]:
    return {tool.name: tool for tool in sorted(tools, key=lambda tool: _ORDER.index(tool.name))}


TOOLS = _listed(_CLAIM, *_SHARED, _SUBMIT, _STATUS)
"""All of them by name, in the order in which they are listed."""
OWN_TOOLS = _listed(*map(_own, _SHARED), _OWN_STATUS)
"""Tools of an agent inside a supervised attempt. `claim` is not among them: its supervisor claims."""

INSTRUCTIONS = """\
Allswell watches the work of agents: when an agent hangs or dies, its work is kept and given to another agent.
1. claim a task; keep its task_id and token. 2. Work. Call checkin every few minutes with a note on what you did; do
what its answer says. 3. End with done, fail or release. If you need a human, ask, and wait with answers.
If an answer says that the lease is lost, stop working on that task at once: it is not yours any more."""
OWN_INSTRUCTIONS = """\
You work on one task under Allswell's watch. Call checkin every few minutes with a note on what you did, and do what its
answer says. End with done, fail or release, then stop. If you need a human, ask, and wait with answers."""

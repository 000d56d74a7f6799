"""What the tools take. Models read the descriptions, so each says what is worth knowing when it is filled in.

Times are whole seconds, as people say them; one call waits at most `WAIT_MOST`, since many clients cut calls at 60.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from allswell.domain.service.retry import ErrorClass

WAIT_MOST = 45
"""Seconds."""
LEASE = 600
"""Seconds that a lease lasts after each sign of its holder, unless the claim says otherwise."""
_DAY = 86_400

Wait = Annotated[int, Meta(ge=0, le=WAIT_MOST, description=f"Wait up to this many seconds (at most {WAIT_MOST}).")]
TaskArgument = Annotated[str, Meta(description="The task_id that claim gave you.")]
TokenArgument = Annotated[int, Meta(ge=0, description="The token that claim gave you with it.")]
AgentArgument = Annotated[str, Meta(description="Your name, always the same one. Default: your API key's name.")]
Roles = Annotated[list[str], Meta(description="Roles that you have.")]


class ToolParams(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tool takes."""


class SubmitToolParams(ToolParams, frozen=True):
    """A task to be done by somebody."""

    name: Annotated[str, Meta(description="What is to be done, in one line.")]
    payload: Annotated[Any, Meta(description="Whatever its holder needs to know: any JSON.")] = None
    role: Annotated[str, Meta(description="Role of the agents that can do it; empty: agents without a role.")] = ""
    needs: Annotated[list[str], Meta(description="Ids or unique names of tasks that must be done first.")] = []
    priority: Annotated[int, Meta(description="Higher numbers go first.")] = 0
    services: Annotated[list[str], Meta(description="Services that it calls, such as anthropic.")] = []
    run: (
        Annotated[str, Meta(description="A run's name or id that it belongs to; a new name opens one.")] | UnsetType
    ) = UNSET
    timeout_s: Annotated[int, Meta(ge=1, description="The limit of each attempt.")] | UnsetType = UNSET
    max_cost_usd: (
        Annotated[float, Meta(gt=0, description="The limit of what its attempts may cost in all.")] | UnsetType
    ) = UNSET
    max_tokens: (
        Annotated[int, Meta(ge=1, description="The limit of the tokens that its attempts may use in all.")] | UnsetType
    ) = UNSET
    key: Annotated[str, Meta(description="Idempotency key: with the same one, no second task is made.")] | UnsetType = (
        UNSET
    )


class ClaimToolParams(ToolParams, frozen=True):
    """Who claims, and what."""

    agent: AgentArgument = ""
    role: Annotated[str, Meta(description="Only tasks of this role; without it, of any.")] | UnsetType = UNSET
    task: Annotated[str, Meta(description="This task or none.")] | UnsetType = UNSET
    wait_s: Wait = 0
    lease_s: Annotated[
        int, Meta(ge=10, le=_DAY, description="You check in at least this often, or another agent gets the task.")
    ] = LEASE


class LeaseToolParams(ToolParams, frozen=True):
    """The lease that a call is about."""

    task: TaskArgument
    token: TokenArgument


class CheckInToolParams(LeaseToolParams, frozen=True):
    """A sign of life, and what was done since the last one."""

    note: Annotated[str, Meta(description="What you have done since the last one, in a sentence or two.")] = ""
    progress: Annotated[float, Meta(ge=0, le=1, description="How much of the task is done, 0 to 1.")] | UnsetType = (
        UNSET
    )


class DoneToolParams(LeaseToolParams, frozen=True):
    """What it came to."""

    result: Annotated[Any, Meta(description="The result: any JSON, often a short text.")] = None


class FailToolParams(LeaseToolParams, frozen=True):
    """What went wrong."""

    message: Annotated[str, Meta(description="What went wrong, for the next agent.")]
    error_class: Annotated[
        ErrorClass,
        Meta(
            description="network, server, overload, transient, rate_limit: it is tried again. validation, not_found, "
            "context_overflow, bug: the task fails. auth, permanent: a human is asked."
        ),
    ] = ErrorClass.TRANSIENT
    retry_after_s: (
        Annotated[int, Meta(ge=0, le=31_622_400, description="How long a provider asked to wait.")] | UnsetType
    ) = UNSET
    services: Annotated[list[str], Meta(description="The service whose limit it was.")] = []


class ReleaseToolParams(LeaseToolParams, frozen=True):
    """Why it is given back."""

    reason: Annotated[str, Meta(description="Why you give it back.")] = "released"
    delay_s: Annotated[int, Meta(ge=0, description="Keep it from other agents for this time.")] = 0


class OptionToolParams(ToolParams, frozen=True):
    """One way to answer."""

    key: Annotated[str, Meta(description="A short word, such as yes.")]
    label: Annotated[str, Meta(description="What it means.")]


class AskToolParams(LeaseToolParams, frozen=True):
    """A question for a human."""

    text: Annotated[str, Meta(description="The question, with everything a human needs to know to answer it.")]
    options: Annotated[
        list[OptionToolParams], Meta(description="Ways to answer; without any, the answer is a text.")
    ] = []
    hold: Annotated[
        bool,
        Meta(description="true: you keep the task and go on. false: this attempt ends, and the task waits for them."),
    ] = False


class AnswersToolParams(ToolParams, frozen=True):
    """Questions and requests whose answers are wanted."""

    ids: Annotated[
        list[str], Meta(min_length=1, max_length=50, description="question_id and request_id as you got them.")
    ]
    wait_s: Wait = 0


class RequestToolParams(LeaseToolParams, frozen=True):
    """What is asked of another agent."""

    to: Annotated[
        str, Meta(description="For a delegation, a role such as expert; for others, an agent's name or role:ROLE.")
    ]
    text: Annotated[str, Meta(description="What you ask of it, in a line.")]
    payload: Annotated[Any, Meta(description="Whatever it needs to know: any JSON.")] = None
    kind: Annotated[
        Literal["delegation", "handoff", "status_check", "collaboration"],
        Meta(
            description="A delegation is delivered once; if it fails, you decide how to go on. Other kinds are "
            "delivered again (see retries). If no answer comes, your task is put aside until it does: you no longer "
            "hold it, and `next` in this call's result is the task that you were given instead, if there is one."
        ),
    ] = "delegation"
    timeout_s: (
        Annotated[int, Meta(ge=1, description="Time limit of each delivery; never more than you have left.")]
        | UnsetType
    ) = UNSET
    retries: Annotated[int, Meta(ge=0, description="Number of further deliveries.")] | UnsetType = UNSET
    blocks: Annotated[
        bool,
        Meta(
            description="true: if no answer comes, your task is put aside until it does. false: you keep the task, and "
            "a late answer is in the result of your next checkin."
        ),
    ] = True
    wait_s: Wait = 0


class InboxToolParams(ToolParams, frozen=True):
    """Whose inbox."""

    agent: AgentArgument = ""
    roles: Roles = []
    wait_s: Wait = 0
    mesh: Annotated[
        bool, Meta(description="true: list requests to other agents that you may answer, and not your own.")
    ] = False


class DeclineToolParams(ToolParams, frozen=True):
    """A request of another agent that is not answered."""

    request: Annotated[str, Meta(description="Its request_id, as inbox shows it.")]
    reason: Annotated[str, Meta(description="Why, for the agent that asks.")] = ""
    agent: AgentArgument = ""
    roles: Roles = []


class RespondToolParams(ToolParams, frozen=True):
    """An answer to another agent."""

    request: Annotated[str, Meta(description="Its request_id, as inbox shows it.")]
    answer: Annotated[Any, Meta(description="Your answer: any JSON, often a text.")] = None
    agent: AgentArgument = ""
    roles: Roles = []


class StatusToolParams(ToolParams, frozen=True):
    """What to look at."""

    task: Annotated[str, Meta(description="A task to explain; without it: everything.")] | UnsetType = UNSET


class OwnStatusToolParams(ToolParams, frozen=True):
    """The tool `status` inside an attempt, which is about its own task only: it takes no arguments."""


# What each tool promises to clients, and whether a call of it that got no answer may simply be sent again.
#
# This stands here and not in the table of tools, because the proxy needs it and must start quickly.


class Hints(NamedTuple):
    """What a client may think of a tool; none of ours destroys anything, or reaches out of the watch."""

    title: str
    reads_only: bool = False
    """It changes nothing."""
    counts_once: bool = False
    """Called again with the same arguments, it has no further effect."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a call whose answer was lost can be made again."""
        return self.reads_only or self.counts_once


HINTS: Mapping[str, Hints] = {
    "claim": Hints("Claim a task"),
    "checkin": Hints("Check in", counts_once=True),
    "done": Hints("Finish a task", counts_once=True),
    "fail": Hints("Report a failure", counts_once=True),
    "release": Hints("Give a task back", counts_once=True),
    "ask": Hints("Ask a human"),
    "answers": Hints("Wait for answers", counts_once=True),
    "request": Hints("Ask another agent"),
    "inbox": Hints("See what others ask", counts_once=True),  # it notes what it has listed
    "respond": Hints("Answer another agent", counts_once=True),
    "decline": Hints("Decline what another agent asks", counts_once=True),
    "submit": Hints("Submit a task"),
    "status": Hints("Show the status", reads_only=True),
}
"""By name, in the order in which the tools are listed."""

"""What the tools take. Models read the descriptions, so each says what is worth knowing when it is filled in.

Times are whole seconds, as people say them; one call waits at most `WAIT_MOST`, since many clients cut calls at 60.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from allswell.domain.retry import ErrorClass

WAIT_MOST = 45
"""Seconds."""
LEASE = 600
"""Seconds that a lease lasts after each sign of its holder, unless the claim says otherwise."""
_DAY = 86_400

Wait = Annotated[int, Meta(ge=0, le=WAIT_MOST, description=f"Wait up to so many seconds (at most {WAIT_MOST}).")]
TaskArgument = Annotated[str, Meta(description="The task_id that claim gave you.")]
TokenArgument = Annotated[int, Meta(ge=0, description="The token that claim gave you with it.")]
AgentArgument = Annotated[str, Meta(description="Your name, always the same one. Without it: that of your key.")]
Roles = Annotated[list[str], Meta(description="Roles that you have.")]


class ToolTaken(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tool takes."""


class SubmitTaken(ToolTaken, frozen=True):
    """A task to be done by somebody."""

    name: Annotated[str, Meta(description="What is to be done, in one line.")]
    payload: Annotated[Any, Meta(description="Whatever its holder needs to know: any JSON.")] = None
    role: Annotated[str, Meta(description="Who can do it; empty: anybody.")] = ""
    needs: Annotated[list[str], Meta(description="Ids or unique names of tasks that must be done first.")] = []
    priority: Annotated[int, Meta(description="Higher goes first.")] = 0
    services: Annotated[list[str], Meta(description="Services that it calls, such as anthropic.")] = []
    run: (
        Annotated[str, Meta(description="A run's name or id that it belongs to; a new name opens one.")] | UnsetType
    ) = UNSET
    timeout_s: Annotated[int, Meta(ge=1, description="The limit of each attempt.")] | UnsetType = UNSET
    key: Annotated[str, Meta(description="A text of yours: under the same key the task is made once.")] | UnsetType = (
        UNSET
    )


class ClaimTaken(ToolTaken, frozen=True):
    """Who claims, and what."""

    agent: AgentArgument = ""
    role: Annotated[str, Meta(description="Only tasks of this role; without it, of any.")] | UnsetType = UNSET
    task: Annotated[str, Meta(description="This task or none.")] | UnsetType = UNSET
    wait_s: Wait = 0
    lease_s: Annotated[
        int, Meta(ge=10, le=_DAY, description="You check in at least this often, or the task is given to another.")
    ] = LEASE


class LeaseTaken(ToolTaken, frozen=True):
    """The lease that is spoken for."""

    task: TaskArgument
    token: TokenArgument


class CheckInTaken(LeaseTaken, frozen=True):
    """What was done since."""

    note: Annotated[str, Meta(description="What you have done since the last one, in a sentence or two.")] = ""
    progress: Annotated[float, Meta(ge=0, le=1, description="How much of the task is done, 0 to 1.")] | UnsetType = (
        UNSET
    )


class DoneTaken(LeaseTaken, frozen=True):
    """What it came to."""

    result: Annotated[Any, Meta(description="What it came to: any JSON, often a short text.")] = None


class FailTaken(LeaseTaken, frozen=True):
    """What went wrong."""

    message: Annotated[str, Meta(description="What went wrong, for whoever tries next.")]
    error_class: Annotated[
        ErrorClass,
        Meta(
            description="network, server, overload, transient, rate_limit: it is tried again. validation, not_found, "
            "context_overflow, bug: the task fails. auth, permanent: a human is asked."
        ),
    ] = ErrorClass.TRANSIENT
    retry_after_s: Annotated[int, Meta(ge=0, description="How long a provider asked to wait.")] | UnsetType = UNSET
    services: Annotated[list[str], Meta(description="Whose limit it was.")] = []


class ReleaseTaken(LeaseTaken, frozen=True):
    """Why it is given back."""

    reason: Annotated[str, Meta(description="Why you give it back.")] = "released"
    delay_s: Annotated[int, Meta(ge=0, description="Nobody gets it for so long.")] = 0


class OptionTaken(ToolTaken, frozen=True):
    """One way to answer."""

    key: Annotated[str, Meta(description="A short word, such as yes.")]
    label: Annotated[str, Meta(description="What it means.")]


class AskTaken(LeaseTaken, frozen=True):
    """A question for a human."""

    text: Annotated[str, Meta(description="The question, with all that somebody needs to know to answer it.")]
    options: Annotated[list[OptionTaken], Meta(description="Ways to answer; without any, the answer is a text.")] = []
    hold: Annotated[
        bool,
        Meta(description="true: you keep the task and go on. false: this attempt ends, and the task waits for them."),
    ] = False


class AnswersTaken(ToolTaken, frozen=True):
    """What is waited for."""

    ids: Annotated[
        list[str], Meta(min_length=1, max_length=50, description="question_id and request_id as you got them.")
    ]
    wait_s: Wait = 0


class RequestTaken(LeaseTaken, frozen=True):
    """What is asked of another agent."""

    to: Annotated[str, Meta(description="For a delegation a role, such as expert; else an agent, or role:ROLE.")]
    text: Annotated[str, Meta(description="What you ask of it, in a line.")]
    payload: Annotated[Any, Meta(description="Whatever it needs to know: any JSON.")] = None
    kind: Annotated[
        Literal["delegation", "handoff", "status_check", "collaboration"],
        Meta(
            description="A delegation is tried once, and its failure is yours to deal with. The others are delivered "
            "again, and where nobody answers your task waits for it: then you lose it, and claim another."
        ),
    ] = "delegation"
    timeout_s: (
        Annotated[int, Meta(ge=1, description="Of each delivery; never more than you have left.")] | UnsetType
    ) = UNSET
    retries: Annotated[int, Meta(ge=0, description="How often it is delivered again.")] | UnsetType = UNSET
    wait_s: Wait = 0


class InboxTaken(ToolTaken, frozen=True):
    """Whose inbox."""

    agent: AgentArgument = ""
    roles: Roles = []
    wait_s: Wait = 0


class RespondTaken(ToolTaken, frozen=True):
    """An answer to another agent."""

    request: Annotated[str, Meta(description="Its request_id, as inbox shows it.")]
    answer: Annotated[Any, Meta(description="Your answer: any JSON, often a text.")] = None
    agent: AgentArgument = ""
    roles: Roles = []


class StatusTaken(ToolTaken, frozen=True):
    """What to look at."""

    task: Annotated[str, Meta(description="A task to be told about; without: the whole watch.")] | UnsetType = UNSET


class OwnStatusTaken(ToolTaken, frozen=True):
    """Nothing."""

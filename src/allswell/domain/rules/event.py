"""Events: facts in the journal.

The journal is append-only, and it is the outbox: every message to the outside follows from events that were committed
together with the decision that they report.

`KINDS` is the catalogue: every kind with its fields and a sentence. A test holds every emitted event to it, and the
reference is generated from it. The seeds' names and fields are kept to the letter. What was asked for over a network
has one field more, whatever its kind: `KEY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token

KEY = "key"
"""The name of the key with which the event was caused."""


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One fact; the store adds its position and the moment of its transaction."""

    kind: str
    task: TaskId | None = None
    run: RunId | None = None
    agent: AgentId | None = None
    token: Token | None = None
    data: Mapping[str, Any] = {}


class Kind(msgspec.Struct, frozen=True, gc=False):
    """What an event's data holds, and what it means."""

    meaning: str
    fields: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "task_submitted": Kind("A task was accepted.", ("name",)),
    "task_ready": Kind("What a task waited for is there; it can be claimed.", ("reason",)),
    "task_claimed": Kind("An agent holds the task now.", ("deadline",)),
    "task_checked_in": Kind("The holder reported progress in words.", ("note", "progress")),
    "task_completed": Kind("The task is done.", ("elapsed_ms",)),
    "task_said_done": Kind(
        "A holder says that its task is done; that has to be verified before it counts.", ("verify",)
    ),
    "task_verified": Kind(
        "The command that verifies a task has run.",
        ("passed", "verify", "why", "said", "elapsed_ms", "failed", "most", "by"),
    ),
    "task_sent_back": Kind("A verification failed: the task goes back to its agent.", ("failed", "most")),
    "task_accepted": Kind("A human accepted a task as it is, although it was not verified.", ("by",)),
    "step_recorded": Kind("A step of a Python flow is done, and its result is kept.", ("name", "elapsed_ms")),
    "step_refused": Kind("A process that no longer holds its flow came with a step; it was refused.", ("name",)),
    "task_retried": Kind("An attempt failed; the task will be tried again.", ("error", "message", "delay_ms")),
    "task_failed": Kind("The task ended without success.", ("reason", "message")),
    "task_returned": Kind("The task is ready again, without a verdict on it.", ("reason",)),
    "task_cancelled": Kind("The task was cancelled.", ("reason",)),
    "task_skipped": Kind("The task will not be done.", ("reason",)),
    "task_resubmitted": Kind("An ended task was submitted again, as a new one; it stays ended.", ("new_task", "by")),
    "task_split": Kind("Smaller tasks replace the task.", ("subtasks",)),
    "checkpoint_timeout": Kind("An asked-for check-in did not come in time.", ("checkpoint_count",)),
    "agent_stalled": Kind("An agent missed too many check-ins in a row.", ("action",)),
    "stalled_agent_recovered": Kind("A stalled agent was ended and its task taken back."),
    "agent_timeout": Kind("An attempt reached its hard limit.", ("elapsed_ms",)),
    "agent_idle": Kind("An attempt gave no sign of progress for too long.", ("elapsed_ms",)),
    "lease_lapsed": Kind("A holder did not renew its lease in time.", ("elapsed_ms",)),
    "task_repeated_timeout": Kind("A task keeps timing out; a human is asked.", ("count", "action")),
    "late_result": Kind("A holder brought a result after its lease had ended; refused and kept.", ("verb",)),
    "late_word": Kind("A holder asked, checked in or let go after its lease had ended; refused and kept.", ("verb",)),
    "task_suspended": Kind("The command was stopped, by a signal; its limits are paused.", ("signal",)),
    "task_continued": Kind("A stopped command goes on, and so do its limits.", ("signal", "stood_ms")),
    "receipt_written": Kind(
        "An attempt has left a receipt: it did not end well, or its work is on a branch.", ("receipt", "status", "path")
    ),
    "question_asked": Kind("A human has to decide.", ("question", "kind", "text", "options")),
    "question_told": Kind("An alert about a question has gone out.", ("question", "sink")),
    "question_answered": Kind("A human has decided.", ("question", "choice", "by")),
    "question_dismissed": Kind("A human has dismissed a question; it stays open.", ("question", "by")),
    "task_dismissed": Kind("A human has dismissed a task that ended or was stopped.", ("by",)),
    "question_withdrawn": Kind("A question's task ended, or its service recovered, without an answer.", ("question",)),
    "attempt_cost": Kind(
        "What an attempt has cost in all, where it said so.", ("cost_usd", "given", "written", "estimated")
    ),
    "cost_limit": Kind("An attempt was ended: its task has reached its cost limit. A human is asked.", ("cost_usd",)),
    "token_limit": Kind("An attempt was ended: its task has reached its token limit. A human is asked.", ("tokens",)),
    "budget_reached": Kind(
        "A role, a run or a day has reached its cost limit: no task of it is started.", ("budget", "spent_usd", "until")
    ),
    "request_sent": Kind("An agent asked another one for something.", ("request", "kind", "to", "timeout_ms")),
    "request_delivered": Kind(
        "A request without an answer was delivered again.", ("request", "kind", "to", "attempt", "timeout_ms")
    ),
    "request_expired": Kind(
        "A delivery of a request was not answered in time.",
        ("request", "kind", "to", "attempt", "timeout_ms", "default_ms", "against"),
    ),
    "request_told": Kind("A supervised agent was notified of a request.", ("request", "heard_by")),
    "mesh_asked": Kind("Before a request is given up, all agents are asked once.", ("request", "kind", "to")),
    "request_blocked": Kind(
        "A request was not answered: its task waits for it, and its agent moved on.",
        ("request", "kind", "to", "attempts", "next"),
    ),
    "task_blocked_long": Kind(
        "A task is still blocked by a request without an answer; the mesh channel is notified.",
        ("request", "kind", "to", "blocked_ms", "critical", "count"),
    ),
    "request_declined": Kind(
        "An agent has declined a request; `final` if no other agent is known that could answer it.",
        ("request", "kind", "to", "by", "reason", "final"),
    ),
    "request_closed": Kind("A request was answered, or came to nothing.", ("request", "outcome", "reason")),
    "request_resolved": Kind(
        "A request was answered after it had blocked its task, which is queued again if it is still open.",
        ("request", "kind", "to", "by", "blocked_ms", "requeued"),
    ),
    "run_opened": Kind("A run was opened.", ("name", "deadline")),
    "run_ended": Kind("A run was ended as a whole.", ("reason",)),
    "run_stands": Kind("A task of the run waits for an answer: the run's time limit is paused.", ("question",)),
    "run_goes_on": Kind("No task of the run waits for an answer now: its clock goes on.", ("stood_ms", "deadline")),
    "limit_moved": Kind("The run's clock stood, so an attempt has another limit.", ("deadline",)),
    "service_parked": Kind("A service asked to wait.", ("service", "until")),
    "service_unparked": Kind("A human said that a service can be called now.", ("service", "by")),
    "rate_limited": Kind("A service said that it is called too often.", ("service", "count", "retry_after_ms")),
    "service_escalated": Kind(
        "Calls to a service are given up for what only a human can fix; one is asked.",
        ("service", "cause", "reason", "question"),
    ),
    "message_quarantined": Kind(
        "A worker could not handle a message, and took it out of its queue; an operator is asked.",
        ("queue", "message", "type", "code", "reason", "question", "messages"),
    ),
    "message_settled": Kind(
        "A worker has carried out an operator's answer about a message.",
        ("queue", "message", "question", "choice", "by", "messages"),
    ),
    "breaker_opened": Kind(
        "A service failed too often in a row and is not called for a while.", ("service", "failures", "pause_ms")
    ),
    "breaker_probe": Kind("One call is let through to try a service that is shut.", ("service", "lease_ms")),
    "breaker_escalated": Kind("A service goes on failing; a human is asked.", ("service", "failures", "question")),
    "breaker_closed": Kind("A service works again and is called again.", ("service", "shut_ms")),
    "agent_state": Kind("A supervised agent is in another state, and why one thinks so.", ("state", "evidence")),
    "agent_nudged": Kind("An agent that has become quiet was reminded.", ("heard_by", "evidence")),
    "checkin_asked": Kind("An agent was asked for a check-in, in every way it can hear.", ("heard_by", "evidence")),
    "agent_stopped": Kind("A supervisor ended an agent, with all its processes.", ("reason", "evidence", "killed")),
    "agent_resumed": Kind("An attempt goes on with the agent's own session of an earlier one.", ("session",)),
    "agent_restarted": Kind("An attempt does not go on with the agent's own session, and why.", ("why",)),
    "agent_waits": Kind(
        "An agent waits for a human at its own terminal, as its program says.", ("kind", "text", "folder")
    ),
    "human_session_began": Kind("A human has started a coding agent in a terminal of their own.", ("folder",)),
    "human_session_ended": Kind("A coding agent that a human has started has ended.", ("folder",)),
    "agent_turn_failed": Kind("A turn of an agent has failed, as its program says.", ("kind", "text")),
    "reaper_stopped": Kind("The reaper of an agent was stopped by a signal, and continued at once.", ("evidence",)),
    "survivors_left": Kind(
        "Processes of an attempt still run although they were told to stop; its folder and its slot are kept.",
        ("processes", "folder"),
    ),
    "survivors_gone": Kind(
        "The processes that an attempt had left have ended; folder and slot are free.", ("processes",)
    ),
    "survivors_freed": Kind("A human has freed folder and slot although processes still run.", ("processes", "by")),
    "run_silent": Kind(
        "A command under `allswell run` has shown no sign of progress for long; it goes on.",
        ("silent_ms", "printed"),
    ),
    "usage_limit": Kind("An agent's account has used up its quota.", ("account", "said", "until")),
    "supervisor_started": Kind("A supervisor watches its fleet.", ("supervisor", "host", "slots", "left_over")),
    "supervisor_stopped": Kind("A supervisor has let go of its fleet.", ("supervisor", "how")),
    "checkpoints_collected": Kind("All agents at work were asked for a check-in.", ("why", "answered", "silent")),
    "context_compacted": Kind("Compaction was triggered with the check-ins that came.", ("outcome", "message")),
    "session_paused": Kind(
        "Nothing new is dispatched, to the agents of one account or to all: little of the session is left.",
        ("remaining", "until", "account"),
    ),
    "session_resumed": Kind(
        "The fleet dispatches again, or the agents of one account are given tasks again.", ("account",)
    ),
    "questions_open": Kind("Questions wait for a human, without an answer.", ("count", "oldest", "since")),
    "delivery_made": Kind("A delivery that had failed before was made.", ("sink", "delivery", "tries", "says")),
    "delivery_given_up": Kind(
        "A delivery was refused for good, or failed for too long; a human can try it again or drop it.",
        ("sink", "delivery", "reason"),
    ),
    "sink_down": Kind(
        "A sink's target did not take a delivery on any of its retries; it is tried ever more slowly.",
        ("sink", "target", "reason"),
    ),
    "key_created": Kind(
        "A key was made for a caller from elsewhere.", ("name", "rights", "roles", "agents", "expires_at", "by")
    ),
    "key_revoked": Kind("A key holds no longer.", ("name", "by")),
    "link_made": Kind("A link for the browser was made, for the owner of a key; it works once.", ("name", "by")),
    "session_opened": Kind("The owner of a key has logged in with a browser.", ("name", "how")),
    "links_revoked": Kind("The answer links in all alerts that were sent so far have stopped working.", ("by",)),
    "clock_jumped": Kind("The machine slept; leases got one more window.", ("by_ms",)),
    "clock_set": Kind("The clock was set; whatever runs goes on with the time it had left.", ("by_ms",)),
}


# The journal as it is read: events in their places.


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in the journal; the journal's order is this order, and about one task that of what happened."""

    xid: int = 0
    id: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One event in its place in the journal."""

    position: Position
    at: Millis
    event: Event


# What spans and their attributes are called, in one place: OpenTelemetry's names for agents, and ours beside them.

INVOKE_WORKFLOW = "invoke_workflow"
"""A run of a flow."""
INVOKE_AGENT = "invoke_agent"
"""One attempt at a task, by a command under watch."""
EXECUTE_TOOL = "execute_tool"
"""The use of a tool: a function or a block in a `tool` scope, or a command that is run as one."""

OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
TOKENS_IN = "gen_ai.usage.input_tokens"
TOKENS_OUT = "gen_ai.usage.output_tokens"

TASK = "allswell.task.id"
TASK_NAME = "allswell.task.name"
RUN = "allswell.run.id"
ATTEMPT = "allswell.attempt"
OUTCOME = "allswell.outcome"
COST = "allswell.cost_usd"
EXIT_CODE = "process.exit.code"
METHOD = "http.request.method"
STATUS = "http.response.status_code"

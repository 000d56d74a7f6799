"""The catalogue of settings: one entry for each, from which loading, `allswell config`, the schema and the docs follow.

Names are those of the documents Allswell comes from, in lower case. Defaults are not written here: they are those of
`Policy`, `Limits`, `BreakerPolicy`, `Quota`, `Pace` and `Tolerance`, so that there is one truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from allswell.domain.breaker import DEFAULT as BREAKER
from allswell.domain.breaker import Then
from allswell.domain.deadline import DEFAULT as LIMITS
from allswell.domain.deadline import ScopeKind
from allswell.domain.handling import MESSAGES
from allswell.domain.health import HEALTH
from allswell.domain.layers import Layers
from allswell.domain.policy import DEFAULT as POLICY
from allswell.domain.policy import DELEGATION_TIMEOUT
from allswell.domain.quota import DEFAULT as QUOTA
from allswell.domain.request import ESCALATION
from allswell.domain.request import KINDS as REQUESTS
from allswell.domain.usage import SESSION_MARGIN, USAGE_LIMIT_PAUSE
from allswell.engine.pace import DEFAULT as PACE
from allswell.engine.tolerance import DEFAULT as TOLERANCE
from allswell.settings.setting import PREFIX, Kind, Setting, Value

NOT_SETTINGS = frozenset(
    PREFIX + name
    for name in (
        *("SOCKET", "SECRET", "TASK", "TOKEN", "AGENT", "ATTEMPT", "DEADLINE", "HANDOVER", "DEBUG"),
        *("KEY", "KEY_FILE"),
        *("ORDERS", "PROMPT", "WORK", "MARKER"),
    )
)
"""What a supervised agent finds in its environment about its own lease, how to see the story of a bug, and keys."""


def _policy(name: str, kind: Kind, field: str, description: str, none: str | None = None) -> Setting:
    table, _, key = field.rpartition(".")
    default: Value = getattr(POLICY.retry if table else POLICY, key)
    return Setting(name, kind, default, description, per_role=True, none=none)


def _timeout(kind: ScopeKind, what: str) -> Setting:
    return Setting(f"timeouts.{kind}", Kind.DURATION, LIMITS.timeout(kind), f"The limit of {what} that names none.")


def _hard_limit(kind: ScopeKind, what: str) -> Setting:
    text = f"The most that {what} may name; only a timeout_override goes beyond."
    return Setting(f"hard_limits.{kind}", Kind.DURATION, LIMITS.hard_limit(kind), text)


def _breaker(key: str, kind: Kind, description: str, choices: tuple[str, ...] = ()) -> Setting:
    return Setting(f"breaker.{key}", kind, getattr(BREAKER, key), description, choices=choices)


def _pace(key: str, description: str) -> Setting:
    return Setting(f"pace.{key}", Kind.DURATION, round(getattr(PACE, key) * 1_000), description)


def _doctor(key: str, kind: Kind, description: str) -> Setting:
    return Setting(f"doctor.{key}", kind, getattr(TOLERANCE, key), description)


def _requests(kind: str) -> tuple[Setting, Setting]:
    long, often = f"How long a delivery of a {kind} may go unanswered.", f"How often a {kind} is delivered again."
    timeout = Setting(f"requests.{kind}_timeout", Kind.DURATION, REQUESTS[kind].timeout, long)
    return timeout, Setting(f"requests.{kind}_retries", Kind.COUNT, REQUESTS[kind].retries, often)


def _worker(key: str, kind: Kind, default: float, description: str) -> Setting:
    return Setting(f"worker.{key}", kind, int(default), description)


_LAYERS = Layers()
_SCOPES = {
    ScopeKind.FLOW: "a flow",
    ScopeKind.STEP: "a step",
    ScopeKind.LLM_CALL: "a call of a model",
    ScopeKind.TOOL: "a tool",
}

_ALL = (
    Setting(
        "store",
        Kind.TEXT,
        None,
        "Where the watch lives: sqlite:///path, postgresql://… or memory:. By default the nearest .allswell/ upward,"
        " or a new one here. In a file, a relative path counts from that file's folder.",
    ),
    # How one attempt is limited and watched.
    _policy("agent_timeout", Kind.DURATION, "timeout", "The hard limit of one attempt; it never moves."),
    _policy(
        "idle",
        Kind.DURATION,
        "idle",
        "Ends an attempt that has given no proof of progress for so long. A role with a shorter agent_timeout does"
        " not inherit it.",
        none="off",
    ),
    _policy("checkpoint_interval", Kind.DURATION, "checkpoint_interval", "How often a holder is asked for a check-in."),
    _policy(
        "checkpoint_timeout",
        Kind.DURATION,
        "checkpoint_timeout",
        "How long it has to answer. The wait runs beside the attempt's own clock.",
    ),
    _policy(
        "stall_threshold",
        Kind.COUNT,
        "stall_threshold",
        "After so many missed check-ins in a row an agent is stalled, and its task is taken back.",
    ),
    _policy(
        "timeout_escalation",
        Kind.COUNT,
        "timeout_escalation",
        "After so many timeouts (or stalls) of one task a human is asked.",
    ),
    _policy(
        "recovery_grace",
        Kind.DURATION,
        "recovery_grace",
        "How long a stalled agent's supervisor has to end it before the task is taken back anyway.",
    ),
    # What attempts may cost.
    Setting(
        "max_cost_usd",
        Kind.MONEY,
        None,
        "What the attempts at one task may cost together, in dollars, as the agents report it; then it is ended, its"
        " work kept, and a human asked.",
        per_role=True,
        none="off",
    ),
    Setting(
        "max_cost_usd_per_day",
        Kind.MONEY,
        None,
        "What may be spent in a day (UTC), in dollars; of a role, on tasks of that role. Then nothing more is begun"
        " until the day is over or a human says so.",
        per_role=True,
        none="off",
    ),
    # What must pass before "done" counts.
    Setting(
        "verify",
        Kind.COMMAND,
        None,
        'The command that verifies a task, in the folder of its attempt, before "done" counts. A list of words, or a'
        " text that is split into words; no shell reads it.",
        per_role=True,
        none="off",
    ),
    _policy(
        "verify_timeout",
        Kind.DURATION,
        "verify_timeout",
        "How long that command may take; it is also bounded by what the attempt has left.",
    ),
    _policy(
        "verify_attempts",
        Kind.COUNT,
        "verify_attempts",
        "After so many failed verifications of a task a human is asked; until then it goes back to its agent.",
    ),
    # How long scopes may take.
    *(_timeout(kind, what) for kind, what in _SCOPES.items()),
    *(_hard_limit(kind, what) for kind, what in _SCOPES.items()),
    Setting(
        "scope_grace",
        Kind.DURATION,
        LIMITS.grace,
        "How long what has been told to stop may take to do so before it is killed or given up.",
    ),
    # What follows a failure.
    _policy("retry.backoff", Kind.DURATION, "retry.backoff", "The first pause before a retry; each is twice the last."),
    _policy("retry.jitter", Kind.SHARE, "retry.jitter", "At most this share of a pause is added to it by chance."),
    _policy(
        "retry.retry_after_default",
        Kind.DURATION,
        "retry.retry_after_default",
        "How long a rate limit is waited out when it does not say how long.",
    ),
    _policy(
        "retry.retry_after_cap",
        Kind.DURATION,
        "retry.retry_after_cap",
        "A longer wait that a provider asks for parks the service for everybody, and no attempt is spent.",
    ),
    _policy(
        "retry.max_attempts",
        Kind.COUNT,
        "retry.max_attempts",
        "A total over all kinds of failure, the first attempt included.",
    ),
    _policy(
        "retry.retries",
        Kind.COUNT,
        "retry.retries",
        "Replaces the number of retries of every kind of failure that is retried at all.",
        none="by_class",
    ),
    _policy(
        "retry.timeouts",
        Kind.COUNT,
        "retry.timeouts",
        "Where set, a task is tried again so often in all, timeouts and failures together; then a human is asked.",
        none="off",
    ),
    # When a service is left alone.
    _breaker("open_after", Kind.COUNT, "After so many failures of a service in a row nobody calls it for a pause."),
    _breaker("pause", Kind.DURATION, "How long it is left alone before one caller may probe it."),
    _breaker("escalate_after", Kind.COUNT, "After so many failures of a service in a row a human is asked."),
    _breaker(
        "probe_lease",
        Kind.DURATION,
        "A probe that has not come back by then has failed; never less than the limit of a call of a model.",
    ),
    _breaker(
        "then",
        Kind.CHOICE,
        "Once a human is asked: go on with one probe per pause, or wait for the answer.",
        choices=get_args(Then),
    ),
    Setting(
        "breaker.first_call",
        Kind.CHOICE,
        "fail",
        "What a first attempt does that finds the breaker open: fail at once, or wait out the pause. Retries always"
        " wait, if their time allows.",
        choices=("fail", "wait"),
    ),
    # What the supervisor goes by.
    Setting(
        "delegation_timeout",
        Kind.DURATION,
        DELEGATION_TIMEOUT,
        "The limit of work that an agent hands to an expert; never more than its own attempt has left.",
        per_role=True,
    ),
    Setting(
        "context_threshold",
        Kind.PERCENT,
        10,
        "When so much of the context is left, check-ins are collected and compaction is triggered.",
    ),
    Setting(
        "session_threshold",
        Kind.PERCENT,
        10,
        "When so much of the session is left, nothing new is dispatched until it is reset.",
    ),
    Setting("session_margin", Kind.DURATION, SESSION_MARGIN, "How long after its reset a session is used again."),
    Setting(
        "usage_limits",
        Kind.CHOICE,
        "park",
        "What an agent's usage limit does: park its account and give the task back with no attempt spent, or fail the"
        " attempt like any other error.",
        choices=("park", "fail"),
    ),
    Setting(
        "usage_limit_pause",
        Kind.DURATION,
        USAGE_LIMIT_PAUSE,
        "How long an account is parked, or a session left alone, that does not say when it can be used again.",
    ),
    Setting(
        "pause_on_question",
        Kind.CHOICE,
        "task",
        "What an open question about a task holds back: that task, every task of its run, or all of them.",
        choices=("task", "run", "all"),
    ),
    Setting(
        "socket_speakers",
        Kind.CHOICE,
        "attempt",
        "Who may speak through an attempt's socket: only its own processes (`attempt`), or whoever knows its secret"
        " (`secret`), for agents in containers or in a tmux that was there before.",
        choices=("attempt", "secret"),
    ),
    Setting(
        "question_reminder",
        Kind.DURATION,
        3_600_000,
        "How often a supervisor reminds of questions that nobody has answered.",
        none="off",
    ),
    Setting(
        "fleet.lease",
        Kind.DURATION,
        30_000,
        "A supervisor that is dead for so long loses its tasks to others.",
    ),
    Setting(
        "fleet.stop",
        Kind.DURATION,
        30_000,
        "How long agents may finish what they are at when their supervisor is told to stop.",
    ),
    # What one attempt may put into the store.
    Setting("quota.requests", Kind.COUNT, QUOTA.requests, "So many requests to other agents may an attempt make."),
    Setting("quota.questions", Kind.COUNT, QUOTA.questions, "So many questions may an attempt ask while it goes on."),
    Setting(
        "quota.bytes",
        Kind.SIZE,
        QUOTA.bytes,
        "So much may an attempt write in requests, questions and notes. Beyond that those are refused, and check-ins"
        " are merged: never refused, for that would make it look stalled.",
    ),
    # When it is told that a task is still blocked.
    Setting("mesh.escalate", Kind.DURATION, ESCALATION.after, "How long until the mesh is told of a blocked task."),
    Setting("mesh.remind", Kind.DURATION, ESCALATION.remind, "How often it is told again.", none="never"),
    # Requests between agents.
    *(setting for kind in REQUESTS for setting in _requests(kind)),
    Setting("webhook_hosts", Kind.CHOICE, "public", "Where webhook requests may go.", choices=("public", "private")),
    # How messages are handled: the seed's figures. (The rules that hold them together: `domain.arithmetic.worker`.)
    Setting(
        "worker.statement_timeout",
        Kind.DURATION,
        _LAYERS.statement_timeout,
        "PostgreSQL ends a statement of a handler that takes longer.",
    ),
    Setting(
        "worker.visibility_timeout",
        Kind.SECONDS,
        _LAYERS.visibility_timeout,
        "How long a message that was read is hidden from other workers.",
    ),
    Setting(
        "worker.pool_timeout",
        Kind.SECONDS,
        30,
        "How long is waited for a connection when all are in use.",
    ),
    _worker(
        "stuck_grace", Kind.SECONDS, _LAYERS.stuck_grace, "So long after its message shows again a handler is stuck."
    ),
    _worker("concurrency", Kind.COUNT, _LAYERS.concurrency, "How many messages a worker's process handles at a time."),
    _worker(
        "poison_after", Kind.COUNT, MESSAGES.poison_after, "A message read so often without an end is quarantined."
    ),
    Setting(
        "worker.retry_pauses",
        Kind.TEXT,
        ", ".join(f"{pause // 1_000}s" for pause in MESSAGES.pauses),
        "The pauses before a message is tried again, with commas between; there are as many retries as pauses.",
    ),
    _worker("degraded_after", Kind.COUNT, HEALTH.degraded_after, "So many failures in a row degrade a worker."),
    _worker("critical_stuck", Kind.COUNT, HEALTH.critical_stuck, "So many stuck handlers are critical."),
    _worker(
        "critical_exhausted",
        Kind.COUNT,
        HEALTH.critical_exhausted,
        "So many waits in vain for a connection are critical.",
    ),
    _worker("health_window", Kind.DURATION, HEALTH.window, "Only what happened within so long counts as critical."),
    _worker("max_lifetime", Kind.SECONDS, 3_600, "A connection of a worker's pool is made anew after so long."),
    _worker("max_idle", Kind.SECONDS, 600, "A connection that a worker's pool has too many goes after so long."),
    _worker("reconnect_timeout", Kind.SECONDS, 300, "How long a worker's pool tries to get a connection back."),
    _worker("poll_interval", Kind.SECONDS, 1, "How often a worker looks for messages when nobody tells of any."),
    _worker("stop_timeout", Kind.SECONDS, 10, "How long handlers may go on when their worker is told to stop."),
    # How patient the engine is.
    _pace("store_patience", "How long a command waits for a store that cannot be reached before it gives up."),
    _pace("retry_first", "The first pause before a store that failed is tried again; each is twice the last."),
    _pace("retry_most", "The longest such pause."),
    _pace("claim_poll", "How often a waiting claim looks again by itself."),
    _pace("sweep_most", "The longest a sweeper sleeps when nothing is due."),
    _pace("sweep_busy", "A sweeper's pause when what is due is locked by another one."),
    _pace("set_aside", "How long a timer that could not be handled is left alone."),
    _pace("follow_poll", "How often a follower of the journal looks again by itself."),
    _pace("service_trust", "How long a guard goes by what it last heard of a service that nothing is held against."),
    _pace("service_patience", "How long a guard waits for the store before it goes by its own process's breakers."),
    _pace("clock_jump", "Clocks drifting apart by more than this is a jump: the machine slept, or its clock was set."),
    # Where `allswell doctor` draws the line.
    _doctor("overdue", Kind.DURATION, "How long something may be due before the doctor says that nobody sweeps."),
    _doctor("unclaimed", Kind.DURATION, "How long a task may be ready with nobody at work on its role."),
    _doctor("behind", Kind.DURATION, "How old the first event that a follower has not read may be."),
    _doctor("shut", Kind.DURATION, "How long a service's breaker may stay open."),
    _doctor("clock_skew", Kind.DURATION, "How far the store's clock and this machine's may differ."),
    _doctor("disk_free", Kind.SIZE, "What should be free on the disk of an SQLite store."),
)

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _ALL}
PER_ROLE = tuple(setting.name for setting in _ALL if setting.per_role)
TABLES = frozenset(name.partition(".")[0] for name in SETTINGS if "." in name) | {"roles"}
ROLES: Mapping[str, Mapping[str, Value]] = {
    "auditor": {"agent_timeout": 600_000},
    "critic": {"agent_timeout": 600_000},
    "remediation": {"agent_timeout": 300_000},
}
"""What roles have of their own by default."""

"""The catalogue of settings: one entry for each, from which loading, `allswell config`, the schema and the docs follow.

Names are those of the documents Allswell comes from, in lower case. Defaults are not written here: they are those of
`Policy`, `Limits`, `BuildLimits`, `BreakerPolicy`, `Quota`, `Timings` and `HealthThresholds`, so that there is one
truth. At the end it is a JSON Schema, for editors that complete and check `allswell.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from allswell.domain.agents.evidence import REPEAT_LIMIT, SILENCE
from allswell.domain.agents.quota import DEFAULT as QUOTA
from allswell.domain.agents.usage import SESSION_MARGIN, USAGE_LIMIT_PAUSE
from allswell.domain.build.limits import BUILD
from allswell.domain.mesh.request import ESCALATION
from allswell.domain.mesh.request import KINDS as REQUESTS
from allswell.domain.scopes import DEFAULT as LIMITS
from allswell.domain.scopes import ScopeKind
from allswell.domain.service.breaker import DEFAULT as BREAKER
from allswell.domain.service.breaker import Then
from allswell.domain.task.model import DEFAULT as POLICY
from allswell.domain.task.model import DELEGATION_TIMEOUT
from allswell.domain.values import hide
from allswell.domain.worker.limits import HEALTH, Layers
from allswell.domain.worker.message import MESSAGES
from allswell.engine.timings import DEFAULT_PACE as PACE
from allswell.engine.timings import DEFAULT_TOLERANCE as TOLERANCE
from allswell.settings.values import SettingKind, Value, described, read_value, shape, show_value

PREFIX = "ALLSWELL_"


class Setting(msgspec.Struct, frozen=True):
    """One setting."""

    name: str
    """With its table: `retry.backoff`."""
    kind: SettingKind
    default: Value
    description: str
    per_role: bool = False
    """Whether a role can have its own: `[roles.critic]`."""
    none: str | None = None
    """The word that stands for "no value", where there may be none."""
    choices: tuple[str, ...] = ()
    """What a choice is made from."""

    def env(self, role: str | None = None) -> str:
        """The variable of the environment that sets it, for all or for a role."""
        path = self.name if role is None else f"roles.{role}.{self.name}"
        return PREFIX + path.upper().replace(".", "_")

    def read(self, raw: object) -> Value:
        """The value that a source gives. Text is read as a number where one is wanted: an environment has only text."""
        if self.none is not None and raw == self.none:
            return None
        also = "" if self.none is None else f', or "{self.none}"'
        shown = hide(raw) if self.name == "store" and isinstance(raw, str) else raw
        value: Value = read_value(self.choices or self.kind, raw, self.name, f"{also}, not {described(shown)}")
        return value

    def show(self, value: Value) -> str:
        """A value as people read it, and as a file would take it; passwords are never shown."""
        return self.none or "-" if value is None else show_value(self.kind, value)


NOT_SETTINGS = frozenset(
    PREFIX + name
    for name in (
        *("SOCKET", "SECRET", "TASK", "TOKEN", "AGENT", "ATTEMPT", "DEADLINE", "HANDOVER", "DEBUG"),
        *("KEY", "KEY_FILE", "TRUST"),
        *("ORDERS", "PROMPT", "WORK", "MARKER"),
    )
)
"""What a supervised agent finds in its environment about its own lease, how to see the story of a bug, and keys."""


def _policy(name: str, kind: SettingKind, field: str, description: str, none: str | None = None) -> Setting:
    table, _, key = field.rpartition(".")
    default: Value = getattr(POLICY.retry if table else POLICY, key)
    return Setting(name, kind, default, description, per_role=True, none=none)


def _timeout(kind: ScopeKind, what: str) -> Setting:
    return Setting(
        f"timeouts.{kind}", SettingKind.DURATION, LIMITS.timeout(kind), f"The limit of {what} that names none."
    )


def _hard_limit(kind: ScopeKind, what: str) -> Setting:
    text = f"The most that {what} may name; only a timeout_override goes beyond."
    return Setting(f"hard_limits.{kind}", SettingKind.DURATION, LIMITS.hard_limit(kind), text)


def _breaker(key: str, kind: SettingKind, description: str, choices: tuple[str, ...] = ()) -> Setting:
    return Setting(f"breaker.{key}", kind, getattr(BREAKER, key), description, choices=choices)


def _pace(key: str, description: str) -> Setting:
    return Setting(f"pace.{key}", SettingKind.DURATION, round(getattr(PACE, key) * 1_000), description)


def _doctor(key: str, kind: SettingKind, description: str) -> Setting:
    return Setting(f"doctor.{key}", kind, getattr(TOLERANCE, key), description)


def _build(key: str, kind: SettingKind, description: str) -> Setting:
    return Setting(f"build.{key}", kind, getattr(BUILD, "build" if key == "limit" else key), description)


def _requests(kind: str) -> tuple[Setting, Setting]:
    long, often = f"How long a delivery of a {kind} may go unanswered.", f"How often a {kind} is delivered again."
    timeout = Setting(f"requests.{kind}_timeout", SettingKind.DURATION, REQUESTS[kind].timeout, long)
    return timeout, Setting(f"requests.{kind}_retries", SettingKind.COUNT, REQUESTS[kind].retries, often)


def _worker(key: str, kind: SettingKind, default: float, description: str) -> Setting:
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
        SettingKind.TEXT,
        None,
        "The store: sqlite:///path, postgresql://… or memory:. By default the nearest .allswell/ upward,"
        " or a new one here. In a file, a relative path counts from that file's folder.",
    ),
    # How one attempt is limited and watched.
    _policy("agent_timeout", SettingKind.DURATION, "timeout", "The hard limit of one attempt; it never moves."),
    _policy(
        "idle",
        SettingKind.DURATION,
        "idle",
        "Ends an attempt that has shown no progress for this time. A role with a shorter agent_timeout does"
        " not inherit it.",
        none="off",
    ),
    Setting(
        "repeat_limit",
        SettingKind.COUNT,
        REPEAT_LIMIT,
        "After this number of rounds of the same tool call with the same answer, or of two calls in turn, that is no"
        " progress any more; after twice as many a human is asked. Agents can have their own.",
        none="off",
    ),
    _policy(
        "checkpoint_interval",
        SettingKind.DURATION,
        "checkpoint_interval",
        "How often a holder is asked for a check-in.",
    ),
    _policy(
        "checkpoint_timeout",
        SettingKind.DURATION,
        "checkpoint_timeout",
        "How long it has to answer. The wait runs beside the attempt's own clock.",
    ),
    _policy(
        "stall_threshold",
        SettingKind.COUNT,
        "stall_threshold",
        "After this number of missed check-ins in a row an agent is stalled, and its task is taken back.",
    ),
    _policy(
        "timeout_escalation",
        SettingKind.COUNT,
        "timeout_escalation",
        "After this number of timeouts (or stalls) of one task a human is asked.",
    ),
    _policy(
        "recovery_grace",
        SettingKind.DURATION,
        "recovery_grace",
        "How long a stalled agent's supervisor has to end it before the task is taken back anyway.",
    ),
    # `allswell run -- COMMAND`: a person's own command has no limit that nobody asked for.
    Setting(
        "run_timeout",
        SettingKind.DURATION,
        None,
        "The hard limit of each attempt of `allswell run -- COMMAND`. The fleet's is agent_timeout.",
        none="off",
    ),
    Setting(
        "run_idle",
        SettingKind.DURATION,
        None,
        "Ends a command under `allswell run` that has shown no progress for this time. The fleet's is idle.",
        none="off",
    ),
    Setting(
        "run_silence",
        SettingKind.DURATION,
        SILENCE,
        "After this time without progress `allswell run` says so, in a line and by an alert; it ends nothing.",
        none="off",
    ),
    # What attempts may cost.
    Setting(
        "max_cost_usd",
        SettingKind.MONEY,
        None,
        "What the attempts at one task may cost together, in dollars, as the agents report it; then it is ended, its"
        " work kept, and a human asked.",
        per_role=True,
        none="off",
    ),
    Setting(
        "max_tokens",
        SettingKind.COUNT,
        None,
        "How many tokens the attempts at one task may use together, in and out, those from a cache included, as the"
        " agents report them; then it is ended, its work kept, and a human asked.",
        per_role=True,
        none="off",
    ),
    Setting(
        "max_cost_usd_per_day",
        SettingKind.MONEY,
        None,
        "What may be spent in a day (UTC), in dollars; of a role, on tasks of that role. Then nothing more is begun"
        " until the day is over or a human says so.",
        per_role=True,
        none="off",
    ),
    # What must pass before "done" counts.
    Setting(
        "verify",
        SettingKind.COMMAND,
        None,
        'The command that verifies a task, in the folder of its attempt, before "done" counts. A list of words, or a'
        " text that is split into words; no shell reads it.",
        per_role=True,
        none="off",
    ),
    _policy(
        "verify_timeout",
        SettingKind.DURATION,
        "verify_timeout",
        "How long that command may take; it is also bounded by what the attempt has left.",
    ),
    _policy(
        "verify_attempts",
        SettingKind.COUNT,
        "verify_attempts",
        "After this number of failed verifications of a task a human is asked; until then it goes back to its agent.",
    ),
    # What a task in a worktree begins with.
    Setting(
        "bring_needs",
        SettingKind.FLAG,
        False,
        "Whether a task in a worktree begins with the branches of what it needs, merged. `allswell init` sets it.",
    ),
    Setting(
        "conflict_role",
        SettingKind.TEXT,
        None,
        "The role whose agent, in a worktree, gets once what does not merge then, to resolve it. Otherwise a human is"
        " asked.",
        none="off",
    ),
    # How long scopes may take.
    *(_timeout(kind, what) for kind, what in _SCOPES.items()),
    *(_hard_limit(kind, what) for kind, what in _SCOPES.items()),
    Setting(
        "scope_grace",
        SettingKind.DURATION,
        LIMITS.grace,
        "How long something that was told to stop may take before it is killed or given up.",
    ),
    # What follows a failure.
    _policy(
        "retry.backoff",
        SettingKind.DURATION,
        "retry.backoff",
        "The first pause before a retry; each is twice the last.",
    ),
    _policy(
        "retry.jitter", SettingKind.SHARE, "retry.jitter", "At most this share of a pause is added to it by chance."
    ),
    _policy(
        "retry.retry_after_default",
        SettingKind.DURATION,
        "retry.retry_after_default",
        "How long a rate limit is waited out when it does not say how long.",
    ),
    _policy(
        "retry.retry_after_cap",
        SettingKind.DURATION,
        "retry.retry_after_cap",
        "A longer wait that a provider asks for parks the service for all tasks, and no attempt is used up.",
    ),
    _policy(
        "retry.max_attempts",
        SettingKind.COUNT,
        "retry.max_attempts",
        "A total over all kinds of failure, the first attempt included.",
    ),
    _policy(
        "retry.retries",
        SettingKind.COUNT,
        "retry.retries",
        "Replaces the number of retries of every kind of failure that is retried at all.",
        none="by_class",
    ),
    _policy(
        "retry.timeouts",
        SettingKind.COUNT,
        "retry.timeouts",
        "If set: the number of retries of a task in all, after timeouts and failures together; then a human is asked.",
        none="off",
    ),
    # When a service is left alone.
    _breaker(
        "open_after", SettingKind.COUNT, "After this number of failures in a row a service is not called for a pause."
    ),
    _breaker("pause", SettingKind.DURATION, "How long it is not called before one caller may probe it."),
    _breaker(
        "escalate_after", SettingKind.COUNT, "After this number of failures of a service in a row a human is asked."
    ),
    _breaker(
        "probe_lease",
        SettingKind.DURATION,
        "A probe that has not come back by then has failed; never less than the limit of a call of a model.",
    ),
    _breaker(
        "then",
        SettingKind.CHOICE,
        "Once a human is asked: go on with one probe per pause, or wait for the answer.",
        choices=get_args(Then),
    ),
    Setting(
        "breaker.first_call",
        SettingKind.CHOICE,
        "fail",
        "What a first attempt does that finds the breaker open: fail at once, or wait out the pause. Retries always"
        " wait, if their time allows.",
        choices=("fail", "wait"),
    ),
    # What the supervisor goes by.
    Setting(
        "delegation_timeout",
        SettingKind.DURATION,
        DELEGATION_TIMEOUT,
        "The limit of work that an agent hands to an expert; never more than its own attempt has left.",
        per_role=True,
    ),
    Setting(
        "context_threshold",
        SettingKind.PERCENT,
        10,
        "When so much of the context is left, check-ins are collected and compaction is triggered.",
    ),
    Setting(
        "session_threshold",
        SettingKind.PERCENT,
        10,
        "When so much of the session is left, nothing new is dispatched until it is reset.",
    ),
    Setting(
        "session_margin", SettingKind.DURATION, SESSION_MARGIN, "How long after its reset a session is used again."
    ),
    Setting(
        "usage_limits",
        SettingKind.CHOICE,
        "park",
        "What an agent's usage limit does: park its account and give the task back with no attempt spent, or fail the"
        " attempt like any other error.",
        choices=("park", "fail"),
    ),
    Setting(
        "usage_limit_pause",
        SettingKind.DURATION,
        USAGE_LIMIT_PAUSE,
        "How long an account or a session is paused that does not say when it can be used again.",
    ),
    Setting(
        "pause_on_question",
        SettingKind.CHOICE,
        "task",
        "What an open question about a task holds back: that task, every task of its run, or all of them.",
        choices=("task", "run", "all"),
    ),
    Setting(
        "socket_speakers",
        SettingKind.CHOICE,
        "attempt",
        "Who may speak through an attempt's socket: only its own processes (`attempt`), or every process that"
        " knows its secret (`secret`), for agents in containers or in a tmux that was there before.",
        choices=("attempt", "secret"),
    ),
    Setting(
        "question_reminder",
        SettingKind.DURATION,
        3_600_000,
        "How often a supervisor reminds of open questions.",
        none="off",
    ),
    Setting(
        "fleet.lease",
        SettingKind.DURATION,
        30_000,
        "A supervisor that is dead for this time loses its tasks to others.",
    ),
    Setting(
        "fleet.stop",
        SettingKind.DURATION,
        30_000,
        "How long agents may finish their work when their supervisor is told to stop.",
    ),
    # What one attempt may put into the store.
    Setting(
        "quota.requests", SettingKind.COUNT, QUOTA.requests, "So many requests to other agents may an attempt make."
    ),
    Setting(
        "quota.questions", SettingKind.COUNT, QUOTA.questions, "So many questions may an attempt ask while it goes on."
    ),
    Setting(
        "quota.bytes",
        SettingKind.SIZE,
        QUOTA.bytes,
        "So much may an attempt write in requests, questions and notes. Beyond that those are refused, and check-ins"
        " are merged: never refused, for that would make it look stalled.",
    ),
    Setting(
        "quota.key_requests",
        SettingKind.COUNT,
        QUOTA.key_requests,
        "Requests to agents that a key may make in a minute.",
    ),
    Setting("quota.key_questions", SettingKind.COUNT, QUOTA.key_questions, "Questions that a key may ask in a minute."),
    Setting(
        "quota.key_bytes", SettingKind.SIZE, QUOTA.key_bytes, "Bytes that a key may put into the store in a minute."
    ),
    # When it is told that a task is still blocked.
    Setting(
        "mesh.escalate",
        SettingKind.DURATION,
        ESCALATION.after,
        "Time until the mesh channel is notified of a blocked task.",
    ),
    Setting("mesh.remind", SettingKind.DURATION, ESCALATION.remind, "How often it is notified again.", none="never"),
    Setting(
        "public_url",
        SettingKind.TEXT,
        None,
        "The address under which people elsewhere reach `allswell serve`, such as https://watch.example.org. Where it"
        " is https, alerts about questions have links that answer them.",
        none="off",
    ),
    # Requests between agents.
    *(setting for kind in REQUESTS for setting in _requests(kind)),
    Setting(
        "webhook_hosts", SettingKind.CHOICE, "public", "Where webhook requests may go.", choices=("public", "private")
    ),
    # A build: the seed's figures. `allswell coordinate` has an option for each.
    _build("progress_every", SettingKind.DURATION, "How often a builder must say PROGRESS."),
    _build(
        "misses",
        SettingKind.COUNT,
        "PROGRESS messages that a builder may miss in a row; then its component is free again.",
    ),
    _build("claim_window", SettingKind.DURATION, "Claims so close together are decided by the chat server's clock."),
    _build("audit_timeout", SettingKind.DURATION, "So long after READY without a verdict it is announced again."),
    _build("tasks_every", SettingKind.DURATION, "How often open components are announced again."),
    _build("audit_failures", SettingKind.COUNT, "Failed audits after which another builder takes over."),
    _build("aborts", SettingKind.COUNT, "Ask a human about a component given back this often."),
    _build("limit", SettingKind.DURATION, "So long a whole build may take; then a human is asked."),
    # How messages are handled: the seed's figures. (The rules that hold them together: `domain.check.fleet`.)
    Setting(
        "worker.statement_timeout",
        SettingKind.DURATION,
        _LAYERS.statement_timeout,
        "PostgreSQL ends a statement of a handler that takes longer.",
    ),
    Setting(
        "worker.visibility_timeout",
        SettingKind.SECONDS,
        _LAYERS.visibility_timeout,
        "How long a message that was read is hidden from other workers.",
    ),
    Setting(
        "worker.pool_timeout",
        SettingKind.SECONDS,
        30,
        "How long is waited for a connection when all are in use.",
    ),
    _worker(
        "stuck_grace",
        SettingKind.SECONDS,
        _LAYERS.stuck_grace,
        "So long after its message shows again a handler is stuck.",
    ),
    _worker(
        "concurrency", SettingKind.COUNT, _LAYERS.concurrency, "How many messages a worker's process handles at a time."
    ),
    _worker(
        "poison_after",
        SettingKind.COUNT,
        MESSAGES.poison_after,
        "A message that was read this often without an end is quarantined.",
    ),
    _worker(
        "unknown_type_pause",
        SettingKind.DURATION,
        MESSAGES.unknown_pause,
        "How long a message of a type without a handler waits for one, as in a rolling deploy.",
    ),
    _worker(
        "unknown_type_rounds",
        SettingKind.COUNT,
        MESSAGES.unknown_rounds,
        "How often it waits before it is quarantined.",
    ),
    _worker("long_timeout", SettingKind.SECONDS, 3_600, "How long a handler may run that is marked long."),
    Setting(
        "worker.retry_pauses",
        SettingKind.TEXT,
        ", ".join(f"{pause // 1_000}s" for pause in MESSAGES.pauses),
        "The pauses before a message is tried again, with commas between; there are as many retries as pauses.",
    ),
    _worker("degraded_after", SettingKind.COUNT, HEALTH.degraded_after, "So many failures in a row degrade a worker."),
    _worker("critical_stuck", SettingKind.COUNT, HEALTH.critical_stuck, "So many stuck handlers are critical."),
    _worker(
        "critical_exhausted",
        SettingKind.COUNT,
        HEALTH.critical_exhausted,
        "So many waits in vain for a connection are critical.",
    ),
    _worker("health_window", SettingKind.DURATION, HEALTH.window, "Only events within this time count as critical."),
    _worker("max_lifetime", SettingKind.SECONDS, 3_600, "A worker's database connection is replaced after this time."),
    _worker("max_idle", SettingKind.SECONDS, 600, "A worker's spare database connection is closed after this time."),
    _worker(
        "reconnect_timeout", SettingKind.SECONDS, 300, "How long a worker tries to get a database connection back."
    ),
    _worker("poll_interval", SettingKind.SECONDS, 1, "How often a worker looks for messages without a notification."),
    _worker(
        "stop_timeout", SettingKind.SECONDS, 10, "How long handlers may continue when their worker is told to stop."
    ),
    # How patient the engine is.
    _pace("store_patience", "How long a command waits for a store that cannot be reached before it gives up."),
    _pace("retry_first", "The first pause before a store that failed is tried again; each is twice the last."),
    _pace("retry_most", "The longest such pause."),
    _pace("claim_poll", "How often a waiting claim looks again by itself."),
    _pace("sweep_most", "Longest pause between two checks of time limits."),
    _pace("sweep_busy", "Pause when what is due is locked by another process."),
    _pace("set_aside", "How long a timer that could not be handled is skipped."),
    _pace("follow_poll", "How often a follower of the journal looks again by itself."),
    _pace("service_trust", "How long a guard goes by what it last heard of a service that nothing is held against."),
    _pace("service_patience", "How long a guard waits for the store before it goes by its own process's breakers."),
    _pace("clock_jump", "Clocks drifting apart by more than this is a jump: the machine slept, or its clock was set."),
    # Where `allswell` and `allswell doctor` draw the line.
    _doctor(
        "overdue",
        SettingKind.DURATION,
        "How long something may be due before `doctor` says that no process enforces time limits.",
    ),
    _doctor("unclaimed", SettingKind.DURATION, "How long a task may be ready without an agent that takes it."),
    _doctor("behind", SettingKind.DURATION, "How old the first event that a follower has not read may be."),
    _doctor("shut", SettingKind.DURATION, "How long a service's breaker may stay open."),
    _doctor("parked", SettingKind.DURATION, "How long a service or an account may be parked."),
    _doctor("clock_skew", SettingKind.DURATION, "How far the store's clock and this machine's may differ."),
    _doctor("disk_free", SettingKind.SIZE, "What should be free on the disk of an SQLite store."),
)

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _ALL}
PER_ROLE = tuple(setting.name for setting in _ALL if setting.per_role)
NAMED_TABLES = ("agents", "usage", "compaction", "prices", "sinks", "hooks", "webhook_secrets")
"""Tables that are not settings by name; `tables.py` reads them."""
TABLES = frozenset(name.partition(".")[0] for name in SETTINGS if "." in name) | {"roles"}
ROLES: Mapping[str, Mapping[str, Value]] = {
    "auditor": {"agent_timeout": 600_000},
    "critic": {"agent_timeout": 600_000},
    "remediation": {"agent_timeout": 300_000},
}
"""What roles have of their own by default."""


def schema() -> dict[str, Any]:
    """What `allswell.toml` may hold."""
    from allswell.settings.tables import AGENT, COMPACTION, HOOK, PRICE, SINK, USAGE

    top: dict[str, Any] = {}
    for setting in SETTINGS.values():
        _place(top, setting)
    role: dict[str, Any] = {}
    for name in PER_ROLE:
        _place(role, SETTINGS[name], default=False)
    top["roles"] = {
        "type": "object",
        "description": "What tasks of a role have of their own.",
        "additionalProperties": _table(role),
        "default": {name: dict(own) for name, own in ROLES.items()},
    }
    top["agents"] = {
        "type": "object",
        "description": "The agents of the fleet: each a command, a function of Python, or remote.",
        "additionalProperties": _table({name: shape(kind) for name, kind in AGENT.items()}),
    }
    price = _table({name: shape(kind) for name, kind in PRICE.items()})
    top["prices"] = {
        "type": "object",
        "description": "By how the names of models begin, what a million of their tokens cost, in dollars: for costs"
        " that a client has not told yet. Tokens of the cache cost what is said, else as much as others.",
        "additionalProperties": price | {"required": ["input", "output"]},
    }
    top["sinks"] = {
        "type": "object",
        "description": "Who is notified: webhooks, alerts, a log in Notion.",
        "additionalProperties": _table({name: shape(kind) for name, kind in SINK.items()}),
    }
    top["hooks"] = {
        "type": "object",
        "description": "Signed webhooks that the server takes at /hooks/NAME, and what is done with them.",
        "additionalProperties": _table({name: shape(kind) for name, kind in HOOK.items()}),
    }
    top["webhook_secrets"] = {
        "type": "object",
        "description": "By host, the variables that hold what signs webhook requests to it; `*` is every other host.",
        "additionalProperties": shape(SettingKind.ONE_OR_MORE),
    }
    top["usage"] = _table({name: shape(kind) for name, kind in USAGE.items()})
    top["compaction"] = _table({name: shape(kind) for name, kind in COMPACTION.items()})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of Allswell",
        **_table(top),
    }


def _place(tables: dict[str, Any], setting: Setting, *, default: bool = True) -> None:
    table, _, key = setting.name.rpartition(".")
    properties = tables.setdefault(table, _table({}))["properties"] if table else tables
    properties[key] = _shape(setting, default=default)


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _shape(setting: Setting, *, default: bool) -> dict[str, Any]:
    made = shape(setting.choices or setting.kind, setting.none)
    made["description"] = setting.description
    if default and (setting.default is not None or setting.none is not None):
        made["default"] = setting.none if setting.default is None else setting.default
    return made

"""A sink as it is written down in `[sinks.NAME]`: who is told, of what, and how patiently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from allswell.domain.mesh.comms import CHANNEL_HEARS as MESH_HEARS
from allswell.domain.mesh.comms import COMMS_HEARS as COMM_HEARS
from allswell.domain.notify.delivery import DeliveryRetries
from allswell.domain.rules.event import KINDS
from allswell.domain.values import nearest, wrong_with_template
from allswell.errors import Refused

EVERYTHING = "everything"
MESH = "mesh"
"""What the mesh's channel hears of, in the protocol's own sentences."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "tasks": tuple(kind for kind in KINDS if kind.startswith("task_")),
    "questions": ("question_asked", "question_answered", "question_withdrawn", "questions_open"),
    "requests": COMM_HEARS,
    "runs": tuple(kind for kind in KINDS if kind.startswith("run_")),
    "agents": tuple(kind for kind in KINDS if kind.startswith(("agent_", "checkpoint_", "stalled_"))),
    "services": tuple(kind for kind in KINDS if kind.startswith(("service_", "breaker_", "rate_"))),
    MESH: MESH_HEARS,
    "sinks": ("sink_down", "delivery_made", "delivery_given_up"),
}
"""Kinds of events that are named together."""

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MINUTES = 24 * 60


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `[sinks]`; lengths of time are milliseconds."""

    name: str
    kind: Literal["webhook", "alerts", "chat", "notion", ""] = ""
    hears: tuple[str, ...] = ()
    """Kinds of events or groups of them; empty: what its kind of sink is for."""
    begins: Literal["now", "start"] = "now"
    """Where in the journal it begins when it is new."""
    timeout: int = 30_000
    retries: int = 3
    apart: int = 30_000
    give_up: int = 86_400_000
    url: str = ""
    """Where a webhook goes; a chat server; of Notion, another server that speaks its API."""
    channel: str = ""
    speaks_as: str = "allswell"
    key: str = ""
    """The file with the key by which a chat server knows it again."""
    secret_env: tuple[str, ...] = ()
    """The variables that hold the secrets: the first is the newest."""
    allow_private: bool = False
    max_body: int = 262_144
    routes: Mapping[str, tuple[str, ...]] = {}
    """Apprise URLs by severity, or `env:NAME` for a variable that holds one."""
    humans: tuple[str, ...] = ("@here",)
    """Who is tagged in a channel of the mesh where a critical task has been blocked for long."""
    quiet: str = ""
    """`22:00-07:00`: what is not critical waits for the end of it."""
    token_env: str = ""
    database: str = ""
    """The id of the Notion database."""
    page: str = ""
    """The id of the Notion page under which one is made."""

    @property
    def patience(self) -> DeliveryRetries:
        """How often, and for how long, it tries."""
        return DeliveryRetries(retries=self.retries, apart=self.apart, give_up=self.give_up)


_ALL = ("kind", "begins", "timeout", "retries", "apart", "give_up")
OWN: Mapping[str, tuple[str, ...]] = {
    "webhook": ("hears", "url", "secret_env", "allow_private", "max_body"),
    "alerts": ("hears", "routes", "quiet", "humans"),
    "chat": ("hears", "url", "channel", "speaks_as", "key", "humans"),
    "notion": ("token_env", "database", "page", "url"),
}
"""What each kind of sink has of its own."""


def hearing(spec: SinkSpec, otherwise: Iterable[str]) -> frozenset[str]:
    """The kinds of events that a sink hears of."""
    found: set[str] = set()
    for one in spec.hears or tuple(otherwise):
        found.update(KINDS if one == EVERYTHING else GROUPS.get(one, (one,)))
    return frozenset(found)


def wrong_with_sink(spec: SinkSpec, given: Iterable[str]) -> list[tuple[str, str]]:
    """Every rule that a sink breaks: the field, and what to do about it. `given` are the fields that were set."""
    if not _NAME.fullmatch(spec.name):
        return [("", f"a sink's name is small letters, digits, - and _, at most 40 of them, not {spec.name!r}")]
    if spec.kind not in OWN:
        said = f"{spec.kind!r} is not a kind of sink" if spec.kind else "which kind of sink is it?"
        return [("kind", f'{said} write kind = "webhook", "alerts", "chat" or "notion"')]
    own = OWN[spec.kind]
    found = [
        (field, f"a sink of kind {spec.kind} has no {field}; it has {', '.join((*_ALL, *own))}")
        for field in given
        if field not in (*_ALL, *own)
    ]
    found += [("hears", text) for one in spec.hears if (text := _unheard(one))]
    for field in ("timeout", "apart", "give_up", "max_body"):
        if getattr(spec, field) <= 0:
            found.append((field, "must be more than nothing"))
    if not 0 <= spec.retries <= 100:
        found.append(("retries", f"{spec.retries} retries cannot be: 0 to 100"))
    return found + _RULES[spec.kind](spec)


def _unheard(one: str) -> str:
    if one == EVERYTHING or one in GROUPS or one in KINDS:
        return ""
    near = nearest(one, (EVERYTHING, *GROUPS, *KINDS))
    hint = f"did you mean {near!r}?" if near else f"name kinds of events, or {EVERYTHING}, {', '.join(GROUPS)}"
    return f"there is nothing called {one!r} to hear of; {hint}"


def _webhook(spec: SinkSpec) -> list[tuple[str, str]]:
    found = [] if spec.url else [("url", 'where to? write url = "https://host/path"')]
    if not spec.secret_env:
        text = 'what is sent is signed: write secret_env = "NAME" of a variable that holds the secret'
        found.append(("secret_env", text))
    return found + [("secret_env", text) for name in spec.secret_env if (text := no_variable(name))]


def _alerts(spec: SinkSpec) -> list[tuple[str, str]]:
    found = []
    for severity in spec.routes:
        if severity not in SEVERITIES:
            near = nearest(severity, SEVERITIES)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(SEVERITIES)}"
            found.append(("routes", f"{severity!r} is not a severity; {hint}"))
    if not any(spec.routes.values()):
        text = 'it has no routes: write routes = { warning = ["env:NAME"] }, NAME being a variable with an Apprise URL'
        found.append(("routes", text))
    named = {route.removeprefix("env:") for told in spec.routes.values() for route in told if route.startswith("env:")}
    found += [("routes", text) for name in sorted(named) if (text := no_variable(name))]
    if spec.quiet and quiet_left(spec.quiet, 0) is None:
        found.append(("quiet", f'{spec.quiet!r} are no hours: write quiet = "22:00-07:00"'))
    return found


def _chat(spec: SinkSpec) -> list[tuple[str, str]]:
    found = [] if spec.url else [("url", 'which chat server? write url = "ws://host:6667"')]
    return found if spec.channel else [*found, ("channel", 'in which channel? write channel = "#mesh"')]


def _notion(spec: SinkSpec) -> list[tuple[str, str]]:
    found = [] if spec.token_env else [("token_env", 'write token_env = "NAME" of a variable that holds the token')]
    if spec.token_env and (text := no_variable(spec.token_env)):
        found.append(("token_env", text))
    for field, id_ in (("database", spec.database), ("page", spec.page)):
        if id_ and not re.fullmatch(r"[0-9a-fA-F]{32}", id_.replace("-", "")):
            found.append(
                (field, f"{id_!r} is not an id of Notion's: 32 digits and letters a to f, from the page's link")
            )
    return found


_RULES = {"webhook": _webhook, "alerts": _alerts, "chat": _chat, "notion": _notion}


def no_variable(name: str) -> str:
    """What is wrong with the name of a variable; it is not shown, for it may be the secret itself."""
    return (
        ""
        if _VARIABLE.fullmatch(name)
        else "this is not a name of a variable; the secret itself must not be written here"
    )


def quiet_left(quiet: str, minute: int) -> int | None:
    """How many minutes of quiet hours are left at a minute of the day; None if these are no hours."""
    found = _QUIET.fullmatch(quiet)
    if found is None:
        return None
    begin, end = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
    length = (end - begin) % MINUTES
    into = (minute - begin) % MINUTES
    return length - into if into < length else 0


def routes_for(spec: SinkSpec, severity: Severity) -> tuple[str, ...]:
    """The routes of a severity: its own, or those of the next lower one, so that nothing worse is told to nobody."""
    for one in reversed(SEVERITIES[: SEVERITIES.index(severity) + 1]):
        if spec.routes.get(one):
            return spec.routes[one]
    return ()


# A hook as it is written down in `[hooks.NAME]`: who may post to it, and what becomes of what is posted.
#
# A delivery is a task, or the answer to a question, by templates of its fields (`domain/values.py`). What a sender can
# choose is what a template has a place for; role, run and priority are written down and not the sender's.

_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,9}")
_TASKS = ("task", "role", "run", "priority", "payload")
_ANSWERS = ("question", "option", "text")
SOONEST, LATEST = 1_000, 3_600_000
BODY_MOST = 1 << 20


class HookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `[hooks]`; lengths of time are milliseconds."""

    name: str
    secret_env: tuple[str, ...] = ()
    """The variables that hold the secrets; any of them will do, so that one can be replaced."""
    secret_file: tuple[str, ...] = ()
    """Files that only their owner can read, with a secret in each."""
    types: tuple[str, ...] = ()
    """Only bodies whose `type` is one of these; others are taken and nothing is done. Empty: all."""
    tolerance: int = 300_000
    """How far a delivery's moment may be from ours."""
    max_body: int = 262_144
    task: str = ""
    """The name of the task that is made, a template."""
    role: str = ""
    run: str = ""
    """The run that it is put into, by id or by name: an open one, or a new one."""
    priority: int = 0
    payload: str = ""
    """The field of the body that is its payload; empty: the whole body."""
    question: str = ""
    """The id of the question that is answered, a template."""
    option: str = ""
    text: str = ""


def wrong_with_hook(spec: HookSpec, given: Iterable[str]) -> list[tuple[str, str]]:
    """Every rule that a hook breaks: the field, and what to do about it. `given` are the fields that were set."""
    if not _NAME.fullmatch(spec.name):
        return [("", f"a hook's name is small letters, digits, - and _, at most 40 of them, not {spec.name!r}")]
    found = [("secret_env", text) for name in spec.secret_env if (text := no_variable(name))]
    if not spec.secret_env and not spec.secret_file:
        text = 'what is posted must be signed: write secret_env = "NAME" of a variable, or secret_file = "FILE"'
        found.append(("secret_env", text))
    if bool(spec.task) == bool(spec.question):
        text = 'what becomes of it? either task = "name of {data.thing}", or question = "{data.id}" and option = "…"'
        found.append(("task" if spec.task else "", text))
    other, kind = (_ANSWERS, "a task") if spec.task else (_TASKS, "an answer")
    found += [(field, f"a hook that makes {kind} has no {field}") for field in given if field in other]
    if spec.question and not spec.option:
        found.append(("option", 'which option is chosen? write option = "{data.option}", or one by its key'))
    for field in ("task", "question", "option", "text"):
        if wrong := wrong_with_template(getattr(spec, field)):
            found.append((field, wrong))
    if spec.payload and not _PATH.fullmatch(spec.payload):
        found.append(("payload", "name a field by its path, such as data, or data.order"))
    if not SOONEST <= spec.tolerance <= LATEST:
        found.append(("tolerance", "must be from 1s to 1h"))
    if not 1 <= spec.max_body <= BODY_MOST:
        found.append(("max_body", f"must be from 1 to {BODY_MOST:,} bytes"))
    return found


# Which secrets sign what is posted to an address: those of its host, or those of every host that has none of its own.
#
# In `[webhook_secrets]` a host, or "*", names a variable (the file never holds a secret) or a list of them: what is
# posted is signed with each, so that one can be replaced.
#
# Receivers that share a secret could write to each other in our name, so each host may have its own.

ANY = "*"
TABLE = "webhook_secrets"
_HOST = re.compile(r"(\*|[a-z0-9._-]+(:\d{1,5})?|\[[0-9a-f:.]+\](:\d{1,5})?)")

WebhookSecrets = Mapping[str, Sequence[str]]
"""Names of variables by host, the newest first."""


def wrong_with_secrets(host: str, names: Sequence[str]) -> str:
    """What is wrong with an entry; empty if nothing is."""
    if not _HOST.fullmatch(host):
        return f'{host!r} is not a host; write such as "oracle.example", "oracle.example:8443", or "*" for all others'
    if not names:
        return "which variable holds the secret?"
    return next(filter(None, map(no_variable, names)), "")


def secrets_for(url: str, secrets: WebhookSecrets) -> Sequence[str]:
    """The variables that hold the secrets for this address; `Refused` where there are none, for all is signed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    for name in (f"{host}:{parts.port}", host, ANY):
        if secrets.get(name):
            return secrets[name]
    text = f'what is posted is signed, and {host} has no secret: write "{host}" = "NAME" of a variable under [{TABLE}]'
    raise Refused("no_secret", text, where=TABLE)

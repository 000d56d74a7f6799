"""A sink as it is written down in `[sinks.NAME]`: who is told, of what, and how patiently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from allswell.domain.comms import HEARS as COMM_HEARS
from allswell.domain.delivery import Patience
from allswell.domain.event import KINDS
from allswell.domain.meant import nearest
from allswell.domain.mesh_words import HEARS as MESH_HEARS

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
    def patience(self) -> Patience:
        """How often, and for how long, it tries."""
        return Patience(retries=self.retries, apart=self.apart, give_up=self.give_up)


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


def wrong_with(spec: SinkSpec, given: Iterable[str]) -> list[tuple[str, str]]:
    """Every rule that a sink breaks: the field, and what to do about it. `given` are the fields that were set."""
    if not _NAME.fullmatch(spec.name):
        return [("", f"a sink's name is small letters, digits, - and _, at most 40 of them, not {spec.name!r}")]
    if spec.kind not in OWN:
        said = f"{spec.kind!r} is no kind of sink" if spec.kind else "which kind of sink is it?"
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
            found.append(("routes", f"{severity!r} is no severity; {hint}"))
    if not any(spec.routes.values()):
        text = 'whom does it tell? write routes = { warning = ["env:NAME"] }, NAME being a variable with an Apprise URL'
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
            found.append((field, f"{id_!r} is no id of Notion's: 32 digits and letters a to f, from the page's link"))
    return found


_RULES = {"webhook": _webhook, "alerts": _alerts, "chat": _chat, "notion": _notion}


def no_variable(name: str) -> str:
    """What is wrong with the name of a variable; it is not shown, for it may be the secret itself."""
    return "" if _VARIABLE.fullmatch(name) else "this is no name of a variable; the secret itself does not stand here"


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

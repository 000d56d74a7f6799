"""Which function handles which type of message."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from allswell.domain.worker.limits import HEALTH, LONGEST_SECONDS, HealthRules, Layers, checked_health, checked_layers
from allswell.domain.worker.message import MESSAGES, MessagePolicy, checked_messages, is_type
from allswell.errors import Refused
from allswell.runtime.calls import is_async

Function = TypeVar("Function", bound=Callable[..., Any])
HookFunction = TypeVar("HookFunction", bound=Callable[[], Any])


class Handler(msgspec.Struct, frozen=True):
    """A function for one type of message."""

    type: str
    function: Callable[..., Any]
    is_async: bool
    long: bool
    """Whether its message is hidden for longer, again and again, while it runs."""


class WorkerHook(msgspec.Struct, frozen=True):
    """A function that is called when a worker starts or stops."""

    function: Callable[[], Any]
    is_async: bool


class Handlers:
    """The handlers of a worker, by type: `@handlers.handler("order.paid")`."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}
        self._at_start: list[WorkerHook] = []
        self._at_stop: list[WorkerHook] = []

    def on_start(self, function: HookFunction) -> HookFunction:
        """Have a function called, without arguments, before a worker reads its first message: for shared clients.

        An async one runs on the loop that async handlers run on. What it raises keeps the worker from starting.
        """
        self._at_start.append(WorkerHook(function, is_async(function)))
        return function

    def on_stop(self, function: HookFunction) -> HookFunction:
        """Have a function called when a worker has handled its last message; what it raises is logged."""
        self._at_stop.append(WorkerHook(function, is_async(function)))
        return function

    def at_start(self) -> list[WorkerHook]:
        """What is called at the start, in its order."""
        return list(self._at_start)

    def at_stop(self) -> list[WorkerHook]:
        """What is called at the stop, in its order."""
        return list(self._at_stop)

    def handler(self, type_: str, *, long: bool = False) -> Callable[[Function], Function]:
        """Have a function handle messages of this type; it is given the message and a connection.

        A `long` one may take longer than the visibility timeout: its message is kept hidden while it runs.
        """
        if not is_type(type_):
            raise Refused("bad_type", f"{type_!r} is no type of message: a type is text", where="type")
        if type_ in self._by_type:
            raise Refused("handler_twice", f"type {type_!r} has a handler already: one for each type", where="type")

        def register(function: Function) -> Function:
            _refuse_wrong_function(function, type_)
            self._by_type[type_] = Handler(type_, function, is_async(function), long)
            return function

        return register

    def get(self, type_: str) -> Handler | None:
        """The handler of a type; None if there is none."""
        return self._by_type.get(type_)

    def types(self) -> list[str]:
        """The types that have a handler."""
        return sorted(self._by_type)


def _refuse_wrong_function(function: object, type_: str) -> None:
    if not callable(function):
        raise Refused("bad_handler", f"the handler of {type_!r} is not a function", where="handler")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        text = f"the handler of {type_!r} yields, and nothing would read what it yields: it would never run"
        raise Refused("bad_handler", text, where="handler")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        text = f"{name}, the handler of {type_!r}, must take two arguments, the message and a connection: {error}"
        raise Refused("bad_handler", text, where="handler") from None
    except ValueError:  # a builtin, which does not say
        return


# What a worker goes by, checked when it is made.

TELLING: dict[str, Any] = {
    "application_name": "allswell-worker",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""How a connection notices that its server is gone; what the caller's conninfo says comes first."""


class WorkerPlan(msgspec.Struct, frozen=True):
    """The figures of one worker; seconds, unless a name says otherwise."""

    conninfo: str
    queue: str
    layers: Layers
    messages: MessagePolicy = MESSAGES
    health: HealthRules = HEALTH
    poll_interval: float = 1.0
    """How often is looked for messages when nobody tells of any."""
    listen: bool = True
    """Whether PGMQ's notifications are listened to; polling goes on in any case."""
    stop_timeout: float = 10.0
    """How long running handlers may go on when the worker is told to stop."""
    long_timeout: float = 3_600.0
    """How long a handler may run that is marked long."""
    max_lifetime: float = 3_600.0
    max_idle: float = 600.0
    reconnect_timeout: float = 300.0

    def __repr__(self) -> str:
        """Without the conninfo: there may be a password in it."""
        return f"WorkerPlan(queue={self.queue!r}, layers={self.layers!r})"

    @property
    def min_size(self) -> int:
        """The fewest connections that the pool has."""
        return max(4, self.layers.concurrency)

    @property
    def max_size(self) -> int:
        """The most."""
        return 2 * self.min_size

    def connecting(self) -> dict[str, Any]:
        """What to connect with, beside the conninfo."""
        said = conninfo_to_dict(self.conninfo)
        ours = {name: value for name, value in TELLING.items() if name not in said}
        return {**ours, "prepare_threshold": None}  # behind a pooler nothing stays in a session


def checked_plan(plan: WorkerPlan) -> WorkerPlan:
    """This plan, or a `ValueError` that says what is wrong with it."""
    refuse_unreadable(plan.conninfo)
    checked_layers(plan.layers)
    checked_messages(plan.messages)
    checked_health(plan.health)
    for name in ("poll_interval", "long_timeout", "max_lifetime", "max_idle", "reconnect_timeout"):
        if not 0 < getattr(plan, name) <= LONGEST_SECONDS:
            raise ValueError(f"{name} ({getattr(plan, name)}s) must be more than 0 and at most 366 days")
    if not 0 <= plan.stop_timeout <= LONGEST_SECONDS:
        raise ValueError(f"stop_timeout ({plan.stop_timeout}s) must be at least 0 and at most 366 days")
    return plan


def refuse_unreadable(conninfo: str) -> None:
    """Refuse what is no connection string, without showing it: there may be a password in it."""
    try:
        said = conninfo_to_dict(conninfo)
    except psycopg.Error:
        said = None
    if said is None or "@" in str(said.get("host", "")):  # the end of a password that has an @ itself
        text = "the connection string cannot be read: it is a postgresql:// URL, or pairs such as `host=… dbname=…`"
        hint = "special characters in a URL's user and password must be percent-encoded (@ is %40, / is %2F, % is %25)"
        raise Refused("bad_conninfo", text, where="conninfo", hint=hint)

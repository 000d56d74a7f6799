"""Which function handles which type of message."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from allswell.domain.message import is_type
from allswell.errors import Refused

Function = TypeVar("Function", bound=Callable[..., Any])


class Handler(msgspec.Struct, frozen=True):
    """A function for one type of message."""

    type: str
    function: Callable[..., Any]
    is_async: bool
    long: bool
    """Whether its message is hidden for longer, again and again, while it runs."""


class Handlers:
    """The handlers of a worker, by type: `@handlers.handler("order.paid")`."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

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
            self._by_type[type_] = Handler(type_, function, _is_async(function), long)
            return function

        return register

    def get(self, type_: str) -> Handler | None:
        """The handler of a type; None if there is none."""
        return self._by_type.get(type_)

    def types(self) -> list[str]:
        """The types that have a handler."""
        return sorted(self._by_type)

    def any_async(self) -> bool:
        """Whether there is an async handler among them."""
        return any(handler.is_async for handler in self._by_type.values())


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _refuse_wrong_function(function: object, type_: str) -> None:
    if not callable(function):
        raise Refused("bad_handler", f"the handler of {type_!r} is no function", where="handler")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        text = f"the handler of {type_!r} yields, and nobody would take what it yields: it would never run"
        raise Refused("bad_handler", text, where="handler")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        text = f"{name}, the handler of {type_!r}, must take two arguments, the message and a connection: {error}"
        raise Refused("bad_handler", text, where="handler") from None
    except ValueError:  # a builtin, which does not say
        return

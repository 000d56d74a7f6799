"""One function as a durable step: which of its calls is which, and how its result is written and read back.

**Which call.** A call is known by the step's name and a key; the key is what it was called with, or what `key=` makes
of that. So calls may come in another order after a resume, or all at once, and each finds its own result. Calls with
the same name and key are counted, the first, the second, …; they are equal in everything that can be seen, so it does
not matter which of them gets which result. What cannot be written as JSON tells no calls apart: then `key=` must. Two
functions of one name in one flow would get each other's results, so the second is refused; a function that has moved or
was renamed since keeps the results of its step's name.

**Its result** is JSON. The caller gets what was recorded, read back as the function's annotation says, in the first run
as in every later one: what would only show after a crash (a tuple that has become a list) shows at once.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from allswell.domain.ids import RunId, TaskId
from allswell.domain.task.submit import check_text
from allswell.domain.values import written
from allswell.engine.ids import task_for_key
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.runtime.durable.flow import FlowSteps


Key = Callable[..., object]
ARGUMENTS_MOST = 2_000
"""Characters of JSON; what a call was given beyond that is not kept, only the call's id knows of it."""


class DurableStep:
    """A function that is a step wherever it is called inside a flow with a `run_id`."""

    def __init__(self, name: str, function: Callable[..., object], key: Key | None = None) -> None:
        given: object = key
        if given is not None and not callable(given):
            text = f"key of step {name!r} must be a function of what the step is called with, not {key!r}"
            raise Refused("bad_key", text, where="key")
        self.name = name
        self._function = function
        self._key = key

    @cached_property
    def function(self) -> str:
        """Which function it is, by where it is written."""
        owner = self._function if hasattr(self._function, "__qualname__") else type(self._function)
        return f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', '')}"

    def id(self, run: RunId, key: str, number: int) -> TaskId:
        """The task that stands for its n-th call with this key in a run."""
        return task_for_key(f"{run}\0{self.name}\0{number}\0{key}")

    def key(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """What tells this call from the others, as JSON text."""
        if self._key is not None:
            said: object = {"key": self._key(*args, **kwargs)}
        elif kwargs:
            said = {"args": args, "kwargs": kwargs}
        else:
            said = {"args": args}
        try:
            return written(said, ordered=True)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = "what key= made of the arguments" if self._key is not None else "what it was called with"
            hint = "" if self._key is not None else "; name what tells its calls apart: key=lambda client, url: url"
            text = f"step {self.name!r}: {what} cannot be written as JSON ({error}){hint}"
            raise Refused("not_json", text, where=self.name) from error

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        try:
            wanted = typing.get_type_hints(self._function).get("return", Any)
        except (NameError, TypeError, AttributeError):  # names that exist for the type checker only
            wanted = Any
        try:
            return msgspec.json.Decoder(wanted)
        except TypeError as error:
            text = f"step {self.name!r} returns {wanted}, which cannot be read back from JSON: {error}"
            raise Refused("not_json", f"{text}; annotate it with Any to get plain JSON", where=self.name) from None

    @staticmethod
    def payload(key: str) -> str:
        """What is kept of what it was called with, for people who look."""
        return key if len(key) <= ARGUMENTS_MOST else "null"

    def check(self) -> None:
        """Refuse a function whose results could not be read back, before it has done anything."""
        _ = self._decoder

    def write(self, result: object) -> str:
        """A result as JSON text."""
        try:
            text = written(result)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = f"the result of step {self.name!r} cannot be written as JSON: {error}; return plain data"
            raise Refused("not_json", reason, where=self.name) from error
        check_text(text, f"the result of step {self.name!r}")
        return text

    def read(self, text: str) -> Any:  # noqa: ANN401 - whatever the step returns
        """A result from JSON text."""
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            said = f"the result of step {self.name!r} is not what its annotation says: {error}"
            raise Refused("not_json", said, where=self.name) from error


# The durable flow in effect: what every task and thread that is started inside its block inherits.

in_flow: ContextVar[FlowSteps | None] = ContextVar("allswell_flow", default=None)

"""A server as its watch has it: what is sent is sent again while nothing answers, as long as a store is waited for.

A command has an id, so it counts once however often it is sent; looks change nothing. A swap of a word is sent once: a
second one would find what the first has put there.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from allswell.engine.opening import TellsOfWait, log_wait
from allswell.engine.pace import Pace
from allswell.errors import Unavailable
from allswell.remote.connection import Connections, HttpAnswer
from allswell.remote.problems import error_of
from allswell.remote.wire import CALLS, Answering, Problem, Said, Saying

T = TypeVar("T")
PREFIX = "/api/v1"
_AWAY = (429, 502, 503, 504)
_ONCE = ("swap",)


class Server:
    """Where commands and looks are sent."""

    def __init__(self, connections: Connections, pace: Pace, tell: TellsOfWait = log_wait) -> None:
        self._connections = connections
        self._pace = pace
        self._tell = tell
        self.url = connections.url

    def close(self) -> None:
        """Let its connections go."""
        self._connections.close()

    async def say(self, commands: list[Said], *, wait: float = 0.0) -> Answering:
        """Have commands decided; what became of each."""
        body = msgspec.json.encode(Saying(commands, int(wait * 1000)))
        return _decoded(await self._sent("/commands", body, wait=wait), Answering)

    async def look(self, name: str, given: dict[str, Any]) -> Any:  # noqa: ANN401 - as the view has it
        """Look at what is kept, by the name of a view."""
        wanted = CALLS[name]
        body = msgspec.json.encode(wanted.arguments(**given))
        return _decoded(await self._sent(f"/views/{name}", body, again=name not in _ONCE), wanted.answer)

    async def ask(self, path: str, kind: type[T]) -> T:
        """Ask by one of the routes that are made for everybody; the answer in the shape that it has there."""
        return _decoded(await self._sent(path, None), kind)

    async def _sent(self, path: str, body: bytes | None, *, wait: float = 0.0, again: bool = True) -> bytes:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._pace.store_patience
        pause, told = self._pace.retry_first, False
        while True:
            try:
                answer = await self._connections.call(PREFIX + path, body, wait=wait)
                if answer.status < 400:
                    return answer.body
                trouble = _trouble(answer)
            except Unavailable as error:
                trouble = error
            left = until - loop.time()
            if not again or left <= 0:
                raise trouble
            if not told:
                self._tell(f"Waiting up to {self._pace.store_patience:g} s for the server: {trouble.message}")
                told = True
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, self._pace.retry_most)


def _trouble(answer: HttpAnswer) -> Unavailable:
    """What may pass by itself; anything else is raised."""
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.DecodeError:
        problem = None
    if answer.status in _AWAY:
        said = f"it answered with {answer.status}" if problem is None else problem.detail
        return Unavailable(said, hint=None if problem is None else problem.hint)
    if problem is None:
        hint = "is this the address of `allswell serve`?"
        raise Unavailable(f"the answer ({answer.status}) is none of a watch's", hint=hint)
    raise error_of(problem)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        hint = "both sides must have the same version of Allswell"
        raise Unavailable(f"the server's answer cannot be read: {error}", hint=hint) from None

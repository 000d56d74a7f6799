"""A stand-in for a server outside: it does what is asked and answers, or misbehaves as it is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec

from allswell.testing.provider import LocalServer, ParsedRequest, reset


class Asked(msgspec.Struct, frozen=True):
    """A request as it arrived."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Under lower-case names."""
    body: bytes
    at: float
    """On the machine's monotonic clock, in seconds."""


class Answered(msgspec.Struct, frozen=True):
    """An answer to give."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Well(msgspec.Struct, frozen=True):
    """Do what is asked, and answer."""


class Status(msgspec.Struct, frozen=True):
    """Answer so, and do nothing."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Lose(msgspec.Struct, frozen=True):
    """Do what is asked, and break the connection off instead of answering."""


class Slow(msgspec.Struct, frozen=True):
    """Do what is asked, and answer after so many seconds."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """Never answer, and do nothing."""


Act = Well | Status | Lose | Slow | Hang


class StandIn(LocalServer[Asked, Act]):
    """A server on 127.0.0.1; `with StandIn() as server:`."""

    def __init__(self) -> None:
        super().__init__(Well())

    def answer(self, asked: Asked) -> Answered:
        """Do what is asked; a stand-in for somebody in particular has its own."""
        del asked
        return Answered()

    def understand(self, read: ParsedRequest) -> Asked:
        """A request as it arrived, and when."""
        return Asked(read.method, read.path, read.query, read.headers, read.body, time.monotonic())

    async def do(self, act: Act, request: Asked, writer: asyncio.StreamWriter) -> None:
        """Do with a request what the act says."""
        match act:
            case Well():
                await _send(writer, self.answer(request))
            case Status(status, headers, body):
                await _send(writer, Answered(status, body, headers))
            case Slow(seconds):
                answer = self.answer(request)
                await asyncio.sleep(seconds)
                await _send(writer, answer)
            case Lose():
                self.answer(request)
                reset(writer)
            case Hang():
                await asyncio.Event().wait()


async def _send(writer: asyncio.StreamWriter, answer: Answered) -> None:
    headers = {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "connection": "close",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + answer.body)
    await writer.drain()

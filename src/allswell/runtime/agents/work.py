"""What a function of Python gets when it is called as an agent: its task, and a way to speak.

    async def review(work: allswell.Work) -> dict:
        for page in work.payload["pages"]:
            await work.checkin(f"page {page}", progress=...)
        return {"verdict": "fine"}          # completes the task; an exception fails it

A sync function has the same with plain calls (`SyncWork`); it runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from allswell.domain.duration import Duration
from allswell.domain.hold import Orders
from allswell.domain.names import QuestionId, TaskId
from allswell.domain.question import Option
from allswell.engine.handle import Lease
from allswell.runtime.speaking import words
from allswell.runtime.speaking.client import say


class Told(msgspec.Struct, frozen=True):
    """What a function is told about its task."""

    task: TaskId
    name: str
    payload: Any
    attempt: int
    agent: str
    role: str
    prompt: str
    handover: str
    """What earlier attempts and humans have left, in words."""
    folder: str


class Work:
    """A task in the hands of an async function."""

    def __init__(self, told: Told, lease: Lease, heard: Callable[[str], None]) -> None:
        self.told = told
        self.task = told.task
        self.name = told.name
        self.payload = told.payload
        self.attempt = told.attempt
        self.handover = told.handover
        self.folder = told.folder
        self.asked = ""
        """What the watch wants to hear, while it does."""
        self._lease = lease
        self._heard = heard
        self._on_asked: Callable[[str], None] | None = None

    @property
    def remaining(self) -> int:
        """How long the attempt has, in milliseconds."""
        return self._lease.remaining

    def on_asked(self, callback: Callable[[str], None]) -> None:
        """Call this when the watch asks for a check-in."""
        self._on_asked = callback

    def ask_for_checkin(self, words_: str) -> tuple[str, ...]:
        """For the watch: ask the function for a check-in."""
        self.asked = words_
        if self._on_asked is None:
            return ("work.asked",)
        self._on_asked(words_)
        return ("callback",)

    async def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress."""
        orders = await self._lease.checkin(note, progress=progress)
        self.asked = ""
        self._heard(f"“{note}”" if note else "it checked in")
        return orders

    async def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> QuestionId:
        """Ask a human; unless `hold`, this attempt is over then, and the function should return."""
        return await self._lease.ask(text, options, hold=hold)

    async def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: Duration | None = None
    ) -> TaskId:
        """Hand a focused request to an expert, and keep working; without a timeout it has `delegation_timeout`."""
        return await self._lease.delegate(role, name, payload=payload, timeout=timeout)


class SyncWork:
    """A task in the hands of a sync function, in a process of its own."""

    def __init__(self, told: Told, socket: str) -> None:
        self.told = told
        self.task = told.task
        self.name = told.name
        self.payload = told.payload
        self.attempt = told.attempt
        self.handover = told.handover
        self.folder = told.folder
        self._socket = socket

    def checkin(self, note: str = "", *, progress: float | None = None) -> words.Told | None:
        """Prove progress; the answer carries the watch's orders."""
        return say(self._socket, words.CheckIn(note=note, progress=progress)).orders

    def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> str | None:
        """Ask a human; unless `hold`, this attempt is over then, and the function should return."""
        asked = say(self._socket, words.Ask(text=text, options=tuple(options), hold=hold)).question
        return None if asked is None else asked.id

    @property
    def remaining(self) -> int:
        """How long the attempt has, in milliseconds."""
        orders = say(self._socket, words.Look()).orders
        return 0 if orders is None else orders.remaining_ms

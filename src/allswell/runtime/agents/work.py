"""What a function of Python gets when it is called as an agent: its task, and a way to speak.

    async def review(work: allswell.Work) -> dict:
        for page in work.payload["pages"]:
            await work.checkin(f"page {page}", progress=...)
        return {"verdict": "fine"}          # completes the task; an exception fails it

A sync function has the same with plain calls (`SyncWork`); it runs in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import msgspec

from allswell.domain.duration import Duration
from allswell.domain.expense import Expense, told_expense
from allswell.domain.hold import Orders
from allswell.domain.inbox import InboxItem
from allswell.domain.names import QuestionId, TaskId
from allswell.domain.question import Option
from allswell.domain.task import OPEN
from allswell.engine.handle import Lease
from allswell.engine.mesh import COMES_WITHIN, Requested, Wishes
from allswell.errors import Refused
from allswell.runtime.speaking import words
from allswell.runtime.speaking.client import say

_POLL = 0.25
"""Seconds between two looks at a request."""


class TaskBrief(msgspec.Struct, frozen=True):
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

    def __init__(
        self, told: TaskBrief, lease: Lease, heard: Callable[[str], None], spent: Callable[[Expense], None]
    ) -> None:
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
        self._spent = spent
        self._on_asked: Callable[[str], None] | None = None
        self.waits_for = ""
        """The request of its own that it waits for, while it does."""

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

    def spend(
        self, cost_usd: float | None = None, *, tokens_in: int | None = None, tokens_out: int | None = None
    ) -> None:
        """Say what more it has cost; tokens of guarded model calls are counted by themselves."""
        self._spent(told_expense(cost_usd, tokens_in, tokens_out))

    async def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> QuestionId:
        """Ask a human; unless `hold`, this attempt is over then, and the function should return."""
        return await self._lease.ask(text, options, hold=hold)

    async def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: Duration | None = None
    ) -> TaskId:
        """Hand a focused request to an expert, and keep working; without a timeout it has `delegation_timeout`."""
        return await self._lease.delegate(role, name, payload=payload, timeout=timeout)

    async def request(self, to: str, kind: str, summary: str, **wishes: Unpack[Wishes]) -> Requested:
        """Ask another agent, and wait for the answer; where it is blocked, this attempt is over: return then."""
        request = await self._lease.send_request(to, kind, summary, waits=COMES_WITHIN, **wishes)
        self.waits_for = request
        try:
            return await self._lease.wait_for(request, claims=False)
        finally:
            self.waits_for = ""

    async def inbox(self) -> list[InboxItem]:
        """What this agent is asked by others."""
        return await self._lease.inbox(roles=self._roles)

    async def respond(self, request: str, answer: object = None) -> None:
        """Answer a request."""
        await self._lease.respond(request, answer, roles=self._roles)

    @property
    def _roles(self) -> tuple[str, ...]:
        return (self.told.role,) if self.told.role else ()


class SyncWork:
    """A task in the hands of a sync function, in a process of its own."""

    def __init__(self, told: TaskBrief, socket: str) -> None:
        self.told = told
        self.task = told.task
        self.name = told.name
        self.payload = told.payload
        self.attempt = told.attempt
        self.handover = told.handover
        self.folder = told.folder
        self._socket = socket

    def checkin(self, note: str = "", *, progress: float | None = None) -> words.ToldAgent | None:
        """Prove progress; the answer carries the watch's orders."""
        return say(self._socket, words.CheckIn(note=note, progress=progress)).orders

    def spend(
        self, cost_usd: float | None = None, *, tokens_in: int | None = None, tokens_out: int | None = None
    ) -> None:
        """Say what more it has cost; tokens of guarded model calls are counted by themselves."""
        say(self._socket, words.Spend(cost_usd=cost_usd, tokens_in=tokens_in, tokens_out=tokens_out))

    def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> str | None:
        """Ask a human; unless `hold`, this attempt is over then, and the function should return."""
        asked = say(self._socket, words.Ask(text=text, options=tuple(options), hold=hold)).question
        return None if asked is None else asked.id

    def request(self, to: str, kind: str, summary: str, *, payload: object = None) -> object:
        """Ask another agent, and wait for the answer; `Refused` where nobody answers: this attempt is over then."""
        raw = msgspec.Raw(msgspec.json.encode(payload))
        asked = say(self._socket, words.AskAgent(to=to, kind=kind, summary=summary, payload=raw)).request
        while True:
            reply = say(self._socket, words.Look(request=asked))
            if reply.state == "done":
                answer: object = msgspec.json.decode(reply.result)
                return answer
            if reply.state != OPEN or (reply.orders is not None and reply.orders.stop is not None):
                raise Refused("unanswered", f"nobody has answered {asked}", where="request")
            time.sleep(_POLL)

    def inbox(self) -> tuple[InboxItem, ...]:
        """What this agent is asked by others."""
        return say(self._socket, words.Inbox()).inbox

    def respond(self, request: str, answer: object = None) -> None:
        """Answer a request."""
        raw = msgspec.Raw(msgspec.json.encode(answer))
        say(self._socket, words.Respond(request=TaskId(request), answer=raw))

    @property
    def remaining(self) -> int:
        """How long the attempt has, in milliseconds."""
        orders = say(self._socket, words.Look()).orders
        return 0 if orders is None else orders.remaining_ms

"""What becomes of an agent's words: each is said to the store under the attempt's own lease, at once.

So `allswell done` means the same with a supervisor as without one: when it returns, the result is on disk. A last word
(`done`, `fail`, `release`, `ask` without `--hold`) ends the lease; the command then has a moment to end by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from allswell.domain.hold import Orders
from allswell.domain.names import Millis, QuestionId, TaskId
from allswell.domain.question import Question
from allswell.domain.task import OPEN
from allswell.engine.handle import Lease
from allswell.errors import LeaseLost, Refused
from allswell.runtime.attempt.allowance import Allowance
from allswell.runtime.speaking.words import AnyWord, Ask, CheckIn, Done, Fail, Look, Release, Reply, Request, Told

More = Callable[[], Mapping[str, object]]
"""What a supervisor adds to the orders that every answer carries."""


class Holder:
    """Speaks for the agent of one lease."""

    def __init__(
        self, lease: Lease, allowance: Allowance, *, more: More | None = None, heard: Callable[[str], None]
    ) -> None:
        self.last_word: str | None = None
        self.requests: list[TaskId] = []
        """Those to other agents that have not come back, as far as it has asked."""
        self.stop: str | None = None
        """Why the agent is being ended, once it is."""
        self._lease = lease
        self._allowance = allowance
        self._more = more
        self._heard = heard
        self._asked: dict[QuestionId, Question | None] = {}

    async def hear(self, word: AnyWord) -> Reply:
        """Carry out a word; raises what the store refuses."""
        self._check(word)
        if isinstance(word, CheckIn):
            orders = await self._allowance.check_in(self._lease, word.note, word.progress)
            self._heard(f"“{word.note}”" if word.note else "it checked in")
            return Reply(orders=await self._orders(orders))
        if isinstance(word, Look):
            asked = None if word.question is None else await self._lease.question(word.question)
            if word.question is not None and (asked is None or asked.task != self._lease.task):
                raise Refused("unknown_question", f"{word.question} is no question of this task", where="question")
            if word.request is not None:
                return await self._requested(word.request)
            return Reply(orders=await self._orders(), question=asked)
        if isinstance(word, Ask):
            return await self._ask(word)
        if isinstance(word, Request):
            return await self._request(word)
        match word:
            case Done():
                await self._lease.complete(word.result)
            case Fail():
                await self._lease.fail(word.failure)
            case Release():
                await self._lease.release(word.reason, delay=word.delay)
            case _:
                assert_never(word)
        self._end(type(word).__name__.lower())
        return Reply(orders=await self._orders(), state=self.last_word)

    def _check(self, word: AnyWord) -> None:
        lease = self._lease
        if word.task not in (None, lease.task, lease.name):
            text = f"this socket speaks for the task {lease.task} and no other"
            raise Refused("other_task", text, where="task")
        if word.token not in (None, lease.token):
            raise LeaseLost(lease.task, word.token or 0, f"this socket speaks for the token {lease.token}")

    async def _ask(self, word: Ask) -> Reply:
        if word.hold:
            self._allowance.question(len(word.text.encode()))
        id_ = await self._lease.ask(word.text, word.options, hold=word.hold)
        self._heard("it asked a human")
        asked = await self._lease.question(id_)
        if word.hold:
            self._asked[id_] = None
        else:
            self._end("ask")
        return Reply(orders=await self._orders(), question=asked)

    async def _request(self, word: Request) -> Reply:
        self._allowance.request(len(word.payload) + len(word.name.encode()))
        made = await self._lease.delegate(word.role, word.name, payload=word.payload, timeout=word.timeout)
        self.requests.append(made)
        self._heard(f"it asked {word.role} for help")
        return Reply(orders=await self._orders(), request=made)

    async def _requested(self, request: TaskId) -> Reply:
        state, result = await self._lease.requested(request)
        if state != OPEN and request in self.requests:
            self.requests.remove(request)
        said = msgspec.Raw(b"null" if result is None else result.encode())
        return Reply(orders=await self._orders(), request=request, state=state, result=said)

    def _end(self, verb: str) -> None:
        self.last_word = verb
        self._heard(f"its last word: {verb}")

    async def _orders(self, orders: Orders | None = None) -> Told:
        for id_, closed in self._asked.items():
            if closed is None:
                now = await self._lease.question(id_)
                self._asked[id_] = now if now is not None and now.closed_at is not None else None
        answers = tuple(
            {"question": asked.id, "choice": asked.choice or "", "answer": asked.answer}
            for asked in self._asked.values()
            if asked is not None
        )
        more = {} if self._more is None else self._more()
        return Told(
            remaining_ms=self._lease.until_limit,
            deadline=Millis(self._lease.deadline),
            checkin=orders is not None and orders.asked,
            stop=self.stop,
            answers=answers,
            more={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in more.items()},
        )

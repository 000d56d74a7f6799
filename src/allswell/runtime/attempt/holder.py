"""What becomes of an agent's words: each is said to the store under the attempt's own lease, at once.

So `allswell done` means the same with a supervisor as without one: when it returns, the result is on disk. A last word
(`done`, `fail`, `release`, `ask` without `--hold`) ends the lease; the command then has a moment to end by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from allswell.domain.expense import Expense, told_expense
from allswell.domain.hold import Orders
from allswell.domain.names import Millis, QuestionId, TaskId, is_request
from allswell.domain.question import Question
from allswell.domain.task import OPEN
from allswell.domain.verification import NEEDS_VERIFICATION
from allswell.engine.handle import Lease
from allswell.engine.signal import Signal, either
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.runtime.attempt.allowance import Allowance
from allswell.runtime.speaking.words import (
    AnyWord,
    Ask,
    AskAgent,
    CheckIn,
    Done,
    Fail,
    Inbox,
    Look,
    Release,
    Reply,
    Request,
    Respond,
    Spend,
    ToldAgent,
)

_TIME_TO_END = 60_000
"""Milliseconds in which an agent whose request nobody answered is ended, its work kept first, before it is blocked."""
_LOOK = 0.5
"""Seconds between two looks at its requests."""
More = Callable[[], Mapping[str, object]]
"""What a supervisor adds to the orders that every answer carries."""


class Holder:
    """Speaks for the agent of one lease."""

    def __init__(
        self,
        lease: Lease,
        allowance: Allowance,
        *,
        more: More | None = None,
        heard: Callable[[str], None],
        spent: Callable[[Expense], None],
    ) -> None:
        self.last_word: str | None = None
        self.brought = False
        """Whether it has said that it is done, and that has to be verified: the lease goes on."""
        self.requests: list[TaskId] = []
        """Those to other agents that have not come back, as far as it has asked."""
        self.asked = Signal()
        """Fired when it has asked another agent."""
        self.stop: str | None = None
        """Why the agent is being ended, once it is."""
        self._lease = lease
        self._allowance = allowance
        self._more = more
        self._heard = heard
        self._spent = spent
        self._asked: dict[QuestionId, Question | None] = {}

    async def hear(self, word: AnyWord) -> Reply:
        """Carry out a word; raises what the store refuses."""
        self._check(word)
        if isinstance(word, CheckIn):
            orders = await self._allowance.check_in(self._lease, word.note, word.progress)
            self._heard(f"“{word.note}”" if word.note else "it checked in")
            return Reply(orders=await self._orders(orders))
        if isinstance(word, Look):
            return await self._look(word)
        if isinstance(word, Ask):
            return await self._ask(word)
        if isinstance(word, Request | AskAgent):
            return await self._request(word)
        if isinstance(word, Inbox):
            return Reply(orders=await self._orders(), inbox=tuple(await self._lease.inbox(roles=self._roles)))
        if isinstance(word, Spend):
            self._spent(told_expense(word.cost_usd, word.tokens_in, word.tokens_out))
            return Reply(orders=await self._orders())
        if isinstance(word, Respond):
            self._allowance.request(len(word.answer))
            await self._lease.respond(word.request, word.answer, roles=self._roles)
            self._heard(f"it answered {word.request}")
            return Reply(orders=await self._orders(), request=word.request)
        match word:
            case Done():
                await self._done(word)
            case Fail():
                await self._lease.fail(word.failure)
            case Release():
                await self._lease.release(word.reason, delay=word.delay)
            case _:
                assert_never(word)
        self._end(type(word).__name__.lower())
        return Reply(orders=await self._orders(), state="verifying" if self.brought else self.last_word)

    async def _done(self, word: Done) -> None:
        """It is done; or, where that has to be verified, it has said so, and what it brought is kept."""
        try:
            await self._lease.complete(word.result)
        except Refused as error:
            if error.code != NEEDS_VERIFICATION:
                raise
            self.brought = True

    def _check(self, word: AnyWord) -> None:
        lease = self._lease
        if word.task not in (None, lease.task, lease.name):
            text = f"this socket speaks for the task {lease.task} and no other"
            raise Refused("other_task", text, where="task")
        if word.token not in (None, lease.token):
            raise LeaseLost(lease.task, word.token or 0, f"this socket speaks for the token {lease.token}")

    async def _look(self, word: Look) -> Reply:
        asked = None if word.question is None else await self._lease.question(word.question)
        if word.question is not None and (asked is None or asked.task != self._lease.task):
            raise Refused("unknown_question", f"{word.question} is no question of this task", where="question")
        if word.request is not None:
            return await self._requested(word.request)
        return Reply(orders=await self._orders(), question=asked)

    async def _ask(self, word: Ask) -> Reply:
        if word.hold:
            self._allowance.question(len(word.text.encode()))
        id_ = await self._lease.ask(word.text, word.options, hold=word.hold)
        self._heard("it asked a human")
        if word.hold:
            self._asked[id_] = None
        else:
            self._end("ask")  # before anything is awaited: a lease that is over without a last word was taken away
        asked = await self._lease.question(id_)
        return Reply(orders=await self._orders(), question=asked)

    @property
    def _roles(self) -> tuple[str, ...]:
        """What its agent may answer for: the role of the task that it holds."""
        return (self._lease.role,) if self._lease.role else ()

    async def _request(self, word: Request | AskAgent) -> Reply:
        if isinstance(word, Request):
            self._allowance.request(len(word.payload) + len(word.name.encode()))
            made = await self._lease.delegate(word.role, word.name, payload=word.payload, timeout=word.timeout)
        else:
            self._allowance.request(len(word.payload) + len(word.summary.encode()))
            made = await self._lease.send_request(
                word.to,
                word.kind,
                word.summary,
                waits=_TIME_TO_END,
                payload=word.payload,
                timeout=word.timeout,
                retries=word.retries,
                again=word.again,
                role=word.role,
            )
        self.requests.append(made)
        self.asked.fire()
        self._heard(f"it asked {word.role if isinstance(word, Request) else word.to} for help")
        return Reply(orders=await self._orders(), request=made)

    async def watch_requests(self, block: Callable[[str], None]) -> None:
        """Look after its requests to other agents: where nobody has answered one, `block` hears of it."""
        while True:
            news = self.asked.listen()
            for request in [one for one in self.requests if is_request(one)]:
                with contextlib.suppress(AllswellError):  # the store is away; it is looked at again
                    if await self._lease.is_exhausted(request):
                        self._lease.blocked_on = request
                        block(f"blocked: nobody has answered {request}")
                        return
            await either(news, _LOOK if any(map(is_request, self.requests)) else None)

    async def _requested(self, request: TaskId) -> Reply:
        state, result = await self._lease.requested(request)
        if state != OPEN and request in self.requests:
            self.requests.remove(request)
        said = msgspec.Raw(b"null" if result is None else result.encode())
        return Reply(orders=await self._orders(), request=request, state=state, result=said)

    def _end(self, verb: str) -> None:
        self.last_word = verb
        self._heard(f"its last word: {verb}")

    async def _orders(self, orders: Orders | None = None) -> ToldAgent:
        for id_, closed in self._asked.items():
            if closed is None:
                now = await self._lease.question(id_)
                self._asked[id_] = now if now is not None and now.closed_at is not None else None
        answers = tuple(
            {"question": asked.id, "choice": asked.choice or "", "answer": asked.answer}
            for asked in self._asked.values()
            if asked is not None
        )
        more = dict({} if self._more is None else self._more())
        inbox = more.pop("inbox", ())
        return ToldAgent(
            remaining_ms=self._lease.until_limit,
            deadline=Millis(self._lease.deadline),
            checkin=orders is not None and orders.asked,
            stop=self.stop,
            answers=answers,
            inbox=inbox if isinstance(inbox, tuple) else (),
            more={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in more.items()},
        )

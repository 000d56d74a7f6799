"""The socket of one attempt: good for its own lease only, in a folder that only our user can enter.

It lies in a folder of its own below the system's folder for temporary files, not beside the store: a unix socket's path
has 107 bytes, and projects lie deeper than that. Everything that comes in is bounded: how many may speak at once, how
long a message may be, how long it may take. A long message (most have a few hundred bytes) is read and answered while
no other long one is: so what never comes to its end costs the room of one, however many begin it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import assert_never

import msgspec

from allswell.domain.agents import quota as rules
from allswell.domain.agents.cost import Expense, in_words, told_expense
from allswell.domain.agents.denied import NOTHING_DENIED, Denied, remark
from allswell.domain.agents.evidence import ASKED_AFTER, BARE_CHECKIN, EvidenceKind, EvidenceState
from allswell.domain.agents.output import with_denied
from allswell.domain.agents.quota import TOLD_EVERY, CheckinMerge, Quota, QuotaUse
from allswell.domain.agents.repetition import Repetition
from allswell.domain.agents.spending import UsageCounter
from allswell.domain.duration import parse
from allswell.domain.ids import CommandId, Millis, QuestionId, TaskId, is_request
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.lease.cost import limits_in_words
from allswell.domain.lease.holder import Orders, check_given_back
from allswell.domain.lease.verification import NEEDS_VERIFICATION
from allswell.domain.mesh.request import DELEGATION, check_delegation
from allswell.domain.question import GO_ON, Option, Question, check_agents_option
from allswell.domain.rules.bounds import OPTIONS_MAX
from allswell.domain.rules.command import Complete, Notice
from allswell.domain.rules.command import Fail as FailCommand
from allswell.domain.rules.command import Release as ReleaseCommand
from allswell.domain.rules.event import Event
from allswell.domain.task.model import OPEN
from allswell.domain.task.submit import check_text
from allswell.domain.values import on_one_line
from allswell.engine.lease import Lease
from allswell.engine.wakeup import Signal, either
from allswell.errors import AllswellError, Bug, LeaseLost, Refused, Unavailable, without_place
from allswell.runtime.agent_socket import (
    KEPT,
    LONGEST,
    AgentNotice,
    AnyWord,
    AskAgentMessage,
    AskMessage,
    CheckInMessage,
    DeclineMessage,
    DoneMessage,
    FailMessage,
    InboxMessage,
    LookMessage,
    NoticeMessage,
    ReleaseMessage,
    RequestMessage,
    RespondMessage,
    SocketReply,
    SpendMessage,
    ToolMessage,
    read_word,
)
from allswell.runtime.attempt.launch import is_gone
from allswell.runtime.attempt.outcome import OutcomeReport
from allswell.runtime.attempt.progress import ProgressMonitor
from allswell.runtime.process import TreeRecord
from allswell.runtime.process.identity import is_inside
from allswell.timing.clock import Clock

# The quota of one attempt, as it is used up (`domain.agents.quota` has the rules).


class QuotaTracker:
    """What one attempt may still say to the store."""

    def __init__(self, quota: Quota, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._spent = QuotaUse()
        self._told_at = self._noted_at = -math.inf
        self._later: asyncio.Task[None] | None = None

    def request(self, size: int) -> None:
        """One more request to another agent; `Refused` where that is too much."""
        self._spent = rules.request(self._quota, self._spent, size)

    def question(self, size: int) -> None:
        """One more question; `Refused` where that is too much."""
        self._spent = rules.question(self._quota, self._spent, size)

    async def check_in(self, lease: Lease, note: str, progress: float | None = None) -> Orders | None:
        """Check in, or let the next report stand for this one; None then."""
        now = self._clock.monotonic()
        told, noted = now - self._told_at, now - self._noted_at
        merging, self._spent = rules.check_in(self._quota, self._spent, len(note.encode()), told, noted)
        if merging is CheckinMerge.MERGED:
            if self._later is None or self._later.done():
                self._later = asyncio.ensure_future(self._tell_later(lease, TOLD_EVERY - told))
            return None
        self._told_at = now
        if merging is CheckinMerge.BARE:
            return await lease.checkin(progress=progress)
        self._noted_at = now
        return await lease.checkin(note, progress=progress)

    async def _tell_later(self, lease: Lease, wait: float) -> None:
        """One for all that were merged: the last of them may be the answer to what was asked."""
        await asyncio.sleep(wait / 1_000)
        if not is_gone(lease):
            self._told_at = self._clock.monotonic()
            with contextlib.suppress(AllswellError):
                await lease.checkin()


# Telling the store what an attempt has cost, and having it ended when its task has cost what it may.
#
# Claude Code reports what each message took, others at the end of a session or of a turn. An agent that has reported
# that its turn ended well is left to end, however long that takes: its work is done, and to end it would save nothing.
# It is ended once it goes on. Any other agent that has reached the limit has a moment before it is ended.

MOMENT = 2.0
"""Seconds in which an agent may end by itself after it has reported."""
_APART = 2.0
"""Seconds between two tellings: an agent at work tells of a message every few seconds. Also between two looks at
whether one that is done goes on."""
_PATIENCE = 10.0
"""Seconds for the store to take note."""


class CostReporter:
    """Follows what one attempt costs."""

    def __init__(
        self, lease: Lease, meter: UsageCounter, stop: Callable[[str], None], is_done: Callable[[], bool]
    ) -> None:
        """`is_done`: whether the agent's last report was that its turn ended well."""
        self._lease = lease
        self._meter = meter
        self._stop = stop
        self._is_done = is_done
        self._watching: asyncio.Task[None] | None = None
        self.is_told = True
        """Whether the store has all that was reported so far."""

    def hear(self) -> None:
        """It has said more of what it costs; the store is asked only where there is a limit to reach."""
        lease = self._lease
        if (lease.max_cost or lease.max_tokens) and (self._watching is None or self._watching.done()):
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while not await self._tell():
            told = self._meter.total
            await asyncio.sleep(_APART)
            if self._meter.total is told:
                return
        await asyncio.sleep(MOMENT)
        while self._is_done():  # noqa: ASYNC110 - a thread hears what it says
            await asyncio.sleep(_APART)
        limits = limits_in_words(self._lease.granted.task)
        self._stop(f"its task has reached {limits}: this attempt {in_words(self._meter.total)}")

    async def settle(self) -> bool:
        """It is over: tell all of it; whether its task has reached what it may cost."""
        self.close()
        return await self._tell()

    def close(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()

    async def _tell(self) -> bool:
        expense = self._meter.total
        if expense is None:
            return False
        self.is_told = False
        with contextlib.suppress(Unavailable, TimeoutError):  # the report of the outcome sends it again
            async with asyncio.timeout(_PATIENCE):
                over = await self._spend(expense)
            self.is_told = True
            return over
        return False

    async def _spend(self, expense: Expense) -> bool:
        with contextlib.suppress(Refused, LeaseLost):  # money that is not taken is no reason to fail
            return await self._lease.spend(expense)
        return False


# Telling the store that an agent's protocol shows progress: it answers an asked-for check-in (O2).
#
# A stream of tokens is one check-in now and then, not a thousand; how often is the lease's to say
# (`domain.lease.model`).


class CheckinForwarder:
    """Says for one attempt what its protocol says, between `begin` and `end`."""

    def __init__(self, lease: Lease, standing: Callable[[], EvidenceState], clock: Clock) -> None:
        self._lease = lease
        self._standing = standing
        self._clock = clock
        self._on = False
        self._told_at = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """It runs; it may have spoken while it was being started."""
        self._on = True
        self.soon()

    def soon(self) -> None:
        """It has spoken."""
        if self._on and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._tell())

    def end(self) -> None:
        """Report nothing new; what is being sent may still arrive."""
        self._on = False

    def close(self) -> None:
        """Tell nothing any more."""
        if self._task is not None:
            self._task.cancel()

    async def _tell(self) -> None:
        while (seen := self._standing().last.get(EvidenceKind.PROTOCOL)) is not None and seen.at > self._told_at:
            await asyncio.sleep(max(self._told_at + self._lease.tells_every - self._clock.monotonic(), 0) / 1_000)
            self._told_at = self._clock.monotonic()
            with contextlib.suppress(AllswellError):  # a loss stands in the lease; that the store is away passes
                await self._lease.checkin()


# Asking a human about an attempt that goes round in circles (domain/agents/repetition.py).
#
# It is asked once for each attempt, when there were twice as many rounds as make a circle; the attempt goes on
# meanwhile, and its idle clock runs. Where it does something else, the question is taken back. What an answer does to
# the lease, the holder sees as any other loss; that it may go on is looked for here.

_ANSWER_LOOK = 2.0
"""Seconds between two looks at whether somebody has answered."""


class RepetitionReporter:
    """Follows the circles of one attempt, and has a human decide."""

    def __init__(self, lease: Lease, limit: int | None, seen: ProgressMonitor) -> None:
        self._lease = lease
        self._from = None if limit is None or lease.role == RUN_ROLE else limit * ASKED_AFTER
        self._accept = seen.accept_repetition
        seen.on_repetition = self.hear
        self._found: Repetition | None = None
        self._command: CommandId | None = None
        self._asking: asyncio.Task[None] | None = None

    def hear(self, found: Repetition | None) -> None:
        """It has gone round once more, or, if None, goes round no more."""
        self._found = found
        if self._asking is None and found is not None and self._from is not None and found.rounds >= self._from:
            self._command = self._lease.new_command()
            self._asking = asyncio.ensure_future(self._ask(found, self._command))

    def close(self) -> None:
        """It is over."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, found: Repetition, command: CommandId) -> None:
        while (asked := await self._said(found.words, command)) is None:
            await asyncio.sleep(_ANSWER_LOOK)
            if self._found is None or self._lease.lost is not None:
                return
        while True:
            await asyncio.sleep(_ANSWER_LOOK)
            if self._found is None:
                with contextlib.suppress(AllswellError):
                    await self._lease.note_repeats("", question=asked)
                    return
            with contextlib.suppress(AllswellError):
                question = await self._lease.question(asked)
                if question is not None and question.closed_at is not None:
                    if question.choice == GO_ON.key:
                        self._accept()
                    return

    async def _said(self, words: str, command: CommandId) -> QuestionId | None:
        """Ask; None where the store is away, or the lease is gone."""
        with contextlib.suppress(AllswellError):
            return await self._lease.note_repeats(words, asks=True, command=command)
        return None


# Who may speak at an attempt's socket: a process of the attempt that says its secret.
#
# The socket's path can be guessed or seen by other agents of the same user, and so can what stands in an environment.
# So a caller is known by its parents: it must be below the attempt's reaper, as every process is that the command
# started. An agent in a container, or in a tmux that was there before, is not; where `socket_speakers` is `secret`,
# knowing the attempt's secret is enough.

_CREDENTIALS = struct.Struct("3i")
"""What the kernel says about the other end: process, user, group."""


class PeerCheck:
    """What one attempt's socket asks of those who speak there."""

    def __init__(self, *, outsiders: bool = False) -> None:
        self.secret = os.urandom(16).hex()
        self._outsiders = outsiders
        self._tree: TreeRecord | None = None
        self._begun = asyncio.Event()

    def begin(self, record: TreeRecord) -> None:
        """The command runs: this is its tree."""
        self._tree = record
        self._begun.set()

    async def check_peer(self, line: socket.socket) -> None:
        """Refuse who is not of the attempt; it waits until the tree is known, for a command may be quick to speak."""
        if self._outsiders:
            return
        pid, _, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        await self._begun.wait()
        if self._tree is None or not is_inside(self._tree, pid):
            raise Refused(
                "not_yours",
                "this socket is for the processes of its own attempt; for an agent in a container or in tmux, set "
                "socket_speakers to secret",
                where="socket",
            )

    def check_word(self, word: AnyWord) -> None:
        """Refuse what is said without the attempt's secret."""
        if not hmac.compare_digest(word.secret.encode(), self.secret.encode()):
            text = "this is not the secret of this attempt; use ALLSWELL_SECRET of the attempt's environment"
            raise Refused("not_yours", text, where="secret")


_NAME = "s"
_TMP = "/tmp"  # noqa: S108 - what we make there is a folder that only we can enter
_DEEPEST = 70
"""Bytes of a folder in which a socket of ours still has a name that fits."""
_SPEAKERS = 32
_SHORT = 65_536
"""Bytes up to which a message is read as it comes; longer ones wait for each other."""
_SILENCE = 30.0
"""Seconds for which a caller may hold a connection without a complete message."""
_TOO_LARGE = "too_large"
_ERROR_MAX = 4_000
"""Characters of an error that is sent back."""

Hear = Callable[[AnyWord], Awaitable[SocketReply]]


class ControlSocket:
    """Listens at a socket and hands what is said to `hear`."""

    def __init__(self, hear: Hear, admission: PeerCheck) -> None:
        tmp = os.path.abspath(os.environ.get("TMPDIR") or _TMP)  # noqa: PTH100 - as above
        self.folder = Path(tmp if len(tmp.encode()) < _DEEPEST else _TMP, f"allswell-{os.urandom(8).hex()}")
        """Where the socket will be; known before it is made, so that it can be noted before it may have to be
        cleared."""
        self._hear = hear
        self._admission = admission
        self._server: asyncio.Server | None = None
        self._speaking: dict[asyncio.Task[None], None] = {}
        self._long = asyncio.Lock()

    @property
    def path(self) -> str:
        """The socket's path; empty if it has no socket."""
        return "" if self._server is None else str(self.folder / _NAME)

    async def open(self) -> None:
        """Begin to listen; `OSError` if that cannot be."""
        os.mkdir(self.folder, 0o700)  # noqa: PTH102 - in memory, and at once
        place = str(self.folder / _NAME)
        self._server = await asyncio.start_unix_server(self._greet, place, limit=_SHORT, backlog=_SPEAKERS)

    async def close(self) -> None:
        """Close all connections and remove the socket."""
        if self._server is not None:
            self._server.close()
        for speaker in self._speaking:
            speaker.cancel()
        await asyncio.gather(*self._speaking, return_exceptions=True)
        remove(self.folder)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        itself = asyncio.current_task()
        if itself is None:
            return
        self._speaking[itself] = None
        try:
            if len(self._speaking) <= _SPEAKERS and await self._admits(reader, writer):
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it hung up, or fell silent
        finally:
            del self._speaking[itself]
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _admits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether it may speak here; a refused caller gets the answer once it has sent something."""
        async with asyncio.timeout(_SILENCE):
            try:
                await self._admission.check_peer(writer.get_extra_info("socket"))
            except Refused as error:
                with contextlib.suppress(asyncio.LimitOverrunError):
                    await reader.readuntil(b"\n")
                writer.write(msgspec.json.encode(error_reply(error)) + b"\n")
                await writer.drain()
                return False
        return True

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as begun:
                async with self._long:
                    reply = await self._long_message(reader, begun.consumed)
            else:
                reply = await self._answer(line)
            writer.write(msgspec.json.encode(reply) + b"\n")
            async with asyncio.timeout(_SILENCE):  # one who never reads the answers holds a place for no longer, either
                await writer.drain()
            if reply.code == _TOO_LARGE:
                return

    async def _long_message(self, reader: asyncio.StreamReader, there: int) -> SocketReply:
        """Read and answer a message of which so much is there already."""
        message = bytearray()
        async with asyncio.timeout(_SILENCE):
            while len(message) + there <= LONGEST:
                message += await reader.readexactly(there)
                try:
                    message += await reader.readuntil(b"\n")
                    break
                except asyncio.LimitOverrunError as more:
                    there = more.consumed
            else:
                return error_reply(Refused(_TOO_LARGE, f"a message may have {LONGEST} bytes", where="message"))
        return await self._answer(bytes(message))

    async def _answer(self, line: bytes) -> SocketReply:
        try:
            word = read_word(line)
            self._admission.check_word(word)
            return await self._hear(word)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return error_reply(Refused("bad_message", f"invalid message: {error}"))
        except AllswellError as error:
            return error_reply(error)
        except Exception as error:  # noqa: BLE001 - whatever an agent sends, its supervisor goes on
            return error_reply(Bug(f"answering an agent failed: {error!r}"))


def error_reply(raised: AllswellError) -> SocketReply:
    """An error as it travels."""
    error = without_place(raised)
    kind = type(error).__name__
    if isinstance(error, LeaseLost):
        return SocketReply(
            error=kind, message=_shortened(error.reason), where=_shortened(f"{error.task}:{error.token}")
        )
    if isinstance(error, Refused):
        return SocketReply(error=kind, message=_shortened(error.message), code=error.code, where=error.where)
    return SocketReply(error=kind, message=_shortened(str(error)))


def _shortened(text: str) -> str:
    """An error's text: it may repeat what an agent has sent, which may be a megabyte."""
    return text if len(text) <= _ERROR_MAX else f"{text[:_ERROR_MAX]}…"


def remove(folder: Path) -> None:
    """Take a socket's folder away, if it is one, and lies where they lie."""
    if folder.name.startswith("allswell-") and str(folder.parent) in (os.environ.get("TMPDIR"), _TMP):
        with contextlib.suppress(OSError):
            (folder / _NAME).unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()


# What becomes of an agent's words: each is said to the store under the attempt's own lease, at once.
#
# So `allswell done` means the same with a supervisor as without one: when it returns, the result is on disk. A last
# word
# (`done`, `fail`, `release`, `ask` without `--hold`) ends the lease; the command then has a moment to end by itself.
#
# While the store is away, a final report is kept on disk (`outcome.py`). The answer says so, and the agent may end: its
# supervisor sends the report when the store is back.

_TIME_TO_END = 60_000
"""Milliseconds in which an agent whose request was not answered is ended, its work kept first, before it is blocked."""
_LOOK = 0.5
"""Seconds between two looks at its requests."""
_NOTICES_MOST = 20
"""Events of one attempt that say that it waits for a human, or that a turn has failed."""
_NEWS_MOST = 20
_NAME_MOST = 1_000
_TEXT_MOST = 4_000
_ANSWER_MOST = 512 << 10
"""Bytes of each part of what a hook reports, which keeps to fewer itself (interfaces/plugin/hook.py)."""
More = Callable[[], Mapping[str, object]]
"""What a supervisor adds to the orders that every answer carries."""


def _answered(answer: Mapping[str, str]) -> str:
    """That a question was answered, for its agent."""
    text = answer["answer"]
    return f"Your question {answer['question']} was answered: {answer['choice']}{': ' if text else ''}{text}"


class ControlHandler:
    """Speaks for the agent of one lease."""

    def __init__(
        self,
        lease: Lease,
        allowance: QuotaTracker,
        seen: ProgressMonitor,
        denied: Callable[[], Awaitable[Denied]],
        *,
        more: More | None = None,
        handover: str = "",
        report: OutcomeReport | None = None,
    ) -> None:
        """`seen` takes what it says as evidence; `denied` tells what its program has refused so far."""
        self.last_word: str | None = None
        self.brought = False
        """Whether it has said that it is done, and that has to be verified: the lease goes on."""
        self.handover = handover
        """What came before its attempt, until it has checked in."""
        self.requests: list[TaskId] = []
        """Those to other agents that have not come back, as far as it has asked."""
        self.asked = Signal()
        """Fired when it has asked another agent."""
        self.stop: str | None = None
        """Why the agent is being ended, once it is."""
        self._lease = lease
        self._allowance = allowance
        self._more = more
        self._seen = seen
        self._tools = asyncio.Lock()
        """One call is looked at in each turn of the loop: others have theirs, however many calls come at once."""
        self._notices = 0
        """How often it has said that it waits for a human, or that a turn has failed."""
        self._news_told: set[str] = set()
        """The answers and requests that its hook was told of."""
        self._denied = denied
        self._report = report
        self._last = asyncio.Lock()
        """Of two last words at once, the second hears what became of the first."""
        self._asked: dict[QuestionId, Question | None] = {}
        self._asking: dict[tuple[str, tuple[Option, ...], bool], CommandId] = {}
        """The commands of questions that the agent has not been answered about."""

    def _heard(self, what: str) -> None:
        self._seen.heard(EvidenceKind.CHECKIN, what)

    def _waits(self, what: str) -> None:
        """It waits for an answer, a human's or another agent's: that is no idleness."""
        self._seen.heard(EvidenceKind.PROTOCOL, what)

    async def hear(self, word: AnyWord) -> SocketReply:
        """Carry out a word; raises what the store refuses."""
        self._check(word)
        if isinstance(word, CheckInMessage):
            orders = await self._allowance.check_in(self._lease, word.note, word.progress)
            self._heard(f"“{word.note}”" if word.note else BARE_CHECKIN)
            told, self.handover = self.handover, ""
            came = tuple(await self._lease.answered())
            return SocketReply(orders=msgspec.structs.replace(await self._orders(orders), handover=told, requests=came))
        if isinstance(word, LookMessage):
            return await self._look(word)
        if isinstance(word, AskMessage):
            return await self._ask(word)
        if isinstance(word, RequestMessage | AskAgentMessage):
            return await self._request(word)
        if isinstance(word, InboxMessage):
            found = await self._lease.inbox(roles=self._roles, mesh=word.mesh)
            return SocketReply(orders=await self._orders(), inbox=tuple(found))
        if isinstance(word, SpendMessage):
            self._seen.spent(told_expense(word.cost_usd, word.tokens_in, word.tokens_out))
            return SocketReply(orders=await self._orders())
        if isinstance(word, RespondMessage | DeclineMessage):
            return await self._answer(word)
        if isinstance(word, ToolMessage):
            return await self._after_tool(word)
        if isinstance(word, NoticeMessage):
            return await self._notice(word)
        async with self._last:
            return await self._say_last(word)

    async def _answer(self, word: RespondMessage | DeclineMessage) -> SocketReply:
        if isinstance(word, RespondMessage):
            self._allowance.request(len(word.answer))
            await self._lease.respond(word.request, word.answer, roles=self._roles)
            self._heard(f"it answered {word.request}")
        else:
            self._allowance.request(len(word.reason.encode()))
            await self._lease.decline(word.request, word.reason, roles=self._roles)
            self._heard(f"it declined {word.request}")
            if word.request == self._lease.task:
                self._end("decline")
        return SocketReply(orders=await self._orders(), request=word.request)

    async def _after_tool(self, word: ToolMessage) -> SocketReply:
        """Take note of a call; its program stops where the lease is lost, and tells its agent what is new."""
        check_text(word.name, "name", _NAME_MOST)
        check_text(word.call, "call", _NAME_MOST)
        check_text(word.answer, "answer", _ANSWER_MOST)
        if memoryview(word.input).nbytes > _ANSWER_MOST:
            raise Refused(_TOO_LARGE, f"an input may have {_ANSWER_MOST:,} bytes", where="input")
        if self._lease.lost is not None:
            raise self._lease.lost
        async with self._tools:
            self._seen.hear_hook(word)
            await asyncio.sleep(0)
        orders = await self._orders()
        news = {answer["question"]: _answered(answer) for answer in orders.answers}
        news |= {request: f"{request} waits for your answer: call the tool inbox." for request in orders.inbox}
        new = tuple(text for name, text in news.items() if name not in self._news_told)[:_NEWS_MOST]
        self._news_told.update(news)
        return SocketReply(orders=orders, news=new)

    async def _notice(self, word: NoticeMessage) -> SocketReply:
        check_text(word.kind, "kind", _NAME_MOST)
        check_text(word.text, "text", _TEXT_MOST)
        self._notices += 1
        if self._notices <= _NOTICES_MOST:
            about = {"kind": on_one_line(word.kind), "text": on_one_line(word.text)}
            kind = "agent_turn_failed"
            if word.event == "Notification":
                kind, about = "agent_waits", {**about, "folder": ""}
            lease = self._lease
            event = Event(kind, lease.task, lease.run, lease.agent, lease.token, about)
            await lease.send(Notice(lease.new_command(), event))
        return SocketReply(orders=await self._orders())

    async def _say_last(self, word: DoneMessage | FailMessage | ReleaseMessage) -> SocketReply:
        """It is done, has failed, or gives the task back; where "done" has to be verified, what it brought is kept."""
        verb = str(word.__struct_config__.tag)
        if self._report is not None and self._report.pending:
            if verb != self.last_word:
                text = f"it has said {self.last_word} already; the store gets it when it is back"
                raise Refused("said_before", text, where="message")
            return SocketReply(orders=await self._orders(), state=KEPT)
        command = await self._command_of(word)
        try:
            if self._report is None:
                await self._lease.repeat(command)
            else:
                with self._lease.being_ended():
                    answer = await self._report.send_once(command)
                self._lease.ended(answer)
        except Refused as error:
            if error.code != NEEDS_VERIFICATION:
                raise
            self.brought = True
        except LeaseLost as lost:
            self._lease.lost = lost
            raise
        except Unavailable:
            if self._report is None:
                raise
            self.brought = verb == "done" and bool(self._lease.verify)
            self._end(verb)
            return SocketReply(orders=await self._orders(), state=KEPT)
        self._end(verb)
        return SocketReply(orders=await self._orders(), state="verifying" if self.brought else self.last_word)

    async def _command_of(
        self, word: DoneMessage | FailMessage | ReleaseMessage
    ) -> Complete | FailCommand | ReleaseCommand:
        lease = self._lease
        match word:
            case DoneMessage():
                return lease.completion(word.result, lease.new_command(), remark(await self._denied()))
            case FailMessage():
                failure = with_denied(word.failure, await self._denied())
                return FailCommand(lease.new_command(), lease.task, lease.token, lease.agent, failure)
            case ReleaseMessage():
                delay = parse(word.delay, where="delay")
                check_given_back(delay)
                return ReleaseCommand(
                    lease.new_command(),
                    lease.task,
                    lease.token,
                    lease.agent,
                    word.reason,
                    delay,
                )
            case _:
                assert_never(word)

    def _check(self, word: AnyWord) -> None:
        lease = self._lease
        if word.task not in (None, lease.task, lease.name):
            text = f"this socket speaks for the task {lease.task} and no other"
            raise Refused("other_task", text, where="task")
        if word.token not in (None, lease.token):
            raise LeaseLost(lease.task, word.token or 0, f"this socket speaks for the token {lease.token}")

    async def _look(self, word: LookMessage) -> SocketReply:
        asked = None if word.question is None else await self._lease.question(word.question)
        if word.question is not None and (asked is None or asked.task != self._lease.task):
            raise Refused("unknown_question", f"{word.question} is not a question of this task", where="question")
        if word.request is not None:
            return await self._requested(word.request)
        if asked is not None and asked.closed_at is None:
            self._waits(f"it waits for the answer to {asked.id}")
        return SocketReply(orders=await self._orders(), question=asked)

    async def _ask(self, word: AskMessage) -> SocketReply:
        if len(word.options) > OPTIONS_MAX:
            raise Refused("too_many", f"a question has at most {OPTIONS_MAX} options", where="options")
        for option in word.options:
            check_agents_option(option)
        if word.hold:
            self._allowance.question(len(word.text.encode()))
        denied = NOTHING_DENIED if word.hold else await self._denied()
        known = denied if denied.count else None
        again = (word.text, word.options, word.hold)
        command = self._asking.setdefault(again, self._lease.new_command())  # asked again after an outage, it is one
        try:
            id_ = await self._lease.ask(word.text, word.options, hold=word.hold, command=command, denied=known)
        except (Refused, LeaseLost):
            del self._asking[again]
            raise
        self._heard("it asked a human")
        if word.hold:
            self._asked[id_] = None
        else:
            self._end("ask")  # before anything is awaited: a lease that is over without a last word was taken away
        asked = await self._lease.question(id_)
        self._asking.pop(again, None)
        return SocketReply(orders=await self._orders(), question=asked)

    @property
    def _roles(self) -> tuple[str, ...]:
        """What its agent may answer for: the role of the task that it holds."""
        return (self._lease.role,) if self._lease.role else ()

    async def _request(self, word: RequestMessage | AskAgentMessage) -> SocketReply:
        kind = DELEGATION if isinstance(word, RequestMessage) else word.kind or await self._lease.kind_for(word.to)
        if isinstance(word, AskAgentMessage) and kind == DELEGATION:
            check_delegation(word.to, word.retries, word.again, word.role)
            word = RequestMessage(role=word.to, name=word.summary, payload=word.payload, timeout=word.timeout)
        if isinstance(word, RequestMessage):
            self._allowance.request(len(word.payload) + len(word.name.encode()))
            made = await self._lease.delegate(word.role, word.name, payload=word.payload, timeout=word.timeout)
        else:
            self._allowance.request(len(word.payload) + len(word.summary.encode()))
            made = await self._lease.send_request(
                word.to,
                kind,
                word.summary,
                waits=_TIME_TO_END,
                payload=word.payload,
                timeout=word.timeout,
                retries=word.retries,
                again=word.again,
                kept=word.kept,
                role=word.role,
                key=word.key,
                blocks=word.blocks,
            )
        if isinstance(word, RequestMessage) or word.blocks:
            self.requests.append(made)
            self.asked.fire()
        self._heard(f"it asked {word.role if isinstance(word, RequestMessage) else word.to} for help")
        return SocketReply(orders=await self._orders(), request=made, kind=kind)

    async def watch_requests(self, block: Callable[[str], None]) -> None:
        """Look after its requests to other agents: `block` is called with one that was not answered."""
        while True:
            news = self.asked.listen()
            for request in [one for one in self.requests if is_request(one)]:
                with contextlib.suppress(AllswellError):  # the store is away; it is looked at again
                    if await self._lease.is_exhausted(request):
                        self._lease.blocked_on = request
                        block(f"blocked: no answer to {request}")
                        return
            await either(news, _LOOK if any(map(is_request, self.requests)) else None)

    async def _requested(self, request: TaskId) -> SocketReply:
        state, result = await self._lease.requested(request)
        if state == OPEN:
            self._waits(f"it waits for the answer to {request}")
        if state != OPEN and request in self.requests:
            self.requests.remove(request)
        said = msgspec.Raw(b"null" if result is None else result.encode())
        return SocketReply(orders=await self._orders(), request=request, state=state, result=said)

    def _end(self, verb: str) -> None:
        self.last_word = verb
        self._heard(f"its last report: {verb}")

    async def _orders(self, orders: Orders | None = None) -> AgentNotice:
        for id_, closed in self._asked.items():
            if closed is None:
                with contextlib.suppress(Unavailable):  # what was said has been taken all the same
                    now = await self._lease.question(id_)
                    self._asked[id_] = now if now is not None and now.closed_at is not None else None
        answers = tuple(
            {"question": asked.id, "choice": asked.choice or "", "answer": asked.answer}
            for asked in self._asked.values()
            if asked is not None
        )
        more = dict({} if self._more is None else self._more())
        inbox = more.pop("inbox", ())
        return AgentNotice(
            remaining_ms=None if self._lease.limit is None else self._lease.until_limit,
            deadline=None if self._lease.limit is None else Millis(self._lease.deadline),
            checkin=orders is not None and orders.asked,
            stop=self.stop,
            answers=answers,
            inbox=inbox if isinstance(inbox, tuple) else (),
            more={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in more.items()},
        )

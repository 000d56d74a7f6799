"""Where messages are handed to an operator, and where the answers come back.

A message that is quarantined leaves its queue in the same transaction that asks the question about it: the store's unit
of work has the core decide (`domain.worker.quarantine`), and beside it the message is taken out, if its token still
holds. An answer is carried out the same way, once: the row of the message says whether it was. So there is no moment at
which a message is neither in the queue nor in front of somebody.

The store speaks asyncio, so the desk has a loop of its own, in a thread of its own. While the store cannot be reached
what was handed over waits here; if the process dies meanwhile, the message shows again and comes here again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import psycopg
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from allswell.domain.ids import QuestionId
from allswell.domain.service.classify import shortened
from allswell.domain.worker.message import Quarantined, Unreadable, read_body
from allswell.domain.worker.quarantine import QuarantineAnswer, QuarantineMessage, SettleMessage, cause_of
from allswell.engine.unit_of_work import BatchPlan, BatchResult, CommitEffects, commit, perform
from allswell.errors import AllswellError, Bug, Unavailable
from allswell.store.port import Transaction, Wakeup
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.transaction import PostgresTransaction
from allswell.store.sql import load
from allswell.worker.attempt import MessagesInHand
from allswell.worker.errors import sentence
from allswell.worker.handlers import WorkerPlan
from allswell.worker.metrics import RepeatedLog, WorkerMetrics
from allswell.worker.queue import Queue, QueueMessage, statement

log = logging.getLogger("allswell.worker")
repeated = RepeatedLog(log)
LOOK_SECONDS = 1.0
"""How often is looked for answers."""
TOGETHER = 200
"""So many messages are quarantined, or settled, in one transaction at most."""
MOST_HANDED = 1_000
"""So many may wait to be quarantined; then no more are read."""
LISTED = 5
STOP_SECONDS = 2.0
"""How long a stop waits for what was handed over."""


class QuarantinedMessage(msgspec.Struct, frozen=True):
    """A message that is to be quarantined."""

    taken: QueueMessage
    type: str
    how: Quarantined


class MessageTaken(Exception):
    """The message was somebody else's by then, or its answer was carried out: nothing is written."""


class MessageEscalation:
    """The thread that asks about messages, and carries out what is answered."""

    def __init__(self, plan: WorkerPlan, figures: WorkerMetrics, in_hand: MessagesInHand) -> None:
        self._plan = plan
        self._in_hand = in_hand
        self._figures = figures
        self._store = PostgresStore(store_url(plan.conninfo))
        tables = {
            "queue": sql.Identifier("pgmq", f"q_{plan.queue}"),
            "archive": sql.Identifier("pgmq", f"a_{plan.queue}"),
        }
        texts = load("allswell.worker", "operator.sql")
        self._sql = {name: sql.SQL(text).format(**tables).as_string() for name, text in texts.items()}
        self._handed: deque[QuarantinedMessage] = deque()
        self._look_at = 0.0
        """When is looked for answers next: not with each of a thousand messages that are handed over at once."""
        self.when_drained: Callable[[], None] = lambda: None
        """Called when messages may be handed over again."""
        self._odd: set[str] = set()
        """Questions whose answer cannot be carried out, which is told once."""
        self._looking: psycopg.Connection[Any] | None = None
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="allswell-operator-desk", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hand_over(self, taken: QueueMessage, type_: str, how: Quarantined) -> None:
        """Have a message quarantined; returns at once."""
        self._in_hand.take(taken.token, time.monotonic() + self._plan.layers.visibility_timeout)
        self._handed.append(QuarantinedMessage(taken, type_, how))
        self._wake.set()

    def stop(self) -> None:
        """See to what was handed over, and stop."""
        self._over = True
        self._wake.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            opened = False
            while True:
                over, failed = self._over, True
                self._wake.clear()
                try:
                    if not opened:
                        runner.run(self._store.open())
                        opened = True
                    if not over and time.monotonic() >= self._look_at:
                        self._carry_out_answers(runner)
                        self._look_at = time.monotonic() + LOOK_SECONDS
                    self._work_off(runner)
                    failed = False
                except (AllswellError, psycopg.Error) as error:
                    why = sentence(error) if isinstance(error, psycopg.Error) else str(error)
                    repeated.write(logging.WARNING, why, "the operator's questions cannot be seen to: %s", why)
                except Exception as error:  # noqa: BLE001 - it is told, and tried again
                    text = "the operator's questions cannot be seen to"
                    repeated.write(logging.ERROR, type(error).__name__, text, error=error)
                if over:
                    break
                if not self._handed or failed:
                    self._wake.wait(LOOK_SECONDS)
            with suppress(Exception):
                runner.run(self._store.close())
            if self._looking is not None:
                self._looking.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many more messages may be handed over: reading slows down where quarantining does."""
        return max(MOST_HANDED - len(self._handed), 0)

    def _work_off(self, runner: asyncio.Runner) -> None:
        while self._handed and (self._over or time.monotonic() < self._look_at):
            together = [self._handed.popleft() for _ in range(min(len(self._handed), TOGETHER))]
            groups = _by_cause(together)
            try:
                for cause in list(groups):
                    self._quarantine_all(runner, cause, groups[cause])
                    for handed in groups.pop(cause):
                        self._in_hand.let_go(handed.taken.token)
            finally:
                self._handed.extendleft(handed for group in groups.values() for handed in group)
            self.when_drained()

    def _quarantine_all(self, runner: asyncio.Runner, cause: str, group: list[QuarantinedMessage]) -> None:
        """Quarantine messages that failed for one cause, in one transaction; `Unavailable` where that must wait."""
        kept: list[int] = []
        try:
            runner.run(self._commit(lambda tx: self._quarantine(tx, cause, group, kept)))
        except MessageTaken:
            kept.clear()
        except Unavailable:
            raise  # they stay here, and are tried again
        except Exception as error:  # noqa: BLE001 - they show again by themselves: nothing behind them waits for them
            text = "messages %s cannot be quarantined"
            repeated.write(logging.ERROR, type(error).__name__, text, _listed(group), error=error)
            return
        ours = [handed for handed in group if handed.taken.token.id in set(kept)]
        late = [handed for handed in group if handed not in ours]
        if ours:
            verb, how = "is" if len(ours) == 1 else "are", ours[0].how
            log.error(
                "message%s %s %s quarantined (%s): %s", "s" * (verb == "are"), _listed(ours), verb, how.code, how.reason
            )
        for _ in ours:
            self._figures.ended("quarantined")
        for handed in late:
            code = handed.how.code
            log.warning("message %s is another worker's: it is not quarantined (%s)", handed.taken.token.id, code)
            self._figures.ended("late")
        with suppress(psycopg.Error):  # then it is held against the messages, which stay in the queue
            Queue(self._plan.queue).came_back(self._connected(), {handed.taken.token: "" for handed in late})

    async def _commit(self, work: Any) -> BatchResult:  # noqa: ANN401 - a function of a transaction
        return await commit(self._store, work, call=_told)

    async def _quarantine(
        self, tx: Transaction, cause: str, group: list[QuarantinedMessage], kept: list[int]
    ) -> BatchResult:
        """Ask about messages and take them out of the queue; `kept` has the ids of those that were this worker's."""
        beside, queue = _beside(tx), self._plan.queue
        kept.clear()
        kept += [int(id_) for (id_,) in await beside.beside(self._sql["hold"], _tokens(group))]
        ours = [handed for handed in group if handed.taken.token.id in set(kept)]
        if not ours:
            raise MessageTaken
        first = ours[0]
        token, how = first.taken.token, first.how
        await beside.beside(self._sql["one_cause_at_a_time"], queue, cause)
        found = await beside.beside(self._sql["open_question"], queue, cause)
        joins, before = (QuestionId(found[0][0]), int(found[0][1])) if found else (None, 0)
        command = QuarantineMessage(
            queue,
            token.id,
            token.read_count,
            first.type,
            how.code,
            how.reason,
            sent=token.sent,
            payload=_payload(first.taken.body),
            messages=len(ours),
            joins=joins,
            before=before,
        )
        done = await perform(tx, BatchPlan([command]), {}, lambda: 0.0)
        question = str(_answer(done))
        await beside.beside(self._sql["take_out"], queue, _json(kept))
        await beside.beside(self._sql["note"], queue, question, cause, _json([_noted(handed) for handed in ours]))
        return done

    # --- carrying out answers -----------------------------------------------------------------------------------------

    def _carry_out_answers(self, runner: asyncio.Runner) -> None:
        for question, id_, read_count in self._answered():
            command = SettleMessage(QuestionId(question), self._plan.queue, id_, read_count)
            try:
                while True:
                    runner.run(self._commit(lambda tx, command=command: self._settle(tx, command)))
            except MessageTaken:
                pass  # it was carried out for all of them, here or by another worker
            except Unavailable:
                raise
            except Exception:
                if question not in self._odd:
                    log.exception("message %s: the answer to %s cannot be carried out", id_, question)
                self._odd.add(question)
                continue
            log.info("the answer to %s was carried out", question)

    def _answered(self) -> list[tuple[str, int, int]]:
        """Questions about messages that were answered, each with one message and its count of readings."""
        return self._connected().execute(statement("answered"), (self._plan.queue,)).fetchall()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._looking is None or self._looking.closed:
            self._looking = psycopg.connect(self._plan.conninfo, autocommit=True, **self._plan.connecting())
        return self._looking

    async def _settle(self, tx: Transaction, command: SettleMessage) -> BatchResult:
        """Carry out an answer for some of the messages that it is about; `MessageTaken` where none is left."""
        beside, queue = _beside(tx), command.queue
        rows = await beside.beside(self._sql["unsettled"], queue, str(command.question), TOGETHER)
        if not rows:
            raise MessageTaken
        tokens = _json([{"id": int(id_), "sent": int(sent)} for id_, _, sent in rows])
        (id_, read_count, _), messages = rows[0], len(rows)
        command = replace(command, message=int(id_), read_count=int(read_count), messages=messages)
        done = await perform(tx, BatchPlan([command]), {}, lambda: 0.0)
        settled = _answer(done)
        if not isinstance(settled, QuarantineAnswer):
            raise Bug(f"an answer about a message came to {settled!r}")
        await beside.beside(self._sql["settle"], queue, settled.state, tokens)
        if settled.comes_back:
            back = {int(id_) for (id_,) in await beside.beside(self._sql["bring_back"], tokens)}
            gone = [{"id": int(id_), "sent": int(sent)} for id_, _, sent in rows if int(id_) not in back]
            if gone:
                text = "%d messages are in the archive no more: the answer to %s changes nothing about them"
                log.warning(text, len(gone), command.question)
                await beside.beside(self._sql["forget"], queue, _json(gone))
        else:
            for target, message, batch in await beside.beside(self._sql["end_of_batch"], tokens):
                await beside.beside(self._sql["send"], target, message)
                await beside.beside(self._sql["forget_batch"], batch)
        return done


def _by_cause(handed: list[QuarantinedMessage]) -> dict[str, list[QuarantinedMessage]]:
    """What was handed over, by what it failed for."""
    groups: dict[str, list[QuarantinedMessage]] = {}
    for one in handed:
        groups.setdefault(cause_of(one.type, one.how.code, one.how.reason), []).append(one)
    return groups


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _tokens(group: list[QuarantinedMessage]) -> str:
    tokens = [handed.taken.token for handed in group]
    return _json([{"id": token.id, "count": token.read_count, "sent": token.sent} for token in tokens])


def _noted(handed: QuarantinedMessage) -> dict[str, object]:
    token, history, how = handed.taken.token, handed.taken.history, handed.how
    return {
        "id": token.id,
        "sent": token.sent,
        "count": token.read_count,
        "recorded": history.recorded + 1,
        "retries": history.retries,
        "code": how.code,
        "reason": how.reason,
    }


def _payload(body: object) -> str:
    """What a message carries, as JSON on one line; the beginning of it is enough."""
    read = read_body(body)
    return shortened(_json(body if isinstance(read, Unreadable) else read[1]))


def _listed(group: list[QuarantinedMessage]) -> str:
    """The ids of messages, not too many of them."""
    ids = [str(handed.taken.token.id) for handed in group]
    more = f" and {len(ids) - LISTED:,} more" if len(ids) > LISTED else ""
    return ", ".join(ids[:LISTED]) + more


def _beside(tx: Transaction) -> PostgresTransaction:
    if not isinstance(tx, PostgresTransaction):
        raise Bug(f"the worker's store is no PostgreSQL: {type(tx).__name__}")
    return tx


def _answer(done: BatchResult) -> object:
    (answer,) = done.answers
    if isinstance(answer, AllswellError):
        raise answer
    return answer


def _told(news: CommitEffects) -> Wakeup:
    return Wakeup(journal=news.events)


def store_url(conninfo: str) -> str:
    """The store that lies in the queue's database, as a URL."""
    if conninfo.startswith(("postgresql://", "postgres://")):
        return conninfo
    said = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    user, password = quote(said.pop("user", ""), safe=""), quote(said.pop("password", ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    host, port, name = said.pop("host", ""), said.pop("port", ""), quote(said.pop("dbname", ""), safe="")
    if host.startswith("/"):
        said, host = {"host": host, **said}, ""
    more = f"?{urlencode(said)}" if said else ""
    return f"postgresql://{login}{host}{f':{port}' if port else ''}/{name}{more}"


async def make_store(conninfo: str) -> None:
    """Make the store in the queue's database, or bring it up to date."""
    store = PostgresStore(store_url(conninfo))
    await store.open()
    await store.close()

"""Where messages are handed to an operator, and where the answers come back.

A message that is quarantined leaves its queue in the same transaction that asks the question about it: the store's unit
of work has the core decide (`domain.quarantine`), and beside it the message is taken out, if its token still holds. An
answer is carried out the same way, once: the row of the message says whether it was. So there is no moment at which a
message is neither in the queue nor in front of somebody.

The store speaks asyncio, so the desk has a loop of its own, in a thread of its own. While the store cannot be reached
what was handed over waits here; if the process dies meanwhile, the message shows again and comes here again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from allswell.domain.handling import Quarantined
from allswell.domain.names import QuestionId
from allswell.domain.quarantine import QuarantineMessage, Settled, SettleMessage
from allswell.engine.batch import Performed, Plan, perform
from allswell.engine.batcher import commit
from allswell.engine.book import News
from allswell.errors import AllswellError, Bug, Unavailable
from allswell.store.call import Call
from allswell.store.port import Transaction
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.transaction import PostgresTransaction
from allswell.store.sql import load
from allswell.worker.failures import sentence
from allswell.worker.figures import Figures
from allswell.worker.plan import WorkerPlan
from allswell.worker.queue import Queue, Taken, statement

log = logging.getLogger("allswell.worker")
LOOK_SECONDS = 1.0
"""How often is looked for answers."""
STOP_SECONDS = 2.0
"""How long a stop waits for what was handed over."""


class HandedOver(msgspec.Struct, frozen=True):
    """A message that is to be quarantined."""

    taken: Taken
    type: str
    how: Quarantined


class NotOurs(Exception):
    """The message was somebody else's by then, or its answer was carried out: nothing is written."""


class OperatorDesk:
    """The thread that asks about messages, and carries out what is answered."""

    def __init__(self, plan: WorkerPlan, figures: Figures) -> None:
        self._plan = plan
        self._figures = figures
        self._store = PostgresStore(store_url(plan.conninfo))
        tables = {
            "queue": sql.Identifier("pgmq", f"q_{plan.queue}"),
            "archive": sql.Identifier("pgmq", f"a_{plan.queue}"),
        }
        texts = load("allswell.worker", "operator.sql")
        self._sql = {name: sql.SQL(text).format(**tables).as_string() for name, text in texts.items()}
        self._handed: deque[HandedOver] = deque()
        self._look_at = 0.0
        """When is looked for answers next: not with each of a thousand messages that are handed over at once."""
        self._odd: set[str] = set()
        """Questions whose answer cannot be carried out, which is told once."""
        self._looking: psycopg.Connection[Any] | None = None
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="allswell-operator-desk", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hand_over(self, taken: Taken, type_: str, how: Quarantined) -> None:
        """Have a message quarantined; returns at once."""
        self._handed.append(HandedOver(taken, type_, how))
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
                over = self._over
                self._wake.clear()
                try:
                    if not opened:
                        runner.run(self._store.open())
                        opened = True
                    self._work_off(runner)
                    if not over and time.monotonic() >= self._look_at:
                        self._carry_out_answers(runner)
                        self._look_at = time.monotonic() + LOOK_SECONDS
                except AllswellError as error:
                    log.warning("the operator's questions cannot be seen to: %s", error)
                except psycopg.Error as error:
                    log.warning("the operator's questions cannot be seen to: %s", sentence(error))
                except Exception:
                    log.exception("the operator's questions cannot be seen to")
                if over:
                    break
                self._wake.wait(LOOK_SECONDS)
            with suppress(Exception):
                runner.run(self._store.close())
            if self._looking is not None:
                self._looking.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def _work_off(self, runner: asyncio.Runner) -> None:
        while self._handed:
            handed = self._handed[0]
            id_, how = handed.taken.token.id, handed.how
            try:
                runner.run(self._commit(lambda tx, handed=handed: self._quarantine(tx, handed)))
            except NotOurs:
                log.warning("message %s was given to somebody else: it is not quarantined (%s)", id_, how.code)
                self._figures.ended("late")
                with suppress(psycopg.Error):  # then it is held against the message, which stays in the queue
                    Queue(self._plan.queue).came_back(self._connected(), [handed.taken.token])
            except Unavailable:
                raise  # it stays here, and is tried again
            except Exception:  # it shows again by itself: nothing that stands behind it waits for it
                log.exception("message %s cannot be quarantined", id_)
            else:
                log.error("message %s is quarantined (%s): %s", id_, how.code, how.reason)
                self._figures.ended("quarantined")
            self._handed.popleft()

    async def _commit(self, work: Any) -> Performed:  # noqa: ANN401 - a function of a transaction
        return await commit(self._store, work, call=_told)

    async def _quarantine(self, tx: Transaction, handed: HandedOver) -> Performed:
        beside = _beside(tx)
        token, queue = handed.taken.token, self._plan.queue
        command = QuarantineMessage(queue, token.id, token.read_count, handed.type, handed.how.code, handed.how.reason)
        done = await perform(tx, Plan([command]), {}, lambda: 0.0)
        question = _answer(done)
        if not await beside.beside(self._sql["hold"], token.id, token.read_count):
            raise NotOurs
        await beside.beside(self._sql["take_out"], queue, token.id)
        history = handed.taken.history
        noted = (queue, token.id, token.read_count, history.recorded + 1, history.retries)
        await beside.beside(self._sql["note"], *noted, handed.how.code, handed.how.reason, str(question))
        return done

    # --- carrying out answers -----------------------------------------------------------------------------------------

    def _carry_out_answers(self, runner: asyncio.Runner) -> None:
        for id_, read_count, question in self._answered():
            command = SettleMessage(QuestionId(question), self._plan.queue, id_, read_count)
            try:
                runner.run(self._commit(lambda tx, command=command: self._settle(tx, command)))
            except NotOurs:
                continue  # another worker was faster
            except Unavailable:
                raise
            except Exception:
                if question not in self._odd:
                    log.exception("message %s: the answer to %s cannot be carried out", id_, question)
                self._odd.add(question)
                continue
            log.info("message %s: the answer to %s was carried out", id_, question)

    def _answered(self) -> list[tuple[int, int, str]]:
        """Quarantined messages whose question was answered: (id, count of readings, question)."""
        return self._connected().execute(statement("answered"), (self._plan.queue,)).fetchall()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._looking is None or self._looking.closed:
            self._looking = psycopg.connect(self._plan.conninfo, autocommit=True, **self._plan.connecting())
        return self._looking

    async def _settle(self, tx: Transaction, command: SettleMessage) -> Performed:
        beside = _beside(tx)
        done = await perform(tx, Plan([command]), {}, lambda: 0.0)
        settled = _answer(done)
        if not isinstance(settled, Settled):
            raise Bug(f"an answer about a message came to {settled!r}")
        history = settled.history
        told = (settled.state, history.recorded, history.retries)
        if not await beside.beside(self._sql["settle"], command.queue, command.message, str(command.question), *told):
            raise NotOurs
        if settled.comes_back:
            await beside.beside(self._sql["bring_back"], command.message)
        else:
            for queue, message, batch in await beside.beside(self._sql["end_of_batch"], command.message):
                await beside.beside(self._sql["send"], queue, message)
                await beside.beside(self._sql["forget_batch"], batch)
        return done


def _beside(tx: Transaction) -> PostgresTransaction:
    if not isinstance(tx, PostgresTransaction):
        raise Bug(f"the worker's store is no PostgreSQL: {type(tx).__name__}")
    return tx


def _answer(done: Performed) -> object:
    (answer,) = done.answers
    if isinstance(answer, AllswellError):
        raise answer
    return answer


def _told(news: News) -> Call:
    return Call(journal=news.events)


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

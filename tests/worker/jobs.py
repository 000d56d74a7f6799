"""Handlers for worker processes of their own: good ones, and every kind of bad one."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import psycopg

from allswell.domain.worker.message import Message
from allswell.worker import Handlers

Connection = psycopg.Connection[Any]
handlers = Handlers()


def write(message: Message, connection: Connection) -> None:
    """The effect: a row for each message, in the handler's own transaction."""
    query = f"INSERT INTO effect VALUES (%s, {os.getpid()})"
    connection.execute(query.encode(), (message.payload["number"],))


@handlers.handler("work")
def work(message: Message, connection: Connection) -> None:
    write(message, connection)


@handlers.handler("slow")
def slow(message: Message, connection: Connection) -> None:
    write(message, connection)
    connection.execute("SELECT pg_sleep(0.3)")


@handlers.handler("async")
async def in_loop(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("INSERT INTO effect VALUES (%s, 0)", (message.payload["number"],))


@handlers.handler("long", long=True)
def long(message: Message, connection: Connection) -> None:
    write(message, connection)
    for _ in range(3):
        connection.execute("SELECT pg_sleep(0.5)")


@handlers.handler("stuck")
def stuck(message: Message, connection: Connection) -> None:
    write(message, connection)
    if message.read_count == 1:
        time.sleep(3_600)


@handlers.handler("deadly")
def deadly(message: Message, connection: Connection) -> None:
    write(message, connection)
    os._exit(9)


@handlers.handler("hold")
def hold_the_interpreter(message: Message, connection: Connection) -> None:
    if message.read_count == 1:
        re.match(r"(a+)+$", "a" * 64 + "b")  # takes longer than the universe is old, and lets no other thread run
    write(message, connection)

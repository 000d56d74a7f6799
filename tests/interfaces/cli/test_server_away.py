"""A server that is away when a program or a command comes is waited for, as long as the docs say and no longer."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import allswell
from allswell.interfaces.cli.app import run
from allswell.testing.proxy import Proxy
from tests.interfaces.cli.console import Console


@pytest.fixture(name="away")
def _away(pg_url: str) -> Iterator[Proxy]:
    """A server that refuses everybody until it is told otherwise."""
    parts = urlsplit(pg_url)
    with Proxy(parts.hostname or "", parts.port or 0) as proxy:
        proxy.refusing = True
        yield proxy


class BackOnceToldOf(logging.Handler):
    """Brings the server back when it is told that somebody waits for it."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy, self.told = proxy, ""

    def emit(self, record: logging.LogRecord) -> None:
        self.told += record.getMessage()
        self.proxy.refusing = False


class Terminal(io.StringIO):
    """A terminal whose user starts the server as soon as it is said to be missing."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy = proxy

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "Waiting up to" in text:
            self.proxy.refusing = False
        return super().write(text)


def test_open_waits_for_a_server_that_is_away(away: Proxy, pg_url: str) -> None:
    url = away.before(pg_url)
    heard = BackOnceToldOf(away)
    log = logging.getLogger("allswell.engine")
    log.addHandler(heard)
    try:

        async def main() -> str:
            async with allswell.open(url) as watch:
                return await watch.submit("waits")

        assert asyncio.run(main())
        away.refusing, told = True, heard.told
        assert told.startswith("Waiting up to 30 s for the store: no connection to PostgreSQL at 127.0.0.1")
        with allswell.open(url) as watch:
            assert watch.submit("waits, too")
        assert heard.told != told
    finally:
        log.removeHandler(heard)


def test_commands_wait_with_a_word_at_a_terminal_and_give_up_in_time(
    away: Proxy, pg_url: str, cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = away.before(pg_url)
    for line in (["submit", "waits"], ["tasks"]):
        away.refusing = True
        out, err = io.StringIO(), Terminal(away)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            monkeypatch.setattr(sys, "stdin", io.StringIO())
            code = run([*line, "--store", url])
        assert (code, err.getvalue().count("Waiting up to 30 s for the store")) == (0, 1), err.getvalue()
    away.refusing = True
    monkeypatch.setenv("ALLSWELL_PACE_STORE_PATIENCE", "100ms")
    for line in (["submit", "late"], ["tasks"], ["tasks", "--json"]):
        said = cli(*line, "--store", url)
        assert said.code == 75
        assert "gave up after store_patience 0.1 s" in said.out + said.err
        assert "Waiting" not in said.err  # nobody is at a terminal

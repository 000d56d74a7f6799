"""A supervisor that stands still for longer than its leases last: what its agents brought is refused, and kept."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from allswell import make_watch
from allswell.app import store_for
from allswell.runtime.receipts import StateDir
from tests import patience
from tests.interfaces.cli.upkeep import environment

SETTINGS = """
[fleet]
lease = "2s"
[agents.worker]
command = ["sh", "./agent.sh", "{name}", "{payload}"]
concurrency = 6
"""
AGENT = """
touch ready.$1
while [ ! -e go ]; do sleep 0.05; done
touch made.$1.$ALLSWELL_ATTEMPT
exit $2
"""


def start(folder: Path, url: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "allswell", "up", "--drain", "--store", url]
    with (folder / "up.txt").open("wb") as log:
        return subprocess.Popen(words, cwd=folder, env=environment(), stdout=log, stderr=log)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(patience.SECONDS):
        while not reached():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def slow_to_answer(url: str) -> AsyncIterator[None]:
    """On PostgreSQL nobody is answered for a while, as when very many ask at once: a supervisor waits a second."""
    if not url.startswith("postgresql"):
        yield
        return
    async with (
        await AsyncConnection.connect(url) as locks,
        await AsyncConnection.connect(url, autocommit=True) as looks,
    ):
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'allswell'"
        for (name,) in await (await locks.execute(tables)).fetchall():
            await locks.execute(SQL("LOCK TABLE allswell.{} IN ACCESS EXCLUSIVE MODE").format(Identifier(name)))
        yield
        waiting = "wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '1500 ms'"
        async with asyncio.timeout(patience.SECONDS):
            while not await (await looks.execute(SQL("SELECT FROM pg_stat_activity WHERE " + waiting))).fetchall():
                await asyncio.sleep(0.05)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/.allswell/allswell.db"
    return str(request.getfixturevalue("pg_url"))


@pytest.mark.realtime
@pytest.mark.row("O10")
def test_what_agents_bring_to_a_frozen_supervisor_is_refused_and_kept_and_the_log_says_what_the_store_says(
    tmp_path: Path,
    url: str,
) -> None:
    (tmp_path / ".allswell").mkdir()
    (tmp_path / "allswell.toml").write_text(SETTINGS)
    (tmp_path / "agent.sh").write_text(AGENT)
    home = StateDir(tmp_path / ".allswell")

    async def main() -> None:
        async with make_watch(store_for(url)) as watch:
            names = [f"n{number}" for number in range(6)]
            # The last one fails, and then fails for good.
            ids = [await watch.submit(name, payload=int(name == "n5"), retries=0) for name in names]
            up = start(tmp_path, url)
            try:
                await until(lambda: len(list(tmp_path.glob("ready.*"))) == 6)
                os.kill(up.pid, signal.SIGSTOP)
                (tmp_path / "go").touch()
                await until(lambda: len(list(tmp_path.glob("made.*.1"))) == 6)
                for id_ in ids:
                    while not await watch.attempts(id_):  # our own sweeper finds what has lapsed
                        await asyncio.sleep(0.05)
                async with slow_to_answer(url):
                    os.kill(up.pid, signal.SIGCONT)
                await until(lambda: up.poll() is not None)
            finally:
                if up.poll() is None:
                    up.kill()
                    up.wait()
            lines = (tmp_path / "up.txt").read_text().splitlines()
            for name, id_ in zip(names, ids, strict=True):
                first, *more = await watch.attempts(id_)
                assert (first.outcome, [one.outcome.partition(":")[0] for one in more][-1:]) == (
                    "lease_lapsed",
                    ["failed" if name == "n5" else "done"],
                )
                assert first.late is not None, f"what {name} brought is lost\n" + "\n".join(lines)
                late = '{"message":"exit code 1' if name == "n5" else '{"exit_code":0}'
                assert first.late.startswith(late)
                receipt = next(one.receipt for one in home.receipts.of_task(id_) if one.receipt.attempt == 1)
                assert receipt.exit_code == int(name == "n5")
                # As the store says it or, where that has not answered in time, as the supervisor knows it itself.
                told = [f"; before that, its lease {said} renewed in time" for said in ("was not", "could not be")]
                assert any(text in receipt.reason for text in told)
            done = [line for line in lines if " has done “" in line]
            assert len(done) == 5, "\n".join(lines)
            assert len([line for line in lines if line.endswith("what it brought is kept")]) == 6

    asyncio.run(main())

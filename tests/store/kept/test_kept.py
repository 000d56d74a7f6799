"""A store and a run folder that an earlier Allswell left in the middle of a night: this one opens them and goes on."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import msgspec
import psycopg
import pytest

import allswell
from allswell.app import store_for
from allswell.domain.access.key import Sessions
from allswell.domain.agents import status
from allswell.domain.ids import Millis
from allswell.domain.lease.model import AgentRecord, ExpiredDelivery
from allswell.domain.notify.delivery import DeliveryFilter
from allswell.domain.run.run import Fanout
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import ServiceRow, ShutReason, shut
from allswell.domain.task.model import TaskFilter
from allswell.engine.access.keys import Keyring
from allswell.store.port import RowRequest
from tests.interfaces.cli.upkeep import run
from tests.patience import SECONDS
from tests.store.kept.make import HERE
from tests.store.kept.restore import restore_postgres, restore_sqlite
from tests.store.kept.scene import NIGHTS, RAN_BEFORE, program
from tests.support.conformance.place import read

FAR = 2_000_000_000_000
OF_FLOWS = {"digest": "held", "fetch": "done", "first": "done", "slow": "done", "cut": "held", "last": "waiting"}


@pytest.fixture(params=NIGHTS)
def night(request: pytest.FixtureRequest) -> str:
    """The day on which it was made."""
    return str(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, night: str) -> str:
    if request.param == "sqlite":
        return restore_sqlite(tmp_path, night)
    return restore_postgres(request.getfixturevalue("pg_url"), night)


async def by_name(watch: allswell.Watch) -> dict[str, str]:
    return {row.task.name: row.state for row in await watch.tasks(TaskFilter(limit=100))}


async def claim(watch: allswell.Watch, name: str, agent: str) -> allswell.Lease | None:
    (task,) = [row.task.id for row in await watch.tasks(TaskFilter(limit=100)) if row.task.name == name]
    return await watch.claim(agent=agent, task=task)


def test_everything_stands_as_it_was_left(url: str, night: str) -> None:
    states = NIGHTS[night]

    async def main() -> None:
        async with allswell.make_watch(store_for(url), sweeping=False) as watch:
            assert await watch.unaccounted() == []
            stands = await by_name(watch)
            assert {name: stands[name] for name in states} == states
            assert {name: state for name, state in stands.items() if name not in states}.items() <= OF_FLOWS.items()
            runs = {row.name: row for row in await watch.runs()}
            assert runs["stands"].stands_since is not None
            assert runs["night"].limit is not None
            assert runs["over"].reason == "enough"
            asked = {question.text: question for question in await watch.questions(open_only=False)}
            assert {text for text, question in asked.items() if question.closed_at is None} >= {
                "Which table?",
                "By the way?",
            }
            assert (asked["And this one?"].choice, asked["And this one?"].answered_by) == ("retry", "cleo")
            services = {row.id: row for row in await watch.services()}
            assert services["parked"].state.parked_until is not None
            assert services["broken"].state.failures == 3
            assert services["locked"].causes == {"auth": 1}
            assert [(agent.id, agent.stalled) for agent in await watch.agents()] == [("eve", True)]
            (done,) = [row for row in await watch.tasks(TaskFilter(limit=100)) if row.task.name == "done"]
            assert await watch.result(done.task.id) == {"pages": [1, 2, 3]}
            assert [attempt.outcome for attempt in await watch.attempts(done.task.id)] == ["done"]
            kinds = [entry.event.kind async for entry in watch.events()]
            assert kinds[:3] == ["task_submitted", "task_claimed", "task_completed"]
            assert "run_ended" in kinds

    asyncio.run(main())


def execute(url: str, *statements: str) -> None:
    """Statements on a store that is not open, with the tables named as on SQLite."""
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"))
        raw.executescript(";".join(statements))
        raw.close()
        return
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = allswell")
        for statement in statements:
            connection.execute(statement.encode())


CONTINUED = {
    "r_failed": ("failed, and went on in r_second", "failed", "r_second"),
    "r_second": ("a, b, and went on in r_first, and went on in r_third", "a, b, and went on in r_first", "r_third"),
    "r_no_word": ("went on in r_third", "", "r_third"),
    "r_third": ("done", "done", None),
    "r_unknown": ("went on in r_nothing", "went on in r_nothing", None),
    "r_earlier": ("failed, and went on in r_first", "failed, and went on in r_first", None),
    "r_first": ("it went on in r_third", "it went on in r_third", None),
    "r_in_words": ("went on in r_third well", "went on in r_third well", None),
}
"""Runs that have ended: their reasons as an earlier version kept them, and what is to become of those."""


def test_where_a_run_went_on_is_known_from_what_was_kept(url: str) -> None:
    """Of a reason that names a run only what opening that run has written counts."""
    opened = {"r_first": 1, "r_second": 20, "r_third": 30}
    for id_, (reason, *_) in CONTINUED.items():
        at, end = opened.get(id_, 5), opened.get(id_, 5) + 5
        execute(
            url,
            "INSERT INTO run (id, name, created_at, deadline, ended_at, reason, command) "  # noqa: S608 - our own
            f"VALUES ('{id_}', 'kept', {at}, NULL, {end}, '{reason}', '')",
        )

    async def main() -> None:
        async with allswell.make_watch(store_for(url), sweeping=False) as watch:
            for id_, (before, reason, continued) in CONTINUED.items():
                run = await watch.run(id_)
                assert run is not None
                assert (run.reason, run.continued_in, run.end_text) == (reason, continued, before)

    asyncio.run(main())


def test_a_walk_over_leases_goes_on_where_it_was(url: str) -> None:
    """How far it had got was its reason once."""
    execute(
        url,
        "INSERT INTO spread (id, outcome, reason, replaced_by) "
        "VALUES ('r_x~1', 'moved', 't_reached', '[]'), ('t_y', 'failed', 'no such table', '[]')",
    )

    async def main() -> None:
        store = store_for(url)
        await store.open()
        try:
            found = (await read(store, RowRequest(spreads=["r_x~1", "t_y"]))).spreads
        finally:
            await store.close()
        assert found == {
            "r_x~1": Fanout("r_x~1", "moved", "", reached="t_reached"),
            "t_y": Fanout("t_y", "failed", "no such table"),
        }

    asyncio.run(main())


@pytest.mark.parametrize("night", ["2026-11-18"], indirect=True)
def test_what_requests_say_of_agents_is_taken_over(url: str) -> None:
    """It was kept in rows of agents once, under names of their own."""
    record = AgentRecord((ExpiredDelivery(Millis(5), "m_1", "handoff", 300_000),), (Millis(7),))
    text = msgspec.json.encode(record).decode()
    execute(url, f"INSERT INTO agent (id, misses, missed_at, stalled, standing) VALUES ('@ada', 0, 0, false, '{text}')")  # noqa: S608 - our own

    async def main() -> None:
        async with allswell.make_watch(store_for(url), sweeping=False) as watch:
            assert await watch.views.view_health() == {"ada": record}
            assert [(agent.id, agent.stalled) for agent in await watch.agents()] == [("eve", True)]

    asyncio.run(main())


def test_a_run_that_had_reached_its_budget_waits_for_its_answer(url: str) -> None:
    """That it is shut for good was told by how far away its end was."""
    ends = {"budget:run:r_x": FAR, "budget:role:writer": FAR}  # that of a day may be far too, where a clock was wrong
    for id_, end in ends.items():
        row = ServiceRow(id_, Service(parked_until=Millis(end)), questions=1, step=5)
        state = msgspec.json.encode(row).decode()
        execute(url, f"INSERT INTO service (id, state) VALUES ('{id_}', '{state}')")  # noqa: S608 - our own

    async def main() -> None:
        async with allswell.make_watch(store_for(url), sweeping=False) as watch:
            rows = await watch.views.view_services()
            assert {id_: shut(rows[id_], Millis(1)) for id_ in ends} == {
                "budget:run:r_x": ShutReason("parked", None),
                "budget:role:writer": ShutReason("parked", Millis(FAR)),
            }

    asyncio.run(main())


@pytest.mark.parametrize("night", ["2026-11-18"], indirect=True)
def test_all_that_came_later_reads_too(url: str) -> None:
    """Requests, money, verdicts, keys, sessions, deliveries, supervisors: what the first night did not have."""

    async def main() -> None:
        async with allswell.make_watch(store_for(url), sweeping=False) as watch:
            rows = {row.task.name: row for row in await watch.tasks(TaskFilter(limit=100))}
            ids = {name: row.task.id for name, row in rows.items()}
            asks, request = rows["asks others"].task, rows["is it up?"].task
            assert request.record.request is not None
            assert request.record.request.blocked_at is not None
            assert request.spec.origin is not None
            assert request.spec.origin.task == asks.id
            assert await watch.result(ids["write me a haiku"]) == {"lines": 3}
            (spent,) = await watch.views.view_expenses(ids["costs"])
            assert (spent.agent, spent.role, spent.cost, spent.given, spent.written) == (
                "ada",
                "writer",
                2_500_000,
                90_000,
                4_000,
            )
            assert await watch.recall(f"max_cost.{rows['costs'].task.run}") == "40000000"
            assert rows["costs too much"].task.record.cost_override == 9_000_000
            (check,) = rows["to be verified"].task.record.failed_checks
            assert (check.why, check.said, check.elapsed) == ("exit code 2", "2 failed", 700)
            dismissed = rows["dismissed"].task.record.dismissed
            assert dismissed is not None
            assert dismissed.by == "cleo"
            keys = {key.name: key for key in await Keyring(watch).all()}
            assert {name: key.rights for name, key in keys.items()} == {
                "ada": ("agent",),
                "gone": ("viewer",),
                "op": ("operator",),
            }
            assert [name for name, key in keys.items() if key.revoked_at is not None] == ["gone"]
            sessions = msgspec.json.decode((await watch.recall("session.op")) or "", type=Sessions)
            assert (sessions.link is not None and sessions.link.used, len(sessions.open)) == (True, 1)
            waiting, given_up = await watch.views.view_deliveries(DeliveryFilter(sink="ops"))
            assert (waiting.id, waiting.body, waiting.given_up) == ("msg_ops_1", '{"text": "hello"}', False)
            assert (given_up.tries, given_up.given_up, given_up.reason) == (4, True, "410 Gone")
            assert await watch.recall("sink.ops.memory") == "remembered"
            fleet = status.read_presence((await watch.recall("supervisor.night")) or "")
            assert fleet is not None
            assert [slot.name for slot in fleet.posts] == ["costs"]
            left = status.read_survivors((await watch.recall("survivors.ada")) or "")
            assert left is not None
            assert [process.command for process in left.processes] == ["sleep 9"]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_the_newest_night_has_a_row_in_every_table(name: str) -> None:
    text = (HERE / max(NIGHTS) / f"{name}.sql").read_text()
    tables = set(re.findall(r'^CREATE TABLE (?:allswell\.)?"?(\w+)', text, re.MULTILINE))
    filled = set(re.findall(r'^INSERT INTO (?:allswell\.)?"?(\w+)', text, re.MULTILINE))
    assert len(tables) >= 16
    assert sorted(tables - filled) == []


def test_work_goes_on(url: str) -> None:
    """What was due happens; a claim, an answer and a completion do what they always did; fences stand."""

    async def main() -> None:
        async with allswell.open(url) as watch:
            heard = [entry.event async for entry in watch.events()]
            awaited = {("leased", "ready"), ("of a run that ends", "cancelled")}
            async with asyncio.timeout(SECONDS):
                while not awaited <= (await by_name(watch)).items():
                    await asyncio.sleep(0.01)
            writing = await watch.claim(agent="dora", roles=["writer"])
            assert writing is not None
            assert (writing.name, writing.payload, writing.attempt) == ("ready", {"file": "notes.md"}, 1)
            await writing.complete("written")
            again = await watch.submit(
                "ready", role="writer", priority=3, barred=["cato"], payload={"file": "notes.md"}, key="kept"
            )
            assert again == writing.task, "it is known by its key"
            leased = await claim(watch, "leased", "dora")
            assert leased is not None
            assert leased.attempt == 2
            await leased.complete()
            assert await claim(watch, "needs the parked", "dora") is None
            (question,) = [one.id for one in await watch.questions() if one.text == "Which table?"]
            await watch.answer(question, "retry", "the first", by="cleo")
            asks = await claim(watch, "asks", "dora")
            assert asks is not None
            assert [note.rpartition("\n")[2] for note in asks.notes] == ["the first"]
            await asks.complete()
            assert await watch.unaccounted() == []
            now = await by_name(watch)
            assert [now[name] for name in ("ready", "leased", "asks", "waiting")] == ["done", "done", "done", "waiting"]
            assert len([entry async for entry in watch.events()]) > len(heard)

    asyncio.run(main())


@pytest.mark.row("F11")
def test_a_python_flow_goes_on_and_repeats_no_finished_step(url: str, tmp_path: Path) -> None:
    assert program(tmp_path, url) == (0, ["publish ['A', 'B']", "2"])


@pytest.mark.row("F11")
def test_a_run_goes_on_from_its_folder(tmp_path: Path, night: str) -> None:
    restore_sqlite(tmp_path, night)
    (name,) = [path.name for path in (tmp_path / ".allswell" / "runs").iterdir()]
    shown = run("show", name, cwd=tmp_path)
    assert shown.code == 0, shown.err
    went_on = run("resume", name, "--choose", "retry_step", cwd=tmp_path)
    assert went_on.code == 0, went_on.out + went_on.err
    assert (tmp_path / "ran.txt").read_text().splitlines() == [*RAN_BEFORE, "cut first", "last"]
    receipts = {path.name for path in (tmp_path / ".allswell" / "runs" / name / "chain" / "receipts").glob("*-run-*")}
    assert receipts >= {"first-run-1.json", "slow-run-1.json", "slow-run-2.json", "last-run-1.json"}

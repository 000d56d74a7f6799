"""Runs at the command line: a name opens one or joins it, and nothing in it outlives its limit."""

import asyncio
from pathlib import Path

import pytest

from allswell import make_watch
from allswell.store.sqlite import SqliteStore
from tests.interfaces.cli.console import Console, millis
from tests.interfaces.cli.upkeep import HOUR, watch_at


def test_a_new_name_opens_a_run_and_the_next_task_joins_it(cli: Console) -> None:
    first = cli.ok("submit", "fetch", "--run", "night", "--run-timeout", "8h", "--json").json
    second = cli.ok("submit", "build", "--run", "night", "--run-timeout", "1m", "--json").json
    (opened,), (joined,) = first["runs"], second["runs"]
    assert (opened["opened"], joined["opened"]) == (True, False)
    assert opened["run_id"] == joined["run_id"]
    (run,) = cli.ok("runs", "--json").json["runs"]
    assert (run["run_id"], run["name"], opened["name"]) == (opened["run_id"], "night", "night")
    assert millis(run["deadline"]) - millis(run["created_at"]) == 8 * HOUR
    assert len(cli.ok("tasks", "--run", "night", "--json").json["tasks"]) == 2
    assert cli.ok("submit", "alone", "--json").json["runs"] == []


def test_a_run_is_joined_by_its_id_too(cli: Console) -> None:
    run = cli.ok("submit", "fetch", "--run", "night", "--json").json["runs"][0]["run_id"]
    assert cli.ok("submit", "build", "--run", run, "--json").json["runs"][0]["opened"] is False
    said = cli("submit", "build", "--run", "r_" + "0" * 16)
    assert (said.code, "there is no run" in said.err) == (2, True)


def test_the_name_of_a_run_that_has_ended_opens_another(cli: Console) -> None:
    first = cli.ok("submit", "fetch", "--run", "night", "--json").json["runs"][0]["run_id"]
    assert "The run night is cancelled" in cli.ok("cancel", "night").out
    second = cli.ok("submit", "fetch", "--run", "night", "--json").json
    (joined,) = second["runs"]
    assert (joined["name"], joined["opened"]) == ("night", True)
    assert joined["run_id"] != first
    assert joined["run_id"] in cli.ok("show", "night").out, "the one that is open is meant"
    assert first in cli.ok("show", first).out


def test_a_run_s_limit_ends_what_is_in_it(cli: Console) -> None:
    async def an_hour_ago() -> None:
        async with watch_at(cli.folder, ago=HOUR) as watch:
            run = await watch.open_run("night", timeout="30m")
            await watch.submit("slow", run=run)

    asyncio.run(an_hour_ago())
    cli.submit("anything at all")
    assert cli.ok("show", "slow", "--json").json["task"]["reason"] == "run_timeout"
    told = cli.ok("runs").out
    assert "run_timeout" in told
    assert "LIMIT" not in told, "a run that is over has none any more"


def test_lines_name_runs_of_their_own(cli: Console) -> None:
    lines = '{"name": "a"}\n{"name": "b", "run": "other"}\n'
    said = cli.ok("submit", "-", "--run", "night", "--run-timeout", "8h", "--json", stdin=lines).json
    assert [(run["name"], run["opened"]) for run in said["runs"]] == [("night", True), ("other", True)]
    assert {run["name"] for run in cli.ok("runs", "--json").json["runs"]} == {"night", "other"}


@pytest.mark.parametrize(
    "wrong", ['{"name": "b", "needs": ["nothing"]}', '{"name": "b", "priority": -1}', '{"name": 1}']
)
def test_a_mistake_opens_no_run(cli: Console, wrong: str) -> None:
    cli.submit("there is a store")
    assert cli("submit", "-", "--run", "night", stdin=f'{{"name": "a"}}\n{wrong}\n').code == 2
    assert cli("submit", "x", "--run", "night", "--priority", "-1").code == 2
    assert cli.ok("runs").out.startswith("No runs.")


def test_two_who_open_it_at_once_open_the_same(tmp_path: Path) -> None:
    """Whoever comes second finds the run that its name stands for, however close it was."""

    async def scene() -> None:
        path = tmp_path / "x.db"
        async with make_watch(SqliteStore(path)) as one, make_watch(SqliteStore(path)) as two:
            runs = await asyncio.gather(*(watch.open_run("night", key="night after none") for watch in (one, two)))
            assert runs[0] == runs[1]
            assert len(await one.runs()) == 1

    asyncio.run(scene())

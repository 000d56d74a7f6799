"""A part of the settings that is wrong stops whoever needs it, and nobody else."""

from __future__ import annotations

import pytest

from tests.interfaces.cli.console import Console

BAD_AGENT = '[agents.claude]\ncomand = ["claude", "-p"]\n'
BAD_FIGURE = 'agent_timeout = "banana"\n'
BAD_STORE = 'stroe = "memory:"\n'
FLOW = "name: f\nsteps:\n  - id: a\n    run: echo hello\n"
ASKS = "name: f\nsteps:\n  - id: a\n    agent: claude\n    prompt: Go.\n"


def set_up(cli: Console, said: str) -> str:
    """A store with a task, and then settings that are wrong."""
    task = cli.submit("summarise", "--role", "critic")
    (cli.folder / "allswell.toml").write_text(said)
    return task


@pytest.mark.parametrize("said", [BAD_AGENT, BAD_FIGURE], ids=["agent", "figure"])
def test_whoever_looks_needs_to_know_the_store_and_nothing_else(cli: Console, said: str) -> None:
    task = set_up(cli, said)
    for line in (["questions"], ["receipts"], ["tasks"], ["show", task], ["why", task], ["events"], ["runs"]):
        assert cli(*line).code == 0, line
    look = cli()
    assert (look.code, "The settings have an error" in look.out) == (
        1,
        True,
    )  # it looks all the same, and says so first
    assert "1 ready" in look.out


def test_a_bad_agent_stops_those_who_start_agents_and_is_told_by_those_who_look_after_settings(cli: Console) -> None:
    task = set_up(cli, BAD_AGENT)
    cli.ok("submit", "another")
    cli.ok("agents")
    assert cli.ok("claim", "--role", "critic", "--agent", "ada", "--json").json["task"]["task_id"] == task
    (cli.folder / "f.yaml").write_text(FLOW)
    cli.ok("run", "f.yaml")
    (cli.folder / "g.yaml").write_text(ASKS)
    for line, code in ((["up"], 2), (["config"], 2), (["check"], 1), (["doctor"], 1), (["run", "g.yaml"], 2)):
        said = cli(*line)
        assert said.code == code, line
        told = " ".join((said.out + said.err).split())
        assert "agents.claude has no 'comand'; did you mean 'command'?" in told, line


def test_a_bad_figure_stops_those_who_go_by_it(cli: Console) -> None:
    set_up(cli, BAD_FIGURE)
    for line, code in ((["submit", "another"], 2), (["up"], 2), (["config"], 2), (["check"], 1), (["doctor"], 1)):
        said = cli(*line)
        assert (said.code, "banana" in " ".join((said.out + said.err).split())) == (code, True), line


def test_where_the_store_may_be_another_nobody_goes_on(cli: Console) -> None:
    set_up(cli, BAD_STORE)
    for line in (["questions"], ["receipts"], ["submit", "another"]):
        said = cli(*line)
        assert (said.code, "no such setting: 'stroe'; did you mean store?" in said.err) == (2, True), line
    assert cli("questions", "--store", f"sqlite:///{cli.folder}/.allswell/allswell.db").code == 0

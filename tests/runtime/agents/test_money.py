"""What functions cost: the tokens of their guarded model calls, and what they say themselves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import allswell
from allswell.domain.agents.cost import Expense, told_expense
from allswell.domain.agents.spending import UsageCounter
from allswell.errors import Refused
from allswell.testing.provider import Provider
from tests.interfaces.cli.conftest import shell
from tests.interfaces.cli.shell import Shell

__all__ = ["shell"]  # a fixture, which pytest finds here

FUNCTIONS = """
import httpx, allswell

guard = allswell.guard("model")
BODY = {{"model": "m", "max_tokens": 5, "messages": [{{"role": "user", "content": "?"}}]}}


def ask():
    with httpx.Client(transport=guard.transport(httpx.HTTPTransport())) as client:
        client.post("{url}/v1/messages", json=BODY).raise_for_status()


def sync_agent(work):
    ask()
    work.spend(0.25)


async def async_agent(work):
    async with httpx.AsyncClient(transport=guard.transport(httpx.AsyncHTTPTransport())) as client:
        (await client.post("{url}/v1/messages", json=BODY)).raise_for_status()
    work.spend(0.5)
    work.spend(0.25, tokens_out=9)


def flow_step():
    ask()
"""
FLEET = """
[agents.one]
function = "paid:sync_agent"
role = "sync"
[agents.two]
function = "paid:async_agent"
role = "async"
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider() as made:
        yield made


def test_function_agents_report_what_they_say_and_the_tokens_of_their_models(shell: Shell, provider: Provider) -> None:
    (shell.folder / "paid.py").write_text(FUNCTIONS.format(url=provider.url))
    (shell.folder / "allswell.toml").write_text(FLEET)
    for role in ("sync", "async"):
        shell("submit", role, "--role", role, "--run", "night")
    shell("up", "--drain")
    spent = {name: shell.json("show", name)["spent"] for name in ("sync", "async")}
    assert (spent["sync"]["cost_usd"], spent["sync"]["tokens_in"], spent["sync"]["tokens_out"]) == (0.25, 1, 1)
    assert (spent["async"]["cost_usd"], spent["async"]["tokens_in"], spent["async"]["tokens_out"]) == (0.75, 1, 10)
    assert shell.json("runs")["runs"][0]["spent"]["cost_usd"] == 1.0


def test_a_function_is_ended_at_what_its_task_may_cost_and_a_human_is_asked(shell: Shell) -> None:
    slow = "import asyncio\n\n\nasync def agent(work):\n    work.spend(2)\n    await asyncio.sleep(600)\n"
    (shell.folder / "paid.py").write_text(slow)
    (shell.folder / "allswell.toml").write_text('[agents.one]\nfunction = "paid:agent"\n')
    shell("submit", "dear", "--max-cost-usd", "1")
    shell("up", "--drain")
    (question,) = shell.json("questions")["questions"]
    assert "has cost $2.00" in question["text"]


def test_a_function_in_a_flow_reports_the_tokens_of_its_models(shell: Shell, provider: Provider) -> None:
    (shell.folder / "paid.py").write_text(FUNCTIONS.format(url=provider.url))
    (shell.folder / "flow.yaml").write_text("name: paid\nsteps:\n  - {id: think, python: paid:flow_step}\n")
    shell("run", "flow.yaml")
    spent = shell.json("runs")["runs"][0]["spent"]
    assert (spent["cost_usd"], spent["tokens_in"], spent["tokens_out"]) == (None, 1, 1)


def test_a_flow_in_python_reports_the_tokens_of_its_models(tmp_path: Path, provider: Provider) -> None:
    url = f"sqlite:///{tmp_path}/.allswell/allswell.db"

    async def main() -> None:
        guard = allswell.guard("model")
        asking = httpx.AsyncClient(transport=guard.transport(httpx.AsyncHTTPTransport()))
        async with allswell.flow("digest", run_id="one", store=url), asking as client:
            await client.post(f"{provider.url}/v1/messages", json={"model": "m", "max_tokens": 5, "messages": []})
        async with allswell.open(url) as watch:
            spent = (await watch.views.view_spent("run", ("r_one",)))["r_one"]
            assert (spent.cost, spent.given, spent.written) == (None, 1, 1)

    asyncio.run(main())


def test_what_is_said_outright_is_added_to_what_lines_say() -> None:
    meter = UsageCounter()
    assert meter.total is None
    meter.add(told_expense(0.5, None, 7))
    meter.add(told_expense(0.25, 3, None))
    meter.hear("", Expense(None, 10, 5))
    assert meter.total == Expense(750_000, 13, 12)


@pytest.mark.parametrize("given", [(-1, None, None), (math.inf, None, None), (None, -1, None), (None, None, 10**13)])
def test_figures_that_are_none_are_refused(given: tuple[float | None, int | None, int | None]) -> None:
    with pytest.raises(Refused, match="must be"):
        told_expense(*given)

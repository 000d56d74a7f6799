"""`agents` says who is degraded and why; `agents --ledger` says what counts for an agent, what not, and why."""

import asyncio
import re

import pytest

from allswell.engine.status import journal
from allswell.engine.status.live import LiveRow, LiveSection, live
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import watch_at
from tests.interfaces.http.served import serving
from tests.interfaces.web.visit import logged_in

MINUTE = 60_000


async def night(cli: Console) -> str:
    """Four deliveries to oracle expire, a fifth had too little time; then it answers, and its task goes on."""
    async with watch_at(cli.folder, 60 * MINUTE) as watch:
        await watch.submit("Deploy webhook monitoring", timeout="1h")
        lease = await watch.claim(agent="sandman", lease="1h")
        assert lease is not None
        request = await lease.send_request("oracle", "status_check", "server access", retries=3)
        await watch.submit("Something else", timeout="1h")
        other = await watch.claim(agent="morpheus")
        assert other is not None
        await other.send_request("oracle", "status_check", "quick!", timeout="10s", retries=0)
    for ago in (57, 54, 51, 48):
        async with watch_at(cli.folder, ago * MINUTE) as watch:
            await watch.sweep_once()
    async with watch_at(cli.folder, 20 * MINUTE) as watch:
        await watch.respond(request, "here", agent="oracle")
    return str(request)


@pytest.mark.row("M7", "M8")
def test_a_degraded_agent_is_shown_with_its_reasons_and_its_ledger(cli: Console) -> None:
    request = asyncio.run(night(cli))
    (oracle,) = [one for one in cli.ok("agents", "--json").json["agents"] if one["agent_id"] == "oracle"]
    assert oracle["degraded"]
    assert [(one["request_id"], one["timeout_ms"]) for one in oracle["expiries"]] == [(request, 120_000)] * 4
    shown = cli.ok("agents").out
    assert "degraded" in shown
    assert "4 requests expired within a day" in shown

    ledger = cli.ok("agents", "--ledger", "oracle", "--json").json
    weights = [line["weight"] for line in ledger["lines"]]
    assert (weights.count("against"), weights.count("nothing"), weights[-1]) == (4, 1, "for")
    assert (ledger["score"], ledger["degraded"]) == (-3, True)
    told = cli.ok("agents", "--ledger", "oracle").out
    assert "oracle: 1 task unblocked, 4 expiries that count; -3 points when two agents are equally healthy." in told
    assert "too short: its kind has 2m" in told
    assert "Degraded: asked only if no other agent can answer; healthy again in 2" in told
    asked = cli.ok("agents", "--ledger", "sandman", "--json").json
    assert {line["weight"] for line in asked["lines"]} == {"nothing"}, "it costs the requester nothing"
    assert (asked["score"], asked["events_looked_at"]) == (0, None)
    cli.patch.setattr(journal, "MOST", 2)
    assert cli.ok("agents", "--ledger", "oracle", "--json").json["events_looked_at"] == 2
    assert "Only the last 2 events of the journal were read." in cli.ok("agents", "--ledger", "oracle").out


def test_a_ledger_with_nothing_in_it_and_one_that_cannot_be_meant(cli: Console) -> None:
    cli.submit("paint")
    assert cli.ok("agents", "--ledger", "nobody").out == "Nothing was recorded about nobody in that time.\n"
    assert cli.ok("agents", "--ledger", "nobody", "--since", "7d", "--json").json["lines"] == []
    assert cli("agents", "--ledger", "").code == 2
    assert "--since" in cli("agents", "--ledger", "x", "--since", "soon").err


@pytest.mark.row("O2", "O3")
def test_the_first_missed_check_in_shows_on_every_screen(cli: Console) -> None:
    async def missed() -> list[LiveRow]:
        async with watch_at(cli.folder, 6 * MINUTE) as watch:
            await watch.submit("parse", timeout="1h")
            assert await watch.claim(agent="ada") is not None
        async with watch_at(cli.folder) as watch:
            await watch.sweep_once()
            return [row for row in (await live(watch.views)).rows if row.part is LiveSection.AGENT]

    (row,) = asyncio.run(missed())
    assert row.note.startswith("1 check-in missed of 3")
    front = cli()
    assert "ada does not answer: 1 check-in missed" in " ".join(front.out.split())
    assert "1 check-in missed of 3" in cli.ok("agents").out
    assert cli.ok("agents", "--json").json["agents"][0]["misses"] == 1
    assert "1 check-in missed" in " ".join(cli("watch", "--once").out.split())
    assert "ada has missed 1 check-in in a row; 3 mean it is stalled." in " ".join(cli.ok("why", "parse").out.split())
    with serving(cli.folder) as served:
        visit = logged_in(served)
        first, agents = (visit.get(path).body.decode() for path in ("/", "/agents"))
    assert "1/3 missed" in agents
    assert "1/3 missed" in first
    assert re.search(r'<a [^>]*href="/agents/ada">ada does not answer: 1 check-in missed', first)

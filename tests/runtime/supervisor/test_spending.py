"""Limits of cost bind within an attempt: what its messages took is counted as they come, without a total."""

from pathlib import Path

from allswell import Policy
from tests.runtime.supervisor.stage import Night, night, standin

CENT = 10_000
ONE = 25_500


def test_an_attempt_is_ended_at_its_limit_and_its_cost_is_kept_though_no_total_came(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        task = await night.watch.submit("dear", payload="write:half.txt,claude:init,spends")
        (question,) = await night.until(night.watch.questions)
        assert question.kind == "cost_limit"
        assert "(estimated) in its attempt, and may cost $0.10. Its work is kept." in question.text
        (row,) = await night.watch.views.view_expenses(task)
        assert row.estimated
        assert row.cost is not None
        assert row.cost >= 10 * CENT
        assert row.cost % ONE == 0, "each message counts once"
        assert (row.given, row.written) == (row.cost // ONE * 33_000, row.cost // ONE * 400)
        (kept,) = night.home.receipts.of_task(task)
        assert kept.receipt.status == "costly"
        assert "its task has reached its cost limit: this attempt $" in kept.receipt.reason
        assert "(estimated), " in kept.receipt.reason
        assert kept.receipt.files == 1
        await night.watch.answer(question.id, "skip")

    night(tmp_path, scene, standin(grace=200), policies={"": Policy(max_cost=10 * CENT)})


def test_an_attempt_is_ended_at_its_token_limit_though_its_model_has_no_price(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        task = await night.watch.submit("long", payload="write:half.txt,claude:init,spends:99:mystery-9")
        (question,) = await night.until(night.watch.questions)
        assert question.kind == "token_limit"
        assert " tokens in its attempt, and may use 100,000 tokens. Its work is kept." in question.text
        (row,) = await night.watch.views.view_expenses(task)
        assert row.cost is None
        assert (row.given or 0) + (row.written or 0) >= 100_000
        (kept,) = night.home.receipts.of_task(task)
        assert kept.receipt.status == "costly"
        assert "its task has reached its token limit: this attempt unknown, " in kept.receipt.reason
        await night.watch.answer(question.id, "skip")

    night(tmp_path, scene, standin(grace=200), policies={"": Policy(max_tokens=100_000)})


def test_a_killed_attempt_has_cost_what_it_cost_and_a_finished_one_what_its_client_says(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        killed = await night.watch.submit("killed", payload="claude:init,spends:4,hang")
        await night.event("agent_idle")
        (row,) = await night.watch.views.view_expenses(killed)
        assert (row.cost, row.estimated) == (4 * ONE, True)
        assert (await night.watch.views.view_spent("task", [killed]))[killed].estimated == 1
        await night.watch.cancel(killed)
        unknown = await night.watch.submit("unknown", payload="claude:init,spends:2:mystery-9,crash")
        await night.event("task_failed")
        rows = await night.watch.views.view_expenses(unknown)
        assert {(one.cost, one.given, one.estimated) for one in rows} == {(None, 66_000, False)}

    night(tmp_path, scene, standin(grace=200, idle=1_000))

"""Limits of cost bind within an attempt: what its messages took is counted as they come, without a total."""

from pathlib import Path

import pytest

from allswell import Policy
from allswell.runtime.attempt import control
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


@pytest.fixture
def no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has reached its limit is ended at once."""
    monkeypatch.setattr(control, "MOMENT", 0.0)
    monkeypatch.setattr(control, "_APART", 0.05)


def test_a_limit_that_the_last_line_of_a_session_reaches_ends_nothing(no_moment: None, tmp_path: Path) -> None:
    """It has said that it is done, and takes its time to end."""

    async def scene(night: Night) -> None:
        task = await night.watch.submit("late", payload=f"codex,wait_for:{tmp_path}/go")
        assert (await night.event("attempt_cost")).data["given"] == 1
        (tmp_path / "go").touch()
        assert (await night.ended(task)).state == "done"
        assert await night.watch.questions() == []

    night(tmp_path, scene, standin(grace=200), policies={"": Policy(max_tokens=1)})


def test_a_session_that_goes_on_behind_its_end_is_ended_at_its_limit(no_moment: None, tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        await night.watch.submit("again", payload=f"codex,wait_for:{tmp_path}/go,claude:tool,hang")
        await night.event("attempt_cost")
        assert await night.watch.questions() == []
        (tmp_path / "go").touch()
        (question,) = await night.until(night.watch.questions)
        assert question.kind == "token_limit"
        await night.watch.answer(question.id, "skip")

    night(tmp_path, scene, standin(grace=200), policies={"": Policy(max_tokens=1)})


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

"""An agent that goes round in circles under a supervisor: warned of, asked about, and ended as a human decides."""

from pathlib import Path

from allswell import Policy
from allswell.domain.agents.evidence import ended_repeating
from tests.runtime.supervisor.stage import Night, night, standin

SOON = Policy(timeout_escalation=1)
CIRCLE = "claude:init,circle"
CALLED = "called Read lexer.py "


def test_a_circle_is_no_progress_and_its_idle_end_is_known_by_its_reason(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        task = await night.watch.submit("circles", payload="claude:init,circle:100000:0.05")
        await night.event("agent_idle")
        (ended,) = await night.watch.views.view_attempts(task)
        assert ended.outcome == "agent_idle"
        assert ended_repeating(ended.outcome, ended.detail)
        states = {event.data["state"]: str(event.data["evidence"]) for event in await night.told("agent_state")}
        assert states["repeating itself"].startswith(CALLED)
        (found,) = night.home.receipts.of_task(task)
        assert found.receipt.reason.startswith(f"it repeated itself: {CALLED}")
        assert "; no progress for 1s; " in found.receipt.reason
        await night.watch.cancel(task)

    told = night(tmp_path, scene, standin(idle=1_000, repeat_limit=3))
    (warned,) = [line for line in told.lines if "repeating itself" in line]
    assert warned.startswith(f"agent is repeating itself: {CALLED}")
    assert warned.endswith(" times, same answer, at “circles”")
    assert [line for line in told.lines if CALLED in line and "without progress at “circles” and was ended" in line]


def test_a_human_is_asked_and_has_it_ended_and_tried_again(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        task = await night.watch.submit("circles", payload=f"{CIRCLE}:40,wait_for:{tmp_path}/again,claude:result")
        (question,) = await night.until(night.watch.questions)
        assert (question.task, question.kind, question.waited) == (task, "agent_repeats", False)
        assert CALLED in question.text
        (tmp_path / "again").write_text("")  # the next attempt comes to its end
        await night.watch.answer(question.id, "end_and_retry", "Look into the parser.")

        async def over() -> bool:
            return bool(await night.watch.views.view_attempts(task))

        await night.until(over)
        (ended,) = (await night.watch.views.view_attempts(task))[:1]
        assert (ended.outcome, ended.detail.startswith(CALLED)) == ("agent_repeats", True)
        assert (await night.ended(task)).state == "done"
        (first, *_) = night.home.receipts.of_task(task)
        assert first.receipt.status == "interrupted"
        assert first.receipt.reason.startswith(f"a human ended it, because it repeated itself: {CALLED}")

    night(tmp_path, scene, standin(repeat_limit=2))


def test_the_question_is_taken_back_when_it_does_something_else(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        payload = f"{CIRCLE}:40,wait_for:{tmp_path}/on,talk:60"
        task = await night.watch.submit("circles", payload=payload)
        (question,) = await night.until(night.watch.questions)
        (tmp_path / "on").write_text("")
        await night.event("question_withdrawn")
        kept = await night.watch.views.view_question(question.id)
        assert kept is not None
        assert kept.choice == "withdrawn"
        assert (await night.task(task)).ended_at is None
        await night.watch.cancel(task)

    night(tmp_path, scene, standin(repeat_limit=3))


def test_where_a_human_lets_it_go_on_it_counts_as_progress_again(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        task = await night.watch.submit("polls", payload=CIRCLE)
        (question,) = await night.until(night.watch.questions)
        await night.watch.answer(question.id, "go_on")

        async def states() -> list[object]:
            told = [event.data["state"] for event in await night.told("agent_state")]
            return told if told[-2:] == ["repeating itself", "working"] else []

        await night.until(states)
        await night.watch.cancel(task)

    night(tmp_path, scene, standin(repeat_limit=3))

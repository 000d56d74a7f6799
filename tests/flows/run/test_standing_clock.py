"""A question in a flow does not expire with the flow: its clock stands, and what was left is there when it goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from allswell.domain.receipts.step import RunVerdict
from tests.flows.run.stage import Play, flow, run, seen

MINUTE = 60
ASKS = """
name: night
timeouts: {flow: 30m}
steps:
  - id: hangs
    python: tests.flows.run.stage:sleep
    inputs: {seconds: 90000}
    timeout_override: 9m
  - id: works
    python: tests.flows.run.stage:sleep
    inputs: {seconds: 2400}
    timeout_override: 50m
  - id: after
    needs: [hangs]
    python: tests.flows.run.stage:note
"""


@pytest.mark.row("O9")
@pytest.mark.row("O1")
def test_a_question_in_a_flow_waits_for_its_answer_whatever_the_flow_s_limit(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        watch = played.stage.watch
        summary = await run(played)
        assert summary.verdict is RunVerdict.NEEDS_HUMAN, summary
        (question,) = summary.questions
        assert summary.states == {"hangs": "asked", "works": "done", "after": "waiting"}
        assert seen.count({"seconds": 2400}) == 2, (
            "the scope of a function is not stretched; it was given back, and had its own time then"
        )
        assert 60 * MINUTE < played.stage.seconds < 80 * MINUTE
        await asyncio.sleep(8 * 60 * MINUTE)
        row = await watch._engine.store.view_run(played.run)
        assert row is not None
        assert (row.ended_at, row.limit) == (None, None)
        await watch.answer(question, "skip")
        before = played.run
        runner = await played.again()
        left = runner.time_left()
        assert left is not None
        assert 0 < left < 10 * MINUTE * 1_000, "what was left when the question was asked"
        assert played.run == before, "it is the same run"
        assert (await runner.run()).verdict is RunVerdict.DONE

    flow(tmp_path, ASKS, scene)

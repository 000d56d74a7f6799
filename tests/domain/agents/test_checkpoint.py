"""Both forms of the original protocol's answer are understood, however an agent dresses them (O2, O3)."""

import pytest

from allswell.domain.agents.checkpoint import Checkpoint, progress_in, read_checkpoint
from tests.domain.life import Life, at

FIRST = """CHECKPOINT: t_42
Status: in progress
Completed: parser, tests
Remaining: docs
Files Modified: src/a.py, src/b.py
Estimated Progress: 40%"""
SECOND = """CHECKPOINT: t_42
Progress: 3/5 steps
Current Activity: running the tests
Blockers: none
Estimated Remaining: 10 minutes"""


@pytest.mark.row("O2", "O3")
def test_the_first_form() -> None:
    assert read_checkpoint(FIRST) == Checkpoint(
        "t_42", "in progress", ("parser", "tests"), ("docs",), ("src/a.py", "src/b.py"), 0.4
    )


@pytest.mark.row("O2", "O3")
def test_the_second_form() -> None:
    assert read_checkpoint(SECOND) == Checkpoint(
        "t_42", progress=0.6, activity="running the tests", time_left="10 minutes"
    )


def test_dressed_in_markdown_with_lists_and_prose_around() -> None:
    text = """Sure, here it is:

## **CHECKPOINT: write the parser**

- **Status:** on track
- **Completed:**
  - the lexer, whole
  - [x] tests

- **Files Modified:**
  1. `src/lexer.py`
- **Estimated Progress:** about 62.5 %

I will go on now.
"""
    assert read_checkpoint(text) == Checkpoint(
        "write the parser",
        "on track",
        completed=("the lexer, whole", "[x] tests"),
        files=("src/lexer.py",),
        progress=0.625,
    )


def test_the_last_one_counts() -> None:
    assert read_checkpoint(FIRST + "\n\nand later\n\n" + SECOND.replace("3/5", "4/5")) == Checkpoint(
        "t_42", progress=0.8, activity="running the tests", time_left="10 minutes"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "half of it is done",
        "CHECKPOINT",
        "CHECKPOINT: t_1",
        "CHECKPOINT: t_1\nSomething: else",
        "the checkpoint: was fine\nand so on",
    ],
)
def test_what_is_none(text: str) -> None:
    assert read_checkpoint(text) is None


@pytest.mark.parametrize(
    "said, share",
    [("40%", 0.4), ("0,5 %", 0.005), ("7 of 10", 0.7), ("0.25", 0.25), ("250%", None), ("1/0", None), ("most", None)],
)
def test_progress_as_it_is_written(said: str, share: float | None) -> None:
    assert progress_in(f"CHECKPOINT: x\nProgress: {said}") == share


@pytest.mark.row("O2", "O3")
def test_a_check_in_with_such_a_text_says_how_far_the_work_is_and_goes_to_the_next_holder() -> None:
    life = Life()
    life.claim("ann", at(0))
    life.check_in(at(1), note=FIRST)
    assert life.lease.progress == 0.4
    life.check_in(at(2), note=SECOND, progress=0.9)
    assert life.lease.progress == 0.9
    life.tick_when_due(at(15))
    handover = life.case.task.record.handover
    assert handover is not None
    assert (handover.note, handover.progress) == (SECOND, 0.9)


def test_a_hostile_text_costs_no_more_than_reading_it() -> None:
    """Each took minutes with a pattern that may go back; pytest's own limit is the judge."""
    for text in (
        "\n" * 16_000 + "checkpoint",
        "CHECKPOINT: x\nProgress: " + "1" * 16_000,
        "CHECKPOINT: x\nStatus: " + "- * " * 4_000,
        "CHECKPOINT:\n" * 1_300,
        "CHECKPOINT: x\n" + "Completed:\n" * 1_300,
    ):
        for _ in range(20):
            read_checkpoint(text)

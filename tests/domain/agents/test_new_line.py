"""Which lines of an output are new: words count, numbers that advance count, clocks and repaints do not."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.agents.printed import NewLines, standing_text

SECOND = 1_000


def judged(lines: Sequence[str | bytes], every: int = SECOND) -> list[bool]:
    known = NewLines()
    as_bytes = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return [known.is_new(line, number * every) for number, line in enumerate(as_bytes)]


@pytest.mark.parametrize(
    "lines",
    [
        ["epoch 2 loss=0.23", "epoch 3 loss=0.21", "epoch 4 loss=0.22"],
        ["line 1", "line 2", "line 3"],
        ["cc -c file7.c", "cc -c file12.c", "cc -c file3.c"],
        ["test_a.py::test_1 PASSED [ 12%]", "test_a.py::test_2 PASSED [ 25%]"],
        ["[1/400] Building CXX object a.o", "[2/400] Building CXX object b.o"],
        ["12% done", "13% done", "14% done"],
        ["99 files left", "98 files left", "97 files left"],
        ["12,000 rows copied", "24,000 rows copied", "36,500 rows copied"],
        ["#5 0.532 Collecting numpy", "#5 1.102 Collecting scipy"],
        ['"GET /orders/1040 HTTP/1.1" 200', '"GET /orders/1041 HTTP/1.1" 200'],
        ["Thinking (12s, 340 tokens)", "Thinking (13s, 371 tokens)"],
        ["Das Haus ist groß.", "Der Baum ist hoch.", "Ничего", "没有"],
        ["\r\x1b[K   Compiling serde v1.0", "\r\x1b[K   Compiling tokio v1.2"],
    ],
)
def test_a_line_that_says_something_else_is_new(lines: list[str]) -> None:
    assert judged(lines) == [True] * len(lines)


@pytest.mark.parametrize(
    "lines",
    [
        ["waiting...", "waiting...", "waiting.... waiting..."],
        ["elapsed 12s", "elapsed 13s", "elapsed 14s"],
        ["elapsed: 12", "elapsed: 13", "elapsed: 14"],
        ["still running (1m 5s)", "still running (1m 6s)", "still running (2 min)"],
        ["Tue Nov 17 22:34:46 UTC 2026", "Tue Nov 17 22:34:47 UTC 2026"],
        ["2026-11-17 22:34:46,120 INFO polling", "2026-11-17 22:34:47,121 INFO polling"],
        ["2026-11-17T22:34:46.1Z poll", "2026-11-17T22:34:47.1Z poll"],
        ['[17/Nov/2026:10:00:01 +0000] "GET /health"', '[17/Nov/2026:10:00:02 +0000] "GET /health"'],
        ["[12.345678] alive", "[13.345712] alive", "[14.345812] alive"],
        ["1700000000 tick", "1700000001 tick", "1700000002 tick"],
        ["1700000000000 tick", "1700000001003 tick", "1700000002004 tick"],
        ["| Working", "/ Working", "- Working", "\\ Working"],
        ["⠋ Working", "⠙ Working", "\x1b[32m⠹\x1b[0m Working"],
        ["retrying in 30s", "retrying in 29s", "retrying in 28s"],
        ["attempt 3 of 5 failed", "attempt 3 of 5 failed"],
        ["[####      ]", "[#####     ]"],
    ],
)
def test_the_same_text_again_and_a_clock_are_not(lines: list[str]) -> None:
    assert not any(judged(lines)[1:])


def test_a_number_that_moves_with_the_seconds_is_a_clock_whatever_stands_beside_it() -> None:
    assert judged([f"alive {number * 5}" for number in range(6)], every=5 * SECOND) == [True] + [False] * 5
    assert all(judged([f"alive {number * 5}" for number in range(6)], every=SECOND))


def test_a_measurement_that_varies_is_no_progress_for_long() -> None:
    lines = [f"load {(number * 7919) % 97 / 10}" for number in range(200)]
    assert not any(judged(lines, every=300)[100:])


def test_what_is_painted_is_no_line_until_it_is_completed() -> None:
    assert standing_text(b"10% \r20% \r30% of it\r") == "30% of it"
    assert standing_text(b"\x1b[2K\x1b[1Gadded 5 packages") == "added 5 packages"
    assert standing_text(b"\x1b[3A\x1b[2Kpainted over") == ""
    assert standing_text(b"abc\x08\x08\x08xyz") == ""


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_whatever_is_printed_is_judged_and_said_again_it_is_never_new(lines: list[bytes]) -> None:
    known = NewLines()
    for at, line in enumerate(lines):
        known.is_new(line, at)
    assert not any(known.is_new(line, at) for at, line in enumerate(lines, start=len(lines)))


WORDS = st.lists(st.sampled_from(["step", "loss", "copied", "rows", "of", "page"]), min_size=1, max_size=4)


@given(WORDS, st.lists(st.integers(1, 10_000), min_size=2, max_size=20, unique=True))
def test_a_count_that_only_rises_is_new_each_time_unless_it_goes_with_the_clock(
    words: list[str], counts: list[int]
) -> None:
    counts.sort()
    lines = [f"{' '.join(words)} {count}" for count in counts]
    # Twenty of them in a second: no count of seconds goes like that, unless it hardly moves.
    moved = [count - counts[0] for count in counts]
    new = judged(lines, every=50)
    assert all(is_new for is_new, far in zip(new, moved, strict=True) if far > 2 * len(counts))


@given(st.integers(0, 10**7), st.lists(st.integers(2, 90), min_size=1, max_size=20))
def test_a_count_of_seconds_is_never_new_again(start: int, pauses: list[int]) -> None:
    known, at = NewLines(), 0
    known.is_new(f"running for {start}".encode(), at)
    for pause in pauses:
        at += pause * SECOND
        assert not known.is_new(f"running for {start + at // SECOND}".encode(), at)


@given(st.lists(st.text(alphabet="abc ", min_size=1, max_size=10), min_size=1, max_size=30))
def test_time_alone_changes_no_verdict_about_words(lines: list[str]) -> None:
    assert judged(lines, every=1) == judged(lines, every=60 * SECOND)

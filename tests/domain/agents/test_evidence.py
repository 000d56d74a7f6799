"""What counts as progress: the order of signs, processor time that is not painting, words that are new."""

import pytest

from allswell.domain.agents.evidence import (
    Evidence,
    EvidenceKind,
    EvidenceState,
    ProcessSample,
    Silence,
    TreeSample,
    at_work,
    busy,
    in_one_folder,
)
from allswell.domain.agents.printed import Novelty, last_words

SECOND = 1_000
ME, CHILD = (10, 1), (11, 2)


def standing(*seen: tuple[EvidenceKind, int]) -> EvidenceState:
    now = EvidenceState(began=100)
    for sign, at in seen:
        now = now.heard(Evidence(sign, at, sign.value))
    return now


@pytest.mark.parametrize(
    "sign", [EvidenceKind.CHECKIN, EvidenceKind.PROTOCOL, EvidenceKind.WORK, EvidenceKind.PROCESS, EvidenceKind.LINE]
)
def test_each_of_these_keeps_an_attempt_from_being_idle(sign: EvidenceKind) -> None:
    assert standing((sign, 5_000)).idle_at(SECOND) == 6_000


def test_what_is_printed_keeps_nobody_from_being_idle() -> None:
    assert standing((EvidenceKind.OUTPUT, 5_000)).idle_at(SECOND) == 1_100


@pytest.mark.row("O2")
def test_only_check_ins_and_protocol_events_answer_an_asked_for_check_in() -> None:
    shown = standing(
        (EvidenceKind.PROTOCOL, 200),
        (EvidenceKind.WORK, 900),
        (EvidenceKind.PROCESS, 900),
        (EvidenceKind.LINE, 900),
        (EvidenceKind.OUTPUT, 900),
    )
    assert shown.answer == Evidence(EvidenceKind.PROTOCOL, 200, "protocol")
    assert standing((EvidenceKind.LINE, 900)).answer is None
    assert standing((EvidenceKind.WORK, 900)).answer is None


def test_of_two_signs_at_one_moment_the_stronger_is_told() -> None:
    shown = standing(
        (EvidenceKind.LINE, 500), (EvidenceKind.PROCESS, 500), (EvidenceKind.WORK, 500), (EvidenceKind.CHECKIN, 400)
    )
    assert shown.progress == Evidence(EvidenceKind.WORK, 500, "work")


def test_what_comes_late_does_not_take_the_place_of_what_is_newer() -> None:
    assert standing((EvidenceKind.WORK, 500), (EvidenceKind.WORK, 300)).progress == Evidence(
        EvidenceKind.WORK, 500, "work"
    )


def test_silence_is_told_when_it_has_lasted_and_then_each_time_after_twice_as_long() -> None:
    silence, quiet = Silence(10 * SECOND), standing((EvidenceKind.LINE, 1_000), (EvidenceKind.OUTPUT, 9_000))
    assert silence.due_at(quiet) == 11_000
    assert silence.to_tell(quiet, 10_999) is None
    assert silence.to_tell(quiet, 11_000) == 10_000
    assert silence.to_tell(quiet, 20_999) is None
    assert silence.to_tell(quiet, 21_500) == 20_500
    again = quiet.heard(Evidence(EvidenceKind.WORK, 30_000, "a file"))
    assert silence.to_tell(again, 69_999) is None
    assert silence.to_tell(again, 70_000) == 40_000


def test_a_silent_compiler_is_at_work() -> None:
    before = TreeSample(0, {ME: ProcessSample(100)})
    after = TreeSample(SECOND, {ME: ProcessSample(1_050)})
    assert busy(before, after) == pytest.approx(0.95)
    assert at_work(before, after) is not None


def test_a_spinner_without_a_pause_is_not() -> None:
    before = TreeSample(0, {ME: ProcessSample(100, written=0)}, printed=0, new=1)
    after = TreeSample(SECOND, {ME: ProcessSample(1_050, written=9_000)}, printed=9_000, new=1)
    assert busy(before, after) == 0
    assert at_work(before, after) is None


def test_a_busy_program_that_says_something_new_is() -> None:
    before = TreeSample(0, {ME: ProcessSample(100, written=0)}, printed=0, new=1)
    after = TreeSample(SECOND, {ME: ProcessSample(1_050, written=9_000)}, printed=9_000, new=2)
    assert at_work(before, after) is not None


def test_a_compiler_below_a_spinner_is_at_work() -> None:
    before = TreeSample(0, {ME: ProcessSample(0), CHILD: ProcessSample(0)}, printed=0)
    after = TreeSample(SECOND, {ME: ProcessSample(30, written=900), CHILD: ProcessSample(900)}, printed=900)
    assert busy(before, after) == pytest.approx(0.9)


def test_children_that_have_ended_count_once() -> None:
    """A child's time moves to its parent when it is waited for; seen before, it is not new."""
    before = TreeSample(0, {ME: ProcessSample(0), CHILD: ProcessSample(700)})
    after = TreeSample(SECOND, {ME: ProcessSample(0, children=1_000)})
    assert busy(before, after) == pytest.approx(0.3)


def test_a_clock_that_stands_still_proves_nothing() -> None:
    assert busy(TreeSample(5, {}), TreeSample(5, {ME: ProcessSample(1_000)})) == 0


@pytest.mark.parametrize(
    "pictures",
    [
        ["\r|", "\r/", "\r-", "\r\\"],
        ["\r⠋ Working… 1s", "\r⠙ Working… 2s", "\r⠹ Working… 13s"],
        ["\x1b[2K\x1b[1G\x1b[36m◐\x1b[0m thinking (3s)", "\x1b[2K\x1b[1G\x1b[36m◓\x1b[0m thinking (4s)"],
        ["\r[#   ] 10%", "\r[##  ] 20%"],
        ["y\ny\n", "y\ny\ny\n"],
    ],
)
def test_a_picture_painted_again_says_nothing_new(pictures: list[str]) -> None:
    novelty = Novelty()
    novelty.is_new(pictures[0].encode())
    assert not any(novelty.is_new(picture.encode()) for picture in pictures[1:] * 3)


def test_other_words_are_new() -> None:
    novelty = Novelty()
    assert novelty.is_new(b"\rCompiling alpha v1.2")
    assert novelty.is_new(b"\rCompiling beta v1.2")
    assert not novelty.is_new(b"\rCompiling alpha v1.3")


def test_what_is_remembered_is_bounded() -> None:
    novelty = Novelty()
    for number in range(10_000):
        novelty.is_new(bytes([97 + number % 26, 97 + number // 26 % 26, 97 + number // 676 % 26, 97 + number // 17576]))
    assert len(novelty._seen) <= 4_096


@pytest.mark.parametrize(
    "one, other, shared",
    [
        ("/w", "/w", True),
        ("/w", "/w/src", True),
        ("/w/src", "/w", True),
        ("/", "/w", True),
        ("/w/a", "/w/b", False),
        ("/w", "/wide", False),
        ("/w", "/w/.allswell/worktrees/t_1", False),
        ("/w/.allswell/worktrees/t_1", "/w/.allswell/worktrees/t_2", False),
        ("/w/.allswell/worktrees/t_1", "/w/.allswell/worktrees/t_1/src", True),
    ],
)
def test_who_works_in_or_below_the_same_folder_shares_it_but_for_worktrees(
    one: str, other: str, *, shared: bool
) -> None:
    assert in_one_folder(one, other) is shared
    assert in_one_folder(other, one) is shared


def test_last_words_are_lines_that_a_person_can_read() -> None:
    assert last_words(b"one\r\n\x1b[31mtwo\x1b[0m\n\r| wait\r| wait\x07\n\n") == "one\ntwo\n| wait"
    assert last_words(b"\x1b[1;31merror\x1b[0m: no space left\x1b[2Khere") == "error: no space left\nhere"
    assert last_words(b"half of it\r\n^Z\r\n^C\r\n") == "half of it", "what was typed is not what it said"
    assert len(last_words(b"x" * 4_000)) == 500
    assert last_words(b"") == ""

"""Where things lie on bars: time as percentages, and waiting never drawn as work."""

import msgspec
import pytest

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.lease.model import LeaseRow
from allswell.engine.status.explanation import Span
from allswell.engine.status.timeline import TaskLane, Waterfall
from allswell.interfaces.web.tasks import read_diff
from allswell.interfaces.web.timeline import draw_lease, draw_waterfall, style_of
from allswell.timing.moment import read

MINUTE = 60_000
START = 1_700_000_000_000


def at(minutes: float) -> Millis:
    return Millis(int(START + minutes * MINUTE))


def lease(**fields: object) -> LeaseRow:
    usual = LeaseRow(
        TaskId("t_1"),
        Token(1),
        AgentId("ada"),
        at(0),
        at(15),
        length=None,
        idle=None,
        ask_every=5 * MINUTE,
        ask_wait=30_000,
        grace=1_000,
        command=CommandId(""),
    )
    return msgspec.structs.replace(usual, **fields)


def test_a_lease_has_its_inner_marks_and_the_limits_of_what_is_outside() -> None:
    bar = draw_lease(lease(), at(20), at(7.5))
    assert [mark.kind for mark in bar.ticks] == ["asked", "asked", "limit", "outer"]
    places = [mark.at for mark in bar.ticks]
    assert places == sorted(places)
    assert places[0] < bar.gone < places[1]
    assert bar.says == "7m 30s left of 15m"
    assert "in 12m" in bar.ticks[-1].says


def test_a_run_that_ends_sooner_is_the_limit_and_the_own_one_lies_beyond() -> None:
    bar = draw_lease(lease(deadline=at(10), own=at(15), idle=4 * MINUTE, checkin_at=at(3)), at(10), at(5))
    told = {mark.kind: mark.says for mark in bar.ticks}
    assert "the limit of its run" in told["limit"]
    assert "will not reach" in told["outer"]
    assert "idle" in told["idle"]


def test_a_lease_with_many_check_ins_shows_the_next_one_and_one_without_a_limit_none() -> None:
    """A picket fence says nothing; and the longest limit there is stands for none."""
    bar = draw_lease(lease(deadline=at(180)), None, at(92))
    (asked,) = [mark for mark in bar.ticks if mark.kind == "asked"]
    assert "in 3m" in asked.says
    assert asked.at == pytest.approx(95 / 180 * 100, abs=3)
    endless = draw_lease(lease(deadline=at(366 * 24 * 60)), None, at(3))
    assert (endless.gone, endless.ticks, endless.says) == (0.0, [], "no limit")


def test_a_line_of_a_difference_is_what_it_is_wherever_it_stands() -> None:
    """A line that was taken away and began with two dashes looks like the name of a file."""
    text = (
        "diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n same\n--- old\n+++ new\ndiff --git a/y b/y"
    )
    kinds = [line.kind for line in read_diff(text.split("\n"))]
    assert kinds == ["file", "about", "file", "file", "place", "same", "gone", "added", "file"]


def test_a_limit_that_is_far_away_does_not_squeeze_the_rest() -> None:
    bar = draw_lease(lease(), at(600), at(1))
    assert "outer" not in {mark.kind for mark in bar.ticks}


@pytest.mark.parametrize(
    "kind, outcome, style",
    [
        ("held", None, "working"),
        ("held", "done", "done"),
        ("held", "asked", "asking"),
        ("held", "released", "back"),
        ("held", "parked", "back"),
        ("held", "agent_timeout", "failed"),
        ("ready", None, "queued"),
        ("waiting", None, "waiting"),
        ("asked", None, "asked"),
        ("paused", None, "paused"),
    ],
)
def test_each_stretch_of_a_life_has_a_look_of_its_own(kind: str, outcome: str | None, style: str) -> None:
    assert style_of(kind, outcome) == style


def span(kind: str, start: int, end: int, says: str, *held: object) -> Span:
    """`held` is by whom, under which token, and how that ended."""
    agent, token, outcome = held or (None, None, None)
    when = {"kind": kind, "began_at": start, "ended_at": end, "says": says}
    return msgspec.convert({**when, "agent_id": agent, "token": token, "outcome": outcome}, Span, dec_hook=read)


def waterfall(*spans: Span, state: str = "held", limit: Millis | None = None) -> Waterfall:
    lane = TaskLane("t_1", "build", state, False, 1, spans, limit)
    return Waterfall("r_1", "release", at(0), None, False, (lane,), 0, {})


def test_retries_are_bars_of_their_own_and_the_queue_stands_apart() -> None:
    spans = (
        span("waiting", at(0), at(2), "for “a”"),
        span("ready", at(2), at(3), "for an agent to take it"),
        span("held", at(3), at(5), "failed", "ada", 1, "failed:network"),
        span("paused", at(5), at(6), "after the failure"),
        span("held", at(6), at(9), "holds it now", "bob", 2, None),
    )
    drawn = draw_waterfall(waterfall(*spans, limit=at(10)), at(9))
    (lane,) = drawn.lanes
    assert [piece.kind for piece in lane.pieces] == ["waiting", "queued", "failed", "paused", "working"]
    for before, after in zip(lane.pieces, lane.pieces[1:], strict=False):
        assert abs(before.right - after.left) < 0.05, "no gap and no overlap"
    assert lane.pieces[-1].right == pytest.approx(drawn.now, abs=0.05)
    assert drawn.now < lane.ticks[0].at < 100, "a limit that is near is in sight"
    assert lane.took == "5m"
    assert "attempt 1, 2m: ada" in lane.says
    assert "waited 2m for “a”" in lane.says


def test_what_has_ended_fills_its_clock_and_nothing_is_too_short_to_be_seen() -> None:
    spans = (
        span("held", at(0), Millis(START + 1), "done", "ada", 1, "done"),
        span("held", at(30), at(60), "done", "a", 2, "done"),
    )
    drawn = draw_waterfall(waterfall(*spans, state="done"), at(90))
    assert drawn.now == 100
    assert drawn.lanes[0].pieces[0].width >= 0.3
    assert drawn.lanes[0].pieces[-1].right == 100


def test_a_life_that_has_only_begun_can_be_drawn() -> None:
    drawn = draw_waterfall(waterfall(span("ready", at(0), at(0), "now"), state="ready"), at(0))
    assert 0 <= drawn.lanes[0].pieces[0].left <= drawn.lanes[0].pieces[0].right <= 100
    assert draw_waterfall(Waterfall(None, "", at(0), None, False, (), 0, {}), at(0)).lanes == []

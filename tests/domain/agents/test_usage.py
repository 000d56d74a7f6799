"""What follows when little of the context or of the session is left (O6): the rule alone."""

import pytest

from allswell.domain.agents.usage import Thresholds, Usage, UsageLevel, judge, read, tick
from allswell.domain.ids import Millis
from allswell.errors import Refused

TEN = Thresholds()
NOON = Millis(1_700_000_000_000)
MINUTE = 60_000


@pytest.mark.row("O6")
def test_at_ten_percent_of_the_context_compaction_is_triggered_once() -> None:
    level, acts = judge(UsageLevel(), Usage(context=10.1), TEN, NOON)
    assert acts == ()
    level, acts = judge(level, Usage(context=10.0), TEN, NOON)
    assert acts == ("compact",)
    level, acts = judge(level, Usage(context=4.0), TEN, NOON)
    assert acts == ()
    level, _ = judge(level, Usage(context=80.0), TEN, NOON)
    assert judge(level, Usage(context=9.0), TEN, NOON)[1] == ("compact",)


@pytest.mark.row("O6")
def test_at_ten_percent_of_the_session_it_pauses_until_five_minutes_after_the_reset_and_resumes_by_itself() -> None:
    reset = Millis(NOON + 60 * MINUTE)
    level, acts = judge(UsageLevel(), Usage(session=10.0, resets_at=reset), TEN, NOON)
    assert acts == ("pause",)
    assert level.until == reset + 5 * MINUTE
    assert judge(level, Usage(session=3.0, resets_at=reset), TEN, NOON)[1] == ()
    assert tick(level, Millis(reset + 5 * MINUTE - 1))[1] == ()
    level, acts = tick(level, Millis(reset + 5 * MINUTE))
    assert acts == ("resume",)
    assert level == UsageLevel()
    old = Usage(session=3.0, resets_at=reset)
    assert judge(level, old, TEN, Millis(reset + 6 * MINUTE))[1] == (), "a reading from before the reset pauses nobody"


@pytest.mark.row("O6")
def test_a_session_that_does_not_say_when_it_is_reset_is_waited_for_until_it_has_room_and_not_for_ever() -> None:
    level, acts = judge(UsageLevel(), Usage(session=2.0), TEN, NOON)
    assert (acts, level.until) == (("pause",), NOON + 15 * MINUTE)
    assert judge(level, Usage(session=10.0), TEN, NOON)[1] == ()
    assert judge(level, Usage(session=90.0), TEN, NOON) == (UsageLevel(), ("resume",))
    assert tick(level, Millis(NOON + 15 * MINUTE)) == (UsageLevel(), ("resume",))
    told, _ = judge(level, Usage(session=2.0, resets_at=Millis(NOON + 60 * MINUTE)), TEN, NOON)
    assert (told.until, told.told) == (NOON + 65 * MINUTE, True)
    assert judge(told, Usage(session=90.0), TEN, NOON)[1] == (), "what it was told, it waits for"


def test_what_a_source_may_say() -> None:
    said = {"remaining_percentage": 12, "session_remaining": 50.5, "resets_at": 1_700_000_000, "more": "is fine"}
    assert read(said) == Usage(12.0, 50.5, NOON)
    assert read({"session_remaining": 0, "resets_at": NOON}) == Usage(None, 0.0, NOON)


@pytest.mark.parametrize(
    "said, wrong",
    [
        (None, "not an object"),
        ([], "not an object"),
        ({}, "neither context_remaining nor session_remaining"),
        ({"context_remaining": "10%"}, "must be a number"),
        ({"context_remaining": True}, "must be a number"),
        ({"context_remaining": 120}, "from 0 to 100"),
        ({"session_remaining": float("nan")}, "must be a number"),
    ],
)
def test_what_it_may_not(said: object, wrong: str) -> None:
    with pytest.raises(Refused, match=wrong):
        read(said)

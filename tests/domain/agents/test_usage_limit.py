"""Usage limits are told from what agents print, in the formats they have today, and from nothing else."""

import msgspec
import pytest

from allswell.domain.agents.output import parse
from allswell.domain.agents.refusal import UsageLimit, WallTime

AT = 1_762_952_400


def read(printed: bytes) -> UsageLimit | None:
    return next((event for event in parse(printed).events if isinstance(event, UsageLimit)), None)


def line(**said: object) -> bytes:
    return msgspec.json.encode(said)


def test_claudes_own_event_says_when_it_ends() -> None:
    info = {"status": "rejected", "resetsAt": AT, "rateLimitType": "five_hour"}
    found = read(line(type="rate_limit_event", rate_limit_info=info, session_id="s"))
    assert found is not None
    assert (found.at, found.sure) == (AT * 1_000, True)
    assert "five_hour" in found.said
    for more in ({"isUsingOverage": True}, {"overageStatus": "allowed"}):
        assert read(line(type="rate_limit_event", rate_limit_info={**info, **more})) is None, "paid for, it goes on"
    for status in ("allowed", "allowed_warning"):
        assert read(line(type="rate_limit_event", rate_limit_info={**info, "status": status})) is None


@pytest.mark.parametrize(
    "text, at, after, wall",
    [
        (f"Claude AI usage limit reached|{AT}", AT * 1_000, None, None),
        ("You've hit your limit · resets 1:30am (Asia/Dhaka)", None, None, WallTime(1, 30, "Asia/Dhaka")),
        ("You've hit your session limit · resets 8pm (Europe/Berlin)", None, None, WallTime(20, 0, "Europe/Berlin")),
        ("5-hour limit reached ∙ resets 2am", None, None, WallTime(2)),
        ("You've hit your usage limit. Buy more credits or try again at 3:28 PM.", None, None, WallTime(15, 28)),
        (
            "You've hit your usage limit. Upgrade or try again at Aug 8th, 2026 12:30 PM.",
            None,
            None,
            WallTime(12, 30, "", 8, 8, 2026),
        ),
        ("You've hit your usage limit. Try again in 3 days 6 hours 57 minutes.", None, 284_220_000, None),
        ("You've hit your usage limit. To get more access now, send a request to your admin.", None, None, None),
    ],
)
def test_the_words(text: str, at: int | None, after: int | None, wall: WallTime | None) -> None:
    for printed, sure in (
        (line(type="result", subtype="success", is_error=True, result=text, session_id="s"), True),
        (line(type="turn.failed", error={"message": text}), True),
        (line(type="error", message=text), True),
        (text.encode(), False),
        (f"■ {text}".encode(), False),
    ):
        found = read(printed)
        assert found is not None, printed
        assert (found.at, found.after, found.wall, found.sure) == (at, after, wall, sure)


def test_a_provider_that_refuses_is_a_limit_once_the_agent_has_given_up() -> None:
    text = "exceeded retry " + "count, last status: 429 Too Many Requests"
    assert read(line(type="turn.failed", error={"message": text})) is not None
    assert read(line(type="error", message=text)) is None, "it may try again"
    rejected = "API Error: Request rejected (429)"
    assert read(line(type="result", is_error=True, api_error_status=429, result=rejected)) is not None


def test_codex_with_the_answer_inside() -> None:
    inner = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "resets_in_seconds": 13_872}
    found = read(line(type="turn.failed", error=inner))
    assert found is not None
    assert found.after == 13_872_000


@pytest.mark.parametrize(
    "printed",
    [
        b"",
        b'I will add a test for the message "You\'ve hit your usage limit" now.',
        b"the usage of limits is explained in docs/limits.md",
        line(type="assistant", message={"content": [{"type": "text", "text": "You've hit your usage limit"}]}),
        line(type="item.completed", item={"type": "agent_message", "text": "usage limit reached"}),
        line(type="result", is_error=False, result="explained when the usage limit is reached"),
        line(type="error", message="Reconnecting... 1/5"),
        b'{"type": "result", "is_error": true, "result": "usage limit',
        b"[" * 70_000 + b"limit",
    ],
)
def test_what_is_none(printed: bytes) -> None:
    assert read(printed) is None


def test_a_hostile_line_costs_no_more_than_reading_it() -> None:
    for printed in (
        b"You've hit your usage limit. Try again in " + b"1 d " * 12_000,
        b"You've hit your usage limit. Try again in " + b"1 and " * 9_000,
        b"error: " * 9_000 + b"usage limit reached",
        b"usage limit reached " + b"9" * 60_000,
    ):
        for _ in range(20):
            read(printed)

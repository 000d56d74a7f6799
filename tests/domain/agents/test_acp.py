"""Lines that our client for ACP prints: what they say of the agent, its calls, its cost, and how its turn ended."""

from __future__ import annotations

import msgspec
import pytest

from allswell.domain.agents.conversation import Conversation, entries
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.output import AgentLine, Note, SessionStarted, ToolCall, ToolCallResult, not_done, parse
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.repetition import RepetitionFinder
from allswell.domain.agents.spending import UsageCounter
from allswell.domain.agents.usage import Usage
from allswell.domain.service.retry import ErrorClass

SESSION = "01a1f18c-93de-7311-99db-234df1a7276f"


def line(what: str, **told: object) -> bytes:
    return msgspec.json.encode({"type": f"acp.{what}", "session_id": SESSION, "acp": told})


def read(what: str, **told: object) -> AgentLine:
    return parse(line(what, **told))


def test_a_session_begins_or_goes_on_and_its_id_stands_in_every_line() -> None:
    begun = read("session", agent="codex-acp 2.6.0", resumed=False)
    assert (begun.dialect, begun.what, begun.progress, begun.session) == ("acp", "session", True, SESSION)
    assert begun.events == (SessionStarted("codex-acp 2.6.0"),)
    assert read("session", agent="x", resumed=True).events[1] == Note("it goes on with this session")
    assert read("working", on="message").session == SESSION


@pytest.mark.parametrize("what", ["usage", "note", "permission"])
def test_what_costs_or_waits_is_no_step_of_the_work(what: str) -> None:
    assert not read(what, used=1, size=2, text="x", id="c", name="shell", input={}).progress


@pytest.mark.parametrize("told", [None, 3, [], "text"])
def test_a_line_that_holds_nothing_says_nothing(told: object) -> None:
    odd = parse(msgspec.json.encode({"type": "acp.message", "session_id": SESSION, "acp": told}))
    assert (odd.what, odd.events) == ("", ())
    assert parse(b'{"type": "acp.unknown", "acp": {}}').what == ""


def test_a_call_is_open_until_its_result_and_what_it_is_given_may_come_later() -> None:
    talk = Conversation()
    talk.hear(read("call", id="c", name="shell", input="npm test"), 0)
    talk.hear(read("call", id="c", name="shell", input={"command": "npm test -- lexer"}), 1_000)
    assert talk.words(5_000) == "running: npm test -- lexer, 5s"
    over = read("result", id="c", name="shell", input={"command": "npm test -- lexer"}, text="1 failed", failed=True)
    assert over.events == (
        ToolCall("c", "shell", {"command": "npm test -- lexer"}),
        ToolCallResult("c", "1 failed", is_error=True),
    )
    talk.hear(over, 6_000)
    assert talk.open_call is None
    assert [entry.kind for entry in entries(line("result", id="c", name="shell", input={}, text="x"))] == [
        "tool",
        "result",
    ]


def test_the_same_call_with_the_same_answer_again_and_again_is_a_circle() -> None:
    finder = RepetitionFinder(3)
    for number in range(3):
        for what in ("call", "result"):
            for event in read(what, id=f"c{number}", name="Read", input={"path": "/a/lexer.py"}, text="1").events:
                finder.hear(event)
    assert finder.found is not None
    assert finder.found.words == "called Read lexer.py 3 times, same answer"


def test_the_last_message_is_that_of_the_end() -> None:
    talk = Conversation()
    talk.hear(read("message", text="half of it"), 0)
    talk.hear(read("end", stop="end_turn", message="all of it"), 1)
    assert talk.message == "all of it"


def test_cost_and_context_are_known_while_the_turn_goes_on_and_the_end_adds_the_tokens() -> None:
    counter = UsageCounter()
    used = read("usage", used=900, size=1_000, cost_usd=0.25)
    left, *_ = used.events
    assert isinstance(left, Usage)
    assert round(left.context or 0) == 10
    assert counter.hear_line(used)
    assert counter.total == Expense(250_000)
    counter.hear_line(read("usage", used=950, size=1_000, cost_usd=0.5))
    counter.hear_line(read("end", stop="end_turn", usage={"input_tokens": 2, "output_tokens": 3}, cost_usd=0.5))
    assert counter.total == Expense(500_000, 2, 3)


def test_tokens_are_counted_step_by_step_and_the_end_of_the_turn_replaces_the_count() -> None:
    """What a step uses is told more than once; a limit of tokens has to bind before the turn is over."""
    counter = UsageCounter()
    for step, used in ((1, 900), (1, 950), (2, 1_000)):
        counter.hear_line(read("usage", used=used, size=9_000, step=step, cost_usd=None))
    assert counter.total == Expense(None, 1_950, 0)
    counter.hear_line(read("usage", used=1_100, size=9_000, step=3, cost_usd=0.5))
    assert counter.total == Expense(500_000, 3_050, 0)
    counter.hear_line(read("usage", used=1_200, size=9_000, step=4, cost_usd=0.75))
    assert counter.total == Expense(750_000, 4_250, 0)
    counter.hear_line(read("end", stop="end_turn", usage={"input_tokens": 4_000, "output_tokens": 200}, cost_usd=0.75))
    assert counter.total == Expense(750_000, 4_000, 200)


@pytest.mark.parametrize("told", [{"used": -1, "size": 10}, {"used": 1, "size": 0}, {"used": "1", "size": True}, {}])
def test_figures_that_are_none_say_nothing(told: dict[str, object]) -> None:
    assert read("usage", **told).events == ()


@pytest.mark.parametrize(
    "told, error, message",
    [
        ({"stop": "max_tokens"}, ErrorClass.TRANSIENT, "it reached its number of tokens"),
        ({"stop": "max_turn_requests"}, ErrorClass.TRANSIENT, "it reached its number of turns"),
        ({"stop": "refusal"}, ErrorClass.PERMANENT, "its model refused to go on"),
        ({"stop": "cancelled"}, ErrorClass.TRANSIENT, "its turn was cancelled"),
        ({"stop": "by the moon"}, ErrorClass.TRANSIENT, "its turn ended by 'by the moon'"),
        ({"error": "", "code": -32603}, ErrorClass.TRANSIENT, "its program reports an error"),
        ({"error": "Authentication required", "code": -32000}, ErrorClass.AUTH, None),
        ({"error": "API Error: 401 invalid x-api-key"}, ErrorClass.AUTH, None),
        ({"error": "Internal error: API Error: Request rejected (429) · wait"}, ErrorClass.RATE_LIMIT, None),
        ({"error": "exceeded retry limit, last status: 429 Too Many Requests"}, ErrorClass.RATE_LIMIT, None),
    ],
)
def test_how_a_turn_ended_is_what_follows_for_the_task(
    told: dict[str, object], error: ErrorClass, message: str | None
) -> None:
    failure = not_done(read("end", **told))
    assert failure is not None
    assert failure.error is error
    assert message is None or failure.message == message
    assert not read("end", **told).progress


def test_the_end_of_a_turn_is_done_and_a_usage_limit_is_one() -> None:
    assert not_done(read("end", stop="end_turn")) is None
    limits = [event for event in read("end", error="status 429: slow down").events if isinstance(event, UsageLimit)]
    assert len(limits) == 1

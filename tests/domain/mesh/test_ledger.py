"""What counts for an agent and against it, what does not, and why (M8)."""

import pytest

from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.mesh.health import LedgerLine, ledger_of
from allswell.domain.rules.event import Event

MINUTE = 60_000


def request(named: str, /, **data: object) -> Event:
    """About a request of ann's, to oracle."""
    told = {"request": "m_1.a", "kind": "handoff", "to": "oracle", **data}
    return Event(named, TaskId("t_1"), agent=AgentId("ann"), token=Token(1), data=told)


def own(kind: str, **data: object) -> Event:
    return Event(kind, TaskId("t_1"), agent=AgentId("ann"), token=Token(1), data=data)


def expiry(timeout: int = 300_000, against: str = "oracle") -> Event:
    return request("request_expired", attempt=1, timeout_ms=timeout, default_ms=300_000, against=against)


STORY = [
    (Millis(0), own("task_claimed", deadline=1)),
    (Millis(1 * MINUTE), request("request_sent", timeout_ms=300_000)),
    (Millis(6 * MINUTE), expiry()),
    (Millis(7 * MINUTE), expiry(60_000)),
    (Millis(7 * MINUTE), request("request_blocked", attempts=2, next="")),
    (Millis(90 * MINUTE), request("request_resolved", by="main/oracle.2", blocked_ms=1, requeued=True)),
]


def weights(agent: str, *more: tuple[Millis, Event]) -> list[tuple[str, str]]:
    return [(line.weight, line.what) for line in ledger_of(agent, [*STORY, *more]).lines]


@pytest.mark.row("M8")
def test_the_target_is_charged_for_what_it_let_expire_and_credited_for_unblocking() -> None:
    assert weights("oracle") == [
        ("against", "no answer to ann in 5m"),
        ("nothing", "no answer to ann in 1m"),
        ("for", "its answer let ann go on"),
    ]
    why = [line.why for line in ledger_of("main/oracle.1", STORY).lines]
    assert why[1] == "too short: its kind has 5m"


@pytest.mark.row("M8")
def test_a_timeout_of_the_target_costs_the_requester_nothing() -> None:
    ledger = ledger_of("ann", STORY)
    assert [line.weight for line in ledger.lines] == ["nothing"] * 3
    assert {line.why for line in ledger.lines} == {"the target's, not its own"}
    assert ledger.idle_ms == 0


@pytest.mark.row("M8")
def test_a_requester_that_is_slow_itself_was_idle_since_its_last_sign() -> None:
    slow = (Millis(20 * MINUTE), own("agent_idle", elapsed_ms=1))
    ledger = ledger_of("ann", [*STORY[:5], slow])
    assert ledger.lines[-1] == LedgerLine(
        *(slow[0], "idle", "it showed no progress", "its own idle time", None, "t_1"),
        13 * MINUTE,
    )
    assert ledger.idle_ms == 13 * MINUTE, "the wait for the request is not its own"
    assert ledger_of("oracle", [slow]).lines == ()


def test_an_answer_in_time_is_what_is_expected() -> None:
    closed = request("request_closed", outcome="done", reason="")
    assert weights("oracle", (Millis(9), closed))[-1] == ("nothing", "answered ann in time")
    assert weights("bob", (Millis(9), closed)) == []
    delegated = (Millis(8), request("request_sent", kind="delegation", timeout_ms=1))
    assert ledger_of("oracle", [delegated, (Millis(9), closed)]).lines == (), "that was for a role of this name"


def test_what_nobody_held_is_held_against_nobody() -> None:
    assert ledger_of("oracle", [(Millis(1), expiry(against=""))]).lines == ()

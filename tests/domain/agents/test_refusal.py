"""What clients print while their provider refuses and they try again: a state of its own, and no progress."""

import msgspec
import pytest

from allswell.domain.agents.evidence import Evidence, EvidenceKind, EvidenceState, ProviderRefusal
from allswell.domain.agents.output import AgentLine, not_done, parse, plain_refusal
from allswell.domain.agents.refusal import UsageLimit, WallTime, from_plain
from allswell.domain.agents.status import AgentCondition, AttemptFacts, in_words, judge
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass
from tests.clients.stand_in import CAPTURED

BEGAN = 1_000_000


def lines(stream: str) -> list[bytes]:
    return (CAPTURED / f"{stream}.jsonl").read_bytes().splitlines()


def refusal_in(line: AgentLine) -> ProviderRefusal | None:
    return next((event for event in line.events if isinstance(event, ProviderRefusal)), None)


def read_limit(line: bytes) -> UsageLimit | None:
    return next((event for event in parse(line).events if isinstance(event, UsageLimit)), None)


def refusals(stream: str) -> list[ProviderRefusal]:
    heard = [parse(line) for line in lines(stream)]
    assert not any(line.progress for line in heard if refusal_in(line) is not None)
    return [refusal for line in heard if (refusal := refusal_in(line)) is not None]


@pytest.mark.parametrize(
    "stream, error, last",
    [
        ("claude-429-retry", "rate_limit", "429, try 7 of 10"),
        ("claude-login-retry", "auth", "401, try 7 of 10"),
        ("claude-network-retry", "network", "no answer, try 4 of 10"),
        ("codex-429-retry", "rate_limit", "429, try 1 of 5"),
        ("codex-login-retry", "auth", "401, try 2 of 5"),
        ("codex-network-retry", "network", "no answer"),
        ("codex-overload", "overload", "overloaded, try 5 of 5"),
    ],
)
def test_what_real_clients_print_while_they_try_again(stream: str, error: str, last: str) -> None:
    found = refusals(stream)
    assert {refusal.error for refusal in found} == {error}
    assert found[-1].words == last


@pytest.mark.parametrize("status, error", [(529, "overload"), (500, "server"), (403, "auth"), (429, "rate_limit")])
def test_the_status_says_what_it_is(status: int, error: str) -> None:
    line = {"type": "system", "subtype": "api_retry", "session_id": "s", "error_status": status, "attempt": 6}
    said = parse(msgspec.json.encode({**line, "max_retries": 10, "retry_delay_ms": 19_652.1}))
    assert refusal_in(said) == ProviderRefusal(ErrorClass(error), status, 6, 10, Millis(19_652))


@pytest.mark.parametrize("odd", ["", "x", -1, True, 10**30, None, [1], {"a": 1}])
def test_what_a_client_says_is_data(odd: object) -> None:
    fields = dict.fromkeys(("error_status", "error", "attempt", "max_retries", "retry_delay_ms"), odd)
    said = parse(msgspec.json.encode({"type": "system", "subtype": "api_retry", "session_id": "s", **fields}))
    if said.what:
        refusal = refusal_in(said)
        assert refusal is not None
        assert refusal.words in ("no answer", "no answer, try 1")


def test_gemini_says_it_in_plain_text() -> None:
    refusal = from_plain(b"Attempt 2 failed with status 429. Retrying with backoff... _ApiError: {}")
    assert refusal is not None
    assert refusal.words == "429, try 2"
    assert from_plain(b"Attempt 2 of the test suite went well") is None
    assert from_plain(b"I say: Attempt 2 failed with status 429. Retrying") is None
    waits = EvidenceState(0).refused(refusal, 1_000)
    assert waits.heard(Evidence(EvidenceKind.LINE, 1_100, "“  code: 429,”")).refusal is refusal, (
        "the rest of the same error"
    )
    assert waits.heard(Evidence(EvidenceKind.LINE, 9_000, "“Here is the plan:”")).refusal is None, "it goes on"


# --- a state of its own -----------------------------------------------------------------------------------------------


def test_it_is_waited_for_until_the_agent_goes_on() -> None:
    standing = EvidenceState(BEGAN).heard(Evidence(EvidenceKind.PROTOCOL, BEGAN, "claude: system init"))
    for refusal in refusals("claude-429-retry"):
        standing = standing.refused(refusal, BEGAN + 40_000)
    verdict = judge(standing, AttemptFacts(), BEGAN + 70_000)
    assert in_words(verdict) == "waiting for the provider: 429, try 7 of 10"
    assert judge(standing, AttemptFacts(for_human="q_1"), BEGAN + 70_000).condition is AgentCondition.FOR_PROVIDER
    printed = standing.heard(Evidence(EvidenceKind.OUTPUT, BEGAN + 71_000, "12 bytes"))
    assert judge(printed, AttemptFacts(), BEGAN + 72_000).condition is AgentCondition.FOR_PROVIDER, (
        "bytes are no answer"
    )
    gone_on = standing.heard(Evidence(EvidenceKind.PROTOCOL, BEGAN + 80_000, "claude: text"))
    assert judge(gone_on, AttemptFacts(), BEGAN + 80_000).condition is AgentCondition.WORKING


@pytest.mark.parametrize(
    "refusal, stands",
    [
        (ProviderRefusal(ErrorClass.RATE_LIMIT, 429, 6, 10, Millis(39_757)), 39_757),
        (ProviderRefusal(ErrorClass.RATE_LIMIT, 429, 1, 5), 300_000),
        (ProviderRefusal(ErrorClass.NETWORK), 0),
    ],
)
def test_the_idle_clock_stands_until_the_clients_next_try(refusal: ProviderRefusal, stands: int) -> None:
    standing = EvidenceState(BEGAN).refused(refusal, BEGAN + 1_000)
    assert standing.progress is None, "it is no progress"
    assert standing.idle_at(60_000) == BEGAN + 1_000 + stands + 60_000, "and a client that hangs after it is found"


def test_an_error_that_claude_code_prints_as_a_message_is_no_progress() -> None:
    kinds = {said.what: said.progress for line in lines("claude-quota") if (said := parse(line)).what}
    assert kinds["an error of the provider"] is False


# --- once it has given up ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream, error, account",
    [
        ("claude-login", "auth", True),
        ("claude-no-login", "auth", True),
        ("claude-quota", "permanent", True),
        ("claude-context", "context_overflow", False),
        ("claude-deferred", None, False),
        ("codex-login", "auth", True),
        ("codex-quota", "permanent", True),
        ("codex-context", "context_overflow", False),
        ("codex-overload", "overload", False),
    ],
)
def test_what_is_the_accounts_and_what_the_tasks(stream: str, error: str | None, account: bool) -> None:
    failure = not_done(parse(lines(stream)[-1]))
    assert failure is not None
    assert failure.account is account
    if error is not None:
        assert failure.error == error
        assert read_limit(lines(stream)[-1]) is None, "nothing to wait for"


def test_a_quota_that_says_when_there_is_more_is_a_limit() -> None:
    text = "You exceeded your current quota, please check your plan. Please retry in 38 seconds."
    found = read_limit(msgspec.json.encode({"type": "turn.failed", "error": {"message": text}}))
    assert found is not None
    assert found.after == 38_000


def test_codex_names_the_minute() -> None:
    found = read_limit(lines("codex-minutes")[-1])
    assert found is not None
    assert (found.wall, found.sure) == (WallTime(23, 34), True)


@pytest.mark.parametrize(
    "line, error",
    [
        ("Not logged in · Please run /login", "auth"),
        ("Invalid API key · Please run /login", "auth"),
        ("Credit balance is too low", "permanent"),
        ("ERROR: Quota exceeded. Check your plan and billing details.", "permanent"),
        ("The tests say: Credit balance is too low", None),
        ("Invalid API key is what the form shows " + "now " * 200, None),
    ],
)
def test_in_plain_text_only_a_line_that_is_the_clients_own_counts(line: str, error: str | None) -> None:
    failure = plain_refusal(parse(line.encode()))
    assert (None if failure is None else failure.error) == error

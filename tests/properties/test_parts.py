"""Properties of the parts: durations, graphs, the order of claims, the judge, the moments of a lease."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from allswell.domain.duration import LONGEST, parse, show
from allswell.domain.ids import Millis
from allswell.domain.lease.model import asked_at, due_at, ends_at, is_asked, judged_at
from allswell.domain.service.retry import (
    RULES,
    ErrorClass,
    Failure,
    GiveUp,
    RateLimitPause,
    RetryAfter,
    RetryPolicy,
    judge,
)
from allswell.domain.task.model import PRIORITY_MAX, Policy, rank
from allswell.domain.task.submit import describe_cycle, find_cycle
from allswell.errors import Refused
from tests.domain.life import START, Life
from tests.properties.budget import DETERMINISTIC

GRAPHS = st.integers(1, 7).flatmap(
    lambda size: st.dictionaries(
        st.integers(0, size - 1).map(str), st.lists(st.integers(0, size).map(str), max_size=3), max_size=size
    )
)


@DETERMINISTIC
@given(st.integers(0, LONGEST))
def test_what_is_shown_can_be_read_again(length: int) -> None:
    read = parse(show(length))
    if length < 60_000:
        assert read == length
    else:  # two units are shown, and the smaller one is cut off
        unit = 1_000 if length < 3_600_000 else 60_000 if length < 86_400_000 else 3_600_000
        assert -500 <= length - read < unit
    assert show(-length) == ("-" + show(length) if length else "0ms")


@DETERMINISTIC
@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert 0 <= parse(text) <= LONGEST
    except Refused as refused:
        assert refused.code == "bad_duration"  # noqa: PT017 - either is right


def reaches(needs: dict[str, list[str]], start: str) -> bool:
    """Whether following needs from here leads back here: the naive way."""
    seen: set[str] = set()
    pending = list(needs.get(start, ()))
    while pending:
        following = pending.pop()
        if following == start:
            return True
        if following not in seen:
            seen.add(following)
            pending += needs.get(following, ())
    return False


@DETERMINISTIC
@given(GRAPHS)
def test_a_cycle_is_found_exactly_where_there_is_one(needs: dict[str, list[str]]) -> None:
    cycle = find_cycle(needs)
    assert (cycle is not None) == any(reaches(needs, start) for start in needs)
    if cycle is not None:
        assert len(set(cycle)) == len(cycle)
        for one, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert following in needs[one]
        assert find_cycle(dict(reversed(needs.items()))) == cycle
        assert all(member in describe_cycle(cycle) for member in cycle)


TASKS = st.tuples(st.integers(0, PRIORITY_MAX), st.integers(START, START + 10**10))


@DETERMINISTIC
@given(TASKS, TASKS)
def test_ranks_order_by_priority_and_then_by_age(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (rank(*one) < rank(*other)) == ((-one[0], one[1]) < (-other[0], other[1]))
    assert 0 <= rank(*one) < 2**63, "one 64-bit index serves it"


@DETERMINISTIC
@given(
    st.sampled_from(ErrorClass),
    st.none() | st.integers(-10, 10**6),
    st.dictionaries(st.sampled_from([one.value for one in ErrorClass]), st.integers(0, 6)),
    st.none() | st.integers(-10, 10**6),
    st.floats(0, 1, exclude_max=True),
    st.builds(
        RetryPolicy,
        backoff=st.integers(0, 10**5),
        jitter=st.floats(0, 1),
        retries=st.none() | st.integers(0, 8),
        max_attempts=st.integers(1, 10),
    ),
)
def test_the_judge_keeps_within_its_bounds(
    error: ErrorClass,
    retry_after: int | None,
    earlier: dict[str, int],
    remaining: int | None,
    draw: float,
    policy: RetryPolicy,
) -> None:
    failure = Failure(error, retry_after=None if retry_after is None else Millis(retry_after))
    verdict = judge(policy, failure, earlier=earlier, remaining=remaining, draw=draw)
    if isinstance(verdict, RetryAfter | RateLimitPause):
        assert verdict.delay >= 0
        assert remaining is None or verdict.delay < remaining
    if isinstance(verdict, RetryAfter):
        assert RULES[error].retries > 0
        assert sum(earlier.values()) + 1 < policy.max_attempts
        base = policy.backoff * 2 ** earlier.get(error, 0)
        if error in (ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD):
            base = max(base, policy.retry_after_cap)
        assert verdict.delay <= base * (1 + policy.jitter)
    if isinstance(verdict, RateLimitPause):
        assert retry_after is not None
        assert retry_after > policy.retry_after_cap
    if RULES[error].then == "fail" and not isinstance(verdict, RetryAfter | RateLimitPause):
        assert isinstance(verdict, GiveUp)


@DETERMINISTIC
@given(
    st.integers(1, 10**6),
    st.integers(2, 10**5),
    st.lists(st.integers(0, 10**6), max_size=4).map(sorted),
    st.integers(0, 10**6),
    st.none() | st.integers(100, 10**6),
)
def test_a_check_in_is_owed_exactly_between_its_moment_and_its_answer(
    timeout: int, every: int, answers: list[int], elapsed: int, length: int | None
) -> None:
    life = Life(policy=Policy(timeout=timeout, checkpoint_interval=every, checkpoint_timeout=1))
    life.claim("bob", START, length=length)
    said = [moment for moment in answers if moment <= elapsed]
    for moment in said:
        assume(START + moment < ends_at(life.lease))
        life.check_in(Millis(START + moment))
    now = START + elapsed
    lease = life.lease
    moments = [number * every for number in range(1, elapsed // every + 1) if number * every < timeout]
    # The last one that was asked for by now; once the limit is reached nothing is owed any more.
    owed = bool(moments) and elapsed // every * every < timeout and not any(moment >= moments[-1] for moment in said)
    assert is_asked(lease, now) == owed
    first = asked_at(lease, 1)
    assert (first is None) == (every >= timeout)
    assert judged_at(lease) == (None if first is None else first + lease.ask_wait)
    assert due_at(lease) <= ends_at(lease) <= lease.deadline

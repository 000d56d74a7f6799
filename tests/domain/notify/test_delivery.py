"""When a delivery is tried again, when it is given up, and in which order deliveries go."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.notify.delivery import (
    PACE,
    Delivery,
    DeliveryFailure,
    DeliveryRetries,
    LeaderMark,
    again,
    delivery_id,
    due,
    failed,
    is_down,
    is_free,
    is_ours,
    made_words,
)

NEW = Delivery("web", "msg_1", "", (1, 1, 0), Millis(0), "{}")
LOST = DeliveryFailure("connection refused")
HOUR = 3_600_000


def test_the_retries_of_a_webhook_are_30_seconds_apart_and_slow_down_when_they_are_used_up() -> None:
    one, now, pauses = NEW, Millis(1_000), []
    for _ in range(8):
        one = failed(one, LOST, DeliveryRetries(), now)
        pauses.append((one.next_at - now) // 1_000)
        now = one.next_at
    assert pauses == [30, 30, 30, 60, 120, 240, 480, 900]
    assert not one.given_up
    assert one.failing_since == 1_000


def test_a_target_is_down_once() -> None:
    one, told = NEW, []
    for tries in range(1, 10):
        one = failed(one, LOST, DeliveryRetries(), Millis(0))
        told += [tries] * is_down(one, DeliveryRetries())
    assert told == [4]


def test_what_is_refused_for_good_is_given_up_at_once() -> None:
    one = failed(NEW, DeliveryFailure("410 Gone", final=True), DeliveryRetries(), Millis(5))
    assert one.given_up
    assert one.reason == "410 Gone"
    assert again(one) == replace(NEW, reason="410 Gone")


def test_a_target_that_says_when_to_come_again_is_believed_if_it_asks_for_longer() -> None:
    assert failed(NEW, DeliveryFailure("429", retry_after=HOUR), DeliveryRetries(), Millis(0)).next_at == HOUR
    assert failed(NEW, DeliveryFailure("429", retry_after=1), DeliveryRetries(), Millis(0)).next_at == 30_000


def test_the_words_of_the_seed() -> None:
    assert made_words(2) == "✅ Delivered on retry 2"
    assert made_words(0) == "✅ Delivered"


@given(
    st.integers(0, 5),
    st.integers(1, HOUR),
    st.integers(1, HOUR),
    st.integers(1, 100 * HOUR),
    st.lists(st.one_of(st.none(), st.integers(0, 2 * HOUR)), max_size=40),
)
def test_a_delivery_is_tried_later_each_time_and_given_up_in_its_time(
    retries: int, apart: int, slowest: int, give_up: int, asked: list[int | None]
) -> None:
    patience = DeliveryRetries(retries, apart, slowest, give_up)
    one, now = NEW, Millis(7)
    for number, retry_after in enumerate(asked, 1):
        after = failed(one, DeliveryFailure("no", retry_after=retry_after), patience, now)
        assert after.tries == number
        if after.given_up:
            assert number > 0
            assert after.next_at == now
            break
        assert after.next_at - now >= max(apart, retry_after or 0)
        assert after.next_at - 7 <= give_up
        now, one = after.next_at, after


deliveries = st.lists(
    st.builds(
        Delivery,
        st.just("web"),
        st.just("msg"),
        st.just(""),
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 1)),
        st.just(Millis(0)),
        st.just("{}"),
        st.integers(0, 2),
        st.integers(0, 9).map(Millis),
        st.none(),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.place,
)


@given(deliveries, st.integers(0, 9).map(Millis), st.integers(1, 4))
def test_a_target_gets_its_deliveries_in_order(line: list[Delivery], now: Millis, most: int) -> None:
    batch = due(line, now, most)
    assert list(batch) == line[: len(batch)]
    assert len(batch) <= most
    assert bool(batch) == (bool(line) and line[0].next_at <= now)
    assert len(batch) < 2 or not any(one.tries for one in batch)
    assert all(one.next_at <= now for one in batch), "nothing that has to wait is taken along"


def test_an_id_tells_sinks_stores_and_events_apart() -> None:
    places = [(1, 2, 0), (1, 2, 1), (1, 3, 0), (2, 2, 0)]
    ids = {delivery_id(sink, Millis(at), place) for sink in "ab" for at in (5, 6) for place in places}
    assert len(ids) == 16
    assert not any("." in one for one in ids)


def test_a_duty_is_free_when_its_word_has_grown_old_or_was_given_back() -> None:
    held = LeaderMark("me", Millis(100_000))
    assert is_free(None, Millis(0))
    assert not is_free(held, Millis(100_000 + 3 * PACE - 1))
    assert is_free(held, Millis(100_000 + 3 * PACE))
    assert is_free(held, Millis(100_000 - 3 * PACE))
    assert is_free(replace(held, let_go=True), Millis(100_000))
    assert is_free(held, Millis(100_000), dead=True)
    assert is_ours(held, "me")
    assert not is_ours(held, "you")
    assert not is_ours(replace(held, let_go=True), "me")

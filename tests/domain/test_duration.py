"""Durations as people write them."""

from datetime import timedelta

import pytest

from allswell.domain.duration import LONGEST, Duration, parse, show
from allswell.errors import Refused


@pytest.mark.parametrize(
    "written, length",
    [
        (0, 0),
        (900_000, 900_000),
        ("900000", 900_000),
        ("15m", 900_000),
        ("15min", 900_000),
        (" 15 M ", 900_000),
        ("1.5h", 5_400_000),
        ("400ms", 400),
        ("30s", 30_000),
        ("1h 30m", 5_400_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("366d", LONGEST),
        (timedelta(seconds=5), 5_000),
        (timedelta(days=1, milliseconds=1), 86_400_001),
    ],
)
def test_what_people_write_is_understood(written: Duration, length: int) -> None:
    assert parse(written) == length


@pytest.mark.parametrize("written", ["", "m", "15 apples", "-5m", "5m-3s", "1e3s", "5mm", "five", "5m 3", "1.5", ".5h"])
def test_anything_else_is_refused_by_name(written: str) -> None:
    with pytest.raises(Refused, match=r"idle .* is not a duration") as caught:
        parse(written, where="idle")
    assert (caught.value.code, caught.value.where) == ("bad_duration", "idle")


@pytest.mark.parametrize("value", [True, 1.5, None, [1]])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(Refused, match="must be milliseconds, a string such as '15m', or a timedelta"):
        parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("written", ["1h1h", "1m 5s 1min", "1ms 1ms"])
def test_a_unit_is_named_once(written: str) -> None:
    with pytest.raises(Refused, match="names a unit twice"):
        parse(written)


@pytest.mark.parametrize("value", ["٥m", "٥", "1_0s", "1e3", "5M5"])
def test_figures_are_plain_ascii(value: str) -> None:
    with pytest.raises(Refused, match="is not a duration"):
        parse(value)


@pytest.mark.parametrize("value", [-1, timedelta(seconds=-1), LONGEST + 1, "367d", "9" * 5_000, "9" * 5_000 + "d"])
def test_what_is_out_of_bounds_is_refused(value: Duration) -> None:
    with pytest.raises(Refused, match="between 0 and 366 days"):
        parse(value)


@pytest.mark.parametrize(
    "length, shown",
    [
        (0, "0ms"),
        (400, "400ms"),
        (2_500, "2.5s"),
        (59_999, "59.999s"),
        (900_000, "15m"),
        (5_400_000, "1h 30m"),
        (90_061_000, "1d 1h"),
        (-2_500, "-2.5s"),
    ],
)
def test_a_length_is_shown_as_a_person_reads_it(length: int, shown: str) -> None:
    assert show(length) == shown

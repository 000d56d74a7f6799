"""Deadlines as they travel: strict on the way in, never more than there is on the way out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.duration import LONGEST
from allswell.domain.scopes import HEADER, META, BootId, read_instant, read_remaining, write_instant, write_remaining
from allswell.errors import Refused
from tests.properties.budget import DETERMINISTIC

HERE = BootId("11111111-2222-3333-4444-555555555555")


@DETERMINISTIC
@given(st.integers(0, 2**63))
def test_an_instant_comes_back(ns: int) -> None:
    assert read_instant(write_instant(HERE, ns), HERE) == ns


@pytest.mark.parametrize(
    "text",
    ["", "soon", f"{HERE}", f"{HERE}:", f"{HERE}:-5", f"{HERE}:1.5", f"{HERE}:١٢", f"{HERE}:1 ", ":5", "a" * 999],
)
def test_garbage_is_refused_and_named(text: str) -> None:
    with pytest.raises(Refused, match="ALLSWELL_DEADLINE must be") as caught:
        read_instant(text, HERE)
    assert caught.value.where == "ALLSWELL_DEADLINE"
    assert len(caught.value.message) < 250


def test_the_clock_of_another_boot_is_refused() -> None:
    with pytest.raises(Refused, match="another machine or before a reboot"):
        read_instant("99999999-2222-3333-4444-555555555555:12345", HERE)


@DETERMINISTIC
@given(st.floats(-1e6, 1e15))
def test_what_is_left_is_never_rounded_up(ms: float) -> None:
    sent = read_remaining(write_remaining(ms), META)
    assert sent == read_remaining(str(sent), HEADER)
    assert 0 <= sent <= max(ms, 0)
    assert sent > ms - 1 or sent == LONGEST


@pytest.mark.parametrize(
    "text", ["", "-1", "+5", "1.5", "1e3", "1_0", "٥", " 5", "5 ", "5, 6", "0x10", "NaN", "9" * 12, str(LONGEST + 1)]
)
def test_a_header_is_whole_milliseconds_and_nothing_else(text: str) -> None:
    with pytest.raises(Refused, match="Allswell-Remaining-Ms"):
        read_remaining(text, HEADER)


@pytest.mark.parametrize("value", [-1, 1.5, 5.0, True, None, [5], {"ms": 5}, LONGEST + 1, 10**4_000])
def test_in_json_it_is_a_whole_number_and_nothing_else(value: object) -> None:
    with pytest.raises(Refused, match="allswell/remaining-ms must be whole milliseconds") as caught:
        read_remaining(value, META)
    assert caught.value.where == "allswell/remaining-ms"
    assert len(caught.value.message) < 250


def test_the_key_is_one_that_the_protocol_leaves_to_others() -> None:
    """A prefix of labels, a slash, a name; prefixes whose second label is `mcp` or `modelcontextprotocol` are its."""
    prefix, _, name = META.partition("/")
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*", prefix)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name)
    assert not {"mcp", "modelcontextprotocol"} & set(prefix.split("."))

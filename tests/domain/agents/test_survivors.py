"""Processes that still run after their attempt: how they are named, and how long they keep folder and slot."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.status import (
    Survivor,
    Survivors,
    blocks,
    named,
    read_survivors,
    short_command,
    still_run,
    word_of,
)

ONE = Survivor(4242, 17, "python x.py")
LEFT = Survivors("claude.1", "t_1", "fix it", 2, "host", "boot", "pid:[1]", (ONE,), "/src")


def test_they_are_named_with_number_and_command() -> None:
    assert still_run((ONE,)) == "process 4242 (python x.py) still runs"
    two = (ONE, Survivor(7, 1))
    assert still_run(two) == "processes 4242 (python x.py) and 7 still run"
    many = tuple(Survivor(pid, 1) for pid in range(1, 9))
    assert named(many) == "processes 1, 2, 3, 4, 5 and 3 more"


def test_what_is_said_of_a_kept_folder_names_what_to_type() -> None:
    told = blocks(LEFT)
    assert "attempt 2 at “fix it” in /src" in told
    assert "kill -9 4242" in told
    assert told.endswith("allswell dismiss 4242")


def test_folder_and_slot_are_kept_until_they_end_or_a_human_frees_them() -> None:
    assert LEFT.keeps
    assert not replace(LEFT, processes=()).keeps
    assert not replace(LEFT, freed_by="grace").keeps


def test_a_word_that_cannot_be_read_is_none() -> None:
    assert read_survivors(msgspec.json.encode(LEFT).decode()) == LEFT
    assert [read_survivors(text) for text in (None, "", "null", "{}", "x")] == [None] * 5
    assert word_of("claude.1") == "survivors.claude.1"


def test_a_command_line_is_kept_on_one_line() -> None:
    assert short_command("sh\n-c\x1b[31m x ") == "sh -c [31m x"
    assert len(short_command("x" * 5_000)) == 200

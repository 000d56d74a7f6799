"""A mistyped name is answered with what was probably meant."""

import pytest

from allswell.domain.values import alike, nearest


@pytest.mark.parametrize(
    "typed, known, meant",
    [
        ("timout", ["retry", "timeout"], "timeout"),
        ("TIMEOUT", ["retry", "timeout"], "timeout"),
        ("codex", ["Codex", "CODEX"], "Codex"),
        ("xyz", ["retry", "timeout"], None),
        ("anything", [], None),
    ],
)
def test_the_nearest_name(typed: str, known: list[str], meant: str | None) -> None:
    assert nearest(typed, known) == meant


def test_how_near_is_near_enough_can_be_said() -> None:
    assert nearest("build", ["builder"]) == "builder"
    assert nearest("build", ["builder"], ratio=0.9) is None


def test_several_come_the_nearest_first() -> None:
    assert alike("stalled", ["installed", "stalling", "stall", "done"], most=2) == ["installed", "stall"]

"""`allswell drill`: the simulator's verdict as a scorecard, and faults by name."""

import json

import pytest

from allswell.interfaces.cli.commands import drill
from allswell.testing.sim import CALM, Broken, Levels, SimReport, simulate
from tests.interfaces.cli.scene import has_all, one_line, typed

Capture = pytest.CaptureFixture[str]


def test_a_quiet_hour_keeps_every_promise(capsys: Capture) -> None:
    code, said, _ = typed(capsys, "drill", "--seed", "1", "--hours", "0.5", "--faults", "none")
    assert code == 0
    has_all(said, ["Seed 1, 0.5 simulated hours: every promise held.", "lost 0", "duplicated 0", "faults none"])


def test_the_same_seed_is_the_same_history(capsys: Capture) -> None:
    first = typed(capsys, "drill", "--seed", "5", "--hours", "0.5", "--json")
    assert first == typed(capsys, "drill", "--seed", "5", "--hours", "0.5", "--json")
    assert json.loads(first[1])["lost"] == 0


def test_a_broken_promise_is_told_with_its_seed_and_ends_with_1(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = SimReport(7, 2.0, [Broken("a task completes once", 61.5, "t_1 was done twice")], duplicated=1)
    monkeypatch.setattr(drill, "simulate", lambda *_, **__: broken)
    code, said, _ = typed(capsys, "drill", "--seed", "7", "--hours", "2", "--faults", "crashes=3")
    assert code == 1
    has_all(
        said,
        [
            "Seed 7, 2 simulated hours: a promise was broken.",
            "✗ a task completes once, after 1m 1s: t_1 was done twice",
            "allswell drill --seed 7 --hours 2 --faults crashes=3",
        ],
    )


def test_faults_are_chosen_by_name() -> None:
    assert drill.levels_of("all") is None
    assert drill.levels_of("none") == CALM
    chosen = drill.levels_of("crashes, pauses=2")
    assert chosen is not None
    assert (chosen.crashes, chosen.pauses, chosen.slow) == (Levels().crashes, 2.0, 0.0)


@pytest.mark.parametrize(
    "faults,said",
    [
        ("crashs", "did you mean 'crashes'"),
        ("xyz", "there are: slow,"),
        ("crashes=x", "'x' is not a number"),
        ("crashes=nan", "between 0 and 1000"),
        ("crashes=-1", "between 0 and 1000"),
    ],
)
def test_faults_that_are_none_are_refused(capsys: Capture, faults: str, said: str) -> None:
    code, _, complained = typed(capsys, "drill", "--faults", faults)
    assert code == 2
    assert said in one_line(complained)


def test_progress_is_told_and_changes_nothing() -> None:
    """The bar hears how much of the day has passed; the history is the same with and without it."""
    shares: list[float] = []
    told = simulate(5, hours=2, on_progress=shares.append)
    assert told == simulate(5, hours=2)
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= 0.2
    assert shares[-1] == 1.0

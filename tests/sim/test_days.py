"""Days in which everything goes wrong, and every promise holds: 300 hours a run; 1,000 and kept seeds by `make sim`."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from allswell.testing.sim import CALM, SimReport, simulate

HOURS = 20
WEEKS = [range(first, first + 5) for first in range(1, 51, 5)]
"""A thousand hours of days; a week of them is one test, so that processes may share the tests."""
EACH_RUN = WEEKS[:3]
"""What `make test` lives through. In ten days all there is to meet was met, and what was ever found is kept."""
KEPT = Path(__file__).with_name("seeds.txt")

SOMETIMES = (
    "a caller was told to try later",
    "a check-in was missed",
    "a consequence took more than one chunk",
    "a dependent was skipped",
    "a flow was taken up again",
    "a failure was retried",
    "a late result was kept",
    "a late check-in was kept",
    "a late word was kept: ask",
    "a late word was kept: release",
    "a lease beside a question moved",
    "a liar was refused",
    "a question moved the limit of its run",
    "a repeated claim was recognised",
    "a repeated command was recognised",
    "a request expired",
    "a request was answered",
    "a run timed out with open tasks",
    "a service that was parked was used again",
    "a service was parked",
    "a stalled agent spoke in time",
    "a step of a flow that was given up was refused",
    "a step of a flow was recorded",
    "a task waited out a limit",
    "a task was claimed by name",
    "a tick came early",
    "a zombie was refused",
    "an agent stalled",
    "an answer crossed a miss",
    "an event was delivered twice",
    "asked about a repeated lapse",
    "asked about a repeated stall",
    "asked about a repeated timeout",
    "attempt ended: agent_idle",
    "attempt ended: agent_stalled",
    "attempt ended: agent_timeout",
    "attempt ended: lease_lapsed",
    "attempt ended: run_timeout",
    "claims were made at the same moment",
    "question closed: clarify",
    "question closed: increase_timeout",
    "question closed: reply",
    "question closed: retry",
    "question closed: skip",
    "question closed: split",
    "question closed: withdrawn",
    "attempt ended: delegation_timeout",
    "refused: cannot_delegate",
    "refused: closed",
    "refused: cycle",
    "refused: flow_over",
    "refused: flow_running",
    "refused: id_taken",
    "refused: need_split",
    "refused: run_ended",
    "refused: task_ended",
    "skips ran down a chain",
    "two processes made the same row",
)
WEATHER = (
    "call_late",
    "call_lost",
    "call_twice",
    "clock_jumped",
    "commit_lost_and_undone",
    "commit_lost_but_done",
    "commit_refused",
    "connection_cut",
    "process_crashed",
    "process_paused",
    "statement_broken",
    "statement_slow",
    "store_outage",
)


def kept_seeds() -> list[int]:
    return [int(line.split()[0]) for line in KEPT.read_text().splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="session")
def almanac(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def lived(week: range, almanac: Path) -> list[SimReport]:
    """The reports of a week, which is lived through once, by whichever process needs it first."""
    kept = almanac / f"days-{week.start}.json"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(msgspec.json.encode([simulate(seed, hours=HOURS) for seed in week]))
    return msgspec.json.decode(kept.read_bytes(), type=list[SimReport])


@pytest.mark.parametrize(
    "week",
    [pytest.param(week, marks=() if week in EACH_RUN else pytest.mark.slow) for week in WEEKS],
    ids=lambda week: f"{week.start}-{week.stop - 1}",
)
def test_every_promise_holds(week: range, almanac: Path) -> None:
    for report in lived(week, almanac):
        assert report.broken == [], f"seed {report.seed}"
        assert report.lost == report.duplicated == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "weeks, hours",
    [(EACH_RUN, 300), pytest.param(WEEKS, 1_000, marks=pytest.mark.slow)],
    ids=["300 hours", "1,000 hours"],
)
def test_in_these_hours_everything_was_met(weeks: list[range], hours: int, almanac: Path) -> None:
    reports = [report for week in weeks for report in lived(week, almanac)]
    assert sum(report.hours for report in reports) >= hours
    met: dict[str, int] = {}
    for report in reports:
        assert report.well, f"seed {report.seed}"
        for name, count in (*report.met.items(), *report.faults.items()):
            met[name] = met.get(name, 0) + count
    assert [name for name in (*SOMETIMES, *WEATHER) if not met.get(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted(set(kept_seeds()).difference(*EACH_RUN)))
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert simulate(seed, hours=HOURS).broken == []


def test_the_same_seed_is_the_same_history() -> None:
    first, second = simulate(7, hours=4), simulate(7, hours=4)
    assert first == second
    assert first.digest != simulate(8, hours=4).digest


def test_the_history_does_not_depend_on_the_order_of_hashes() -> None:
    told = []
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-m", "allswell.testing.sim", "--seed", "9", "--hours", "4", "--json"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        told.append(ran.stdout)
    assert told[0] == told[1]
    assert b'"digest"' in told[0]


def test_in_fair_weather_what_is_due_is_noticed_at_once() -> None:
    report = simulate(3, hours=10, levels=CALM)
    assert report.broken == []
    assert report.faults == {}
    assert report.detected_max_ms < 1_000


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_fresh_seeds() -> None:
    """A day of many days; `ALLSWELL_SIM_FROM` and `ALLSWELL_SIM_DAYS` choose which."""
    start = int(os.environ.get("ALLSWELL_SIM_FROM", "1000"))
    for seed in range(start, start + int(os.environ.get("ALLSWELL_SIM_DAYS", "500"))):
        report = simulate(seed, hours=HOURS)
        assert report.broken == [], f"seed {seed}: add it to {KEPT.name}"

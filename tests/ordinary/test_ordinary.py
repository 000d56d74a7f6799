"""Twenty ordinary programs under `allswell run`: none is ended by a default, and `--idle` ends those that hang.

In `make test` the fleet's limits are scaled down to seconds, and bare `run` outlives them. `make ordinary` leaves every
default as it is and lets all of them run for sixteen minutes, which is longer than any limit that the fleet has.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import patience
from tests.interfaces.cli.shell import ALLSWELL
from tests.ordinary.programs import HANGING, PROGRAMS

SECONDS = float(os.environ.get("ALLSWELL_ORDINARY_SECONDS", "0"))
"""How long each goes on in `make ordinary`; 0: scaled, for `make test`."""
SCALED = """
agent_timeout = "3s"
idle = "1s"
checkpoint_interval = "1s"
checkpoint_timeout = "500ms"
run_silence = "3s"
"""
SCRIPT = Path(__file__).with_name("programs.py")


class Ran:
    """How one of them ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit code {self.code}: {self.err[-600:]}"


def run_all(folder: Path, settings: str, *flags: str, seconds: float, step: float) -> Mapping[str, Ran]:
    """All at once, each in a folder of its own; how each ended."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    running = {}
    for name in PROGRAMS:
        place = folder / name
        place.mkdir()
        (place / "allswell.toml").write_text(settings)
        words = [*ALLSWELL, "run", *flags, "--", sys.executable, str(SCRIPT), name, str(seconds), str(step)]
        with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
            running[name] = subprocess.Popen(
                words, cwd=place, env=kept, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True
            )
    try:
        for process in running.values():
            process.wait(seconds + 2 * patience.SECONDS)
    finally:
        for process in running.values():
            process.terminate()
    return {
        name: Ran(process.wait(), (folder / f"{name}.out").read_text(), (folder / f"{name}.err").read_text())
        for name, process in running.items()
    }


@pytest.mark.realtime
@pytest.mark.row("O1")
@pytest.mark.timeout(SECONDS + 400)
def test_without_a_limit_none_of_twenty_ordinary_programs_is_ended(tmp_path: Path) -> None:
    assert len(PROGRAMS) == 20
    if SECONDS:
        ran = run_all(tmp_path, "", seconds=SECONDS, step=1.0)
    else:
        ran = run_all(tmp_path, SCALED, seconds=7.0, step=0.5)
    assert {name: one for name, one in ran.items() if one.code != 0} == {}
    assert {name for name, one in ran.items() if not one.out and not one.err} == set()
    told = {name for name, one in ran.items() if "no sign of progress for " in one.err}
    assert told >= set(HANGING)
    if SECONDS:
        assert told == set(HANGING)


@pytest.mark.realtime
@pytest.mark.timeout(SECONDS + 400)
def test_with_an_idle_limit_exactly_those_that_hang_are_ended(tmp_path: Path) -> None:
    if SECONDS:
        ran = run_all(tmp_path, "", "--idle", "30s", seconds=150.0, step=1.0)
    else:
        ran = run_all(tmp_path, "", "--idle", "5s", "--grace", "500ms", seconds=12.0, step=0.5)
    ended = {name: one for name, one in ran.items() if one.code != 0}
    assert set(ended) == set(HANGING), ended
    for one in ended.values():
        assert one.code == 124, one
        assert "nothing showed progress for " in one.err
        assert "--idle off" in one.err
    assert "“deploy@build-7's password:”" in ended["ssh_prompt"].err
    assert "still waiting for the lock”" in ended["clock_watcher"].err
    assert "it has printed nothing" in ended["sleeper"].err

"""A fleet does not stop at a shell's usual limit of open files; what it starts sees the limit as it was."""

from __future__ import annotations

import asyncio
import resource
import subprocess
from pathlib import Path

import pytest

from tests import patience
from tests.interfaces.cli.shell import ALLSWELL
from tests.interfaces.cli.upkeep import environment
from tests.runtime.process.stage import until
from tests.runtime.supervisor.stage import Night, night, standin


def test_run_raises_its_limit_and_its_command_has_the_one_from_before(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 300 or hard == resource.RLIM_INFINITY, "no limit can be raised here"
    script = "ulimit -Sn > seen; while [ ! -e go ]; do sleep 0.02; done"
    words = ["sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", *ALLSWELL, "run", "--", "sh", "-c", script]
    process = subprocess.Popen(words, cwd=tmp_path, env=environment())
    try:
        seen = tmp_path / "seen"
        until(lambda: seen.exists() and seen.read_text().endswith("\n"))
        limits = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
        soft = next(line.split()[3] for line in limits if line.startswith("Max open files"))
        assert (seen.read_text(), int(soft) > 256) == ("256\n", True)
    finally:
        (tmp_path / "go").touch()
        assert process.wait(patience.SECONDS) == 0


def test_no_more_slots_are_used_than_files_can_be_open_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allswell.runtime.supervisor.supervisor.attempts_that_fit", lambda: (2, 100))

    async def scene(night: Night) -> None:
        ids = [await night.watch.submit(f"n{number}") for number in range(5)]
        folder = night.folder

        async def two() -> bool:
            return len(list(folder.glob("begun.*"))) == 2

        await night.until(two)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert await two(), "more agents run than files can be open for"
        (folder / "go").touch()
        for id_ in ids:
            await night.ended(id_)

    script = "touch begun.$ALLSWELL_TASK; while [ ! -e go ]; do sleep 0.02; done"
    told = night(tmp_path, scene, standin(command=("sh", "-c", script), concurrency=4))
    assert any(line.startswith("2 of 4 slots are used: this process may have 100 files open") for line in told.lines)

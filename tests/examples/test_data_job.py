"""`examples/data_job.py` does what its first words say: killed in the middle, it goes on where it was."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interfaces.cli.upkeep import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_job.py"


def job(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.row("F11")
def test_the_data_job_is_killed_twice_and_comes_to_the_same_report(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    uncut = job(whole)
    assert uncut.returncode == 0, uncut.stderr
    assert "0 steps were done before." in uncut.stdout

    first = job(cut, "--crash-in", "count day-03.csv")
    assert first.returncode == -9, first.stderr
    assert first.stdout.split("  running ")[1:] == [
        "make\n",
        "count day-01.csv\n",
        "count day-02.csv\n",
        "count day-03.csv\n",
    ]
    second = job(cut, "--crash-in", "merge")
    assert second.returncode == -9, second.stderr
    assert re.findall(r"running (.*)", second.stdout) == [*(f"count day-0{day}.csv" for day in range(3, 8)), "merge"]
    third = job(cut)
    assert third.returncode == 0, third.stderr
    assert re.findall(r"running (.*)", third.stdout) == ["merge", "report"]
    assert "8 steps were done before." in third.stdout
    assert (cut / "sales" / "report.txt").read_text() == (whole / "sales" / "report.txt").read_text()

    again = job(cut)
    assert re.findall(r"running (.*)", again.stdout) == []
    assert third.stdout.splitlines()[-4:] == again.stdout.splitlines()[-4:]


def test_the_command_line_knows_the_job_and_its_steps(tmp_path: Path) -> None:
    assert job(tmp_path, "--crash-in", "merge").returncode == -9

    def allswell(*words: str) -> str:
        done = run(*words, cwd=tmp_path)
        assert done.code == 0, done.err + done.out
        return done.out

    assert "daily sales" in allswell("runs")
    listed = allswell("tasks", "--state", "done")
    assert listed.count("count") == 7
    why = allswell("why", "r_sales")
    assert "8 done" in why
    assert "1 held" in why
    assert job(tmp_path).returncode == 0
    assert "“daily sales” is done" in allswell("why", "daily sales")

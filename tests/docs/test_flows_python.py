"""Every example of docs/flows-python.md runs as it stands, and what the page says of figures is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from allswell.domain.task.submit import PAYLOAD_MAX
from allswell.engine.flow import RUN_ID_MAX
from allswell.runtime.durable.flow import HOLD

PAGE = (Path(__file__).parents[2] / "docs" / "flows-python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.split("\n")[-2][:40])
def test_an_example_runs_and_says_something(script: str, tmp_path: Path) -> None:
    assert run(script, tmp_path)


@pytest.mark.row("F11")
def test_the_first_example_fetches_once(tmp_path: Path) -> None:
    assert run(EXAMPLES[0], tmp_path).splitlines() == [
        "fetching all-is",
        "fetching well-tonight",
        "4 words; 0 steps were done before",
        "4 words; 3 steps were done before",
    ]
    assert "fetching" not in run(EXAMPLES[0], tmp_path)


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    assert (PAYLOAD_MAX, RUN_ID_MAX, HOLD) == (1 << 20, 64, 60_000)
    assert "at most 1 MiB" in PAGE
    assert "at most 64" in PAGE
    assert "at most a minute" in PAGE

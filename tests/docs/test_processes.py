"""Every example of docs/processes.md and docs/attempts.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [(DOCS / name).read_text(encoding="utf-8") for name in ("processes.md", "attempts.md")]
EXAMPLES = [code for page in PAGES for code in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)]


@pytest.mark.parametrize("script", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs_and_says_something(script: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout

"""Every example of docs/scopes.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "scopes.md").read_text(encoding="utf-8")
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


def test_the_explanation_is_told_as_the_page_shows_it(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

    def shape(text: str) -> str:
        """Without the figures, which depend on the machine."""
        text = re.sub(r", and ended \S+ later", "", text)
        return re.sub(r": [\d.]+m?s", ": …", re.sub(r"├─ itself: .*\n|.*itself: .*\n", "", text))

    assert shape(run(EXAMPLES[0], tmp_path)) == shape(shown)


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    from allswell.domain.scopes import DEFAULT, ScopeKind

    for kind in ScopeKind:
        usual, hard = DEFAULT.timeout(kind) // 60_000, DEFAULT.hard_limit(kind) // 60_000
        assert f"| `allswell.{kind}(name)` | {usual} min | {hard} min |" in PAGE

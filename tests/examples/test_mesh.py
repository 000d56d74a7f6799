"""`examples/mesh`: three scripted agents, one silent, one late; it reads like the protocol's story."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "mesh" / "story.py"


@pytest.mark.row("M2", "M5")
def test_the_example_reads_like_the_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    said = [line for line in lines if line[0] in "🎯⏱✅"]
    assert said == [
        "🎯 Claiming: Deploy webhook monitoring",
        "⏱️ Timeout: No response from Oracle on server access. Logging block, moving to doc task.",
        "🎯 Claiming: doc task",
        "⏱️ Timeout: No response from Echo on are you there?. Logging block, moving on.",
        "✅ Unblocked: Oracle answered server access. Re-queuing Deploy webhook monitoring.",
        "🎯 Claiming: Deploy webhook monitoring",
    ]
    # Said by the agent itself; the lines above follow the journal, so its last one may come before or after this.
    assert "[goes on with Deploy webhook monitoring: access is granted]" in lines[-2:]

"""`allswell logs`: what attempts printed, in real processes."""

import subprocess
import sys
from pathlib import Path

import msgspec

from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.runtime.process.stage import until

AGENT = """
import json, sys
def out(**line): print(json.dumps({"session_id": "s-1", **line}), flush=True)
def said(*parts, type="assistant"): out(type=type, message={"content": parts})
said({"type": "text", "text": "Look:\\n\\x1b[31mred"})
said({"type": "tool_use", "name": "Bash", "input": {"command": "seq 99"}})
said({"type": "tool_result", "content": "\\n".join(map(str, range(99)))}, type="user")
print("words", flush=True)
sys.stderr.write("trouble\\n")
"""
END = 'out(type="result", is_error=True, result="gave up", total_cost_usd=0.5)'
WAIT = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


def test_what_an_attempt_printed_is_made_readable(shell: Shell) -> None:
    shell("run", "--name", "night", "--", sys.executable, "-c", AGENT + END, code=1)
    told = shell("logs", "night").stdout.splitlines()
    assert told[:3] == ["Look:", "\\x1b[31mred", "→ Bash  seq 99"]
    assert told[3:16] == [*(f"  {number}" for number in range(12)), "  … 87 more lines: --raw"]
    assert told[16:] == ["words", "✗ not done: gave up, $0.5000", "trouble"]
    assert shell("logs", "night", "-n", "2").stdout.splitlines() == told[-3:]
    rows = [msgspec.json.decode(line) for line in shell("logs", "night", "--json").stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["message", "tool", "result", "text", "error", "text"]
    assert (rows[-2]["cost_usd"], rows[-1]["stream"]) == (0.5, "stderr")
    assert len(rows[2]["text"].splitlines()) == 99
    (receipt,) = shell.json("receipts")["receipts"]
    raw = shell("logs", receipt["receipt_id"], "--raw").stdout.splitlines()
    assert raw[3:] == ["words", raw[4], "trouble"]
    assert msgspec.json.decode(raw[4])["total_cost_usd"] == 0.5
    assert "has had 1 attempt, and no attempt 2" in shell("logs", "night", "--attempt", "2", code=2).stderr
    shell("run", "--name", "fine", "--", "echo", "x")
    assert "which has shown it" in shell("logs", "fine", code=2).stderr
    shell("submit", "idle")
    assert "no attempt has begun" in shell("logs", "idle", code=2).stderr
    planted = shell.folder / ".allswell" / "transcripts" / f"{receipt['task_id']}.1.stdout"
    planted.unlink()
    planted.symlink_to(shell.folder / "kept")
    assert "cannot be read" in shell("logs", "night", code=2).stderr


def test_following_shows_what_comes_and_ends_with_the_task(shell: Shell, tmp_path: Path) -> None:
    run = shell.start("--name", "night", "--", sys.executable, "-c", AGENT + WAIT + END)
    until(lambda: any((shell.folder / ".allswell" / "transcripts").glob("*.stdout")))
    output = tmp_path / "followed"
    with output.open("w") as into:
        command = [*ALLSWELL, "logs", "night", "-f"]
        following = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=into, stderr=subprocess.STDOUT)
        until(lambda: "words" in output.read_text())
        assert "gave up" not in output.read_text()
        (shell.folder / "go").touch()
        run.communicate()
        assert following.wait() == 0
    assert "✗ not done: gave up, $0.5000" in output.read_text()

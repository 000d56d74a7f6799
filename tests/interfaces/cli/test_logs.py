"""`allswell logs`: what attempts printed, in real processes."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from allswell.interfaces.cli.run_display import ProtocolView
from allswell.runtime.attempt import output
from tests.clients.stand_in import CAPTURED, install
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.interfaces.cli.upkeep import at_terminal
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
    assert shell("logs", "night", "-n", "2").stdout.splitlines() == told[-2:]
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
    assert shell("logs", "fine").stdout == "x\n", "what ended well is kept too"
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


def test_what_is_printed_last_is_followed_although_its_file_goes_with_the_end(shell: Shell, tmp_path: Path) -> None:
    """An attempt that ends well under `allswell run` leaves no files: they are read through to the end while open."""
    run = shell.start(
        "--name", "night", "--", "sh", "-c", "echo first; until test -e go; do sleep 0.01; done; echo last"
    )
    until(lambda: any((shell.folder / ".allswell" / "transcripts").glob("*.stdout")))
    output = tmp_path / "followed"
    with output.open("w") as into:
        command = [*ALLSWELL, "logs", "night", "-f"]
        following = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=into, stderr=subprocess.STDOUT)
        until(lambda: "first" in output.read_text())
        (shell.folder / "go").touch()
        run.communicate()
        assert following.wait() == 0
    assert output.read_text() == "first\nlast\n"
    assert not any((shell.folder / ".allswell" / "transcripts").glob("*.stdout"))


def test_at_a_terminal_the_events_of_an_agent_are_readable_and_elsewhere_they_are_bytes(shell: Shell) -> None:
    """The stand-in prints what the real Claude Code has printed with `--include-partial-messages`."""
    program = str(install(shell.folder.parent / "programs", "claude-mcp", before="echo starting", after="echo over"))
    printed = (CAPTURED / "claude-mcp.jsonl").read_text()
    command = ("run", "--name", "night", "--", program, "-p", "go")
    said = at_terminal(*command, cwd=shell.folder, columns=100, NO_COLOR="1", HOME=str(shell.folder.parent))
    lines = [line.rpartition("\x1b[K")[2] for line in said.out.splitlines()]
    assert said.code == 0
    assert '{"type"' not in said.out
    assert "→ Bash  echo hi" in lines
    assert [line for line in lines if line.startswith("✗ Refused: this socket speaks for the task")]
    at = lines.index("All done.")
    assert lines[at : at + 3] == ["All done.", "", "Shall I go on?"]
    assert (lines[0], lines[-1]) == ("starting", "over")
    raw = at_terminal("run", "--raw", *command[1:], cwd=shell.folder, columns=100, HOME=str(shell.folder.parent))
    assert printed.splitlines()[0] in raw.out
    assert shell(*command).stdout == f"starting\n{printed}over\n"


def test_at_a_terminal_a_message_that_comes_in_pieces_stands_in_its_lines(shell: Shell) -> None:
    """The stand-in prints what the real Gemini has printed, word by word."""
    program = str(install(shell.folder.parent / "programs", "gemini-success", after="echo over"))
    command = ("run", "--", program, "-p", "go")
    said = at_terminal(*command, cwd=shell.folder, columns=100, NO_COLOR="1", HOME=str(shell.folder.parent))
    lines = [line.rpartition("\x1b[K")[2] for line in said.out.splitlines()]
    at = lines.index("→ run_shell_command  cat lexer.py")
    asked = "Shall I go on with the parser, or with the printer of trees?"
    assert lines[at + 2 : at + 6] == ["All of it is read.", "", asked, "Both are short."]
    assert lines[at + 6].startswith("= its turn is over")
    assert lines[-1] == "over"


def test_a_message_that_comes_in_pieces_is_shown_line_by_line() -> None:
    def piece(text: str) -> bytes:
        said = {"type": "message", "timestamp": "now", "role": "assistant", "content": text, "delta": True}
        return msgspec.json.encode(said) + b"\n"

    view = ProtocolView()
    assert view.shown(piece("one") + piece(" two")) == b""
    assert view.shown(piece(" three.\n\nfo")) == b"one two three.\n\n"
    assert view.shown(piece("ur")) == b""
    assert view.shown(b"50%\r") == b"four\n50%\r", "what is no protocol ends it"
    assert view.shown(b"\n" + piece("five")) == b"\n"
    assert (view.rest(), view.rest()) == (b"five\n", b"")
    view.shown(piece("six") + b'{"type"')
    assert view.rest() == b'six\n{"type"'
    longest = b"".join(view.shown(piece("x" * 1_000)) for _ in range(2_000))
    assert len(longest) > 1_000_000, "it is held back for ever"


def test_lines_of_a_protocol_are_readable_however_they_come_and_all_else_passes_at_once() -> None:
    line = (CAPTURED / "claude-success.jsonl").read_bytes().splitlines()[1] + b"\n"
    whole = b'50%\r{"a": 1}\n' + line + b'{"a": 1}\nend {'
    pieces = ProtocolView()
    assert b"".join(pieces.shown(bytes([byte])) for byte in whole) == b'50%\r{"a": 1}\nI look first.\n{"a": 1}\nend {'
    held = ProtocolView()
    assert (held.shown(b'{"type":"as'), held.rest(), held.rest()) == (b"", b'{"type":"as', b"")
    assert ProtocolView().shown(b"{" + b"x" * (2 << 20)) == b"{" + b"x" * (2 << 20), "it is held back for ever"


def test_of_what_ended_well_only_the_newest_is_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SHELVED_MOST", 2)
    shelf = shell.folder / "shelf"
    for number in range(4):
        printed = shell.folder / f"t_{number}.1.stdout"
        printed.write_text("x")
        os.utime(printed, (number, number))
        output._shelve([printed], shelf)
    assert sorted(path.name for path in shelf.iterdir()) == ["t_2.1.stdout", "t_3.1.stdout"]
    monkeypatch.setattr(output, "SHELVED_BYTES", 1)
    (shell.folder / "t_9.1.stdout").write_text("y")
    output._shelve([shell.folder / "t_9.1.stdout"], shelf)
    assert [path.name for path in shelf.iterdir()] == ["t_9.1.stdout"]

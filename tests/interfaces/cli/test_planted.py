"""What an agent plants in `.allswell` is neither written through nor believed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from allswell.runtime.process.apart.tree import look
from allswell.runtime.process.identity import new_record
from tests.interfaces.cli.shell import Shell
from tests.runtime.attempt.stage import git

VICTIM = "nobody of ours may write here\n"


@pytest.fixture
def victim(shell: Shell) -> Path:
    """A file of somebody's, somewhere else."""
    file = shell.folder.parent / "victim"
    file.write_text(VICTIM)
    return file


PLANTS = """
if [ "$ALLSWELL_ATTEMPT" = 1 ]; then
    cd .allswell
    ln -s ../../victim transcripts/$ALLSWELL_TASK.2.stdout
    ln ../../victim transcripts/$ALLSWELL_TASK.2.stderr
    ln -s ../../victim attempts/$ALLSWELL_TASK.2.json
    mkfifo receipts/rc_${ALLSWELL_TASK#t_}.2.json receipts/rc_other.1.json attempts/t_other.1.json
    rm .gitignore; ln -s ../../made .gitignore
fi
echo said; echo more >&2; exit 7
"""


def test_what_stands_where_an_attempt_writes_is_not_written_through(shell: Shell, victim: Path) -> None:
    shell("run", "--", "sh", "-c", "exit 1", code=1)  # so that every folder is there
    ran = shell.run_json("--retries", "1", "--", "sh", "-c", PLANTS, code=7)
    assert (ran["attempts"], ran["warnings"]) == (2, [])
    assert victim.read_text() == VICTIM
    assert Path(ran["stdout"]).read_text() == "said\n"
    assert Path(ran["stderr"]).read_text() == "more\n"
    assert not Path(ran["stdout"]).is_symlink()
    assert {one["attempt"] for one in shell.json("receipts", "--task", ran["task_id"])["receipts"]} == {1, 2}
    shell("run", "--", "true")
    assert not (shell.folder.parent / "made").exists()


def test_folders_that_are_links_are_not_entered_and_that_is_said(shell: Shell) -> None:
    shell.run_json("--", "true")
    elsewhere = shell.folder.parent / "elsewhere"
    elsewhere.mkdir()
    ours = shell.folder / ".allswell"
    for name in ("transcripts", "attempts", "receipts"):
        if (ours / name).exists():
            (ours / name).rmdir()
        (ours / name).symlink_to(elsewhere)
    done = shell("run", "--name", "night", "--", "sh", "-c", "echo said; exit 7", code=7)
    assert list(elsewhere.iterdir()) == []
    assert "what it prints cannot be kept" in done.stderr
    assert "the receipt could not be written" in done.stderr
    assert done.stdout == "said\n"


def test_a_brief_is_not_written_through_a_link(shell: Shell, victim: Path) -> None:
    task = shell("submit", "job", "--payload", '"do it"').stdout.strip()
    briefs = shell.folder / ".allswell" / "briefs"
    briefs.mkdir()
    for suffix in ("prompt", "orders", "work"):
        (briefs / f"{task}.1.{suffix}").symlink_to(victim)
    shell("work", "--agent", "ada", "--drain", "--", "sh", "-c", "grep -q 'do it' {prompt_file}")
    assert victim.read_text() == VICTIM
    assert shell.json("show", "job")["task"]["state"] == "done"


@dataclass
class Forger:
    """Notes of attempts, made up by somebody who knows of an attempt that the store knows."""

    shell: Shell
    task: str
    agent: str

    def plant(self, **changes: object) -> Path:
        """A note that says this; the rest of it is true."""
        told: dict[str, object] = {
            "task": self.task,
            "name": "night",
            "attempt": 1,
            "token": 1,
            "agent": self.agent,
            "began_at": 1,
            "folder": str(self.shell.folder),
            "record": new_record("0" * 32),
        }
        place = self.shell.folder / ".allswell" / "attempts" / f"{self.task}.1.json"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(msgspec.json.encode(told | changes))
        place.chmod(0o600)
        return place


@pytest.fixture
def forger(shell: Shell) -> Forger:
    shell("run", "--name", "night", "--", "sh", "-c", "exit 7", code=7)
    (receipt,) = shell.json("receipts")["receipts"]
    Path(receipt["path"]).unlink()
    return Forger(shell, receipt["task_id"], receipt["agent_id"])


def test_a_made_up_note_does_not_have_us_act_elsewhere(shell: Shell, forger: Forger) -> None:
    other = shell.folder.parent / "other"
    shutil.copytree(shell.folder, other, ignore=shutil.ignore_patterns(".allswell"))
    (other / "secret").write_text("nobody's business")
    refs = git("for-each-ref", cwd=other)
    tree = shell.folder / ".allswell" / "worktrees" / forger.task
    tree.parent.mkdir()
    tree.symlink_to(other)
    lies: list[dict[str, object]] = [
        {"folder": str(other)},
        {"folder": str(tree)},
        {"agent": "somebody"},
    ]
    for lie in lies:
        note = forger.plant(**lie)
        said = shell("run", "--", "true").stderr
        assert f"nothing was done about {note}: it " in said, lie
        assert note.exists(), lie
    assert git("for-each-ref", cwd=other) == refs
    tree.unlink()
    assert not list(shell.folder.rglob("secret"))
    assert shell.json("receipts") == {"receipts": []}
    forger.plant()
    assert "night lost its supervisor" in shell("run", "--", "true").stderr
    assert len(shell.json("receipts")["receipts"]) == 1


def test_a_made_up_note_ends_nobody_else(shell: Shell, forger: Forger) -> None:
    """A tree of another attempt: known by its marker, or by its reaper; both can be looked up by an agent."""
    about = {"ALLSWELL_MARKER": "1" * 32, "ALLSWELL_TASK": "t_other", "ALLSWELL_TOKEN": "1"}
    inner = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], env={about | shell.env!r})"
    command = [sys.executable, "-c", outer]
    with subprocess.Popen(command, env=shell.env, stdout=subprocess.PIPE, text=True) as reaper:
        assert reaper.stdout is not None
        victim = int(reaper.stdout.readline())
        seen, above = look(victim), look(reaper.pid)
        assert seen is not None
        assert above is not None
        for marker in ("1" * 32, "2" * 32):
            mine = msgspec.structs.replace(new_record(marker), reaper=reaper.pid, reaper_start=above.start)
            forger.plant(record=mine, grace=0)
            shell("run", "--", "true")
            alive = look(victim)
            assert alive is not None, marker
            assert alive.state not in "ZX", marker
        os.kill(victim, signal.SIGKILL)


def test_a_made_up_receipt_has_nothing_written_elsewhere(shell: Shell) -> None:
    shell("run", "--name", "night", "--", "sh", "-c", "echo new > new; exit 7", code=7)
    (shell.folder / "new").unlink()
    other = shell.folder.parent / "other"
    other.mkdir()
    (receipt,) = shell.json("receipts")["receipts"]
    told = Path(receipt["path"]).read_text()
    Path(receipt["path"]).write_text(told.replace(f'"folder": "{shell.folder}"', f'"folder": "{other}"'))
    said = shell("recover", "night", "--apply", code=2).stderr
    assert f"the work came from {other}, and this task was not run there, as far as is known" in said
    assert list(other.iterdir()) == []
    Path(receipt["path"]).write_text(told)
    above = Shell(shell.folder.parent, shell.tag)
    above("recover", "night", "--apply", "--store", f"sqlite:///{shell.folder}/.allswell/allswell.db")
    assert (shell.folder / "new").read_text() == "new\n", "the store knows where it came from, wherever that is typed"

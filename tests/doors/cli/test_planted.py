"""What an agent plants in `.allswell` is neither written through nor believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.cli.shell import Shell

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
    assert {one["attempt"] for one in shell.json("receipts", "--task", ran["task"])["receipts"]} == {1, 2}
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

"""What a supervisor knows, its agents cannot read in /proc; and what others cannot read in the store's folder."""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import pytest

from tests import patience
from tests.doors.cli.console import Console
from tests.runtime.warden.stage import until
from tests.security.unprivileged import allswell, as_nobody, can, put, running

_SECRET = "sk-of-the-supervisor"


def test_agents_cannot_read_what_their_supervisor_knows_and_are_readable_themselves(theirs: Path) -> None:
    put(theirs / "agent.sh", "echo $$ > pid.tmp; mv pid.tmp pid; while [ ! -e go ]; do sleep 0.05; done")
    with running("run", "--clean-env", "--", "sh", "agent.sh", cwd=theirs, DATABASE_PASSWORD=_SECRET) as supervisor:
        until((theirs / "pid").exists)
        agent = (theirs / "pid").read_text().strip()
        for pid, readable in ((agent, True), (str(supervisor.pid), False)):
            assert can("cat", f"/proc/{pid}/environ") is readable
            assert can("readlink", f"/proc/{pid}/cwd") is readable
            assert can("ls", f"/proc/{pid}/map_files") is readable
        found = Path("/proc", agent, "environ").read_bytes()
        assert b"ALLSWELL_MARKER=" in found, "by which a later supervisor finds what is left"
        assert _SECRET.encode() not in found
        (theirs / "go").touch()
        assert supervisor.wait(patience.SECONDS) == 0
    assert allswell("tasks", "--all", cwd=theirs).returncode == 0


def test_another_user_can_neither_read_a_store_nor_hold_it_up(
    theirs: Path, cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(theirs, 0, 0)  # ours again, and everybody can enter it: the modes of the files must do
    theirs.chmod(0o755)
    monkeypatch.chdir(theirs)
    cli.ok("submit", "with a key", "--payload", '"sk-secret"', "--store", f"sqlite:///{theirs}/x.db")
    stopped = "PermissionError" if os.geteuid() == 0 else "done"  # who is nobody else can do what the owner can
    for end in ("", ".next", ".turn"):
        file = Path(f"{theirs}/x.db{end}")
        assert as_nobody(file.read_bytes) == stopped
        assert as_nobody(lambda file=file: _lock(file)) == stopped  # type: ignore[misc]
    assert cli.ok("tasks", "--json", "--store", f"sqlite:///{theirs}/x.db").json["tasks"]


def _lock(file: Path) -> None:
    with file.open("rb") as opened:
        flock(opened, LOCK_EX | LOCK_NB)

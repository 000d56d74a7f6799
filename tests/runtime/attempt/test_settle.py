"""What a dead supervisor left is settled by the next one: once, and only where nobody watches any more."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import msgspec
import pytest

from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.receipts.receipt import End
from allswell.runtime.attempt import InFlightRecord, settle, take_off
from allswell.runtime.attempt.orphans import OrphanedTask, disagreement
from allswell.runtime.process.identity import new_record
from allswell.runtime.receipts import StateDir
from allswell.testing.loop import DeterministicLoop, VirtualClock
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import ROOT, tagged, until

SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from allswell.app import make_watch, store_for
from allswell.runtime.attempt import AttemptLimits, AttemptRunner, StateDir, order_for


async def main(folder, home, tag):
    async with make_watch(store_for("memory:")) as watch:
        await watch.submit("job")
        lease = await watch.claim(agent="ada", lease="20s")
        script = "trap '' TERM; echo x > new; while :; do sleep 600; done"
        order = order_for(
            ["sh", "-c", script], cwd=folder, folder=folder, env={"TAG": tag}, limits=AttemptLimits(grace=200)
        )
        await AttemptRunner(order, lease, StateDir(home)).run()


asyncio.run(main(*sys.argv[1:]))
"""


def flight(**changes: object) -> InFlightRecord:
    given: dict[str, object] = {
        "task": TaskId("t_a"),
        "name": "job",
        "attempt": 1,
        "token": Token(1),
        "agent": AgentId("ada"),
        "began_at": Millis(1_000),
    }
    return InFlightRecord(**{**given, **changes})  # type: ignore[arg-type]


def at(wall: int) -> VirtualClock:
    """A clock that stands."""
    loop = DeterministicLoop(seed=0)
    clock = VirtualClock(loop)
    clock.jump_wall(wall - clock.wall())
    loop.close()
    return clock


def test_a_killed_supervisor_s_attempt_is_settled_with_its_work(tmp_path: Path) -> None:
    repository, home, tag = tmp_path / "repository", StateDir(tmp_path / ".allswell"), uuid.uuid4().hex
    repository.mkdir()
    (repository / "kept").write_text("as it was\n")
    git("init", "-q", "-b", "main", cwd=repository)
    git("add", "-A", cwd=repository)
    git("commit", "-q", "-m", "first", cwd=repository)
    running = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(repository), str(home.folder), tag],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    until((repository / "new").exists)
    assert settle(home) == [], "its supervisor lives"
    running.kill()
    running.wait()
    (settled,) = settle(home)
    assert tagged(tag) == []
    receipt = settled.receipt
    assert (receipt.status, receipt.partial) == (End.ORPHANED, False)
    assert receipt.reason == "its supervisor died while it ran"
    assert [change.path for change in receipt.changed] == ["new"]
    assert [one.receipt for one in home.receipts.all()] == [receipt]
    assert settle(home) == [], "somebody is at it"
    settled.clear()
    assert settle(home) == []
    assert settled.flight.socket is not None
    assert not Path(settled.flight.socket).exists()


def test_one_that_had_not_started_leaves_a_receipt_too(tmp_path: Path) -> None:
    home = StateDir(tmp_path)
    take_off(home.attempts, flight()).close()
    (settled,) = settle(home)
    assert settled.receipt.reason == "its supervisor died before it had started"
    settled.clear()
    assert list(home.attempts.iterdir()) == []


def test_a_note_that_is_still_held_is_left_alone(tmp_path: Path) -> None:
    home = StateDir(tmp_path)
    note = take_off(home.attempts, flight())
    assert settle(home) == []
    note.remove()
    assert settle(home) == []


def test_a_note_that_cannot_be_read_is_no_reason_to_stop(tmp_path: Path) -> None:
    home = StateDir(tmp_path)
    take_off(home.attempts, flight(task=TaskId("t_b"))).close()
    (home.attempts / "t_a.1.json").write_text('{"task": "t_')
    (home.attempts / "t_a.1.json").chmod(0o600)
    (settled,) = settle(home)
    assert settled.flight.task == "t_b"
    settled.clear()
    assert list(home.attempts.iterdir()) == []


def test_who_settles_and_is_killed_leaves_it_to_the_next_with_the_same_receipt(tmp_path: Path) -> None:
    home = StateDir(tmp_path)
    take_off(home.attempts, flight()).close()
    (killed,) = settle(home, at(2_000))
    killed.note.close()  # as the kernel does
    (settled,) = settle(home, at(3_000))
    assert settled.receipt == killed.receipt, "nothing is kept twice: by now the folder may be somebody else's"
    settled.clear()
    assert settle(home) == []


@pytest.mark.parametrize("change", [{"partial": True}, {"token": Token(7)}])
def test_a_receipt_that_is_not_whole_or_not_of_this_attempt_is_written_again(
    tmp_path: Path, change: dict[str, object]
) -> None:
    home = StateDir(tmp_path)
    take_off(home.attempts, flight()).close()
    (killed,) = settle(home, at(2_000))
    home.receipts.write(msgspec.structs.replace(killed.receipt, **change))
    killed.note.close()
    (settled,) = settle(home, at(3_000))
    assert settled.receipt.elapsed_ms == 2_000
    assert (settled.receipt.partial, settled.receipt.token) == (False, Token(1))


def test_a_shorter_note_takes_the_place_of_a_longer_one(tmp_path: Path) -> None:
    note = take_off(tmp_path, flight(cwd="/" + "long/" * 100))
    note.write(flight(cwd="/"))
    read = note.read()
    note.close()
    assert read is not None
    assert read.cwd == "/"


def test_where_nothing_was_ever_run_there_is_nothing_to_settle(tmp_path: Path) -> None:
    assert settle(StateDir(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(
    "lie",
    [
        {"folder": "/other"},
        {"folder": "/project/../other"},
        {"agent": AgentId("somebody")},
        {"name": "another"},
        {"token": Token(2)},
        {"task": TaskId("t_other")},
        {"attempt": 9, "token": Token(9)},
    ],
)
def test_a_note_is_believed_only_as_far_as_the_store_agrees(tmp_path: Path, lie: dict[str, object]) -> None:
    home = StateDir(tmp_path)
    known = OrphanedTask("job", {Token(1): AgentId("ada"), Token(9): AgentId("ada")}, "/project")
    true = flight(folder="/project", record=new_record("0" * 32))
    assert disagreement("t_a.1.json", true, known, home, ()) is None
    assert disagreement("t_a.1.json", true, None, home, ()) is not None
    assert disagreement("t_a.1.json", msgspec.structs.replace(true, **lie), known, home, ()) is not None
    assert disagreement("t_a.1.json", msgspec.structs.replace(true, folder="/other"), known, home, ["/other"]) is None
    own = msgspec.structs.replace(true, folder=str(tmp_path / "worktrees" / "t_a" / "inside"))
    assert disagreement("t_a.1.json", own, known, home, ()) is None

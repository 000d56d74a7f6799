"""Receipts as files: whole or not at all, found by id and by path, and nothing that is not one disturbs them."""

import errno
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.receipts.receipt import Branch, End, Receipt, advise, receipt_id, task_of_receipt, told
from allswell.domain.receipts.snapshot import ObjectName
from allswell.errors import Refused
from allswell.runtime.receipts import Receipts, StateDir
from allswell.runtime.workspace.files import replace_file


def receipt(task: str = "t_a", attempt: int = 1, **changes: object) -> Receipt:
    made = Receipt(
        id=receipt_id(TaskId(task), attempt),
        status=End.TIMEOUT,
        partial=False,
        task=TaskId(task),
        name="night",
        attempt=attempt,
        token=Token(attempt),
        agent=AgentId("ada"),
        reason="its limit of 15m was reached",
        began_at=Millis(1_000),
        ended_at=Millis(1_000 + attempt),
        elapsed_ms=Millis(attempt),
    )
    return msgspec.structs.replace(made, **changes)


def test_a_receipt_comes_back_as_it_was_written(tmp_path: Path) -> None:
    kept = Receipts(tmp_path / "receipts")
    path = kept.write(receipt())
    assert path == tmp_path / "receipts" / "rc_a.1.json"
    found = kept.find("rc_a.1")
    assert found is not None
    assert found.receipt == receipt()
    assert kept.find(str(path)) == found
    assert path.stat().st_mode & 0o077 == 0, "what an agent did is nobody else's to read"


def test_the_second_takes_the_place_of_the_first_and_leaves_nothing_else(tmp_path: Path) -> None:
    kept = Receipts(tmp_path)
    kept.write(receipt(partial=True))
    kept.write(receipt())
    assert [path.name for path in tmp_path.iterdir()] == ["rc_a.1.json"]
    assert [one.receipt.partial for one in kept.all()] == [False]


def test_what_is_torn_or_somebody_else_s_is_left_out(tmp_path: Path) -> None:
    kept = Receipts(tmp_path)
    kept.write(receipt(attempt=2))
    kept.write(receipt(attempt=1))
    (tmp_path / "torn.json").write_text('{"id": "rc_')
    (tmp_path / "other.json").write_text('{"name": "package"}')
    (tmp_path / "huge.json").write_bytes(b" " * (5 << 20))
    (tmp_path / "folder.json").mkdir()
    assert [one.receipt.attempt for one in kept.all()] == [1, 2]
    assert kept.find("rc_torn") is None
    assert kept.find("nothing.json") is None
    with pytest.raises(Refused, match="is not a receipt"):
        kept.find(str(tmp_path / "torn.json"))


def test_a_folder_that_is_not_there_has_no_receipts(tmp_path: Path) -> None:
    assert Receipts(tmp_path / "nowhere").all() == []


def test_a_write_that_fails_leaves_the_old_one_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_id_names_its_task() -> None:
    assert task_of_receipt(receipt_id(TaskId("t_a.b"), 12)) == "t_a.b"


def test_the_paragraph_says_what_was_seen_last_and_what_went_wrong() -> None:
    said = told(receipt(survivors=(7,), warnings=("the disk is full",)))
    assert said == (
        "night was told to stop after 1ms: its limit of 15m was reached. It had given no sign of progress."
        " Process 7 still runs. Warning: the disk is full."
    )


def test_without_a_snapshot_nothing_is_offered_to_recover() -> None:
    advice = advise(receipt(), resume=("again",)).advice
    assert (advice.recover, advice.resume) == ((), ("again",))


@pytest.mark.parametrize(
    "name", ["x;touch${IFS}OWNED", "$(touch${IFS}OWNED)", "--output=OWNED", "x|sh", "x'`touch\tOWNED`'"]
)
def test_the_name_of_a_branch_is_one_word_of_what_people_type(name: str, tmp_path: Path) -> None:
    """An agent chooses it, by what it leaves checked out in its worktree."""
    branch = Branch(repository="/r", name=name, base=ObjectName("a" * 40), commit=ObjectName("b" * 40))
    advice = advise(receipt(branch=branch)).advice
    assert "git" in advice.merge[0]
    for line in (*advice.merge, *advice.look):
        git = tmp_path / "git"
        git.write_text('#!/bin/sh\nfor word; do :; done\nprintf %s "$word" > said\n')
        git.chmod(0o755)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env, check=False, capture_output=True)
        assert not (tmp_path / "OWNED").exists()
    assert (tmp_path / "said").read_text() in (name, f"refs/heads/{name}")
    assert not (tmp_path / "said").read_text().startswith("-")


def test_our_folder_is_invisible_to_git(tmp_path: Path) -> None:
    home = StateDir(tmp_path / ".allswell")
    home.make()
    home.make()
    assert (home.folder / ".gitignore").read_text() == "*\n"

"""Without git: a manifest of all, copies of what changed, whole or not at all."""

import hashlib
import json
import os
from pathlib import Path

from allswell.domain.receipts.snapshot import OmissionReason, SnapshotLimits
from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import list_snapshots, take
from tests.runtime.workspace.repository import files_in, write


def plain(folder: Path) -> Path:
    for name in (b"a", b"deep/down/b", b"new\nline", b"\xff", b"back\\slash"):
        write(folder, name, name * 3)
    write(folder, "run", "#!/bin/sh\n", 0o751)
    (folder / "link").symlink_to("deep")
    (folder / "dead").symlink_to("nowhere")
    os.mkfifo(folder / "fifo")
    return folder


def test_every_file_is_copied_and_comes_back(tmp_path: Path) -> None:
    folder = plain(tmp_path / "folder")
    before = files_in(folder)
    snapshot = take(folder, "t_1", 1, reason="a test")
    assert files_in(folder) == before
    assert [(one.path, one.why) for one in snapshot.left_out] == [("fifo", OmissionReason.SPECIAL)]
    assert take(folder, "t_1", 1, reason="again") == snapshot
    assert list_snapshots(folder) == [snapshot]
    recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == before


def test_the_manifest_says_what_was_there(tmp_path: Path) -> None:
    folder = plain(tmp_path / "folder")
    snapshot = take(folder, "t_1", 1, reason="a test")
    files = {one["path"]: one for one in json.loads((Path(snapshot.name) / "manifest.json").read_text())["files"]}
    status = (folder / "run").stat()
    assert files["run"]["sha256"] == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert (files["run"]["size"], files["run"]["mode"], files["run"]["mtime"]) == (10, 0o751, status.st_mtime_ns)
    assert {"\\xff", "back\\\\slash", "new\nline"} <= set(files)


def test_limits_hold(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, "small", "s")
    write(folder, "big", "b" * 1_000)
    snapshot = take(folder, "t_1", 1, reason="a test", limits=SnapshotLimits(max_file=100))
    assert [(one.path, one.why) for one in snapshot.left_out] == [("big", OmissionReason.TOO_BIG)]
    assert set(files_in(Path(snapshot.name) / "files")) == {b"small"}


def test_a_second_snapshot_keeps_the_first_and_a_draft_is_no_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, "work", "hours of it")
    first = take(folder, "t_1", 1, reason="before the kill")
    (folder / "work").unlink()
    write(folder, ".allswell/snapshots/t_1/1/draft-killed/files/x", "half")
    second = take(folder, "t_1", 1, reason="after the kill")
    assert second.previous == first.id
    assert list_snapshots(folder) == [second]
    recover(first, into=tmp_path / "back")
    assert (tmp_path / "back" / "work").read_text() == "hours of it"


def test_an_empty_git_folder_around_it_is_no_repository(tmp_path: Path) -> None:
    """Sandboxes leave such folders in /tmp; everything beside the work would be taken for the agent's."""
    (tmp_path / ".git").mkdir()
    write(tmp_path, "beside/secret", "of another project")
    folder = plain(tmp_path / "folder")
    before = files_in(folder)
    snapshot = take(folder, "t_1", 1, reason="a test")
    assert (snapshot.kind, [one.path for one in snapshot.left_out]) == ("folder", ["fifo"])
    recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == before

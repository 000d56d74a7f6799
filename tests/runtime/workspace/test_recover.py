"""Recovering writes what was kept and never costs what is there."""

import os
from pathlib import Path

import pytest

from allswell.domain.receipts.snapshot import FileConflict, FileVerdict, verdict
from allswell.errors import Refused
from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import list_snapshots, take
from tests.runtime.workspace.repository import files_in, git, make, write


def test_after_a_reset_apply_brings_back_all_of_it(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", changed="1", same="1", mode="1", deleted="1")
    write(repo, "changed", "2")
    (repo / "mode").chmod(0o755)
    write(repo, "new/file", "n", 0o600)
    (repo / "deleted").unlink()
    there = files_in(repo)
    snapshot = take(repo, "t_1", 1, reason="a test")
    git(repo, "reset", "-q", "--hard")
    git(repo, "clean", "-qfdx")
    done = recover(snapshot, apply=True)
    (repo / "deleted").unlink()  # what the attempt deleted is named, and left to the human
    assert files_in(repo) == there
    assert (done.written, done.replaced, done.conflicts) == (("new/file",), ("changed", "mode"), ())
    assert done.deleted == ("deleted",)
    assert recover(snapshot, apply=True).same == len(there)


def test_apply_puts_its_files_beside_what_somebody_has_worked_on_since(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="1", b="1", untouched="1")
    write(repo, "a", "the attempt's")
    write(repo, "new", "the attempt's")
    snapshot = take(repo, "t_1", 1, reason="a test")
    write(repo, "a", "a human's")
    write(repo, "new", "a human's")
    write(repo, "untouched", "a human's")
    done = recover(snapshot, apply=True)
    assert done.conflicts == (FileConflict("a", "a.recovered"), FileConflict("new", "new.recovered"))
    assert {path: one[2] for path, one in files_in(repo).items()} == {
        b"a": b"a human's", b"a.recovered": b"the attempt's",
        b"new": b"a human's", b"new.recovered": b"the attempt's",
        b"untouched": b"a human's", b"b": b"1",
    }  # fmt: skip
    assert recover(snapshot, apply=True).conflicts == ()  # they are there already
    write(repo, "a.recovered", "edited")
    assert recover(snapshot, apply=True).conflicts == (FileConflict("a", "a.recovered.2"),)


def test_a_checkout_with_other_line_endings_is_still_what_it_was_based_on(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="one\n", **{".gitattributes": "a text eol=crlf\n"})
    (repo / "a").unlink()
    git(repo, "checkout", "-q", "a")
    assert (repo / "a").read_bytes() == b"one\r\n"
    write(repo, "a", b"one\r\ntwo\r\n")
    snapshot = take(repo, "t_1", 1, reason="a test")
    git(repo, "checkout", "-q", "a")
    assert recover(snapshot, apply=True).replaced == ("a",)
    assert (repo / "a").read_bytes() == b"one\r\ntwo\r\n"


def test_nothing_is_written_through_a_link_or_over_a_folder(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", **{"dir/file": "f", "dir.recovered": "also a name", "leaf": "l", "up/a/b": "deep"})
    snapshot = take(repo, "t_1", 1, reason="a test")
    outside = tmp_path / "outside"
    write(outside, "file", "precious")
    into = tmp_path / "into"
    into.mkdir()
    (into / "dir").symlink_to(outside)
    (into / "dir.recovered").symlink_to(outside)
    (into / "up").symlink_to(tmp_path / "nowhere")
    write(into, "leaf/inside", "i")
    done = recover(snapshot, into=into)
    assert files_in(outside) == {b"file": ("file", 0o644, b"precious")}
    assert {one.path: one.recovered for one in done.conflicts} == {
        "dir/file": "dir.recovered.2/file",
        "dir.recovered": "dir.recovered.recovered",
        "leaf": "leaf.recovered",
        "up/a/b": "up.recovered/a/b",
    }
    assert (into / "up.recovered" / "a" / "b").read_text() == "deep"
    assert not (tmp_path / "nowhere").exists()


def test_into_or_apply_and_not_both(tmp_path: Path) -> None:
    snapshot = take(make(tmp_path / "repo"), "t_1", 1, reason="a test")
    with pytest.raises(Refused, match="either"):
        recover(snapshot)
    with pytest.raises(Refused, match="either"):
        recover(snapshot, into=tmp_path, apply=True)
    write(tmp_path, "file", "")
    with pytest.raises(Refused, match="not a folder"):
        recover(snapshot, into=tmp_path / "file")


def test_snapshots_are_listed_as_they_were_taken(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    assert list_snapshots(repo) == []
    first = take(repo, "t_1", 1, reason='a reason\nof "two" lines \udcff')
    write(repo, "new", "n")
    second = take(repo, "t_1", 2, reason="idle")
    other = take(repo, "t_0", 1, reason="timeout")
    git(repo, "update-ref", "refs/allswell/not/ours", "HEAD")
    assert sorted(list_snapshots(repo), key=lambda one: one.id) == sorted(
        [first, second, other], key=lambda one: one.id
    )
    assert first.reason == 'a reason\nof "two" lines \\udcff'


@pytest.mark.parametrize(
    "present, base, saved, expected",
    [
        (None, None, "s", FileVerdict.WRITE),
        (None, "b", "s", FileVerdict.WRITE),
        (None, "s", "s", FileVerdict.WRITE),
        ("s", "b", "s", FileVerdict.SAME),
        ("b", "b", "s", FileVerdict.REPLACE),
        ("x", "s", "s", FileVerdict.LEAVE),
        ("x", "b", "s", FileVerdict.BESIDE),
        ("x", None, "s", FileVerdict.BESIDE),
    ],
)
def test_the_verdict_on_a_file(present: str | None, base: str | None, saved: str, expected: FileVerdict) -> None:
    def state(name: str | None) -> tuple[str, str] | None:
        return None if name is None else ("100644", name)

    assert verdict(state(present), state(base), ("100644", saved)) is expected


def test_a_draft_that_a_crash_left_is_no_obstacle(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    snapshot = take(repo, "t_1", 1, reason="a test")
    write(tmp_path / "into", f".allswell-recover-{os.getpid()}", "half")
    recover(snapshot, into=tmp_path / "into")
    assert set(files_in(tmp_path / "into")) == {b"a"}


def test_what_was_planted_in_a_folder_snapshot_is_neither_followed_nor_given_back(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write(secret, "key", "s3cret")
    folder = tmp_path / "folder"
    for name in ("as it was", "a link", "deep/key", "other bytes"):
        write(folder, name, "work")
    snapshot = take(folder, "t_1", 1, reason="a test")
    kept = Path(snapshot.name)
    files = kept / "files"
    (files / "a link").unlink()
    (files / "a link").symlink_to(secret / "key")
    (files / "deep" / "key").unlink()
    (files / "deep").rmdir()
    (files / "deep").symlink_to(secret)
    write(files, "other bytes", "else")
    manifest = (kept / "manifest.json").read_text()
    entry = manifest[manifest.index('{"path":"as it was"') :].partition("}")[0]
    forged = [entry.replace("as it was", name) + "}" for name in ("../out", f"{tmp_path}/absolute", "deep/../../out")]
    (kept / "manifest.json").write_text(manifest.replace('"files":[', '"files":[' + ",".join(forged) + ",", 1))
    before = files_in(tmp_path)
    done = recover(snapshot, into=tmp_path / "back")
    assert done.written == ("as it was",)
    assert {one.path: one.why.value for one in done.missing if one.why.value == "damaged"} == dict.fromkeys(
        ("a link", "deep/key", "other bytes"), "damaged"
    )
    assert {path for path in files_in(tmp_path) if path not in before} == {b"back/as it was"}


def test_what_is_missing_from_the_objects_costs_only_itself(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="1", b="2")
    write(repo, "c", "3")
    snapshot = take(repo, "t_1", 1, reason="a test")
    gone = git(repo, "rev-parse", "HEAD:a").decode().strip()
    (repo / ".git" / "objects" / gone[:2] / gone[2:]).unlink()
    done = recover(snapshot, into=tmp_path / "back")
    assert set(files_in(tmp_path / "back")) == {b"b", b"c"}
    assert [(one.path, one.why.value) for one in done.missing] == [("a", "damaged")]

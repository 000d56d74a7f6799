"""What a step left is put back, and nothing else is removed for that."""

from __future__ import annotations

from pathlib import Path

from allswell.domain.ids import TaskId
from allswell.domain.receipts.step import StepChanges
from allswell.flows.run import resume
from allswell.runtime.workspace.baseline import take_baseline
from tests.runtime.attempt.stage import git


def test_what_git_ignores_is_not_removed_where_a_file_comes_back(tmp_path: Path) -> None:
    """No snapshot has it: git would remove a whole folder in the place of a file, and a file in that of its folder."""
    place, folder = tmp_path / "place", tmp_path / "folder"
    for made in (place, folder / "sub"):
        made.mkdir(parents=True)
    git("init", "-q", cwd=folder)
    (folder / ".gitignore").write_text("*.o\n/sub\n")
    for name in ("data", "free", "sub/file"):
        (folder / name).write_text("before")
    git("add", "-f", "-A", cwd=folder)
    git("-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "first", cwd=folder)
    then = take_baseline(place, folder, "t_1", 1)
    for name in ("data", "free", "sub/file"):
        (folder / name).unlink()
    (folder / "sub").rmdir()
    for name in ("data", "free"):
        (folder / name).mkdir()
        (folder / name / "new").write_text("the step's")
    (folder / "data" / "a.o").write_text("precious")
    (folder / "sub").write_text("precious")
    changes = StepChanges(step="a", number=1, task=TaskId("t_1"), attempt=1, top=str(folder), began_at=0, ended_at=0)
    left = resume._put_back(place, then, changes, ["data", "data/new", "free", "free/new", "sub/file"])
    assert left == ["data", "sub/file"]
    assert [path.name for path in (folder / "data").iterdir()] == ["a.o"]
    assert (folder / "data" / "a.o").read_text() == (folder / "sub").read_text() == "precious"
    assert (folder / "free").read_text() == "before"


def test_a_file_that_a_filter_makes_is_left_as_it_is(tmp_path: Path) -> None:
    """Its commit has other bytes (a pointer, with LFS), which came into the place of the file's own."""
    place, folder = tmp_path / "place", tmp_path / "folder"
    for made in (place, folder):
        made.mkdir()
    git("init", "-q", cwd=folder)
    (folder / ".gitattributes").write_text("large filter=lfs\n")
    for name in ("large", "plain"):
        (folder / name).write_text("a pointer")
    git("add", "-A", cwd=folder)
    git("-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "first", cwd=folder)
    then = take_baseline(place, folder, "t_1", 1)
    for name in ("large", "plain"):
        (folder / name).write_text("the step's")
    changes = StepChanges(step="a", number=1, task=TaskId("t_1"), attempt=1, top=str(folder), began_at=0, ended_at=0)
    assert resume._put_back(place, then, changes, ["large", "plain"]) == ["large"]
    assert [(folder / name).read_text() for name in ("large", "plain")] == ["the step's", "a pointer"]

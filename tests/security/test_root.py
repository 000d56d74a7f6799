"""A supervisor of root, whose agents are another user: nothing of root's is done, shown or given away for them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from allswell.domain.ids import TaskId
from allswell.domain.receipts.step import StepChanges
from allswell.errors import AllswellError, Refused
from allswell.flows.run import resume
from allswell.runtime.workspace.baseline import take_baseline
from allswell.runtime.workspace.diff import difference
from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import list_snapshots, take
from allswell.runtime.workspace.worktree import make_worktree
from tests.runtime.workspace.repository import git
from tests.security.unprivileged import ASIDE, NOBODY, as_root, can, put

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an agent as another user")

_BEGIN = (
    "export HOME=$PWD; git init -q; echo one > file; git add file; git -c user.name=n -c user.email=e commit -qm one"
)
_PLANTS_LINKS = """
import os, sys
os.setgroups([]), os.setgid({user}), os.setuid({user})
print("here", flush=True)
names = ("index", "marks", "wanted", "objects", "repository/HEAD", "repository/config")
while True:
    for scratch in os.listdir({tmp!r}):
        for name in names:
            for place in ("git", "objects", "blobs"):
                try:
                    os.symlink({victim!r}, f"{tmp}/{{scratch}}/{{place}}/{{name}}")
                    print("planted", flush=True)
                except OSError:
                    pass
"""
"""A process of the agent's user that was there before: it puts links wherever it may, as fast as it can."""


@contextmanager
def _planting(tmp: Path, victim: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = _PLANTS_LINKS.format(user=NOBODY, tmp=str(tmp), victim=str(victim))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as planter:
        assert planter.stdout is not None
        try:
            assert planter.stdout.readline() == b"here\n"
            yield planter
        finally:
            planter.kill()


def test_a_program_that_root_recovers_runs_as_nobody_else(theirs: Path, tmp_path: Path) -> None:
    """An agent's own program with the set-user-ID bit was root's once root had recovered it."""
    put(theirs / "agent.sh", "echo program > program; chmod 6755 program; exit 3")
    ran = as_root("run", "--", *ASIDE, "sh", "agent.sh", cwd=theirs)
    assert ran.returncode == 3, ran
    (receipt,) = (theirs / ".allswell" / "receipts").glob("rc_*.json")
    back = as_root("recover", receipt.stem, "--into", str(tmp_path / "back"), cwd=theirs)
    assert back.returncode == 0, back
    assert (tmp_path / "back" / "program").stat().st_mode & 0o7777 == 0o755


def _notes_changes(theirs: Path, place: Path, attempt: int) -> None:
    then = take_baseline(place, theirs, "t_1", attempt)
    put(theirs / f"new{attempt}", "new")
    now = take_baseline(place, theirs, "t_1", attempt, end=True)
    difference((place, then), (place, now))


def _takes_and_recovers(theirs: Path, place: Path, attempt: int) -> None:
    take(theirs, "t_1", attempt, reason="test", home=place)
    for kept in list_snapshots(theirs):
        recover(kept, into=place / "back" / kept.id)


def test_nothing_is_written_or_read_through_a_link_that_an_agent_puts_where_its_git_works(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git serves the repository's owner in a folder that is the owner's: what root does there goes by no name."""
    with tempfile.TemporaryDirectory(prefix="allswell-test-roots-") as roots, tempfile.TemporaryDirectory() as tmp:
        Path(tmp).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", tmp)
        victim = Path(roots) / "secret"
        victim.write_text("a secret of root's")
        assert can("sh", "-c", f"cd {theirs} && {_BEGIN}")
        with _planting(Path(tmp), victim) as planter:
            for number in range(3):
                put(theirs / "file", f"changed {number}")
                git(theirs, "config", "user.name", f"name {number}")  # which git is asked about again
                for look in (_notes_changes, _takes_and_recovers):
                    with suppress(AllswellError):  # its own git it may spoil
                        look(theirs, Path(roots), number + 1)
            planter.kill()
            assert planter.stdout is not None
            assert b"planted" in planter.stdout.read(), "it has not come in between"
        assert victim.read_text() == "a secret of root's"
        assert victim.stat().st_mode & 0o777 == 0o644
        assert b"a secret of root's" not in git(theirs, "cat-file", "--batch-all-objects", "--batch")


_CONFIGURES = """
git config core.sparseCheckout true; git config extensions.worktreeConfig true
ln -s "$1/secret" .git/info/sparse-checkout; ln -s "$1/secret" .git/config.worktree
"""


def test_a_worktree_that_root_makes_shows_an_agent_no_file_of_roots_and_goes_through_no_link(theirs: Path) -> None:
    """Git of root's copied what the sparse-checkout of the agent's repository led to, for everyone to read."""
    with tempfile.TemporaryDirectory(prefix="allswell-test-roots-") as roots:
        (Path(roots) / "secret").write_text("a secret of root's")
        (Path(roots) / "links").mkdir()
        put(theirs / "plant.sh", _CONFIGURES)
        assert can("sh", "-c", f"cd {theirs} && {_BEGIN} && sh plant.sh {roots}")
        place = Path(roots) / ".allswell" / "worktrees"
        tree = make_worktree(theirs, place, "t_1")
        assert (tree.path / ".git").is_file()
        shown = [path.read_bytes() for path in theirs.rglob("*") if path.is_file() and not path.is_symlink()]
        assert b"a secret of root" not in b"".join(shown)
        tree.remove(with_branch=True)
        assert not tree.path.exists()
        assert can("ln", "-s", f"{roots}/links", str(theirs / ".git" / "worktrees"))
        with pytest.raises(Refused, match="no worktree could be made"):
            make_worktree(theirs, place, "t_2")
        assert not (place / "t_2").exists()
        assert list((Path(roots) / "links").iterdir()) == []


def test_what_is_discarded_is_put_back_through_no_link_and_runs_as_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that takes a folder's place after it was looked at: what a step had changed was written where it leads."""
    place, folder, elsewhere = (tmp_path / name for name in ("place", "folder", "elsewhere"))
    for made in (place, folder / "sub", elsewhere):
        made.mkdir(parents=True)
    for path in (folder / "program", folder / "sub" / "file"):
        path.write_text("before")
        path.chmod(0o4755)
    then = take_baseline(place, folder, "t_1", 1)
    (folder / "program").write_text("changed")
    (folder / "sub").rename(folder / "moved")
    (folder / "sub").symlink_to(elsewhere)
    (elsewhere / "new").write_text("precious")
    monkeypatch.setattr(resume, "_is_inside", lambda *_: True)
    changes = StepChanges(step="a", number=1, task=TaskId("t_1"), attempt=1, top=str(folder), began_at=0, ended_at=0)
    left = resume._put_back(place, then, changes, ["program", "sub/file", "sub/new"])
    assert left == ["sub/file", "sub/new"]
    assert [path.name for path in elsewhere.iterdir()] == ["new"]
    assert (folder / "program").read_text() == "before"
    assert (folder / "program").stat().st_mode & 0o7777 == 0o755

"""When something is wrong with a file, with git or with the machine, the rest is kept, and what is missing is named."""

import codecs
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allswell.domain.receipts.snapshot import OmissionReason, SnapshotLimits
from allswell.errors import Refused, Unavailable
from allswell.runtime.workspace import snapshot as storing
from allswell.runtime.workspace import survey
from allswell.runtime.workspace.folder_snapshot import Progress
from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import list_snapshots, take
from tests.runtime.process.stage import until
from tests.runtime.workspace.repository import files_in, git, git_files, make, picture, write

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def as_nobody(folder: Path, work: Callable[[], None]) -> None:
    """Do something without root's rights, in a process of its own; temporary files go into a folder given to it."""
    temporary = folder / "tmp"
    temporary.mkdir()
    os.chown(temporary, NOBODY, NOBODY)
    codecs.lookup("ascii")  # now: nobody may not be able to read where this Python lies
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.environ["HOME"] = "/nonexistent"
            tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
            os.environ.pop("XDG_CONFIG_HOME", None)
            work()
            status = 0
        except BaseException as error:  # noqa: BLE001 - told to the parent by the status, to people by this line
            sys.stderr.write(f"{error!r}\n")
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def give_to_nobody(*tops: Path) -> None:
    for top in tops:
        for place, _, names in os.walk(top):
            for name in ("", *names):
                os.chown(os.path.join(place, name), NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A folder that nobody can reach, in both senses: pytest's own are closed to others."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 (mkdtemp makes it safe)
        if all(folder.stat().st_mode & 0o001 for folder in (Path(parent), *Path(parent).parents)):
            folder = Path(tempfile.mkdtemp(prefix="allswell-test-", dir=parent))
            folder.chmod(0o755)
            yield folder
            shutil.rmtree(folder)
            return
    pytest.fail("no temporary folder can be reached by everybody: neither TMPDIR nor /tmp nor /var/tmp")


# --- single files -----------------------------------------------------------------------------------------------------


@needs_root
def test_an_unreadable_file_costs_only_itself(open_tmp: Path) -> None:
    repo = make(open_tmp / "repo", a="a", shut="was readable", **{"locked/tracked": "as it was"})
    write(repo, "new", "n")
    write(repo, "secret", "s", 0o000)
    write(repo, "shut", "changed", 0o000)
    write(repo, "locked/in", "l")
    give_to_nobody(repo)
    (repo / "locked").chmod(0o000)
    os.chown(repo / "locked", 0, 0)

    def work() -> None:
        snapshot = take(repo, "t_1", 1, reason="a test")
        assert [(one.path, one.why) for one in snapshot.left_out] == [
            ("locked/", OmissionReason.UNREADABLE),
            ("locked/tracked", OmissionReason.UNREADABLE),
            ("secret", OmissionReason.UNREADABLE),
            ("shut", OmissionReason.UNREADABLE),
        ]
        assert not snapshot.whole

    as_nobody(open_tmp, work)
    (snapshot,) = list_snapshots(repo)
    recovered = recover(snapshot, into=open_tmp / "back")
    assert set(files_in(open_tmp / "back")) == {b"a", b"new"}
    assert {one.path for one in recovered.missing} == {"locked/", "locked/tracked", "secret", "shut"}
    assert recovered.deleted == (), "what nobody may look at is not gone"


@needs_root
def test_outside_git_an_unreadable_folder_is_named_too(open_tmp: Path) -> None:
    folder = open_tmp / "plain"
    write(folder, "a", "a")
    write(folder, "in/locked/file", "l")
    give_to_nobody(folder)
    (folder / "in" / "locked").chmod(0o000)
    os.chown(folder / "in" / "locked", 0, 0)

    def work() -> None:
        snapshot = take(folder, "t_1", 1, reason="a test")
        assert [(one.path, one.why) for one in snapshot.left_out] == [("in/locked/", OmissionReason.UNREADABLE)]

    as_nobody(open_tmp, work)


def test_every_file_that_we_have_open_is_known_however_scattered(tmp_path: Path) -> None:
    names = [tmp_path / str(number) for number in range(400)]
    handles = [os.open(name, os.O_CREAT | os.O_RDWR) for name in names]
    try:
        for place in range(10, 395):
            os.close(handles[place])
        held = survey.open_here()
        for place, name in enumerate(names):
            status = name.stat()
            assert ((status.st_dev, status.st_ino) in held) == (not 10 <= place < 395), name
    finally:
        for handle in (*handles[:10], *handles[395:]):
            os.close(handle)


def test_a_file_that_vanishes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "b", "b")
    write(repo, "c", "c")
    taking = sys.modules[take.__module__]
    look: Callable[..., None] = vars(taking)["survey"]

    def then_remove(*arguments: object) -> None:
        look(*arguments)
        (repo / "b").unlink()

    monkeypatch.setattr(taking, "survey", then_remove)
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert [(one.path, one.why) for one in snapshot.left_out] == [("b", OmissionReason.VANISHED)]
    recover(snapshot, into=tmp_path / "back")
    assert set(files_in(tmp_path / "back")) == {b"a", b"c"}


@pytest.mark.parametrize("size", [1_000, 2 * survey.WHOLE])
def test_a_file_that_is_written_while_it_is_read_is_kept_and_called_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    repo = make(tmp_path / "repo")
    write(repo, "log", b"x" * size)
    read = os.read

    def and_write(opened: int, count: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{opened}") == str(repo / "log"):
            with (repo / "log").open("ab") as log:
                log.write(b"y")
        return read(opened, count)

    monkeypatch.setattr(os, "read", and_write)
    snapshot = take(repo, "t_1", 1, reason="a test")
    monkeypatch.undo()
    assert snapshot.torn == ("log",)
    recover(snapshot, into=tmp_path / "back")
    assert (tmp_path / "back" / "log").read_bytes().startswith(b"x" * size)


def test_what_git_keeps_under_no_name_is_named(tmp_path: Path) -> None:
    """An index takes no `.GIT` and no link called `.gitmodules`, and says so in passing."""
    repo = make(tmp_path / "repo", a="a")
    write(repo, "in/.GIT/new\nline", "n")
    write(repo, ".Git/config", "c")
    write(repo, "b", "b")
    (repo / ".gitmodules").symlink_to("a")
    snapshot = take(repo, "t_1", 1, reason="a test")
    names = [".Git/config", ".gitmodules", "in/.GIT/new\nline"]
    assert [(one.path, one.why) for one in snapshot.left_out] == [(name, OmissionReason.SPECIAL) for name in names]
    assert git(repo, "ls-tree", "-r", "--name-only", snapshot.id) == b"a\nb\n"


def test_a_big_file_that_shrinks_while_it_is_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make(tmp_path / "repo")
    write(repo, "big", b"x" * (2 * survey.WHOLE))
    write(repo, "small", "s")
    read = os.read

    def and_cut(opened: int, count: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{opened}") == str(repo / "big"):
            os.truncate(repo / "big", survey.WHOLE)
        return read(opened, count)

    monkeypatch.setattr(os, "read", and_cut)
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert [(one.path, one.why) for one in snapshot.left_out] == [("big", OmissionReason.CHANGED)]
    assert git(repo, "ls-tree", "--name-only", snapshot.id) == b"small\n"


# --- limits -----------------------------------------------------------------------------------------------------------


def test_what_is_too_much_is_listed_and_small_files_come_first(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", tracked="t")
    write(repo, "tracked", "T" * 60)
    for size in (10, 20, 30, 40, 500):
        write(repo, f"new{size}", "n" * size)
    snapshot = take(repo, "t_1", 1, reason="a test", limits=SnapshotLimits(max_file=100, max_bytes=130))
    assert {one.path: one.why for one in snapshot.left_out} == {
        "new40": OmissionReason.OVER_BUDGET,
        "new500": OmissionReason.TOO_BIG,
    }
    recover(snapshot, into=tmp_path / "back")
    assert set(files_in(tmp_path / "back")) == {b"tracked", b"new10", b"new20", b"new30"}


def test_a_tracked_file_that_is_too_big_is_not_recovered_as_its_old_self(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="old")
    write(repo, "a", "n" * 200)
    snapshot = take(repo, "t_1", 1, reason="a test", limits=SnapshotLimits(max_file=100))
    recovered = recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == {}
    assert [one.path for one in recovered.missing] == ["a"]
    assert recovered.deleted == ()


class Ticking:
    """A clock that moves on by a second whenever it is asked."""

    def __init__(self) -> None:
        self._now = 0

    def wall(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> int:
        self._now += 1_000
        return self._now

    def boottime(self) -> int:
        return self._now


def test_when_time_is_up_the_rest_is_listed(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo")
    for number in range(20):
        write(repo, f"f{number:02}", "f")
    make(repo / "inner", i="i")
    snapshot = take(repo, "t_1", 1, reason="a test", limits=SnapshotLimits(timeout=12_500), clock=Ticking())
    late = [one.path for one in snapshot.left_out if one.why is OmissionReason.OUT_OF_TIME]
    assert 0 < len(late) < 21
    recover(snapshot, into=tmp_path / "back")
    assert len(files_in(tmp_path / "back")) == 21 - len(late)


@pytest.mark.parametrize(
    "limits", [SnapshotLimits(max_file=0), SnapshotLimits(timeout=-1), SnapshotLimits(max_files=True)]
)
def test_limits_that_cannot_be_are_refused(tmp_path: Path, limits: SnapshotLimits) -> None:
    with pytest.raises(Refused, match="positive whole number"):
        take(tmp_path, "t_1", 1, reason="a test", limits=limits)


@pytest.mark.parametrize("task", ["", "a b", "../x", "a..b", "a.lock", ".a", "a/b", "a.", "é", "x" * 201, "-a", "a\n"])
def test_names_that_git_would_refuse_are_refused(tmp_path: Path, task: str) -> None:
    with pytest.raises(Refused, match="cannot name a snapshot"):
        take(tmp_path, task, 1, reason="a test")


def test_a_folder_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not a folder"):
        take(tmp_path / "gone", "t_1", 1, reason="a test")


# --- git --------------------------------------------------------------------------------------------------------------


def _fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    write(tmp_path / "bin", "git", f"#!/bin/sh\n{body}\n", 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.parametrize("verb", ["rev-parse", "ls-files", "fast-import", "write-tree", "update-ref"])
def test_a_git_that_hangs_does_not_hang_us_and_the_work_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "a", "b")
    write(repo, "new", "n")
    real = subprocess.run(["which", "git"], capture_output=True, check=True, text=True).stdout.strip()
    hang = "trap '' TERM; sleep 1000 & echo $! >> " + str(tmp_path / "pids") + "; wait"
    _fake_git(tmp_path, monkeypatch, f'case " $* " in *" {verb} "*) {hang};; *) exec {real} "$@";; esac')
    before = files_in(repo)
    snapshot = take(repo, "t_1", 1, reason="a test", limits=SnapshotLimits(git_timeout=1_000, timeout=1_000))
    assert snapshot.kind == "folder"
    assert "killed" in snapshot.notes[0]
    monkeypatch.undo()
    assert files_in(repo) == before
    assert git(repo, "status", "--porcelain") == b" M a\n?? new\n"
    recover(snapshot, into=tmp_path / "back")
    assert {b"a", b"new"} <= set(files_in(tmp_path / "back"))
    killed = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    until(lambda: not any(map(_alive, killed)))  # they die in their own time


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except OSError:
        return False


def test_without_git_on_the_machine_the_work_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make(tmp_path / "repo", a="a")
    there = files_in(repo)
    monkeypatch.setenv("PATH", str(tmp_path))
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert snapshot.kind == "folder"
    recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == there


@needs_root
def test_a_repository_that_may_not_be_written_is_copied_elsewhere(open_tmp: Path) -> None:
    repo = make(open_tmp / "repo", a="a")
    write(repo, "new", "n")
    os.chown(repo, NOBODY, NOBODY)  # so that .allswell can be made, and .git stays root's

    def work() -> None:
        snapshot = take(repo, "t_1", 1, reason="a test")
        assert snapshot.kind == "folder"
        assert [one.path for one in snapshot.left_out] == []

    as_nobody(open_tmp, work)
    (snapshot,) = list_snapshots(repo)
    recover(snapshot, into=open_tmp / "back")
    assert set(files_in(open_tmp / "back")) == {b"new"}


@needs_root
def test_a_repository_that_root_has_made_in_somebody_elses_folder_is_one(open_tmp: Path) -> None:
    """As where a checkout is made by root, in a folder that a container was given."""
    repo = make(open_tmp / "repo", a="a")
    write(repo, "new", "n")
    os.chown(repo, NOBODY, NOBODY)
    assert take(repo, "t_1", 1, reason="a test").kind == "git"


@needs_root
def test_root_leaves_nothing_of_its_own_in_somebody_elses_repository(open_tmp: Path) -> None:
    repo = make(open_tmp / "repo", a="a")
    write(repo, "new", "n")
    give_to_nobody(repo)
    before = picture(repo)
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert snapshot.kind == "git"
    assert picture(repo) == before
    owners = {os.lstat(os.path.join(place, name)).st_uid for place, _, names in os.walk(repo) for name in ("", *names)}
    assert owners == {NOBODY}
    (repo / "new").unlink()
    recover(snapshot, apply=True)
    assert (repo / "new").stat().st_uid == NOBODY

    def go_on_working() -> None:
        git(repo, "add", "-A")

    as_nobody(open_tmp, go_on_working)


def test_a_ref_that_is_locked_costs_no_work(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "new", "n")
    write(repo, ".git/refs/allswell/t_1/1.lock", "")
    before = git_files(repo)
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert (snapshot.kind, git_files(repo)) == ("folder", before)
    recover(snapshot, into=tmp_path / "back")
    assert set(files_in(tmp_path / "back")) == {b"new"}


def test_a_second_snapshot_keeps_the_first(tmp_path: Path) -> None:
    """An agent that tidies up when it is told to stop must not take its work with it."""
    repo = make(tmp_path / "repo", a="a")
    write(repo, "work", "hours of it")
    first = take(repo, "t_1", 1, reason="before the kill")
    (repo / "work").unlink()
    second = take(repo, "t_1", 1, reason="after the kill")
    assert second.id != first.id
    assert second.previous == first.id
    assert list_snapshots(repo) == [second]
    git(repo, "gc", "-q", "--prune=now")
    recover(first, into=tmp_path / "back")
    assert (tmp_path / "back" / "work").read_text() == "hours of it"


def test_what_a_snapshot_reads_in_this_moment_is_no_file_that_we_use_ourselves(tmp_path: Path) -> None:
    (tmp_path / "read").write_bytes(bytes(survey.WHOLE + 1))
    (tmp_path / "ours").write_bytes(b"")
    folder = os.open(tmp_path, os.O_RDONLY)
    read = survey.open_file(b"read", folder)
    assert isinstance(read, survey.FileContent)
    next(read.chunks)
    with (tmp_path / "ours").open("rb"):
        inodes = {inode for _, inode in survey.open_here()}
    assert (tmp_path / "ours").stat().st_ino in inodes
    assert (tmp_path / "read").stat().st_ino not in inodes
    assert sum(map(len, read.chunks)) > 0
    os.close(folder)


def test_two_at_once_lose_neither(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "new", "n")
    made = []
    threads = [threading.Thread(target=lambda: made.append(take(repo, "t_1", 1, reason="a test"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, snapshot in enumerate(made):
        recover(snapshot, into=tmp_path / f"back{number}")
        assert (tmp_path / f"back{number}" / "new").read_text() == "n"
    assert len(made) == 3


def test_a_stopped_writer_stays_stopped_and_a_snapshot_needs_nothing_of_it(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "new", "n")
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(repo / "new")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        assert take(repo, "t_1", 1, reason="a test").whole
        holder.kill()


def test_no_room_at_all_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plain"
    write(folder, "a", "a")
    write(folder, ".allswell", "a file where our folder should be")
    with pytest.raises(Unavailable, match="no snapshot could be kept"):
        take(folder, "t_1", 1, reason="a test")


@pytest.mark.parametrize("kind", ["git", "folder"])
def test_what_the_first_snapshot_has_read_the_second_does_not_read_again(tmp_path: Path, kind: str) -> None:
    place = make(tmp_path / "work", tracked="t") if kind == "git" else tmp_path / "work"
    for name in ("big", "small", "other"):
        write(place, name, name * 1_000)
        os.utime(place / name, (1, 1))
    until(lambda: time.time_ns() > (place / "other").stat().st_ctime_ns + 200_000_000)  # times can tell by then
    progress = Progress()
    first = take(place, "t_1", 1, reason="before the kill", progress=progress)
    assert (progress.done, progress.total) == (13_000, 13_000)
    progress.begin(0)
    again = take(place, "t_1", 1, reason="after the kill", progress=progress)
    assert (again.id, progress.total) == (first.id, 0)
    write(place, "small", "changed")
    third = take(place, "t_1", 1, reason="after the kill", progress=progress)
    assert progress.total == (7 if kind == "git" else 8_007)
    recover(third, into=tmp_path / "back")
    assert (tmp_path / "back" / "small").read_text() == "changed"
    assert (tmp_path / "back" / "big").read_text() == "big" * 1_000


def test_much_new_work_stays_one_pack_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_MUCH", 1_000)
    repo = make(tmp_path / "repo", a="a")
    for name in ("one", "two"):
        write(repo, name, os.urandom(5_000))
    there = files_in(repo)
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert b"packs: 1\n" in git(repo, "count-objects", "-v"), "git does not read it all again to write each by itself"
    git(repo, "gc", "-q", "--prune=now")
    recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == there


def test_a_git_that_could_not_store_it_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "new", "n")
    os.mkfifo(repo / "fifo")
    real = subprocess.run(["which", "git"], capture_output=True, check=True, text=True).stdout.strip()
    fails = f"echo asked >> {tmp_path / 'asked'}; exit 1"
    _fake_git(tmp_path, monkeypatch, f'case " $* " in *" fast-import "*) {fails};; *) exec {real} "$@";; esac')
    until(lambda: time.time_ns() > (repo / "new").stat().st_ctime_ns + 200_000_000)  # times can tell by then
    progress = Progress()
    first = take(repo, "t_1", 1, reason="before the kill", progress=progress)
    second = take(repo, "t_1", 1, reason="after the kill", progress=progress)
    assert (first.kind, second) == ("folder", first)
    assert (tmp_path / "asked").read_text() == "asked\n"
    write(repo, "new", "changed")
    third = take(repo, "t_1", 1, reason="after the kill", progress=progress)
    recover(third, into=tmp_path / "back")
    assert (tmp_path / "back" / "new").read_text() == "changed"

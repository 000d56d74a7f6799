"""Any tree, changed in any way: nothing is touched, everything comes back, and twice is once."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allswell.domain.receipts.snapshot import spell, unspell
from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import take
from tests.runtime.workspace.repository import files_in, git, make, picture, write

NAMES = st.sampled_from([b"a", b"b", b"A", b"x y", b"n\nl", b"\xff", b"\\", b'"', b"e.txt", b"\xc3\xa9"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
BYTES = st.one_of(st.binary(max_size=20), st.sampled_from([b"one\r\ntwo\n", b"\r\n", b"$Id$\n", b"x" * 5_000]))
STEPS = st.one_of(
    st.tuples(st.just("file"), PATHS, BYTES, st.sampled_from([0o644, 0o755, 0o600, 0o777])),
    st.tuples(st.just("link"), PATHS, st.sampled_from([b"a", b"..", b"nowhere/at/all"])),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("stage"), PATHS),
    st.tuples(st.just("commit")),
    st.tuples(st.just("repository"), PATHS),
    st.tuples(st.just("attributes"), st.sampled_from([b"* text=auto\n", b"*.txt text eol=crlf\n", b"* ident\n", b""])),
)


def _do(repo: Path, step: tuple) -> None:
    match step:
        case ("file", path, data, mode):
            write(repo, path, data, mode)
        case ("link", path, target):
            place = repo / Path(path.decode("utf-8", "surrogateescape"))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target.decode())
        case ("remove", path):
            place = repo / Path(path.decode("utf-8", "surrogateescape"))
            shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
        case ("stage", path):
            git(repo, "add", "-A", "--", b":(literal)" + path, good=(0, 1, 128))
        case ("commit",):
            git(repo, "add", "-A", good=(0, 1, 128))
            git(repo, "commit", "-q", "-m", "more", good=(0, 1, 128))
        case ("repository", path):
            make(repo / Path(path.decode("utf-8", "surrogateescape")), inside="i\n")
        case ("attributes", data):
            write(repo, ".gitattributes", data)
        case _:
            raise AssertionError(step)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=12))
def test_a_snapshot_of_any_tree(steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as name:
        repo = make(Path(name) / "repo", a="first\n")
        for step in steps:
            with contextlib.suppress(OSError):  # a file where a folder should be, and the like: another tree, no less
                _do(repo, step)
        before = picture(repo)
        snapshot = take(repo, "t_1", 1, reason="a test")
        assert snapshot.whole
        assert picture(repo) == before
        assert take(repo, "t_1", 1, reason="again") == snapshot
        recover(snapshot, into=Path(name) / "back")
        assert files_in(Path(name) / "back") == before["files"]


@given(path=st.binary(min_size=1))
def test_any_name_can_be_spelled_and_read_back(path: bytes) -> None:
    assert unspell(spell(path)) == path
    spell(path).encode("utf-8")

"""What passes through a pump, what a folder shows, what a process tree shows."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allswell.domain.protocol import Said
from allswell.runtime.evidence import Pump, WorkLook, look_at
from tests import patience
from tests.runtime.warden.stage import until

LINE = b'{"type":"assistant","message":{"content":[{"type":"text"}]},"session_id":"s"}'


@contextmanager
def pump(passed: bytearray, said: list[Said]) -> Iterator[tuple[int, Pump]]:
    source, into = os.pipe()
    made = Pump(source, passed.extend, said.append)
    thread = made.start()
    yield into, made
    os.close(into)
    thread.join(patience.SECONDS)
    assert made.over


def write(into: int, *pieces: bytes) -> None:
    for piece in pieces:
        os.write(into, piece)


def _until_printed(made: Pump, wanted: int) -> None:
    until(lambda: made.printed >= wanted)


@pytest.mark.parametrize(
    "pieces",
    [
        [LINE + b"\n"],
        [b"plain\n" + LINE + b"\n"],
        [b"plain", b" words\n", LINE[:20], LINE[20:], b"\n"],
        [b"no end", b"\n" + LINE + b"\nmore"],
        [LINE + b"\n" + LINE + b"\n"],
    ],
)
def test_lines_of_a_protocol_are_found_however_they_come(pieces: list[bytes]) -> None:
    passed, said = bytearray(), list[Said]()
    with pump(passed, said) as (into, made):
        total = 0
        for piece in pieces:
            write(into, piece)
            total += len(piece)
            _until_printed(made, total)
    assert [one.what for one in said] == ["text"]
    assert bytes(passed) == b"".join(pieces)


@pytest.mark.parametrize("piece", [b"words {" + LINE[1:] + b"\n", b"x" + LINE + b"\n", LINE])
def test_what_is_no_whole_line_is_none(piece: bytes) -> None:
    said: list[Said] = []
    with pump(bytearray(), said) as (into, _):
        write(into, piece)
    assert said == []


def test_a_line_without_an_end_costs_no_memory() -> None:
    said: list[Said] = []
    passed = bytearray()
    with pump(passed, said) as (into, made):
        write(into, b"{", *[b"x" * 60_000] * 40, b"\n" + LINE + b"\n")
        until(lambda: made.printed > 40 * 60_000)
        assert len(made._rest) < 2 << 20
    assert [one.what for one in said] == ["text"]


def test_news_is_asked_for_once_between_two_looks() -> None:
    with pump(bytearray(), []) as (into, made):
        for number, text in enumerate((b"alpha\n", b"beta\n", b"alpha\n"), start=1):
            write(into, text)
            _until_printed(made, 5 * number)
        assert made.new == 1
        made.asked()
        write(into, b"alpha\n")
        until(lambda: made.printed >= 23)
        assert made.new == 1
        write(into, b"gamma\n")
        until(lambda: made.new == 2)


def test_a_watcher_who_goes_away_closes_the_pipe() -> None:
    source, into = os.pipe()
    gone = threading.Event()

    def echo(piece: bytes) -> None:
        gone.set()
        raise BrokenPipeError(32, "nobody watches")

    made = Pump(source, echo, lambda _: None)
    thread = made.start()
    os.write(into, b"x")
    assert gone.wait(20)
    thread.join(patience.SECONDS)
    with pytest.raises(BrokenPipeError):
        os.write(into, b"x")
    os.close(into)


def test_changes_in_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("1")
    look = WorkLook(tmp_path)
    assert look.changed(look.look()) is None, "the first look has nothing to compare with"
    assert look.changed(look.look()) is None
    (tmp_path / "src" / "main.py").write_text("12")
    assert look.changed(look.look()) == "src/main.py"
    (tmp_path / "src" / "new.py").write_text("")
    assert look.changed(look.look()) == "src/new.py (new)"
    (tmp_path / "src" / "new.py").unlink()
    assert look.changed(look.look()) == "src/new.py (gone)"
    (tmp_path / ".allswell").mkdir()
    (tmp_path / ".allswell" / "journal").write_text("ours")
    assert look.changed(look.look()) is None


def test_a_look_at_a_folder_is_bounded(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"file {number}").touch()
    look = WorkLook(tmp_path, most=5)
    assert len(look.look()) == 5
    assert WorkLook(tmp_path / "nowhere").look() == {}


def test_a_look_at_processes_tells_who_works_and_who_writes() -> None:
    busy = "while os.times().user < 0.3: pass"
    script = f"import os, sys\nos.write(1, b'x' * 5000)\n{busy}\nos.write(1, b'y')\nsys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.read(5_001)
        seen = look_at(os.getpid())
        (mine,) = [process for (pid, _), process in seen.items() if pid == running.pid]
        assert mine.cpu >= 250
        assert mine.written >= 5_000
        assert look_at(running.pid).keys() == {key for key in seen if key[0] == running.pid}
        running.communicate()
    assert look_at(running.pid) == {}

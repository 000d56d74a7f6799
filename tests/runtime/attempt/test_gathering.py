"""What passes through a pump, what a folder shows, what a process tree shows."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.output import AgentLine
from allswell.runtime.attempt.output import LineFinder, OutputReader
from allswell.runtime.attempt.progress import FolderComparison, look_at
from tests import patience
from tests.runtime.process.stage import until

LINE = b'{"type":"assistant","message":{"content":[{"type":"text"}]},"session_id":"s"}'


@contextmanager
def pump(passed: bytearray, said: list[AgentLine]) -> Iterator[tuple[int, OutputReader]]:
    source, into = os.pipe()
    made = OutputReader(source, passed.extend, said.append)
    thread = made.start()
    yield into, made
    os.close(into)
    thread.join(patience.SECONDS)
    assert made.over


def write(into: int, *pieces: bytes) -> None:
    for piece in pieces:
        os.write(into, piece)


def _until_printed(made: OutputReader, wanted: int) -> None:
    until(lambda: made.printed >= wanted)


def found(*pieces: bytes) -> list[bytes | None]:
    finder = LineFinder()
    return [finder.first_new(piece, number * 1_000) for number, piece in enumerate(pieces)]


def test_a_line_counts_when_it_is_completed_however_it_comes() -> None:
    assert found(b"epoch 1", b" loss=2\nepo", b"ch 2 loss=1\n") == [None, b"epoch 1 loss=2", b"epoch 2 loss=1"]
    assert found(b"one\r\n", b"one\r", b"\n", b"two\r", b"\n") == [b"one\r", None, None, None, b"two\r"]


def test_what_is_painted_over_is_no_line() -> None:
    meter = [b"\r%d%% of it" % share for share in range(40)]
    assert found(*meter, b"\n") == [None] * 40 + [b"39% of it"]
    assert found(b"a\rb\rc", b"\rdone\n", b"x\rdone\n") == [None, b"c\rdone", None]


def test_an_answer_that_is_streamed_without_an_end_of_line_counts_as_it_grows() -> None:
    words = [f"word{number} ".encode() for number in range(400)]
    assert sum(line is not None for line in found(*words)) == sum(map(len, words)) // 512
    assert found(*[b"waiting... "] * 400)[100:] == [None] * 300
    assert found(*[b"."] * 2_000) == [None] * 2_000


def test_after_what_was_not_looked_at_a_line_begins_anew() -> None:
    finder = LineFinder()
    assert finder.first_new(b"half of a", 0) is None
    finder.skip(b" very long")
    assert finder.first_new(b" line\nwhole\n", 0) == b"whole"


def test_of_new_lines_one_is_told_between_two_looks_and_none_once_a_protocol_is_spoken() -> None:
    told = list[str]()
    source, into = os.pipe()
    made = OutputReader(source, None, lambda _: None, told.append)
    thread = made.start()
    write(into, b"first\nsecond\n")
    until(lambda: told == ["first"])
    write(into, b"third\n")
    _until_printed(made, 19)
    made.asked()
    write(into, b"third\nfourth\n")
    until(lambda: len(told) == 2)
    assert (made.lines, made.last_line) == (5, "fourth")
    made.asked()
    write(into, LINE + b"\nfifth\n")
    os.close(into)
    thread.join(patience.SECONDS)
    assert told in (["first", "third"], ["first", "fourth"])  # who asks may be quicker than what is printed


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
    passed, said = bytearray(), list[AgentLine]()
    with pump(passed, said) as (into, made):
        total = 0
        for piece in pieces:
            write(into, piece)
            total += len(piece)
            _until_printed(made, total)
    assert [one.what for one in said] == ["text"]
    assert bytes(passed) == b"".join(pieces)


def test_a_refusal_that_came_too_soon_to_be_told_is_told_whatever_comes_after_it_but_a_step() -> None:
    retry = b'{"type":"system","subtype":"api_retry","error_status":429,"attempt":%d,"session_id":"s"}\n'
    left = b'{"type":"rate_limit_event","rate_limit_info":{"utilization":0.5},"session_id":"s"}\n'
    for last, told in ((left, [1, 2]), (LINE + b"\n", [1])):
        said = list[AgentLine]()
        with pump(bytearray(), said) as (into, _):
            write(into, retry % 1 + retry % 2 + last)
        events = [event for line in said for event in line.events]
        assert [event.attempt for event in events if isinstance(event, ProviderRefusal)] == told


@pytest.mark.parametrize("piece", [b"words {" + LINE[1:] + b"\n", b"x" + LINE + b"\n", LINE])
def test_what_is_no_whole_line_is_none(piece: bytes) -> None:
    said: list[AgentLine] = []
    with pump(bytearray(), said) as (into, _):
        write(into, piece)
    assert said == []


def test_a_line_without_an_end_costs_no_memory() -> None:
    said: list[AgentLine] = []
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

    made = OutputReader(source, echo, lambda _: None)
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
    look = FolderComparison(tmp_path)
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
    look = FolderComparison(tmp_path, most=5)
    assert len(look.look()) == 5
    assert FolderComparison(tmp_path / "nowhere").look() == {}


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

"""Many streams in one thread."""

import os
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from allswell.runtime.attempt.output import OutputMultiplexer, OutputReader
from tests.runtime.process.stage import until


@pytest.fixture
def room() -> Iterator[OutputMultiplexer]:
    made = OutputMultiplexer()
    yield made
    made.close()
    until(lambda: "allswell outputs" not in [thread.name for thread in threading.enumerate()])


def test_each_is_heard_to_its_end_by_one_thread(room: OutputMultiplexer) -> None:
    heard: dict[int, bytearray] = {number: bytearray() for number in range(50)}
    ends, pumps = [], []
    before = threading.active_count()
    for number, passed in heard.items():
        source, into = os.pipe()
        pumps.append(OutputReader(source, passed.extend, lambda _: None))
        room.take(pumps[-1])
        ends.append(into)
        os.write(into, b"first %d\n" % number)
    assert threading.active_count() == before + 1
    until(lambda: all(heard.values()))
    for number, into in enumerate(ends):
        os.write(into, b"last %d" % number)
        os.close(into)
    room.hurry()
    until(lambda: all(pump.over for pump in pumps))
    assert heard == {number: b"first %d\nlast %d" % (number, number) for number in heard}


def test_who_prints_much_is_not_held_up(room: OutputMultiplexer) -> None:
    source, into = os.pipe()
    passed = 0

    def count(piece: bytes) -> None:
        nonlocal passed
        passed += len(piece)

    pump = OutputReader(source, count, lambda _: None)
    room.take(pump)
    writing = threading.Thread(target=partial(_flood, into))
    writing.start()
    writing.join(30)  # at ten rounds in a second, sixty-four kilobytes each, it would take a minute and a half
    assert not writing.is_alive()
    until(lambda: pump.over)
    assert passed == 64 << 20


def _flood(into: int) -> None:
    for _ in range(64):
        os.write(into, b"x" * (1 << 20))
    os.close(into)


def test_a_watcher_that_fails_leaves_the_others_alone(room: OutputMultiplexer, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def broken(piece: bytes) -> None:
        raise ValueError("a bug")

    heard = bytearray()
    ends, pumps = [], []
    for echo in (broken, heard.extend):
        source, into = os.pipe()
        pumps.append(OutputReader(source, echo, lambda _: None))
        room.take(pumps[-1])
        ends.append(into)
        os.write(into, b"one")
    until(lambda: heard == b"one")
    until(lambda: pumps[0].over)
    assert [str(one.exc_value) for one in told] == ["a bug"]
    with pytest.raises(BrokenPipeError):
        os.write(ends[0], b"two")
    for into in ends:
        os.close(into)

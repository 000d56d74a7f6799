"""What a command prints: capped, marked, passed on, and never in the way of its end."""

from __future__ import annotations

import errno
import os
import resource
import signal
import tempfile
import threading

import msgspec
import pytest

from allswell.runtime.process import WardenCommand, start
from tests.runtime.process.stage import Scene, peak_kb, setting, state, until

MEGABYTES = setting("ALLSWELL_OUTPUT_MB", 200)


def test_both_streams_are_kept_whole_below_the_cap(stage: Scene) -> None:
    result = stage.start("sh", "-c", "echo out; echo err >&2", cap=4).wait()
    assert result is not None
    assert (stage.stdout.read(), stage.stderr.read()) == (b"out\n", b"err\n")
    assert (result.stdout.bytes, result.stdout.left_out) == (4, 0)


@pytest.mark.parametrize("cap", [0, 1, 10, 1_000, 4_999])
def test_above_the_cap_the_beginning_and_the_end_are_kept_and_the_gap_is_marked(stage: Scene, cap: int) -> None:
    result = stage.start(
        "sh", "-c", "i=0; while [ $i -lt 1000 ]; do printf '%05d' $i; i=$((i+1)); done", cap=cap
    ).wait()
    assert result is not None
    assert (result.stdout.bytes, result.stdout.left_out) == (5_000, 5_000 - cap)
    whole = b"".join(b"%05d" % number for number in range(1_000))
    tail = cap // 2
    mark = f"\n[allswell: {5_000 - cap} bytes left out here]\n".encode()
    assert stage.stdout.read() == whole[: cap - tail] + mark + whole[len(whole) - tail :]


@pytest.mark.timeout(600)
def test_much_output_costs_no_memory(stage: Scene) -> None:
    """`ALLSWELL_OUTPUT_MB=1000` is the full figure."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = f"head -c {MEGABYTES}000000 /dev/zero; touch ready; read line < fifo"
    os.mkfifo(stage.folder / "fifo")
    handle = stage.shell(script)
    assert peak_kb(handle.record.reaper) < 16_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 8_000
    handle.stop(0)
    result = handle.wait()
    assert result is not None
    assert result.stdout.bytes == MEGABYTES * 1_000_000
    assert os.fstat(stage.stdout.fileno()).st_size < 66_000


def test_output_is_passed_on_at_once_and_unchanged(stage: Scene) -> None:
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_WRONLY)
    received = bytearray()

    def watch() -> None:
        while piece := os.read(reading, 1_000):  # slowly: the command has to wait for us
            received.extend(piece)

    handle = stage.start("sh", "-c", "seq 1 100000", cap=100, live=(writing, nothing))
    os.close(writing)
    watcher = threading.Thread(target=watch)
    watcher.start()
    result = handle.wait()
    watcher.join()
    assert result is not None
    assert bytes(received) == "".join(f"{number}\n" for number in range(1, 100_001)).encode()
    assert result.stdout.left_out == len(received) - 100
    os.close(reading)
    os.close(nothing)


def test_the_hosts_own_stdout_is_not_made_non_blocking(stage: Scene) -> None:
    reading, writing = os.pipe()
    stage.start("echo", "hello", live=(writing, writing)).wait()
    assert os.get_blocking(writing)
    assert os.read(reading, 100) == b"hello\n"
    os.close(reading)
    os.close(writing)


def test_when_nobody_watches_any_more_the_command_is_told_as_by_a_pipe(stage: Scene) -> None:
    reading, writing = os.pipe()
    handle = stage.start("yes", live=(writing, writing))
    os.close(writing)
    assert os.read(reading, 2) == b"y\n"
    os.close(reading)
    result = handle.wait()
    assert result is not None
    assert result.signal == signal.SIGPIPE


def test_a_watcher_who_does_not_read_does_not_hold_up_the_end(stage: Scene) -> None:
    reading, writing = os.pipe()
    handle = stage.start("yes", live=(writing, writing))
    until(lambda: handle.wait(0.0) is None and _full(reading))
    handle.stop(0)
    assert handle.wait() is not None
    os.close(reading)
    os.close(writing)


def _full(reading: int) -> bool:
    import fcntl
    import termios

    answer = fcntl.ioctl(reading, termios.FIONREAD, b"\0\0\0\0")
    return int.from_bytes(answer, "little") >= 65_536 - 4_096


def test_somebody_outside_who_holds_the_pipe_does_not_hold_up_the_end(stage: Scene) -> None:
    os.mkfifo(stage.folder / "fifo")
    handle = stage.shell("echo said; touch ready; read line < fifo")
    held = os.open(f"/proc/{handle.pid}/fd/1", os.O_WRONLY)
    handle.stop(0)
    result = handle.wait()
    assert result is not None
    assert stage.stdout.read() == b"said\n"
    until(lambda: state(handle.record.reaper) in "XZ")
    with pytest.raises(BrokenPipeError):
        os.write(held, b"too late")
    os.close(held)


def test_a_full_disk_is_reported_and_the_command_goes_on(stage: Scene) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    command = stage.command("sh", "-c", "seq 1 100000; exit 3")
    with start(WardenCommand(**{**vars(command), "stdout": full})) as handle:
        result = handle.wait()
    assert result is not None
    assert (result.exit_code, result.stdout.errno) == (3, errno.ENOSPC)
    os.close(full)


def test_input_is_empty_unless_it_is_given(stage: Scene) -> None:
    assert stage.start("cat").wait() is not None
    assert stage.stdout.read() == b""
    command = stage.command("cat")
    with tempfile.TemporaryFile() as given:
        given.write(b"given")
        given.seek(0)
        with start(WardenCommand(**{**vars(command), "stdin": given.fileno()})) as handle:
            assert handle.wait() is not None
    assert stage.stdout.read() == b"given"


def test_a_command_inherits_no_descriptors(stage: Scene) -> None:
    stage.start("sleep", "600")
    stage.start("sh", "-c", "ls /proc/self/fd").wait()
    assert stage.stdout.read().split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads


def test_results_can_be_written_down(stage: Scene) -> None:
    result = stage.start("true").wait()
    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result

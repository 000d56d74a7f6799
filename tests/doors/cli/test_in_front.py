"""`allswell run` is put in front of a command: what the command reads, what it inherits, the terminal that it has."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl

import pytest

from allswell.runtime.attempt.fed import Fed
from tests import patience
from tests.doors.cli.shell import ALLSWELL, Shell
from tests.doors.cli.upkeep import at_terminal

TWICE = "cat; test -e once || { touch once; exit 1; }"
KEYS = r"""
import os, signal, sys
def told(what): print(f"<{what}>", flush=True)
signal.signal(signal.SIGINT, lambda *_: told("interrupted"))
signal.signal(signal.SIGWINCH, lambda *_: told(f"{os.get_terminal_size().columns} columns now"))
told(f"{os.get_terminal_size().columns} columns, {[os.isatty(stream) for stream in range(3)]}")
while (line := sys.stdin.readline().strip()) != "quit": told(f"read {line}")
told(open("/dev/tty").isatty())
"""


class Sitting:
    """Somebody before a real terminal, in a session of its own."""

    def __init__(self, shell: Shell, *args: str, columns: int = 91) -> None:
        self.ours, self.theirs = os.openpty()
        self.resize(columns)
        self.before = termios.tcgetattr(self.theirs)
        self.seen = ""
        own = self.theirs
        self.process = subprocess.Popen(
            [*ALLSWELL, *args],
            cwd=shell.folder,
            env={**shell.env, "TERM": "xterm-256color"},
            stdin=own,
            stdout=own,
            stderr=own,
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread of ours runs here
        )

    def resize(self, columns: int) -> None:
        ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, text: str) -> str:
        """Look until a text is there, and take note of all that was."""
        end = time.monotonic() + patience.SECONDS
        os.set_blocking(self.ours, False)
        while text not in self.seen:
            with contextlib.suppress(BlockingIOError):
                self.seen += os.read(self.ours, 65_536).decode()
            assert time.monotonic() < end, self.seen
            time.sleep(0.005)
        return self.seen

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def sitting(shell: Shell) -> Iterator[Sitting]:
    one = Sitting(shell, "run", "-it", "--grace", "100ms", "--", sys.executable, "-c", KEYS)
    yield one
    one.close()


def piped(shell: Shell, given: bytes, *args: str, code: int = 0) -> str:
    done = subprocess.run(
        [*ALLSWELL, "run", *args], cwd=shell.folder, env=shell.env, input=given, capture_output=True, check=False
    )
    assert done.returncode == code, done
    return done.stdout.decode()


def test_what_is_piped_is_read_by_the_command_and_by_each_attempt(shell: Shell) -> None:
    assert piped(shell, b"one\ntwo\n", "--", "cat") == "one\ntwo\n"
    assert piped(shell, b"one\n", "--no-stdin", "--", "cat") == ""
    assert piped(shell, b"x" * 200_000, "--retries", "1", "--", "sh", "-c", TWICE) == "x" * 400_000
    (shell.folder / "once").unlink()
    with (shell.folder / "kept").open() as file:
        file.seek(3)
        done = shell("run", "--retries", "1", "--", "sh", "-c", TWICE, stdin=file)
    assert done.stdout == "as it was\n"[3:] * 2, "a file is handed on from where it stood"


def test_at_a_terminal_the_command_has_nothing_to_read_and_sees_none(shell: Shell) -> None:
    script = "cat; test -t 0 || test -t 1 || echo no terminal"
    said = at_terminal("run", "--", "sh", "-c", script, cwd=shell.folder, columns=80, typed="something\n", **shell.env)
    assert said.code == 0
    assert "no terminal" in said.out


def test_a_pipe_is_kept_for_another_attempt_up_to_a_bound() -> None:
    source, into = os.pipe()
    fed = Fed(source, again=True, most=10)
    os.write(into, b"0123456789")
    first = fed.begin()
    assert os.read(first, 10) == b"0123456789"
    fed.end()
    second = fed.begin()
    os.close(into)
    assert (os.read(second, 100), os.read(second, 100), fed.spent) == (b"0123456789", b"", False)
    fed.close()
    longer_source, into = os.pipe()
    longer = Fed(longer_source, again=True, most=9)
    os.write(into, b"0123456789")
    assert os.read(longer.begin(), 100) == b"0123456789", "what is longer reaches the first attempt whole"
    longer.close()
    assert longer.spent
    for opened in (source, longer_source, into):
        os.close(opened)


def test_interactive_gives_a_terminal_that_is_put_back(sitting: Sitting, shell: Shell) -> None:
    sitting.sees("<91 columns, [True, True, True]>")
    sitting.types("hello\r")
    sitting.sees("<read hello>")
    sitting.types("\x03")
    sitting.sees("<interrupted>")
    sitting.resize(57)
    sitting.sees("<57 columns now>")
    assert not sitting.is_as_before(), "raw"
    sitting.types("quit\r")
    sitting.sees("<True>")
    assert sitting.process.wait(patience.SECONDS) == 0
    assert sitting.is_as_before()
    assert shell.kinds() == ["task_submitted", "task_claimed", "task_completed"], "and it was watched"


def test_a_terminal_is_put_back_when_we_are_killed(sitting: Sitting) -> None:
    sitting.sees("<91 columns")
    sitting.types("hello\r")
    sitting.sees("<read hello>")
    os.kill(sitting.process.pid, signal.SIGKILL)
    end = time.monotonic() + patience.SECONDS
    while not sitting.is_as_before():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_stumbles_read_well_at_a_terminal(shell: Shell) -> None:
    for typed, code, said in (
        (("run", "echo", "hi"), 2, "put -- before the command: `allswell run -- echo hi`"),
        (("run", "-i", "--", "python3"), 2, "a terminal: allswell run -it -- python3"),
        (("run", "--timeout", "900000", "--", "true"), 2, "seconds or milliseconds? Write 900000s or 900000ms"),
        (("run", "--timeout", "1h1h", "--", "true"), 2, "names a unit twice"),
        (
            ("run", "--timeout", "5", "--", "sh", "-c", "sleep 0.1; exit 7"),
            7,
            "exit code 7; no retries asked for; it changed",
        ),
        (("run", "--", "sh", "-c", "exit 3"), 3, "exit code 3; no retries asked for; it changed no file"),
        (("statuss",), 2, "did you mean 'status'"),
    ):
        ran = at_terminal(*typed, cwd=shell.folder, columns=80, **shell.env)
        assert ran.code == code, ran
        assert said in " ".join(ran.out.split()), ran.out
        assert max(len(line) for line in ran.out.splitlines()) <= 80
        assert "questions" not in ran.out, "nobody was asked anything"

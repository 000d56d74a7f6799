"""`allswell run` is put in front of a command: what the command reads, what it inherits, the terminal that it has."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from allswell.runtime.attempt.launch import ReplayableStdin
from tests import patience
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.interfaces.cli.sitting import Sitting
from tests.interfaces.cli.upkeep import at_terminal
from tests.runtime.process.stage import until

COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
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


@pytest.fixture(params=[("-it",), ()], ids=["asked for", "by itself"])
def sitting(shell: Shell, request: pytest.FixtureRequest) -> Iterator[Sitting]:
    one = Sitting(shell, "run", *request.param, "--grace", "100ms", "--", sys.executable, "-c", KEYS)
    yield one
    one.close()


@pytest.fixture
def sit(shell: Shell) -> Iterator[Callable[..., Sitting]]:
    """Sits down before a terminal and types a command."""
    sitting: list[Sitting] = []

    def begin(*args: str) -> Sitting:
        sitting.append(Sitting(shell, "run", *args))
        os.set_blocking(sitting[-1].ours, False)
        return sitting[-1]

    yield begin
    for one in sitting:
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


def test_at_a_terminal_nothing_of_ours_is_painted(sit: Callable[..., Sitting]) -> None:
    quiet = sit("--", "sh", "-c", "ls -d --color=auto /; sleep 1.2; printf end")
    assert COLOUR.sub("", quiet.ends(0)) == "/\nend", "no line on how it stands, and no line end that is not its own"
    assert COLOUR.search(quiet.seen)


def test_what_a_bad_end_is_told_by_stands_below_the_output(sit: Callable[..., Sitting]) -> None:
    failed = sit("--", "sh", "-c", "printf '\\033[31mno disk\\033[0m today'; touch made; exit 7").ends(7)
    first, second, *more = failed.splitlines()
    assert COLOUR.sub("", first) == "no disk today"
    assert second.startswith("allswell: sh -c ")
    assert "  it said: no disk today" in more


def test_without_a_terminal_of_its_own(sit: Callable[..., Sitting], shell: Shell) -> None:
    script = "cat; test -t 0 || test -t 1 || test -t 2 || echo no terminal"
    for flags in (("--no-tty",), ("--no-stdin",)):
        assert "no terminal" in sit(*flags, "--", "sh", "-c", script).ends(0)
    redirected = sit("--", "sh", "-c", f"{sys.executable} -m allswell run -- sh -c '{script}' > written </dev/null")
    redirected.ends(0)
    assert (shell.folder / "written").read_text() == "no terminal\n"


def test_an_agent_that_works_for_one_prompt_has_no_terminal(sit: Callable[..., Sitting], shell: Shell) -> None:
    agent = shell.folder / "claude"
    agent.write_text("#!/bin/sh\nif test -t 0; then echo $# and a terminal; else cat; echo $# and none; fi\n")
    agent.chmod(0o755)
    assert "2 and none" in sit("--", str(agent), "-p", "hello").ends(0)
    assert "0 and a terminal" in sit("--", str(agent)).ends(0)
    assert "2 and a terminal" in sit("-it", "--", str(agent), "-p", "hello").ends(0)


def test_ctrl_c_ends_the_command_and_no_other_try_is_made(sit: Callable[..., Sitting], shell: Shell) -> None:
    script = "echo $$ >> tries; echo ready; exec cat"
    interrupted = sit("--retries", "2", "--", "sh", "-c", script)
    interrupted.sees("ready")
    interrupted.types("\x03")
    said = " ".join(interrupted.ends(130).split())
    assert "Ctrl-C was typed, and it ended with signal SIGINT (2)" in said
    assert "go on: allswell run --resume" in said
    assert len((shell.folder / "tries").read_text().split()) == 1
    assert "task_returned" in shell.kinds()


def test_each_attempt_has_the_terminal(sit: Callable[..., Sitting]) -> None:
    script = 'printf "$ALLSWELL_ATTEMPT? "; read x; echo "<$x>"; test -e once || { touch once; exit 1; }'
    tried = sit("--retries", "1", "--", "sh", "-c", script)
    tried.sees("1? ")
    tried.types("first\r")
    tried.sees("2? ")
    tried.types("second\r")
    assert "<second>" in tried.ends(0)


def test_at_a_limit_the_screen_is_given_back(sit: Callable[..., Sitting]) -> None:
    script = "printf '\\033[?1049h\\033[?25lfull screen\\033[?1000;1006h'; exec sleep 600"
    said = sit("--timeout", "1500ms", "--grace", "0s", "--", "sh", "-c", script).ends(124)
    given_back, _, told = said.partition("full screen")[2].rpartition("\x1b")
    for undone in ("\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l", "\x1b[?1006l"):
        assert undone in given_back
    assert "its limit of 1.5s was reached" in " ".join(told.split())


def test_a_shell_with_jobs_and_a_password(sit: Callable[..., Sitting]) -> None:
    within = sit("--", "bash", "--norc", "--noprofile")
    within.types("PS1='ready$ '\r")
    within.sees("hready$ ")
    within.types("cat\r")
    within.sees("cat\r\n")
    within.types("one\r")
    within.sees("one\r\none\r\n")
    within.types("\x1a")
    within.sees("Stopped")
    within.types("fg\r")
    within.sees("ready$ fg\r\n\x1b[?2004l\rcat\r\n")
    within.types("two\r")
    within.sees("two\r\ntwo\r\n")
    within.types("\x04")
    within.types("read -s -p 'pass''word: ' word; echo \"<${#word}>\"\r")
    within.sees("password: ")
    within.types("secret\r")
    within.sees("<6>")
    within.types("exit 9\r")
    assert "secret" not in within.ends(9)


def test_a_pipe_is_kept_for_another_attempt_up_to_a_bound() -> None:
    source, into = os.pipe()
    fed = ReplayableStdin(source, again=True, most=10)
    os.write(into, b"0123456789")
    first = fed.begin_reading()
    assert os.read(first, 10) == b"0123456789"
    fed.end()
    second = fed.begin_reading()
    os.close(into)
    assert (os.read(second, 100), os.read(second, 100), fed.spent) == (b"0123456789", b"", False)
    fed.close()
    longer_source, into = os.pipe()
    longer = ReplayableStdin(longer_source, again=True, most=9)
    os.write(into, b"0123456789")
    assert os.read(longer.begin_reading(), 100) == b"0123456789", "what is longer reaches the first attempt whole"
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


@pytest.mark.realtime
def test_silence_is_told_at_a_terminal_between_the_lines_of_the_command(
    shell: Shell, sit: Callable[..., Sitting]
) -> None:
    (shell.folder / "allswell.toml").write_text('run_silence = "500ms"')
    sitting = sit("--", "sh", "-c", "printf half; read line; echo $line")
    seen = sitting.sees("stop it: Ctrl-C, or allswell cancel t_")
    assert "half\r\nallswell: no sign of progress for " in seen
    assert "\r\n  look: allswell logs t_" in seen
    sitting.types("over\n")
    assert "over\nover\n" in sitting.ends(0)


@pytest.mark.realtime
def test_a_command_that_reads_key_by_key_is_not_told_of_silence_but_the_journal_is(
    shell: Shell, sit: Callable[..., Sitting]
) -> None:
    (shell.folder / "allswell.toml").write_text('run_silence = "500ms"')
    reader = "import os, tty; tty.setcbreak(0); print('ready', flush=True); os.read(0, 1)"
    sitting = sit("--", sys.executable, "-c", reader)
    sitting.sees("ready")
    until(lambda: "run_silent" in shell.kinds())
    sitting.types("x")
    assert "no sign of progress" not in sitting.ends(0)

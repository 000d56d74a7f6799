"""`allswell watch`: the board, in one frame, as lines, and live on a terminal that is resized."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interfaces.cli.scene import has_all, told, typed

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store with a story in it, which nobody changes."""
    return told(tmp_path_factory.mktemp("story") / "watch.db")


WATCH = [sys.executable, "-m", "allswell", "watch"]
_WITHOUT = "import sys; sys.modules['textual'] = None; from allswell.interfaces.cli import main; main()"
BARE_WATCH = [sys.executable, "-c", _WITHOUT, "watch"]
"""As it is where the extra was not installed."""


@pytest.mark.parametrize("columns", [80, 200])
def test_one_frame_fits_and_shows_what_needs_you_first(
    story: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, said, _ = typed(capsys, "watch", "--once", "--store", story)
    assert code == 0
    assert max(map(len, said.splitlines())) <= columns
    has_all(said, ["2 things are broken, 3 things need you.", "? ivy asked you", "compile held hal"])
    names = [line.split("  ")[0].strip() for line in said.splitlines() if "waiting" in line or "held" in line]
    assert names[1] in ("part 0", "summarise 400 is…", "summarise 400 issues"), "questions stand above all else"
    assert "compile" in names[3], "then what is overdue"


def test_one_frame_as_json(story: str, capsys: Capture) -> None:
    code, said, _ = typed(capsys, "watch", "--once", "--json", "--store", story)
    data = json.loads(said)
    assert code == 0
    assert [line["who"] for line in data["tasks"][:3]] == ["you", "you", "hal"]
    assert data["status"]["well"] is False


def _copied(story: str, folder: Path) -> str:
    """A store of one's own: an open watch sweeps."""
    target = folder / "watch.db"
    shutil.copy(story.removeprefix("sqlite:///"), target)
    return f"sqlite:///{target}"


@pytest.mark.realtime
def test_without_a_terminal_there_are_lines(story: str, tmp_path: Path) -> None:
    store = _copied(story, tmp_path)
    watching = subprocess.Popen([*WATCH, "--store", store], stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout is not None
        said = "".join(watching.stdout.readline() for _ in range(12))
    finally:
        watching.terminate()
        watching.wait(10)
        if watching.stdout is not None:
            watching.stdout.close()
    has_all(said, ["13 ready", "“compile” is ready"])
    assert "\x1b" not in said


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, command: list[str], columns: int, rows: int) -> None:
        self._main, child = pty.openpty()
        self.resize(columns, rows)
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env={**env, "TERM": "xterm"}, start_new_session=True
        )
        os.close(child)
        self.seen = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, wanted: str, seconds: float = 20) -> str:
        until = time.monotonic() + seconds
        while wanted not in self.seen:
            assert time.monotonic() < until, f"{wanted!r} never came:\n{self.seen[-2000:]}"
            if select.select([self._main], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._main, 65_536).decode(errors="replace")
                except OSError:
                    break
        found, self.seen = self.seen, ""
        return found

    def press(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def go_away(self) -> None:
        """As when a connection breaks off; nobody tells the command."""
        if self._main >= 0:
            os.close(self._main)
            self._main = -1

    def end(self) -> int:
        try:
            return self.process.wait(20)
        finally:
            self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.go_away()


Opened = Callable[[list[str], int, int], Terminal]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Open a terminal with a command in it; none outlives its test."""
    terminals: list[Terminal] = []

    def open_one(command: list[str], columns: int, rows: int) -> Terminal:
        terminals.append(Terminal(command, columns, rows))
        return terminals[-1]

    yield open_one
    for terminal in terminals:
        terminal.close()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_without_the_extra_one_picture_is_printed_and_how_to_get_more(
    story: str, tmp_path: Path, opened: Opened
) -> None:
    terminal = opened([*BARE_WATCH, "--store", _copied(story, tmp_path)], 80, 24)
    said = plain(terminal.read_until("uv tool install '.[watch]'"))
    assert "things need you" in said
    assert max(len(line.rstrip()) for line in said.replace("\r", "").split("\n")) <= 80
    assert terminal.end() == 0


@pytest.mark.realtime
def test_with_the_extra_a_task_is_called_off_by_keys_and_the_terminal_is_given_back(
    story: str, tmp_path: Path, capsys: Capture, opened: Opened
) -> None:
    store = _copied(story, tmp_path)
    terminal = opened([*WATCH, "--store", store], 80, 24)
    terminal.read_until("things need you")
    terminal.press("4/part 7\r")  # without a look at the screen, as somebody types who knows the keys
    terminal.read_until("has been ready")
    terminal.press("c")
    terminal.read_until("Leave it as it is")  # the choices are there
    terminal.press("\x1b[B\rnot needed\r")
    terminal.read_until("is cancelled")
    terminal.press("q")
    terminal.read_until("\x1b[?1049l")  # the screen that was there before
    assert terminal.end() == 0
    code, said, _ = typed(capsys, "why", "part 7", "--store", store)
    assert code == 0
    has_all(said, ["was cancelled", "not needed"])


@pytest.mark.realtime
def test_it_ends_with_its_terminal_even_if_nobody_tells_it(story: str, tmp_path: Path, opened: Opened) -> None:
    terminal = opened([*WATCH, "--store", _copied(story, tmp_path)], 80, 24)
    terminal.read_until("things need you")
    terminal.go_away()
    assert terminal.end() != 0

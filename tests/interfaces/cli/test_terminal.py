"""At a terminal: everything fits, colour is there unless it is not wanted, and a reader may leave early."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.interfaces.cli import rendering
from allswell.interfaces.cli.rendering import cut, width_of, wrapped
from allswell.interfaces.cli.terminal import ScreenModes
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import at_terminal, environment

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def full(cli: Console) -> Path:
    """A store with long names, long notes and something of each kind."""
    cli.submit(
        "a name that goes on and on, as names given by agents will, and then some more of it", "--role", "reader"
    )
    cli.claim("an agent with quite a long name")
    cli.ok("checkin", "a note that is far longer than what any sensible terminal could ever show " * 3, "-p", "0.5")
    cli.submit("名前が日本語のタスクで、とても長いので切らなければならないもの" * 2, "--needs", cli.submit("short"))
    cli.claim("bob")
    cli.ok("ask", "A question with " + "many words " * 30)
    cli.patch.delenv("ALLSWELL_TASK")
    return cli.folder


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_and_lines_fit(full: Path, columns: int) -> None:
    for command in (("tasks",), ("events",), ("tasks", "--all")):
        said = at_terminal(*command, cwd=full, columns=columns)
        assert said.code == 0
        for line in COLOUR.sub("", said.out).splitlines():
            assert width_of(line) <= columns, (command, line)
        assert "…" in said.out


def test_where_nobody_looks_nothing_is_cut(full: Path) -> None:
    command = [sys.executable, "-m", "allswell", "tasks"]
    said = subprocess.run(command, cwd=full, env=environment(), capture_output=True, text=True, check=True).stdout
    assert "and then some more of it" in said
    assert "…" not in said
    assert "\x1b" not in said


def test_colour_only_where_it_is_wanted(full: Path) -> None:
    assert COLOUR.search(at_terminal("tasks", cwd=full, columns=80).out)
    assert not COLOUR.search(at_terminal("tasks", cwd=full, columns=80, NO_COLOR="1").out)
    assert not COLOUR.search(at_terminal("tasks", cwd=full, columns=80, TERM="dumb").out)


def test_a_reader_that_leaves_early(cli: Console) -> None:
    cli.ok("submit", "-", stdin="".join(f'{{"name": "number {number}"}}\n' for number in range(3_000)))
    for command in ("tasks --limit 3000", "events --limit 3000 --json", "tasks --limit 3000 --json"):
        line = f"set -o pipefail; {sys.executable} -m allswell {command} | head -1"
        said = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True, check=False)
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout


def test_text_that_bites_is_shown_as_it_is() -> None:
    assert rendering.plain("a\x1b[2Jb\rc\u202ed\ud800e\tf") == r"a\x1b[2Jb\x0dc\u202ed\ud800e f"
    assert rendering.plain("naïve 💥 日本") == "naïve 💥 日本"
    assert rendering.block("one\ntwo\x07", "  ") == "  one\n  two\\x07"


def test_cutting_counts_columns_not_characters() -> None:
    assert cut("日本語日本語", 7) == "日本語…"
    assert cut("日本語日本語", 12) == "日本語日本語"
    assert cut("abcdef" * 100, 5) == "abcd…"
    assert width_of(cut("é́" * 50, 10)) <= 10


@given(st.text(alphabet="ab  日本é́💥-", max_size=200), st.integers(20, 60))
def test_wrapping_loses_nothing_and_fits(text: str, room: int) -> None:
    painted = text.replace("-", "\x1b[1m-\x1b[0m")
    for given_ in (text, painted):
        lines = wrapped(given_, room)
        assert "".join("".join(lines).split()) == "".join(given_.split())
        assert all(width_of(COLOUR.sub("", line)) <= room for line in lines)


def test_wrapping_breaks_between_words_where_it_can() -> None:
    assert wrapped("one two three four five six", 20) == ["one two three four", "five six"]
    assert wrapped("  indented, and then it goes on", 20) == ["  indented, and then", "it goes on"]
    assert wrapped("see https://example.org/a/long/path/to/it now", 20) == [
        "see https://example.",
        "org/a/long/path/to/i",
        "t now",
    ]
    assert wrapped("", 20) == [""]


@pytest.mark.parametrize(
    "away, words",
    [
        (0, "now"),
        (999, "now"),
        (1_000, "in 1s"),
        (179_999, "in 2m 59s"),
        (-7_200_000, "2h ago"),
        (-90_000_000, "1d 1h ago"),
    ],
)
def test_moments_are_short(away: int, words: str) -> None:
    assert rendering.when(1_000_000_000 + away, 1_000_000_000) == words


def test_what_a_command_has_switched_on_the_screen_is_switched_back() -> None:
    screen = ScreenModes()
    for piece in (b"\x1b[?1049h\x1b[?2", b"5l\x1b[?1000;1006h\x1b[?12h", b"text\x1b[>1u"):
        screen.note(piece)
    assert screen.undoing() == b"\x1b[<u\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[?1049l\x1b[0m"
    assert screen.doing() == b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h"
    assert not screen.at_start
    screen.note(b"\x1b[<u\x1b[?1006;1000l\x1b[?25h\x1b[?1049l\r\n")
    assert (screen.undoing(), screen.at_start) == (b"", True)

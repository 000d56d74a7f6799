"""The tutorial is true: its commands run, end as it says, and print what it shows.

A block marked `sh` is what the reader types; a `text` block below it is what they see, shortened: lines may be left
out, and `…` stands for anything. Ids and lengths of time differ from day to day and are not compared. Nobody waits: a
`sleep` moves the clock.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from allswell.interfaces.cli import app
from allswell.timing.clock import SystemClock
from tests.interfaces.cli.console import Console

TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
EXIT = re.compile(r"# exit code (\d+)")
LENGTH = re.compile(r"(\b\d+(\.\d+)?(ms|s|m|h|d)\b ?)+")
TICK_MS = 300


class Block(NamedTuple):
    """What is typed, and what is seen."""

    typed: list[str]
    seen: list[str]


def blocks() -> Iterator[Block]:
    for typed, seen in BLOCK.findall(TUTORIAL):
        yield Block(typed.splitlines(), seen.splitlines())


def alike(line: str) -> str:
    """A line without what differs from day to day."""
    line = re.sub(r"\b([tqr])_[0-9a-z]{16}", r"\1_ID", line)
    line = LENGTH.sub("0s ", line)
    return " ".join(re.sub("█+", "█", line).split())


def shown_in(seen: str, printed: str) -> bool:
    """Whether a line of the tutorial is a line that was printed; `…` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, alike(seen).split("…"))), alike(printed)) is not None


class Reader:
    """Somebody who types what the tutorial says, in a folder of their own and in no time."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.console = Console(folder, patch)
        self.patch = patch
        self.passed = 0
        wall, monotonic = SystemClock().wall(), SystemClock().monotonic()
        patch.setattr(SystemClock, "wall", lambda _: wall + self.passed)
        for clock in ("monotonic", "boottime"):
            patch.setattr(SystemClock, clock, lambda _: monotonic + self.passed)

    def type(self, line: str) -> str:
        """Type a line; what it printed, if it ended as the tutorial says."""
        program, *words = shlex.split(line, comments=True)
        if program == "sleep":
            self.passed += int(words[0]) * 1_000
        elif program == "export":
            for word in words:
                self.patch.setenv(*word.split("=", 1))
        else:
            assert program == "allswell", line
            self.passed += TICK_MS
            said = self.console(*words)
            told = EXIT.search(line)
            assert said.code == int(told[1] if told else 0), (line, said)
            assert "Traceback" not in said.err, said.err
            assert "bug of Allswell" not in said.err, said.err
            return said.out + said.err
        return ""


def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    for block in blocks():
        printed = "".join(map(reader.type, block.typed))
        lines = iter(printed.splitlines())
        for seen in filter(str.strip, block.seen):
            if seen.strip() != "…":
                assert any(shown_in(seen, line) for line in lines), f"not printed, or not there: {seen}\n\n{printed}"


def test_the_tutorial_meets_what_it_promises() -> None:
    typed = "\n".join(line for block in blocks() for line in block.typed)
    told = ("submit", "tasks", "claim", "checkin", "done", "why", "ask", "questions", "answer", "doctor")
    assert [name for name in told if f"allswell {name}" not in typed] == []
    assert "its lease is over" in TUTORIAL


def test_every_command_is_met_in_the_tutorial_or_the_recipes() -> None:
    """A command that no page tells a story about is one that nobody will find."""
    recipes = (Path(__file__).parents[2] / "docs" / "how-to.md").read_text(encoding="utf-8")
    assert [name for name in app.commands().named if f"allswell {name}" not in TUTORIAL + recipes] == []

"""Whatever is typed: no traceback, a known exit code; and both readers of a command line understand the same."""

import inspect
import random
import string
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from allswell.doors.cli import app, pages, swift
from allswell.doors.cli.frame import Exit
from allswell.doors.cli.options import Commands
from tests.doors.cli.console import Console

EVERY = app.commands()
# `demo`, `drill`, `run` and `watch` take their time; their arguments are read like all others (below).
SHORT = sorted(EVERY.named.keys() - {"demo", "drill", "run", "watch"})
SPICE = (
    "", "-", "--", "-1", "0", "1", "7.5", "nan", "inf", "1e999", "999999999999999999999", "0x10", "१",
    "a", "b", "t_", "t_x", "q_x.1", "r_x", "held", "task_failed", "yes=Go", "yes=", "=x", "skip", "reply",
    "10m", "1h 30m", "-5s", "soon", "2026-01-31T08:00", "2026-99-99T00:00", "null", "{}", "[]", '{"a": 1', '"x"',
    "@", "@.", "@x", "@/dev/null", "\x00", "\x1b[31m", "\udc80", "\ud800", "💥", "a" * 300, "[red]", "%s",
    "'; DROP TABLE task; --", "\n", "\u202e",
    "--json", "--help", "--store", "--bogus", "-x", "-nh", "--limit=5", "--limit=", "memory:", "gopher://x",
    "sqlite:", "sqlite:///nowhere.db",
)  # fmt: skip


def options(name: str) -> list[str]:
    return [option for one in swift.parameters(EVERY.named[name].function) for option in one.declared.names]


def typed(chance: random.Random, name: str) -> list[str]:
    """A command with arguments that may mean something."""
    words = []
    for _ in range(chance.randrange(6)):
        kind = chance.random()
        if kind < 0.4:
            words.append(chance.choice(options(name)))
        elif kind < 0.9:
            words.append(chance.choice(SPICE))
        else:
            words.append("".join(chance.choices(string.printable, k=chance.randrange(8))))
    return words


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_typed_is_answered(cli: Console, seed: int) -> None:
    chance = random.Random(seed)
    known = {int(code) for code in Exit}
    cli.ok("submit", "a", "--service", "s")
    cli.ok("submit", "b", "--needs", "a")
    cli.claim()
    cli.ok("ask", "hm?", "--hold")
    for _ in range(120):
        name = chance.choice(SHORT)
        words = [name, *typed(chance, name)]
        if "--follow" in words or "-f" in words or any(word.startswith(("-w", "--wait")) for word in words):
            continue  # these wait, as they should
        said = cli(*words, stdin=chance.choice([b"", b"{}", b'{"name": "n"}\n', b"\xff\x00", b'{"name": 1']))
        told = f"seed {seed}: {words!r}: {said}"
        assert said.code in known, told
        assert "Traceback" not in said.err, told
        assert "bug of Allswell's" not in said.err, told
        assert said.code == 0 or said.err or said.out, told
        if "--json" in words and said.code == 2 and said.out:
            assert isinstance(msgspec.json.decode(said.out.splitlines()[-1]), dict), told


@pytest.mark.parametrize("name", sorted(EVERY.named))
def test_both_readers_understand_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = EVERY.named[name].function
    heard: list[dict[str, Any]] = []

    only = Commands()
    only.command(name, rich_help_panel="Look")(_recording(function, heard))
    typer = get_command(pages.make(only, app.bare))
    chance = random.Random(name)
    agreed = 0
    for _ in range(250):
        words = typed(chance, name)
        swiftly = swift.read(function, words)
        if swiftly is None:
            continue
        heard.clear()
        before, rest = pages.behind(only, [name, *words])
        reader = get_command(pages.make(only, app.bare, rest)) if rest else typer
        code = reader(list(before), prog_name="allswell", standalone_mode=False)
        assert code in (0, None), words
        assert [msgspec.to_builtins(one) for one in heard] == [swiftly], words
        agreed += 1
    assert agreed > 5


def _recording(function: Callable[..., None], heard: list[dict[str, Any]]) -> Callable[..., None]:
    def called(**given: object) -> None:
        heard.append(given)

    called.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return called


@pytest.mark.parametrize(
    "words", [["--limit", "x"], ["--limit", "0"], ["--bogus"], ["--help"], ["more"], ["--state"], ["-nx"], ["--", "x"]]
)
def test_what_is_not_plainly_right_is_left_to_typer(words: list[str]) -> None:
    assert swift.read(EVERY.named["tasks"].function, words) is None


def test_a_line_that_is_right_is_read_swiftly() -> None:
    words = ["--state", "held", "-s=x", "--limit=5", "--json"]
    assert swift.read(EVERY.named["tasks"].function, words) is None  # -s=x is Typer's to explain
    read = swift.read(EVERY.named["tasks"].function, ["--state", "held", "-s", "done", "--limit=5", "--json"])
    assert read is not None
    assert (read["state"], read["limit"], read["json"], read["all_"]) == (["held", "done"], 5, True, False)


def test_typer_stays_out_of_the_way() -> None:
    """The fuzz above proves nothing if Typer's own traceback hook were installed by reading a line."""
    assert sys.excepthook is sys.__excepthook__

"""Whatever is typed: no traceback, and a known exit code."""

import random
import string

import msgspec
import pytest

from allswell.interfaces.cli import app
from allswell.interfaces.cli.context import Exit
from allswell.interfaces.cli.options import parameters
from tests.interfaces.cli.console import Console

EVERY = app.commands()
# `demo`, `drill`, `run`, `serve` and `watch` take their time; their lines are read like all others (test_reading.py).
# `mcp` speaks with a program over the real standard input, as in tests/interfaces/mcp.
SHORT = sorted(EVERY.named.keys() - {"demo", "drill", "mcp", "run", "serve", "watch"})
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
    return [option for one in parameters(EVERY.named[name].function) for option in one.declared.names]


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
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        cli.patch.setenv(variable, str(cli.folder))  # `completion --install` writes there
    cli.ok("submit", "a", "--service", "s")
    cli.ok("submit", "b", "--needs", "a")
    cli.claim()
    cli.ok("ask", "hm?", "--hold")
    for _ in range(120):
        name = chance.choice(SHORT)
        words = [name, *typed(chance, name)]
        if "--follow" in words or "-f" in words or any(word.startswith(("-w", "--wait")) for word in words):
            continue  # these wait, as they should
        if name == "request" and "--no-wait" not in words:
            continue  # so does this
        said = cli(*words, stdin=chance.choice([b"", b"{}", b'{"name": "n"}\n', b"\xff\x00", b'{"name": 1']))
        told = f"seed {seed}: {words!r}: {said}"
        assert said.code in known, told
        assert "Traceback" not in said.err, told
        assert "bug of Allswell's" not in said.err, told
        assert said.code == 0 or said.err or said.out, told
        if "--json" in words and said.code == 2 and said.out:
            assert isinstance(msgspec.json.decode(said.out.splitlines()[-1]), dict), told

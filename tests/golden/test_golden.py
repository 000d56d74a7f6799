"""What the world outside relies on is as it was, and every planted bug still has its place.

A change that is meant is written down by `python -m tests.golden`, and seen in review.
"""

from __future__ import annotations

import difflib
import pkgutil
import re
from pathlib import Path

import pytest

from allswell.flows.run.function import find_function
from allswell.flows.spec import Function
from tests.golden import planted
from tests.golden.surface import DECLARED, HERE, MADE, postgres_tables

ROOT = Path(__file__).parents[2]
_DOTTED = re.compile(r"""["'](allswell(?:\.\w+)+)["']""")
NOT_MODULES = {
    *("allswell.db", "allswell.db.next", "allswell.db.turn", "allswell.fish", "allswell.toml"),  # files
    *("allswell.chat", "allswell.http", "allswell.mcp", "allswell.page", "allswell.telemetry"),  # loggers
    "allswell.localhost",  # a host name
    *("allswell.attempt", "allswell.cost_usd", "allswell.outcome", "allswell.run.id"),  # attributes of spans
    *(
        "allswell.task.id",
        "allswell.task.name",
        "allswell.key",
        "allswell.question",
        "allswell.webhooks",
    ),  # and other keys
}


def check(name: str, now: str) -> None:
    kept = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    changed = [*difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", n=0, lineterm="")]
    if changed:
        pytest.fail("\n".join([f"if this is meant: python -m tests.golden {name}", *changed]), pytrace=False)


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_declared_is_as_it_was(name: str) -> None:
    check(name, DECLARED[name]())


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_is_as_it_was(name: str, tmp_path: Path) -> None:
    check(name, MADE[name](tmp_path))


def test_the_tables_on_postgres_are_as_they_were(pg_url: str) -> None:
    check("postgres", postgres_tables(pg_url))


def test_no_planted_bug_and_no_seed_is_lost() -> None:
    there = {name: len(names) for name, names in planted.named().items()}
    assert {name: count for name, count in there.items() if count < planted.FEWEST[name]} == {}
    assert all(len(set(names)) == len(names) for names in planted.named().values())


@pytest.mark.parametrize("name", planted.plants())
def test_what_a_planted_bug_changes_is_there(name: str) -> None:
    """Whether the change is noticed, the tests of its list say."""
    with planted.recorded() as homes:
        plant = planted.plants()[name]  # those of a build are made while it is recorded
        with plant():
            pass
    assert homes
    assert [home for home in homes if not home.startswith("allswell.")] == []


def test_a_function_that_is_named_in_stores_is_found() -> None:
    """A flow's gate is a step that calls a function of ours. Its payload has the module: this name must stay good."""
    assert find_function(Function("allswell.flows.run.plan", "gathered"), "") is not None


def test_every_module_that_is_named_in_a_string_is_there() -> None:
    """A list of modules that must not be imported, say, proves nothing about one that was moved."""
    named = {
        name
        for top in ("src", "tests", "docs", "bench")
        for path in (ROOT / top).rglob("*.py")
        for name in _DOTTED.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert sorted(name for name in named - NOT_MODULES if not is_there(name)) == []


def is_there(name: str) -> bool:
    """Whether it is a module, or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True

"""Fixtures for all tests, the check of `row` marks, and what is begun first."""

import gc
import os
import re
import signal
from collections.abc import Iterator

import pytest

from allswell.settings import SETTINGS
from allswell.store.trusted import trust_folder
from allswell.testing.postgres import Cluster
from tests.databases import Databases

_ROW = re.compile(r"[OFMWC][0-9]+")
_OF_AN_ATTEMPT = {
    f"ALLSWELL_{name}"
    for name in [
        "AGENT",
        "ATTEMPT",
        "AUDIT",
        "DEADLINE",
        "DEBUG",
        "MARKER",
        "ORDERS",
        "PROMPT",
        "SOCKET",
        "STEP",
        "STORE",
        "TASK",
        "TOKEN",
        "TRUST",
        "WORK",
    ]
}
_LONGEST = (
    "test_every_message_is_handled_once",
    "test_every_promise_holds",
    "test_every_command_at_a_terminal",
    "test_everything_adds_up_after_a_storm",
    "test_a_fleet_with_one_in_five_misbehaving",
    "test_the_reference_failure",
    "test_a_rate_limit_of_ten_minutes",
)
_SHORT = ("tests/domain/", "tests/golden/", "tests/settings/", "tests/tidy/", "tests/timing/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a `row` mark that names no row of the mission: a typo would leave the row without its proof.

    What takes longest is begun first, or all processes but one would wait for it at the end. Tests that share a
    browser, or what their module makes, run in one process (`--dist loadgroup`), or each process would make it; and so
    do those of one module of the core, which take milliseconds, and of `tests/tidy`, which read all that there is.
    """
    items.sort(key=lambda item: not item.name.startswith(_LONGEST))
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))
        elif _shares_a_fixture(item) or item.nodeid.startswith(_SHORT):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
        for mark in item.iter_markers("row"):
            wrong = [row for row in mark.args if not (isinstance(row, str) and _ROW.fullmatch(row))]
            if wrong or mark.kwargs or not mark.args:
                said = ", ".join(map(repr, wrong)) or "no row"
                raise pytest.UsageError(f"{item.nodeid}: row() names {said}; a row looks like 'O4' (one of O F M W C)")


def _shares_a_fixture(item: pytest.Item) -> bool:
    """Whether a fixture is made once for all tests of its module."""
    known = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(fixture.scope == "module" for fixtures in known for fixture in fixtures)


def pytest_collection() -> None:
    """Collecting makes millions of objects and no garbage: looking for it took a sixth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What collecting has made stays until the end: no collection of garbage need look through it again."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three on each core: tests wait for disks, servers and processes for longer than they compute."""
    return 3 * (os.cpu_count() or 1)


@pytest.fixture(scope="session", autouse=True)
def nothing_from_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test sees its caller's home, folder, git settings, our own settings, or a store in a folder above its own.

    Whoever looks upward for a store stops at a sticky folder, as /tmp is; so the tests' temporary folder is one too,
    wherever TMPDIR lies. Variables that say how long the proofs run (ALLSWELL_KILLS, …) are the tests' own and stay.
    """
    base = tmp_path_factory.getbasetemp()
    base.chmod(0o1700)
    home, here = base / "home", base / "here"
    home.mkdir()
    here.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        ours = {setting.env() for setting in SETTINGS.values()} | _OF_AN_ATTEMPT
        for name in list(os.environ):
            if name.startswith(("GIT_", "XDG_")) or name in ours:
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        trust_folder(base)  # what tests write there, their user would have trusted
        patch.chdir(here)
        # A shell has what it starts in the background ignore these, and all that is started from there too.
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, usual)
        yield


@pytest.fixture(scope="session")
def pg_cluster() -> Iterator[Cluster]:
    """A PostgreSQL server shared by the tests of one process; a test that stops it makes its own instead."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pg_databases(pg_cluster: Cluster) -> Databases:
    """The databases of that server."""
    return Databases(pg_cluster)


@pytest.fixture
def pg_url(pg_databases: Databases) -> Iterator[str]:
    """The URL of an empty database that no other test sees."""
    url = pg_databases.take()
    yield url
    pg_databases.give_back(url)

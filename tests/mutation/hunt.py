"""The hunt: each mutant is put in the place of its function, and the tests that come by its line must notice.

The tests run once as they are, in this process, and it is written down which of them pass through which lines. After
that, for each mutant, a child of this process takes it in and runs the tests that pass through its line, the quickest
first, until one fails. So nothing is imported twice, and most mutants are found within a few milliseconds.

It is a plugin of pytest's, which collects the tests and keeps what they share.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import msgspec
import pytest

from tests.mutation.mutants import PASSED, Mutant, mutants_of, telling

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
_PATIENCE = 30.0
"""Seconds after which a child that waits for something that never comes is ended, and its mutant taken for found."""
_ROUNDS = 2.0
"""Seconds of processor time that a child has beside three times what its tests took: a mutant may go on for ever."""
_ROOM = 2 << 30
"""Bytes that it may take meanwhile."""
_FOUND, _SURVIVED = 1, 0


class Fate(StrEnum):
    """What became of a mutant."""

    FOUND = "found"
    SURVIVED = "survived"
    UNSEEN = "no test comes by"
    EQUIVALENT = "equivalent"
    LEFT = "left for want of time"


class Equivalent(msgspec.Struct, forbid_unknown_fields=True):
    """A mutant that no test can find."""

    module: str
    function: str
    was: str
    becomes: str
    reason: str


class Hunted(NamedTuple):
    """A mutant and its fate."""

    mutant: Mutant
    fate: Fate


class _Hunter(NamedTuple):
    mutant: Mutant
    until: float


class Hunt:
    """The plugin: instead of running the tests, it runs them against every mutant."""

    def __init__(self, paths: Iterable[Path], *, seconds: float, abreast: int) -> None:
        self._files = {str(path): path for path in paths}
        self._until = time.monotonic() + seconds
        self._abreast = abreast
        self._passing: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
        """Which tests pass through a line."""
        self._took: dict[str, float] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self._failed = False
        self.broken: list[str] = []
        """Tests that fail before anything is changed: they would find every mutant."""
        self.hunted: list[Hunted] = []

    # --- what pytest calls --------------------------------------------------------------------------------------------

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """All of it."""
        self._functions = _functions_by_code(self._files)
        self._follow(session.items)
        if not self.broken:
            self._hunt([one for path in self._files.values() for one in mutants_of(path)])
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has ended, or one of its fixtures."""
        self._failed = self._failed or report.failed

    # --- which tests pass through which lines -------------------------------------------------------------------------

    def _follow(self, items: Sequence[pytest.Item]) -> None:
        """Run every test once, with functions that tell where they come by."""
        passed: set[tuple[str, int]] = set()
        usual = [(function, function.__code__) for found in self._functions.values() for function in found]
        for code in (code for path in self._files.values() for code in telling(path)):
            for function in self._functions.get(_key(code), []):
                function.__globals__[PASSED] = lambda path, line: passed.add((path, line))
                function.__code__ = code
        for item in items:
            passed.clear()
            began = time.monotonic()
            if self._fails(item):
                self.broken.append(item.nodeid)
                break
            self._took[item.nodeid] = time.monotonic() - began
            for line in passed:
                self._passing[line].append(item)
        for function, code in usual:
            function.__code__ = code

    def _fails(self, item: pytest.Item) -> bool:
        """Whether a test fails; what all tests share stays, as if one that has nothing else were still to come."""
        self._failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=item.session)
        return self._failed

    # --- the hunt -----------------------------------------------------------------------------------------------------

    def _hunt(self, mutants: Sequence[Mutant]) -> None:
        known = equivalents()
        hunters: dict[int, _Hunter] = {}
        gc.freeze()  # what is here is here in every child, and need not be copied by a collection
        for mutant in mutants:
            tests = self._tests_for(mutant)
            if (named(mutant.path), mutant.function, mutant.was, mutant.becomes) in known:
                self.hunted.append(Hunted(mutant, Fate.EQUIVALENT))
            elif not tests:
                self.hunted.append(Hunted(mutant, Fate.UNSEEN))
            elif time.monotonic() > self._until:
                self.hunted.append(Hunted(mutant, Fate.LEFT))
            else:
                while len(hunters) >= self._abreast:
                    self._await_one(hunters)
                takes = sum(self._took[test.nodeid] for test in tests)
                child = os.fork()
                if child == 0:
                    _bound(_ROUNDS + 3 * takes)
                    os._exit(self._try(mutant, tests))
                hunters[child] = _Hunter(mutant, time.monotonic() + _PATIENCE + 10 * takes)
        while hunters:
            self._await_one(hunters)

    def _tests_for(self, mutant: Mutant) -> list[pytest.Item]:
        passing = self._passing.get((str(mutant.path), mutant.statement), [])
        return sorted(passing, key=lambda item: self._took[item.nodeid])

    def _try(self, mutant: Mutant, tests: Sequence[pytest.Item]) -> int:
        """In a child: take the mutant in, and run the tests."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        try:
            for function in self._functions[_key(mutant.code)]:
                function.__code__ = mutant.code
            return _FOUND if any(self._fails(test) for test in tests) else _SURVIVED
        except BaseException:  # noqa: BLE001 - whatever it is, it was noticed
            return _FOUND

    def _await_one(self, hunters: dict[int, _Hunter]) -> None:
        while True:
            for child, hunter in list(hunters.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                if not ended and time.monotonic() > hunter.until:
                    os.kill(child, signal.SIGKILL)
                    _, status = os.waitpid(child, 0)
                    ended = child
                if ended:
                    survived = os.waitstatus_to_exitcode(status) == _SURVIVED
                    self.hunted.append(Hunted(hunter.mutant, Fate.SURVIVED if survived else Fate.FOUND))
                    del hunters[child]
                    return
            time.sleep(0.005)


def _bound(seconds: float) -> None:
    """In a child: end it when it has used so much processor time, or too much room."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))


def _key(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"


def _functions_by_code(files: Iterable[str]) -> dict[str, list[FunctionType]]:
    """The functions of these files, wherever they are referred to."""
    found = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename in files:
            found[_key(one.__code__)].append(one)
    return found


def named(path: Path) -> str:
    """A module of the core as equivalent.toml names it: its folder and its file."""
    return "/".join(path.parts[-2:])


def equivalents() -> set[tuple[str, str, str, str]]:
    """Mutants that no test can find, since they change nothing; each with its reason."""
    entries = msgspec.toml.decode(EQUIVALENT.read_bytes(), type=dict[str, list[Equivalent]])["equivalent"]
    return {(one.module, one.function, one.was, one.becomes) for one in entries}

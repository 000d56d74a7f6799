"""Whether a holder has died is told only where it is certain."""

import os
import subprocess
import sys

import pytest

from allswell.runtime.process import identity
from allswell.runtime.process.identity import is_dead, this_process


def test_a_process_that_lives_is_not_dead() -> None:
    assert not is_dead(this_process())
    assert this_process() == this_process()


def test_a_process_that_was_killed_is_dead_even_before_it_is_reaped() -> None:
    asks = "from allswell.runtime.process.identity import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", asks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert not is_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert is_dead(name)
    child.communicate()
    assert is_dead(name)


def test_another_that_got_the_number_does_not_stand_in_for_it() -> None:
    before, start, here = this_process().rsplit(".", 2)
    assert is_dead(f"{before}.{int(start) - 1}.{here}")


@pytest.mark.parametrize("name", ["ada", "", "host:1", "host:1.2.zzzzzzzz", "host:99999999.1.00000000"])
def test_of_others_nothing_is_known(name: str) -> None:
    assert not is_dead(name)


def test_without_a_known_namespace_nobody_is_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    name = this_process().replace(f":{os.getpid()}.", ":4194303.")
    assert is_dead(name)
    monkeypatch.setattr(identity, "pid_namespace", lambda: "unknown")
    assert not is_dead(name)

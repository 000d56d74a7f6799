"""Breakers across forks and threads: no lock is inherited in the wrong state, and no loop is held on to."""

import asyncio
import subprocess
import sys
import textwrap
import threading

from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from tests import patience

HOLDS_THE_LOCK_AND_FORKS = """
    import os, threading, warnings
    warnings.simplefilter("ignore")  # Python itself warns of what is tried here
    from allswell.domain.service.breaker import BreakerPolicy
    from allswell.runtime.guard import MemoryBreakers

    breakers, held = MemoryBreakers(), threading.Event()
    def hold():
        with breakers._lock:
            held.set()
            threading.Event().wait()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    child = os.fork()
    if child == 0:
        breakers.park("s", 5)
        os._exit(0 if breakers.admit("s", BreakerPolicy()).given is not None else 1)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_while_the_lock_is_held_does_not_lock_the_child() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HOLDS_THE_LOCK_AND_FORKS)], timeout=patience.SECONDS, check=False
    )
    assert ran.returncode == 0


def test_one_guard_serves_many_threads_and_many_loops() -> None:
    """Each with a loop of its own, and some of them failing: nothing is lost in the counts."""
    breakers = MemoryBreakers()
    policy = GuardPolicy(retry=RetryPolicy(retries=0, backoff=0))
    guard = Guard("s", policy, around=GuardEnvironment(breakers=breakers))
    ended: list[int] = []

    async def answer(number: int) -> int:
        await asyncio.sleep(0)
        if number % 10 == 9:
            raise LookupError  # ours: it says nothing about the service
        return number

    async def work() -> None:
        for number in range(200):
            try:
                ended.append(await guard.call(answer, number))
            except LookupError:
                ended.append(-1)

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 8 * 200
    assert ended.count(-1) == 8 * 20
    assert breakers.clean("s") is not None

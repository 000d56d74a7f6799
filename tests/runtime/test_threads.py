"""Threads that do not come back are given up, and their slots are taken by new ones."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest

from allswell.runtime.calls import ThreadCall, Threads
from allswell.runtime.process.leftovers import Spawner, install, spawner
from tests import patience


def test_a_call_gives_its_result_or_its_error() -> None:
    threads = Threads(2)
    assert _ended(threads, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        _ended(threads, lambda: 1 // 0)
    assert threads.busy == 0


def _ended(threads: Threads, function: Callable[[], object]) -> object:
    call = threads.call(function)
    assert call.wait(10)
    while threads.busy:
        threading.Event().wait(0.001)
    return call.result()


def test_a_thread_keeps_no_tag_of_the_call_that_it_was_made_for() -> None:
    install()
    threads = Threads(1)
    before = spawner.set(Spawner("t_1.1"))
    try:
        _ended(threads, lambda: None)
    finally:
        spawner.reset(before)
    assert _ended(threads, spawner.get) is None, "what a later call starts is not the first one's"


def _begun(threads: Threads) -> tuple[ThreadCall[None], threading.Event]:
    """A call that has begun, and what lets it end."""
    gate, begun = threading.Event(), threading.Event()

    def blocked() -> None:
        begun.set()
        gate.wait(10)

    call = threads.call(blocked)
    assert begun.wait(10)
    return call, gate


def test_no_more_calls_run_at_a_time_than_there_are_slots() -> None:
    threads = Threads(2)
    gate, begun = threading.Event(), threading.Semaphore(0)

    def blocked() -> None:
        begun.release()
        gate.wait(10)

    calls = [threads.call(blocked) for _ in range(3)]
    assert begun.acquire(timeout=patience.SECONDS)
    assert begun.acquire(timeout=patience.SECONDS)
    assert not begun.acquire(timeout=0.05)
    assert threads.busy == 2
    gate.set()
    assert all(call.wait(10) for call in calls)


def test_the_slot_of_a_call_that_is_given_up_is_free_at_once() -> None:
    threads = Threads(1)
    gate = threading.Event()
    stuck = threads.call(lambda: gate.wait(10))
    following = threads.call(lambda: "next")
    assert not following.wait(0.05)
    stuck.give_up()
    assert following.wait(10)
    assert following.result() == "next"
    assert threads.lost == 1
    assert not stuck.done()
    gate.set()
    assert stuck.wait(10)
    assert threads.lost == 1


def test_a_call_that_waits_for_a_slot_can_be_withdrawn() -> None:
    threads = Threads(1)
    first, gate = _begun(threads)
    ran: list[int] = []
    second = threads.call(lambda: ran.append(1))
    assert second.never_began()
    assert not first.never_began()
    gate.set()
    assert first.wait(10)
    assert _ended(threads, lambda: "after") == "after"
    assert ran == []


def test_a_forked_child_has_threads_of_its_own() -> None:
    """A fork leaves all threads behind but one; a worker that looks idle would never answer."""
    threads = Threads(1)
    assert _ended(threads, lambda: 1) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: what can go wrong is what we test
        child = os.fork()
    if child == 0:
        os._exit(0 if threads.call(lambda: 2).wait(20) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_are_used_again() -> None:
    threads = Threads(1)
    assert len({_ended(threads, threading.get_ident) for _ in range(20)}) < 20


def test_calls_that_are_over_in_no_time_need_few_threads() -> None:
    threads = Threads(64)
    with held_interpreter():
        calls = [threads.call(threading.get_ident) for _ in range(64)]
    assert all(call.wait(10) for call in calls)
    assert len({call.result() for call in calls}) <= 8


def test_calls_that_wait_for_each_other_all_begin() -> None:
    """Each blocks until all have begun: nobody who waits may be forgotten while a slot is free."""
    threads = Threads(16)
    for _ in range(20):
        together = threading.Barrier(16)
        calls = [threads.call(lambda: together.wait(10)) for _ in range(16)]  # noqa: B023 - over before the next
        assert all(call.wait(20) for call in calls)
        assert sorted(call.result() for call in calls) == list(range(16))


def test_where_no_thread_can_be_had_those_at_work_take_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(8)
    first, gate = _begun(threads)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    second = threads.call(lambda: "after")
    gate.set()
    assert first.wait(10)
    assert second.wait(10)
    assert second.result() == "after"
    with pytest.raises(RuntimeError, match="can't start"):
        Threads(1).call(lambda: None)


@contextlib.contextmanager
def held_interpreter() -> Iterator[None]:
    """No other thread runs meanwhile, so that what is asked for here is asked for at once."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_who_is_told_of_the_end_is_told_once_even_when_it_has_come() -> None:
    threads = Threads(1)
    told: list[str] = []
    call = threads.call(lambda: None)
    assert call.wait(10)
    call.tell(lambda: told.append("after"))
    assert told == ["after"]

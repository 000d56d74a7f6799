"""Calls are read by the hearer's event loop: it shares the carrier with a thread, and is never kept busy."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from unittest.mock import patch

from allswell.store.call import LOOK_AGAIN, Call
from allswell.store.herald import Herald
from allswell.store.sqlite.carrier import DatagramCarrier
from tests.store.hearing import heard_by, until
from tests.store.sqlite.hearing import open_carrier
from tests.store.sqlite.scene import opened


def test_calls_are_read_by_the_hearers_own_loop(tmp_path: Path) -> None:
    """Not by a thread, which would have to wake the loop in its turn."""
    read: list[str] = []
    receive = DatagramCarrier.receive

    def note(self: DatagramCarrier) -> Call:
        read.append(threading.current_thread().name)
        return receive(self)

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            calls = await heard_by(store)
            other.announce(Call(ready=True))
            await until(lambda: calls == [Call(ready=True)])

    with patch.object(DatagramCarrier, "receive", note):
        asyncio.run(main())
    assert {*read} == {threading.main_thread().name}


def test_hearing_leaves_no_file_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await heard_by(store)

    def open_files() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    asyncio.run(main())
    before = open_files()
    asyncio.run(main())
    assert open_files() == before


def test_a_hearer_in_another_loop_takes_over(tmp_path: Path) -> None:
    herald = Herald(DatagramCarrier(tmp_path / "x.db"), "herald")
    calls: list[Call] = []

    async def hear() -> None:
        calls.clear()
        herald.hear(calls.append)
        await until(lambda: LOOK_AGAIN in calls)

    async def hear_and_close() -> None:
        await hear()
        telling = open_carrier(tmp_path / "x.db", hearing=False)
        telling.send(Call(ready=True))
        telling.close()
        await until(lambda: Call(ready=True) in calls)
        await herald.close(20)

    asyncio.run(hear())
    asyncio.run(hear_and_close())


def test_a_forked_child_does_not_keep_what_the_loop_reads_from(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await heard_by(store)
            herald = store._herald
            assert herald is not None
            await until(lambda: herald._reader is not None)  # it begins to read right after it has said that it hears
            reader = herald._reader
            assert reader is not None
            child = os.fork()
            if child == 0:
                os._exit(0 if reader._file is None else 1)
            assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once
            assert reader._file is not None

    asyncio.run(main())


def test_one_who_hears_and_is_alone_soon_looks_for_nobody(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    long_ago = carrier.folder.stat().st_mtime_ns - 10**9
    os.utime(carrier.folder, ns=(long_ago, long_ago))
    assert carrier.send_here(Call(ready=True))
    assert carrier.alone()
    carrier.close()
    assert not carrier.send_here(Call(ready=True)), "it has no socket any more"


def test_a_loop_is_not_told_again_and_again_of_what_the_thread_has_to_read(tmp_path: Path) -> None:
    stalls = threading.Event()

    class Stalling(DatagramCarrier):
        def send(self, call: Call) -> None:
            stalls.wait(20)
            super().send(call)

    async def main() -> None:
        herald, calls, reads = Herald(Stalling(tmp_path / "x.db"), "stalling"), list[Call](), list[None]()
        read = herald._read

        def counted() -> None:
            reads.append(None)
            read()

        with patch.object(herald, "_read", counted):
            herald.hear(calls.append)
            await until(lambda: LOOK_AGAIN in calls)
            other = open_carrier(tmp_path / "x.db")
            herald._leave_to_the_thread(Call(ready=True))
            await until(herald._in_use.locked)
            other.send(Call(journal=True))
            await until(lambda: bool(reads))
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(reads) == 1
            stalls.set()
            await until(lambda: Call(journal=True) in calls)
            calls.clear()
            other.send(Call(spreads=True))
            await until(lambda: Call(spreads=True) in calls)
        other.close()
        await herald.close(20)

    asyncio.run(main())

"""Wake-up calls by unix datagrams: private, tidy, never blocking, at home in deep folders."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from allswell.store.call import LOOK_AGAIN, NOTHING, Call
from allswell.store.herald import CarrierLost, Herald
from allswell.store.port import TaskFilter, Transaction
from allswell.store.sqlite import SqliteStore, views
from allswell.store.sqlite.carrier import DatagramCarrier
from tests.store.sqlite.scene import opened, plain

HEARING = """
import asyncio, sys
from allswell.store.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path)
    await store.open()
    store.hear(lambda call: print(call.ready, flush=True))
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def until(happened: Callable[[], bool]) -> None:
    """What another thread does can only be waited for."""
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.005)


async def until_told(tell: Callable[[], None], happened: Callable[[], bool]) -> None:
    """Tell again and again: what is told right after something else is left to the herald either way."""
    async with asyncio.timeout(20):
        while not happened():
            tell()
            await asyncio.sleep(0.02)


async def heard_by(store: SqliteStore) -> list[Call]:
    calls: list[Call] = []
    store.hear(calls.append)
    await until(lambda: LOOK_AGAIN in calls)
    calls.clear()
    return calls


def open_carrier(database: Path, *, hearing: bool = True) -> DatagramCarrier:
    carrier = DatagramCarrier(database)
    carrier.open(hearing=hearing)
    return carrier


def test_sockets_are_private_and_gone_afterwards(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await heard_by(store)
            folder = tmp_path / "x.db.calls"
            (only,) = folder.iterdir()
            assert stat.S_ISSOCK(only.stat().st_mode)
            assert stat.S_IMODE(only.stat().st_mode) == 0o600
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not folder.exists()

    asyncio.run(main())


def test_who_only_tells_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            store.announce(Call(ready=True))
        assert not (tmp_path / "x.db.calls").exists()

    asyncio.run(main())


def test_who_is_alone_wakes_no_thread_and_knows_when_somebody_comes(tmp_path: Path) -> None:
    telling = open_carrier(tmp_path / "x.db")
    assert not telling.alone(), "its own socket is new, and so might another be"
    long_ago = telling.folder.stat().st_mtime_ns - 10**9
    os.utime(telling.folder, ns=(long_ago, long_ago))
    telling.send(Call(ready=True))
    assert telling.alone()
    coming = open_carrier(tmp_path / "x.db")
    assert not telling.alone()
    telling.send(Call(ready=True))
    assert coming.receive().ready
    assert not telling.alone()
    os.utime(telling.folder, ns=(long_ago, long_ago))
    telling.send(Call(ready=True))
    assert not telling.alone(), "somebody is there, however old the folder"
    coming.close()
    telling.close()
    assert telling.alone(), "nobody has a folder to listen in"


def test_a_path_longer_than_a_sockets_name_may_be(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    first, second = open_carrier(deep / "x.db"), open_carrier(deep / "x.db")
    telling = open_carrier(deep / "x.db", hearing=False)
    first.send(Call(ready=True))
    telling.send(Call(journal=True))
    assert second.receive() == Call(ready=True, journal=True)
    assert first.receive() == Call(journal=True)
    first.check()
    assert first.receive() == NOTHING, "an echo is no call"
    for carrier in (first, second, telling):
        carrier.close()
    assert list(deep.iterdir()) == []


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HEARING, str(tmp_path / "x.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        telling = open_carrier(tmp_path / "x.db", hearing=False)
        telling.send(Call(ready=True))
        assert process.stdout.readline() == "True\n"
        (left,) = telling.folder.iterdir()
        process.kill()
        process.wait()
    assert left.exists()
    telling.send(Call(ready=True))
    assert not left.exists()
    telling.close()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    (carrier.folder / "notes.txt").write_text("keep me")
    carrier.send(Call(ready=True))
    assert (carrier.folder / "notes.txt").read_text() == "keep me"
    carrier.close()
    assert (carrier.folder / "notes.txt").exists()


def test_a_queue_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    deaf, telling = open_carrier(tmp_path / "x.db"), open_carrier(tmp_path / "x.db", hearing=False)
    for _ in range(10_000):
        telling.send(Call(ready=True))
    telling.send(Call(spreads=True))
    assert deaf.receive() == LOOK_AGAIN, "something was told in vain"
    telling.send(Call(spreads=True))
    assert deaf.receive() == Call(spreads=True), "a queue that was full hears again"
    deaf.check()
    for carrier in (deaf, telling):
        carrier.close()


def test_a_folder_that_was_cleared_away_is_noticed_and_made_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            assert store._herald is not None
            store._herald._carrier.check_every = 0.02
            calls = await heard_by(store)
            folder = tmp_path / "x.db.calls"
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            await until(lambda: LOOK_AGAIN in calls)
            calls.clear()
            other.announce(Call(ready=True))
            await until(lambda: calls == [Call(ready=True)])

    asyncio.run(main())


def test_without_its_own_name_a_check_fails(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    (only,) = carrier.folder.iterdir()
    only.unlink()
    with pytest.raises(CarrierLost):
        carrier.check()
    carrier.close()


def test_no_place_for_a_socket_is_no_reason_to_fail(tmp_path: Path) -> None:
    """Something else has the folder's name: nobody is heard, and the store works."""
    (tmp_path / "x.db.calls").write_text("a file")

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            calls: list[Call] = []
            store.hear(calls.append)
            store.announce(Call(ready=True))
            await store.view_agenda()
            assert calls == []

    asyncio.run(main())


def test_a_forked_child_does_not_keep_the_socket_alive(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    assert isinstance(carrier._socket, socket.socket)
    child = os.fork()
    if child == 0:
        os._exit(0 if carrier._socket.fileno() == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    carrier.check()
    carrier.close()


def test_few_others_are_told_by_whoever_has_something_to_tell(tmp_path: Path) -> None:
    """Not by the herald's thread: to wake it takes longer. Where there are many, it is woken after all."""
    sent: list[str] = []
    send = DatagramCarrier.send

    def note(self: DatagramCarrier, call: Call) -> None:
        sent.append(threading.current_thread().name)
        send(self, call)

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            own, calls = await heard_by(store), await heard_by(other)
            store.announce(Call(ready=True))
            await until(lambda: calls == [Call(ready=True)])
            assert sent == []
            many = [open_carrier(tmp_path / "x.db") for _ in range(8)]
            await until_told(lambda: store.announce(Call(ready=True)), lambda: bool(sent))
            assert {*sent} == {"allswell-sqlite-herald"}
            assert own == [], "and nobody hears itself"
            for carrier in many:
                carrier.close()

    with patch.object(DatagramCarrier, "send", note):
        asyncio.run(main())


def test_what_is_committed_is_told_when_it_is_and_only_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            calls = await heard_by(other)
            await heard_by(store)

            async def fail(tx: Transaction) -> None:
                tx.tell(Call(spreads=True))
                raise ZeroDivisionError

            async def work(tx: Transaction) -> None:
                tx.tell(Call(ready=True))

            async def lazy(tx: Transaction) -> None:
                tx.tell(Call(journal=True))

            with pytest.raises(ZeroDivisionError):
                await store.transact(fail)
            await store.transact(work)
            await until(lambda: calls == [Call(ready=True)])
            await store.transact(lazy)
            await until(lambda: calls == [Call(ready=True), Call(journal=True)])

    asyncio.run(main())


def test_whoever_hears_of_work_finds_it_although_it_is_told_before_the_commit(tmp_path: Path) -> None:
    """They have to wait for the turn of the one who told them; so what they are told of is there."""
    told: list[Call] = []
    found: list[tuple[int, int]] = []
    send_here = DatagramCarrier.send_here

    def note(self: DatagramCarrier, call: Call) -> bool:
        told.append(call)
        return send_here(self, call)

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            await heard_by(store)
            looks: list[asyncio.Task[None]] = []

            async def look(expected: int) -> None:
                picked = await other.transact(lambda tx: tx.pick([1], 1_000, None))
                found.append((expected, len(picked)))

            other.hear(lambda call: looks.append(asyncio.create_task(look(len(told)))) if call.ready else None)
            await until(lambda: bool(looks))
            for number in range(20):

                async def work(tx: Transaction, number: int = number) -> None:
                    changes = plain([f"t_{number:02d}"])
                    changes.at = await tx.now()
                    await tx.write(changes)
                    tx.tell(Call(ready=True))

                await asyncio.sleep(0.006)  # what is told sooner is left to the herald
                await store.transact(work)
                await until(lambda number=number: len(looks) > number + 1)  # type: ignore[misc]
                await asyncio.gather(*looks)

    with patch.object(DatagramCarrier, "send_here", note):
        asyncio.run(main())
    assert told == [Call(ready=True)] * 20
    assert found == [(number, number) for number in range(21)]


def test_what_others_would_look_for_too_soon_is_told_when_it_is_committed(tmp_path: Path) -> None:
    telling, hearing = Herald(open_carrier(tmp_path / "x.db"), "telling"), open_carrier(tmp_path / "x.db")
    assert telling.announce_ahead(Call(ready=True, journal=True, due=7)) == Call(journal=True, due=7)
    assert hearing.receive() == Call(ready=True)
    assert telling.announce_ahead(Call(ready=True)) == Call(ready=True), "others were told a moment ago"
    assert telling.announce_ahead(Call(spreads=True)) == Call(spreads=True)
    assert hearing.receive() == NOTHING
    for carrier in (telling._carrier, hearing):
        carrier.close()


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
            assert store._herald is not None
            reader = store._herald._reader
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


def test_who_is_told_ahead_of_a_commit_and_only_looks_sees_what_it_was_told_of(tmp_path: Path) -> None:
    """A claim waits for its turn, and so for the commit; a view has to be made to."""
    busy = threading.Event()

    async def main() -> None:
        async with opened(tmp_path / "x.db") as telling, opened(tmp_path / "x.db") as looking:
            await heard_by(telling)
            calls = await heard_by(looking)
            ahead, passage, look = telling._writer._announce_ahead, looking._passage.pass_through, views.tasks

            def slowly(call: Call) -> Call:
                told = ahead(call)
                busy.wait(20)  # until the other one looks, or waits until it may
                return told

            def passed() -> None:
                busy.set()
                passage()

            def looked(*given: Any) -> Any:  # noqa: ANN401
                busy.set()
                return look(*given)

            async def work(tx: Transaction) -> None:
                changes = plain(["t_1"])
                changes.at = await tx.now()
                await tx.write(changes)
                tx.tell(Call(ready=True))

            with (
                patch.object(telling._writer, "_announce_ahead", slowly),
                patch.object(looking._passage, "pass_through", passed),
                patch.object(views, "tasks", looked),
            ):
                writing = asyncio.ensure_future(telling.transact(work))
                await until(lambda: Call(ready=True) in calls)
                (seen,) = await looking.view_tasks(TaskFilter())
                assert seen.task.id == "t_1"
                await writing

    asyncio.run(main())


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

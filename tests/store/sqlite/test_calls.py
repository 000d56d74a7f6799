"""Wake-up calls by unix datagrams: private, tidy, never blocking, at home in deep folders."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from allswell.store.notifier import TransportLost
from allswell.store.port import LOOK_AGAIN, NOTHING, Wakeup
from allswell.store.sqlite.transport import DatagramTransport
from tests.store.hearing import heard_by, until
from tests.store.sqlite.hearing import open_carrier, until_told
from tests.store.sqlite.scene import opened

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
            store.announce(Wakeup(ready=True))
        assert not (tmp_path / "x.db.calls").exists()

    asyncio.run(main())


def test_who_is_alone_wakes_no_thread_and_knows_when_somebody_comes(tmp_path: Path) -> None:
    telling = open_carrier(tmp_path / "x.db")
    assert not telling.alone(), "its own socket is new, and so might another be"
    long_ago = telling.folder.stat().st_mtime_ns - 10**9
    os.utime(telling.folder, ns=(long_ago, long_ago))
    telling.send(Wakeup(ready=True))
    assert telling.alone()
    coming = open_carrier(tmp_path / "x.db")
    assert not telling.alone()
    telling.send(Wakeup(ready=True))
    assert coming.receive().ready
    assert not telling.alone()
    os.utime(telling.folder, ns=(long_ago, long_ago))
    telling.send(Wakeup(ready=True))
    assert not telling.alone(), "somebody is there, however old the folder"
    coming.close()
    telling.close()
    assert telling.alone(), "nobody has a folder to listen in"


def test_a_path_longer_than_a_sockets_name_may_be(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    first, second = open_carrier(deep / "x.db"), open_carrier(deep / "x.db")
    telling = open_carrier(deep / "x.db", hearing=False)
    first.send(Wakeup(ready=True))
    telling.send(Wakeup(journal=True))
    assert second.receive() == Wakeup(ready=True, journal=True)
    assert first.receive() == Wakeup(journal=True)
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
        telling.send(Wakeup(ready=True))
        assert process.stdout.readline() == "True\n"
        (left,) = telling.folder.iterdir()
        process.kill()
        process.wait()
    assert left.exists()
    telling.send(Wakeup(ready=True))
    assert not left.exists()
    telling.close()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    (carrier.folder / "notes.txt").write_text("keep me")
    carrier.send(Wakeup(ready=True))
    assert (carrier.folder / "notes.txt").read_text() == "keep me"
    carrier.close()
    assert (carrier.folder / "notes.txt").exists()


def test_a_queue_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    deaf, telling = open_carrier(tmp_path / "x.db"), open_carrier(tmp_path / "x.db", hearing=False)
    for _ in range(10_000):
        telling.send(Wakeup(ready=True))
    telling.send(Wakeup(spreads=True))
    assert deaf.receive() == LOOK_AGAIN, "something was told in vain"
    telling.send(Wakeup(spreads=True))
    assert deaf.receive() == Wakeup(spreads=True), "a queue that was full hears again"
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
            other.announce(Wakeup(ready=True))
            await until(lambda: calls == [Wakeup(ready=True)])

    asyncio.run(main())


def test_without_its_own_name_a_check_fails(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    (only,) = carrier.folder.iterdir()
    only.unlink()
    with pytest.raises(TransportLost):
        carrier.check()
    carrier.close()


def test_no_place_for_a_socket_is_no_reason_to_fail(tmp_path: Path) -> None:
    """Something else has the folder's name: nobody is heard, and the store works."""
    (tmp_path / "x.db.calls").write_text("a file")

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            calls: list[Wakeup] = []
            store.hear(calls.append)
            store.announce(Wakeup(ready=True))
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
    send = DatagramTransport.send

    def note(self: DatagramTransport, call: Wakeup) -> None:
        sent.append(threading.current_thread().name)
        send(self, call)

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            own, calls = await heard_by(store), await heard_by(other)
            store.announce(Wakeup(ready=True))
            await until(lambda: calls == [Wakeup(ready=True)])
            assert sent == []
            many = [open_carrier(tmp_path / "x.db") for _ in range(8)]
            await until_told(lambda: store.announce(Wakeup(ready=True)), lambda: bool(sent))
            assert {*sent} == {"allswell-sqlite-herald"}
            assert own == [], "and nobody hears itself"
            for carrier in many:
                carrier.close()

    with patch.object(DatagramTransport, "send", note):
        asyncio.run(main())

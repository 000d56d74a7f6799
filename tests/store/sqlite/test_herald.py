"""Who hears the calls of other processes on SQLite, and what that leaves behind."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from allswell.store import notifier as herald_module
from allswell.store.notifier import Notifier
from allswell.store.port import LOOK_AGAIN, NOTHING, Wakeup
from allswell.store.sqlite.transport import DatagramTransport
from tests.store.hearing import heard_by, until
from tests.store.sqlite.hearing import open_carrier
from tests.store.sqlite.scene import opened


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
    herald = Notifier(DatagramTransport(tmp_path / "x.db"), "herald")
    calls: list[Wakeup] = []

    async def hear() -> None:
        calls.clear()
        herald.hear(calls.append)
        await until(lambda: LOOK_AGAIN in calls)

    async def hear_and_close() -> None:
        await hear()
        telling = open_carrier(tmp_path / "x.db", hearing=False)
        telling.send(Wakeup(ready=True))
        telling.close()
        await until(lambda: Wakeup(ready=True) in calls)
        await herald.close(20)

    asyncio.run(hear())
    asyncio.run(hear_and_close())


def test_one_who_hears_and_is_alone_soon_looks_for_nobody(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    long_ago = carrier.folder.stat().st_mtime_ns - 10**9
    os.utime(carrier.folder, ns=(long_ago, long_ago))
    assert carrier.send_here(Wakeup(ready=True))
    assert carrier.alone()
    carrier.close()
    assert not carrier.send_here(Wakeup(ready=True)), "it has no socket any more"


@patch.object(herald_module, "_URGENT_GAP", 3_600.0)
def test_the_first_call_is_told_at_once_however_short_a_time_ago_the_machine_was_started(tmp_path: Path) -> None:
    with closing(open_carrier(tmp_path / "x.db")) as carrier, closing(open_carrier(tmp_path / "x.db")) as hearing:
        telling = Notifier(carrier, "telling")
        with patch("allswell.store.notifier.time.monotonic", lambda: 60.0):
            telling.announce(Wakeup(ready=True, due=7))
            assert hearing.receive() == Wakeup(ready=True, due=7)
            assert telling.take_along(Wakeup(ready=True)) == NOTHING, "others were told a moment ago"

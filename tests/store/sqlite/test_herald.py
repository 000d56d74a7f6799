"""Who hears the calls of other processes on SQLite, and what that leaves behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from allswell.store.call import LOOK_AGAIN, Call
from allswell.store.herald import Herald
from allswell.store.sqlite.carrier import DatagramCarrier
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


def test_one_who_hears_and_is_alone_soon_looks_for_nobody(tmp_path: Path) -> None:
    carrier = open_carrier(tmp_path / "x.db")
    long_ago = carrier.folder.stat().st_mtime_ns - 10**9
    os.utime(carrier.folder, ns=(long_ago, long_ago))
    assert carrier.send_here(Call(ready=True))
    assert carrier.alone()
    carrier.close()
    assert not carrier.send_here(Call(ready=True)), "it has no socket any more"

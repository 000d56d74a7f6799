"""A build on PostgreSQL, with characters in it that its text does not take."""

import asyncio

import allswell
from allswell.build.coordinator import Coordinator
from allswell.build.state import BuildPlace
from allswell.domain.build.limits import BuildLimits
from allswell.testing.chat import Room
from allswell.timing.clock import SystemClock
from tests.build.scene import spec_of


def test_a_build_on_postgresql_hears_hostile_lines_and_ends(pg_url: str) -> None:
    spec = spec_of({"db": [], "api": ["db"]})

    async def scene() -> None:
        async with allswell.open(pg_url) as watch:
            room = Room(SystemClock())
            place = await BuildPlace.find(watch, spec.name)
            limits = BuildLimits(claim_window=0)
            coordinator = Coordinator(watch, room.join("@c"), place, spec=lambda: spec, limits=limits)
            running = asyncio.ensure_future(coordinator.run())
            await room.wait_for("@c", "TASKS https://x/spec db (PROGRESS every 10m)", seconds=20)
            await room.say("@x", "CLAIM \x00\nABORT db \x00\nhello \x00", id_="")
            for name in ("db", "api"):
                await room.say("@a", f"CLAIM {name}")
                await room.wait_for("@c", f"ACK {name} @a (PROGRESS every 10m)", seconds=20)
                await room.say("@a", f"PROGRESS {name} 40% a\x00b\nREADY {name} https://x/1")
                await room.say("@b", f"AUDIT {name} FAIL no\x00ne")
                await room.wait_for("@c", f"AUDIT {name} FAIL no�ne", seconds=20)
                await room.say("@a", f"READY {name} https://x/1")
                await room.say("@b", f"AUDIT {name} PASS")
                await room.wait_for("@c", f"MERGED {name}", seconds=20)
            assert (await asyncio.wait_for(running, 20)).is_over

    asyncio.run(scene())

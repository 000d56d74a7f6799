"""What the store knows of processes that survived their attempts."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from allswell.app import make_watch, store_for
from allswell.domain.agents.status import Survivor, Survivors, word_of
from allswell.domain.ids import Millis
from allswell.engine.status.agents import free, view_survivors
from allswell.errors import Refused

LEFT = Survivors("claude.1", "t_1", "fix it", 2, "host", "boot", "pid:[1]", (Survivor(4242, 17, "sh"),), "/src")


def test_they_are_seen_until_they_are_gone_or_freed() -> None:
    async def scene() -> None:
        async with make_watch(store_for("memory:")) as watch:
            early = replace(LEFT, holder="run-7", processes=(Survivor(7, 1, "sleep"),), since=Millis(1))
            for one in (replace(LEFT, since=Millis(2)), early):
                assert await watch.swap(word_of(one.holder), None, msgspec.json.encode(one).decode())
            assert [one.holder for one in await view_survivors(watch.views)] == ["run-7", "claude.1"]
            ended = await view_survivors(watch.views, lambda one: replace(one, processes=()))
            assert ended == []
            with pytest.raises(Refused, match="no process 1 keeps"):
                await free(watch, 1, "grace")
            freed = await free(watch, 4242, "grace")
            assert (freed.holder, freed.freed_by) == ("claude.1", "grace")
            assert [one.holder for one in await view_survivors(watch.views)] == ["run-7"]
            events = [entry.event async for entry in watch.events()]
            assert [(event.kind, event.agent, event.data["by"]) for event in events] == [
                ("survivors_freed", "claude.1", "grace")
            ]

    asyncio.run(scene())

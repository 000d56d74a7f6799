"""What tests of durable flows are made of: a watch for one scene, and a step that tells when it ran."""

import asyncio
from collections.abc import Awaitable, Callable

import allswell

ran: list[object] = []
"""What the steps of a test were called with, cleared before each."""


def on(url: str, scene: Callable[[allswell.Watch], Awaitable[None]]) -> None:
    """Play a scene on a store; at its end everything is accounted for."""

    async def main() -> None:
        async with allswell.open(url) as watch:
            await scene(watch)
            assert await watch.unaccounted() == []

    asyncio.run(main())


@allswell.step("add")
async def add(left: int, right: int) -> int:
    """Add, and tell that it was done."""
    ran.append((left, right))
    return left + right

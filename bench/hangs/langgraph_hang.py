"""LangGraph: a node's `timeout` (async nodes only), a graph's `step_timeout` for sync ones; one run at a time."""

import asyncio
import sys
import threading
from typing import TypedDict

import stage
from langgraph.errors import NodeTimeoutError
from langgraph.graph import END, START, StateGraph

case = sys.argv[2]
SETTING = "graph.step_timeout=1 (a sync node takes no timeout)" if stage.is_sync(case) else "add_node(timeout=1)"


class State(TypedDict):
    """Nothing."""

    nothing: str


async def hang(_: State) -> dict[str, str]:
    """An async node."""
    await stage.hanging(case)
    return {}


def hang_sync(_: State) -> dict[str, str]:
    """A sync node."""
    stage.hanging_sync(case)
    return {}


def follow(_: State) -> dict[str, str]:
    """The next run's only node."""
    stage.following()
    return {}


def graph(node: object, **options: float) -> object:
    """A graph of one node."""
    built = StateGraph(State)
    built.add_node("work", node, **options)
    built.add_edge(START, "work")
    built.add_edge("work", END)
    return built.compile()


async def main() -> None:
    """One slot."""
    slot = asyncio.Semaphore(1)
    if stage.is_sync(case):
        hangs = graph(hang_sync)
        hangs.step_timeout = stage.LIMIT
    else:
        hangs = graph(hang, timeout=stage.LIMIT)
    follows = graph(follow)

    async def first() -> None:
        async with slot:
            try:
                await hangs.ainvoke({"nothing": ""})
            except (NodeTimeoutError, TimeoutError):
                stage.note("noticed")

    async def second() -> None:
        async with slot:
            await follows.ainvoke({"nothing": ""})

    await asyncio.gather(first(), second())


stage.ready()
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
stage.tell(SETTING)

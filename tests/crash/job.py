"""A flow of twenty steps that kills itself where it is told to.

Run by `test_flows.py` as `python job.py KIND URL RUN [CUT]`; KIND is async or sync, CUT is `begin`, `end` or `after`,
and a step. It says on standard output which steps it really runs, and at last the result.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import allswell

KIND, URL, RUN, *CUT = sys.argv[1:]


def say(*words: object) -> None:
    """One line; flushed, so that a kill loses nothing that was said."""
    print(*words, flush=True)  # noqa: T201 - this is how it reports


def here(*place: object) -> None:
    """Die, if this is where."""
    if " ".join(map(str, place)) == " ".join(CUT):
        os.kill(os.getpid(), signal.SIGKILL)


def work(name: str, given: object, result: object) -> None:
    """The body of every step."""
    say("ran", name, given)
    here("begin", name, given)
    here("end", name, given)
    del result


@allswell.step("plan")
async def plan(count: int) -> list[int]:
    """One."""
    work("plan", count, None)
    return list(range(count))


@allswell.step("load")
async def load(part: int) -> tuple[int, int]:
    """Five, one after another."""
    say("ran", "load", part)
    here("begin", "load", part)
    await asyncio.sleep(0)
    here("end", "load", part)
    return part, part * 10


@allswell.step("square", timeout="1m")
async def square(number: int) -> int:
    """Eight at once, ended in another order than they were begun."""
    say("ran", "square", number)
    for _ in range(9 - number):
        await asyncio.sleep(0)
    here("begin", "square", number)
    return number * number


@allswell.step("add")
async def add(numbers: Sequence[int]) -> int:
    """One."""
    work("add", len(numbers), None)
    return sum(numbers)


@allswell.step("polish", key=lambda _: None)
async def polish(total: int) -> int:
    """Five with the same key, told apart by their number."""
    work("polish", total, None)
    return total + 1


async def main() -> None:
    """All of it."""
    async with allswell.flow("job", run_id=RUN, store=URL):
        parts = await plan(5)
        here("after", "plan", 5)
        loaded = []
        for part in parts:
            loaded.append(await load(part))
            here("after", "load", part)
        squared = await asyncio.gather(*(square(number) for number in range(1, 9)))
        here("after", "square")
        total = await add([*squared, *(value for _, value in loaded)])
        here("after", "add")
        for _ in range(5):
            total = await polish(total)
        here("after", "polish")
    here("after", "flow")
    say("result", total)


@allswell.step("plan")
def plan_sync(count: int) -> list[int]:
    """One."""
    work("plan", count, None)
    return list(range(count))


@allswell.step("load", on="here")
def load_sync(part: int) -> tuple[int, int]:
    """Five, in the caller's own thread."""
    work("load", part, None)
    return part, part * 10


@allswell.step("square")
def square_sync(number: int) -> int:
    """Eight, in threads."""
    work("square", number, None)
    return number * number


@allswell.step("add")
def add_sync(numbers: Sequence[int]) -> int:
    """One."""
    work("add", len(numbers), None)
    return sum(numbers)


@allswell.step("polish", key=lambda _: None)
def polish_sync(total: int) -> int:
    """Five with the same key."""
    work("polish", total, None)
    return total + 1


def main_sync() -> None:
    """The same, in sync code."""
    with allswell.flow("job", run_id=RUN, store=URL):
        parts = plan_sync(5)
        here("after", "plan", 5)
        loaded = []
        for part in parts:
            loaded.append(load_sync(part))
            here("after", "load", part)
        squared = [square_sync(number) for number in range(1, 9)]
        here("after", "square")
        total = add_sync([*squared, *(value for _, value in loaded)])
        here("after", "add")
        for _ in range(5):
            total = polish_sync(total)
        here("after", "polish")
    here("after", "flow")
    say("result", total)


if __name__ == "__main__":
    if KIND == "async":
        asyncio.run(main())
    else:
        main_sync()

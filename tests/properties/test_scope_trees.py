"""Random trees of scopes: effective is the minimum, nothing is early, nothing inside outlives what is outside.

`ALLSWELL_TREES=100000` tries that many trees; `make test` tries 2,000. A tree is scopes in scopes, entered by `async
with` or by `run`, with sleeps in between, groups of children of both kinds, clean-up, and now and then a cancel from
outside; the order of callbacks is asyncio's own or drawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allswell.testing.loop import run as run_virtual
from allswell.testing.loop import running_loop
from allswell.timing.loops import Nursery
from allswell.timing.scopes import Scope, ScopeTimeout, abandoned, current, run, within
from tests.properties.budget import DETERMINISTIC

TREES = int(os.environ.get("ALLSWELL_TREES", "2000"))
GRACE = 5.0
TICK = 1e-6
"""Virtual time is whole microseconds: an instant that is none is met at the next."""


@dataclass
class Group:
    """Children side by side."""

    kind: str
    children: list[Node]


@dataclass
class Node:
    """One scope and what happens inside it."""

    timeout: int | None
    by: str
    catches: bool
    parts: list[int | Node | Group]
    cleanup: int
    # What happened.
    scope: Scope | None = None
    entered: float = inf
    told: list[float] = field(default_factory=list)
    ended: float = inf
    raised: tuple[ScopeTimeout, float] | None = None

    def inside(self) -> Iterator[Node]:
        for part in self.parts:
            if isinstance(part, Node):
                yield part
            elif isinstance(part, Group):
                yield from part.children

    def all(self) -> Iterator[Node]:
        yield self
        for node in self.inside():
            yield from node.all()


def draw_node(chance: random.Random, depth: int) -> Node:
    return Node(
        timeout=chance.choice([None, chance.randint(1, 40)]),
        by=chance.choice(["with", "with", "run"]),
        catches=chance.random() < 0.5,
        parts=[draw_part(chance, depth) for _ in range(chance.randint(1, 3))],
        cleanup=chance.choice([0, 0, 0, 300, 1_500]),
    )


def draw_part(chance: random.Random, depth: int) -> int | Node | Group:
    kind = chance.random()
    if depth == 0 or kind < 0.4:
        return chance.randint(1, 20_000)
    if kind < 0.8:
        return draw_node(chance, depth - 1)
    children = [draw_node(chance, depth - 1) for _ in range(chance.randint(1, 3))]
    return Group(chance.choice(["nursery", "taskgroup"]), children)


def now() -> float:
    return running_loop().time()


async def live(node: Node) -> None:
    """Do what a node says, and note what happens."""
    scope = node.scope = within(node.timeout)

    async def body() -> None:
        node.entered = now()
        try:
            try:
                for part in node.parts:
                    await take(part)
            finally:
                if node.cleanup:
                    await asyncio.sleep(node.cleanup / 1e6)
        except asyncio.CancelledError:
            node.told.append(now())
            raise
        finally:
            node.ended = now()

    try:
        if node.by == "run":
            await run(scope, body)
        else:
            async with scope:
                await body()
    except ScopeTimeout as error:
        if node.raised is None and error.scope is scope:
            node.raised = (error, now())
        if not node.catches:
            raise


async def take(part: int | Node | Group) -> None:
    if isinstance(part, int):
        await asyncio.sleep(part / 1e6)
    elif isinstance(part, Node):
        await live(part)
    elif part.kind == "nursery":
        async with Nursery() as nursery:
            for child in part.children:
                nursery.start(alone(child))
    else:
        async with asyncio.TaskGroup() as group:
            for child in part.children:
                group.create_task(alone(child))


async def alone(node: Node) -> None:
    """A child of a group: its own timeout must not end its siblings."""
    with contextlib.suppress(ScopeTimeout):
        await live(node)


# --- what must hold ---------------------------------------------------------------------------------------------------


def check(node: Node, outer: float, cancelled: float) -> None:
    """Hold a node, and all that is inside it, against the rules; `outer` is the least deadline around it."""
    if node.entered == inf:
        return  # it was never begun
    scope = node.scope
    assert scope is not None
    own = inf if node.timeout is None else node.entered + node.timeout / 1_000
    # Effective = min(own, remaining of every outer scope), to the last bit.
    assert scope.deadline == min(own, outer)
    # Never early: nobody was told to stop before a deadline around him, or the cancel from outside, had come.
    assert all(told >= min(scope.deadline, cancelled) for told in node.told)
    # Never late, but for what the clean-up inside takes.
    cleanups = sum(inside.cleanup for inside in node.all()) / 1e6
    assert node.ended <= max(scope.deadline + cleanups, node.entered + cleanups) + 2 * TICK
    if node.raised is not None:
        error, at = node.raised
        assert at >= scope.deadline
        # The outermost that has expired is the one that says so.
        assert error.scope is scope
        around = scope.outer
        while around is not None:
            assert around.expiry is None or around.expiry.number > scope.expiry.number  # type: ignore[union-attr]
            around = around.outer
    for inside in node.inside():
        check(inside, scope.deadline, cancelled)
        assert inside.entered == inf or inside.ended <= node.ended  # no child outlives its parent


def try_tree(chance: random.Random) -> None:
    """Draw a tree, live it, and hold it against the rules."""
    tree = draw_node(chance, 3)
    seed = chance.choice([None, chance.randrange(10)])
    cancel = chance.choice([None, None, chance.randint(1, 60_000) / 1e6])

    async def host() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await live(tree)
        finally:
            assert current() is None
            # Every scope took back its own cancels, and no other.
            assert task.cancelling() == (0 if cancel is None or now() < cancel else task.cancelling() and 1)

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(host())
        if cancel is not None:
            await asyncio.sleep(cancel)
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            assert cancel is not None
        except ScopeTimeout:
            pass
        assert abandoned() == ()

    run_virtual(main(), seed=seed, max_steps=100_000)
    check(tree, inf, inf if cancel is None else cancel)


@pytest.mark.row("F2", "F3")
@pytest.mark.timeout(3_600)
def test_many_trees_keep_the_rules() -> None:
    for number in range(TREES):
        try:
            try_tree(random.Random(number))
        except BaseException as error:
            error.add_note(f"the tree of random.Random({number})")
            raise


@pytest.mark.row("F2", "F3")
@settings(DETERMINISTIC, max_examples=100)
@given(st.randoms(use_true_random=False))
def test_a_tree_keeps_the_rules(chance: random.Random) -> None:
    """The same with trees that Hypothesis draws, who makes what fails as small as it can."""
    try_tree(chance)


# --- bodies that do not obey ------------------------------------------------------------------------------------------


@pytest.mark.row("F2")
@DETERMINISTIC
@given(
    limits=st.lists(st.integers(1, 8_000), min_size=1, max_size=5),
    deaf=st.integers(0, 40_000),
    seed=st.one_of(st.none(), st.integers(0, 9)),
    cancel=st.one_of(st.none(), st.integers(1, 8_000)),
)
@example(limits=[2_000], deaf=40_000, seed=None, cancel=1_000)
def test_a_call_comes_back_whatever_its_body_does(
    limits: list[int], deaf: int, seed: int | None, cancel: int | None
) -> None:
    back: dict[int, float] = {}

    async def level(depth: int) -> None:
        if depth < len(limits):
            try:
                await run(within(limits[depth]), level, depth + 1)
            finally:
                back[depth] = now()
            return
        until = now() + deaf / 1_000
        while now() < until:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(until - now())

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(level(0))
        if cancel is not None:
            await asyncio.sleep(cancel / 1_000)
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ScopeTimeout):
            await task
        least = limits[0] if cancel is None or back[0] < cancel / 1_000 else min(limits[0], cancel)
        assert back[0] <= least / 1_000 + GRACE + len(limits) * TICK
        assert [depth for depth in back if depth and back[depth] > back[depth - 1]] == []
        await asyncio.sleep(60)
        assert abandoned() == ()

    run_virtual(main(), seed=seed, max_steps=100_000)

"""A capability adds a command with a rule, and the engine is not edited: what it locks and reads, its rule says."""

import asyncio
import contextlib
import gc
from unittest.mock import patch

import pytest

from allswell.domain.ids import RunId, TaskId
from allswell.domain.rules.command import Command
from allswell.domain.rules.decide import RULES
from allswell.domain.rules.rule import Decision, ReadSet, RowSearch, RowSnapshot, Rule
from allswell.domain.task.aggregate import TaskChange, end_task, event
from allswell.domain.task.model import State
from allswell.errors import Bug, Refused
from tests.engine.stage import Stage, play


class SkipRest(Command, frozen=True, gc=False):
    """Skip whatever is still open in a run, all or none: nothing of it may be held."""

    run: RunId


def skip_rest(situation: RowSnapshot, command: SkipRest) -> Decision:
    outcomes = []
    for id_ in situation.found[still_open(command)]:
        case = situation.case(TaskId(id_))
        if case.lease is not None:
            raise Refused("held", f"{case.task.name} is held by {case.lease.agent}", where="run")
        out = TaskChange(case)
        end_task(out, State.SKIPPED, "not needed any more", situation.now)
        out.events.append(event(case.task, "task_skipped", reason="not needed any more"))
        outcomes.append(out)
    return Decision(len(outcomes), outcomes=outcomes)


def still_open(command: SkipRest) -> RowSearch:
    return RowSearch("open", command.run, limit=100)


RULE = Rule(
    SkipRest,
    skip_rest,
    lambda command: ReadSet(runs_shared=(command.run,), searches=(still_open(command),)),
    lambda command, found: ReadSet(held=[*map(TaskId, found[still_open(command)])]),
)


def test_a_command_is_carried_by_its_rule_alone() -> None:
    """It looks, locks, reads, is decided, written and told; a refused one leaves everything as it was."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        do = watch._engine.do
        run = await watch.open_run("build")
        for name in ("first", "second", "third"):
            await watch.submit(name, run=run)
        lease = await watch.claim(agent="bob")
        assert lease is not None
        before = stage.contents()
        with pytest.raises(Refused, match="first is held by bob"):
            await do(SkipRest(RunId(run)))
        assert stage.contents() == before
        await lease.complete()
        skipped, _ = await asyncio.gather(do(SkipRest(RunId(run))), watch.submit("alone"))  # in one batch
        assert skipped == 2
        assert await watch.counts() == {"done": 1, "skipped": 2, "ready": 1}
        assert len(await stage.told("task_skipped")) == 2

    with patch.dict(RULES, {SkipRest: RULE}):
        play(scene)


def test_a_command_without_a_rule_is_our_mistake_and_harms_no_other() -> None:
    async def scene(stage: Stage) -> None:
        without, other = await asyncio.gather(
            stage.watch._engine.do(SkipRest(RunId("r_x"))), stage.watch.submit("fine"), return_exceptions=True
        )
        assert isinstance(without, Bug)
        assert "no rule for SkipRest" in str(without)
        assert isinstance(other, str)

    play(scene)


def test_a_refused_command_leaves_nothing_behind() -> None:
    """Not even in memory: an error leads back by its traceback to what was decided on, which must be let go."""

    async def scene(stage: Stage) -> None:
        for _ in range(20):
            with contextlib.suppress(Refused):
                await stage.watch.cancel("t_nobody")
        gc.collect()
        assert sum(isinstance(thing, RowSnapshot) for thing in gc.get_objects()) <= 1

    play(scene)

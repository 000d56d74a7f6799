"""The stage itself: what it holds every commit of these tests to would be noticed if it were broken."""

from pathlib import Path

import pytest

import allswell
from allswell.domain.ids import Millis, TaskId
from allswell.domain.rules.event import KINDS, Event
from allswell.domain.task.model import OPEN, Spec, Task, TaskHistory
from allswell.store.port import RowChanges, Transaction
from tests.engine.stage import Stage, check_event, play


def test_an_event_that_is_not_as_the_catalogue_says_is_noticed() -> None:
    assert check_event(Event("task_submitted", data={"name": "a"})) == []
    assert check_event(Event("task_submitted")) == ["task_submitted has [], not ['name']"]
    assert check_event(Event("task_submitted", data={"name": "a", "more": 1})) != []
    assert check_event(Event("task_sung")) == ["task_sung is not in the catalogue"]


def test_a_task_that_nothing_will_ever_move_is_noticed() -> None:
    async def scene(stage: Stage) -> None:
        async def forget(tx: Transaction) -> None:
            task = Task(TaskId("t_a"), "a", None, "", 1, 0, OPEN, Millis(1), None, Spec(), TaskHistory(), 0)
            await tx.write(RowChanges(new_tasks=[(task, "null")], at=await tx.now()))

        await stage.store.transact(forget)

    with pytest.raises(AssertionError, match="t_a would hang silently"):
        play(scene)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_the_catalogue_is_told_somewhere(kind: str) -> None:
    source = Path(allswell.__file__).parent
    told = [path for path in source.rglob("*.py") if f'"{kind}"' in path.read_text() and path.name != "event.py"]
    assert told

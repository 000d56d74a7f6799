"""Dependency cycles are found whatever their length, and named with every member."""

import pytest

from allswell.domain.ids import TaskId
from allswell.domain.task.submit import check_needs, describe_cycle, find_cycle
from allswell.errors import Refused
from tests.domain.life import new


def ring(size: int) -> dict[str, list[str]]:
    return {f"n{i:04}": [f"n{(i + 1) % size:04}"] for i in range(size)}


@pytest.mark.row("C4")
@pytest.mark.parametrize("size", [1, 2, 3, 10, 5_000])
def test_a_cycle_of_any_length_is_found_whole(size: int) -> None:
    assert find_cycle(ring(size)) == sorted(ring(size))


@pytest.mark.row("C4")
def test_a_cycle_is_found_behind_other_tasks() -> None:
    assert find_cycle({"a": ["b"], "b": ["c", "d"], "c": [], "d": ["b"]}) == ["b", "d"]


@pytest.mark.parametrize(
    "needs",
    [
        {},
        {"a": []},
        {"a": ["elsewhere"]},
        {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []},
        {f"n{i:05}": [f"n{i + 1:05}"] for i in range(10_000)},
    ],
    ids=["nothing", "alone", "a leaf outside", "a diamond", "a chain of 10,000"],
)
def test_what_is_no_cycle_is_not_taken_for_one(needs: dict[str, list[str]]) -> None:
    assert find_cycle(needs) is None


@pytest.mark.row("C4")
@pytest.mark.parametrize(
    "members, named",
    [("A", "A -> A"), ("AB", "A <-> B"), ("ABC", "A -> B -> C -> A"), ("ABCD", "A -> B -> C -> D -> A")],
)
def test_a_cycle_is_refused_in_the_seeds_words(members: str, named: str) -> None:
    tasks = [
        new(f"t_{one.lower()}", needs=(TaskId(f"t_{other.lower()}"),))
        for one, other in zip(members, members[1:] + members[0], strict=True)
    ]
    with pytest.raises(Refused) as caught:
        check_needs(tasks)
    assert caught.value.code == "cycle"
    assert caught.value.message == f"dependency cycle detected: {named}"
    assert describe_cycle(list(members)) == named


def test_an_id_given_twice_is_refused() -> None:
    with pytest.raises(Refused, match="have the same id t_a") as caught:
        check_needs([new("t_a", name="one"), new("t_a", name="two")])
    assert caught.value.code == "duplicate_id"

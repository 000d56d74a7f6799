"""What is wrong with a submission is found before anything is written."""

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, Millis, RunId, TaskId
from allswell.domain.run.run import Run
from allswell.domain.task.aggregate import state
from allswell.domain.task.model import Policy, State
from allswell.domain.task.submit import accept, check_run, check_task, digest
from allswell.errors import Refused
from tests.domain.life import MINUTE, START, Life, at, new, opened

A, NEED = TaskId("t_a"), TaskId("t_need")


@pytest.mark.parametrize(
    "fields, code, words",
    [
        ({"id_": "a"}, "bad_id", "starts with 't_'"),
        ({"id_": "t_"}, "bad_id", "starts with 't_'"),
        ({"id_": "t_" + "x" * 63}, "bad_id", "at most 64"),
        ({"id_": "t_a\n"}, "bad_id", "starts with 't_'"),
        ({"name": ""}, "bad_name", "must not be empty"),
        ({"name": " \t"}, "bad_name", "must not be empty"),
        ({"name": "a\x00b"}, "bad_name", "control character U+0000 at position 1"),
        ({"name": "a\x1b[31m"}, "bad_name", "control character U+001B at position 1"),
        ({"name": "a\u202eb"}, "bad_name", "control character U+202E at position 1"),
        ({"name": "\ud800"}, "bad_name", "control character U+D800 at position 0"),
        ({"name": "x" * 201}, "bad_name", "201 characters; at most 200"),
        ({"role": "a\n"}, "bad_name", "role of A"),
        ({"services": ("a\n",)}, "bad_name", "service of A"),
        ({"barred": (AgentId("a\n"),)}, "bad_name", "barred agent of A"),
        ({"priority": -1}, "bad_priority", "priority of A is -1; it must be 0 to 1000000"),
        ({"priority": 1_000_001}, "bad_priority", "it must be 0 to 1000000"),
        ({"payload": '"' + "x" * (1 << 20) + '"'}, "too_large", "payload of A is larger than 1048576 bytes"),
        ({"payload": "é" * (1 << 19) + "x"}, "too_large", "larger than 1048576 bytes"),
        ({"payload": '"\ud800"'}, "bad_text", "lone surrogate"),
        ({"needs": tuple(TaskId(f"t_{i}") for i in range(1_001))}, "too_many_needs", "at most 1000"),
        ({"policy": Policy(timeout=0)}, "bad_policy", "timeout (0 ms) must be positive"),
        ({"not_before": Millis(-1)}, "bad_time", "not_before of A is -1"),
        ({"not_before": Millis(START * 1_000)}, "bad_time", "must be milliseconds since 1970"),
    ],
)
def test_a_task_that_cannot_be_is_refused_by_name(fields: dict[str, object], code: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        check_task(new(**fields))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "übersetze 章 👍"},
        {"name": "x" * 200},
        {"priority": 1_000_000},
        {"payload": f'"{"x" * ((1 << 20) - 2)}"'},
        {"id_": "t_" + "x" * 62},
    ],
)
def test_the_edge_of_what_can_be_is_accepted(fields: dict[str, object]) -> None:
    check_task(new(**fields))  # type: ignore[arg-type]


def test_a_new_task_is_ready_at_once() -> None:
    out = accept(new(), 1, None, {}, {A: False}, START)
    assert state(out.case) is State.READY
    assert [(event.kind, dict(event.data)) for event in out.events] == [("task_submitted", {"name": "A"})]


def test_one_with_a_not_before_waits_for_its_moment() -> None:
    life = Life(not_before=at(10))
    assert (life.stands(), life.case.due) == (State.DELAYED, at(10))
    life.tick(at(9))
    assert life.stands() is State.DELAYED
    life.tick(at(10))
    assert life.stands() is State.READY
    assert life.told("task_ready")[0].data == {"reason": "its time has come"}


def test_a_need_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Refused, match="A needs t_need, which does not exist"):
        accept(new(needs=(NEED,)), 1, None, {}, {A: False}, START)


def test_a_need_that_is_open_or_submitted_together_is_waited_for() -> None:
    needed = {NEED: opened(id_="t_need").task}
    for out in (
        accept(new(needs=(NEED, NEED)), 1, None, needed, {A: False}, START),
        accept(new(needs=(NEED,)), 1, None, {}, {A: False, NEED: True}, START),
    ):
        assert state(out.case) is State.WAITING
        assert [wait.target for wait in out.case.waits] == [NEED]


@pytest.mark.parametrize("ended", ["done", "failed", "cancelled", "skipped"])
@pytest.mark.parametrize("if_need_fails", ["skip", "run"])
def test_a_need_that_has_ended_counts_at_once(ended: str, if_need_fails: str) -> None:
    life = Life(id_="t_need")
    life.claim("bob", at(0))
    life.complete(at(1))
    other = replace(life.case.task, state=ended)
    out = accept(new(needs=(NEED,), if_need_fails=if_need_fails), 1, None, {NEED: other}, {A: False}, at(2))
    wanted = State.READY if ended == "done" or if_need_fails == "run" else State.SKIPPED
    assert state(out.case) is wanted
    assert [event.kind for event in out.events][1:] == (["task_skipped"] if wanted is State.SKIPPED else [])


def test_a_run_that_is_unknown_or_over_takes_no_tasks() -> None:
    run = Run(RunId("r_a"), "build", START, at(30))
    check_run(run, run.id)
    with pytest.raises(Refused, match="there is no run r_b") as caught:
        check_run(None, RunId("r_b"))
    assert caught.value.code == "unknown_run"
    ended = Run(RunId("r_a"), "build", START, None, at(1), "enough")
    with pytest.raises(Refused, match=r"run r_a has ended \(enough\); open another") as caught:
        check_run(ended, ended.id)
    assert caught.value.code == "run_ended"


def test_the_print_of_a_submission_tells_it_from_others() -> None:
    keyed = new(keyed=True)
    assert digest(keyed) == digest(new(keyed=True))
    prints = {digest(new(keyed=True, **change)) for change in ({"name": "B"}, {"priority": 1}, {"payload": "1"})}
    assert len(prints | {digest(keyed)}) == 4
    assert digest(new()) == digest(new(name="B")) == ""


def test_the_time_is_given_in_milliseconds() -> None:
    assert at(1) - START == MINUTE

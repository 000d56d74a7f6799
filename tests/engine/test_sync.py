"""The face for code that is not async, on a real `memory:` store: a loop in a thread, instant all the same."""

import threading
from pathlib import Path

import pytest

import allswell
from allswell.app import store_for
from allswell.settings import load


def test_the_whole_life_of_a_task() -> None:
    with allswell.open("memory:") as watch:
        task = watch.submit("summarise", payload={"file": "notes.md"})
        lease = watch.claim(agent="bob")
        assert lease is not None
        assert (lease.name, lease.payload, lease.token) == ("summarise", {"file": "notes.md"}, 1)
        assert 899_000 < lease.remaining <= 900_000
        assert lease.checkin("half way", progress=0.5).asked is False
        lease.complete({"words": 12})
        assert watch.result(task) == {"words": 12}
        row = watch.task(task)
        assert row is not None
        assert row.task.state == "done"
        assert watch.counts() == {"done": 1}
        assert [entry.event.kind for entry in watch.events()] == [
            "task_submitted",
            "task_claimed",
            "task_checked_in",
            "task_completed",
        ]


def test_questions_runs_and_releases() -> None:
    with allswell.open("memory:") as watch:
        run = watch.open_run("build", timeout="1h")
        first, second = watch.submit_many([{"name": "a", "run": run}, {"name": "b", "run": run}])
        one, two = watch.claim_many(2, agent="bob")
        question = one.ask("Which one?")
        two.release("not now")
        assert [row.task.id for row in watch.tasks()] == [first, second]
        assert [asked.id for asked in watch.questions()] == [question]
        watch.answer(question, "reply", "the left one")
        again = watch.claim_many(2, agent="ann")
        assert [lease.notes for lease in again] == [("the left one",), ()]
        again[0].fail("bad", error_class="validation")
        watch.end_run(run, "enough")
        watch.cancel(watch.submit("c"))
        assert watch.unaccounted() == []


def test_errors_come_through_as_they_are() -> None:
    with allswell.open("memory:") as watch:
        with pytest.raises(allswell.Refused, match="there is no task t_nobody"):
            watch.cancel("t_nobody")
        watch.submit("a")
        lease = watch.claim(agent="bob")
        assert lease is not None
        lease.complete()
        with pytest.raises(allswell.LeaseLost):
            lease.complete("again")


def test_a_closed_watch_says_so_and_its_thread_is_gone() -> None:
    with allswell.open("memory:") as watch:
        watch.submit("a")
    with pytest.raises(allswell.Unavailable, match="the watch is closed"):
        watch.submit("b")
    assert "allswell" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("url", ["mysql://x", "notes.db", ":memory:"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(allswell.Refused, match="names no store; write memory:, sqlite:///path"):
        store_for(url)
    with pytest.raises(allswell.Refused, match="names no store"), allswell.open(url):
        pass


def test_the_default_store_is_found_upward_as_git_finds_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALLSWELL_STORE", raising=False)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load(below).store == f"sqlite:///{below}/.allswell/allswell.db"
    (tmp_path / ".allswell").mkdir()
    assert load(below).store == f"sqlite:///{tmp_path}/.allswell/allswell.db"
    monkeypatch.setenv("ALLSWELL_STORE", "memory:")
    assert load(below).store == "memory:"

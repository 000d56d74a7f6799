"""The public API, as type checkers see it: kept as text, the same with and without async, and without `Any`."""

import inspect
import re
import threading

import pytest

import allswell
from allswell.engine.lease import Held
from allswell.engine.sync import SyncHeld
from tests.tidy import public_api, sync_watch

LOOP = {"clock", "draw", "hold", "on_event", "on_ready", "outbox", "own_loop", "pace", "take_up", "views"}
"""What only makes sense in the watch's own loop: for guards, flows, sinks and readers that live there."""
THREAD = {"inner", "start", "stop", "wait_for"}
"""What only a watch in a thread of its own has."""
ANY = {"answer", "payload", "prepare", "result", "submit_all", "submit_many"}
"""Where payloads, results and forms of tasks go in and come out, which are whatever JSON can say."""


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    return public_api.seen()


def test_a_change_of_the_public_api_is_seen_in_review(seen: dict[str, str]) -> None:
    kept = public_api.KEPT.read_text()
    if not kept.startswith(public_api.HEAD):
        pytest.skip(f"kept as another mypy puts it: {kept.splitlines()[0]}")
    now = {f"{name}: {told}" for name, told in seen.items()}
    before = set(kept.splitlines()[1:])
    assert (now - before, before - now) == (set(), set()), "if this is meant: python -m tests.tidy.public_api"


def test_every_public_name_has_a_type(seen: dict[str, str]) -> None:
    assert set(allswell.__all__) <= set(seen)
    loose = {
        name
        for name, told in seen.items()
        if name.partition(".")[0] in public_api.CLASSES
        and re.search(r"\bAny\b", told.replace("Coroutine[Any, Any, ", "Coroutine["))
        and name.partition(".")[2] not in ANY
    }
    assert loose == set()


def members(kind: type) -> dict[str, inspect.Signature]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: inspect.signature(member) for name, member in found.items() if callable(member)}


def waited_for(text: object) -> str:
    """What an annotation of the async watch says in the sync one."""
    said = re.sub(r"\b(Lease|Held)\b", r"Sync\1", str(text))
    return said.replace("AsyncIterator", "Iterator").replace("Awaitable[None]", "None")


@pytest.mark.parametrize(
    "kind, sync, only_async, only_sync",
    [
        (allswell.Watch, allswell.SyncWatch, LOOP, THREAD),
        (Held, SyncHeld, {"completion", "new_command", "repeat"}, set[str]()),
    ],
)
def test_code_that_is_not_async_has_the_same_calls(
    kind: type, sync: type, only_async: set[str], only_sync: set[str]
) -> None:
    there, here = members(kind), members(sync)
    assert set(there) - set(here) <= only_async
    assert set(here) - set(there) <= only_sync
    for name in set(there) & set(here):
        one, other = there[name], here[name]
        assert waited_for(one.return_annotation) == str(other.return_annotation), name
        expected = [(p.name, p.kind, p.default, waited_for(p.annotation)) for p in one.parameters.values()]
        assert [(p.name, p.kind, p.default, str(p.annotation)) for p in other.parameters.values()] == expected, name


def test_the_watch_for_code_that_is_not_async_is_current() -> None:
    assert sync_watch.KEPT.read_text() == sync_watch.generate(), "write it anew: python -m tests.tidy.sync_watch"


def test_a_program_without_async_reads_speaks_for_others_and_follows() -> None:
    with allswell.open("memory:") as watch:
        run = watch.open_run("night")
        made = watch.prepare([{"name": "a", "run": run, "payload": {"n": 1}}, {"name": "b", "needs": ["a"]}])
        watch.submit_prepared(made)
        told: list[str] = []
        watch.submit_all([{"name": "c", "run": "night"}], told=told.extend)
        (lease,) = watch.claim_many(1, agent="ada", roles=None)
        assert (lease.role, lease.run, lease.attempt, lease.payload_as(dict[str, int])) == ("", run, 1, {"n": 1})
        assert watch.payload(lease.task) == {"n": 1}
        speaker = watch.held(lease.task, lease.token, lease.agent)
        speaker.keep("r-1", "done")
        question = speaker.ask("Which?", hold=True)
        assert watch.question(question) == speaker.question(question)
        watch.checkin_many([lease])
        assert watch.complete_many([(lease, None)]) == [None]
        assert lease.past() is not None
        assert watch.sweep_once() in (True, False)
        seen = watch.events(follow=True)
        assert next(seen).event.kind == "run_opened"
        followed = threading.Event()
        watch.follow("a sync one", lambda entries: followed.set() if entries else None)
        assert followed.wait(30)
        kinds = [entry.event.kind for entry in watch.events()]
        assert kinds.count("task_submitted") == 3
        assert {row.run for row in (one.task for one in watch.tasks()) if row.name == "c"} == {run}
        shown = watch.run(run)
        assert shown is not None
        assert watch.runs() == [shown]
        assert watch.now() >= shown.created_at

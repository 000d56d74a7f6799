"""A watch over the network is a watch: leases, waits, errors and the command line, through a real server with a key."""

import asyncio
import json
import signal
import threading
from pathlib import Path

import pytest

import allswell
from allswell.app import Opening
from allswell.domain.access.key import secret_of
from allswell.domain.access.rights import LOOKS
from allswell.domain.agents.cost import Expense, from_usd
from allswell.domain.lease.claim import Granted
from allswell.domain.rules.query import QUERIES
from allswell.domain.task.model import TaskFilter
from allswell.engine.backend import Backend, Records
from allswell.engine.timings import Timings
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.remote import wire
from allswell.remote.backend import RemoteBackend, RemoteRecords
from allswell.remote.discovery import key_from
from tests.interfaces.cli.upkeep import run
from tests.interfaces.http.served import Served, make_keys, started
from tests.patience import SECONDS


def opened(served: Served, key: str, monkeypatch: pytest.MonkeyPatch) -> Opening:
    monkeypatch.setenv("ALLSWELL_KEY", served.keys[key])
    return allswell.open(served.url)


def test_what_travels_is_whatever_there_is() -> None:
    """A new command or view is there on both sides, with types that can be read back."""
    assert set(wire.CALLS) == {*QUERIES, "swap", "revise"}
    assert set(QUERIES.values()) == set(LOOKS)
    backend, records = RemoteBackend, RemoteRecords
    assert issubclass(backend, object)
    missing = [name for name in dir(Backend) if not name.startswith("_") and not hasattr(backend, name)]
    assert set(missing) <= {"store", "pace", "clock", "ready", "journal"}, missing
    assert not [name for name in dir(Records) if not name.startswith("_") and not hasattr(records, name)]


def test_a_holders_day_over_the_network(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted, waited for, claimed with a lease that is renewed, asked, answered, done; a late word is refused."""

    async def agent(watch: Watch, ids: list[str]) -> None:
        lease = await watch.claim(agent="ada", roles=["test"], wait="30s", lease=2_000)
        assert lease is not None
        ids.append(lease.task)
        assert 0 < lease.remaining <= 2_000
        assert lease.payload == {"n": 1}
        orders = await lease.checkin("half", progress=0.5)
        assert orders.remaining_ms is not None
        assert orders.remaining_ms > 0
        asked = await lease.ask("May I?", hold=True)
        while (question := await lease.question(asked)) is None or question.closed_at is None:
            await asyncio.sleep(0.05)
        assert question.answer == "you may"
        await lease.complete({"done": True})
        with pytest.raises(LeaseLost, match="completed"):
            await watch.held(lease.task, lease.token, "ada").checkin("late")
        with pytest.raises(Refused, match="may not"):
            await watch.submit("not mine to give")
        with pytest.raises(Refused, match="not for 'bob'"):
            await watch.claim(agent="bob")

    async def scene() -> None:
        ids: list[str] = []
        async with opened(served, "ada", monkeypatch) as ada, opened(served, "operator", monkeypatch) as mia:
            working = asyncio.ensure_future(agent(ada, ids))
            await asyncio.sleep(0.3)  # so that the claim waits
            task = await mia.submit("over the network", payload={"n": 1}, role="test")
            while not (questions := [one for one in await mia.questions() if one.task == task]):
                await asyncio.sleep(0.05)
            await mia.answer(questions[0].id, "reply", "you may", by="mia")
            await working
            assert ids == [task]
            assert await mia.result(task) == {"done": True}
            assert [one.outcome for one in await mia.attempts(task)] == ["done"]
            told = [entry.event async for entry in mia.events() if entry.event.task == task]
            assert {event.data.get("key") for event in told} == {"operator", "ada"}

    asyncio.run(scene())


def test_a_claim_that_is_given_up_takes_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with opened(served, "ada", monkeypatch) as ada, opened(served, "operator", monkeypatch) as mia:
            waiting = asyncio.ensure_future(ada.claim(agent="ada", roles=["test"], wait="40s"))
            await asyncio.sleep(0.3)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            task = await mia.submit("for somebody else", role="test")
            lease = await ada.claim(agent="ada", task=task, wait="10s")
            assert lease is not None
            await lease.complete()

    asyncio.run(scene())


def test_sync_code_has_it_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(served, "admin", monkeypatch) as watch:
        (first, second) = watch.submit_many(
            [{"name": "a", "role": "sync"}, {"name": "b", "role": "sync", "needs": ["a"]}]
        )
        lease = watch.claim(agent="anybody", roles=["sync"])
        assert lease is not None
        assert lease.task == first
        lease.complete(1)
        assert [row.task.id for row in watch.tasks(TaskFilter(ids=(first, second)))] == sorted([first, second])
        watch.cancel(second, "enough")


def test_a_key_comes_from_a_file_of_ones_own_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    key = f"awk_ada_{secret_of(bytes(32))}"
    file.write_text(f"{key}\n")
    file.chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        key_from({"ALLSWELL_KEY_FILE": str(file)})
    file.chmod(0o600)
    assert key_from({"ALLSWELL_KEY_FILE": str(file)}) == key
    assert key_from({"ALLSWELL_KEY": key, "ALLSWELL_KEY_FILE": "/nowhere"}) == key
    for environ in ({}, {"ALLSWELL_KEY": "nonsense"}, {"ALLSWELL_KEY_FILE": str(tmp_path / "none")}):
        with pytest.raises(Refused):
            key_from(environ)


@pytest.mark.parametrize(
    "url, told",
    [
        ("http://watch.example.org:8420", "in the open"),
        ("https://user:pw@watch.example.org", "no name, password"),
        ("https://", "names no server"),
        ("http+unix://host/x.sock", "http\\+unix:///"),
    ],
)
def test_a_key_is_not_sent_in_the_open(url: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLSWELL_KEY", f"awk_ada_{secret_of(bytes(32))}")
    with pytest.raises(Refused, match=told), allswell.open(url):
        pass


def typed(served: Served, key: str, *words: str, code: int = 0, folder: Path | None = None) -> str:
    """A command at the server's store, in a process of its own."""
    env = {"ALLSWELL_KEY": served.keys[key], "ALLSWELL_STORE": served.url}
    said = run(*words, cwd=folder or Path.cwd(), **env)
    assert said.code == code, (words, said)
    return said.out


def test_a_fleet_is_joined_with_a_key(served: Served, tmp_path: Path) -> None:
    """`allswell work` at a server's URL: with an agent's key it runs what it claims, and others' tasks stay others'."""
    task = typed(served, "operator", "submit", "by key", "--role", "build", "--payload", '{"n": 2}').strip()
    hidden = typed(served, "operator", "submit", "not by this key", "--role", "deploy").strip()
    work = ("work", "--agent", "ada", "--role", "build", "--drain", "--", "sh", "-c", "true")
    typed(served, "ada", *work, folder=tmp_path)
    shown = json.loads(typed(served, "viewer", "show", task, "--json"))
    assert (shown["task"]["state"], shown["attempts"][0]["agent_id"]) == ("done", "work:ada")
    assert json.loads(typed(served, "viewer", "why", hidden, "--json"))["state"] == "ready"
    assert "not by this key" in typed(served, "viewer", "tasks")
    assert "work:ada finished it" in typed(served, "viewer", "events", "--task", task)
    assert "Refused" not in typed(served, "viewer", "tasks", "--json")
    refused = json.loads(typed(served, "viewer", "cancel", hidden, "--json", code=2))
    assert refused["error"]["code"] == "not_allowed"


def test_a_server_that_was_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill -9 under a holder: its calls wait for the server to come back, and count once."""
    store = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    monkeypatch.setenv("ALLSWELL_KEY", asyncio.run(make_keys(store))["admin"])

    async def work(url: str, kill: threading.Event, back: threading.Event) -> list[Granted]:
        done = []
        async with allswell.open(url) as watch:
            ids = await watch.submit_many([{"name": f"n{number}"} for number in range(20)])
            for number in range(20):
                if number == 7:
                    kill.set()
                lease = await watch.claim(agent="anybody", wait="5s")
                assert lease is not None
                await lease.complete(number)
                done.append(lease.granted)
            assert back.is_set()
            assert sorted(one.task.id for one in done) == sorted(ids)
            rows = await watch.tasks(TaskFilter(ids=tuple(ids)))
            assert {row.task.state for row in rows} == {"done"}
        return done

    with started(tmp_path, store, "--listen", "127.0.0.1:0") as (process, url):
        port = url.rpartition(":")[2]
        kill, back = threading.Event(), threading.Event()

        def restart() -> None:
            kill.wait(SECONDS)
            process.send_signal(signal.SIGKILL)
            process.wait()
            back.set()
            with started(tmp_path, store, "--listen", f"127.0.0.1:{port}"):
                over.wait(SECONDS)

        over = threading.Event()
        thread = threading.Thread(target=restart)
        thread.start()
        try:
            done = asyncio.run(work(url, kill, back))
        finally:
            kill.set()
            over.set()
            thread.join()
    assert len({one.task.id for one in done}) == 20


@pytest.mark.row("M2")
def test_agents_with_keys_ask_each_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, as everybody is known who has a key; a name that nobody has is refused by the server, which knows."""
    served.ok("POST", "/tasks", {"tasks": [{"name": "asks", "role": "test"}]})

    async def day() -> None:
        async with opened(served, "ada", monkeypatch) as ada, opened(served, "bob", monkeypatch) as bob:
            lease = await ada.claim(agent="ada", roles=["test"], wait="30s")
            assert lease is not None
            sent = await lease.send_request("bob", "handoff", "what is it?")
            (item,) = await bob.inbox("bob", wait="30s")
            assert item.request_id == sent
            await bob.respond(sent, "that", agent="bob")
            assert (await lease.wait_for(sent)).answer == "that"
            with pytest.raises(Refused, match="no agent is called 'bbo'"):
                await lease.send_request("bbo", "handoff", "?")
            await lease.complete()

    asyncio.run(day())


def test_nobody_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLSWELL_KEY", f"awk_ada_{secret_of(bytes(32))}")
    pace = Timings(store_patience=0.2)
    with pytest.raises(Unavailable, match="cannot be reached"), allswell.open("http://127.0.0.1:9", pace=pace):
        pass


def test_who_works_elsewhere_does_not_say_of_its_own_work_that_it_was_verified(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, and what it brought is kept; an operator's verdict counts, with what it brought."""

    async def scene() -> None:
        async with opened(served, "ada", monkeypatch) as ada, opened(served, "operator", monkeypatch) as mia:
            task = await mia.submit("prove it", role="test", verify="make test")
            lease = await ada.claim(agent="ada", task=task, wait="10s")
            assert lease is not None
            with pytest.raises(Refused, match="once `make test` has passed; what you brought is kept") as refused:
                await lease.complete({"pages": 3}, command="done")
            assert refused.value.code == "needs_verification"
            with pytest.raises(Refused, match="may not verify work, or name what does"):
                await lease.verified(passed=True, why="exit code 0")
            followed = await mia.held(task, lease.token, "ada").verified(passed=True, why="exit code 0", by="mia")
            assert (followed.follows.value, followed.failed, followed.most) == ("accept", 0, 3)
            assert await mia.result(task) == {"pages": 3}
            await lease.complete({"pages": 3}, command="done")  # said again, as the refusal has it
            told = [entry.event async for entry in mia.events() if entry.event.task == task]
            (verdict,) = [event for event in told if event.kind == "task_verified"]
            assert (verdict.data["by"], verdict.data["key"]) == ("mia (key operator)", "operator")
        async with opened(served, "warden", monkeypatch) as supervisor, opened(served, "operator", monkeypatch) as mia:
            task = await mia.submit("prove that", role="test", verify="make test")
            lease = await supervisor.claim(agent="warden.1", task=task, wait="10s")
            assert lease is not None
            await lease.verified(passed=True, why="exit code 0", result=3)
            assert await mia.result(task) == 3
        async with opened(served, "submitter", monkeypatch) as sam:
            with pytest.raises(Refused, match="may not verify work, or name what does"):
                await sam.submit("run this for me", verify="rm -rf /")

    asyncio.run(scene())


def test_what_is_spent_elsewhere_is_held_to_a_runs_limit_here(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor elsewhere sees no sums of others; the server, which does, shuts what has cost what it may."""

    async def scene() -> None:
        async with opened(served, "warden", monkeypatch) as warden, opened(served, "operator", monkeypatch) as mia:
            async with allswell.open(served.store) as here:
                run = await here.open_run("dear", max_cost_usd=1.0)
            task = await mia.submit("paint", role="test", run=run)
            lease = await warden.claim(agent="warden.1", task=task, wait="10s")
            assert lease is not None
            await lease.spend(Expense(from_usd(1.5)))
            (asked,) = [one for one in await mia.questions() if one.kind == "budget_reached"]
            assert "The run dear has cost $1.50, and may cost $1.00." in asked.text
            await lease.complete()
            await mia.answer(asked.id, "go_on")

    asyncio.run(scene())


def test_an_answer_that_was_cut_off_is_no_answer() -> None:
    """A server that is killed while it answers: what it had said by then was taken for an answer of another version."""
    import socket
    import threading

    from allswell.remote.connection import ConnectionPool

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as caller:
                caller.recv(65_536)
                caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{")

        server = threading.Thread(target=answer)
        server.start()
        pool = ConnectionPool(f"http://127.0.0.1:{listening.getsockname()[1]}", "")
        try:
            with pytest.raises(Unavailable, match="bytes read"):
                asyncio.run(pool.call("/x", None))
        finally:
            pool.close()
            server.join()

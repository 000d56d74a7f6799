"""Every door says the same of one and the same task, attempt, run, question and agent.

The doors are the command line (`--json`, and its text where it states the same fact), HTTP, MCP, the page, the live
screen and Python; the store is a file, a PostgreSQL, or a server that is asked from another folder.
"""

# ruff: noqa: ANN401 - JSON is whatever it is

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from allswell import Watch
from allswell.app import make_watch, store_for
from allswell.domain.agents.cost import Expense
from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.domain.receipts.receipt import Advice, Branch, Change, End, Receipt, receipt_id
from allswell.domain.task.model import SHOWN_STATES
from allswell.engine.status.live import live
from allswell.interfaces.tui.rows import in_text, read_about
from allswell.runtime.receipts import Receipts
from tests.interfaces.cli.flow_scene import git, repository
from tests.interfaces.cli.upkeep import Ran, run
from tests.interfaces.http.served import Served, serving
from tests.interfaces.http.test_mcp import connected
from tests.interfaces.web.visit import logged_in

T = TypeVar("T")
FLOW = """\
name: baking
steps:
- {id: dough, run: [sh, -c, "echo made > made.txt"], outputs: [made.txt]}
- {id: oven, needs: dough, run: [sh, -c, "test -e heated"]}
"""
SETTINGS = """\
store = "{store}"
[doctor]
disk_free = "1kB"
"""
BRANCH = "allswell/paint-the-fence"


@dataclass
class Doors:
    """One store with one story in it, and every way to look at it."""

    served: Served
    folder: Path
    """Where the command line is called: beside the store, or in another folder if the store is a server."""
    words: tuple[str, ...]
    """Which store is meant, where the folder does not say it."""
    key: str
    ids: dict[str, str] = field(default_factory=dict)

    def typed(self, *words: str) -> Ran:
        ran = run(*words, *self.words, cwd=self.folder, ALLSWELL_KEY=self.key, COLUMNS="400")
        assert ran.err == "", ran
        return Ran(ran.code, re.sub(r" --store [^ `\"]+", "", ran.out))

    def cli(self, *words: str) -> Any:
        return json.loads(self.typed(*words, "--json").out)

    def text(self, *words: str) -> str:
        return " ".join(self.typed(*words).out.split())

    def http(self, path: str, **how: Any) -> Any:
        return self.served.ok("GET", path, **how)

    def mcp(self, uri: str, key: str = "admin") -> Any:
        async def read() -> str:
            async with connected(self.served, key) as agent:
                return str((await agent.client.read_resource(uri)).contents[0].text)  # type: ignore[union-attr]

        return json.loads(asyncio.run(read()))

    def tool(self, tool: str, /, **arguments: object) -> Any:
        async def call() -> Any:
            async with connected(self.served, "admin") as agent:
                return await agent.do(tool, **arguments)

        return asyncio.run(call())

    def marked(self, path: str) -> str:
        answer = logged_in(self.served).get(path)
        assert answer.status == 200, answer.body
        return html.unescape(answer.body.decode())

    def page(self, path: str) -> str:
        return " ".join(re.sub(r"<[^>]*>", " ", self.marked(path)).split())

    def python(self, look: Callable[[Watch], Awaitable[T]]) -> T:
        async def live() -> T:
            async with make_watch(store_for(self.served.store), sweeping=False) as watch:
                return await look(watch)

        return asyncio.run(live())

    def live(self, id_: str) -> str:
        """What the live screen tells of the row of a task or a question."""

        async def look(watch: Watch) -> str:
            seen = await live(watch.views)
            (row,) = [row for row in seen.rows if row.id == id_]
            about = await read_about(watch.views, row)
            return " ".join(in_text(about, seen.now).plain.split())

        return self.python(look)


async def tell(store: str) -> dict[str, str]:
    """A task that is done on a branch, one that is held, one that asks, one that failed; all half a minute old."""
    ids: dict[str, str] = {}
    async with make_watch(store_for(store), sweeping=False) as watch:
        what = {"colour": "red"}
        ids["done"] = await watch.submit("paint the fence", payload=what, retries=1, max_cost_usd=5, priority=9)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.spend(Expense(1_250_000, 100, 20))
        await lease.release("the paint is gone")
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.spend(Expense(500_000, 10, 5))
        await lease.complete({"coats": 2})
        ids["asking"] = await watch.submit("choose a colour", priority=8)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        ids["question"] = await lease.ask("Which of the two?")
        ids["failed"] = await watch.submit("mow the lawn", retries=0, priority=7)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.fail("no such lawn")
        ids["held"] = await watch.submit("water the roses", timeout="8h", priority=6)
        lease = await watch.claim(agent="cleo", lease="1h")
        assert lease is not None
        await lease.checkin("half of them", progress=0.5)
    return ids


def leave_work(folder: Path, task: str) -> None:
    """The second attempt has left its work on a branch, in a repository beside the store."""
    base = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "checkout", "-qb", BRANCH)
    (folder / "fence.txt").write_text("red\n")
    git(folder, "add", "fence.txt")
    git(folder, "commit", "-qm", "the fence")
    commit = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "checkout", "-q", "-")
    Receipts(folder / ".allswell" / "receipts").write(
        Receipt(
            id=receipt_id(TaskId(task), 2),
            status=End.DONE,
            partial=False,
            task=TaskId(task),
            name="paint the fence",
            attempt=2,
            token=Token(2),
            agent=AgentId("bob"),
            reason="it is done",
            began_at=Millis(1_000),
            ended_at=Millis(2_000),
            elapsed_ms=Millis(1_000),
            branch=Branch(repository=str(folder), name=BRANCH, base=base, commit=commit),
            changed=(Change("A", "fence.txt"),),
            advice=Advice(look=("allswell show", f"git diff {base} {commit}"), merge=(f"git merge {BRANCH}",)),
        )
    )
    worktree = folder / ".allswell" / "worktrees" / task
    worktree.mkdir(parents=True)
    (worktree / ".git").write_text("gitdir: elsewhere\n")


def bake(folder: Path) -> str:
    """A flow whose second step fails, and which then goes on in another run; the id of the first."""
    (folder / "flow.yaml").write_text(FLOW)
    assert run("run", "flow.yaml", cwd=folder).code != 0
    first = json.loads(run("runs", "--json", cwd=folder).out)["runs"][0]["run_id"]
    (folder / "heated").touch()
    assert run("resume", first, cwd=folder).code == 0
    return str(first)


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "server"])
def doors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """The doors of a story; looking changes nothing in it."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / ".allswell").mkdir(0o700)
    repository(folder)
    store = f"sqlite:///{folder}/.allswell/allswell.db"
    if request.param == "postgresql":
        store = request.getfixturevalue("pg_databases").take()
    (folder / "allswell.toml").write_text(SETTINGS.format(store=store))
    ids = asyncio.run(tell(store))
    leave_work(folder, ids["done"])
    (folder / ".allswell" / "receipts" / f"{receipt_id(TaskId(ids['failed']), 1)}.json").write_text("torn")
    ids["run"] = bake(folder)
    with serving(folder, store=store) as served:
        if request.param == "server":
            elsewhere = tmp_path_factory.mktemp("elsewhere")
            yield Doors(served, elsewhere, ("--store", served.url), served.keys["admin"], ids)
        else:
            yield Doors(served, folder, (), "", ids)
    if request.param == "postgresql":
        request.getfixturevalue("pg_databases").give_back(store)


# --- a task and its attempts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["done", "held", "asking", "failed"])
def test_a_task(doors: Doors, name: str) -> None:
    id_ = doors.ids[name]
    shown = doors.http(f"/tasks/{id_}")
    assert doors.cli("show", id_) == shown
    assert doors.mcp(f"allswell://tasks/{id_}") == shown
    state = shown["task"]["state"]
    listed = [one for one in doors.http("/tasks?all=true")["tasks"] if one["task_id"] == id_]
    assert listed == [one for one in doors.cli("tasks", "--all")["tasks"] if one["task_id"] == id_] == [shown["task"]]
    row = doors.python(lambda watch: watch.task(id_))
    assert row is not None
    assert state == row.state == {"asking": "waiting"}.get(name, name)
    text, page = doors.text("show", id_), doors.page(f"/tasks/{id_}")
    for told in (text, page, doors.page("/tasks")):
        assert shown["task"]["name"] in told
    assert f'class="mark-of {state}"' in doors.marked(f"/tasks/{id_}")
    assert f'class="mark-of {state}"' in doors.marked(f"/tasks?text={id_}")
    for attempt in shown["attempts"]:
        for told in (text, page):
            assert attempt["agent_id"] in told
    assert f"state {state}" in text


def test_where_the_work_of_a_task_is(doors: Doors) -> None:
    id_ = doors.ids["done"]
    shown = doors.http(f"/tasks/{id_}")
    receipt = receipt_id(TaskId(id_), 2)
    assert shown["receipt_ids"] == [receipt]
    assert shown["work"]["branch"] == BRANCH
    assert shown["work"]["merged"] is False
    assert shown["work"]["receipt_id"] == receipt
    assert shown["worktree"].endswith(f"/.allswell/worktrees/{id_}")
    for told in (doors.text("show", id_), doors.text("why", id_), doors.page(f"/tasks/{id_}")):
        assert BRANCH in told
        assert "not merged" in told
    receipts = doors.http(f"/receipts?task={id_}")["receipts"]
    assert doors.cli("receipts", "--task", id_)["receipts"] == receipts
    assert doors.mcp(f"allswell://tasks/{id_}/receipts")["receipts"] == receipts
    assert doors.cli("show", receipt)["receipt"] == doors.http(f"/receipts/{receipt}")["receipt"] == receipts[0]
    assert doors.cli("recover", id_)["work"] == shown["work"]


def test_what_lies_beside_the_store_is_not_for_every_key(doors: Doors) -> None:
    """Who may not read receipts is not told of a repository on the server's machine either."""
    id_ = doors.served.ok("POST", "/tasks", {"tasks": [{"name": "mine"}]}, key="submitter")["task_ids"][0]
    leave_beside = Receipts(doors.served.folder / ".allswell" / "receipts")
    kept = leave_beside.find(receipt_id(TaskId(doors.ids["done"]), 2))
    assert kept is not None
    leave_beside.write(
        msgspec.structs.replace(kept.receipt, id=receipt_id(TaskId(id_), 1), task=TaskId(id_), attempt=1, token=1)
    )
    assert doors.http(f"/tasks/{id_}", key="viewer")["work"] is not None
    mine = doors.http(f"/tasks/{id_}", key="submitter")
    assert (mine["work"], mine["worktree"]) == (None, None)
    assert BRANCH not in json.dumps(doors.mcp(f"allswell://tasks/{id_}", key="submitter"))


def test_why(doors: Doors) -> None:
    for name in ("done", "held", "asking", "failed", "question", "run"):
        id_ = doors.ids[name]
        told = _steady(doors.http(f"/why/{id_}"))
        assert _steady(doors.cli("why", id_)) == told
        assert _steady(doors.tool("status", task=id_)) == told
        if name not in ("question", "run"):
            assert _steady(doors.mcp(f"allswell://tasks/{id_}/why")) == told
        says = told["chain"][0]["says"]
        assert says, name
        if name in ("held", "asking"):
            assert _words(says[0]) in _words(doors.live(id_))


def _steady(told: Any) -> Any:
    """An explanation without what changes from one second to the next."""
    return json.loads(_words(json.dumps({**told, "seen_at": "", "spent": ""}, ensure_ascii=False)))


def _words(text: str) -> str:
    return re.sub(r"(\d+(\.\d+)?(ms|s|m|h|d)\b ?)+", "TIME ", " ".join(text.split()))


def test_what_a_task_has_cost(doors: Doors) -> None:
    id_ = doors.ids["done"]
    shown = doors.http(f"/tasks/{id_}")
    assert (shown["spent"]["cost_usd"], shown["max_cost_usd"]) == (1.75, 5.0)
    assert [one["cost_usd"] for one in shown["attempts"]] == [1.25, 0.5]
    for told in (doors.text("show", id_), doors.page(f"/tasks/{id_}")):
        assert "$1.75 of at most $5.00, 135 tokens" in told
        assert "$1.25" in told


def test_every_door_takes_what_a_task_may_cost(doors: Doors) -> None:
    by_http = doors.served.ok("POST", "/tasks", {"tasks": [{"name": "by http", "max_cost_usd": 2.5}]})["task_ids"][0]
    by_mcp = doors.tool("submit", name="by mcp", max_cost_usd=2.5)["task_id"]
    by_cli = doors.cli("submit", "by cli", "--max-cost-usd", "2.5")["task_id"]
    for id_ in (by_http, by_mcp, by_cli):
        assert doors.http(f"/tasks/{id_}")["max_cost_usd"] == 2.5
        doors.served.ok("POST", f"/tasks/{id_}/cancel", {})
    for refused in ({"max_cost_usd": 0}, {"max_cost_usd": -1}):
        assert doors.served.call("POST", "/tasks", {"tasks": [{"name": "x", **refused}]}).status == 422


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_run_that_went_on_and_its_flow(doors: Doors) -> None:
    id_ = doors.ids["run"]
    shown = doors.http(f"/runs/{id_}")
    assert doors.cli("show", id_) == shown
    assert shown["tasks"] == {"done": 2}
    assert shown["run"]["reason"] == "done"
    next_ = shown["run"]["next_run_id"]
    assert shown["flow"]["run_ids"] == [id_, next_]
    assert [one["step_id"] for one in shown["flow"]["receipts"]] == ["dough", "oven", "oven"]
    assert doors.cli("runs") == doors.http("/runs")
    assert {one["flow_run_id"] for one in doors.http("/runs")["runs"]} == {id_}
    text, page = doors.text("show", id_), doors.page(f"/runs/{id_}")
    for told in (text, page):
        assert next_ in told
        assert "done" in told
    assert "tasks 2 done" in text
    row = doors.python(lambda watch: watch.run(RunId(id_)))
    assert row is not None
    assert row.name == shown["run"]["name"]
    assert doors.http(f"/runs/{id_}", key="viewer")["flow"] is not None


# --- a question -------------------------------------------------------------------------------------------------------


def test_a_question(doors: Doors) -> None:
    id_ = doors.ids["question"]
    listed = doors.http("/questions")
    assert listed["untold"] == [id_]
    assert doors.cli("questions") == listed
    (shown,) = listed["questions"]
    assert doors.cli("show", id_)["question"] == shown
    assert doors.http(f"/tasks/{doors.ids['asking']}")["questions"] == [shown]
    assert doors.tool("answers", ids=[id_])["questions"] == [shown]
    asked = doors.python(lambda watch: watch.question(id_))
    assert asked is not None
    for told in (
        doors.text("questions"),
        doors.text("show", id_),
        doors.page("/"),
        doors.page(f"/tasks/{doors.ids['asking']}"),
        doors.live(id_),
    ):
        assert asked.text in told
        for option in shown["options"]:
            assert option["label"] in told
            assert option["does"] in told


def test_every_door_takes_what_a_task_may_cost_with_an_answer(doors: Doors) -> None:
    """The field is known, and the option decides whether it means anything."""
    answer = {"option": "nonsense", "max_cost_usd": 3}
    refused = doors.served.call("POST", f"/questions/{doors.ids['question']}/answer", answer)
    assert refused.json["code"] == "unknown_option", refused.json


# --- agents -----------------------------------------------------------------------------------------------------------


def test_an_agent(doors: Doors) -> None:
    listed = doors.http("/agents")
    steady = [{**one, "remaining_ms": 0} for one in listed["agents"]]
    assert [{**one, "remaining_ms": 0} for one in doors.cli("agents")["agents"]] == steady
    assert doors.cli("agents")["questions"] == listed["questions"] == 1
    (cleo,) = [one for one in listed["agents"] if one["agent_id"] == "cleo"]
    assert (cleo["name"], cleo["progress"]) == ("water the roses", 0.5)
    text = doors.text("agents")
    for told in (text, doors.page("/agents"), doors.page("/agents/cleo")):
        assert "cleo" in told
        assert cleo["health"] in told
        assert "water the roses" in told


def test_the_counts_of_tasks(doors: Doors) -> None:
    """In the same order wherever they are counted."""
    counts = doors.http("/status")["counts"]
    assert doors.cli()["counts"] == counts
    order = [state for state in SHOWN_STATES if counts.get(state)]
    wanted = " ".join(f"{counts[state]} {state}" for state in order)
    assert wanted in doors.text()
    assert re.findall(r'class="count (\w+)">', doors.marked("/")) == order

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
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from allswell import Watch
from allswell.app import make_watch, store_for
from allswell.domain.agents.cost import Expense
from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.domain.question import REPLY, SKIP, SPLIT, AnswerAction, Option
from allswell.domain.receipts.receipt import Advice, Branch, Change, End, Receipt, receipt_id
from allswell.domain.run.run import Run
from allswell.domain.task.model import SHOWN_STATES, Task, TaskFilter
from allswell.engine.status.live import live
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.tui.actions import BoardActions
from allswell.interfaces.tui.rows import in_text, read_about
from allswell.runtime.receipts import Receipts
from allswell.timing.moment import millis
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

    def http_post(self, path: str, body: object) -> Any:
        return self.served.ok("POST", path, body)

    def decided(self, decide: Callable[[BoardActions, Watch], Awaitable[str]]) -> str:
        """What the live screen says of something that was decided there."""
        board = CliContext(self.served.store, json=False)
        return self.python(lambda watch: decide(BoardActions(watch, board), watch))

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
    text = " ".join(text.split()).replace("just now", "0s ago")
    return re.sub(r"(\d+(\.\d+)?(ms|s|m|h|d)\b ?)+", "TIME ", text)


def test_what_a_task_has_cost(doors: Doors) -> None:
    id_ = doors.ids["done"]
    shown = doors.http(f"/tasks/{id_}")
    assert (shown["spent"]["cost_usd"], shown["max_cost_usd"]) == (1.75, 5.0)
    assert [one["cost_usd"] for one in shown["attempts"]] == [1.25, 0.5]
    for told in (doors.text("show", id_), doors.page(f"/tasks/{id_}")):
        assert "$1.75 of at most $5.00, 135 tokens" in told
        assert "$1.25" in told


def test_every_door_takes_and_shows_how_many_tokens_a_task_may_use(doors: Doors) -> None:
    by_http = doors.served.ok("POST", "/tasks", {"tasks": [{"name": "by http", "max_tokens": 2_500}]})["task_ids"][0]
    by_mcp = doors.tool("submit", name="by mcp", max_tokens=2_500)["task_id"]
    by_cli = doors.cli("submit", "by cli", "--max-tokens", "2500")["task_id"]
    for id_ in (by_http, by_mcp, by_cli):
        assert doors.http(f"/tasks/{id_}")["max_tokens"] == 2_500
        for told in (doors.text("show", id_), doors.page(f"/tasks/{id_}")):
            assert "unknown, 0 of at most 2,500 tokens" in told
        doors.served.ok("POST", f"/tasks/{id_}/cancel", {})
    for refused in (0, -1, 10**13):
        assert doors.served.call("POST", "/tasks", {"tasks": [{"name": "x", "max_tokens": refused}]}).status == 422


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
    answer = {"option": "nonsense", "max_cost_usd": 3, "max_tokens": 300}
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


# --- what is decided --------------------------------------------------------------------------------------------------

WAYS = (Option("more", "More time", AnswerAction.INCREASE_TIMEOUT), SPLIT, SKIP, REPLY)
DOORS = ("cli", "cli --json", "http", "page", "live")


async def work_of(watch: Watch, kind: str) -> str:
    """A fresh piece of work of one kind, always under the same names; the id of what is decided about."""
    await watch.submit("dig the pond", timeout="1m", priority=99, retries=0)
    lease = await watch.claim(agent="dora", lease="1h")
    assert lease is not None
    if kind == "question":
        return await lease.ask("How deep?", WAYS)
    if kind == "failed":
        await watch.submit("fill the pond", needs=[lease.task], priority=98)
        await lease.fail("stones", error_class="validation")
        while not await watch.sweep_once():
            pass
    return str(lease.task)


@dataclass(frozen=True)
class Decision:
    """One verb of an operator, as it is typed, posted and chosen at each door."""

    about: str
    cli: tuple[str, ...]
    path: str
    body: dict[str, Any]
    form: dict[str, str]
    live: Callable[[BoardActions, Watch, str], Awaitable[str]]


async def _answer(board: BoardActions, watch: Watch, id_: str, key: str, words: str) -> str:
    question = await watch.question(id_)
    assert question is not None
    return await board.answer(question, key, words)


async def _on_task(verb: Callable[[Task], Awaitable[str]], watch: Watch, id_: str) -> str:
    row = await watch.task(id_)
    assert row is not None
    return await verb(row.task)


async def _dismiss(board: BoardActions, watch: Watch, id_: str) -> str:
    (row,) = [row for row in (await live(watch.views)).rows if row.id == id_]
    return await board.dismiss(row)


DECISIONS = {
    "answered in words": Decision(
        "question",
        ("answer", "{}", "one", "metre"),
        "/questions/{}/answer",
        {"option": "reply", "text": "one metre"},
        {"option": "reply", "words-reply": "one metre", "words-more": "1h"},
        lambda board, watch, id_: _answer(board, watch, id_, "reply", "one metre"),
    ),
    "answered with a length of time": Decision(
        "question",
        ("answer", "{}", "more", "--timeout", "90"),
        "/questions/{}/answer",
        {"option": "more", "timeout": "90s"},
        {"option": "more", "words-more": "90"},
        lambda board, watch, id_: _answer(board, watch, id_, "more", "90"),
    ),
    "answered with tasks": Decision(
        "question",
        ("answer", "{}", "split", "--subtasks", "parts.json"),
        "/questions/{}/answer",
        {"option": "split", "subtasks": [{"name": "dig"}, {"name": "dig deeper"}]},
        {"option": "split", "words-split": " dig\r\n\r\ndig deeper "},
        lambda board, watch, id_: _answer(board, watch, id_, "split", "dig; dig deeper;"),
    ),
    "answered by the end": Decision(
        "question",
        ("answer", "{}", "skip", "--yes"),
        "/questions/{}/answer",
        {"option": "skip"},
        {"option": "skip"},
        lambda board, watch, id_: _answer(board, watch, id_, "skip", ""),
    ),
    "question dismissed": Decision(
        "question",
        ("dismiss", "{}"),
        "/questions/{}/dismiss",
        {},
        {},
        _dismiss,
    ),
    "task dismissed": Decision("failed", ("dismiss", "{}"), "/tasks/{}/dismiss", {}, {}, _dismiss),
    "cancelled": Decision(
        "held",
        ("cancel", "{}"),
        "/tasks/{}/cancel",
        {},
        {"reason": " "},
        lambda board, watch, id_: _on_task(lambda task: board.cancel(task, ""), watch, id_),
    ),
    "retried": Decision(
        "failed",
        ("retry", "{}", "--with-dependents"),
        "/tasks/{}/retry",
        {"with_dependents": True},
        {"with_dependents": "on"},
        lambda board, watch, id_: _on_task(lambda task: board.retry(task, dependents=True), watch, id_),
    ),
}


@pytest.mark.parametrize("doors", ["sqlite", "server"], indirect=True)
@pytest.mark.parametrize("what", DECISIONS)
def test_what_is_decided_has_the_same_effect_and_the_same_words(doors: Doors, what: str) -> None:
    """At every door, whichever way it is typed: an empty reason, a bare number, names of tasks."""
    verb = DECISIONS[what]
    (doors.folder / "parts.json").write_text('[{"name": "dig"}, {"name": "dig deeper"}]')
    words: dict[str, str] = {}
    answers: dict[str, Any] = {}
    effects: dict[str, str] = {}
    for door in DOORS:
        id_ = doors.python(lambda watch: work_of(watch, verb.about))
        path, typed = verb.path.format(id_), [word.format(id_) for word in verb.cli]
        match door:
            case "cli":
                words[door] = doors.text(*typed).partition(" allswell why")[0]
            case "cli --json":
                answers[door] = doors.cli(*typed)
            case "http":
                answers[door] = doors.http_post(path, verb.body)
            case "page":
                answer = logged_in(doors.served, "admin").post(path, verb.form, HX_Request="true")
                assert answer.status == 200, answer.body
                words[door] = html.unescape(re.sub(r"<[^>]*>", "", answer.body.decode())).strip()
            case _:
                words[door] = doors.decided(partial(_decided, verb, id_))
        effects[door] = doors.python(partial(_effect, id_))
        doors.python(_clear)
    told, seen = {_nameless(one) for one in words.values()}, [_nameless(json.dumps(one)) for one in answers.values()]
    assert len(told) == 1, words
    assert len({re.sub(r'"dismissed_by": "[^"]+"', "", one) for one in seen}) == 1, answers
    first, *others = effects.values()
    assert all(one == first for one in others), effects


def _nameless(text: str) -> str:
    return re.sub(r"\b[tqr]_[0-9a-z]+", "ID", text)


async def _decided(verb: Decision, id_: str, board: BoardActions, watch: Watch) -> str:
    return await verb.live(board, watch, id_)


async def _effect(id_: str, watch: Watch) -> str:
    """How the task, its question, and whatever came of them stand; without ids, moments, and who decided."""
    question = await watch.question(id_) if id_.startswith("q_") else None
    task = await watch.task(id_ if question is None else question.task or "")
    assert task is not None
    kept = [row for row in await watch.tasks(TaskFilter(limit=1_000)) if row.task.created_at >= task.task.created_at]
    rows = [(row.task.name, row.state, row.task.record.reason, row.task.timeout, len(row.waits)) for row in kept]
    seen = [row.task.record.dismissed is not None for row in kept]
    closed = None if question is None else (question.choice, question.answer, question.dismissed_at is not None)
    return _nameless(str((rows, seen, closed)))


async def _clear(watch: Watch) -> None:
    """Nothing of it stays open."""
    for row in await watch.tasks(TaskFilter(open=True, limit=1_000)):
        if row.task.name in ("dig the pond", "fill the pond", "dig", "dig deeper"):
            with suppress(Refused):  # one that waited for another is skipped, perhaps by now
                await watch.cancel(row.task.id)


@pytest.mark.parametrize("doors", ["sqlite", "server"], indirect=True)
def test_a_run_is_ended_alike(doors: Doors) -> None:
    answers, reasons = [], []
    for door in ("cli", "http"):
        id_ = doors.python(lambda watch: watch.open_run("garden"))
        answer = doors.cli("cancel", id_) if door == "cli" else doors.http_post(f"/runs/{id_}/end", {})
        ended = doors.python(partial(_run_of, id_))
        answers.append(_nameless(json.dumps(answer)))
        reasons.append(ended.reason)
    assert answers[0] == answers[1]
    assert reasons == ["cancelled", "cancelled"]


async def _run_of(id_: str, watch: Watch) -> Run:
    run = await watch.run(id_)
    assert run is not None
    return run


@pytest.mark.parametrize("doors", ["sqlite"], indirect=True)
def test_a_key_is_made_and_revoked_alike(doors: Doors) -> None:
    """By the command line beside the store, and by an admin over HTTP: only who did it differs."""
    made = doors.cli("key", "create", "ci", "--right", "agent", "--role", "dig", "--expires", "2h")
    other = doors.http_post("/keys", {"name": "cd", "rights": ["agent"], "roles": ["dig"], "expires": "2h"})
    revoked, ended = doors.cli("key", "revoke", "ci"), doors.http_post("/keys/cd/revoke", {})
    for one, another in ((made["key"], other["key"]), (revoked, ended)):
        assert one.keys() == another.keys()
        for name in ("state", "rights", "roles"):
            assert one[name] == another[name], name
    assert (made["key"]["state"], revoked["state"]) == ("valid", "revoked")
    for key in (made, other):
        began, ends = (millis(key["key"][name]) for name in ("created_at", "expires_at"))
        assert ends - began == 7_200_000
    refused = doors.served.call("POST", "/keys/nobody/revoke", {}).json
    typed = run("key", "revoke", "nobody", "--json", *doors.words, cwd=doors.folder)
    assert json.loads(typed.out)["error"]["code"] == refused["code"] == "unknown_key"


@pytest.mark.parametrize("doors", ["sqlite"], indirect=True)
def test_deliveries_are_meant_alike(doors: Doors) -> None:
    """By an id or its beginning; one that is not there is refused with the same words."""
    none = doors.http_post("/deliveries/retry", {})
    assert doors.cli("deliveries", "retry") == none == {"did": "retried", "delivery_ids": []}
    refused = doors.served.call("POST", "/deliveries/drop", {"delivery_ids": ["msg_x"]}).json
    typed = run("deliveries", "drop", "msg_x", "--json", *doors.words, cwd=doors.folder)
    error = json.loads(typed.out)["error"]
    assert (error["code"], error["message"]) == (refused["code"], refused["detail"])

"""Lists on the page: tasks, agents, messages, builds, queues, the journal, settings; each from a real server."""

import asyncio
import re

import msgspec
import pytest

from allswell.app import make_watch, store_for
from allswell.domain.build.component import BuildSpec, Component
from allswell.domain.build.limits import BUILD_ROLE, COMPONENT_ROLE
from allswell.engine.status.journal import look_back
from allswell.interfaces.web.app import SCREENS
from tests.interfaces.http.served import Served
from tests.interfaces.web.scene import HOSTILE
from tests.interfaces.web.test_screens import shown, task_of
from tests.interfaces.web.visit import Visit, logged_in


@pytest.fixture(scope="module")
def operator(night: Served) -> Visit:
    return logged_in(night)


def names(text: str) -> list[str]:
    return re.findall(r'id="tl-t_\w+" href="[^"]+">([^<]*)<', text)


def test_tasks_are_found_by_state_role_text_and_run(operator: Visit, night: Served) -> None:
    text = shown(operator, "/tasks?text=THE", "Text in the name")
    assert {"write the changelog", "refactor the parser", "migrate the database"} <= set(names(text))
    assert names(shown(operator, "/tasks?state=done&run=release")) == ["build"]
    assert names(shown(operator, "/tasks?role=builder&state=held")) == ["refactor the parser"]
    assert names(shown(operator, "/tasks?run=release")) == ["publish", "audit", "test", "build"]
    assert "for test" in shown(operator, "/tasks?text=publish")
    shown(operator, "/tasks?text=no+such+thing", "No task matches")
    assert operator.get("/tasks?state=asleep").status == 400
    assert operator.get("/tasks?run=nobody").status == 404


def test_a_long_list_of_tasks_is_walked_without_a_gap(operator: Visit, night: Served) -> None:
    given = [{"name": f"one of many {number:03}", "role": "crowd"} for number in range(230)]
    made = night.ok("POST", "/tasks", {"tasks": given}, key="submitter")["task_ids"]
    path, seen = "/tasks?role=crowd", list[str]()
    while path:
        text = shown(operator, path)
        seen += names(text)
        following = re.search(r'id="page-after" rel="next" href="([^"]+)"', text)
        path = "" if following is None else following[1].replace("&amp;", "&")
    assert seen == [one["name"] for one in reversed(given)]
    for task in made:
        night.ok("POST", f"/tasks/{task}/cancel", {}, key="operator")


def test_agents_are_listed_with_their_last_proof_and_each_has_a_ledger(operator: Visit, night: Served) -> None:
    text = shown(operator, "/agents?text=codex", 'href="/agents/codex.1"', "edited lexer.py", "60%", "$0.61")
    assert "shell.1" not in text.split("<main")[1]
    shown(operator, "/agents?health=not+running", "No agent matches")
    shown(operator, "/agents/codex.1", "Its ledger", "refactor the parser", "$0.61 in all")
    shown(operator, "/agents/codex.2", "Its ledger")
    shown(operator, "/agents/nobody/at%20all", "It holds nothing now")
    assert operator.get("/agents?health=fine").status == 400


def test_the_journal_is_searched_and_read_back_to_its_beginning(operator: Visit, night: Served) -> None:
    shown(operator, "/journal?kind=task_retried", "connection reset by peer")
    task = task_of(night, "test")
    text = shown(operator, f"/journal?task={task}", "is held by shell.1", f'href="/tasks/{task}"')
    assert "refactor" not in text.split("</form>")[1]
    found = shown(operator, "/journal?text=LEXER.py")
    assert len(re.findall(r'<tr id="e-', found)) == 2
    shown(operator, "/journal?text=never+said", "No match")
    assert operator.get("/journal?kind=gossip").status == 400

    async def read_back() -> tuple[list[int], list[int]]:
        async with make_watch(store_for(night.store), sweeping=False) as watch:
            forwards = [entry.position.id async for entry in watch.events()]
            backwards: list[int] = []
            before = None
            while True:
                page = await look_back(watch.views, lambda _: True, 7, before)
                backwards += [entry.position.id for entry in page.entries if entry.position.id <= forwards[-1]]
                before = page.before
                if before is None:
                    return forwards, backwards

    forwards, backwards = asyncio.run(read_back())
    assert backwards == forwards[::-1]


def test_messages_show_whom_somebody_waits_for_first(operator: Visit, night: Served) -> None:
    async def ask() -> None:
        async with make_watch(store_for(night.store)) as watch:
            task = await watch.submit("needs a word")
            lease = await watch.claim(agent="asker", task=task)
            assert lease is not None
            came = await lease.request("oracle", "collaboration", f"Which port? {HOSTILE}", timeout=1, retries=0)
            assert came.blocked

    asyncio.run(ask())
    text = shown(operator, "/messages", "Timeout waiting for oracle", 'href="/agents/asker"')
    assert "needs a word</a> waits for <b>oracle</b>" in text
    assert text.index("waits for <b>oracle") < text.index("The communication log")
    shown(operator, "/messages?status=Sent&agent=ORACLE", "Which port?")
    shown(operator, "/agents/asker", "the target&#39;s, not its own", "the request")
    shown(operator, "/messages?status=Blocked&agent=nobody", "No message like that")


def test_a_build_shows_its_components_and_what_comes_next(operator: Visit, night: Served) -> None:
    async def begin() -> str:
        async with make_watch(store_for(night.store), sweeping=False) as watch:
            run = await watch.open_run("a build")
            parts = (Component("core"), Component("docs"), Component("ui", needs=("core",)))
            kept = msgspec.json.encode(BuildSpec("the product", parts)).decode()
            await watch.swap(f"build.{run}.spec", None, kept)
            await watch.submit("the whole product", run=run, role=BUILD_ROLE)
            core = await watch.submit("core", run=run, role=COMPONENT_ROLE)
            await watch.submit("docs", run=run, role=COMPONENT_ROLE)
            assert await watch.claim(agent="bob", task=core) is not None
            return run

    run = asyncio.run(begin())
    text = shown(operator, f"/builds/{run}", "the product", "can be claimed", "no coordinator is there")
    assert dict(re.findall(r'class="node (\w+)" aria-label="(\w+),', text)) == {
        "held": "core",
        "free": "docs",
        "waiting": "ui",
    }
    assert 'href="/agents/bob"' in text
    shown(operator, "/builds", f'href="/builds/{run}"', "bob has core")
    night.ok("POST", f"/runs/{run}/end", {}, key="operator")
    assert operator.get("/builds/r_nowhere").status == 404
    shown(operator, f"/runs/{run}", f'href="/builds/{run}"')


def test_settings_tell_where_they_come_from_and_hide_passwords(operator: Visit) -> None:
    shown(operator, "/settings", "agent_timeout", "default", "ALLSWELL_AGENT_TIMEOUT")
    assert "agent_timeout" not in shown(operator, "/settings?text=stall_threshold").split("</form>")[1]


def test_a_store_without_queues_says_what_would_be_there(operator: Visit) -> None:
    shown(operator, "/worker", "Workers handle messages of PGMQ", "None is set aside")


def test_every_screen_has_a_test() -> None:
    assert {screen.path for screen in SCREENS} == {
        *("/", "/runs", "/runs/{run}", "/tasks", "/tasks/{task}", "/tasks/{task}/log", "/tasks/{task}/diff"),
        *("/agents", "/agents/{agent:path}", "/messages", "/builds", "/builds/{run}", "/worker", "/journal"),
        "/settings",
    }

"""The page in a real browser."""

import asyncio
import os
import re
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from allswell.app import make_watch, store_for
from tests.browser import LOST, PHONE, TestBrowser, find_chromium
from tests.interfaces.http.served import Served, make_keys, started
from tests.interfaces.web.scene import HOSTILE
from tests.interfaces.web.visit import link_for, logged_in

LEASE = "/tasks/{}/leases/{}"


def submit(served: Served, name: str, **fields: object) -> str:
    given = {"tasks": [{"name": name, "role": "build", **fields}]}
    return str(served.ok("POST", "/tasks", given, key="submitter")["task_ids"][0])


def ask(served: Served, name: str, text: str) -> tuple[str, str]:
    """A task whose agent has asked something, and the question."""
    task = submit(served, name)
    (claim,) = served.ok("POST", "/claims", {"task_id": task}, key="ada")["claims"]
    options = [{"key": "left", "label": "Turn left"}, {"key": "right", "label": "Turn right"}]
    asked = served.ok(
        "POST", f"{LEASE.format(task, claim['token'])}/ask", {"text": text, "options": options}, key="ada"
    )
    return task, str(asked["question_id"])


def test_one_process_of_the_tests_fetches_a_browser_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a fresh machine: no browser, an `apt-get` without lists, and all processes of the tests at once."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    apt = f"""#!/bin/sh
echo "$*" >> {calls}
case "$*" in *update*) : > {tmp_path}/lists ;; esac
if [ -e {tmp_path}/lists ] && case "$*" in *install*) ;; *) false ;; esac then
    printf '#!/bin/sh\\n' > {programs}/chromium; /bin/chmod +x {programs}/chromium
fi
"""
    (programs / "apt-get").write_text(apt)
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    together = threading.Barrier(4)

    def find(_worker: int) -> str | None:
        together.wait()
        return find_chromium()

    with ThreadPoolExecutor(4) as workers:
        assert set(workers.map(find, range(4))) == {str(programs / "chromium")}
    assert [call.split()[3] for call in calls.read_text().splitlines()] == ["install", "update", "install"]


def test_the_link_opens_the_page_and_a_question_is_answered_by_its_button(browser: TestBrowser, night: Served) -> None:
    task, question = ask(night, "a fork in the road", "Left or right?")
    link = link_for(night, "operator")

    async def scene(page: Page) -> None:
        await page.goto(f"{night.url}/enter?link={link}")
        await page.get_by_role("button", name="Open the page").click()
        await expect(page.locator("#verdict")).to_contain_text("need")
        card = page.locator(f"[id='q-{question}']")
        await expect(card).to_contain_text("Left or right?")
        await card.get_by_role("button", name="Turn right").click()
        await expect(page.locator("#said")).to_contain_text("Answered: right")
        await expect(card).to_have_count(0)

    browser.play(scene)
    shown = night.ok("GET", f"/questions/{question}", key="viewer")
    assert (shown["choice"], shown["answered_by"]) == ("right", "key operator")
    night.ok("POST", f"/tasks/{task}/cancel", {}, key="operator")


def test_a_task_is_seen_from_ready_to_done_without_a_reload(browser: TestBrowser, night: Served) -> None:
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.goto(night.url)
        await page.evaluate("window.loadedOnce = true")
        task = await asyncio.to_thread(submit, night, "seen all the way")
        row = page.locator("#runs .lanes", has_text="seen all the way")
        await expect(row).to_contain_text("in the queue")
        claims = await asyncio.to_thread(night.ok, "POST", "/claims", {"task_id": task}, key="ada")
        await expect(page.locator("#agents tbody tr", has_text="seen all the way")).to_contain_text("ada")
        path = LEASE.format(task, claims["claims"][0]["token"])
        await asyncio.to_thread(
            night.ok, "POST", f"{path}/checkin", {"note": "nearly there", "progress": 0.5}, key="ada"
        )
        await expect(page.locator("#agents tbody tr", has_text="nearly there")).to_contain_text("50%")
        await asyncio.to_thread(night.ok, "POST", f"{path}/done", {"result": 1}, key="ada")
        await expect(page.locator("#agents tbody tr", has_text="nearly there")).to_have_count(0)
        assert await page.evaluate("window.loadedOnce")

    browser.play(scene, cookies=visit.jar())


def test_a_page_is_live_however_slowly_its_scripts_come(browser: TestBrowser, night: Served) -> None:
    """Even if htmx is there long before its SSE part, it does not begin without it."""
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        asked, held_up = asyncio.Event(), asyncio.Event()

        async def slowly(route: Route) -> None:
            asked.set()
            await held_up.wait()
            await route.continue_()

        await page.route("**/hx-sse*", slowly)
        loading = asyncio.ensure_future(page.goto(night.url))
        await asked.wait()
        # Asked from outside: what polls inside a page evaluates text there, which the page's policy may forbid first.
        while not await page.evaluate("window.htmx !== undefined"):
            await asyncio.sleep(0.02)
        for _ in range(3):
            await page.evaluate("new Promise((done) => setTimeout(done))")
        held_up.set()
        await loading
        task = await asyncio.to_thread(submit, night, "seen by a slow page")
        await expect(page.locator("#runs")).to_contain_text("seen by a slow page")
        await asyncio.to_thread(night.ok, "POST", f"/tasks/{task}/cancel", {}, key="operator")

    browser.play(scene, cookies=visit.jar())


def test_a_tab_in_the_background_still_tells_how_many_things_need_somebody(browser: TestBrowser, night: Served) -> None:
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.clock.install()
        await page.goto(night.url)
        await expect(page.locator("#state")).to_have_text("live")
        before = await page.title()
        await page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})")
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        task, _ = await asyncio.to_thread(ask, night, "asked behind one's back", "Is anybody there?")
        await page.clock.fast_forward(61_000)
        await expect(page).not_to_have_title(before)
        assert "need you" in await page.title()
        await asyncio.to_thread(night.ok, "POST", f"/tasks/{task}/cancel", {}, key="operator")

    browser.play(scene, cookies=visit.jar())


def test_whose_key_is_revoked_stands_before_the_door(browser: TestBrowser, night: Served) -> None:
    night.keys["brief"] = str(night.ok("POST", "/keys", {"name": "brief", "rights": ["viewer"]})["secret"])
    visit = logged_in(night, "brief")

    async def scene(page: Page) -> None:
        await page.goto(night.url)
        await expect(page.locator("#state")).to_have_text("live")
        await asyncio.to_thread(night.ok, "POST", "/keys/brief/revoke")
        await expect(page.locator("h1")).to_have_text("Log in")
        await expect(page.locator(".wrong")).to_contain_text("no longer logged in")

    browser.play(scene, cookies=visit.jar(), may_say=("401", "htmx:sse:error"))


def test_focus_typed_text_and_what_is_open_survive_a_refresh(browser: TestBrowser, night: Served) -> None:
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.goto(night.url)
        card = page.locator("article.ask", has_text="Two tables are called users")
        await card.get_by_text("Answer in words…").click()
        words = card.locator("textarea")
        await words.fill("the one in schema pub")
        await page.evaluate("window.scrollTo(0, 120)")
        for number in range(2):
            task = await asyncio.to_thread(submit, night, f"news number {number}")
            await expect(page.locator("#runs")).to_contain_text(f"news number {number}")
            await asyncio.to_thread(night.ok, "POST", f"/tasks/{task}/cancel", {}, key="operator")
        await words.press_sequentially("lic")
        await expect(words).to_have_value("the one in schema public")
        await expect(words).to_be_focused()
        assert await page.evaluate("window.scrollY") == 120

    browser.play(scene, cookies=visit.jar())


@pytest.mark.parametrize("dark", [False, True])
def test_what_agents_say_is_text_and_a_phone_shows_all_of_it(browser: TestBrowser, night: Served, dark: bool) -> None:
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.goto(night.url)
        await expect(page.locator("article.ask").first).to_contain_text(HOSTILE)
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]

    browser.play(scene, cookies=visit.jar(), viewport=PHONE, dark=dark)


def test_a_server_that_is_gone_is_said_and_regained(browser: TestBrowser, tmp_path: Path) -> None:
    """Killed under an open page: the page says so, keeps what it shows, and is up to date when there is one again."""
    store = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    keys = asyncio.run(make_keys(store))

    def hand_over() -> None:
        async def submit_one() -> None:
            async with make_watch(store_for(store), sweeping=False) as watch:
                await watch.submit("while nobody looked")

        asyncio.run(submit_one())

    async def scene(page: Page) -> None:
        with started(tmp_path, store, "--listen", "127.0.0.1:0") as (first, url):
            visit = await asyncio.to_thread(logged_in, Served(store, url, keys, first))
            jar: Any = visit.jar()
            await page.context.add_cookies(jar)
            await page.goto(url)
            await expect(page.locator("#state")).to_have_text("live")
            await page.evaluate("window.loadedOnce = true")
            first.kill()
            await expect(page.locator("#lost")).to_be_visible()
            await expect(page.locator("#lost")).to_contain_text("Connection lost, trying again")
            await expect(page.locator("#verdict")).to_have_text("All's well.")
        await asyncio.to_thread(hand_over)
        with started(tmp_path, store, "--listen", url.removeprefix("http://")) as (second, _):
            await expect(page.locator("#lost")).to_be_hidden()
            await expect(page.locator("#runs")).to_contain_text("while nobody looked")
            await expect(page.locator("#state")).to_have_text("live")
            assert await page.evaluate("window.loadedOnce")
            second.terminate()

    browser.play(scene, may_say=(LOST, "htmx:sse:error"))


def test_a_server_that_is_frozen_is_told_and_regained(browser: TestBrowser, night: Served) -> None:
    """Nothing is closed, and nothing comes: the page says that what is seen is old, and goes on with the server."""
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.clock.install()
        await page.goto(night.url)
        await expect(page.locator("#state")).to_have_text("live")
        night.process.send_signal(signal.SIGSTOP)
        try:
            await page.clock.fast_forward(30_000)
            await expect(page.locator("#lost")).to_be_hidden()
            await page.clock.fast_forward(10_000)
            await expect(page.locator("#lost")).to_be_visible()
            await expect(page.locator("#lost")).to_contain_text(re.compile(r"how things stood 4\ds ago"))
            await expect(page.locator("#state")).to_have_text("lost")
        finally:
            night.process.send_signal(signal.SIGCONT)
        await expect(page.locator("#state")).to_have_text("live")
        await expect(page.locator("#lost")).to_be_hidden()

    browser.play(scene, cookies=visit.jar(), may_say=(LOST, "htmx:sse:error"))


AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
"""axe-core, as the package has it that is named with its version among what tests need."""


async def faults(page: Page, *rules: str) -> list[str]:
    """What axe-core finds that keeps somebody out, by all of its rules or by some."""
    await page.evaluate(AXE)
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found = await page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes']]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_nobody_is_kept_out(browser: TestBrowser, night: Served, dark: bool) -> None:
    """axe-core finds nothing serious: at the door, on the first screen, and with everything folded open."""
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.goto(f"{night.url}/login")
        assert await faults(page) == []
        jar: Any = visit.jar()
        await page.context.add_cookies(jar)
        await page.goto(night.url)
        assert await faults(page) == []
        for one in await page.locator("summary").all():
            await one.click()
        await page.keyboard.press("Escape")
        assert await faults(page) == []
        await page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
        assert await faults(page) == []

    browser.play(scene, dark=dark)


def test_everything_can_be_done_by_keys_and_the_theme_is_kept(browser: TestBrowser, night: Served) -> None:
    task, question = ask(night, "a question for the keyboard", "Which way, by keys?")
    visit = logged_in(night)

    async def scene(page: Page) -> None:
        await page.goto(night.url)
        card = page.locator(f"[id='q-{question}']")
        await expect(card).to_be_visible()
        while await page.evaluate("document.activeElement.id") != f"q-{question}":
            await page.keyboard.press("j")
        await page.keyboard.press("1")
        await expect(page.locator("#said")).to_contain_text("Answered: left")
        await expect(card).to_have_count(0)
        await page.keyboard.press("?")
        await expect(page.locator("#keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#keys")).to_be_hidden()
        await page.keyboard.press("t")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.locator("#who summary").click()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.locator("h1")).to_have_text("Log in")

    browser.play(scene, cookies=visit.jar())
    night.ok("POST", f"/tasks/{task}/cancel", {}, key="operator")


def test_without_scripts_a_question_can_still_be_answered(night: Served) -> None:
    task, question = ask(night, "no scripts here", "Anybody?")
    visit = logged_in(night)
    answer = visit.post(f"/questions/{question}/answer", {"option": "left", "back": "/?agents=0"})
    assert (answer.status, answer.headers["location"]) == (303, "/?agents=0")
    assert night.ok("GET", f"/questions/{question}", key="viewer")["choice"] == "left"
    night.ok("POST", f"/tasks/{task}/cancel", {}, key="operator")

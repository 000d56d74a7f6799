"""The page in a real browser."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from tests.browser import PHONE, TestBrowser
from tests.doors.http.served import Served
from tests.doors.page.scene import HOSTILE
from tests.doors.page.visit import link_for, logged_in

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
        await expect(page.locator("#said")).to_contain_text("Turn right")
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

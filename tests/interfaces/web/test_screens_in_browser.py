"""The screens behind the first one in a real browser: live, by keyboard, and open to everybody."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from tests.browser import PHONE, TestBrowser
from tests.interfaces.http.served import Served
from tests.interfaces.web.test_browser import LEASE, faults, submit
from tests.interfaces.web.test_screens import task_of
from tests.interfaces.web.visit import logged_in

SCREENS = (
    "/runs",
    "/runs/release",
    "/tasks",
    "/agents",
    "/agents/shell.1",
    "/messages",
    "/builds",
    "/worker",
    "/journal",
    "/settings",
    "/builds/components",
)


def test_a_task_follows_what_it_prints_and_its_end(browser: TestBrowser, night: Served) -> None:
    visit = logged_in(night)
    task = submit(night, "seen from its own screen")
    (claim,) = night.ok("POST", "/claims", {"task_id": task}, key="ada")["claims"]
    folder = night.folder / ".allswell" / "transcripts"
    folder.mkdir(0o700, exist_ok=True)
    printed = folder / f"{task}.{claim['token']}.stdout"
    printed.touch(0o600)
    printed.write_text("".join(f"line {number}\n" for number in range(80)))

    async def scene(page: Page) -> None:
        await page.goto(f"{night.url}/tasks/{task}")
        await expect(page.locator("#log")).to_contain_text("line 79")
        assert await page.evaluate(
            "(() => { const log = document.getElementById('log');"
            " return log.scrollTop + log.clientHeight >= log.scrollHeight - 2; })()"
        )
        await page.locator("#cancel-open").click()
        await page.locator("#cancel-reason").fill("half a reas")
        with printed.open("a") as more:
            more.write("and one more line\n")
        await expect(page.locator("#log")).to_contain_text("and one more line")
        await expect(page.locator("#cancel-reason")).to_be_focused()
        await expect(page.locator("#cancel-reason")).to_have_value("half a reas")
        path = LEASE.format(task, claim["token"])
        await asyncio.to_thread(night.ok, "POST", f"{path}/done", {"result": {"answer": 42}}, key="ada")
        await expect(page.locator("#brought")).to_contain_text("42")
        await expect(page.locator(".head .mark-of")).to_have_text("done")
        await page.locator("#attempt-1-agent").click()
        await expect(page.locator("#name")).to_have_text("ada")

    browser.play(scene, cookies=visit.jar())


@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_use_them_on_a_phone_too(browser: TestBrowser, night: Served, dark: bool) -> None:
    """The themes differ in nothing but colours, so in the dark axe-core looks at nothing else."""
    rules = ("color-contrast",) if dark else ()
    visit = logged_in(night)
    flaky = night.ok("GET", "/tasks?name=test", key="viewer")["tasks"][0]["task_id"]
    mended = task_of(night, "mend the lexer")

    async def scene(page: Page) -> None:
        for path in (*SCREENS, f"/tasks/{flaky}", *(f"/tasks/{mended}{part}" for part in ("", "/log", "/diff"))):
            await page.goto(f"{night.url}{path}")
            for one in await page.locator("main details:not([open]) > summary").element_handles():
                await one.click()
            assert await faults(page, *rules) == [], path
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], path

    browser.play(scene, cookies=visit.jar(), viewport=PHONE, dark=dark)

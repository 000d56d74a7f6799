"""A question is answered from a phone: by the button of a notification, and one more tap on the page it opens."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser import PHONE, TestBrowser
from tests.interfaces.cli.upkeep import environment, run
from tests.interfaces.http.served import Served, serving
from tests.interfaces.notifications.test_webhook import certificate
from tests.interfaces.web.scene import HOSTILE
from tests.interfaces.web.test_browser import ask, submit
from tests.interfaces.web.visit import answer_links, logged_in
from tests.patience import SECONDS
from tests.support.fakes import NtfyReceiver

SETTINGS = """\
public_url = "https://localhost:{port}"
[sinks.phone]
kind = "alerts"
begins = "start"
routes = {{ info = ["{route}"] }}
"""


@pytest.fixture(scope="module")
def receiver() -> Iterator[NtfyReceiver]:
    with NtfyReceiver() as one:
        yield one


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, receiver: NtfyReceiver) -> Iterator[Served]:
    """A server with TLS of its own, under the address that its settings name."""
    folder = tmp_path_factory.mktemp("phone")
    certificate(folder, "localhost")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    (folder / "allswell.toml").write_text(SETTINGS.format(port=port, route=receiver.route("night")))
    options = ("--listen", f"127.0.0.1:{port}", "--tls-cert", "own.pem", "--tls-key", "key.pem")
    with serving(folder, *options) as server:
        server.url = f"https://localhost:{port}"  # as its certificate has it
        yield server


@contextlib.contextmanager
def sinks_run(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "allswell", "sinks", "run"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def test_a_question_is_answered_from_a_phone_in_two_taps(
    browser: TestBrowser, served: Served, receiver: NtfyReceiver
) -> None:
    task, question = ask(served, "a fork in the road", f"Left or right? {HOSTILE}" + "\nHow it came to this." * 60)
    with sinks_run(served.folder):
        receiver.wait_for(1, SECONDS)
    (notice,) = receiver.taken
    assert [(button.action, button.label) for button in notice.buttons] == [
        ("view", "Turn left"),
        ("view", "Turn right"),
    ]
    assert f"allswell answer {question} left" in notice.message
    assert "/answer/" not in notice.message, "what has a button needs no line"
    left, right = (button.url for button in notice.buttons)
    assert left.startswith(f"{served.url}/answer/")

    async def scene(page: Page) -> None:
        await page.goto(right)  # the first tap
        await expect(page.get_by_role("heading")).to_have_text("A question")
        await expect(page.locator(".about")).to_have_text("a fork in the road")
        await expect(page.locator("#question")).to_contain_text("Left or right? <script>")
        button = page.get_by_role("button", name="Turn right")
        box = await button.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= PHONE["height"], "it is seen without scrolling"
        assert box["height"] >= 40
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        await button.click()  # the second
        await expect(page.get_by_role("heading")).to_have_text("Answered")
        assert await page.context.cookies() == []

    browser.play(scene, viewport=PHONE, trusting=True)
    shown = served.ok("GET", f"/questions/{question}", key="viewer")
    by = "a link sent to warning.0 (key link.phone)"
    assert (shown["choice"], shown["answered_by"]) == ("right", by)
    assert f"by {by}" in re.sub(r"\s+", " ", run("show", question, cwd=served.folder, COLUMNS="200").out)
    events = served.ok("GET", "/events?kind=question_answered", key="viewer")["events"]
    assert [(one["data"]["by"], one["data"]["key"]) for one in events if one["task_id"] == task] == [(by, "link.phone")]


def test_what_takes_words_is_answered_in_words(browser: TestBrowser, served: Served) -> None:
    task = submit(served, "name it")
    (claim,) = served.ok("POST", "/claims", {"task_id": task}, key="ada")["claims"]
    path = f"/tasks/{task}/leases/{claim['token']}/ask"
    question = served.ok("POST", path, {"text": "Which name?"}, key="ada")["question_id"]
    (link,) = answer_links(served, question)

    async def scene(page: Page) -> None:
        await page.goto(link.url)
        await page.get_by_role("textbox").fill("Beth <b>& co")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("heading")).to_have_text("Answered")
        await expect(page.get_by_role("status")).to_contain_text("Beth <b>& co")

    browser.play(scene, viewport=PHONE, trusting=True)
    shown = served.ok("GET", f"/questions/{question}", key="viewer")
    assert (shown["choice"], shown["answer"]) == ("reply", "Beth <b>& co")


def test_somebody_who_is_logged_in_answers_on_the_page_of_a_phone_in_two_taps(
    browser: TestBrowser, served: Served
) -> None:
    _, question = ask(served, "another fork", "Left or right, again?")
    visit = logged_in(served)

    async def scene(page: Page) -> None:
        await page.goto(served.url)  # the first
        card = page.locator(f"[id='q-{question}']")
        await card.get_by_role("button", name="Turn left").click()  # the second
        await expect(page.locator("#said")).to_contain_text("Answered: left")

    jar = [{"name": name, "value": value, "url": served.url, "secure": True} for name, value in visit.cookies.items()]
    browser.play(scene, viewport=PHONE, trusting=True, cookies=jar)
    assert served.ok("GET", f"/questions/{question}", key="viewer")["answered_by"] == "key operator"

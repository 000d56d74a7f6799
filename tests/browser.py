"""A real browser for tests: one Chromium for the tests of one process, driven by Playwright in a thread of its own.

Whatever Chromium is on the machine is taken; where there is none it is fetched (`apt-get` as root, else Playwright's
own), by one process of the tests while the others wait. The browser has a thread and a loop of its own because other
tests call `asyncio.run` in theirs.

A test plays a scene, `async (Page) -> None`, in a context of its own. Whatever the page complains of meanwhile, errors
of scripts and violations of the content security policy among it, fails the test.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from playwright.async_api import Browser, ConsoleMessage, Page, Playwright, async_playwright, expect

from tests.patience import SECONDS

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
LOST = "net::ERR_"
"""How the browser itself complains of a server that is gone."""


def find_chromium() -> str | None:
    """The path of a Chromium; None for the one that Playwright has fetched."""
    return _installed() or _fetch()


def _installed() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _fetch() -> str | None:
    with (Path(sys.prefix) / ".allswell-chromium.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # the workers of pytest-xdist all come here at once
        if (found := _installed()) is not None:
            return found
        if os.geteuid() == 0 and shutil.which("apt-get") is not None:
            for words in (["install", "chromium"], ["update"], ["install", "chromium"]):  # a container has no lists yet
                command = ["apt-get", "--yes", "-o", "DPkg::Lock::Timeout=300", *words]
                subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
                if (found := _installed()) is not None:
                    return found
        subprocess.run([sys.executable, "-m", "playwright", "install", "--with-deps", "chromium"], check=True)
        return None


class TestBrowser:
    """A browser that is running."""

    __test__ = False

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def _call(self, work: Any) -> Any:  # noqa: ANN401 - whatever the work brings
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _start(self) -> None:
        expect.set_options(timeout=SECONDS / 2 * 1000)
        self._playwright = await async_playwright().start()
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._browser = await self._playwright.chromium.launch(executable_path=find_chromium(), args=args)

    async def _stop(self) -> None:
        if self._browser is not None:
            await self._browser.close()
        if self._playwright is not None:
            await self._playwright.stop()

    def play(
        self,
        scene: Callable[[Page], Awaitable[None]],
        *,
        cookies: list[dict[str, Any]] | None = None,
        viewport: dict[str, int] | None = None,
        dark: bool = False,
        may_say: tuple[str, ...] = (),
        trusting: bool = False,
    ) -> None:
        """Play a scene in a page of its own; `may_say` is what the console may complain of.

        With `trusting` a server may have made its certificate itself.
        """
        colours: Literal["dark", "light"] = "dark" if dark else "light"
        self._call(self._play(scene, cookies or [], viewport or DESK, colours, may_say, trusting))

    async def _play(
        self,
        scene: Callable[[Page], Awaitable[None]],
        cookies: list[dict[str, Any]],
        viewport: dict[str, int],
        colours: Literal["dark", "light"],
        may_say: tuple[str, ...],
        trusting: bool,
    ) -> None:
        assert self._browser is not None
        said: list[str] = []

        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not any(part in message.text for part in may_say):
                said.append(f"{message.type}: {message.text}")

        size: Any = viewport
        context = await self._browser.new_context(viewport=size, color_scheme=colours, ignore_https_errors=trusting)
        try:
            wanted: Any = cookies
            if wanted:
                await context.add_cookies(wanted)
            page = await context.new_page()
            page.set_default_timeout(SECONDS / 2 * 1000)
            page.on("console", hear)
            page.on("pageerror", lambda error: said.append(f"script: {error}"))
            await scene(page)
        finally:
            await context.close()
        assert not said, said

"""Pictures of the page for the docs: a night is played, and what a browser shows of it is kept under docs/images.

python -m tests.interfaces.web.photograph
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser import TestBrowser
from tests.interfaces.http.served import serving
from tests.interfaces.web import scene
from tests.interfaces.web.visit import logged_in

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PICTURES = {
    "page-light": (1180, 860, False),
    "page-dark": (1180, 860, True),
    "page-phone": (390, 844, False),
}


def photograph(folder: Path) -> None:
    """Take all of them."""
    (folder / ".allswell").mkdir(0o700)
    asyncio.run(scene.play(folder / ".allswell" / "allswell.db", hostile=""))
    with TestBrowser() as browser, serving(folder) as served:
        jar = logged_in(served).jar()
        for name, (width, height, dark) in PICTURES.items():

            async def take(page: Page, name: str = name, width: int = width) -> None:
                await page.goto(served.url)
                await expect(page.locator("#state")).to_have_text("live")
                await page.evaluate("document.querySelector('footer').remove()")  # it names a folder
                await page.screenshot(path=IMAGES / f"{name}.png", full_page=width > 700)

            browser.play(take, cookies=jar, viewport={"width": width, "height": height}, dark=dark)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        photograph(Path(made))

"""Record what commands really show at a terminal, as pictures below docs/images: demo, watch, why and watch-live.

python docs/record.py [NAME…]
ALLSWELL_CLIENTS=.clients/node_modules/.bin python docs/record.py first-merge    (the README, with the real Claude Code)

The story behind `watch` and `why` is that of their tests: an hour ago a small fleet was at work.
"""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 108
COMMANDS = {"demo": ("demo",), "watch": ("watch", "--once"), "why": ("why", "deploy")}
LIVE = "watch-live"
FIRST_MERGE = "first-merge"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # nothing is fetched to look at a picture
_FOLDER = re.compile(r"/\S*?/allswell-demo-\w+")


def recorded(words: tuple[str, ...], folder: Path) -> str:
    """What a command prints at a terminal, as it stands there at the end."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    command = [sys.executable, "-m", "allswell", *words]
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=folder)
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 65_536):
            printed += piece
    except OSError:
        pass  # it has ended
    assert running.wait() in (0, 3), printed.decode()
    lines = [line.rpartition("\x1b[K")[2] for line in printed.decode().replace("\r\n", "\n").split("\n")]
    return _FOLDER.sub("/tmp/allswell-demo", "\n".join(lines)).strip("\n")  # noqa: S108 - a name in a picture


def _play(folder: Path) -> None:
    """Make the store of the story, handle what has fallen due since, and leave out what only its tests are about."""
    sys.path.insert(0, str(ROOT))
    from tests.interfaces.cli.scene import told

    (folder / ".allswell").mkdir(0o700)
    told(folder / ".allswell" / "allswell.db")
    for words in (("claim", "--agent", "ada", "--role", "librarian"), ("dismiss", "read the specs")):
        subprocess.run([sys.executable, "-m", "allswell", *words], cwd=folder, check=False, capture_output=True)


def record(name: str, folder: Path) -> None:
    """Write one picture."""
    title = " ".join(("allswell", *(word for word in COMMANDS[name] if not word.startswith("-"))))
    _draw(name, recorded(COMMANDS[name], folder), title)


def record_first_merge(folder: Path) -> None:
    """Write the picture of the README's first commands, typed by a new user."""
    sys.path.insert(0, str(ROOT))
    from tests.clients.first_merge import played

    _draw(FIRST_MERGE, played(folder)[1], "from nothing to a merged branch")


def _draw(name: str, shown: str, title: str) -> None:
    """Write what a terminal shows as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown), soft_wrap=False)
    _write(name, console.export_svg(title=title, unique_id="allswell"))


def record_live(folder: Path) -> None:
    """Write the picture of `allswell watch` with Textual, its first agent chosen; a night like that of the page."""
    from textual.pilot import Pilot

    from allswell import Watch
    from allswell.interfaces.tui.app import WatchApp
    from tests.interfaces.cli.test_watching import driven, look
    from tests.interfaces.web import scene

    store = folder / "night" / ".allswell" / "allswell.db"
    store.parent.mkdir(0o700, parents=True)
    os.chdir(store.parents[1])
    asyncio.run(scene.play(store, hostile=""))

    async def take(app: WatchApp, pilot: Pilot[None], _: Watch) -> None:
        await pilot.press("3")
        await look(app, pilot)
        await pilot.pause()
        _write("watch-live", app.export_screenshot(title="allswell watch"))

    driven(f"sqlite:///{store}", take, (132, 28))


def _write(name: str, svg: str) -> None:
    svg = _FONTS.sub("", svg).replace("Fira Code", "ui-monospace, DejaVu Sans Mono, Menlo, Consolas")
    picture = IMAGES / f"{name}.svg"
    picture.write_text(svg, encoding="utf-8")
    print(f"{picture} is written")


def main(names: list[str]) -> None:
    """Write those that are named, or all."""
    with tempfile.TemporaryDirectory() as folder:
        if names == [FIRST_MERGE]:
            record_first_merge(Path(folder))
            return
        _play(Path(folder))
        for name in names or [*COMMANDS, LIVE]:
            if name == LIVE:
                record_live(Path(folder))
            else:
                record(name, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])

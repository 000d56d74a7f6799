"""Record `allswell demo` as a picture: what it really prints at a terminal, as docs/images/demo.svg.

python docs/record.py
"""

from __future__ import annotations

import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 108
PICTURE = Path(__file__).parent / "images" / "demo.svg"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # nothing is fetched to look at a picture
_FOLDER = re.compile(r"/\S*?/allswell-demo-\w+")


def recorded() -> str:
    """What the demo prints at a terminal, as it stands there at the end."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    command = [sys.executable, "-m", "allswell", "demo"]
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65_536):
            said += piece
    except OSError:
        pass  # it has ended
    assert running.wait() == 0, said.decode()
    lines = [line.rpartition("\x1b[K")[2] for line in said.decode().replace("\r\n", "\n").split("\n")]
    return _FOLDER.sub("/tmp/allswell-demo", "\n".join(lines)).strip("\n")  # noqa: S108 - a name in a picture


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(recorded()), soft_wrap=False)
    svg = _FONTS.sub("", console.export_svg(title="allswell demo", unique_id="allswell"))
    svg = svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono, Menlo, Consolas")
    PICTURE.write_text(svg, encoding="utf-8")
    print(f"{PICTURE} is written")


if __name__ == "__main__":
    main()

"""A new user, from the README to a merged branch: what they type at a terminal, and what it shows.

The commands are those of the README. Allswell is installed from a clone, by the real `uv`; the agent is the real Claude
Code, and what its model says is the fake provider's script. `docs/record.py first-merge` makes the picture of it.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

from allswell.testing.provider import CallTool, Provider, Reply
from tests.clients.test_real import CLIENTS, QUIET
from tests.patience import SECONDS
from tests.runtime.attempt.stage import git

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
HEADING = "## From nothing to a merged branch"
COLUMNS = 108
_READY = b"\x1b]133;A\x07"
"""What the shell says, and no terminal shows, when it waits for a command."""
_UNSEEN = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[\?\d+[hl]")
_WRITTEN_OVER = re.compile(r"[^\n]*\r\x1b\[K|[^\n]*\r(?=[^\n])")
_BRANCH = re.compile(r" merge (allswell/[\w-]+)")
BROKEN = "def words(line):\n    return line.split(' ')\n"
TESTS = "test:\n\t@python3 -c \"from parser import words; assert words('a  b') == ['a', 'b']\" && echo all tests pass\n"
MENDED = "sed -i \"s/split(' ')/split()/\" parser.py && make test"
COMMITTED = "git commit -qam 'Split at any white space' && git log --oneline -1"


def commands() -> list[str]:
    """What the README has a new user type."""
    text = README.read_text(encoding="utf-8").partition(HEADING)[2].partition("```console\n")[2].partition("\n```")[0]
    return [line.partition("  #")[0].strip() for line in text.splitlines()]


class NewUser:
    """Has Claude Code, uv, a clone of Allswell, and a repository whose test fails."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.home = folder / "home"
        self.repository = self.home / "parser"
        self.repository.mkdir(parents=True)
        clone = self.home / "allswell"
        git("clone", "-q", "--depth", "1", f"file://{ROOT}", str(clone), cwd=folder)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "claude").symlink_to((CLIENTS / "claude").resolve())
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder / "uv"), "uv"]
        subprocess.run(pip, check=True, capture_output=True, timeout=SECONDS)
        self._clone = clone
        own = ("ALLSWELL_", "GIT_", "XDG_", "CLAUDE_", "ANTHROPIC_", "VIRTUAL_ENV", "MAKE", "MFLAGS")
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(own)},
            "PATH": f"{programs}:{folder / 'uv' / 'bin'}:{self.home / '.local' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TERM": "xterm-256color",
            "PS1": r"\[\e]133;A\a\]\[\e[32m\]\W $\[\e[0m\] ",
            "INPUTRC": os.devnull,
            "GIT_PAGER": "cat",
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "k",
            **QUIET,
        }
        (self.repository / "parser.py").write_text(BROKEN)
        (self.repository / "Makefile").write_text(TESTS)
        (self.repository / ".gitignore").write_text("__pycache__/\n")
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "A parser"]):
            git(*words, cwd=self.repository)
        for name, value in (("user.name", "Grace"), ("user.email", "grace@example.org")):
            git("config", name, value, cwd=self.repository)
        provider.script(
            CallTool("WaitForMcpServers"),
            *[CallTool("Bash", {"command": command, "description": "work"}) for command in (MENDED, COMMITTED)],
            Reply("The tests pass: words() splits at any white space now."),
        )

    def types(self, lines: list[str]) -> str:
        """All that their terminal shows, until the last command has ended."""
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
        shell = ["bash", "--noprofile", "--norc", "-i"]
        running = subprocess.Popen(
            shell, stdin=theirs, stdout=theirs, stderr=theirs, env=self._env, cwd=self._clone, start_new_session=True
        )
        os.close(theirs)
        shown = b""
        for ready, line in enumerate([*lines, "exit"], 1):
            began = time.monotonic()
            while shown.count(_READY) < ready:
                assert time.monotonic() < began + 2 * SECONDS, shown.decode()
                shown += os.read(ours, 65_536)
            branch = _BRANCH.search(_UNSEEN.sub("", shown.decode(errors="replace")))
            os.write(ours, (line if branch is None else line.replace("allswell/…", branch[1])).encode() + b"\n")
        running.wait(SECONDS)
        os.close(ours)
        text = _UNSEEN.sub("", shown.decode()).replace("\r\n", "\n")
        text = _WRITTEN_OVER.sub("", text).replace("\x1b[K", "")
        return text.replace(str(self.home), "/home/grace").rpartition("\n")[0]  # the last prompt


def played(folder: Path) -> tuple[NewUser, str]:
    """The user, after all commands, and what they have seen."""
    with Provider() as provider:
        user = NewUser(folder, provider)
        return user, user.types(commands())

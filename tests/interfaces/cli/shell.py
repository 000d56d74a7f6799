"""Somebody in a repository, who types `allswell` in front of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import patience
from tests.interfaces.cli.upkeep import run_with
from tests.runtime.process.stage import tagged

ALLSWELL = [sys.executable, "-m", "allswell"]
STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.slow), "server")
"""Whose parameters the fixture `store` takes; a scene takes seconds on each, so PostgreSQL has its turn less often."""


@dataclass
class Shell:
    """Somebody in a repository, who types."""

    folder: Path
    tag: str
    variables: dict[str, str] = field(default_factory=dict)
    """What they have set beside what they always have, such as another store."""

    @property
    def env(self) -> dict[str, str]:
        names = ("PATH", "HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        here = str(Path(sys.executable).parent)
        return {**kept, "PATH": f"{here}:{kept['PATH']}", "TAG": self.tag, "USER": "grace", **self.variables}

    def __call__(self, *args: str, code: int | None = 0, **more: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
        command = [*ALLSWELL, *args]
        if more:
            done = subprocess.run(
                command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, **more
            )
        else:
            ran = run_with(self.env, *args, cwd=self.folder)
            done = subprocess.CompletedProcess(command, ran.code, ran.out, ran.err)
        assert code in (None, done.returncode), done
        assert "Traceback" not in done.stderr, done
        return done

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=patience.SECONDS,
            check=False,
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        words = [*ALLSWELL, "run", "--env", "TAG", *args]
        return subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def json(self, *args: str, code: int | None = 0) -> Any:  # noqa: ANN401 - whatever it is
        return msgspec.json.decode(self(*args, "--json", code=code).stdout)

    def run_json(self, *args: str, code: int = 0) -> Any:  # noqa: ANN401 - whatever it is
        return msgspec.json.decode(self("run", "--json", *args, code=code).stdout)

    def kinds(self) -> list[str]:
        lines = self("events", "--json", "--limit", "1000").stdout.splitlines()
        return [msgspec.json.decode(line)["kind"] for line in lines]

    def living(self) -> list[int]:
        return tagged(self.tag)

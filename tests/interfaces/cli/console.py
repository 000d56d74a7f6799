"""The command line inside the test's own process, for speed: what it printed, and its exit code."""

import contextlib
import io
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allswell.interfaces.cli.app import run


def millis(moment: str) -> int:
    """A moment as it is told outside, in milliseconds since 1970."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


class Said(msgspec.Struct):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it is
        """The one document on standard output."""
        return msgspec.json.decode(self.out)


class Console:
    """A store in a folder of its own, and somebody who types."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.database = folder / ".allswell" / "allswell.db"
        patch.chdir(folder)
        for name in ("STORE", "SOCKET", "TASK", "TOKEN", "AGENT", "DEBUG"):
            patch.delenv(f"ALLSWELL_{name}", raising=False)
        patch.setenv("USER", "grace")

    def __call__(self, *args: str, stdin: str | bytes = b"") -> Said:
        """Type a command."""
        out, err = io.StringIO(), io.StringIO()
        content = stdin.encode() if isinstance(stdin, str) else stdin
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
            code = run(args)
        return Said(code, out.getvalue(), err.getvalue())

    def ok(self, *args: str, stdin: str | bytes = b"") -> Said:
        """Type a command that must go well."""
        said = self(*args, stdin=stdin)
        assert (said.code, said.err) == (0, ""), said
        return said

    def submit(self, *args: str) -> str:
        """The id of a new task."""
        return self.ok("submit", *args).out.strip()

    def claim(self, agent: str = "ada", *args: str) -> Any:  # noqa: ANN401 - as the command gives it
        """What an agent gets, with its lease in the environment as a supervisor would put it."""
        claim = self.ok("claim", "--agent", agent, "--json", *args).json
        self.patch.setenv("ALLSWELL_TASK", claim["task"]["task_id"])
        self.patch.setenv("ALLSWELL_TOKEN", str(claim["token"]))
        self.patch.setenv("ALLSWELL_AGENT", agent)
        return claim

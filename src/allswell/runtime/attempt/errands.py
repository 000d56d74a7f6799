"""Short commands of ours inside an attempt: under a reaper, with the environment of the agent, bounded in time.

What needs the programs that a repository names (the filters of LFS, for example) is run so and in no other way: they
get what the agent gets, and can do what it could do anyway. The supervisor itself runs none of them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from allswell.errors import Unavailable
from allswell.runtime.warden import KEEPER, Result, WardenCommand, begin, find_program

_GRACE = 2_000
_BEYOND = 5.0
"""Seconds after its end is ordered in which a command must be over."""
_OUTPUT = 64 << 20
_LINES = 3


@dataclass(frozen=True)
class Errands:
    """Where such commands run, with which variables, and how long each may take, in milliseconds."""

    cwd: str
    env: Mapping[str, str]
    limit: int

    async def run(self, *argv: str) -> bytes:
        """What a command prints; `Unavailable` with its last lines if it does not end well, or in time."""
        if not KEEPER.running:
            await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            command = WardenCommand(
                argv=argv,
                path=find_program(argv[0], self.cwd, self.env),
                cwd=self.cwd,
                env={**self.env, "PWD": self.cwd, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
                stdout=out.fileno(),
                stderr=err.fileno(),
                cap=_OUTPUT,
                grace_ms=_GRACE,
            )
            result = await self._ended(command)
            if not result.ok:
                said = os.pread(err.fileno(), 4_000, 0).decode("utf-8", "backslashreplace").strip().splitlines()
                why = "; ".join(said[-_LINES:]) or f"{result.ending.value}, exit code {result.exit_code}"
                raise Unavailable(f"{argv[0]} {_verb(argv)} did not end well: {why}")
            if result.stdout.left_out:
                raise Unavailable(f"{argv[0]} {_verb(argv)} printed more than {_OUTPUT >> 20} MB")
            return os.pread(out.fileno(), _OUTPUT, 0)

    async def _ended(self, command: WardenCommand) -> Result:
        with begin(command) as handle:
            await handle.started()
            try:
                async with asyncio.timeout(self.limit / 1_000):
                    return await handle.ended()
            except TimeoutError:
                handle.stop(_GRACE)
                async with asyncio.timeout(_GRACE / 1_000 + _BEYOND):
                    await handle.ended()
                told = (
                    f"{command.argv[0]} {_verb(command.argv)} was not over after {self.limit // 1_000} s and was ended"
                )
                raise Unavailable(told) from None


def _verb(argv: tuple[str, ...]) -> str:
    """The word that says what a call of git does: the first that is no option, nor an option's value."""
    words = iter(argv[1:])
    for word in words:
        if word == "-c":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""

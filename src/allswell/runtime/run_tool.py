"""`allswell.run_tool`: a command as a tool, bounded by its scope, ended with everybody it has started.

    done = await allswell.run_tool(["pytest", "-q"], timeout="5m")
    print(done.exit_code, done.stdout)

At the deadline, or when the caller is cancelled, the whole tree is told to stop and killed within the grace of the
scope. What it had printed until then is in the error: `ToolTimeout.result`, or `ToolCancelled.result`, which is also
the cause of the `ScopeTimeout` of a scope further out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import msgspec

from allswell.domain.duration import Duration
from allswell.domain.rules.event import EXIT_CODE
from allswell.errors import AllswellError, Refused
from allswell.runtime.deadlines import LimitedScope, tool
from allswell.runtime.process import (
    KEEPER,
    Handle,
    ProcessResult,
    WardenCommand,
    allowed_environment,
    checked_argv,
    checked_cwd,
    find_program,
)
from allswell.runtime.propagation import deadline_environment
from allswell.timing.scopes import Scope, ScopeTimeout, end_of, expire
from allswell.timing.tracing import trace_environment

TEXT = 1_048_576
"""Most bytes of a stream that come back as text; all that was kept is in the files."""
_OF_THE_GRACE = 0.9
"""What the tree has of it; the rest is for killing it, so that the caller finds it gone when the grace is over."""
_BEYOND = 1.0
"""Seconds after the grace in which a reaper must have answered."""


@dataclass(frozen=True)
class Output:
    """What becomes of what a tool prints."""

    folder: str | os.PathLike[str] | None = None
    """Where the files of both streams stay; None: they are gone with the call."""
    cap: int = TEXT
    """Bytes kept of each stream."""
    live: bool = False
    """Whether it goes to our own stdout and stderr, too, at once and unchanged."""


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool came to."""

    argv: tuple[str, ...]
    ended: ProcessResult
    """How it ended, how long that took, and what it used."""
    stdout: str
    stderr: str
    stdout_path: Path | None
    stderr_path: Path | None

    @property
    def exit_code(self) -> int | None:
        """The command's own exit code; None if a signal ended it."""
        return self.ended.exit_code

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.ended.ok


class ToolTimeout(ScopeTimeout):
    """The limit of a tool came before the end of its command, which was ended with everybody it had started.

    `result` holds what it had printed; None if it had not started yet.
    """

    def __init__(self, error: ScopeTimeout, result: ToolResult | None) -> None:
        super().__init__(error.scope, error.report)
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return (ToolTimeout, (ScopeTimeout(self.scope, self.report), self.result))


class ToolCancelled(asyncio.CancelledError):
    """Somebody cancelled the caller of a tool; the command was ended. It is no failure, and passes as any cancel does.

    `result` holds what it had printed.
    """

    def __init__(self, result: ToolResult) -> None:
        super().__init__(f"{result.argv[0]} was ended because its caller was cancelled")
        self.result = result


async def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,  # noqa: A002 - as `subprocess.run` calls it
    output: Output | None = None,
) -> ToolResult:
    """Run a command inside a `tool` scope; `env` is added to an allowlist, and whoever it leaves running is ended."""
    with _ToolCall(argv, cwd, env, input, output or Output()) as call:
        scope = tool(call.name, timeout, timeout_override=timeout_override)
        try:
            async with scope:
                done = await call.run(scope)
                scope.note({EXIT_CODE: done.ended.exit_code})
                return done
        except ScopeTimeout as error:
            raise ToolTimeout(error, call.cut) if error.scope is scope else error from error.__cause__


def run_tool_sync(
    argv: Sequence[str | os.PathLike[str]],
    timeout: float | Duration | None = None,
    *,
    timeout_override: float | Duration | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,  # noqa: A002 - as `subprocess.run` calls it
    output: Output | None = None,
) -> ToolResult:
    """`run_tool` for code without an event loop."""
    with _ToolCall(argv, cwd, env, input, output or Output()) as call:
        scope = tool(call.name, timeout, timeout_override=timeout_override).enter(None)
        try:
            result = call.run_sync(scope)
            scope.note({EXIT_CODE: result.ended.exit_code})
        except BaseException as error:
            scope.__exit__(type(error), error, None)
            raise
        with contextlib.suppress(ScopeTimeout):  # it ended by itself, a moment before it would have been told to
            scope.__exit__(None, None, None)
        return result


class _ToolCall:
    """One run of a tool, with its files."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        given: str | bytes | None,
        output: Output,
    ) -> None:
        self.argv = checked_argv(argv)
        self.name = Path(self.argv[0]).name
        self.cut: ToolResult | None = None
        """What there was when it was told to stop."""
        self._cwd = checked_cwd(cwd)
        self._env = {**allowed_environment(env), "PWD": self._cwd}
        self._path = find_program(self.argv[0], self._cwd, self._env)
        self._output = output
        if output.cap < 0:
            raise Refused("bad_command", f"output.cap ({output.cap}) must not be negative", where="output.cap")
        with contextlib.ExitStack() as files:
            self._stdout = files.enter_context(self._open(".stdout"))
            self._stderr = files.enter_context(self._open(".stderr"))
            self._stdin = None if given is None else files.enter_context(tempfile.TemporaryFile())
            if self._stdin is not None and given is not None:
                self._stdin.write(given.encode() if isinstance(given, str) else given)
                self._stdin.seek(0)
            self._files = files.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _open(self, suffix: str) -> IO[bytes]:
        folder = self._output.folder
        if folder is None:
            return tempfile.TemporaryFile()
        try:
            return tempfile.NamedTemporaryFile(prefix=f"{self.name}-", suffix=suffix, dir=folder, delete=False)
        except OSError as error:
            text = f"no file for the output can be made in {folder}: {error.strerror}"
            raise Refused("no_directory", text, where="output.folder") from error

    def _command(self, scope: Scope) -> WardenCommand:
        live = None
        if self._output.live:
            sys.stdout.flush()
            sys.stderr.flush()
            live = (1, 2)
        return WardenCommand(
            argv=self.argv,
            path=self._path,
            cwd=self._cwd,
            env={**self._env, **trace_environment(), **deadline_environment(scope)},
            stdout=self._stdout.fileno(),
            stderr=self._stderr.fileno(),
            stdin=None if self._stdin is None else self._stdin.fileno(),
            live=live,
            cap=self._output.cap,
            grace_ms=scope.grace_ms,
        )

    # --- async --------------------------------------------------------------------------------------------------------

    async def run(self, scope: LimitedScope) -> ToolResult:
        """Until it ends, or is ended."""
        if not KEEPER.running:
            await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        with Handle(self._command(scope)) as handle:
            try:
                return self._result(await handle.ended())
            except asyncio.CancelledError as cancel:
                self.cut = self._result(await _end(handle, scope))
                raise ToolCancelled(self.cut) from cancel

    # --- sync ---------------------------------------------------------------------------------------------------------

    def run_sync(self, scope: LimitedScope) -> ToolResult:
        """Until it ends, or is ended."""
        with Handle(self._command(scope)) as handle:
            try:
                ended = handle.wait(scope.remaining())
            except AllswellError:  # it could not be started
                raise
            except BaseException:  # we are interrupted
                _end_sync(handle, end_of(scope, scope.now()) - scope.now())
                raise
            if ended is not None:
                return self._result(ended)
            expiry = scope.expiry or expire(scope, end_of(scope))
            self.cut = self._result(_end_sync(handle, expiry.end - scope.now()))
            raise ToolTimeout(scope.timed_out(), self.cut)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _result(self, ended: ProcessResult) -> ToolResult:
        paths = None if self._output.folder is None else (Path(self._stdout.name), Path(self._stderr.name))
        return ToolResult(
            argv=self.argv,
            ended=ended,
            stdout=_text(self._stdout),
            stderr=_text(self._stderr),
            stdout_path=None if paths is None else paths[0],
            stderr_path=None if paths is None else paths[1],
        )


async def _end(handle: Handle, scope: LimitedScope) -> ProcessResult:
    """Have the tree ended, whoever cancels us again meanwhile; bounded, as everything after a cancel is."""
    now = scope.now()
    end = end_of(scope, now) if scope.expiry is None else scope.expiry.end
    waiting = asyncio.ensure_future(handle.end(max(end - now, 0.0) * 1_000 * _OF_THE_GRACE, beyond=_BEYOND))
    while not waiting.done():
        with contextlib.suppress(asyncio.CancelledError):  # told once is enough: it goes on from here by itself
            await asyncio.wait((waiting,))
    return waiting.result()


def _end_sync(handle: Handle, seconds: float) -> ProcessResult:
    return handle.end_now(max(seconds, 0.0) * 1_000 * _OF_THE_GRACE, beyond=_BEYOND)


def _text(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    if size <= TEXT + 256:  # with the line that says what is missing
        return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")
    half = TEXT // 2
    head, tail = os.pread(file.fileno(), half, 0), os.pread(file.fileno(), half, size - half)
    said = f"\n[allswell: {size - 2 * half} bytes left out here]\n"
    return head.decode("utf-8", "replace") + said + tail.decode("utf-8", "replace")

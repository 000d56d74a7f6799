"""Git as we call it: bounded in time, deaf to the caller's environment, and never running anything of the repository's.

A repository's configuration can name programs (hooks, fsmonitor, filters), and a snapshot is taken of folders whose
contents an agent wrote. So every call overrides what could start one, names its git folder instead of searching for it,
may not use the network, and is killed with all its children when its time is up. Root does not write into somebody
else's repository, where objects owned by root would lock the owner out: there git runs as the owner.
"""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from allswell.errors import Unavailable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

OVERRIDES = {
    "safe.directory": "*",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",  # or writing our copy of the index would leave a shared part in the repository
    "core.fileMode": "true",  # executable bits and links are kept as they are on disk
    "core.symlinks": "true",
    "core.ignoreCase": "false",  # or an untracked `A.TXT` would be taken for the tracked `a.txt`
    "core.trustctime": "true",
    "core.checkStat": "default",
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.protectNTFS": "false",  # a file named `git~1` is a file like any other
    "core.protectHFS": "false",
    "core.logAllRefUpdates": "false",
    "core.compression": "1",
    "core.bigFileThreshold": "16m",
    "i18n.commitEncoding": "UTF-8",
    "gc.auto": "0",
}
_SURROUNDINGS = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone must not fetch while an agent is being stopped
}
_AFTER_KILL = 2.0  # seconds; a process that even SIGKILL does not end (a dead network disk) is abandoned


class GitFailed(Unavailable):
    """Git could not be run, did not answer in time, or refused; `message` is what it said."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files that another owner's git can pass through, and nobody else look into."""
    with tempfile.TemporaryDirectory(prefix="allswell-snapshot-") as name:
        Path(name).chmod(0o711)
        corner = Path(name) / "git"
        corner.mkdir(mode=0o700)
        yield corner


class Git:
    """One repository's git; what it needs to write down meanwhile is in `scratch`, an empty folder of ours."""

    def __init__(self, top: bytes, *, timeout: int, scratch: Path, git_dir: bytes | None = None) -> None:
        self.top = top
        self.timeout = timeout
        self.scratch = scratch
        self.index = scratch / "index"
        """Used as the index in every call: never the repository's own."""
        self._git_dir = git_dir or os.path.join(top, b".git")
        self._config = dict(OVERRIDES)
        self._owner = self._owner_to_serve()
        if self._owner is not None:
            os.chown(scratch, *self._owner)
        answer = self.run("rev-parse", "--absolute-git-dir", "--git-common-dir").split(b"\n")
        self.git_dir = self._git_dir = answer[0]
        self.common_dir = os.path.join(top, answer[1])
        self._disarm_filters()

    def _owner_to_serve(self) -> tuple[int, int] | None:
        try:
            owner = os.stat(self._git_dir)
        except OSError as error:
            raise GitFailed(f"{os.fsdecode(self._git_dir)} cannot be looked at: {error.strerror}") from error
        return (owner.st_uid, owner.st_gid) if os.geteuid() == 0 and owner.st_uid != 0 else None

    def _disarm_filters(self) -> None:
        """Filters are programs that git runs where it compares contents: each one named is made to do nothing."""
        listed = self.run("config", "-z", "--name-only", "--get-regexp", r"^filter\.", good=(0, 1))
        for name in {line.rpartition(b".")[0] for line in listed.split(b"\0") if line}:
            for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")):
                self._config[f"{os.fsdecode(name)}.{key}"] = value

    def _environment(self) -> dict[str, str]:
        scrubbed = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        if self._owner is not None:  # whose rules of what is ignored hold; git gives up on a home it may not enter
            scrubbed["HOME"] = _home_of(self._owner[0])
            scrubbed.pop("XDG_CONFIG_HOME", None)
        scrubbed |= _SURROUNDINGS
        scrubbed["GIT_INDEX_FILE"] = str(self.index)
        scrubbed["GIT_CONFIG_COUNT"] = str(len(self._config))
        for number, (key, value) in enumerate(self._config.items()):
            scrubbed[f"GIT_CONFIG_KEY_{number}"] = key
            scrubbed[f"GIT_CONFIG_VALUE_{number}"] = value
        return scrubbed

    def _start(
        self,
        arguments: Sequence[str | bytes],
        stdin: int | IO[bytes],
        stdout: int,
        stderr: int | IO[bytes],
        extra: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        command = ["git", b"--git-dir=" + self._git_dir, b"--work-tree=" + self.top, "--literal-pathspecs", *arguments]
        user, group = self._owner or (None, None)
        try:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self.top,
                env=self._environment() | (extra or {}),
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )
        except OSError as error:
            raise GitFailed(f"git cannot be started in {os.fsdecode(self.top)}: {error}") from error

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        good: Sequence[int] = (0,),
        extra: dict[str, str] | None = None,
    ) -> bytes:
        """What one call of git answers; `GitFailed` when it does not end in time or ends badly."""
        return self.ask(*arguments, stdin=stdin, good=good, extra=extra)[0]

    def ask(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        good: Sequence[int] = (0,),
        extra: dict[str, str] | None = None,
    ) -> tuple[bytes, list[str]]:
        """What one call of git answers, and the lines it complained with."""
        pipe = subprocess.PIPE
        process = self._start(arguments, pipe, pipe, pipe, extra)
        try:
            out, said = process.communicate(stdin, timeout=self.timeout / 1_000)
        except subprocess.TimeoutExpired as error:
            raise GitFailed(f"git {_verb(arguments)} did not answer within {self.timeout} ms and was killed") from error
        finally:
            end(process)
        complaints = said.decode("utf-8", "backslashreplace").splitlines()
        if process.returncode not in good:
            words = "; ".join(complaints[-3:]) or f"exit status {process.returncode}"
            raise GitFailed(f"git {_verb(arguments)} failed: {words}")
        return out, complaints

    @contextlib.contextmanager
    def feed(self, *arguments: str | bytes, time: int) -> Iterator[IO[bytes]]:
        """A call of git that is written to bit by bit, and killed when it is not over within `time` milliseconds."""
        late = threading.Event()
        with tempfile.TemporaryFile() as said:
            process = self._start(arguments, subprocess.PIPE, subprocess.DEVNULL, said)

            def give_up() -> None:
                late.set()
                _kill(process)

            timer = threading.Timer(time / 1_000, give_up)
            timer.daemon = True
            timer.start()
            try:
                if process.stdin is not None:
                    yield process.stdin
                    process.stdin.close()
                process.wait(time / 1_000 + _AFTER_KILL)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                pass  # how the process ended says more
            finally:
                timer.cancel()
                end(process)
            if late.is_set():
                raise GitFailed(f"git {_verb(arguments)} was not done within {time} ms and was killed")
            if process.returncode != 0:
                said.seek(0)
                words = said.read(4_000).decode("utf-8", "backslashreplace").strip()
                with contextlib.suppress(OSError):  # fast-import's own report of its end; ours says it too
                    os.unlink(os.path.join(self.git_dir, b"fast_import_crash_%d" % process.pid))
                raise GitFailed(f"git {_verb(arguments)} failed: {words or f'exit status {process.returncode}'}")

    @contextlib.contextmanager
    def listen(self, *arguments: str | bytes, stdin: IO[bytes]) -> Iterator[IO[bytes]]:
        """A call of git that is read from bit by bit, and killed when it is silent for longer than a call may take."""
        process = self._start(arguments, stdin, subprocess.PIPE, subprocess.DEVNULL)
        try:
            if process.stdout is not None:
                yield io.BufferedReader(_Patient(process.stdout, self.timeout), 1 << 16)
        finally:
            end(process)


class _Patient(io.RawIOBase):
    """The end of a pipe that is waited for so long and no longer."""

    def __init__(self, pipe: IO[bytes], timeout: int) -> None:
        super().__init__()
        self._pipe = pipe
        self._timeout = timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        ready, _, _ = select.select([self._pipe], [], [], self._timeout / 1_000)
        if not ready:
            raise GitFailed(f"git gave nothing for {self._timeout} ms and was killed")
        return os.readv(self._pipe.fileno(), [buffer])


def _home_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return "/nonexistent"


def _verb(arguments: Sequence[str | bytes]) -> str:
    return os.fsdecode(arguments[0])


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """The process is over, its children too, and its pipes are closed."""
    if process.returncode is None:
        _kill(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_KILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()

"""Git as we call it: bounded in time, deaf to the caller's environment, and never running anything of the repository's.

Every call is given a git folder of ours in place of the repository's (`own_folder`), and neither the machine's nor the
user's configuration: an agent may have written either. It has an environment of a handful of variables, may not use
the network, and is killed with all its children when its time is up. Root does not write into somebody else's
repository, where objects owned by root would lock the owner out: there git runs as the owner.
"""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from allswell.errors import Unavailable
from allswell.runtime.git.own_folder import KEPT, common_dir_of, git_dir_of, head_text, make_own_folder

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
    "core.quotePath": "false",  # names are shown as they are written
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
_HANDED_ON = ("HOME", "XDG_CONFIG_HOME", "TMPDIR", "LD_LIBRARY_PATH")
"""Of our own variables: where the user's rules of what is ignored are, and what git may need to run at all."""
_SURROUNDINGS = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TRACE2": "0",  # the user's configuration can have git write its doings to a file or a socket
    "GIT_TRACE2_EVENT": "0",
    "GIT_TRACE2_PERF": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone must not fetch while an agent is being stopped
}
_ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null"}
"""Nothing of the user's configuration; read once, for the rules of what is ignored, it is not read again."""
_KNOWN: dict[tuple[object, ...], dict[str, str]] = {}
"""What was taken over of a configuration, by its files as they were: each attempt asks for it as it begins."""
_KNOWN_MOST = 256
_AFTER_KILL = 2.0  # seconds; a process that even SIGKILL does not end (a dead network disk) is abandoned


class GitFailed(Unavailable):
    """Git could not be run, did not answer in time, or refused; `message` is what it said."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files that another owner's git can pass through, and nobody else look into."""
    with tempfile.TemporaryDirectory(prefix="allswell-snapshot-", dir=_passable()) as name:
        Path(name).chmod(0o711)
        corner = Path(name) / "git"
        corner.mkdir(mode=0o700)
        yield corner


def _passable() -> str:
    """The temporary folder; root, who may serve another owner, takes /tmp where that one is closed to others."""
    usual = Path(tempfile.gettempdir())
    closed = any(not folder.stat().st_mode & 0o001 for folder in (usual, *usual.parents))
    return "/tmp" if closed and os.geteuid() == 0 else str(usual)  # noqa: S108 (what is made there is 0711, ours)


class Git:
    """One repository's git; what it needs to write down meanwhile is in `scratch`, an empty folder of ours."""

    def __init__(self, top: bytes, *, timeout: int, scratch: Path, git_dir: bytes | None = None) -> None:
        self.top = top
        self.timeout = timeout
        self.scratch = scratch
        self.index = scratch / "index"
        """Used as the index in every call: never the repository's own."""
        self.git_dir = os.path.join(top, git_dir or git_dir_of(top))
        """The repository's own, which git itself is never given; and what it shares with other worktrees."""
        self.common_dir = common_dir_of(self.git_dir)
        self._owner = self._owner_to_serve()
        if self._owner is not None:
            os.chown(scratch, *self._owner)
        head = head_text(self.git_dir)
        if head is None or not os.path.isdir(os.path.join(self.common_dir, b"objects")):
            raise GitFailed(f"{os.fsdecode(self.git_dir)} is not a git repository, or its HEAD is broken")
        self._own = scratch / "repository"
        make_own_folder(self._own, self.git_dir, self.common_dir, self._kept(), head)
        if self._owner is not None:
            os.chown(self._own, *self._owner)

    def _owner_to_serve(self) -> tuple[int, int] | None:
        try:
            owner = os.stat(self.git_dir)
        except OSError as error:
            raise GitFailed(f"{os.fsdecode(self.git_dir)} cannot be looked at: {error.strerror}") from error
        return (owner.st_uid, owner.st_gid) if os.geteuid() == 0 and owner.st_uid != 0 else None

    def _kept(self) -> dict[str, str]:
        """The few values of the repository's configuration that are obeyed; to read them runs nothing."""
        files = _configuration(self.common_dir, self._environment())
        known = _KNOWN.get(files)
        if known is not None:
            return known
        found = self._read_kept()
        if found is None:  # a configuration that git cannot read is as good as none
            return {}
        if len(_KNOWN) >= _KNOWN_MOST:
            _KNOWN.clear()
        _KNOWN[files] = found
        return found

    def _read_kept(self) -> dict[str, str] | None:
        asked = "^(" + "|".join(key.replace(".", r"\.") for key in KEPT) + ")$"
        question: list[str | bytes] = [
            b"--git-dir=" + self.common_dir,
            "config",
            "-z",
            "--type=path",
            "--get-regexp",
            asked,
        ]
        try:
            listed, _ = self._answer(question, b"", (0, 1), {})
        except GitFailed:
            return None
        pairs = (os.fsdecode(line).partition("\n") for line in listed.split(b"\0") if line)
        return {key: value for key, _, value in pairs}

    def _environment(self) -> dict[str, str]:
        env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        env["PATH"] = _absolute_path()
        if self._owner is not None:  # whose rules of what is ignored hold; git gives up on a home it may not enter
            env["HOME"] = _home_of(self._owner[0])
            env.pop("XDG_CONFIG_HOME", None)
        env |= _SURROUNDINGS
        env["GIT_INDEX_FILE"] = str(self.index)
        env["GIT_CONFIG_COUNT"] = str(len(OVERRIDES))
        for number, (key, value) in enumerate(OVERRIDES.items()):
            env[f"GIT_CONFIG_KEY_{number}"] = key
            env[f"GIT_CONFIG_VALUE_{number}"] = value
        return env

    def _start(
        self,
        arguments: Sequence[str | bytes],
        stdin: int | IO[bytes],
        stdout: int,
        stderr: int | IO[bytes],
        extra: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        user, group = self._owner or (None, None)
        try:
            return subprocess.Popen(
                [_program(), *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self.top,
                env={**self._environment(), **extra},
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
        return self._answer(self._on_own_folder(arguments), stdin, good, {**_ALONE, **(extra or {})})

    def administer(self, *arguments: str | bytes) -> None:
        """A call on the repository's own git folder, for what cannot be done on ours: `worktree add` and `remove`.

        Of what its configuration names these two run hooks only, which are off in every call; `add` must be told not to
        check anything out. They work in folders of ours, so root stays root.
        """
        served, self._owner = self._owner, None
        try:
            self._answer([b"--git-dir=" + self.common_dir, *arguments], b"", (0,), _ALONE)
        finally:
            self._owner = served

    def _on_own_folder(self, arguments: Sequence[str | bytes]) -> list[str | bytes]:
        own = b"--git-dir=" + os.fsencode(self._own)
        return [own, b"--work-tree=" + self.top, "--literal-pathspecs", *arguments]

    def _answer(
        self, arguments: Sequence[str | bytes], stdin: bytes, good: Sequence[int], extra: Mapping[str, str]
    ) -> tuple[bytes, list[str]]:
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
    def feed(self, *arguments: str | bytes, time: int, extra: Mapping[str, str] | None = None) -> Iterator[IO[bytes]]:
        """A call of git that is written to bit by bit, and killed when it is not over within `time` milliseconds."""
        late = threading.Event()
        with tempfile.TemporaryFile() as said:
            around = {**_ALONE, **(extra or {})}
            process = self._start(self._on_own_folder(arguments), subprocess.PIPE, subprocess.DEVNULL, said, around)

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
                raise GitFailed(f"git {_verb(arguments)} failed: {words or f'exit status {process.returncode}'}")

    @contextlib.contextmanager
    def listen(self, *arguments: str | bytes, stdin: IO[bytes]) -> Iterator[IO[bytes]]:
        """A call of git that is read from bit by bit, and killed when it is silent for longer than a call may take."""
        process = self._start(self._on_own_folder(arguments), stdin, subprocess.PIPE, subprocess.DEVNULL, _ALONE)
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
    return next(word for word in map(os.fsdecode, arguments) if not word.startswith("-"))


def _configuration(common_dir: bytes, env: Mapping[str, str]) -> tuple[object, ...]:
    """The files that a configuration is read from, as they are now."""
    home = env.get("HOME", "/nonexistent")
    own = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    found: list[object] = [common_dir, home, own]
    for path in (os.path.join(common_dir, b"config"), f"{home}/.gitconfig", f"{own}/git/config"):
        try:
            seen = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return tuple(found)


def _absolute_path() -> str:
    """Where programs are found; without what would be looked for in the folder that git is called in."""
    return os.pathsep.join(part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part))


def _program() -> str:
    return shutil.which("git", path=_absolute_path()) or "git"


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

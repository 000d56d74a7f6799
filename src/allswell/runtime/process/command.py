"""A command that is to be run: checked before anything runs, so that each mistake has one clear answer.

There are no shell strings: `argv` is a list, and nothing in it is ever read as anything but itself. The environment is
an allowlist: what a command needs to find its way (`PATH`, `HOME`, the locale, proxies, …), and what the caller adds.
Keys of the host, and where its store is, are not handed on by accident.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

import msgspec

from allswell.domain.agents.status import Survivor
from allswell.errors import Refused, Unavailable
from allswell.runtime.process.identity import MARKER

HANDED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP", "TZ"),
    *("LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "CI", "DISPLAY", "WAYLAND_DISPLAY"),
)
"""The variables of the host that a command gets without being asked."""

DEFAULT_CAP = 16 * 1024 * 1024


@lru_cache(maxsize=64)
def _listed(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all: a supervisor asks for every agent that it starts."""
    return re.compile("|".join(map(translate, patterns)))


def allowed_environment(
    added: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None, more: Sequence[str] = ()
) -> dict[str, str]:
    """The host's variables that are on the list (or match `more`: "ANTHROPIC_*"), and those that are added."""
    source = os.environ if environ is None else environ
    listed = _listed((*HANDED_ON, *more))
    # What is ours (the store's address, above all) is never handed on by a pattern that happens to fit.
    kept = {
        name: value
        for name, value in source.items()
        if listed.match(name) and (not name.startswith("ALLSWELL_") or name in more)
    }
    for name, value in (added or {}).items():
        given: tuple[object, object] = name, value
        is_text = all(isinstance(one, str) for one in given)
        if not is_text or not name or "=" in name or "\0" in name + value:
            text = f"{given!r} cannot be a variable: names and values are text, without NUL, and names without '='"
            raise Refused("bad_environment", text, where="env")
        kept[name] = value
    return kept


_OF_NO_INTEREST = (
    "ALLSWELL_*",
    "_",
    "OLDPWD",
    "SHLVL",
    "LS_COLORS",
    "TERM_*",
    "HIST*",
    "PS1",
    "MAIL",
    "LESS*",
    "PAGER",
)
"""Variables of a shell and of ours, whose absence explains nothing."""


def held_back(more: Sequence[str] = ()) -> list[str]:
    """The host's variables that a command does not get, by name: one that has failed may have needed one of them."""
    known = _listed((*HANDED_ON, *more, *_OF_NO_INTEREST))
    return sorted(name for name in os.environ if not known.match(name))


@dataclass(frozen=True)
class WardenCommand:
    """What to run, and where its output goes; descriptors are the caller's, and stay the caller's to close."""

    argv: tuple[str, ...]
    path: str
    """The file that is run."""
    cwd: str
    env: Mapping[str, str]
    stdout: int
    stderr: int
    stdin: int | None = None
    """None: empty."""
    terminal: int | None = None
    """Our end of the terminal that `stdin` is: then both streams go there too, and all that is printed is `stdout`."""
    live: tuple[int, int] | None = None
    """Where both streams go as well, at once and unchanged."""
    follows: bool = False
    """Whether the whole tree is stopped when the command, or this process, is: for what is run in front of a person."""
    cap: int = DEFAULT_CAP
    """Bytes kept of each stream."""
    keep_children: bool = False
    """Leave those running that the command has left when it ended by itself."""
    grace_ms: int = 5_000
    """For those who are left when the command has ended, and for all when the supervisor is gone."""

    def __post_init__(self) -> None:
        if self.terminal is not None and (self.stdin is None or self.live is None):
            raise Refused(
                "bad_command", "a command at a terminal needs both ends of it, and a watcher", where="terminal"
            )
        if self.cap < 0 or self.grace_ms < 0:
            wrong = "cap" if self.cap < 0 else "grace_ms"
            raise Refused("bad_command", f"{wrong} ({getattr(self, wrong)}) must not be negative", where=wrong)


def checked_argv(argv: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The command as a list of texts, or `Refused`."""
    given: object = argv
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        text = f"a command is a list of its words, not {given!r}; no shell reads it, so write ['ls', '-l']"
        raise Refused("bad_command", text, where="argv")
    words = []
    for position, word in enumerate(argv):
        plain: object = os.fspath(word) if hasattr(word, "__fspath__") else word
        if not isinstance(plain, str) or "\0" in plain:
            text = f"word {position} of the command must be text without NUL, not {word!r}"
            raise Refused("bad_command", text, where=f"argv[{position}]")
        words.append(plain)
    if not words or not words[0]:
        raise Refused("bad_command", "the command is empty: its first word must name a program", where="argv")
    return tuple(words)


def checked_cwd(cwd: str | os.PathLike[str] | None) -> str:
    """The folder to run in as an absolute path, or `Refused`."""
    try:
        folder = Path.cwd() if cwd is None else Path(cwd).absolute()
    except FileNotFoundError:
        text = "the working directory of this process is gone; name another one"
        raise Refused("no_directory", text, where="cwd") from None
    if not folder.is_dir():
        is_there = "is not a directory" if folder.exists() else "does not exist"
        raise Refused("no_directory", f"the working directory {folder} {is_there}", where="cwd")
    if not os.access(folder, os.X_OK):
        raise Refused("no_directory", f"the working directory {folder} may not be entered", where="cwd")
    return str(folder)


def find_program(name: str, cwd: str, env: Mapping[str, str]) -> str:
    """The file that a command's first word means, or `Refused`."""
    if "/" in name:
        found = Path(cwd, name)
        if not found.exists():
            raise Refused("no_command", f"there is no program {found}", where="argv[0]")
        if not _runs(found):
            what = "is a directory" if found.is_dir() else "is not executable; chmod +x it, or name what runs it"
            raise Refused("not_executable", f"{found} {what}", where="argv[0]")
        return str(found)
    folders = env.get("PATH", os.defpath).split(":")
    candidates = [Path(cwd, folder, name) for folder in folders if folder]
    for candidate in candidates:
        if _runs(candidate):
            return str(candidate)
    for candidate in candidates:
        if candidate.is_file():
            raise Refused("not_executable", f"{candidate} is not executable; chmod +x it", where="argv[0]")
    raise Refused("no_command", f"there is no program {name!r} on PATH", where="argv[0]")


def _runs(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode) and os.access(path, os.X_OK)
    except OSError:
        return False


def not_started(command: WardenCommand, stage: str, number: int) -> Exception:
    """The error for a command that passed the checks, and that the kernel did not take."""
    why = os.strerror(number)
    if stage == "cwd":
        return Refused("no_directory", f"the working directory {command.cwd} cannot be entered: {why}", where="cwd")
    if stage == "exec" and number == errno.E2BIG:
        return Refused("bad_command", f"the command and its environment are too long: {why}", where="argv")
    if stage == "exec" and number not in (errno.ENOMEM, errno.EAGAIN):
        hint = "; a script's first line must name its interpreter" if number in (errno.ENOEXEC, errno.ENOENT) else ""
        return Refused("not_executable", f"{command.path} cannot be run: {why}{hint}", where="argv[0]")
    return Unavailable(f"no process could be started for {command.argv[0]}: {why}")


def marked(command: WardenCommand, marker: str) -> dict[str, str]:
    """The environment of a command, with the marker by which its tree is known."""
    return {**command.env, MARKER: marker}


# How a command ended, and what it used.


class EndCause(StrEnum):
    """Who or what ended it."""

    EXITED = "exited"
    """The command itself: `exit_code` is its own."""
    SIGNALLED = "signalled"
    """A signal that did not come from us."""
    STOPPED = "stopped"
    """We did: it was asked to stop, and killed if it did not."""
    LOST = "lost"
    """Its reaper was killed, so its exit code is not known. `survivors` and `proven` say what is left of the tree."""


class StreamEnd(msgspec.Struct, frozen=True):
    """What became of one stream."""

    bytes: int = 0
    """All that was printed."""
    left_out: int = 0
    """How much of it is not in the file; there a line says so."""
    errno: int | None = None
    """The error that ended the writing of the file, a full disk for example."""


class ProcessResult(msgspec.Struct, frozen=True):
    """The end of a process tree."""

    ending: EndCause
    exit_code: int | None
    """The command's own; None if a signal ended it, or if it is unknown."""
    signal: int | None
    killed: bool = False
    """Whether a process had to be killed after the grace."""
    left_behind: int = 0
    """How many processes the command left when it ended by itself; they were ended, too, unless kept."""
    background: tuple[Survivor, ...] = ()
    """The first of them, with their commands."""
    survivors: tuple[int, ...] = ()
    """Who still runs although it was killed: another user's process, or one that hangs in a device."""
    running: tuple[Survivor, ...] = ()
    """The same, with their commands and what tells them from others."""
    proven: bool = True
    """Whether it is known that no other process is left: False if both that could know, reaper and warden, were
    killed."""
    seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_kb: int = 0
    """Of the largest process of the tree; never less than a reaper has, about 10 MB, which each begins as."""
    stdout: StreamEnd = StreamEnd()
    stderr: StreamEnd = StreamEnd()

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself, with exit code 0."""
        return self.ending is EndCause.EXITED and self.exit_code == 0

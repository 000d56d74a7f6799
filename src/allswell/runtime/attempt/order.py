"""What an attempt is asked to do, and what comes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allswell.domain.evidence import BUSY
from allswell.domain.expense import Expense
from allswell.domain.quota import DEFAULT as QUOTA
from allswell.domain.quota import Quota
from allswell.domain.receipt import End, Receipt, Verification
from allswell.domain.retry import Failure
from allswell.domain.snapshot import Limits as SnapshotLimits
from allswell.errors import AllswellError, Refused
from allswell.runtime.speaking.speakers import outsiders_may_speak
from allswell.runtime.warden import Ending, Result, allowed_environment, checked_argv, checked_cwd, find_program
from allswell.runtime.warden.command import DEFAULT_CAP

Echo = Callable[[int, bytes], None]
"""Takes what the command prints as it passes, with 1 or 2 for the stream, in a thread of the stream's own."""


@dataclass(frozen=True)
class AttemptLimits:
    """How long an attempt may take; milliseconds."""

    timeout: int | None = None
    """The hard limit; None: the lease's own, which bounds it in any case."""
    idle: int | None = None
    """Without proof of progress for so long it is ended; None: it is not."""
    grace: int = 10_000
    """Between SIGTERM and SIGKILL, and for the tree when the supervisor is gone."""
    leave: int = 30_000
    """What the command has to end by itself once it has said its last word (`done`, `fail`, …)."""
    busy: float = BUSY
    """The share of one processor from which its processes count as at work."""

    def __post_init__(self) -> None:
        for name in ("timeout", "idle", "grace", "leave"):
            length = getattr(self, name)
            if length is not None and length < (0 if name in ("grace", "leave") else 1):
                raise Refused("bad_limit", f"{name} ({length} ms) must be positive", where=name)


@dataclass(frozen=True)
class Order:
    """One attempt, checked: `order_for` makes it, and refuses what cannot be run."""

    argv: tuple[str, ...]
    path: str
    cwd: str
    env: Mapping[str, str]
    limits: AttemptLimits = AttemptLimits()
    quota: Quota = QUOTA
    """What it may put into the store."""
    folder: Path | None = None
    """The folder whose work is kept at a bad end (in a repository: the whole working tree), and watched for changes."""
    snapshot: SnapshotLimits = field(default_factory=lambda: SnapshotLimits(timeout=10_000, git_timeout=10_000))
    store: str | None = None
    """The path of a store that lies in the folder and not in `.allswell/`: its changes are not the command's work."""
    stdin: int | None = None
    """A descriptor that the command reads from; None: empty. It stays the caller's to close."""
    terminal: int | None = None
    """The other end of the terminal that `stdin` is, where it is one: what is printed comes out there."""
    echo: Echo | None = None
    cap: int = DEFAULT_CAP
    """Bytes kept of each stream."""
    keep_transcript: bool = True
    """Whether what it printed is kept after a good end, too."""
    resume: tuple[str, ...] = ()
    """What to type to go on, for the receipt."""
    verify: tuple[str, ...] = ()
    """The command that verifies its work, where that is another one than its task says: one with values put in."""
    outsiders: bool = False
    """Whether who knows the attempt's secret may speak for it from outside of its process tree."""


def order_for(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    hand_on: Sequence[str] = (),
    limits: AttemptLimits | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Order:
    """An order, or `Refused`; `env` is added to an allowlist of our own, `hand_on` widens that ("ANTHROPIC_*").

    What else an order has (`stdin`, `echo`, `resume`, …) is set with `dataclasses.replace`.
    """
    words = checked_argv(argv)
    place = checked_cwd(cwd)
    variables = {**allowed_environment(env, more=hand_on), "PWD": place}
    path = find_program(words[0], place, variables)
    kept = None if folder is None else Path(checked_cwd(folder))
    own = limits or AttemptLimits()
    return Order(words, path, place, variables, own, folder=kept, outsiders=outsiders_may_speak())


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. What follows for the task is for the caller to say."""

    end: End
    reason: str
    """In words."""
    result: Result | None = None
    """How the process tree ended; None if it never started."""
    receipt: Receipt | None = None
    """None at a good end."""
    receipt_path: Path | None = None
    """None if there is none, or if it could not be written."""
    said: str | None = None
    """The agent's last word through its socket (`done`, `fail`, `release`, `ask`): the lease is over then."""
    failure: Failure | None = None
    """What the agent itself says went wrong, where the last line of its output does: exit code 0 is not always done."""
    verification: Verification | None = None
    """What came of the verification of its work, where its task wants one and it said that it was done."""
    brought: bool = False
    """Whether it has said itself what it brought, when it said that it was done."""
    error: AllswellError | None = None
    """Why it could not be started."""
    expense: Expense | None = None
    """What it said that it cost."""
    over_cost: bool = False
    """Whether its task has reached what it may cost."""
    warnings: tuple[str, ...] = ()
    last_words: str = ""
    """The end of its output, at a bad end."""
    transcript: tuple[Path | None, Path | None] = (None, None)
    """What it printed, by stream; None where that was nothing, or was not kept."""

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.end is End.DONE

    @property
    def by_itself(self) -> bool:
        """Whether the command ended without anybody's order."""
        return self.result is not None and self.result.ending in (Ending.EXITED, Ending.SIGNALLED)

    @property
    def exit_code(self) -> int | None:
        """The command's own exit code, if it had one."""
        return None if self.result is None else self.result.exit_code

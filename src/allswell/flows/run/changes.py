"""What attempts at steps changed: noted when one begins, looked at when it was cut off, compared when the run goes on.

An attempt that runs a command notes by itself what is in its folder when it begins. A function's step does it here. It
costs a call of git, or a walk through the folder, so a flow spends at most a tenth of its time on it: thousands of
steps that are over in no time are not slowed down, and one that lasts has its note.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from allswell.domain.names import TaskId
from allswell.domain.snapshot import LeftOut, spell, unspell
from allswell.domain.step_changes import LISTED, AtWork, LeftFile, StepChanges, was_made_by
from allswell.domain.step_receipt import StepReceipt, StepStatus
from allswell.errors import AllswellError
from allswell.flows.run.base import moment
from allswell.flows.run.job import Job
from allswell.runtime.baseline import Baseline, changes_since, forget_baseline, read_baseline, take_baseline
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.receipts import Home
from allswell.runtime.snapshot.reading import open_file
from allswell.timing.clock import Clock

_SHARE = 10
"""Noting may take one part in so many of a flow's time, beside the first."""
_FREE = 1_000
"""Milliseconds that it may take in any case."""
_ASKED_MOST = 200
_LOOKED_AT = 5 * LISTED
_GIT = 10_000
_READ_MOST = 64 << 20
"""Bytes; a file above that is known again by its size and the kernel's time of its last change."""


class Noting:
    """Notes what is in the folder when steps of functions begin, as long as it does not cost too much."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._spent = 0

    async def note(
        self, aside: Callable[[Callable[[], Any]], Awaitable[Any]], job: Job, task: TaskId, attempt: int
    ) -> bool:
        """Note it for one attempt, in a thread; nothing that goes wrong with it stops the attempt. Whether it was."""
        began = self._clock.monotonic()
        if self._spent > _FREE + (began - self._began) // _SHARE:
            return False
        with contextlib.suppress(AllswellError, OSError):
            place = Home(job.home).baselines
            await aside(lambda: take_baseline(place, job.folder, task, attempt, clock=self._clock))
        self._spent += self._clock.monotonic() - began
        return True

    @staticmethod
    def forget(job: Job, task: TaskId, attempt: int) -> None:
        """The attempt has ended well: nobody will put back what it changed."""
        forget_baseline(Home(job.home).baselines, task, attempt)


def changes_of(then: Baseline, at: AtWork, *, folder: str, outputs: Iterable[str]) -> StepChanges | None:
    """What is not as it was noted when an attempt began; None where nobody can look. It blocks."""
    try:
        told = changes_since(then)
        every = [as_it_is(unspell(then.folder), change.how, change.path) for change in told.changed[:_LOOKED_AT]]
        files = [left for left in every if was_made_by(left, at.ended_at)]
        return StepChanges(
            step=at.step,
            number=at.number,
            task=TaskId(then.task),
            attempt=then.attempt,
            top=then.folder,
            began_at=at.began_at,
            ended_at=at.ended_at,
            gap=told.gap if told.since != "began" else "",
            outputs=tuple(_from_top(folder, then.folder, path) for path in outputs),
            files=tuple(files[:LISTED]),
            more=max(len(files) + len(told.changed) - len(every) - LISTED, 0),
        )
    except (AllswellError, OSError):
        return None


def begun(home: str | Path, task: TaskId, attempt: int) -> Baseline | None:
    """What was noted when an attempt began."""
    return read_baseline(Home(home).baselines, task, attempt)


def as_it_is(top: bytes, how: str, path: str) -> LeftFile:
    """How a path stands now."""
    place = _path(top, path)
    try:
        status = place.lstat()
    except OSError:
        return LeftFile("D", path, changed_at=_changed_at(place.parent))
    if stat.S_ISDIR(status.st_mode):
        return LeftFile("D", path, changed_at=_changed_at(place.parent))
    digest = _digest(top, path) if status.st_size <= _READ_MOST else ""
    return LeftFile(how, path, status.st_size, digest, status.st_ctime_ns // 1_000_000)


def _changed_at(folder: Path) -> int:
    """When something was last made or removed in a folder; of one that is gone itself, 0."""
    try:
        return folder.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _path(top: bytes, path: str) -> Path:
    return Path(os.fsdecode(top)) / os.fsdecode(unspell(path))


def _digest(top: bytes, path: str) -> str:
    """Of a file's bytes or a link's target; empty where it cannot be read."""
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        read = open_file(unspell(path), opened)
        if isinstance(read, LeftOut):
            return ""
        digest = hashlib.sha256()
        for chunk in read.chunks:
            digest.update(chunk)
        return digest.hexdigest() if read.outcome() == "same" else ""
    finally:
        os.close(opened)


def is_as_left(top: bytes, left: LeftFile) -> bool:
    """Whether nobody has touched a path since the attempt left it so."""
    now = as_it_is(top, left.how, left.path)
    if left.how == "D" or now.how == "D":
        return left.how == now.how
    if left.sha256:
        return (now.size, now.sha256) == (left.size, left.sha256)
    return (now.size, now.changed_at) == (left.size, left.changed_at)


def times_of(receipts: Iterable[StepReceipt]) -> list[AtWork]:
    """When attempts were at work, by their receipts."""
    return [AtWork(one.step_id, one.attempt, moment(one.started_at), moment(one.completed_at)) for one in receipts]


def owners(changes: Iterable[StepChanges], receipts: Iterable[StepReceipt], folder: str, top: str) -> dict[str, str]:
    """Whose output each declared path is: of steps that are done, and of those that were cut off."""
    found = {path: one.step for one in changes for path in one.outputs}
    for receipt in receipts:
        if receipt.status is StepStatus.DONE:
            found |= {_from_top(folder, top, one.path): receipt.step_id for one in receipt.artifacts}
    return found


def _from_top(folder: str, top: str, path: str) -> str:
    """A path that is told from the flow's folder, as changes have it."""
    whole = os.path.normpath(Path(folder).resolve() / path)
    return spell(os.fsencode(os.path.relpath(whole, os.fsdecode(unspell(top)))))


def from_folder(folder: str, top: str, path: str) -> str:
    """A path of changes as outputs are told: from the flow's folder, where it lies below it."""
    whole = _path(unspell(top), path)
    near = os.path.relpath(whole, Path(folder).resolve())
    return str(whole) if near.startswith("..") else near


def grown(then: Baseline, changes: StepChanges) -> list[LeftFile]:
    """Files that are new, or larger than they were."""
    noted = {one.path: one.size for one in then.noted}
    asked = [left.path for left in changes.files if left.how == "M" and left.path not in noted]
    had = _sizes(then, asked[:_ASKED_MOST])
    return [
        left
        for left in changes.files
        if left.how == "A" or (left.how == "M" and left.size > noted.get(left.path, had.get(left.path, left.size)))
    ]


def _sizes(then: Baseline, paths: list[str]) -> dict[str, int]:
    """How large files were in the commit that the attempt began on."""
    if not paths or then.head is None:
        return {}
    top = unspell(then.folder)
    try:
        with scratch_folder() as scratch:
            git = Git(top, timeout=_GIT, scratch=scratch)
            lines = git.run("ls-tree", "-l", "-z", then.head, "--", *map(unspell, paths)).split(b"\0")
    except (AllswellError, OSError):
        return {}
    found = {}
    for line in lines:
        about, _, path = line.partition(b"\t")
        size = about.split()[-1:] or [b""]
        if size[0].isdigit():
            found[spell(path)] = int(size[0])
    return found

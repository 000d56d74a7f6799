"""Receipts as files: `Receipts` is a folder of them, each replaced as a whole or not at all.

What a receipt says is `allswell.domain.receipts.receipt`; who writes one is `allswell.runtime.attempt`. How any small
file of ours is written stands in `workspace/files.py`. `StateDir` is what lies beside a store.
"""

from __future__ import annotations

import contextlib
import os
from glob import escape
from pathlib import Path

import msgspec

from allswell.domain.ids import TaskId, file_name, is_file_name
from allswell.domain.receipts.receipt import Receipt, receipt_id
from allswell.errors import Refused
from allswell.runtime.workspace.files import open_folder, read_file, remove_file, replace_file
from allswell.store import files

# A folder of receipts, one file for each attempt.

_BIGGEST = 4 << 20
"""Bytes; no receipt of ours is larger, so a larger file is none."""
_WRITE = msgspec.json.Encoder()
_READ = msgspec.json.Decoder(Receipt)


class StoredReceipt(msgspec.Struct, frozen=True):
    """A receipt and its file."""

    path: Path
    receipt: Receipt


class Receipts:
    """Where receipts are kept, each in a file with its id for a name."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def write(self, receipt: Receipt) -> Path:
        """Keep a receipt in the place of an earlier one of the same attempt; `OSError` if that cannot be."""
        os.close(open_folder(self.folder, make=True))
        path = self.folder / f"{file_name(receipt.id)}.json"
        replace_file(path, msgspec.json.format(_WRITE.encode(receipt), indent=2) + b"\n")
        return path

    def all(self) -> list[StoredReceipt]:
        """Every receipt that can be read, the oldest first; what is torn or somebody else's is left out."""
        try:
            paths = sorted(self.folder.glob("*.json"))
        except OSError:
            return []
        found = [StoredReceipt(path, receipt) for path in paths if (receipt := _load(path)) is not None]
        return sorted(found, key=lambda one: (one.receipt.ended_at, one.receipt.id))

    def find(self, text: str) -> StoredReceipt | None:
        """The receipt with this id, or in this file; None if there is none."""
        if text.startswith("rc_") and is_file_name(text):
            direct = self.folder / f"{text}.json"
            receipt = _load(direct)
            return None if receipt is None else StoredReceipt(direct, receipt)
        path = Path(text)
        if path.suffix != ".json" or not path.is_file():
            return None
        try:
            with path.open("rb") as named:  # one that somebody names may be a link, and anybody's
                return StoredReceipt(path, _READ.decode(named.read(_BIGGEST)))
        except (OSError, msgspec.DecodeError, RecursionError):
            text = f"{path} is not a receipt that can be read"
            raise Refused("bad_receipt", text, where="receipt") from None

    def last_of(self, task: TaskId) -> Receipt | None:
        """The receipt of a task's last attempt that has left one; None if none has."""
        begins = file_name(receipt_id(task, ""))
        try:
            paths = list(self.folder.glob(f"{escape(begins)}*.json"))
        except OSError:
            return None
        kept = [receipt for path in paths if (receipt := _load(path)) is not None and receipt.task == task]
        return max(kept, key=lambda one: one.attempt, default=None)

    def remove(self, id_: str) -> None:
        """Take a receipt away that says what is no longer so."""
        with contextlib.suppress(OSError):
            remove_file(self.folder / f"{file_name(id_)}.json")

    def of_task(self, task: str) -> list[StoredReceipt]:
        """The receipts of a task's attempts, the oldest first."""
        return [one for one in self.all() if one.receipt.task == task]


def _load(path: Path) -> Receipt | None:
    try:
        return _READ.decode(read_file(path, _BIGGEST))
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


# What lies beside a store: receipts, transcripts, attempts in flight and worktrees, all in one folder of ours.
#
# .allswell/
#   receipts/      one file for each attempt that did not end well, or left work on a branch
#   transcripts/   what attempts printed
#   shown/         the same of commands that ended well under `allswell run`, the newest of them
#   attempts/      one file for each attempt in flight, locked by its supervisor
#   baselines/     what was in their folders when attempts began
#   snapshots/     work that was kept without git
#   survivors/     one file for each attempt of which processes still run
#   worktrees/     those that were made for an attempt


def attempt_name(task: str, attempt: int) -> str:
    """What the files of an attempt are called."""
    return f"{file_name(task)}.{attempt}"


class StateDir:
    """The folder of ours that attempts write into; `receipts` can be another one."""

    def __init__(self, folder: str | os.PathLike[str], receipts: Receipts | None = None) -> None:
        self.folder = Path(folder)
        self.receipts = receipts or Receipts(self.folder / "receipts")

    @property
    def transcripts(self) -> Path:
        """Where what attempts print is kept."""
        return self.folder / "transcripts"

    @property
    def shown(self) -> Path:
        """Where that is kept which a terminal has shown whose command ended well: the newest, within bounds."""
        return self.folder / "shown"

    @property
    def attempts(self) -> Path:
        """Where attempts in flight are noted."""
        return self.folder / "attempts"

    @property
    def baselines(self) -> Path:
        """Where it is noted what was in a folder when an attempt began there."""
        return self.folder / "baselines"

    @property
    def survivors(self) -> Path:
        """Where it is noted which processes still run after their attempt."""
        return self.folder / "survivors"

    @property
    def worktrees(self) -> Path:
        """Where worktrees are made."""
        return self.folder / "worktrees"

    def make(self) -> None:
        """Make the folder if it is missing, for its user alone; `OSError` if that cannot be."""
        files.make(self.folder)

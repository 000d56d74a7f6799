"""A folder of receipts, one file for each attempt."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from allswell.domain.receipt import Receipt
from allswell.errors import Refused
from allswell.runtime.atomic import replace_file
from allswell.runtime.own_files import open_folder, read_file

_BIGGEST = 4 << 20
"""Bytes; no receipt of ours is larger, so a larger file is none."""
_WRITE = msgspec.json.Encoder()
_READ = msgspec.json.Decoder(Receipt)


class Found(msgspec.Struct, frozen=True):
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
        path = self.folder / f"{receipt.id}.json"
        replace_file(path, msgspec.json.format(_WRITE.encode(receipt), indent=2) + b"\n")
        return path

    def all(self) -> list[Found]:
        """Every receipt that can be read, the oldest first; what is torn or somebody else's is left out."""
        try:
            paths = sorted(self.folder.glob("*.json"))
        except OSError:
            return []
        found = [Found(path, receipt) for path in paths if (receipt := _load(path)) is not None]
        return sorted(found, key=lambda one: (one.receipt.ended_at, one.receipt.id))

    def find(self, text: str) -> Found | None:
        """The receipt with this id, or in this file; None if there is none."""
        if text.startswith("rc_") and "/" not in text:
            direct = self.folder / f"{text}.json"
            receipt = _load(direct)
            return None if receipt is None else Found(direct, receipt)
        path = Path(text)
        if path.suffix != ".json" or not path.is_file():
            return None
        receipt = _load(path.resolve())  # one that somebody names may be a link
        if receipt is None:
            raise Refused("bad_receipt", f"{path} is not a receipt that can be read", where="receipt")
        return Found(path, receipt)

    def of_task(self, task: str) -> list[Found]:
        """The receipts of a task's attempts, the oldest first."""
        return [one for one in self.all() if one.receipt.task == task]


def _load(path: Path) -> Receipt | None:
    try:
        return _READ.decode(read_file(path, _BIGGEST))
    except (OSError, msgspec.DecodeError, RecursionError):
        return None

"""What lies beside a store: receipts, transcripts, attempts in flight and worktrees, all in one folder of ours.

.allswell/
  receipts/      one file for each attempt that did not end well, or left work on a branch
  transcripts/   what attempts printed
  attempts/      one file for each attempt in flight, locked by its supervisor
  baselines/     what was in their folders when attempts began
  snapshots/     work that was kept without git
  worktrees/     those that were made for an attempt
"""

from __future__ import annotations

import os
from pathlib import Path

from allswell.runtime.receipts.folder import Receipts
from allswell.store import state_folder


class Home:
    """The folder of ours that attempts write into; `receipts` can be another one."""

    def __init__(self, folder: str | os.PathLike[str], receipts: Receipts | None = None) -> None:
        self.folder = Path(folder)
        self.receipts = receipts or Receipts(self.folder / "receipts")

    @property
    def transcripts(self) -> Path:
        """Where what attempts print is kept."""
        return self.folder / "transcripts"

    @property
    def attempts(self) -> Path:
        """Where attempts in flight are noted."""
        return self.folder / "attempts"

    @property
    def baselines(self) -> Path:
        """Where it is noted what was in a folder when an attempt began there."""
        return self.folder / "baselines"

    @property
    def worktrees(self) -> Path:
        """Where worktrees are made."""
        return self.folder / "worktrees"

    def make(self) -> None:
        """Make the folder if it is missing, for its user alone; `OSError` if that cannot be."""
        state_folder.make(self.folder)

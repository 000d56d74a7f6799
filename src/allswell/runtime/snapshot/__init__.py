"""Snapshots: the work of an attempt, kept before it is ended, and given back.

`take` is the way in and `recover` the way back. In a repository: `survey` finds what stands in the working tree,
`storing` writes it to the repository's objects, `record` is what it says about itself. Without git: `folder`. The rules
(names, limits, what a conflict is) are in `allswell.domain.snapshot`, the words for users in docs/snapshots.md.
"""

from allswell.domain.snapshot import LeftOut, Limits, Snapshot, Why
from allswell.runtime.git import GitFailed
from allswell.runtime.snapshot.changes import changed_files
from allswell.runtime.snapshot.listing import list_snapshots
from allswell.runtime.snapshot.progress import Progress
from allswell.runtime.snapshot.recover import Conflict, Recovery, recover
from allswell.runtime.snapshot.take import keep_baseline, take

__all__ = [
    "Conflict",
    "GitFailed",
    "LeftOut",
    "Limits",
    "Progress",
    "Recovery",
    "Snapshot",
    "Why",
    "changed_files",
    "keep_baseline",
    "list_snapshots",
    "recover",
    "take",
]

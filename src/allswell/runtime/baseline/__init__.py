"""What was in a folder when an attempt began, so that it can be told later what the attempt changed there.

    then = take_baseline(home.baselines, folder, task, attempt)     # when it begins: bounded, changes nothing there
    then = read_baseline(home.baselines, task, attempt)             # after a restart; None if there is none
    told = changes_since(then)                                      # A, M, D: what is not as it was
    was = before(home.baselines, then, path)                        # how one file was, and where its bytes are

Noted is what git would not give back: paths that differ from HEAD and paths that it does not track (without git: every
file), each with its stat data, and the bytes of the small ones. What is not noted was as HEAD has it. Beyond the bounds
nothing is guessed: `whole` is false, and a comparison says that it goes by HEAD, or without git by the kernel's times.

`look` finds what stands in a folder, `record` is what is written down, `take` writes it, `compare` reads it back;
`difference` shows two of them as git would, the beginning of an attempt and its end.
"""

from allswell.runtime.baseline.compare import Before, Comparison, before, changes_since
from allswell.runtime.baseline.difference import Difference, difference
from allswell.runtime.baseline.record import Baseline, Noted, attempts_noted, forget_baseline, read_baseline
from allswell.runtime.baseline.take import BOUNDS, take_baseline

__all__ = [
    "BOUNDS",
    "Baseline",
    "Before",
    "Comparison",
    "Difference",
    "Noted",
    "attempts_noted",
    "before",
    "changes_since",
    "difference",
    "forget_baseline",
    "read_baseline",
    "take_baseline",
]

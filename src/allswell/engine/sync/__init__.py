"""The watch for code that is not async: the same calls, each waiting for its answer.

`watch` is what programs meet, `held` what they hold, `looking` the reading half, `thread` where all of it runs. Every
call has the parameters that its async counterpart has; tests/tidy/test_api.py holds them to each other.
"""

from allswell.engine.sync.held import SyncHeld, SyncLease
from allswell.engine.sync.watch import SyncWatch

__all__ = ["SyncHeld", "SyncLease", "SyncWatch"]

"""What a supervisor knows stays in its own process.

Its environment and its memory hold keys and the store's password, and Linux lets every process of the same user read
both in /proc. A supervisor marks itself as one that is not to be dumped: then only root can. The mark ends with the
next `exec`, so the warden, the reapers and the agents are as readable as ever, which settling what is left of a killed
supervisor needs. It is for programs of ours alone: a library has no business to change its host.
"""

from __future__ import annotations

_PR_SET_DUMPABLE = 4


def keep_to_ourselves() -> None:
    """Let no other process of this user read our environment or our memory; where that cannot be, nothing happens."""
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return  # no Linux: there is no /proc to read it in, either
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

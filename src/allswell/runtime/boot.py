"""What tells this boot of this machine from all others: moments and process numbers mean nothing beyond it."""

from __future__ import annotations

from functools import cache

from allswell.domain.carried import BootId


@cache
def boot_id() -> BootId:
    """The kernel's own id of this boot; "here" where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as told:  # noqa: PTH123 - read at every start
            return BootId(told.read().strip())
    except OSError:
        return BootId("here")

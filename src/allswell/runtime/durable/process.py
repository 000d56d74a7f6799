"""Who holds a flow: this very process, told from every other, so that it can be seen whether it has died.

The name of the holder says machine and process number for people, and what makes the number mean anything for us: the
moment of its start, and a short print of the boot and the pid namespace. A holder of the same boot and namespace whose
process is not there any more is certainly dead, and its flow can be taken up at once. Of any other holder nothing is
known from here: its hold must lapse.
"""

from __future__ import annotations

import os
import re
import socket
from functools import cache
from hashlib import blake2b

from allswell.runtime.boot import boot_id
from allswell.runtime.warden.apart.tree import look
from allswell.runtime.warden.record import pid_namespace

_HOLDER = re.compile(r".*:([0-9]+)\.([0-9]+)\.([0-9a-f]{8})", re.DOTALL)
_HOST_MOST = 60


@cache
def _here() -> str:
    """What tells this boot of this machine, and this pid namespace, from all others."""
    return blake2b(f"{boot_id()} {pid_namespace()}".encode(), digest_size=4).hexdigest()


def this_process() -> str:
    """The name under which this process holds flows."""
    seen = look(os.getpid())
    start = 0 if seen is None else seen.start
    host = "".join(letter if letter.isprintable() else "?" for letter in socket.gethostname())[:_HOST_MOST]
    return f"{host}:{os.getpid()}.{start}.{_here()}"


def is_dead(holder: str) -> bool:
    """Whether it is certain that the process of this name is gone."""
    found = _HOLDER.fullmatch(holder)
    if found is None or found[3] != _here() or pid_namespace() == "unknown":
        return False
    seen = look(int(found[1]))
    return seen is None or seen.state in "ZX" or str(seen.start) != found[2]

"""The processes of one server, killed so that none gets away."""

import os
import select
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from allswell.testing.postgres.failure import ServerFailed


def kill_family(parent: subprocess.Popen[bytes], timeout: float) -> None:
    """SIGKILL a child of ours and its children, and return when all are dead.

    PostgreSQL's backends lead process groups of their own, so one signal to a group does not reach them. The
    parent is stopped first: from then on it starts no child and reaps none, so the list is complete and no
    pid in it is reused before a pidfd holds it.
    """
    parent.send_signal(signal.SIGSTOP)
    if parent.returncode is not None:
        return  # it had ended before, and a postmaster ends after its children
    os.waitid(os.P_PID, parent.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    with ExitStack() as held:
        dying = []
        for pid in (*_children(parent.pid), parent.pid):  # the parent last, since its death lets others reap
            descriptor = os.pidfd_open(pid)
            held.callback(os.close, descriptor)
            dying.append(descriptor)
        for descriptor in dying:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in dying:
            if not _died(descriptor, timeout):
                raise ServerFailed(f"A process of the server outlived SIGKILL by {timeout:.0f} s.")
    parent.wait()


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            status = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended while we looked: no child of a stopped parent, whose dead stay as zombies
        # pid (name) state ppid …, and the name may hold anything, parentheses too.
        if int(status.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.name))
    return found


def _died(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))

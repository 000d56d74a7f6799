"""What ends a server whose maker is gone.

A test process can die by SIGKILL, so its own clean-up is not enough. The watcher is a process beside it that
holds the reading end of a pipe; the kernel closes the writing end when the maker dies, however that happens.

Why not PR_SET_PDEATHSIG on the server: it fires when the *thread* that started the server ends, is lost when
credentials change, needs code between fork and exec, and leaves the folder behind. Why a shell: as root the
watcher too runs without rights, as an account that may not be able to read our Python; and it starts at once.

Only the watcher removes the folder, so that clean-up exists once: after a crash it does what it always does.
"""

import os
from pathlib import Path

from allswell.testing.postgres.account import Account

# The server is known by its working folder, so that a reused pid is not mistaken for it. Should the maker die
# in the instant before the server wrote its pid file, removing the folder is enough: a server that loses that
# file stops by itself within a minute. ipcrm: a killed server leaves a segment of shared memory, see line 7.
_SCRIPT = """
data=$1/data
read -r _
pid=$(sed -n 1p "$data/postmaster.pid" 2>/dev/null)
segment=$(sed -n '7s/.* //p' "$data/postmaster.pid" 2>/dev/null)
lives() { [ -n "$pid" ] && [ "/proc/$pid/cwd" -ef "$data" ]; }
lives && kill -QUIT "$pid"
tries=100
while lives && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
lives && kill -KILL "$pid"
[ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
rm -rf "$1"
"""


class Watcher:
    """A process that ends the server in a folder, and the folder, once we are gone or say so."""

    def __init__(self, account: Account, folder: Path) -> None:
        reading, self._writing = os.pipe()
        try:
            self._process = account.start("/bin/sh", "-c", _SCRIPT, "watcher", folder, cwd=Path("/"), stdin=reading)
        except BaseException:
            os.close(self._writing)
            raise
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        """The watcher's process id."""
        return self._process.pid

    def dismiss(self) -> None:
        """Have it clean up now, and wait for it."""
        try:
            # A word, since closing says nothing while a forked child of ours still holds the pipe.
            os.write(self._writing, b"\n")
        except BrokenPipeError:
            pass  # someone killed the watcher: nothing is left to tell it
        finally:
            os.close(self._writing)
        self._process.wait(timeout=30)

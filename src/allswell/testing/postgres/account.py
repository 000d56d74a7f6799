"""Who the server runs as: us, unless we are root, which PostgreSQL refuses."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from allswell.testing.postgres.failure import ServerFailed

# The one with the fewest rights first: `postgres` may own a real cluster on this machine.
_UNPRIVILEGED = ("nobody", "postgres")


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group that processes are started as; both None means as ourselves."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def unprivileged(cls) -> Self:
        """Ourselves, or an account without rights when we are root."""
        if os.geteuid() != 0:
            return cls()
        for name in _UNPRIVILEGED:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise ServerFailed(
            "PostgreSQL does not run as root, and there is no user nobody or postgres to run it as. "
            "Add one, or run the tests as an ordinary user."
        )

    def own(self, path: Path) -> None:
        """Give a path of ours to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def start(
        self,
        *command: str | Path,
        cwd: Path,
        stdin: int = subprocess.DEVNULL,
        output: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a process as this account, in a session of its own: Ctrl-C in a terminal is not for it."""
        return subprocess.Popen(
            command,
            cwd=cwd,  # ours may be closed to the account
            env=_environment(),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def run(self, *command: str | Path, cwd: Path = Path("/")) -> None:
        """Run a process to its end; ServerFailed, with all it printed, when it cannot start or fails."""
        try:
            with self.start(*command, cwd=cwd, output=subprocess.PIPE) as process:
                printed, _ = process.communicate(timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerFailed(f"{command[0]} could not be run: {error}") from error
        if process.returncode != 0:
            raise ServerFailed(f"{command[0]} failed ({process.returncode}):\n{printed.decode(errors='replace')}")

    def reaches(self, folder: Path) -> bool:
        """Tell whether this account can enter a folder: asked of the kernel, not worked out from modes."""
        return self._can('cd "$1"', folder)

    def removes(self, folder: Path) -> bool:
        """Tell whether this account can enter a folder of its own and remove it afterwards."""
        return self._can('cd "$1" && test -w ..', folder)

    def _can(self, script: str, folder: Path) -> bool:
        try:
            self.run("/bin/sh", "-c", script, "sh", folder)
        except ServerFailed:
            return False
        return True


def _environment() -> dict[str, str]:
    """Our environment without libpq's variables, which would bend the server to the user's settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return ours | {"LC_ALL": "C"}

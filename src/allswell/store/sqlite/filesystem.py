"""Which file systems a store may lie on: those whose locks and shared memory end at this machine.

SQLite's WAL keeps its index in memory shared between processes and relies on POSIX locks. A network file system gives
neither reliably: two machines would each believe they are alone, and the file would be damaged without a word.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from allswell.errors import Refused

REMOTE = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb", "smb3", "smbfs", "vboxsf",
    }
)  # fmt: skip
REMOTE_FUSE = frozenset(
    {
        "alluxio", "ceph", "cephfs", "curlftpfs", "davfs", "gcsfuse", "glusterfs", "goofys", "juicefs", "moosefs",
        "mfs", "mountpoint-s3", "nfs", "rclone", "s3fs", "seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse",
    }
)  # fmt: skip
"""As mountinfo names them after `fuse.`; FUSE as such is no fault (a local overlay, an encrypted folder)."""

_OCTAL = re.compile(r"\\([0-7]{3})")


def type_of(folder: PurePath, mountinfo: str) -> str | None:
    """The type of the file system that an absolute, resolved folder lies on, read from the text of mountinfo."""
    found: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5 or not after:
            continue
        point = PurePath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        if not folder.is_relative_to(point):
            continue
        depth = len(point.parts)
        if found is None or depth >= found[0]:  # a later mount on the same folder hides the earlier one
            found = (depth, after.split(" ")[0])
    return None if found is None else found[1]


def is_remote(kind: str) -> bool:
    """Whether a file system of this type may be shared with other machines."""
    return kind in REMOTE or (kind.startswith("fuse.") and kind.removeprefix("fuse.") in REMOTE_FUSE)


def check(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> None:
    """Refuse a folder on a network file system; where the system does not tell, nothing is refused."""
    try:
        text = mountinfo.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = type_of(folder, text)
    if kind is not None and is_remote(kind):
        raise Refused(
            "remote_filesystem",
            f"{folder} lies on a network file system ({kind}), where SQLite's locks do not hold and the store would "
            "be damaged; put it on a local disk, or use PostgreSQL for several machines",
            where="store",
        )

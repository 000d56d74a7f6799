"""Where a store lies: what a URL or a path means, the folder around it, and who may enter.

The database's files are looked at, never opened: an ordinary open and close would drop the locks that SQLite holds in
this process. They are for their owner alone; SQLite gives its WAL the mode of the database.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path, PurePath

from allswell.domain.values import hide
from allswell.errors import Refused, Unavailable
from allswell.store import files

# Which file systems a store may lie on: those whose locks and shared memory end at this machine.
#
# SQLite's WAL keeps its index in memory shared between processes and relies on POSIX locks. A network file system gives
# neither reliably: two machines would each believe they are alone, and the file would be damaged without a word.

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


def check_filesystem(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> None:
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


_SCHEME = "sqlite:"
_FILES = ("", "-wal", "-shm", "-journal", ".next", ".turn")
_MADE = ("", ".next", ".turn")
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
"""How a journal ends that names a journal of several databases."""


def locate(place: str | Path) -> Path:
    """The database's absolute path; `sqlite:///relative`, `sqlite:////absolute` or a plain path.

    Nothing is decoded: a `%` in a file's name is a `%`. Links are followed, or two names of one database would have two
    turnstiles.
    """
    text = str(place)
    if text.startswith(_SCHEME):
        if not text.startswith(f"{_SCHEME}///"):
            raise Refused(
                "bad_url",
                f"{hide(text)!r} names no file: write sqlite:///relative/path or sqlite:////absolute/path",
                where="store",
            )
        text = text.removeprefix(f"{_SCHEME}///")
    if not text or text == ":memory:" or text.endswith("/") or "\0" in text:
        raise Refused("bad_url", f"{str(place)!r} names no file; a store in memory is `memory:`", where="store")
    named = Path(text).expanduser()
    if files.is_anothers_link(named.parent):
        text = f"{named.parent} is a link of another user's: where it leads is not yours to write to"
        raise Refused("untrusted", text, where="store")
    try:
        return named.resolve()
    except (OSError, RuntimeError):
        raise Refused("bad_url", f"{named} cannot be followed: its links lead in a circle", where="store") from None


def prepare(database: Path) -> HeldFolder:
    """Make what is missing, after a look at the file system it will lie on, and close it to others."""
    folder = database.parent
    existing = folder
    try:
        while not existing.exists():
            existing = existing.parent
        check_filesystem(existing)
        if existing != folder or folder.name == files.NAME:
            files.make(folder)
    except OSError as error:
        raise Unavailable(
            f"cannot make the store's folder {folder}: {error.strerror}",
            hint="make it yourself, or choose another place with $ALLSWELL_STORE",
        ) from error
    if database.is_dir():
        raise Refused("bad_url", f"{database} is a folder; name a file in it", where="store")
    return HeldFolder(database)


def check(database: Path) -> None:
    """Refuse a database whose files are not plain ones: SQLite would write through a link that somebody has put there.

    Nor may its journal name another one, which SQLite would delete, whatever it is: we never write to two databases at
    once. The others are only looked at, before every connection.
    """
    for path in _files(database):
        found = _look(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise Refused("not_plain", f"{path} is no plain file; remove it, or choose another store", where="store")
        if found is not None and path.name.endswith("-journal") and _names_another(path):
            text = f"{path} is none of ours: opening the store would delete the file that it names; remove it"
            raise Refused("untrusted", text, where="store")


def _names_another(journal: Path) -> bool:
    try:
        with journal.open("rb") as opened:  # no lock is lost by it: SQLite locks the database, never its journal
            opened.seek(-len(_NAMES_ANOTHER), os.SEEK_END)
            return opened.read() == _NAMES_ANOTHER
    except OSError:  # it is gone, or shorter than that
        return False


def close_to_others(database: Path) -> None:
    """Take from a store of ours what others may do with it, if it was made before that was so."""
    with suppress(OSError):
        if database.parent.name == files.NAME:
            files.close(database.parent)
        for path in reversed(_files(database)):  # the database last: what is open beside a closed one is not ours
            if _look(path) is not None:
                files.close(path)


def make_empty(file: Path) -> None:
    """Make a file that only its owner can read, without opening it; one that is there is left as it is."""
    try:
        os.mknod(file, stat.S_IFREG | 0o600)
    except FileExistsError:
        return
    folder = file.parent.stat()
    if os.geteuid() == 0 and folder.st_uid != 0:  # root looks after another's store, which must stay theirs to use
        os.chown(file, folder.st_uid, folder.st_gid)


class HeldFolder:
    """The folder of an open store, by a descriptor: its path may come to mean another one, and that is noticed."""

    def __init__(self, database: Path) -> None:
        self._database = database
        try:
            self._handle = os.open(database.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"cannot enter the store's folder {database.parent}: {error.strerror}") from error

    def close_files(self) -> None:
        """Make the files that are missing and take from all of them what others may do."""
        check(self._database)
        with suppress(OSError):  # a read-only disk, or another's store: SQLite says what it can do with it
            for end in _MADE:
                make_empty(Path(f"{self._database}{end}"))
        close_to_others(self._database)

    def check(self) -> None:
        """Refuse a folder that was exchanged for another one since it was looked at."""
        held = os.fstat(self._handle)
        try:
            now = self._database.parent.stat()
        except OSError as error:
            raise Unavailable(f"the store's folder {self._database.parent} is gone: {error.strerror}") from error
        if (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino):
            text = f"{self._database.parent} was exchanged for another folder while the store was opened"
            raise Refused("untrusted", text, where="store")

    def fileno(self) -> int:
        """The folder, open for as long as it is held."""
        return self._handle

    def let_go(self) -> None:
        """Hold it no longer; safe to call twice."""
        handle, self._handle = self._handle, -1
        if handle != -1:
            os.close(handle)


def _files(database: Path) -> list[Path]:
    return [Path(f"{database}{end}") for end in _FILES]


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None

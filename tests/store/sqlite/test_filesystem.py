"""Network file systems are recognised from the text of mountinfo, and refused with the reason."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from allswell.errors import Refused
from allswell.store.sqlite import paths

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /proc rw,nosuid - proc proc rw
31 22 0:44 / /home rw,relatime shared:5 master:2 - nfs4 server:/home rw,vers=4.2
32 31 0:45 / /home/ann/local rw,relatime - btrfs /dev/sdb rw
33 22 0:46 / /mnt/with\040space rw - cifs //server/share rw
34 22 0:47 / /mnt/c rw - 9p drvfs rw
35 22 0:48 / /mnt/ssh rw - fuse.sshfs ann@host: rw
36 22 0:49 / /mnt/sealed rw - fuse.gocryptfs /sealed rw
37 22 0:50 / /mnt/covered rw - nfs server:/x rw
38 22 0:51 / /mnt/covered rw - tmpfs tmpfs rw
39 22 0:52 / /homestead rw - xfs /dev/sdc rw
"""


@pytest.mark.parametrize(
    "folder,kind,remote",
    [
        ("/var/lib", "ext4", False),
        ("/home/ann", "nfs4", True),
        ("/home/ann/local/.allswell", "btrfs", False),
        ("/mnt/with space/x", "cifs", True),
        ("/mnt/c/Users", "9p", True),
        ("/mnt/ssh", "fuse.sshfs", True),
        ("/mnt/sealed", "fuse.gocryptfs", False),
        ("/mnt/covered/deep", "tmpfs", False),
        ("/homestead/ann", "xfs", False),
    ],
)
def test_the_nearest_mount_tells(folder: str, kind: str, remote: bool) -> None:
    found = paths.type_of(PurePath(folder), MOUNTS)
    assert found == kind
    assert paths.is_remote(found) is remote


def test_a_network_file_system_is_refused_with_the_reason(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    paths.check_filesystem(Path("/var/lib"), mountinfo)
    with pytest.raises(Refused, match=r"network file system \(nfs4\)") as refused:
        paths.check_filesystem(Path("/home/ann"), mountinfo)
    assert refused.value.code == "remote_filesystem"


def test_where_the_system_does_not_tell_nothing_is_refused(tmp_path: Path) -> None:
    paths.check_filesystem(tmp_path, tmp_path / "missing")
    assert paths.type_of(PurePath("/x"), "nonsense\n1 2 3\n") is None

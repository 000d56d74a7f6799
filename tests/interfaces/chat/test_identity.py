"""A key is its owner's alone: made so, kept so, and refused otherwise (C8)."""

import os
from pathlib import Path

import pytest

from allswell.errors import Refused
from allswell.interfaces.chat.agentchat import read_key

pytestmark = pytest.mark.row("C8")


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = read_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path).public_pem == made.public_pem
    assert made.public_pem.startswith("-----BEGIN PUBLIC KEY-----\n")
    assert made.sign("n", "c", 1) != made.sign("n", "c", 2)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    read_key(path)
    path.chmod(mode)
    with pytest.raises(Refused, match=f"mode 0{mode:o}.*chmod 600"):
        read_key(path)


def test_what_is_no_key_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("not a key")
    path.chmod(0o600)
    with pytest.raises(Refused, match="holds no ed25519 key"):
        read_key(path)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo", 0o600)
    for other in ("link", "fifo", "nowhere/key"):
        with pytest.raises(Refused) as caught:
            read_key(tmp_path / other)
        assert caught.value.code == "chat_key"
    with pytest.raises(Refused, match="is not a file"):
        read_key(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    read_key(path)
    os.chown(path, 12345, 12345)
    with pytest.raises(Refused, match="belongs to another user"):
        read_key(path)

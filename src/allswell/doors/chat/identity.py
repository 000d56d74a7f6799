"""Who we are in a chat: an ed25519 key in a file that only its owner can read.

With a key the server gives the same id every time; without one every connection is somebody new. A key that others can
read is no proof of anything, so such a file is refused.
"""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from allswell.errors import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_LARGEST = 10_000
_PRIVATE = 0o600
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ChatKey:
    """A private key, and what can be shown of it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @property
    def public_pem(self) -> str:
        """The public key as the server wants it."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, nonce: str, challenge_id: str, timestamp: int) -> str:
        """The answer to a server's challenge."""
        signed = f"AGENTCHAT_AUTH|{nonce}|{challenge_id}|{timestamp}"
        return base64.b64encode(self._private.sign(signed.encode())).decode()


def read_key(path: Path) -> ChatKey:
    """The key in this file, which is made if it is not there; `Refused` where it is no secret or no key."""
    try:
        opened = os.open(path, _READ)
    except FileNotFoundError:
        return _make_key(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        _check_private(path, os.fstat(opened))
        content = os.read(opened, _LARGEST)
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(opened)
    return ChatKey(_parsed(path, content))


def _unreadable(path: Path, error: OSError) -> Refused:
    return Refused("chat_key", f"the key {path} cannot be read: {error.strerror}", where=str(path))


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Refused("chat_key", f"the key {path} is no file", where=str(path))
    if found.st_uid != os.geteuid():
        text = f"the key {path} belongs to another user ({found.st_uid}); use one of your own"
        raise Refused("chat_key", text, where=str(path))
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        text = f"others can read or write the key {path} (mode {mode}); run: chmod 600 {path}"
        raise Refused("chat_key", text, where=str(path))


def _parsed(path: Path, content: bytes) -> Ed25519PrivateKey:
    _library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        text = f"{path} holds no ed25519 key in PEM without a password; name another file, and one is made there"
        raise Refused("chat_key", text, where=str(path))
    return key


def _make_key(path: Path) -> ChatKey:
    _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    try:
        opened = os.open(path, _NEW, _PRIVATE)
    except OSError as error:
        text = f"the key {path} cannot be made: {error.strerror}"
        raise Refused("chat_key", text, where=str(path)) from None
    with os.fdopen(opened, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    return ChatKey(key)


def _library() -> None:
    try:
        import cryptography  # noqa: F401 - only to see that it is there
    except ModuleNotFoundError:
        text = "a key for a chat needs cryptography, which is not installed; run: pip install 'allswell[chat]'"
        raise Refused("missing_extra", text) from None

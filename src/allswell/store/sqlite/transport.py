"""Calls by unix datagrams: every process that hears has a socket in a folder beside the database.

Telling is a look into the folder and one datagram for each socket in it, sent without waiting. A socket whose queue is
full belongs to somebody who has calls enough, and who then looks at everything; one that nobody has open any more was
left behind by a process that was killed, and is removed. Names are drawn at random and never used again, so nobody's
living socket is removed by mistake.

The folder and its sockets are for the user alone (0700, 0600); processes of other users find work by polling. Where
the path is longer than the 107 bytes that a socket's name may have, sockets are reached through the folder's
descriptor in /proc. The database's own files are never touched (see the package's first words).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import time
import weakref
from contextlib import suppress
from pathlib import Path

from allswell.store.notifier import TransportLost
from allswell.store.port import LOOK_AGAIN, NOTHING, Wakeup, decode, encode

_LONGEST_NAME = 107
"""Bytes of a socket's path on Linux, without its end."""
_CHECK_EVERY = 20.0
_MADE_AGAIN = 5
"""How often the folder is made again when the last one out removes it at the same moment."""
_FEW = 8
"""Others that are told by whoever has something to tell; more are left to the herald."""
_TICKS = 100_000_000
"""Nanoseconds in which a file system's clock has surely moved on."""
_QUEUE = Path("/proc/sys/net/unix/max_dgram_qlen")
_QUEUE_USUALLY = 10
_ECHO = b"echo"
_NAME = re.compile(r"[0-9]+-[0-9a-f]{12}")
"""Anything else in the folder is not ours, and is left alone."""


class DatagramTransport:
    """One process's socket, and the way to the others'."""

    check_every = _CHECK_EVERY

    def __init__(self, database: Path, inside: int | None = None) -> None:
        """`inside` is the database's folder where that is held open: another in its place gets no folder of ours."""
        self.folder = Path(f"{database}.calls")
        self._inside = inside
        self._place = str(self.folder) if inside is None else self.folder.name
        self._path = str(self.folder)
        self._socket: socket.socket | None = None
        self._name: str | None = None
        self._folder: int | None = None
        self._queue = _QUEUE_USUALLY
        """One datagram more can wait than this."""
        self._known: tuple[int | None, list[tuple[str, bytes]]] = (None, [])
        """When the folder had last changed, and the sockets of other processes in it with their addresses, as it was
        last seen. One thing, since several threads look."""

    def alone(self) -> bool:
        """Whether the folder is missing, or is as it was when nobody else was there."""
        try:
            changed = os.stat(self._path).st_mtime_ns  # noqa: PTH116 - asked at every commit
        except FileNotFoundError:
            return True  # nobody has ever listened here
        except OSError:
            return False
        known_at, known = self._known
        return changed == known_at and not known

    def open(self, *, hearing: bool) -> None:
        """Make a socket and, with `hearing`, give it a name."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        _inheritable.add(self)
        if hearing:
            self._queue = _length_of_queues()
            try:
                self._bind(self._socket)
            except OSError as error:
                raise TransportLost(f"no socket in {self.folder}: {error}") from None

    def fileno(self) -> int | None:
        """The socket, if it has a name."""
        return None if self._name is None or self._socket is None else self._socket.fileno()

    def send(self, call: Wakeup) -> None:
        """One datagram for each of the others."""
        try:
            others = self._others()
        except OSError:
            return  # nobody has ever listened here
        data = encode(call)
        for name, _ in others:
            self._send_to(name, data)

    def send_here(self, call: Wakeup) -> bool:
        """The same from any thread, while there is a socket with a name, and if those others are few.

        A datagram is sent whole or not at all, so it does not matter who else uses the socket; one that is closed at
        the same moment only loses a call.
        """
        sock = self._socket
        if sock is None or self._name is None:
            return False
        try:
            others = self._others()
        except OSError:
            return False
        if len(others) > _FEW:
            return False
        data = encode(call)
        for name, address in others:
            self._post(sock, name, address, data)
        return True

    def _others(self) -> list[tuple[str, bytes]]:
        """The sockets of other processes and their addresses; the folder is read only if it has changed."""
        # By plain strings, and by the folder's descriptor if we have it: whoever waits elsewhere waits for this too.
        held = self._folder
        folder = os.stat(self._path if held is None else held)  # noqa: PTH116
        changed = folder.st_mtime_ns
        known_at, known = self._known
        if changed == known_at and folder.st_nlink:  # without links it was removed, and there is a new one
            return known
        names = os.listdir(self._path)  # noqa: PTH208
        others = [name for name in names if name != self._name and _NAME.fullmatch(name)]
        known = [(name, self._address(name)) for name in others]
        # The file system's clock ticks: who comes within the same tick would not show.
        self._known = (None if time.time_ns() - changed < _TICKS else changed, known)
        return known

    def receive(self) -> Wakeup:
        """All that waits in the queue, as one call; where it was full, others may have told in vain."""
        heard = NOTHING
        sock = self._open_socket()
        count = 0
        while True:
            try:
                data = sock.recv(4_096)
            except BlockingIOError:
                return heard if count <= self._queue else LOOK_AGAIN.merged(heard)
            except OSError as error:
                raise TransportLost(str(error)) from None
            count += 1
            if data != _ECHO:
                heard = heard.merged(decode(data))

    def check(self) -> None:
        """A datagram to our own name: it is lost if somebody has cleared the folder away."""
        if self._name is not None:
            try:
                self._open_socket().sendto(_ECHO, self._address(self._name))
            except BlockingIOError:
                return  # the queue is full: it is still there
            except OSError as error:
                raise TransportLost(f"the socket in {self.folder} is gone: {error}") from None

    def close(self) -> None:
        """Remove the socket, and the folder if it was the last."""
        sock, self._socket = self._socket, None
        name, self._name = self._name, None
        if name is not None:
            with suppress(OSError):
                (self.folder / name).unlink()
            with suppress(OSError):
                self.folder.rmdir()
        if sock is not None:
            sock.close()
        self._close_folder()

    def let_go(self) -> None:
        """In a child that was forked: close what was inherited and touch nothing of the parent's."""
        if self._socket is not None:
            self._socket.close()
        self._close_folder()

    # --- names --------------------------------------------------------------------------------------------------------

    def _bind(self, sock: socket.socket) -> None:
        name = f"{os.getpid()}-{secrets.token_hex(6)}"
        for left in reversed(range(_MADE_AGAIN)):
            with suppress(FileExistsError):
                os.mkdir(self._place, 0o700, dir_fd=self._inside)
            self._close_folder()
            try:
                self._folder = _open_own(self._place, self._inside)
                sock.bind(self._address(name))
                os.chmod(name, 0o600, dir_fd=self._folder)
            except FileNotFoundError:
                if not left:
                    raise
            else:
                self._name = name
                return

    def _send_to(self, name: str, data: bytes) -> None:
        try:
            if self._folder is None:
                self._folder = _open_own(self._place, self._inside)
            self._post(self._open_socket(), name, self._address(name), data)
        except OSError:
            pass  # the folder is gone, and everybody with it
        finally:
            if self._name is None:
                self._close_folder()  # the folder may be another one the next time

    def _post(self, sock: socket.socket, name: str, address: bytes, data: bytes) -> None:
        try:
            sock.sendto(data, address)
        except ConnectionRefusedError:
            with suppress(OSError):
                (self.folder / name).unlink()  # its process is dead
        except OSError:
            pass  # full, another user's, or gone since we looked: its owner polls

    def _address(self, name: str) -> bytes:
        plain = os.fsencode(f"{self._path}/{name}")
        if len(plain) <= _LONGEST_NAME:
            return plain
        return os.fsencode(f"/proc/self/fd/{self._folder}/{name}")

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise TransportLost("not open")
        return self._socket

    def _close_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            os.close(folder)


def _open_own(folder: str, inside: int | None) -> int:
    """The folder's descriptor, if it is our own: in another's, anybody could put a socket under a name of ours."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    if os.fstat(handle).st_uid == os.geteuid():
        return handle
    os.close(handle)
    raise PermissionError(errno.EPERM, "it is another user's", folder)


def _length_of_queues() -> int:
    try:
        return int(_QUEUE.read_text())
    except (OSError, ValueError):
        return _QUEUE_USUALLY


_inheritable: weakref.WeakSet[DatagramTransport] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A socket that a forked child still has open looks alive to everybody after its process was killed.
    for carrier in list(_inheritable):
        carrier.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)

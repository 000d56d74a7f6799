"""A strict pooler in transaction mode, and PgBouncer itself where there is one.

Ours does what PgBouncer does before version 1.21, without its kindness: each transaction is served by the server's
session that has been idle longest, so that two transactions of one client hardly ever meet the same one. Whatever a
client leaves in a session (prepared statements, settings, LISTEN, locks) is there for the next one.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from allswell.testing.postgres import Account
from tests import patience

_SSL, _CANCEL, _GSS = 80_877_103, 80_877_102, 80_877_104
_PARAMETERS = ("server_version", "server_encoding", "client_encoding", "standard_conforming_strings", "TimeZone")
_LEFT = """
SELECT (SELECT count(*) FROM pg_prepared_statements),
       (SELECT count(*) FROM pg_listening_channels()),
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
       current_setting('statement_timeout'), current_setting('lock_timeout'),
       current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit'),
       current_setting('enable_seqscan'), current_setting('jit')
"""
"""What a session may hold of its last client."""
_CLEAN = (0, 0, 0, "0", "0", "0", "on", "on", "on")


class Session:
    """One session of the server: logged in by the driver, then talked to as the wire has it."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self.socket = socket.socket(fileno=os.dup(self.connection.fileno()))
        self.socket.setblocking(True)

    def close(self) -> None:
        self.socket.close()
        self.connection.close()


class Pooler:
    """Takes any number of clients on few sessions."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._free: deque[Session] = deque(Session(url) for _ in range(size))
        self._given = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        info = self._free[0].connection.info
        self._parameters = {name: info.parameter_status(name) or "" for name in _PARAMETERS}
        self._closed = False
        self._clients: dict[socket.socket, threading.Thread] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return before(self._url, self._listener.getsockname()[1])

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._closed = True
        for client, thread in list(self._clients.items()):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            thread.join(30)
        for session in self._free:
            session.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._clients[client] = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._clients[client].start()

    def _serve(self, client: socket.socket) -> None:
        talk = Talk()
        with suppress(OSError, ConnectionError), client:
            if self._greet(client):
                while self._pass_on(client, talk):
                    pass
        if talk.session is not None:
            talk.session.close()  # its client went in the middle of a transaction: nobody else may have it
            if not self._closed:
                self._give(Session(self._url))

    def _greet(self, client: socket.socket) -> bool:
        while True:
            length, code = struct.unpack("!ii", _exactly(client, 8))
            _exactly(client, length - 8)
            if code == _CANCEL:
                return False
            if code not in (_SSL, _GSS):
                break
            client.sendall(b"N")
        told = [f"{name}\0{value}\0".encode() for name, value in self._parameters.items()]
        frames = [_frame(b"R", struct.pack("!i", 0)), *(_frame(b"S", one) for one in told)]
        # The key of a session that does not exist, as a pooler has it: its clients are nobody's for long.
        frames += [_frame(b"K", struct.pack("!ii", 2_000_000_000, 7)), _frame(b"Z", b"I")]
        client.sendall(b"".join(frames))
        return True

    def _pass_on(self, client: socket.socket, talk: Talk) -> bool:
        ends = [client] if talk.session is None else [client, talk.session.socket]
        heard, _, _ = select.select(ends, [], [])
        if client in heard:
            for frame in talk.said.take(client):
                if frame[:1] == b"X":
                    return False
                if talk.session is None:
                    talk.session = self._take()
                talk.session.socket.sendall(frame)
                talk.unsynced = frame[:1] not in (b"S", b"Q")
                talk.awaited += not talk.unsynced
        if talk.session is not None and talk.session.socket in heard:
            for frame in talk.answered.take(talk.session.socket):
                client.sendall(frame)
                if frame[:1] == b"Z":
                    talk.awaited -= 1
                    if talk.awaited == 0 and not talk.unsynced and frame[5:6] == b"I":
                        session, talk.session = talk.session, None
                        self._give(session)
                        break
        return True

    def _take(self) -> Session:
        with self._given:
            assert self._given.wait_for(lambda: self._free, timeout=30), "no session came free"
            return self._free.popleft()

    def _give(self, session: Session) -> None:
        with self._given:
            self._free.append(session)
            self._given.notify()


class Talk:
    """One client's conversation: which session serves it, and how many answers are still to come."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.awaited = 0
        self.unsynced = False
        self.said, self.answered = Frames(), Frames()


class Frames:
    """Cuts a stream into the protocol's messages."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, source: socket.socket) -> Iterator[bytes]:
        said = source.recv(65_536)
        if not said:
            raise ConnectionError
        self._rest += said
        while len(self._rest) >= 5:
            length = 1 + int(struct.unpack_from("!i", self._rest, 1)[0])
            if len(self._rest) < length:
                return
            frame, self._rest = self._rest[:length], self._rest[length:]
            yield frame


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _exactly(source: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        said = source.recv(count - len(got))
        if not said:
            raise ConnectionError
        got += said
    return got


def before(url: str, port: int) -> str:
    """The same database, at another port."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()


@contextmanager
def pooled(url: str, size: int = 6) -> Iterator[Pooler]:
    """Our own pooler before a database."""
    pooler = Pooler(url, size)
    try:
        yield pooler
    finally:
        pooler.close()


def pgbouncer() -> str | None:
    """The program, if there is one: on PATH, or where $ALLSWELL_PGBOUNCER says."""
    return os.environ.get("ALLSWELL_PGBOUNCER") or shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


@contextmanager
def bounced(url: str, folder: Path, size: int = 6) -> Iterator[str]:
    """PgBouncer in transaction mode before a database; the URL through it."""
    program = pgbouncer()
    assert program is not None
    account = Account.unprivileged()
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    (folder / "users").write_text(f'"{parts.username}" "{parts.password}"\n')
    settings = f"""
        [databases]
        * = host={parts.hostname} port={parts.port}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = scram-sha-256
        auth_file = {folder / "users"}
        pool_mode = transaction
        default_pool_size = {size}
        max_client_conn = 200
    """
    (folder / "bouncer.ini").write_text("\n".join(line.strip() for line in settings.splitlines()))
    for path in (folder, *folder.iterdir()):
        account.own(path)
    with (folder / "log").open("wb") as log:
        process = account.start(program, folder / "bouncer.ini", cwd=folder, output=log)
    through = before(url, port)
    try:
        _await(through, process, folder / "log")
        yield through
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + patience.SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"pgbouncer did not come up: {log.read_text()}") from None
            time.sleep(0.02)
        else:
            return


def left_behind(url: str, size: int = 6) -> list[object]:
    """What the pooler's sessions still hold of their last clients."""
    clients = [psycopg.connect(url, prepare_threshold=None) for _ in range(size)]
    try:
        # All at once and in transactions, so that each has a session of its own.
        held = [client.execute(_LEFT).fetchone() for client in clients]
    finally:
        for client in clients:
            client.close()
    return [one for one in held if one != _CLEAN]


@contextmanager
def behind(pooler: str, url: str) -> Iterator[str]:
    """A database behind one of `POOLERS`; skips the test where there is no PgBouncer."""
    if pooler == "our own pooler":
        with pooled(url) as ours:
            yield ours.url
    elif pgbouncer() is None:
        pytest.skip("no pgbouncer on PATH; our own strict pooler stands in for it")
    else:
        with tempfile.TemporaryDirectory(prefix="allswell-bouncer-") as name, bounced(url, Path(name)) as through:
            yield through


POOLERS = ("our own pooler", "pgbouncer")

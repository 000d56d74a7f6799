"""Who races, at which settings, and what each does not promise.

Settings are each peer's own best: the documented way to be fast, tuned by trying the documented knobs on two cores.
`tasks` is how much a round of it takes; slow ones get less, which does them no harm.
"""

from __future__ import annotations

import msgspec

from race import venvs
from race.venvs import Environment

POSTGRES, SQLITE, REDIS = "PostgreSQL", "SQLite", "Redis"


class Entry(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    script: str
    on: str
    settings: dict[str, object]
    said: str
    """The settings in words."""
    lacks: str
    """What it does not guarantee, beside what we do."""
    environment: Environment | None = None
    """None: the environment of Allswell itself."""
    tasks: int = 10_000
    processes: int = 1
    pickup: bool = False
    beats: bool = False
    growth: bool = False

    @property
    def ours(self) -> bool:
        """Whether this is Allswell."""
        return self.environment is None


_OURS = "-"
_PGQUEUER = "no fencing; no per-task timers; 'successful' is logged by id, whoever says it"
_PROCRASTINATE = "no fencing; no lease: stalled jobs are found and retried by the application"
_ABSURD = "no wake-up (polls); no event log of a run's life"
_DBOS = "no lease: a dead executor must be declared so; no wake-up (polls); no timers per attempt"
_CELERY = "no fencing; no events; Redis as it comes does not sync: a crash loses acknowledged tasks"
_DRAMATIQ = "no lease per task; no events; Redis as it comes does not sync: a crash loses acknowledged tasks"
_HUEY = "no lease, no fencing, no record: a task whose worker dies is lost"

ENTRIES = (
    Entry(
        "Allswell 100",
        "allswell",
        POSTGRES,
        {"batch": 100, "loops": 8},
        "claim_many/complete_many of 100, 8 loops, switch interval 0.5 ms",
        _OURS,
    ),
    Entry(
        "Allswell 500",
        "allswell",
        POSTGRES,
        {"batch": 500, "loops": 3},
        "claim_many/complete_many of 500, 3 loops, switch interval 0.5 ms",
        _OURS,
        pickup=True,
        beats=True,
        growth=True,
    ),
    Entry(
        "Allswell 500 x2",
        "allswell",
        POSTGRES,
        {"batch": 500, "loops": 2},
        "the same in 2 processes of 2 loops",
        _OURS,
        processes=2,
    ),
    Entry(
        "Allswell 1000 x2",
        "allswell",
        POSTGRES,
        {"batch": 1_000, "loops": 1},
        "claim_many/complete_many of 1,000, 2 processes of 1 loop",
        _OURS,
        processes=2,
    ),
    Entry(
        "PgQueuer 100",
        "pgqueuer",
        POSTGRES,
        {"batch": 100},
        "asyncpg, uvloop, batch_size 100",
        _PGQUEUER,
        venvs.PGQUEUER,
        pickup=True,
        beats=True,
        growth=True,
    ),
    Entry("PgQueuer 500", "pgqueuer", POSTGRES, {"batch": 500}, "batch_size 500", _PGQUEUER, venvs.PGQUEUER),
    Entry(
        "PgQueuer 100 x2",
        "pgqueuer",
        POSTGRES,
        {"batch": 100},
        "batch_size 100, 2 processes",
        _PGQUEUER,
        venvs.PGQUEUER,
        processes=2,
    ),
    Entry(
        "PgQueuer 500 x2",
        "pgqueuer",
        POSTGRES,
        {"batch": 500},
        "batch_size 500, 2 processes",
        _PGQUEUER,
        venvs.PGQUEUER,
        processes=2,
    ),
    Entry(
        "Procrastinate x2",
        "procrastinate",
        POSTGRES,
        {"concurrency": 20, "pool": 10},
        "uvloop, concurrency 20, pool of 10, 2 processes",
        _PROCRASTINATE,
        venvs.PROCRASTINATE,
        tasks=2_000,
        processes=2,
        pickup=True,
        beats=True,
        growth=True,
    ),
    Entry(
        "Absurd x2",
        "absurd",
        POSTGRES,
        {"workers": 4, "batch": 20, "poll": 0.01},
        "2 processes of 4 workers (threads), batch_size 20, poll 10 ms",
        _ABSURD,
        venvs.ABSURD,
        tasks=2_000,
        processes=2,
        pickup=True,
        beats=True,
        growth=True,
    ),
    Entry(
        "DBOS",
        "dbos",
        POSTGRES,
        {"pool": 20, "worker_concurrency": 1_000, "poll": 0.01},
        "pool of 20, worker_concurrency 1,000, poll 10 ms",
        _DBOS,
        venvs.DBOS,
        tasks=1_000,
        pickup=True,
        growth=True,
    ),
    Entry(
        "Celery",
        "celery",
        REDIS,
        {"processes": 2},
        "prefork 2, prefetch 128, acks late, no results",
        _CELERY,
        venvs.REDIS,
        tasks=5_000,
        pickup=True,
    ),
    Entry(
        "Dramatiq x2",
        "dramatiq",
        REDIS,
        {"threads": 8},
        "2 processes of 8 threads",
        _DRAMATIQ,
        venvs.REDIS,
        tasks=5_000,
        processes=2,
        pickup=True,
    ),
    Entry(
        "Allswell 100",
        "allswell",
        SQLITE,
        {"batch": 100, "loops": 2},
        "claim_many/complete_many of 100, 2 loops, synchronous FULL",
        _OURS,
        pickup=True,
        growth=True,
    ),
    Entry(
        "Allswell 500",
        "allswell",
        SQLITE,
        {"batch": 500, "loops": 2},
        "claim_many/complete_many of 500, 2 loops, synchronous FULL",
        _OURS,
    ),
    Entry(
        "DBOS",
        "dbos",
        SQLITE,
        {"pool": 20, "worker_concurrency": 1_000, "poll": 0.01},
        "pool of 20, worker_concurrency 1,000, poll 10 ms",
        _DBOS,
        venvs.DBOS,
        tasks=500,
        pickup=True,
        growth=True,
    ),
    Entry(
        "Huey",
        "huey",
        SQLITE,
        {"workers": 2},
        "2 threads, fsync, results off",
        _HUEY,
        venvs.HUEY,
        tasks=2_000,
        pickup=True,
    ),
)

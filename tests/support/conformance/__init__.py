"""One suite for every store: what `store/port.py` promises, as cases that any store's author can run.

Each case is an async function that takes a `Place` and raises if the store breaks its word:

    for case in CASES:
        asyncio.run(case(Place(lambda: MyStore(fresh_path))))

A place is empty at the beginning and used by one case only. A case that the store cannot have raises `Skip`, with the
reason. The cases keep to the protocol themselves, so they pass on the strict memory store too.
"""

from tests.support.conformance import (
    accounting,
    asking,
    calling,
    delivering,
    finding,
    following,
    holding,
    keeping,
    living,
    picking,
    shortening,
    standing,
    viewing,
)
from tests.support.conformance.place import Case, Place, Skip

CASES: tuple[Case, ...] = (
    *keeping.CASES,
    *holding.CASES,
    *picking.CASES,
    *finding.CASES,
    *viewing.CASES,
    *accounting.CASES,
    *following.CASES,
    *delivering.CASES,
    *living.CASES,
    *calling.CASES,
    *asking.CASES,
    *shortening.CASES,
    *standing.CASES,
)

__all__ = ["CASES", "Case", "Place", "Skip"]

"""A history checker in Jepsen's manner: what every process did and was told, held against what the store says.

Each process writes down what it asks before it asks, and what it was told afterwards (`Scribe`, or `Witness` around a
watch). It may be killed at any moment: what was asked and never answered may or may not have happened. Afterwards
`inspect` reads the whole store, and `check` finds every way in which the two cannot both be true:

    scribe = Scribe(folder / f"{name}.jsonl", name)
    async with allswell.open(url) as watch:
        witness = Witness(watch, scribe)
        ...                                         # any number of processes, any weather
        anomalies = check(read(folder.glob("*.jsonl")), await inspect(watch))

No anomaly means: what went in came out; only the current token's writes were accepted; a task completed at most once;
no deadline came early; nothing acknowledged was lost; nothing is unaccounted for.
"""

from tests.support.history.checker import Anomaly, Wrong, check
from tests.support.history.found import Found, FoundTask, inspect
from tests.support.history.scribe import Fate, Op, Scribe, read
from tests.support.history.witness import Held, Witness

__all__ = [
    "Anomaly",
    "Fate",
    "Found",
    "FoundTask",
    "Held",
    "Op",
    "Scribe",
    "Witness",
    "Wrong",
    "check",
    "inspect",
    "read",
]

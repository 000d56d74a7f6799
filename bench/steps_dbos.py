"""DBOS's side of `bench/steps.py`: workflows of steps that do nothing. Runs in an environment that has DBOS.

One line on standard input, a number of steps; one line on standard output, the seconds that they took.
"""

from __future__ import annotations

import sys
import time

from dbos import DBOS

DBOS(
    config={
        "name": "steps",
        "system_database_url": sys.argv[1],
        "application_version": "1",
        "console_log_level": "CRITICAL",
    }
)


@DBOS.step()
def noop(number: int) -> None:
    """Nothing."""


@DBOS.workflow()
def steps(count: int) -> float:
    """So many steps, one after another; timed inside, so that starting and ending the workflow is not counted."""
    start = time.perf_counter()
    for number in range(count):
        noop(number)
    return time.perf_counter() - start


DBOS.launch()
steps(20)
answers = sys.stdout
print("ready", file=answers, flush=True)
for line in sys.stdin:
    print(steps(int(line)), file=answers, flush=True)
DBOS.destroy()

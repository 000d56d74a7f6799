"""What every contestant speaks: one command per line on standard input, one answer per line on standard output.

{"do": "enqueue", "count": 1000}  ->  {"took": 0.12, "result": null}

Each contestant runs in an environment of its own, which need not have Allswell; so this module needs nothing but
Python. Moments are time.time(): all processes of a race are on one machine.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback

_ANSWERS = sys.stdout
sys.stdout = sys.stderr  # whatever libraries print is not an answer


class Contestant:
    """One process of a contestant on its place: a database URL, a file or a socket."""

    def __init__(self, place: str, settings: dict) -> None:
        self.place = place
        self.settings = settings

    def setup(self) -> None:
        """Make tables, once for all processes of this contestant."""

    def prepare(self) -> None:
        """Whatever a worker does once when it starts; it is not timed."""

    def close(self) -> None:
        """End what was started."""

    def enqueue(self, count: int) -> None:
        """Put in so many tasks that do nothing, as many at once as it is best at."""
        raise NotImplementedError

    def drain(self) -> float:
        """Work until nothing is left of what was enqueued; the moment at which the last task was done, durably."""
        raise NotImplementedError

    def stamp(self) -> None:
        """Put in one task that carries the present moment."""
        raise NotImplementedError

    def watch(self) -> None:
        """Wait for stamped tasks, and call `picked` for each that has been claimed; never returns."""
        raise NotImplementedError

    def picked(self, sent: float) -> None:
        """Tell how long a stamped task took from its enqueuing to the start of its handler."""
        answer({"picked": (time.time() - sent) * 1000})

    def hold(self, count: int) -> None:
        """Claim so many tasks and keep them."""
        raise NotImplementedError

    def beat(self) -> int:
        """One heartbeat for each of them, as many at once as it is best at; how many that were."""
        raise NotImplementedError

    def fill(self, count: int) -> None:
        """Put in so many finished tasks by SQL, with all that a finished task leaves behind."""
        raise NotImplementedError


def answer(content: dict) -> None:
    """One line to the one who asks."""
    _ANSWERS.write(json.dumps(content) + "\n")
    _ANSWERS.flush()


def end_with_the_asker() -> None:
    """Kill this process and those it started as soon as nobody asks any more."""
    while sys.stdin.read(1):
        pass
    os.killpg(0, signal.SIGKILL)


def serve(kind: type[Contestant]) -> None:
    """Answer commands until there are no more."""
    contestant = kind(sys.argv[1], json.loads(sys.argv[2]))
    answer({"ready": True})
    try:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "watch":  # never returns, so somebody else must see the end
                threading.Thread(target=end_with_the_asker, daemon=True).start()
            method = getattr(contestant, command.pop("do"))
            began = time.perf_counter()
            result = method(**command)
            answer({"took": time.perf_counter() - began, "result": result})
    except BaseException:  # noqa: BLE001 - it is told, and the one who asks sees that the answers end
        traceback.print_exc()
    contestant.close()
    sys.stderr.flush()
    os._exit(0)  # some libraries leave threads behind that would keep the process

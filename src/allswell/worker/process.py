"""One process of a worker, as its supervising process starts it: `python -m allswell.worker.process`.

It reads what to do as one line of JSON on standard input (a connection string belongs on no command line), and says
once a second on the descriptor that it was given how it is. No word for some seconds means that its interpreter is
held; then it is aborted, and `faulthandler` writes where its threads stand. A worker that no longer does its work
writes the same and stops in good order, so that its messages are given back and nothing is held against them. The end
of standard input means that the supervising process is gone: then this one stops too.
"""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import signal
import sys
import threading
import time

import msgspec

from allswell.errors import AllswellError, Refused, Unavailable
from allswell.runtime.host import keep_to_ourselves, take_over
from allswell.worker.handlers import Handlers, WorkerPlan
from allswell.worker.status import WorkerStatus
from allswell.worker.worker import Worker

BEAT_SECONDS = 1.0
HELD_SECONDS = 30.0
"""An interpreter that is held for so long is ended by itself, for the supervising process may be gone.

Seconds of work, not of the clock: a process that was stopped meanwhile (SIGSTOP, a container) has done none."""
SLEPT_SECONDS = 5.0
"""A beat that comes so long after the last one comes after a pause of the whole process."""
WRONG, SPENT, UNREACHABLE = 2, 70, 75
"""What it ends with: trying again will not help; it no longer does its work; the database cannot be reached."""


class ProcessOrder(msgspec.Struct, frozen=True):
    """What a process is told to do."""

    handlers: str
    """`module:name`."""
    folder: str
    """Where modules are looked for first."""
    plan: WorkerPlan
    told_on: int = 1
    """The descriptor that it says on how it is."""
    environment: bytes = b""
    """Its environment: it began with what everybody may know."""


def is_handlers_name(name: str) -> tuple[str, str]:
    """The module and the name that `module:name` names; `Refused` where it is no such thing."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        text = f"{name!r} names no handlers: say module:name, such as shop.jobs:handlers"
        raise Refused("bad_handlers", text, where=name)
    return module_name, attribute


def load_handlers(name: str, folder: str) -> Handlers:
    """The handlers that `module:name` names: a `Handlers`, or a `Worker` that has some."""
    module_name, attribute = is_handlers_name(name)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it is the module that misses something
        raise Refused("no_module", f"there is no module {error.name!r} to be found from {folder}", where=name) from None
    found = getattr(module, attribute, None)
    if isinstance(found, Worker):
        found = found.handlers
    if not isinstance(found, Handlers):
        what = "is not there" if found is None else f"is of type {type(found).__name__}"
        text = f"{name} {what}: it must be a Handlers, or a Worker"
        raise Refused("bad_handlers", text, where=name)
    return found


def main() -> int:
    """Handle messages until told to stop."""
    keep_to_ourselves()
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # what matters of a lost connection, the worker says itself
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ProcessOrder)
    take_over(order.environment)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    threading.Thread(target=_until_alone, args=(stop,), daemon=True).start()
    try:
        worker = Worker.by(order.plan, load_handlers(order.handlers, order.folder))
        worker.start()
    except Unavailable as error:
        print(f"allswell worker: {error}", file=sys.stderr)  # noqa: T201 - its log
        return UNREACHABLE
    except (AllswellError, ValueError) as error:
        print(f"allswell worker: {error}", file=sys.stderr)  # noqa: T201 - its log
        return WRONG
    except (Exception, SystemExit):  # of the user's own module, which is told where
        logging.exception("%s cannot be loaded", order.handlers)  # noqa: LOG015 - nobody else logs yet
        return WRONG
    alive, beat = True, time.monotonic()
    faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)
    while alive and not stop.wait(BEAT_SECONDS):
        signal.setitimer(signal.ITIMER_PROF, HELD_SECONDS)
        slept, beat = time.monotonic() - beat > SLEPT_SECONDS, time.monotonic()
        if slept:
            continue  # the whole process stood still: its threads must come round before they are judged
        status = worker.status()
        _say(order.told_on, status)
        alive = status.alive
    if not alive:
        faulthandler.dump_traceback()
    signal.setitimer(signal.ITIMER_PROF, HELD_SECONDS + order.plan.stop_timeout)
    worker.stop()
    return 0 if alive else SPENT


def _say(descriptor: int, status: WorkerStatus) -> None:
    try:
        os.write(descriptor, msgspec.json.encode(status) + b"\n")
    except OSError:
        return  # nobody is there to hear it; standard input says so too


def _until_alone(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(1):
        pass
    stop.set()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that are stuck are not waited for

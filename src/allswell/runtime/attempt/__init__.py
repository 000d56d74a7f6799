"""One watched attempt: a command under the warden, held to its limits, and its work kept before anything is killed.

    order = order_for(["claude", "-p", …], limits=AttemptLimits(timeout=900_000, idle=300_000), folder=repo)
    attempt = Attempt(order, lease, Home(".allswell"))
    outcome = await attempt.run()       # never raises for what the command does; outcome.end says how it ended

`attempt` is the life of one, as a pipeline of named steps; `order` what it is asked to do and what comes of it;
`judge` when it is over; `streams` and `gathering` what it prints and what it shows; `tower` what several attempts in
one process share; `desk` the socket that the agent speaks through (`runtime.speaking` is what is said there),
`holder` what becomes of that; `keeping` snapshots and receipts; `flight` the note that lets a later supervisor settle
what a dead one left (`settle`); `consequence` what an outcome usually means for its task, and `tries` several
attempts at one.

What follows for the task is the caller's to say: an attempt tells the store only what the agent itself said through
its socket, and that it has made progress. See docs/run.md and docs/attempts.md.
"""

from allswell.domain.evidence import Evidence, Sign
from allswell.domain.receipt import End, Receipt
from allswell.runtime.attempt.attempt import Attempt
from allswell.runtime.attempt.consequence import report
from allswell.runtime.attempt.flight import Flight, take_off
from allswell.runtime.attempt.order import AttemptLimits, Order, Outcome, order_for
from allswell.runtime.attempt.settle import Settled, give_back, settle, settle_left
from allswell.runtime.attempt.tower import Tower
from allswell.runtime.attempt.tries import Tries
from allswell.runtime.receipts import Home, Receipts

__all__ = [
    "Attempt",
    "AttemptLimits",
    "End",
    "Evidence",
    "Flight",
    "Home",
    "Order",
    "Outcome",
    "Receipt",
    "Receipts",
    "Settled",
    "Sign",
    "Tower",
    "Tries",
    "give_back",
    "order_for",
    "report",
    "settle",
    "settle_left",
    "take_off",
]

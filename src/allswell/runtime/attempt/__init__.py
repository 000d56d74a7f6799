"""One watched attempt: a command under the warden, held to its limits, and its work kept before anything is killed.

    order = order_for(["claude", "-p", …], limits=AttemptLimits(timeout=900_000, idle=300_000), folder=repo)
    attempt = AttemptRunner(order, lease, StateDir(".allswell"))
    outcome = await attempt.run()       # never raises for what the command does; outcome.end says how it ended

runner         the life of one attempt, as a pipeline of named steps
launch         what it is asked to do, what it is told of earlier attempts, and what comes of it
warm           whether it goes on with its agent's own session
limits         when it is over, and how
progress       evidence of progress: processes, folder, output; what several attempts of one process share
output         what it prints: two streams, two files, each line parsed once (`domain.agents.output`)
control        the socket that the agent speaks through (`runtime.agent_socket` is what is said there), its quota, what
               it costs, and check-ins that follow from its protocol
record         its snapshot and receipt, and the note that lets a later supervisor settle it
verification   the command that must pass before "done" counts
outcome        what the store is told about its end, on disk until the store has answered
orphans        settles what a dead supervisor left
retry          several attempts at one task, as `allswell run` makes them
permission_hook  answers Claude Code whether a call is made

What follows for the task is the caller's to say: an attempt tells the store only what the agent itself said through
its socket, and that it has made progress. See docs/run.md and docs/attempts.md.
"""

from allswell.domain.agents.evidence import Evidence, EvidenceKind
from allswell.domain.receipts.receipt import End, Receipt
from allswell.runtime.attempt.launch import AttemptLimits, AttemptOutcome, LaunchSpec, order_for
from allswell.runtime.attempt.orphans import OrphanedAttempt, give_back, settle, settle_left
from allswell.runtime.attempt.outcome import report
from allswell.runtime.attempt.progress import SharedSampler
from allswell.runtime.attempt.record import InFlightRecord, take_off
from allswell.runtime.attempt.retry import RetryLoop
from allswell.runtime.attempt.runner import AttemptRunner
from allswell.runtime.receipts import Receipts, StateDir

__all__ = [
    "AttemptLimits",
    "AttemptOutcome",
    "AttemptRunner",
    "End",
    "Evidence",
    "EvidenceKind",
    "InFlightRecord",
    "LaunchSpec",
    "OrphanedAttempt",
    "Receipt",
    "Receipts",
    "RetryLoop",
    "SharedSampler",
    "StateDir",
    "give_back",
    "order_for",
    "report",
    "settle",
    "settle_left",
    "take_off",
]

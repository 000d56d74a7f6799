"""Agents against what the fleet gives them: the folders they work in, and the lease that their work is held under.

A file does not say who wrote it, so what is shared proves nothing. And a supervisor that is cut off from its store must
have ended its agents before the store gives their work away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allswell.domain.agents.fleet import Fleet, accounts_of, beside_each_other
from allswell.domain.check.model import (
    CheckFigure,
    CheckRule,
    Finding,
    Location,
    Severity,
    SumCheck,
    at_most,
    exact,
    one,
    times,
)
from allswell.domain.duration import show

SHARED_FOLDER = CheckRule(
    "shared_folder", Severity.WARNING, "Agents that can be at work at the same time have folders of their own."
)

GRACE_FITS_LEASE = CheckRule(
    "grace_fits_lease", Severity.WARNING, "An agent has its whole grace when its supervisor is cut off from the store."
)


def grace_fits_lease(fleet: Fleet, lease: int) -> Iterator[Finding]:
    """A finding for each agent whose grace is cut short when its supervisor is cut off: else it would run too long."""
    for name, spec in fleet.agents.items():
        most = lease // 3
        if spec.kind != "remote" and spec.grace > most:
            yield GRACE_FITS_LEASE.broken(
                f"{name} has a grace of {show(spec.grace)}, and fleet.lease is {show(lease)}: when its supervisor is"
                f" cut off from the store, {name} is killed {show(most)} after SIGTERM, before the store gives its task"
                " to another.",
                (),
                fix=f"Set fleet.lease to {show(3 * spec.grace)} or more, or a grace of {show(most)} or less.",
                place=fleet.places.get(name),
            )


def folders_apart(fleet: Fleet, here: str) -> Iterator[Finding]:
    """A finding for each agent that may find somebody at work in its folder; `here` is where the fleet is started."""
    for name, others in beside_each_other(fleet.agents, here).items():
        spec = fleet.agents[name]
        beside = [f"up to {spec.concurrency} of itself" if other == name else other for other in others]
        yield SHARED_FOLDER.broken(
            f"{name} may share its folder ({spec.cwd}) with {', '.join(beside)}: meanwhile changes there are no"
            " sign of progress, because a file does not say who wrote it.",
            (),
            fix="Set worktree = true, give each agent a cwd of its own, or have them check in.",
            place=fleet.places.get(name),
        )


# What settings name against what there is: roles against the agents, secrets against the environment.
#
# What is asked of a role that no agent has lies there until it is given up, and so does a webhook that cannot be
# signed.

ROLE_OF_NOBODY = CheckRule("role_of_nobody", Severity.WARNING, "Each role that is set up or requested has an agent.")
SECRET_NOT_SET = CheckRule(
    "secret_not_set", Severity.WARNING, "Each variable that [webhook_secrets] names is set, and not empty."
)
SESSION_OF_WHOM = CheckRule(
    "session_of_whom", Severity.WARNING, "It is known which account the usage source reports on, and an agent uses it."
)
_FIX = "Give an agent the role ([agents.NAME] role = {role!r}), or correct the name."


def has_role(fleet: Fleet, role: str) -> bool:
    """Whether an agent that is set up takes tasks of this role."""
    return any(spec.role in (None, role) for spec in fleet.agents.values())


def roles_set_up(fleet: Fleet, places: Mapping[str, Location | None]) -> Iterator[Finding]:
    """A finding for each role that the settings name and no agent has; where no agents are set up, nobody can tell."""
    for role, place in places.items() if fleet.agents else ():
        if not has_role(fleet, role):
            says = f"There are settings for the role {role!r}, and none of the agents has it."
            yield ROLE_OF_NOBODY.broken(says, (), fix=_FIX.format(role=role), place=place)


def conflicts_have_agents(fleet: Fleet, role: str, place: Location | None) -> Iterator[Finding]:
    """A finding where what does not merge would wait for an agent that there is none of: one in a worktree."""
    fit = [spec for spec in fleet.agents.values() if spec.role in (None, role) and spec.worktree]
    if role and fleet.agents and not fit:
        says = f"conflict_role is {role!r}, and no agent with this role works in a worktree."
        fix = f"Give an agent role = {role!r} and worktree = true, or take conflict_role out: then a human is asked."
        yield ROLE_OF_NOBODY.broken(says, (), fix=fix, place=place)


def session_of_whom(fleet: Fleet) -> Iterator[Finding]:
    """A finding where little of one account's session would pause agents of others, or none at all."""
    usage, accounts = fleet.usage, accounts_of(fleet)
    if not (usage.command or usage.function) or not accounts:
        return
    names = ", ".join(accounts[:5]) + (f" and {len(accounts) - 5} more" if len(accounts) > 5 else "")
    if usage.account and usage.account not in accounts:
        says = f"[usage] reports on the account {usage.account!r}, and no agent uses it: nothing is paused by it."
        yield SESSION_OF_WHOM.broken(says, (), fix=f"The agents' accounts are {names}.", place=fleet.usage_place)
    elif not usage.account and len(accounts) > 1:
        says = (
            f"[usage] does not say on which account it reports, and the agents have {len(accounts)} accounts ({names}):"
            " unless the source says so itself, all of them pause when little of it is left."
        )
        fix = "Set `account` in [usage], or give agents that share a session the same `account`."
        yield SESSION_OF_WHOM.broken(says, (), fix=fix, place=fleet.usage_place)


def roles_asked(asked: Mapping[str, int]) -> Iterator[Finding]:
    """A finding for each role with so many open requests that nobody is known to have."""
    for role, count in asked.items():
        open_ones = "1 request is" if count == 1 else f"{count} requests are"
        says = f"{open_ones} open for the role {role!r}, and no known agent has it."
        yield ROLE_OF_NOBODY.broken(says, (), fix=_FIX.format(role=role))


def secrets_set(
    secrets: Mapping[str, Sequence[str]], environ: Mapping[str, str], place: Location | None
) -> Iterator[Finding]:
    """A finding for each variable with the secret of a host that is not set here."""
    for host, names in secrets.items():
        for name in names:
            if not environ.get(name, "").strip():
                says = f"Webhook requests to {host!r} are signed with {name}, and that variable is not set here."
                fix = (
                    f"Set {name} where `allswell up` or `allswell sinks run` is started; nothing is posted without it."
                )
                yield SECRET_NOT_SET.broken(says, (), fix=fix, place=place)


# Check-ins against the run they are asked for in: asked too late, judged too late, missed by construction (O2, O3).
#
# A holder is asked at each multiple of the interval strictly before its limit, and has a wait to answer in. Misses are
# counted per agent across its leases, so a threshold that one run cannot reach may be reached in the next; but each of
# those silent runs ends in a timeout, and after `timeout_escalation` of them a human is asked anyway.

NEVER_ASKED = CheckRule(
    "never_asked", Severity.WARNING, "A run is long enough for at least one check-in to be asked for."
)
NEVER_JUDGED = CheckRule(
    "never_judged", Severity.WARNING, "Every check-in is asked for early enough to be missed in time."
)
STALL_IN_REACH = CheckRule(
    "stall_in_reach", Severity.WARNING, "An agent is found stalled before a human is asked anyway."
)
STALL_TAKES_RUNS = CheckRule("stall_takes_runs", Severity.NOTE, "An agent that falls silent is found within one run.")
IDLE_AFTER_CHECKIN = CheckRule(
    "idle_after_checkin", Severity.WARNING, "An agent that answers every check-in in time is never ended as idle."
)
BUSY_IS_NOT_STALLED = CheckRule(
    "busy_is_not_stalled", Severity.WARNING, "A single call within its limit does not make an agent look stalled."
)


class CheckIns(msgspec.Struct, frozen=True):
    """How the runs of one role are watched."""

    limit: CheckFigure
    interval: CheckFigure
    wait: CheckFigure
    threshold: CheckFigure
    escalation: CheckFigure
    idle: CheckFigure | None = None


def asked(limit: int, interval: int) -> int:
    """How many check-ins are asked for in a run: at each multiple of the interval strictly before the limit."""
    return (limit - 1) // interval


def judged(limit: int, interval: int, wait: int) -> int:
    """How many of them can be missed before the run is over."""
    return max((limit - 1 - wait) // interval, 0)


def checkins_work(watched: CheckIns) -> Iterator[Finding]:
    """Everything that the figures of one role say about each other."""
    limit, interval, wait = watched.limit, watched.interval, watched.wait
    if interval.length <= 0 or limit.length <= 0:
        return  # refused where it was loaded
    count = asked(limit.length, interval.length)
    if count == 0:
        yield NEVER_ASKED.broken(
            f"No agent is ever asked for a check-in: the first would come at {exact(interval.length)}, and"
            f" {limit.name} ends the run first.",
            (limit, interval),
            sum=SumCheck((one(interval.length),), "≥", limit.length),
            fix=f"Make {interval.name} less than {exact(limit.length)}; a third of it asks twice.",
        )
    else:
        in_time = judged(limit.length, interval.length, wait.length)
        if in_time < count:
            yield _never_judged(watched, count)
        yield from _stalling(watched, in_time)
    yield from _idle(watched)


def _never_judged(watched: CheckIns, number: int) -> Finding:
    limit, interval, wait = watched.limit, watched.interval, watched.wait
    made = SumCheck((times(number, interval.length), one(wait.length)), "≥", limit.length)
    return NEVER_JUDGED.broken(
        f"Check-in {number} of a run can never be missed: {limit.name} ends the run before the wait for it is over.",
        (limit, wait, interval),
        sum=made,
        fix=f"Make {limit.name} more than {exact(made.total)}, or {wait.name} less than"
        f" {exact(limit.length - number * interval.length)}.",
    )


def _stalling(watched: CheckIns, in_time: int) -> Iterator[Finding]:
    threshold, escalation = watched.threshold.length, watched.escalation.length
    figures = (watched.threshold, watched.interval, watched.limit, watched.escalation)
    enough = f"Make {watched.interval.name} at most {at_most(_often_enough(watched))}"
    reached = in_time * escalation
    if reached < threshold:
        yield STALL_IN_REACH.broken(
            f"{watched.threshold.name} ({threshold}) can never be reached: a run has {_times(in_time)} to miss a"
            f" check-in, and after {escalation} silent runs a human is asked because of the timeouts.",
            figures,
            fix=f"{enough}, or {watched.threshold.name} at most {reached}." if reached else f"{enough}.",
        )
    elif in_time < threshold:
        runs = -(-threshold // in_time)
        yield STALL_TAKES_RUNS.broken(
            f"An agent that falls silent is found stalled only in run {runs}: a run of {exact(watched.limit.length)}"
            f" has {_times(in_time)} to miss a check-in, and {watched.threshold.name} is {threshold}.",
            figures,
            fix=f"Nothing, if that is soon enough. {enough} to find it in one run.",
        )


def _often_enough(watched: CheckIns) -> int:
    """The longest interval at which one run has room for all the misses."""
    room = watched.limit.length - 1 - watched.wait.length
    return max(room // watched.threshold.length, 1)


def _times(count: int) -> str:
    return {0: "no chance", 1: "one chance"}.get(count, f"{count} chances")


def _idle(watched: CheckIns) -> Iterator[Finding]:
    idle, interval, wait = watched.idle, watched.interval, watched.wait
    if idle is None or asked(watched.limit.length, interval.length) == 0:
        return
    latest = interval.length + wait.length
    if idle.value <= latest:
        surely = idle.value <= interval.value
        yield IDLE_AFTER_CHECKIN.broken(
            f"{idle.name} is over before an agent is first asked for a check-in: one that waits to be asked is ended."
            if surely
            else f"{idle.name} can end an agent that answers every check-in in time.",
            (idle, interval, wait),
            sum=SumCheck((one(interval.length), one(wait.length)), "≥", idle.length),
            fix=f"Make {idle.name} more than {exact(latest)}, or let agents check in by themselves.",
        )


def misses_during(call: int, interval: int, wait: int) -> int:
    """How many check-ins in a row one call can cover from being asked for to being missed."""
    return 0 if call < wait else (call - wait) // interval + 1


def busy_is_not_stalled(watched: CheckIns, call: CheckFigure, what: str) -> Iterator[Finding]:
    """An agent that waits for one call cannot answer; if the call may last, it is taken for stalled."""
    limit, interval, wait = watched.limit.length, watched.interval.length, watched.wait.length
    longest = min(call.length, limit)
    covered = min(misses_during(longest, interval, wait), judged(limit, interval, wait))
    if covered >= watched.threshold.value:
        needed = watched.threshold.length - 1
        terms = (times(needed, interval), one(wait)) if needed else (one(wait),)
        made = SumCheck(terms, "≤", call.length)
        yield BUSY_IS_NOT_STALLED.broken(
            f"An agent that waits for {what} as long as it may ({call.name}) misses {covered} check-ins by"
            f" construction, and is taken for stalled after {watched.threshold.length}.",
            (watched.interval, watched.threshold, call),
            sum=made,
            fix=f"Make {watched.threshold.name} at least {covered + 1}, or let the agent check in while it waits.",
        )


# A worker's figures: a message must not become visible to others while it is still being handled (W2, W3).

STATEMENT_BEFORE_VISIBILITY = CheckRule(
    "statement_before_visibility", Severity.ERROR, "A statement is cut off before its message is given to another."
)
POOL_BEFORE_VISIBILITY = CheckRule(
    "pool_before_visibility", Severity.ERROR, "Waiting for a connection does not eat a message's time."
)


LONG_AFTER_VISIBILITY = CheckRule(
    "long_after_visibility", Severity.ERROR, "A handler that is marked long may run for longer than one that is not."
)


HANDLER_BEFORE_VISIBILITY = CheckRule(
    "handler_before_visibility", Severity.WARNING, "A handler has ended before its message is given to another."
)


class WorkerLimits(msgspec.Struct, frozen=True):
    """How a worker handles a message."""

    visibility: CheckFigure
    statement: CheckFigure
    pool_wait: CheckFigure
    connection_first: bool = True
    """Whether a connection is taken before the message is read, so that the wait for it costs the message nothing."""


def statement_before_visibility(worker: WorkerLimits) -> Iterator[Finding]:
    """0 < statement timeout < visibility timeout."""
    statement, visibility = worker.statement, worker.visibility
    if statement.value <= 0:
        yield STATEMENT_BEFORE_VISIBILITY.broken(
            f"{statement.name} of {statement.length} ms means no limit at all to PostgreSQL.",
            (statement,),
            fix=f"Give it more than 0 and less than {visibility.name} ({exact(visibility.length)}).",
        )
    elif statement.value >= visibility.value:
        yield STATEMENT_BEFORE_VISIBILITY.broken(
            f"{statement.name} ({statement.length} ms) must be less than {visibility.name} ({visibility.length} ms),"
            " or a message is handed to another worker while the first still writes.",
            (statement, visibility),
            sum=SumCheck((one(statement.length),), "≥", visibility.length),
            fix=f"Make {visibility.name} more than {exact(statement.length)}"
            + (f", or {statement.name} less than {exact(visibility.length)}." if visibility.length > 1 else "."),
        )


def pool_before_visibility(worker: WorkerLimits) -> Iterator[Finding]:
    """Pool wait + statement < visibility, where the message is read first; elsewhere it only ought to be.

    Who takes the connection first has waited before there is a message to lose. But a handler that takes a second one
    from the same pool waits with the message in hand, and nobody can see to it that none does.
    """
    pool, statement, visibility = worker.pool_wait, worker.statement, worker.visibility
    if pool.value + statement.value < visibility.value:
        return
    outlast = f"{pool.name} and {statement.name} together outlast {visibility.name}"
    longer = f"make {visibility.name} more than {exact(pool.length + statement.length)}"
    added = SumCheck((one(pool.length), one(statement.length)), "≥", visibility.length)
    if not worker.connection_first:
        yield POOL_BEFORE_VISIBILITY.broken(
            "A message that is read before a connection is there can be given to another worker before its statement"
            f" is cut off: {outlast}.",
            (pool, statement, visibility),
            sum=added,
            fix=f"Take the connection before the message is read, or {longer}.",
        )
    else:
        yield POOL_BEFORE_VISIBILITY.broken(
            "The worker has its connection before it reads a message; but the message of a handler that takes another"
            f" one can be given away before its statement is cut off: {outlast}.",
            (pool, statement, visibility),
            sum=added,
            fix=f"Let handlers use the connection that they are given, or {longer}.",
            severity=Severity.WARNING,
        )


def handlers_before_visibility(queue: str, slow: Mapping[str, str], late: Mapping[str, int]) -> Iterator[Finding]:
    """A finding for each type whose handler was seen to outlast its visibility; else for messages that were too late.

    Nothing declares how long a handler takes, so it is told as soon as a worker has seen it.
    """
    fix = "Raise worker.visibility_timeout above what it takes, or mark the handler long (long=True)."
    for type_, says in sorted(slow.items()):
        told = f"The handler of {type_!r} of queue {queue} {says.partition(':')[0]}: its message is given to another."
        yield HANDLER_BEFORE_VISIBILITY.broken(told, (), fix=fix)
    for reason, count in late.items() if not slow else ():
        were = "1 message of queue {} was" if count == 1 else f"{count:,} messages of queue {{}} were"
        told = f"{were.format(queue)} too late: {reason.partition(':')[0]}."
        yield HANDLER_BEFORE_VISIBILITY.broken(told, (), fix=fix)


def long_after_visibility(long: CheckFigure, visibility: CheckFigure) -> Iterator[Finding]:
    """The limit of long handlers is more than the visibility: else it ends them before it would end any other."""
    if long.value <= visibility.value:
        yield LONG_AFTER_VISIBILITY.broken(
            f"{long.name} ({exact(long.length)}) is not more than {visibility.name} ({exact(visibility.length)}): a"
            " handler that is marked long would be ended before one that is not.",
            (long, visibility),
            sum=SumCheck((one(long.length),), "≤", visibility.length),
            fix=f"Make {long.name} more than {exact(visibility.length)}.",
        )

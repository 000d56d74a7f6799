"""How a supervised agent is, as far as one can tell from outside, and what one goes by.

The states are told apart because what follows differs: one that waits for a human, for another agent, for its quota or
for a provider that refuses has done nothing wrong; one that is quiet is nudged; one that repeats itself is at work and
gets nowhere; one that the watch has marked as stalled is ended. Where nothing can be seen of an agent (a remote one),
its state is unknown, and then it is neither ended nor given more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.evidence import EvidenceKind, EvidenceState
from allswell.domain.agents.usage import UsageLevel
from allswell.domain.duration import felt, show
from allswell.domain.ids import Millis
from allswell.domain.values import start_of
from allswell.errors import Refused

SPAWNING = 30_000
"""Milliseconds after its start in which an agent need not have shown anything."""
QUIET = 60_000
"""Without proof of progress for so many milliseconds an agent is quiet."""


class AgentCondition(StrEnum):
    """How an agent is."""

    SPAWNING = "spawning"
    WORKING = "working"
    QUIET = "quiet"
    STALLED = "stalled"
    STOPPED = "stopped"
    FOR_HUMAN = "waiting for a human"
    FOR_AGENT = "waiting for an agent"
    FOR_LIMIT = "waiting for a limit"
    FOR_PROVIDER = "waiting for the provider"
    REPEATING = "repeating itself"
    DEAD = "dead"
    UNKNOWN = "unknown"


class AttemptFacts(msgspec.Struct, frozen=True, gc=False):
    """What is known about an attempt beside its own evidence."""

    ended: str | None = None
    stalled: bool = False
    for_human: str | None = None
    for_agent: str | None = None
    for_limit: str | None = None
    doing: str = ""
    """The call of a tool that it has made, and that has brought nothing yet."""


class AgentVerdict(msgspec.Struct, frozen=True, gc=False):
    """A state, and in words what it was read off."""

    condition: AgentCondition
    evidence: str


EXPLAINED = (AgentCondition.FOR_PROVIDER, AgentCondition.REPEATING)
"""States that say too little without what they were read off."""


def in_words(verdict: AgentVerdict) -> str:
    """A state as people are told it; what is waited for at a provider, or what repeats, belongs to it."""
    if verdict.condition in EXPLAINED:
        return f"{verdict.condition.value}: {verdict.evidence}"
    return verdict.condition.value


def judge(standing: EvidenceState | None, known: AttemptFacts, now: int) -> AgentVerdict:
    """How an agent is now; the moments are the supervisor's."""
    if known.ended is not None:
        return AgentVerdict(AgentCondition.DEAD, known.ended)
    if known.stalled:
        return AgentVerdict(AgentCondition.STALLED, _last(standing, now))
    if known.for_limit is not None:
        return AgentVerdict(AgentCondition.FOR_LIMIT, known.for_limit)
    if standing is not None and standing.refusal is not None:
        return AgentVerdict(AgentCondition.FOR_PROVIDER, standing.refusal.words)
    if known.for_human is not None:
        return AgentVerdict(AgentCondition.FOR_HUMAN, known.for_human)
    if known.for_agent is not None:
        return AgentVerdict(AgentCondition.FOR_AGENT, known.for_agent)
    if standing is None:
        return AgentVerdict(AgentCondition.UNKNOWN, "nothing can be seen of it from here")
    return _by_evidence(standing, known, now)


def _by_evidence(standing: EvidenceState, known: AttemptFacts, now: int) -> AgentVerdict:
    """How an agent is that waits for nobody."""
    if standing.repeats:
        return AgentVerdict(AgentCondition.REPEATING, standing.repeats)
    progress = standing.progress
    if progress is None:
        printed = standing.last.get(EvidenceKind.OUTPUT)
        if printed is not None and now - printed.at < QUIET and now - standing.began < SPAWNING:
            return AgentVerdict(
                AgentCondition.WORKING, f"it prints, the last time {felt(max(now - printed.at, 0))} ago"
            )
        if now - standing.began < SPAWNING:
            return AgentVerdict(AgentCondition.SPAWNING, f"started {felt(now - standing.began)} ago")
        return AgentVerdict(AgentCondition.QUIET, _last(standing, now))
    condition = AgentCondition.WORKING if now - progress.at < QUIET else AgentCondition.QUIET
    return AgentVerdict(condition, known.doing or _last(standing, now))


def _last(standing: EvidenceState | None, now: int) -> str:
    """The last proof of progress; where there is none, what it has shown instead."""
    if standing is None:
        return "nothing can be seen of it from here"
    seen = standing.progress
    if seen is not None:
        return f"{seen.sign.value} {felt(max(now - seen.at, 0))} ago: {seen.what}"
    bare = f"no sign of progress in {felt(now - standing.began)}"
    other = next(iter(standing.last.values()), None)
    return bare if other is None else f"{bare}, only {other.sign.value} {felt(max(now - other.at, 0))} ago"


# A supervisor's place in the watch: its name is taken by one process at a time, and what it does can be looked at.
#
# Each supervisor keeps one word in the store under its name, and renews it. A name whose owner has not spoken for three
# times its pace is free; so is one whose owner is known to be dead. The word carries a marker of its own, and is only
# ever swapped for the one that was read, so of two that start under one name one is refused.
#
# An owner that could not speak for so long may live all the same, cut off, and its agents with it: whoever takes its
# name takes none of its leases. And it trusts its own name for less than that (`trusted_for`), so that it claims
# nothing more.

PRESENCE_PREFIX = "supervisor."
PACE = 5_000
"""Milliseconds between two words of a supervisor, at most."""
_LOST = 3


class AgentSlot(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One slot of a fleet: who may hold a task in it, and what it is doing."""

    agent: str
    """Its name in the settings."""
    holder: str
    """Its name in the store: whose leases these are."""
    kind: str
    role: str | None = None
    task: str = ""
    name: str = ""
    token: int = 0
    condition: str = ""
    """Empty while it has nothing to do."""
    evidence: str = ""
    proof_at: Millis | None = None
    """The last proof of progress, on the store's clock."""
    waits: str = ""
    """Why it takes nothing new, where something keeps it."""
    account: str = ""
    """Whose usage limit it runs into."""
    idle_at: Millis | None = None
    """When it is ended for want of progress, on the store's clock; None: nobody ends it for that."""
    remark: str = ""
    """What is to be said of how it is watched: that its reaper was stopped."""


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a supervisor says of itself."""

    name: str
    marker: str
    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    pid_start: int
    started_at: Millis
    beaten_at: Millis
    pace: int = PACE
    level: UsageLevel = UsageLevel()
    posts: tuple[AgentSlot, ...] = ()
    stopping: bool = False
    gone: bool = False
    """It has stopped in good order; what it was stays to be looked at."""
    dismissed_by: str = ""
    """Who has said that nobody waits for it any more; it takes this back by speaking again."""
    died: bool = False
    """Its process is certainly gone: never written down, and known only to whoever looks from its own machine."""


def read_presence(text: str) -> Presence | None:
    """What a supervisor's word says; None if it cannot be read."""
    try:
        return msgspec.json.decode(text, type=Presence)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def read_all(texts: Iterable[str]) -> list[Presence]:
    """What these words say; those that cannot be read are left out."""
    return [presence for text in texts if (presence := read_presence(text)) is not None]


def is_alive(presence: Presence, now: Millis) -> bool:
    """Whether a supervisor has spoken lately; what was said far ahead of now was said by a clock that was set back."""
    return not presence.gone and not presence.died and abs(now - presence.beaten_at) < presence.pace * _LOST


def dismissed(presence: Presence, now: Millis, by: str) -> Presence:
    """The word of a supervisor that nobody waits for any more; refused if it has spoken lately.

    Its leases are not touched: they lapse, for it may be cut off, with agents at work.
    """
    if is_alive(presence, now):
        since = show(max(now - presence.beaten_at, 0))
        text = f"the supervisor {presence.name!r} runs: process {presence.pid} on {presence.host} spoke {since} ago"
        raise Refused("still_runs", text, where="ID", hint=f"stop it on {presence.host} (Ctrl-C, or SIGTERM)")
    return replace(presence, dismissed_by=by, died=False)


def trusted_for(presence: Presence) -> int:
    """How long a supervisor trusts its name after it has sent a word that was accepted, in ms."""
    return presence.pace * (_LOST - 1)


def check_free(presence: Presence | None, now: Millis, *, dead: bool) -> None:
    """Refuse a name that somebody has; `dead` is what the caller knows of its owner's process."""
    if presence is None or dead or not is_alive(presence, now):
        return
    since = show(max(now - presence.started_at, 0))
    text = (
        f"a supervisor named {presence.name!r} runs already: process {presence.pid} on {presence.host}, for {since};"
        " stop it, or give this one another name (--name)"
    )
    raise Refused("name_taken", text, where="name")


# Processes of an attempt that still run although it was told to stop: who they are, and what they keep.
#
# As long as one of them runs, nothing else is begun in the folder of that attempt, and its slot in the fleet takes no
# task: two attempts in one folder spoil each other's work. That is over when the processes have ended, or when a human
# frees both. One word in the store for each holder says so (`survivors.HOLDER`), so that every screen can show it.
#
# Only the machine on which they run can tell whether they still do.

SURVIVORS_PREFIX = "survivors."
_NAMED = 5
"""How many processes are named; the word has them all."""
_COMMAND = 200
"""Characters that are kept of a command line."""
_SHOWN = 60
"""Characters that are said of it in a sentence."""


class Survivor(msgspec.Struct, frozen=True, gc=False):
    """One process that still runs."""

    pid: int
    start: int
    """When it started, in clock ticks since boot: tells it from a later process that has its number."""
    command: str = ""
    """Its command line, as far as it is known."""


class Survivors(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is left of one attempt, and the folder and the slot that are kept for as long as it is."""

    holder: str
    """Who held the attempt: in a fleet, its slot."""
    task: str
    name: str
    attempt: int
    host: str
    boot_id: str
    pid_namespace: str
    processes: tuple[Survivor, ...] = ()
    """Empty: all of them have ended since."""
    folder: str = ""
    since: Millis = Millis(0)
    """When the attempt was over, on the wall clock of that machine."""
    freed_by: str = ""
    """The human who has freed folder and slot although they still run."""

    @property
    def keeps(self) -> bool:
        """Whether its folder and its slot are kept."""
        return bool(self.processes) and not self.freed_by


def word_of(holder: str) -> str:
    """The key of a holder's word."""
    return SURVIVORS_PREFIX + holder


def read_survivors(text: str | None) -> Survivors | None:
    """What a word says; None if there is none, or if it cannot be read."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Survivors)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def short_command(command: str) -> str:
    """A command line as it is kept: on one line, and not too long."""
    line = "".join(one if one.isprintable() else " " for one in command).strip()
    return start_of(line, _COMMAND)


def named(processes: Sequence[Survivor]) -> str:
    """The processes as the subject of a sentence: `process 4242 (python x.py)`."""
    each = [
        f"{one.pid} ({start_of(one.command, _SHOWN)})" if one.command else str(one.pid) for one in processes[:_NAMED]
    ]
    if len(processes) > _NAMED:
        each.append(f"{len(processes) - _NAMED} more")
    if len(each) == 1:
        return f"process {each[0]}"
    return f"processes {', '.join(each[:-1])} and {each[-1]}"


def still_run(processes: Sequence[Survivor]) -> str:
    """That they still run, as a sentence without its full stop: `process 4242 (python x.py) still runs`."""
    return f"{named(processes)} still {'runs' if len(processes) == 1 else 'run'}"


def have_ended(processes: Sequence[Survivor]) -> str:
    """That they have ended, as a sentence without its full stop."""
    return f"{named(processes)} {'has' if len(processes) == 1 else 'have'} ended"


def blocks(kept: Survivors) -> str:
    """Why nothing is begun in a folder, and what to do about it."""
    (first, *_) = kept.processes
    whose = f"attempt {kept.attempt} at “{kept.name}”"
    pids = " ".join(str(one.pid) for one in kept.processes)
    text = f"{still_run(kept.processes)}, left by {whose} in {kept.folder or 'an unknown folder'}"
    return f"{text}; end it (kill -9 {pids}), or free folder and slot although it runs: allswell dismiss {first.pid}"

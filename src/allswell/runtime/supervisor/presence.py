"""Keeping a supervisor's word in the store: taken once, renewed, given back."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.human_session import (
    HUMAN_SESSIONS_PREFIX,
    Change,
    HumanSession,
    SessionReport,
    bounded,
    kept,
    read_sessions,
    reported,
)
from allswell.domain.agents.status import (
    PRESENCE_PREFIX,
    AgentSlot,
    Presence,
    check_free,
    dismissed,
    read_presence,
    trusted_for,
)
from allswell.domain.agents.usage import UsageLevel
from allswell.domain.rules.event import Event
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.runtime.host import boot_id
from allswell.runtime.process.apart.tree import lives, look, start_of
from allswell.runtime.process.identity import pid_namespace

_TRIES = 5


class Registered:
    """A name that is ours for as long as we renew it."""

    def __init__(self, watch: Watch, presence: Presence, kept: str, sent: float) -> None:
        self._watch = watch
        self._kept = kept
        self._sent = sent
        self.presence = presence

    @property
    def trusted(self) -> float:
        """For how many seconds the name is certainly ours, unless it is renewed before; 0: it may be another's."""
        return max(self._sent + trusted_for(self.presence) / 1_000 - asyncio.get_running_loop().time(), 0.0)

    async def beat(
        self, level: UsageLevel, posts: tuple[AgentSlot, ...], *, stopping: bool = False, gone: bool = False
    ) -> None:
        """Report the state of this supervisor; `LeaseLost` if another process has its name by now."""
        sent = asyncio.get_running_loop().time()
        now = await self._watch.now()
        said = msgspec.structs.replace(
            self.presence, beaten_at=now, level=level, posts=posts, stopping=stopping, gone=gone
        )
        kept = msgspec.json.encode(said).decode()
        key = PRESENCE_PREFIX + said.name
        if not await self._watch.swap(key, self._kept, kept):
            there = await self._watch.recall(key)
            if there != kept:  # the answer to an earlier beat may have been lost
                found = None if there is None else read_presence(there)
                if found is None or found.marker != said.marker:
                    raise LeaseLost(said.name, said.pid, "another supervisor has its name now")
                self._kept, self._sent = there or kept, sent
                return
        self._kept, self._sent, self.presence = kept, sent, said


async def register(watch: Watch, name: str, host: str, pace: int) -> tuple[Registered, Presence | None]:
    """Take a name, or `Refused`; with what its last owner left, if there was one (`died`: its process is gone)."""
    for _ in range(_TRIES):
        sent = asyncio.get_running_loop().time()
        now = await watch.now()
        there = await watch.recall(PRESENCE_PREFIX + name)
        before = None if there is None else read_presence(there)
        if before is not None and _is_dead(before, host):
            before = msgspec.structs.replace(before, died=True)
        check_free(before, now, dead=before is not None and before.died)
        made = Presence(
            name,
            secrets.token_hex(8),
            host,
            os.getpid(),
            boot_id(),
            pid_namespace(),
            start_of(os.getpid()),
            now,
            now,
            pace,
        )
        kept = msgspec.json.encode(made).decode()
        try:
            taken = await watch.swap(PRESENCE_PREFIX + name, there, kept)
        except Unavailable:
            taken = await watch.recall(PRESENCE_PREFIX + name) == kept
        if taken:
            return Registered(watch, made, kept, sent), before
    raise Refused("name_taken", f"others are taking the name {name!r} at the same moment", where="name")


async def dismiss(watch: Watch, name: str, by: str) -> Presence:
    """A human does not wait for a supervisor that is silent: its machine is gone, or it was started for once."""
    there = await watch.recall(PRESENCE_PREFIX + name)
    before = None if there is None else read_presence(there)
    if before is None:
        raise Refused("unknown_supervisor", f"there is no supervisor {name!r}", where="ID", hint="allswell agents")
    if before.gone or before.dismissed_by:
        return before
    after = dismissed(replace(before, died=has_died(before)), await watch.now(), by)
    if not await watch.swap(PRESENCE_PREFIX + name, there, msgspec.json.encode(after).decode()):
        raise Refused("changed", f"the supervisor {name!r} has just spoken; look again", where="ID")
    await watch.notice(Event("supervisor_stopped", data={"supervisor": name, "how": f"dismissed by {by}"}))
    return after


async def report_session(watch: Watch, change: Change, report: SaidSession) -> HumanSession | None:
    """Take note of what a program says of a session that a human has started; None where it is no such session.

    Those of this machine whose processes are gone are forgotten.
    """
    host, process, now = socket.gethostname(), look(report.pid), await watch.now()
    own = look(os.getpid())
    session = bounded(
        HumanSession(
            client=report.client,
            session=report.session,
            folder=report.folder,
            host=host,
            pid=report.pid,
            boot_id=boot_id(),
            pid_namespace=pid_namespace(),
            pid_start=0 if process is None else process.start,
            began_at=now,
            heard_at=now,
            waits=report.text if change == "waits" else "",
            said_at=0 if own is None else own.start,
        )
    )
    if session is None or (process is None and change != "ends"):
        return None
    key = HUMAN_SESSIONS_PREFIX + host
    for _ in range(_TRIES):
        there = await watch.recall(key)
        listed = read_sessions(there)
        before = tuple(known for known in listed if known.session == session.session or not has_died(known.process))
        after, events = reported(before, SessionReport(change, session, report.kind))
        if after == listed or await watch.swap(key, there, kept(after)):
            for event in events:
                await watch.notice(event)
            return session
    raise Unavailable(f"the sessions of {host} keep changing; try again")


class SaidSession(msgspec.Struct, frozen=True):
    """What a program says of one of its sessions."""

    client: str
    session: str
    folder: str
    pid: int
    kind: str = ""
    text: str = ""
    """What it waits for."""


def has_died(presence: Presence) -> bool:
    """Whether a supervisor's process is certainly gone, as far as that can be seen from here."""
    return _is_dead(presence, socket.gethostname())


def _is_dead(before: Presence, host: str) -> bool:
    """Whether its process is certainly gone: it was on this machine, and its number is free or another's.

    A machine of the same name that was started at another moment may be another one: containers share their names.
    """
    if (before.host, before.boot_id) != (host, boot_id()):
        return False
    if before.pid_namespace != pid_namespace():
        return False  # a container's numbers mean nothing here
    return not lives(before.pid, before.pid_start)

"""Sessions of coding agents that humans have started themselves: seen, and never ended or slowed.

The plugin (`interfaces/plugin/hook.py`) reports them: that one began, that it waits for its human, that it goes on,
that it has ended. Of each machine there is one word of the watch's own, with all of them. What is kept of a session is
small and bounded, and names the process, so that one that was killed without a word is known to be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.status import Presence
from allswell.domain.ids import AgentId, Millis, is_session
from allswell.domain.rules.event import Event
from allswell.domain.values import on_one_line

HUMAN_SESSIONS_PREFIX = "human_sessions."
SESSIONS_MOST = 100
"""Sessions of one machine; of more, those are forgotten that were heard of first."""
FORGOTTEN = 7 * 86_400_000
"""Milliseconds after which one on another machine is not shown any more if nothing was heard of it."""
TEXT_MOST = 500
FOLDER_MOST = 500
_SHOWN = 8
"""Characters of a session's id that tell it from others."""
Change = Literal["begins", "waits", "goes_on", "ends"]


class HumanSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session."""

    client: str
    """The program: `claude`, `codex`."""
    session: str
    """Its own id."""
    folder: str
    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    pid_start: int
    began_at: Millis
    heard_at: Millis
    waits: str = ""
    """What it waits for at its terminal, in words of its program; empty: it does not, as far as is known."""
    kind: str = ""
    """The kind of what it waits for, as its program names it."""
    said_at: int = 0
    """When the process that reported this was started, in clock ticks since boot: reports may come in another order."""
    told_at: int = 0
    """`said_at` of the report for which it was last announced that the session waits."""

    @property
    def agent(self) -> AgentId:
        """The name under which it is shown."""
        return AgentId(f"{self.client}:{self.session[:_SHOWN]}")

    @property
    def process(self) -> Presence:
        """Its process, as those are known of which it can be asked whether they are gone."""
        return Presence(
            self.agent,
            self.session,
            self.host,
            self.pid,
            self.boot_id,
            self.pid_namespace,
            self.pid_start,
            self.began_at,
            self.heard_at,
        )


class SessionReport(msgspec.Struct, frozen=True):
    """What a hook has reported of a session."""

    change: Change
    session: HumanSession
    kind: str = ""
    """What it waits for, in a word of its program's."""


class _Kept(msgspec.Struct, frozen=True):
    sessions: tuple[HumanSession, ...] = ()


def read_sessions(text: str | None) -> tuple[HumanSession, ...]:
    """The sessions of a machine, as they are kept; none where that cannot be read."""
    try:
        return msgspec.json.decode(text or "{}", type=_Kept).sessions
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()


def kept(sessions: Sequence[HumanSession]) -> str:
    """The sessions of a machine as they are kept."""
    return msgspec.json.encode(_Kept(tuple(sessions))).decode()


def bounded(session: HumanSession) -> HumanSession | None:
    """A session as it is kept, of what a program has said of itself; None if that names none."""
    if not is_session(session.session) or not session.client.isalnum():
        return None
    folder, waits = on_one_line(session.folder[:FOLDER_MOST]), on_one_line(session.waits[:TEXT_MOST])
    return replace(session, client=session.client[:_SHOWN], folder=folder, waits=waits)


def reported(
    before: Sequence[HumanSession], report: SessionReport
) -> tuple[tuple[HumanSession, ...], tuple[Event, ...]]:
    """The sessions of a machine after a report, and what the journal says of it.

    That a session waits is announced once, until it has gone on. Each report comes from a process of its own, so they
    may arrive in another order: the first one may be that the session waits. A report that is late changes nothing; but
    if it says that the session had gone on before it waited, that it waits is announced again.
    """
    new = report.session
    known = next((session for session in before if session.session == new.session), None)
    others = tuple(session for session in before if session.session != new.session)
    about = {"folder": new.folder}
    if report.change == "ends":
        return others, () if known is None else (Event("human_session_ended", agent=known.agent, data=about),)
    if known is not None and known.boot_id == new.boot_id and 0 < new.said_at < known.said_at:
        if report.change != "goes_on" or not known.waits or new.said_at < known.told_at:
            return tuple(before), ()
        known = replace(known, told_at=known.said_at)
        return (*others, known), (_waits(known),)
    events = [] if known is not None else [Event("human_session_began", agent=new.agent, data=about)]
    if report.change == "waits":
        new = replace(new, kind=on_one_line(report.kind[:TEXT_MOST]))
        if known is None or not known.waits:
            new = replace(new, told_at=new.said_at)
            events.append(_waits(new))
    if known is not None:
        waiting = known if report.change == "begins" else new
        told_at = max(new.told_at, known.told_at)
        new = replace(new, began_at=known.began_at, waits=waiting.waits, kind=waiting.kind, told_at=told_at)
    return (*others, new)[-SESSIONS_MOST:], tuple(events)


def _waits(session: HumanSession) -> Event:
    told = {"kind": session.kind, "text": session.waits, "folder": session.folder}
    return Event("agent_waits", agent=session.agent, data=told)

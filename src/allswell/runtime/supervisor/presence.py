"""Keeping a supervisor's word in the store: taken once, renewed, given back."""

from __future__ import annotations

import os
import secrets
import socket

import msgspec

from allswell.domain.presence import PREFIX, Post, Presence, check_free
from allswell.domain.usage import Level
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.runtime.boot import boot_id
from allswell.runtime.warden.apart.tree import look
from allswell.runtime.warden.record import pid_namespace

_TRIES = 5


class Registered:
    """A name that is ours for as long as we renew it."""

    def __init__(self, watch: Watch, presence: Presence, kept: str) -> None:
        self._watch = watch
        self._kept = kept
        self.presence = presence

    async def beat(self, level: Level, posts: tuple[Post, ...], *, stopping: bool = False, gone: bool = False) -> None:
        """Say how things stand; `LeaseLost` if the name is somebody else's by now."""
        now = await self._watch.now()
        said = msgspec.structs.replace(
            self.presence, beaten_at=now, level=level, posts=posts, stopping=stopping, gone=gone
        )
        kept = msgspec.json.encode(said).decode()
        key = PREFIX + said.name
        if not await self._watch.swap(key, self._kept, kept):
            there = await self._watch.recall(key)
            if there != kept:  # the answer to an earlier beat may have been lost
                found = None if there is None else _read(there)
                if found is None or found.marker != said.marker:
                    raise LeaseLost(said.name, said.pid, "another supervisor has its name now")
                self._kept = there or kept
                return
        self._kept, self.presence = kept, said


async def register(watch: Watch, name: str, host: str, pace: int) -> tuple[Registered, Presence | None]:
    """Take a name, or `Refused`; with what its last owner left, if there was one."""
    for _ in range(_TRIES):
        now = await watch.now()
        there = await watch.recall(PREFIX + name)
        before = None if there is None else _read(there)
        check_free(before, now, dead=before is not None and _is_dead(before, host))
        made = Presence(
            name, secrets.token_hex(8), host, os.getpid(), boot_id(), pid_namespace(), _start(), now, now, pace
        )
        kept = msgspec.json.encode(made).decode()
        try:
            taken = await watch.swap(PREFIX + name, there, kept)
        except Unavailable:
            taken = await watch.recall(PREFIX + name) == kept
        if taken:
            return Registered(watch, made, kept), before
    raise Refused("name_taken", f"others are taking the name {name!r} at the same moment", where="name")


def _read(text: str) -> Presence | None:
    try:
        return msgspec.json.decode(text, type=Presence)
    except msgspec.DecodeError:
        return None


def _start() -> int:
    own = look(os.getpid())
    return 0 if own is None else own.start


def has_died(presence: Presence) -> bool:
    """Whether a supervisor's process is certainly gone, as far as that can be seen from here."""
    return _is_dead(presence, socket.gethostname())


def _is_dead(before: Presence, host: str) -> bool:
    """Whether its process is certainly gone: it was on this machine, and its number is another's or nobody's."""
    if before.host != host:
        return False
    if before.boot_id != boot_id():
        return True
    if before.pid_namespace != pid_namespace():
        return False  # a container's numbers mean nothing here
    seen = look(before.pid)
    return seen is None or seen.start != before.pid_start or seen.state in "ZX"

"""What travels between a watch and its server: commands and looks by name, each with the types that it has in code.

Nothing is declared twice. Commands are those of the rules of access (`domain/access/rights.py`), looks are the queries
(`domain/rules/query.py`). So whoever adds a command or a query has it here too. `ANSWERS` says what comes back where
that is more than an id or nothing.

Both sides must be of one version as far as these types go; fields that one side does not know are passed over, and
those that it misses have their defaults.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from allswell.domain.access.rights import ACT_OF
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.mesh.respond import RequestStands
from allswell.domain.notify.delivery import Delivery
from allswell.domain.rules.command import (
    AcquireFlow,
    Admit,
    CheckIn,
    CheckInAgain,
    Claim,
    Command,
    MoveOn,
    Park,
    Report,
    Verified,
    wire_name,
)
from allswell.domain.rules.query import QUERIES, answer_of
from allswell.domain.service.calls import ServiceReply
from allswell.errors import AllswellError, BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable

VERSION = 1
WAIT_MOST = 45_000
"""Milliseconds that one call may be waited for: what stands between two machines cuts longer ones off."""
COMMANDS: Mapping[str, type[Command]] = {wire_name(kind): kind for kind in ACT_OF}
ANSWERS: Mapping[type[Command], Any] = {
    Claim: list[Granted],
    CheckIn: Orders,
    CheckInAgain: Orders,
    MoveOn: list[Granted] | RequestStands | None,
    AcquireFlow: Granted | str | None,
    Admit: ServiceReply,
    Report: ServiceReply,
    Park: ServiceReply,
    Verified: AfterCheck,
}
"""What a command is answered with; all others with ids or nothing."""
PLAIN: Any = Any


class WireProblem(Struct, frozen=True, omit_defaults=True):
    """What went wrong, as RFC 9457 has it; the fields from `kind` on are ours."""

    type: str
    title: str
    status: int
    detail: str
    kind: str
    code: str
    where: str | None = None
    hint: str | None = None
    task_id: str | UnsetType = UNSET
    token: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    service: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    place: int | UnsetType = UNSET


class EncodedCommand(Struct, frozen=True):
    """One command: what it is called, and its fields."""

    command: str
    about: Raw


class CommandBatch(Struct, frozen=True, omit_defaults=True):
    """Commands to be decided together; a claim may be waited for, if it comes alone."""

    commands: list[EncodedCommand]
    wait_ms: int = 0


class CommandResult(Struct, frozen=True, omit_defaults=True):
    """What became of one command: its answer, or what went wrong."""

    answer: Raw | UnsetType = UNSET
    error: WireProblem | UnsetType = UNSET


class Answering(Struct, frozen=True, omit_defaults=True):
    """What became of each, in their order; a claim was waited for so long before it was granted."""

    answers: list[CommandResult]
    waited_ms: int = 0


# What is no look, and no command either: words of the watch's own, and what people do to deliveries.


class CompareAndSet(Struct, frozen=True):
    """Keep something in the place of what was kept there; False if that is not there any more."""

    key: str
    before: str | None
    after: str


class Revise(Struct, frozen=True):
    """Write deliveries as they are now, and forget those that are gone."""

    changed: Sequence[Delivery]
    gone: Sequence[Delivery] = ()


class RemoteCall(Struct, frozen=True):
    """A query, or a write that is no command, as it travels under its name."""

    arguments: type[Struct]
    answer: Any


CALLS: Mapping[str, RemoteCall] = {
    **{name: RemoteCall(kind, answer_of(kind)) for name, kind in QUERIES.items()},
    "swap": RemoteCall(CompareAndSet, bool),
    "revise": RemoteCall(Revise, None),
}


def said(command: Command) -> EncodedCommand:
    """A command as it travels."""
    return EncodedCommand(wire_name(type(command)), Raw(msgspec.json.encode(command)))


def heard(one: EncodedCommand) -> Command | None:
    """A command as it arrived; None if there is none of that name. What does not fit is a `ValidationError`."""
    kind = COMMANDS.get(one.command)
    return None if kind is None else msgspec.json.decode(one.about, type=kind)


# What a server says went wrong, as the error that it was there.


def error_of(problem: WireProblem) -> AllswellError:
    """The error that a problem tells of."""
    after = None if problem.retry_after_ms is UNSET else problem.retry_after_ms
    service = "" if problem.service is UNSET else problem.service
    reason = "" if problem.reason is UNSET else problem.reason
    match problem.kind:
        case "refused":
            refused = Refused(problem.code, problem.detail, where=problem.where, hint=problem.hint)
            refused.place = None if problem.place is UNSET else problem.place
            return refused
        case "lease_lost":
            task = "" if problem.task_id is UNSET else problem.task_id
            return LeaseLost(task, 0 if problem.token is UNSET else problem.token, reason)
        case "unavailable":
            return Unavailable(problem.detail, hint=problem.hint)
        case "service_parked":
            return ServiceParked(service, time.time_ns() // 1_000_000 + (after or 0), after or 0)
        case "breaker_open":
            return BreakerOpen(service, after, reason)
        case _:
            return Bug(f"the server failed: {problem.detail}")

"""For watches that live elsewhere (`allswell.remote`): commands and looks as they are inside, by their names.

Programs without Allswell use the other routes. What these two take and answer are rows and commands of this version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.responses import Response

from allswell.domain.command import CheckIn, Claim, Command, RecordStep
from allswell.doors.http.call import Call
from allswell.doors.http.claiming import claimed
from allswell.doors.http.problem import problem_of
from allswell.doors.http.route import Route
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.remote.wire import CALLS, WAIT_MOST, Answered, Answering, RemoteLook, Said, heard

_MOST = 1_000


class CommandsGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """Commands to be decided together; a claim may be waited for, if it comes alone."""

    commands: Annotated[list[Said], Meta(min_length=1, max_length=_MOST)]
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MOST)] = 0


async def say_commands(call: Call, given: CommandsGiven) -> Answering:
    """Have commands decided together: for each an answer, or what went wrong."""
    commands = [_heard(one) for one in given.commands]
    kinds = {type(one) for one in commands}
    answers: list[object]
    if kinds == {Claim} and len(commands) == 1:
        return await _claimed(call, commands, given.wait_ms)
    if kinds == {Claim}:
        granted, _ = await call.backend.claim_each([one for one in commands if isinstance(one, Claim)])
        answers = list(granted)
    elif kinds == {CheckIn}:
        answers = await call.backend.check_in_many([one for one in commands if isinstance(one, CheckIn)])
    elif kinds == {RecordStep}:
        answers = [await _recorded(call, one) for one in commands if isinstance(one, RecordStep)]
    else:
        answers = await call.backend.do_many(commands)
    return Answering([_told(one) for one in answers])


def _heard(one: Said) -> Command:
    try:
        command = heard(one)
    except msgspec.ValidationError as error:
        raise Refused("bad_command", f"{one.command} does not fit: {error}", where="commands") from None
    if command is None:
        raise Refused("unknown_command", f"there is no command {one.command[:60]!r} here", where="commands")
    return command


async def _claimed(call: Call, commands: Sequence[Command], wait: int) -> Answering:
    (claim,) = [one for one in commands if isinstance(one, Claim)]
    began = asyncio.get_running_loop().time()
    try:
        got = await claimed(call, claim, wait)
    except Unavailable:
        raise
    except AllswellError as error:
        return Answering([_told(error)])
    return Answering([_told(got.granted)], max(0, int((got.sent - began) * 1000)))


async def _recorded(call: Call, step: RecordStep) -> object:
    try:
        await call.backend.record(step)
    except AllswellError as error:
        return error
    return None


def _told(answer: object) -> Answered:
    if isinstance(answer, AllswellError):
        return Answered(error=problem_of(answer))
    return Answered(answer=Raw(msgspec.json.encode(answer)))


class LookAsked(Struct, frozen=True):
    """What a look takes; its own arguments stand in its place."""


async def look_at(call: Call, _: LookAsked) -> Response:
    """Look at what is kept, by the name of a view; the answer is its value."""
    wanted = CALLS.get(call.named("view"))
    if wanted is None:
        raise Refused("unknown_view", f"there is no view {call.named('view')[:60]!r}", where="view")
    given = _arguments(wanted, await call.body())
    answer = await getattr(call.backend.store, wanted.name)(**given)
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _arguments(wanted: RemoteLook, body: bytes) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(body or b"{}", type=wanted.arguments)
    except msgspec.DecodeError as error:
        raise Refused("bad_body", f"{wanted.name} does not take this: {error}", where="body") from None
    return {name: getattr(given, name) for name in wanted.arguments.__struct_fields__}


ROUTES = (
    Route("POST", "/commands", say_commands, CommandsGiven, (Answering,)),
    Route("POST", "/views/{view}", look_at, LookAsked, ()),
)

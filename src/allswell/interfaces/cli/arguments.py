"""What people type, as values: JSON from an argument, a file or standard input; moments; lines of tasks.

Anything that is wrong with it is told with its place: which argument, which line, which column.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from allswell.domain.duration import LONGEST, parse
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import LeaseOptions
from allswell.interfaces.cli.rendering import block, plain, short

if TYPE_CHECKING:
    from allswell.actions.holder import AgentInbox, Holder
    from allswell.engine.lease import Held
    from allswell.engine.watch import Watch
    from allswell.views.lease import LastWordShape, OrdersShape, RequestAnswerShape

T = TypeVar("T")


def text_of(given: str, where: str) -> str:
    """The text that an argument means: itself, `@file`, or `-` for standard input."""
    if given == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input", where)
    if not given.startswith("@"):
        return given
    name = given[1:]
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - a name that was typed, opened once
            return _decoded(file.read(), name, where)
    except (OSError, ValueError) as error:
        raise Refused("no_file", f"{where}: {name!r} cannot be read: {why_not(error)}", where=where) from None


def why_not(error: OSError | ValueError) -> str:
    """Why a file cannot be opened, in words."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _decoded(content: bytes, source: str, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        text = f"{where}: {source} is not UTF-8 text (byte {error.start})"
        raise Refused("not_text", text, where=where) from None


def json_of(given: str | None, where: str) -> object:
    """The value that an argument means; nothing given is null."""
    return None if given is None else parsed(text_of(given, where), where)


def parsed(text: str, where: str, *, line: int = 0) -> object:
    """A value from JSON text; `Refused` says where it stops being JSON. `line` is where the text begins."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise Refused("not_json", f"{where} is not JSON: {_why(text, error, line)}", where=where) from None
    return value


def _why(text: str, error: Exception, line: int) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as place:
        at = f"line {place.lineno + line}, column {place.colno}"
        hint = "; a text needs its quotes: '\"…\"'" if place.pos == 0 and text[:1].isalpha() else ""
        return f"{place.msg.lower()} at {at}{hint}"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError:
        return "a number in it has too many digits"
    return "it is not valid Unicode" if isinstance(error, UnicodeEncodeError) else str(error)


def object_of(line: str, where: str, number: int) -> dict[str, Any]:
    """The JSON object that a line is."""
    value = parsed(line, f"{where}, line {number},", line=number - 1)
    if not isinstance(value, dict):
        text = f'{where}, line {number}, is not an object such as {{"name": "…"}}'
        raise Refused("bad_line", text, where=f"line {number}")
    return value


def tasks_in(given: str, where: str) -> list[dict[str, object]]:
    """Tasks from a file: a JSON list of objects, or one object on each line."""
    text = text_of(given, where)
    if not text.lstrip().startswith("["):
        lines = enumerate(text.splitlines(), 1)
        return [object_of(line, where, number) for number, line in lines if line.strip()]
    listed = parsed(text, where)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise Refused("bad_tasks", f'{where} must be a list of objects such as {{"name": "…"}}', where=where)
    return listed


def moment(given: str, now: int, where: str, *, past: bool = False) -> int:
    """An instant from a duration counted from now, a date and time, or milliseconds since the epoch."""
    text = given.strip()
    if text.isascii() and text.isdigit() and int(text[:20]) > LONGEST:
        return int(text[:20])
    if "-" in text or "T" in text:
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            example = "'10m', '2026-01-31T08:00' or milliseconds since the epoch"
            raise Refused("bad_time", f"{where} {given!r} is not a time; write {example}", where=where) from None
    length = parse(text, where=where)
    return now - length if past else now + length


# What a holder says: about which lease, and through the socket of its attempt where it is supervised.


def spoken(context: CliContext, lease: LeaseOptions, verb: Callable[[Holder], Coroutine[Any, Any, T]]) -> T:
    """What a holder's verb answers: through the socket of its attempt, or about the lease."""
    path = context.socket
    if path is not None:
        from allswell.actions.holder import at_once, blocking

        return at_once(verb(blocking(path, lease.task, lease.token)))

    async def work(watch: Watch) -> T:
        from allswell.actions.store_holder import StoreHolder

        return await verb(StoreHolder(watch, await hold_of(context, watch, lease)))

    return context.run(work)


def inbox_work(
    context: CliContext,
    who: tuple[str | None, list[str] | None],
    asks: str,
    verb: Callable[[AgentInbox], Coroutine[Any, Any, T]],
) -> T:
    """What an agent (its name and roles) has from its inbox; `asks` is the question where nobody is named."""
    agent, roles = who
    path = context.socket
    if path is not None:
        from allswell.actions.holder import at_once, blocking

        return at_once(verb(blocking(path)))
    if not agent:
        raise Refused("no_agent", f"{asks}? give --agent NAME, or set ALLSWELL_AGENT", where="agent")
    context.for_its_agent(agent)

    async def work(watch: Watch) -> T:
        from allswell.actions.store_holder import StoreInbox

        return await verb(StoreInbox(watch, agent, roles or []))

    return context.run(work)


def in_words(told: OrdersShape) -> str:
    """The orders for people and models: one thing on a line."""
    left = "No limit." if told.remaining_ms is None else f"{short(told.remaining_ms)} left."
    lines = [f"Check-in recorded. {left}"]
    if told.stop is not None:
        lines = [f"stop now: {plain(told.stop)}"]
    for one in told.answers:
        lines.append(f"{one.question_id} was answered: {plain(one.choice)}")
        lines += [block(one.answer, "  ")] if one.answer else []
    for came in told.requests:
        lines += answer_lines(came)
    lines += [f"{plain(request)} waits for your answer: `allswell inbox`" for request in told.inbox]
    lines += [] if told.order is None else [plain(told.order)]
    return "\n".join(lines)


def answer_lines(came: RequestAnswerShape) -> list[str]:
    """What another agent has answered, and when."""
    after = short(came.answered_at - came.asked_at)
    did = "has declined" if came.declined else "has answered"
    about = f"{plain(came.agent_id)} {did} {came.request_id} ({plain(came.summary)}) after {after}:"
    return [about, block(_text(came), "  ")]


def _text(answer: RequestAnswerShape) -> str:
    import msgspec

    if answer.is_cut:
        return f"{answer.result}… (`allswell show {answer.request_id}` shows all of it)"
    value = msgspec.json.decode(msgspec.json.encode(answer.result))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def told_supervised(ended: LastWordShape) -> str:
    """What a supervisor makes of a last word."""
    from allswell.runtime.agent_socket import KEPT

    if ended.said == KEPT:
        return "the store does not answer; your report is kept and sent when the store is back; end now"
    states = {"fail": "failed, or tried again later", "release": "ready for another agent"}
    states["verifying"] = "verified when you have ended"
    return f"recorded: the task is {states.get(ended.said, ended.said)}; end now"


# Which lease a holder speaks about: named by options, or by the environment it was started in.


async def hold_of(context: CliContext, watch: Watch, lease: LeaseOptions) -> Held:
    """The lease that the options or the environment name. An agent that is not named is who has had that token."""
    from allswell.engine.lookup import find_holder, find_task

    task, token, agent = lease
    if not task:
        raise Refused("no_task", "which task? use --task ID, or set ALLSWELL_TASK", where="task")
    if token is None:
        raise Refused(
            "no_token",
            "which attempt? use --token N, as `allswell claim` printed it, or set ALLSWELL_TOKEN",
            where="token",
        )
    found = await find_task(watch.views, task)
    holder = await find_holder(watch.views, found, token)
    context.for_its_holder(found, token, holder)
    return watch.held(found, token, agent or holder or "unknown")

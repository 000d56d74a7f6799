"""What people type, as values: JSON from an argument, a file or standard input; moments; lines of tasks.

Anything that is wrong with it is told with its place: which argument, which line, which column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from allswell.domain.duration import LONGEST, parse
from allswell.errors import Refused


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
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused("no_file", f"{where}: {name!r} cannot be read: {why}", where=where) from None


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
    import json

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


def objects(text: str, where: str) -> Iterator[tuple[int, dict[str, object]]]:
    """The JSON objects of a text, one on each line, each with the number of its line; empty lines are passed over."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        value = parsed(line, f"{where}, line {number},", line=number - 1)
        if not isinstance(value, dict):
            text = f'{where}, line {number}, is not an object such as {{"name": "…"}}'
            raise Refused("bad_line", text, where=f"line {number}")
        yield number, value


def tasks_in(given: str, where: str) -> list[dict[str, object]]:
    """Tasks from a file: a JSON list of objects, or one object on each line."""
    text = text_of(given, where)
    if not text.lstrip().startswith("["):
        return [value for _, value in objects(text, where)]
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
        from datetime import datetime

        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            example = "'10m', '2026-01-31T08:00' or milliseconds since the epoch"
            raise Refused("bad_time", f"{where} {given!r} is no moment; write {example}", where=where) from None
    length = parse(text, where=where)
    return now - length if past else now + length

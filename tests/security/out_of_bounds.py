"""Values that no command may carry, made from what each may (domain/rules/bounds.py), for every door."""

# ruff: noqa: ANN401, C901, PLR0912 - a value is whatever it is, and there are many kinds of bounds

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from allswell.domain.ids import RunId, TaskId
from allswell.domain.mesh.request import check_request
from allswell.domain.rules import bounds
from allswell.domain.rules.bounds import Bound, StructBounds, parts_of
from allswell.domain.rules.command import Command, NewTask
from allswell.domain.run.lifecycle import check_flow
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.task.model import Policy

HUGE = 1 << 70
NUMBERS = (HUGE, -HUGE, 1 << 63)
PATHS = ("t_a/../../etc", "../x", "t_a/b", "r_/..", "..", "t_a\n", "/t_a", "r_a/b")
LONG = "x" * ((1 << 20) + 1)


def wrong(bound: Bound) -> Iterator[Any]:
    """Values outside of a bound."""
    match bound:
        case bounds.IntegerBound(least, most):
            yield from (least - 1, most + 1, *NUMBERS)
        case bounds.AnyInteger():
            yield from NUMBERS  # a number that no row has: it names nothing
        case bounds.JsonBound(most):  # a kind of text
            yield from ('"' + "x" * most + '"', "no JSON", "", "1e400", '1,"task":{}', "[" * 201 + "]" * 201)
        case bounds.TextBound(most):
            yield from ("x" * (most + 1), "a\0b")
        case bounds.NameBound(empty):
            yield from ("a\0b", "a\nb", "x" * 201, *(() if empty else ("", " ")))
        case bounds.SERVICE_NAME:
            yield from ("", "a\0b", "budget:day", "budget:role:build", "x" * 201)
        case bounds.BUDGET_NAME:
            yield from ("", "day", "budget:", "budget:week", "budget:role:", "api")
        case bounds.RowReference():
            yield from ("x" * 301,)
        case bounds.NEW_RUN | bounds.NEW_TASK | bounds.FileName():
            yield from (*PATHS, "", "x" * 301)
        case bounds.CheckedBound():
            raise AssertionError(f"nothing is known that is beyond {bound}")
        case bounds.FractionBound():
            yield from (-0.1, 1.1, HUGE)
        case bounds.ChoiceBound():
            yield from ("neither", 7)
        case bounds.DataBound(most):
            yield from ({"x": "y" * most}, 5)
        case bounds.ListBound(most, of):
            if most < 10_000:
                yield (right(of),) * (most + 1) if of is not None else ()
            if of is not None:
                yield from ((one,) for one in wrong(of))
        case bounds.OptionalBound(of):
            yield from wrong(of)
        case bounds.StructBounds():
            yield from wrong_parts(bound, right(bound))
        case bounds.FigureRules(kind):
            yield from wrong_figures(right(bound), kind)


def wrong_parts(parts: StructBounds, base: msgspec.Struct) -> Iterator[Any]:
    """A struct with one field out of its bounds, for each of its fields."""
    for name, bound, _ in parts.fields:
        for value in wrong(bound):
            yield msgspec.structs.replace(base, **{name: value})


def wrong_figures(base: msgspec.Struct, kind: type[msgspec.Struct]) -> Iterator[Any]:
    """A struct with rules of its own, with one field beyond what any rule allows."""
    for field in msgspec.structs.fields(kind):
        for value in beyond(field.type):
            yield msgspec.structs.replace(base, **{field.name: value})
    if isinstance(base, NewTask):
        yield from (msgspec.structs.replace(base, id=one) for one in PATHS)
        yield msgspec.structs.replace(base, services=("budget:day",))
        yield msgspec.structs.replace(base, flow=not base.flow)


def beyond(kind: Any) -> Iterator[Any]:
    """What no field of this type may hold, whatever it is for."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from beyond(get_args(kind)[0])
    elif origin in (Union, types.UnionType):
        for one in get_args(kind):
            yield from beyond(one)
    elif origin in (tuple, list):
        yield from ([one] if origin is list else (one,) for one in beyond(get_args(kind)[0]))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if all(not field.required for field in msgspec.structs.fields(kind)):
            yield from wrong_figures(kind(), kind)
    elif hasattr(kind, "__supertype__"):
        yield from beyond(kind.__supertype__)
    elif kind is int:
        yield from NUMBERS[:2]
    elif kind is float:
        yield HUGE
    elif kind is str:
        yield from ("a\0b", LONG)


def right(bound: Bound | None) -> Any:
    """A value within a bound."""
    match bound:
        case bounds.IntegerBound(least):
            return max(least, 1)
        case bounds.AnyInteger():
            return 1
        case bounds.NEW_RUN:
            return "r_a"
        case bounds.NEW_TASK:
            return "t_new"
        case bounds.BUDGET_NAME:
            return "budget:day"
        case bounds.JsonBound():
            return '{"x":[1]}'
        case bounds.FractionBound():
            return 0.5
        case bounds.ChoiceBound(values):
            return values[0]
        case bounds.DataBound():
            return {}
        case bounds.ListBound():
            return ()
        case bounds.OptionalBound():
            return None
        case bounds.StructBounds():
            return made(bound)
        case bounds.FigureRules(kind, refuse):
            if kind in (Policy, BreakerPolicy):
                return kind()
            is_flow, is_request = refuse is check_flow, refuse is check_request
            run = RunId("r_new") if is_flow else None
            return NewTask(TaskId("m_nobody.x" if is_request else "t_new"), "new", run, flow=is_flow)
        case _:
            return "x"


def made(parts: StructBounds) -> Any:
    """A struct within its bounds: defaults, and the least that it must have."""
    required = {field.name for field in msgspec.structs.fields(parts.kind) if field.required}
    return parts.kind(**{name: right(bound) for name, bound, _ in parts.fields if name in required})


def wrong_commands(kind: type[Command]) -> Iterator[tuple[str, Command]]:
    """Commands of this kind, each with one field out of its bounds, and which one that is."""
    parts = parts_of(kind)
    base = made(parts)
    for name, bound, _ in parts.fields:
        if name != "key":  # the watch signs it itself
            yield from ((name, msgspec.structs.replace(base, **{name: value})) for value in wrong(bound))


def wrong_values(kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    """For each field of what a door takes: values that nobody can mean."""
    for field in msgspec.structs.fields(kind):
        for value in beyond(field.type):
            yield field.encode_name, value

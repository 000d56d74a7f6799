"""What a command may carry: the bounds of every field, declared once and checked for every door.

Doors decode what came in and hand over a command; `check` refuses it, in words, before a row is named, locked or read.
`decide` calls it, so HTTP, MCP, the socket of an attempt and the Python API are held to the same figures, and no number
or text that a store cannot hold ever reaches one.

The checks of a command are made from its types:

-   Ids, tokens and moments have bounds by their type (`BY_TYPE`). Those of rows that exist already may have any shape
    that can be typed, so that rows made by earlier versions can still be named; those that name a *new* row are of a
    few letters only (`NEW_RUN`, `check_id`), because files are named after them (`ids.file_name`): letters,
    digits, `_` and `-`. Ids of runs and questions may have dots inside, and so do those of requests: their dot parts
    the asker's id from the request's own mark, and every version on a store finds the rows to lock by it
    (`asker_of`). No part between dots is empty, so none is `..` or hidden.
-   Enumerations, flags and nested structs follow from the type alone.
-   Every other text and number stands in `BOUNDS`. A field that is missing there is a `Bug` at import: a new field
  needs a bound.

Which fields a caller may set at all is a question of rights (access/rights.py).

A claim is checked in 2 µs and a completion in 1 µs, of some 550 µs that both together take on SQLite: over HTTP that is
lost among all else (bench/http_calls.py).
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from allswell.domain.agents.cost import MOST as COST_MOST
from allswell.domain.agents.cost import TOKENS_MOST, Expense
from allswell.domain.agents.denied import CALLS_MOST, Denied, DeniedCall
from allswell.domain.agents.human_session import HumanSession
from allswell.domain.agents.quota import Quota
from allswell.domain.agents.status import AgentSlot, Presence, Survivor, Survivors
from allswell.domain.duration import LONGEST
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token, is_file_name
from allswell.domain.lease.claim import LENGTH_MIN
from allswell.domain.lease.cost import ReachBudget
from allswell.domain.lease.holder import NOTE_MAX, QUESTION_MAX
from allswell.domain.lease.model import check_progress
from allswell.domain.lease.suspension import NoteRefusal, NoteRepeats, Suspend
from allswell.domain.lease.verification import SAID_MAX, WHY_MAX
from allswell.domain.mesh.request import RETRIES_MAX, check_delegated, check_request
from allswell.domain.mesh.routing import ADDRESS_MAX
from allswell.domain.question import Option
from allswell.domain.rules.command import (
    AcquireFlow,
    Admit,
    Answer,
    Ask,
    AskForHelp,
    Cancel,
    CheckIn,
    CheckInAgain,
    Claim,
    Command,
    Complete,
    Decline,
    Delegate,
    EndIdle,
    EndRun,
    LeaseCommand,
    MoveOn,
    NewTask,
    NoteListed,
    OpenRun,
    Park,
    RecordReceipt,
    RecordStep,
    Release,
    Respond,
    SendRequest,
    Submit,
    Unpark,
    Verified,
)
from allswell.domain.rules.event import Event
from allswell.domain.run.lifecycle import REASON_MAX, check_flow, check_run_id
from allswell.domain.service.breaker import BreakerPolicy, Permit, check_breaker
from allswell.domain.service.retry import Failure
from allswell.domain.task.answer import SUBTASKS_MAX, TEXT_MAX, DismissQuestion, DismissTask
from allswell.domain.task.model import Policy, RequestSpec
from allswell.domain.task.resubmit import MOST as RENEWALS_MAX
from allswell.domain.task.resubmit import Resubmit, ResubmittedTask
from allswell.domain.task.submit import (
    LATEST,
    NEEDS_MAX,
    PAYLOAD_MAX,
    check_id,
    check_name,
    check_service,
    check_task,
    check_text,
)
from allswell.domain.values import check_json
from allswell.errors import Bug, Refused

LOOKED_AT_MAX = 100_000
"""What one look shows at most."""
REFERENCE_MAX = 300
"""Characters of an id that names a row; a question's contains its service's name."""
TASKS_MAX = 10_000
"""Tasks of one submission."""
LISTED_MAX = 1_000
"""Members of a list that has no bound of its own."""
OPTIONS_MAX = 50
EVENT_MAX = 65_536
"""Bytes of what an event carries, as JSON."""
COUNT_MAX = 1 << 53
"""What a program that reads JSON can still count exactly."""
TOKEN_MAX = (1 << 63) - 1
_BUDGETS = re.compile(r"budget:(day|(role|run):.+)")


# --- kinds of bounds --------------------------------------------------------------------------------------------------


class IntegerBound(msgspec.Struct, frozen=True):
    """A whole number from `least` to `most`."""

    least: int
    most: int
    code: str = "bad_value"
    unit: str = "a whole number"

    def check(self, value: object, where: str) -> None:
        """Refuse anything else; True and False are no numbers."""
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            text = f"{where} must be {self.unit}, from {self.least} to {self.most}, not {_shown(value)}"
            raise Refused(self.code, text, where=where)


class AnyInteger(msgspec.Struct, frozen=True):
    """A whole number, whatever it is: the rule answers for one that names nothing."""

    def check(self, value: object, where: str) -> None:
        """Refuse any other value."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused("bad_value", f"{where} must be a whole number, not {_shown(value)}", where=where)


class TextBound(msgspec.Struct, frozen=True):
    """Text of at most so many bytes that every store can hold."""

    most: int

    def check(self, value: object, where: str) -> None:
        """Refuse what is larger, or no such text."""
        if not isinstance(value, str):
            raise Refused("bad_value", f"{where} must be text, not {_shown(value)}", where=where)
        check_text(value, where, self.most)


class JsonBound(TextBound, frozen=True):
    """One value of JSON, as text of at most so many bytes."""

    def check(self, value: object, where: str) -> None:
        """Refuse what is larger, or no JSON that every reader can take."""
        super().check(value, where)
        check_json(str(value), where)


class NameBound(msgspec.Struct, frozen=True):
    """A name: short, and without anything that cannot be shown."""

    empty: bool = False
    """Whether it may be left empty."""
    called: str = ""
    """What people call it, where that is not the field's own name."""

    def check(self, value: object, where: str) -> None:
        """Refuse what is no name."""
        where = self.called or where
        if not isinstance(value, str):
            raise Refused("bad_value", f"{where} must be text, not {_shown(value)}", where=where)
        if value or not self.empty:
            check_name(value, where)


class CheckedBound(msgspec.Struct, frozen=True):
    """Text of a bound, which a rule of its noun looks at besides: a service, a new run, a new task, a budget."""

    of: NameBound | RowReference
    refuse: Callable[[Any, str], object]

    def check(self, value: object, where: str) -> None:
        """Refuse what is out of its bounds, or what the rule refuses."""
        self.of.check(value, where)
        self.refuse(value, where)


class RowReference(msgspec.Struct, frozen=True):
    """The name of a row that exists, whichever version has made it; what no row can be called names nothing."""

    def check(self, value: object, where: str) -> None:
        """Refuse what is no text, or longer than any name."""
        if not isinstance(value, str) or len(value) > REFERENCE_MAX:
            text = f"{where} must be an id of at most {REFERENCE_MAX} characters, not {_shown(value)}"
            raise Refused("bad_id", text, where=where)


class FileName(msgspec.Struct, frozen=True):
    """What a file is called."""

    def check(self, value: object, where: str) -> None:
        """Refuse what could lead elsewhere as part of a path."""
        if not isinstance(value, str) or len(value) > REFERENCE_MAX or not is_file_name(value):
            text = f"{where} must be the name of a file: letters, digits, '_', '-', and dots between them"
            raise Refused("bad_id", f"{text}, not {_shown(value)}", where=where)


class FractionBound(msgspec.Struct, frozen=True):
    """A part of the whole, from 0 to 1."""

    def check(self, value: object, where: str) -> None:
        """Refuse any other value."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Refused("bad_progress", f"{where} is a share from 0 to 1, not {_shown(value)}", where=where)
        check_progress(value)


class FigureRules(msgspec.Struct, frozen=True):
    """A struct of figures with rules of its own, which say what is wrong with them."""

    kind: type[msgspec.Struct]
    refuse: Callable[[Any], object]

    def check(self, value: object, where: str) -> None:
        """Refuse figures that cannot be, alone or together."""
        if type(value) is not self.kind:
            raise Refused("bad_value", f"{where} must be a {self.kind.__name__}, not {_shown(value)}", where=where)
        try:
            self.refuse(value)
        except TypeError as error:  # a figure that is no number at all
            raise Refused("bad_policy", f"{where}: {error}", where=where) from None


class DataBound(msgspec.Struct, frozen=True):
    """What an event carries: names and plain values, bounded as a whole."""

    most: int

    def check(self, value: object, where: str) -> None:
        """Refuse what is larger, or cannot be written down."""
        try:
            size = len(msgspec.json.encode(value)) if isinstance(value, Mapping) else -1
        except (TypeError, ValueError, OverflowError, RecursionError):
            size = -1
        if not 0 <= size <= self.most:
            raise Refused("bad_value", f"{where} must be JSON of at most {self.most} bytes", where=where)


class ListBound(msgspec.Struct, frozen=True):
    """A list of at most so many members, each with a bound of its own."""

    most: int
    of: Bound | None = None
    """None: as their type has it."""
    code: str = "too_many"

    def check(self, value: object, where: str) -> None:
        """Refuse a list that is too long, or none, and whatever is wrong with a member."""
        if not isinstance(value, tuple | list):
            raise Refused("bad_value", f"{where} must be a list, not {_shown(value)}", where=where)
        if len(value) > self.most:
            raise Refused(self.code, f"{where} has {len(value)} members; at most {self.most} are allowed", where=where)
        if self.of is None:
            raise Bug(f"the members of {where} have no bound")
        for place, member in enumerate(value):
            self.of.check(member, f"{where}[{place}]")


class ChoiceBound(msgspec.Struct, frozen=True):
    """One of a few values: of an enumeration, or True and False."""

    values: tuple[object, ...]

    def check(self, value: object, where: str) -> None:
        """Refuse any other value."""
        if not any(value is one or (type(value) is type(one) and value == one) for one in self.values):
            known = ", ".join(map(str, self.values))
            raise Refused("bad_value", f"{where} must be one of {known}, not {_shown(value)}", where=where)


class OptionalBound(msgspec.Struct, frozen=True):
    """A value, or none."""

    of: Bound

    def check(self, value: object, where: str) -> None:
        """Refuse what is neither."""
        if value is not None:
            self.of.check(value, where)


class StructBounds(msgspec.Struct, frozen=True):
    """A struct, field by field; what stands at its default is as it should be."""

    kind: type[msgspec.Struct]
    fields: tuple[tuple[str, Bound, object], ...]

    def check(self, value: object, where: str) -> None:
        """Refuse the first field that is out of its bounds."""
        if type(value) is not self.kind:
            raise Refused("bad_value", f"{where} must be a {self.kind.__name__}, not {_shown(value)}", where=where)
        inside = f"{where}." if where else ""
        for name, bound, default in self.fields:
            part = getattr(value, name)
            if part is not default:
                bound.check(part, inside + name)


Bound = (
    IntegerBound
    | TextBound
    | NameBound
    | CheckedBound
    | RowReference
    | AnyInteger
    | FileName
    | FractionBound
    | FigureRules
    | DataBound
    | ListBound
    | ChoiceBound
    | OptionalBound
    | StructBounds
)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 60


def _check_budget(name: str, where: str) -> None:
    if not _BUDGETS.fullmatch(name):
        text = f"{where} must be budget:day, budget:role:ROLE or budget:run:RUN, not {_shown(name)}"
        raise Refused("bad_value", text, where=where)


# --- the bounds -------------------------------------------------------------------------------------------------------

_NAME, _NAME_OR_NONE, _REFERENCE = NameBound(), NameBound(empty=True), RowReference()
SERVICE_NAME = CheckedBound(_NAME, check_service)
NEW_RUN = CheckedBound(_REFERENCE, lambda id_, _: check_run_id(id_))
NEW_TASK = CheckedBound(_REFERENCE, lambda id_, _: check_id(id_))
BUDGET_NAME = CheckedBound(_NAME, _check_budget)
_LENGTH = IntegerBound(0, LONGEST, "bad_duration", "a length of time in milliseconds")
_POSITIVE = IntegerBound(1, LONGEST, "bad_duration", "a positive timeout in milliseconds")
_LEASE = IntegerBound(LENGTH_MIN, LONGEST, "bad_lease", "a length of time in milliseconds")
_MONEY = IntegerBound(0, COST_MOST, "bad_cost", "an amount in millionths of a dollar")
_TOKENS = IntegerBound(0, TOKENS_MOST, "bad_cost", "a number of tokens")
_NOTE, _JSON = TextBound(NOTE_MAX), JsonBound(PAYLOAD_MAX)
_LABEL = TextBound(EVENT_MAX)
_COUNT = IntegerBound(0, COUNT_MAX)
_TASK = FigureRules(NewTask, check_task)
BY_TYPE: Mapping[object, Bound] = {
    TaskId: _REFERENCE,
    RunId: _REFERENCE,
    QuestionId: _REFERENCE,
    CommandId: NameBound(empty=True, called="command"),
    AgentId: _NAME,
    Token: IntegerBound(0, TOKEN_MAX, "bad_token"),
    Millis: IntegerBound(0, LATEST, "bad_time", "milliseconds since 1970"),
    bool: ChoiceBound((False, True)),
    NewTask: _TASK,
    Policy: FigureRules(Policy, Policy.validated),
    BreakerPolicy: FigureRules(BreakerPolicy, check_breaker),
}
BOUNDS: Mapping[type[msgspec.Struct], Mapping[str, Bound]] = {
    Command: {"key": TextBound(REFERENCE_MAX)},
    Submit: {"tasks": ListBound(TASKS_MAX)},
    Claim: {
        "roles": ListBound(LISTED_MAX, _NAME_OR_NONE),
        "count": AnyInteger(),
        "length": AnyInteger(),
        "outside": ListBound(COUNT_MAX),
        "asked_as": ListBound(LISTED_MAX, _NAME),
    },
    CheckIn: {"token": AnyInteger(), "agent": _REFERENCE, "note": _NOTE, "progress": FractionBound()},
    LeaseCommand: {"token": AnyInteger(), "agent": _REFERENCE},
    CheckInAgain: {"note": _NOTE, "progress": FractionBound()},
    Complete: {"result": _JSON, "warning": _NOTE},
    Verified: {
        "why": TextBound(WHY_MAX),
        "said": TextBound(SAID_MAX),
        "elapsed": _LENGTH,
        "by": _NAME_OR_NONE,
        "result": _JSON,
        "warning": _NOTE,
    },
    Denied: {"calls": ListBound(CALLS_MOST), "count": IntegerBound(0, COUNT_MAX), "no_allow": _NOTE, "work": _NOTE},
    DeniedCall: {"tool": _NOTE, "text": _NOTE, "input": _NOTE, "barred": _NOTE, "id": _NAME_OR_NONE},
    Failure: {
        "message": _NOTE,
        "retry_after": _LENGTH,
        "services": ListBound(LISTED_MAX, SERVICE_NAME),
        "status": IntegerBound(0, 999),
    },
    Release: {"reason": _NOTE, "delay": _LENGTH},
    Suspend: {"by": _NAME, "ago": _LENGTH},
    NoteRefusal: {"words": _NAME_OR_NONE},
    NoteRepeats: {"words": _LABEL},
    EndIdle: {"idle": _LENGTH, "said": _NOTE, "repeats": _NOTE},
    RecordReceipt: {"receipt": FileName(), "status": _NAME, "path": _NOTE},
    Ask: {"text": TextBound(QUESTION_MAX), "options": ListBound(OPTIONS_MAX), "result": _JSON},
    Option: {"key": _NAME, "label": _NAME},
    Delegate: {"timeout": _POSITIVE, "request": FigureRules(NewTask, check_delegated)},
    SendRequest: {"request": FigureRules(NewTask, check_request)},
    RequestSpec: {
        "kind": _NAME,
        "to": TextBound(ADDRESS_MAX),
        "timeout": _LENGTH,
        "retries": IntegerBound(0, RETRIES_MAX, "bad_retries"),
        "default": _LENGTH,
        "wait": _LENGTH,
        "again": _LENGTH,
        "kept": _LENGTH,
        "role": _NAME_OR_NONE,
        "escalate": _LENGTH,
        "remind": _LENGTH,
        "asked": ListBound(LISTED_MAX, _NAME),
        "passed_over": ListBound(LISTED_MAX, _NAME),
    },
    MoveOn: {
        "roles": ListBound(LISTED_MAX, _NAME_OR_NONE),
        "length": _LEASE,
        "outside": ListBound(COUNT_MAX),
    },
    Respond: {
        "roles": ListBound(LISTED_MAX, _NAME_OR_NONE),
        "asked_as": ListBound(LISTED_MAX, _NAME),
        "result": _JSON,
    },
    Decline: {
        "roles": ListBound(LISTED_MAX, _NAME_OR_NONE),
        "asked_as": ListBound(LISTED_MAX, _NAME),
        "reason": TextBound(REASON_MAX),
    },
    NoteListed: {"requests": ListBound(LISTED_MAX)},
    Cancel: {"reason": TextBound(TEXT_MAX)},
    Answer: {
        "option": TextBound(TEXT_MAX),
        "text": TextBound(TEXT_MAX),
        "subtasks": ListBound(SUBTASKS_MAX, code="no_subtasks"),
        "timeout": _LENGTH,
        "by": _NAME_OR_NONE,
        "max_cost": _MONEY,
        "max_tokens": _TOKENS,
    },
    OpenRun: {"run": NEW_RUN, "name": _NAME, "timeout": _POSITIVE},
    EndRun: {"reason": TextBound(REASON_MAX)},
    AcquireFlow: {"flow": FigureRules(NewTask, check_flow), "length": _LEASE},
    RecordStep: {"step": NEW_TASK, "name": _NAME, "payload": _JSON, "result": _JSON, "elapsed": _LENGTH},
    Admit: {"service": SERVICE_NAME},
    Permit: {"service": SERVICE_NAME, "generation": IntegerBound(0, COUNT_MAX)},
    Park: {"service": SERVICE_NAME, "delay": _LENGTH},
    Unpark: {"service": SERVICE_NAME, "by": _NAME},
    AskForHelp: {"service": SERVICE_NAME, "reason": _NOTE, "message": _NOTE},
    Event: {"kind": _NAME, "data": DataBound(EVENT_MAX)},
    Expense: {"cost": _MONEY, "given": _TOKENS, "written": _TOKENS},
    ReachBudget: {
        "budget": BUDGET_NAME,
        "spent": IntegerBound(0, TOKEN_MAX, "bad_cost"),
        "limit": IntegerBound(1, TOKEN_MAX, "bad_cost"),
        "name": _NAME_OR_NONE,
    },
    Quota: dict.fromkeys(
        ("requests", "questions", "bytes", "key_requests", "key_questions", "key_bytes"), IntegerBound(0, COUNT_MAX)
    ),
    ResubmittedTask: {
        "id": NEW_TASK,
        "needs": ListBound(NEEDS_MAX, ListBound(NEEDS_MAX, _REFERENCE)),
        "role": _NAME_OR_NONE,
        "services": ListBound(LISTED_MAX, SERVICE_NAME),
    },
    Resubmit: {"renewals": ListBound(RENEWALS_MAX, code="too_many_tasks"), "by": _NAME_OR_NONE},
    DismissQuestion: {"by": _NAME},
    DismissTask: {"by": _NAME},
    Presence: {
        "name": _NAME,
        "marker": _NOTE,
        "host": _NOTE,
        "pid": _COUNT,
        "boot_id": _NOTE,
        "pid_namespace": _NOTE,
        "pid_start": _COUNT,
        "pace": _POSITIVE,
        "posts": ListBound(TASKS_MAX),
        "dismissed_by": _LABEL,
    },
    AgentSlot: {
        "agent": _NAME,
        "holder": _NAME,
        "kind": _NOTE,
        "role": _NAME_OR_NONE,
        "task": _REFERENCE,
        "name": _LABEL,
        "token": _COUNT,
        "condition": _LABEL,
        "evidence": _LABEL,
        "waits": _LABEL,
        "account": _LABEL,
        "remark": _LABEL,
    },
    Survivors: {
        "holder": _NAME,
        "task": _REFERENCE,
        "name": _LABEL,
        "attempt": _COUNT,
        "host": _NOTE,
        "boot_id": _NOTE,
        "pid_namespace": _NOTE,
        "processes": ListBound(TASKS_MAX),
        "folder": _LABEL,
        "freed_by": _LABEL,
    },
    HumanSession: {
        "client": _NAME,
        "session": _NAME,
        "folder": _LABEL,
        "host": _NOTE,
        "pid": _COUNT,
        "boot_id": _NOTE,
        "pid_namespace": _NOTE,
        "pid_start": _COUNT,
        "waits": _LABEL,
        "kind": _LABEL,
        "said_at": _COUNT,
        "told_at": _COUNT,
    },
    Survivor: {"pid": _COUNT, "start": _COUNT, "command": _LABEL},
}
"""What texts, numbers and lists may hold, by the struct that has them."""


# --- made from the types ----------------------------------------------------------------------------------------------


def _parts(kind: type[msgspec.Struct]) -> StructBounds:
    declared: dict[str, Bound] = {}
    for base in reversed(kind.__mro__):
        declared |= BOUNDS.get(base, {})
    fields = []
    for field in msgspec.structs.fields(kind):
        bound = _bound(field.type, declared.get(field.name), f"{kind.__name__}.{field.name}")
        default = field.default if field.default is not msgspec.NODEFAULT else _NO_DEFAULT
        fields.append((field.name, bound, default))
    return StructBounds(kind, tuple(fields))


def _bound(kind: Any, declared: Bound | None, where: str) -> Bound:  # noqa: ANN401 - a type is whatever it is
    """The bound of a field, from its type and what is declared for it."""
    if get_origin(kind) in (Union, types.UnionType):
        inner = [one for one in get_args(kind) if one is not type(None)]
        if len(inner) != 1:
            raise Bug(f"{where} may be several things, and no bound says which")
        return OptionalBound(_bound(inner[0], declared, where))
    if get_origin(kind) is tuple:
        members = declared if isinstance(declared, ListBound) else ListBound(LISTED_MAX, declared)
        return (
            members
            if members.of is not None
            else ListBound(members.most, _bound(get_args(kind)[0], None, where), members.code)
        )
    if declared is not None:
        return declared
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if get_origin(kind) is Literal:
        return ChoiceBound(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ChoiceBound(tuple(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _parts(kind)
    raise Bug(f"{where} has no bound: declare what it may hold (domain/rules/bounds.py)")


_NO_DEFAULT = object()
_CHECKED: dict[type[msgspec.Struct], StructBounds] = {}


def parts_of(kind: type[msgspec.Struct]) -> StructBounds:
    """The bounds of a command, or of a word that a caller keeps in the store, field by field."""
    parts = _CHECKED.get(kind)
    if parts is None:
        parts = _CHECKED[kind] = _parts(kind)
    return parts


def check(command: Command | Presence | Survivors | HumanSession) -> None:
    """Refuse a command with a field that is out of its bounds, in words; nothing was done by then."""
    parts_of(type(command)).check(command, "")


def check_look(value: object, where: str) -> None:
    """Refuse what no store can look for: numbers and texts that it cannot hold, and pages without an end."""
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, int):
        (_PAGE if where == "limit" else _FIGURE).check(int(value), where)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            check_look(getattr(value, name), name)
    elif isinstance(value, tuple | list):
        for member in value:
            check_look(member, where)


_PAGE, _FIGURE = IntegerBound(0, LOOKED_AT_MAX), IntegerBound(-TOKEN_MAX, TOKEN_MAX)

"""Which command answers with what, and the JSON Schema of it: for the reference and the tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from allswell.flows.graph import FlowGraph
from allswell.views.agent import AgentsShape, LedgerShape, SessionShape, TrackingShape
from allswell.views.attempt import RanShape, VerifiedShape
from allswell.views.checkup import CheckupShape
from allswell.views.commands import (
    CompletionShape,
    DrillShape,
    InitShape,
    PluginShape,
    SaidShape,
    TrustedShape,
    VersionShape,
)
from allswell.views.delivery import (
    AlertsTestedShape,
    CommShape,
    DeliveriesShape,
    EventShape,
    RevisedShape,
    SetUpShape,
    SinkForgottenShape,
    SinksCheckedShape,
    SinksShape,
)
from allswell.views.detail import ShownQuestionShape, ShownReceiptShape, ShownRunShape, ShownTaskShape
from allswell.views.explanation import ExplanationShape
from allswell.views.fields import ErrorShape
from allswell.views.flow import FlowRanShape, JoinedShape, OfferShape, PictureShape
from allswell.views.lease import (
    ClaimShape,
    ClaimsShape,
    InboxShape,
    LastWordShape,
    NoClaimShape,
    OrdersShape,
    RequestedShape,
    RespondedShape,
)
from allswell.views.log import LogShape
from allswell.views.question import DecidedShape, QuestionShape, QuestionsShape
from allswell.views.receipt import DiffShape, ReceiptsShape, RecoverShape, SurvivorsShape
from allswell.views.run import BuildShape, RunsShape
from allswell.views.settings import (
    CheckedShape,
    KeyShape,
    KeysShape,
    LinksRevokedShape,
    LoginLinkShape,
    NewKeyShape,
    SettingsShape,
)
from allswell.views.status import BoardShape, StatusShape, UnparkedShape
from allswell.views.task import (
    CancelledShape,
    DismissedShape,
    DismissedSupervisorShape,
    RetriedShape,
    SubmittedManyShape,
    SubmittedShape,
    TasksShape,
)
from allswell.views.worker import QueuesShape, WorkerSetupShape

ALONE = "allswell"
"""Stands for the command line without a command."""


class CommandAnswer(NamedTuple):
    """What a command may answer with; `lines` where it is a stream, each line one of them."""

    shapes: tuple[type[Struct], ...]
    lines: bool = False


ANSWERS: Mapping[str, CommandAnswer] = {
    ALONE: CommandAnswer((StatusShape, VersionShape)),
    "agents": CommandAnswer((AgentsShape, LedgerShape)),
    "alerts test": CommandAnswer((AlertsTestedShape,)),
    "audit-agent": CommandAnswer((SaidShape,), lines=True),
    "build-agent": CommandAnswer((SaidShape,), lines=True),
    "answer": CommandAnswer((DecidedShape,)),
    "ask": CommandAnswer((QuestionShape,)),
    "session": CommandAnswer((SessionShape,)),
    "cancel": CommandAnswer((CancelledShape,)),
    "unpark": CommandAnswer((UnparkedShape,)),
    "check": CommandAnswer((CheckedShape,)),
    "checkin": CommandAnswer((OrdersShape,)),
    "claim": CommandAnswer((ClaimShape, ClaimsShape, NoClaimShape)),
    "comms": CommandAnswer((CommShape,), lines=True),
    "completion": CommandAnswer((CompletionShape,)),
    "config": CommandAnswer((SettingsShape,)),
    "coordinate": CommandAnswer((SaidShape, BuildShape), lines=True),
    "decline": CommandAnswer((RespondedShape,)),
    "deliveries": CommandAnswer((DeliveriesShape,)),
    "deliveries drop": CommandAnswer((RevisedShape,)),
    "deliveries retry": CommandAnswer((RevisedShape,)),
    "diff": CommandAnswer((DiffShape,)),
    "dismiss": CommandAnswer((DismissedShape, DismissedSupervisorShape, SurvivorsShape)),
    "doctor": CommandAnswer((CheckupShape,)),
    "done": CommandAnswer((LastWordShape, VerifiedShape)),
    "drill": CommandAnswer((DrillShape,)),
    "events": CommandAnswer((EventShape,), lines=True),
    "fail": CommandAnswer((LastWordShape,)),
    "graph": CommandAnswer((FlowGraph, PictureShape)),
    "init": CommandAnswer((InitShape, PluginShape)),
    "trust": CommandAnswer((TrustedShape,)),
    "logs": CommandAnswer((LogShape,), lines=True),
    "key create": CommandAnswer((NewKeyShape,)),
    "key link": CommandAnswer((LoginLinkShape,)),
    "key revoke-links": CommandAnswer((LinksRevokedShape,)),
    "key list": CommandAnswer((KeysShape,)),
    "key revoke": CommandAnswer((KeyShape,)),
    "inbox": CommandAnswer((InboxShape,)),
    "questions": CommandAnswer((QuestionsShape,)),
    "receipts": CommandAnswer((ReceiptsShape,)),
    "recover": CommandAnswer((RecoverShape,)),
    "release": CommandAnswer((LastWordShape,)),
    "request": CommandAnswer((RequestedShape,)),
    "respond": CommandAnswer((RespondedShape,)),
    "resume": CommandAnswer((FlowRanShape, OfferShape)),
    "retry": CommandAnswer((RetriedShape,)),
    "run": CommandAnswer((RanShape, FlowRanShape)),
    "runs": CommandAnswer((RunsShape,)),
    "serve": CommandAnswer((SaidShape,), lines=True),
    "show": CommandAnswer((ShownTaskShape, ShownRunShape, ShownQuestionShape, ShownReceiptShape, RequestedShape)),
    "sinks": CommandAnswer((SinksShape,)),
    "sinks check": CommandAnswer((SinksCheckedShape,)),
    "sinks setup": CommandAnswer((SetUpShape,)),
    "sinks forget": CommandAnswer((SinkForgottenShape,)),
    "sinks run": CommandAnswer((SaidShape,), lines=True),
    "submit": CommandAnswer((SubmittedShape, SubmittedManyShape)),
    "tasks": CommandAnswer((TasksShape,)),
    "tracking": CommandAnswer((TrackingShape,)),
    "up": CommandAnswer((SaidShape,), lines=True),
    "verify": CommandAnswer((VerifiedShape,)),
    "watch": CommandAnswer((BoardShape,), lines=True),
    "why": CommandAnswer((ExplanationShape,)),
    "work": CommandAnswer((SaidShape, JoinedShape), lines=True),
    "worker": CommandAnswer((SaidShape,), lines=True),
    "worker setup": CommandAnswer((WorkerSetupShape,)),
    "worker status": CommandAnswer((QueuesShape,)),
}


# JSON Schemas (2020-12) of the shapes, made from the Structs themselves.

_SUFFIX = re.compile(r"(?<=[A-Za-z])Shape(?=\")")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def name_of(shape: type[msgspec.Struct]) -> str:
    """What a shape is called in the schema."""
    return shape.__name__.removesuffix("Shape")


def schema_of(answers: Mapping[str, tuple[type[msgspec.Struct], ...]]) -> dict[str, object]:
    """One document: every shape under `$defs`, and for each answer which of them it can be, under `properties`."""
    used: set[type[msgspec.Struct]] = {ErrorShape}
    used.update(*answers.values())
    every = sorted(used, key=name_of)
    refs, found = msgspec.json.schema_components(every, ref_template="#/$defs/{name}")
    of = dict(zip(every, refs, strict=True))
    named: dict[str, object] = {}
    for name, shapes in sorted(answers.items()):
        can_be: tuple[type[msgspec.Struct], ...] = (*shapes, ErrorShape)
        named[name] = {"anyOf": [of[shape] for shape in can_be]}
    document = {
        "$schema": DIALECT,
        "title": "What Allswell prints with --json",
        "description": "What a command answers stands under its name in `properties`; `$defs` has every shape.",
        "type": "object",
        "properties": named,
        "$defs": dict(sorted(found.items())),
    }
    made: dict[str, object] = msgspec.json.decode(_SUFFIX.sub("", msgspec.json.encode(document).decode()))
    return made

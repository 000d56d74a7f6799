"""Which command answers with what: the shapes of every `--json`, for the reference and the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from allswell.doors.shapes.board import BoardShape
from allswell.doors.shapes.build import BuildShape
from allswell.doors.shapes.cancelled import CancelledShape
from allswell.doors.shapes.checkup import CheckupShape
from allswell.doors.shapes.claim import ClaimShape, ClaimsShape, NoClaimShape
from allswell.doors.shapes.comm import CommShape
from allswell.doors.shapes.completion import CompletionShape
from allswell.doors.shapes.crew import AgentsShape
from allswell.doors.shapes.delivery import DeliveriesShape, RevisedShape
from allswell.doors.shapes.diff import DiffShape
from allswell.doors.shapes.dismissed import DismissedShape
from allswell.doors.shapes.drill import DrillShape
from allswell.doors.shapes.event import EventShape
from allswell.doors.shapes.explanation import ExplanationShape
from allswell.doors.shapes.first_file import InitShape
from allswell.doors.shapes.flow_end import FlowRanShape, JoinedShape, OfferShape
from allswell.doors.shapes.graph import GraphShape, PictureShape
from allswell.doors.shapes.inbox import InboxShape, RespondedShape
from allswell.doors.shapes.key import KeyShape, KeysShape, LoginLinkShape, NewKeyShape
from allswell.doors.shapes.ledger import LedgerShape
from allswell.doors.shapes.log import LogShape
from allswell.doors.shapes.misfit import CheckedShape
from allswell.doors.shapes.night import NightShape
from allswell.doors.shapes.orders import LastWordShape, OrdersShape
from allswell.doors.shapes.question import DecidedShape, QuestionShape, QuestionsShape
from allswell.doors.shapes.ran import RanShape
from allswell.doors.shapes.receipt import ReceiptsShape
from allswell.doors.shapes.request import RequestedShape
from allswell.doors.shapes.retried import RetriedShape
from allswell.doors.shapes.run import RunsShape
from allswell.doors.shapes.said import SaidShape
from allswell.doors.shapes.setting import SettingsShape
from allswell.doors.shapes.shown import ShownQuestionShape, ShownReceiptShape, ShownRunShape, ShownTaskShape
from allswell.doors.shapes.sink import (
    AlertsTestedShape,
    SetUpShape,
    SinkForgottenShape,
    SinksCheckedShape,
    SinksShape,
)
from allswell.doors.shapes.status import StatusShape
from allswell.doors.shapes.submitted import SubmittedManyShape, SubmittedShape
from allswell.doors.shapes.task import TasksShape
from allswell.doors.shapes.tracking import TrackingShape
from allswell.doors.shapes.verification import VerifiedShape
from allswell.doors.shapes.version import VersionShape
from allswell.doors.shapes.work import RecoverShape
from allswell.doors.shapes.worker import QueuesShape, WorkerSetupShape

ALONE = "allswell"
"""Stands for the command line without a command."""


class Answer(NamedTuple):
    """What a command may answer with; `lines` where it is a stream, each line one of them."""

    shapes: tuple[type[Struct], ...]
    lines: bool = False


ANSWERS: Mapping[str, Answer] = {
    ALONE: Answer((StatusShape, VersionShape)),
    "agents": Answer((AgentsShape, LedgerShape)),
    "alerts test": Answer((AlertsTestedShape,)),
    "audit-agent": Answer((SaidShape,), lines=True),
    "build-agent": Answer((SaidShape,), lines=True),
    "answer": Answer((DecidedShape,)),
    "ask": Answer((QuestionShape,)),
    "cancel": Answer((CancelledShape,)),
    "check": Answer((CheckedShape,)),
    "checkin": Answer((OrdersShape,)),
    "claim": Answer((ClaimShape, ClaimsShape, NoClaimShape)),
    "comms": Answer((CommShape,), lines=True),
    "completion": Answer((CompletionShape,)),
    "config": Answer((SettingsShape,)),
    "coordinate": Answer((SaidShape, BuildShape), lines=True),
    "demo": Answer((NightShape,)),
    "deliveries": Answer((DeliveriesShape,)),
    "deliveries drop": Answer((RevisedShape,)),
    "deliveries retry": Answer((RevisedShape,)),
    "diff": Answer((DiffShape,)),
    "dismiss": Answer((DismissedShape,)),
    "doctor": Answer((CheckupShape,)),
    "done": Answer((LastWordShape, VerifiedShape)),
    "drill": Answer((DrillShape,)),
    "events": Answer((EventShape,), lines=True),
    "fail": Answer((LastWordShape,)),
    "graph": Answer((GraphShape, PictureShape)),
    "init": Answer((InitShape,)),
    "logs": Answer((LogShape,), lines=True),
    "key create": Answer((NewKeyShape,)),
    "key link": Answer((LoginLinkShape,)),
    "key list": Answer((KeysShape,)),
    "key revoke": Answer((KeyShape,)),
    "inbox": Answer((InboxShape,)),
    "questions": Answer((QuestionsShape,)),
    "receipts": Answer((ReceiptsShape,)),
    "recover": Answer((RecoverShape,)),
    "release": Answer((LastWordShape,)),
    "request": Answer((RequestedShape,)),
    "respond": Answer((RespondedShape,)),
    "resume": Answer((FlowRanShape, OfferShape)),
    "retry": Answer((RetriedShape,)),
    "run": Answer((RanShape, FlowRanShape)),
    "runs": Answer((RunsShape,)),
    "serve": Answer((SaidShape,), lines=True),
    "show": Answer((ShownTaskShape, ShownRunShape, ShownQuestionShape, ShownReceiptShape)),
    "sinks": Answer((SinksShape,)),
    "sinks check": Answer((SinksCheckedShape,)),
    "sinks setup": Answer((SetUpShape,)),
    "sinks forget": Answer((SinkForgottenShape,)),
    "sinks run": Answer((SaidShape,), lines=True),
    "submit": Answer((SubmittedShape, SubmittedManyShape)),
    "tasks": Answer((TasksShape,)),
    "tracking": Answer((TrackingShape,)),
    "up": Answer((SaidShape,), lines=True),
    "verify": Answer((VerifiedShape,)),
    "watch": Answer((BoardShape,), lines=True),
    "why": Answer((ExplanationShape,)),
    "work": Answer((SaidShape, JoinedShape), lines=True),
    "worker": Answer((SaidShape,), lines=True),
    "worker setup": Answer((WorkerSetupShape,)),
    "worker status": Answer((QueuesShape,)),
}

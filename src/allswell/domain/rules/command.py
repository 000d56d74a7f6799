"""Commands: what callers ask for, as values. Doors make them, the engine carries them, the core decides them.

What happens by itself is decided the same way: those commands stand with their rules, in lease/expiry.py,
run/lifecycle.py and task/fanout.py.

Every command has an id of its caller's. The id lives in the row the command made (the task, the lease, the end of the
attempt, the answer), so a repeated command is recognised and answered as the first time.
Check-ins have none: repeating one is harmless. Of a service's commands the last one that changed its row is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

import msgspec

from allswell.domain.agents.denied import Denied
from allswell.domain.agents.quota import Quota
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.question import Option
from allswell.domain.rules.event import Event
from allswell.domain.service.breaker import BreakerPolicy, CallOutcome, Permit
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import DEFAULT, CarriedHistory, Policy, RequestSpec


class Command(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A command: what a caller asks for. Its rule is found by its type (decide.py)."""

    key: str = ""
    """The name of the key that it came with, from elsewhere; each of its events says so (access/rights.py)."""


class NewTask(msgspec.Struct, frozen=True, gc=False):
    """A task as it is submitted; `payload` is JSON text."""

    id: TaskId
    name: str
    run: RunId | None = None
    role: str = ""
    services: tuple[str, ...] = ()
    priority: int = 0
    needs: tuple[TaskId, ...] = ()
    barred: tuple[AgentId, ...] = ()
    payload: str = "null"
    not_before: Millis | None = None
    critical: bool = False
    if_need_fails: Literal["skip", "run"] = "skip"
    policy: Policy = DEFAULT
    keyed: bool = False
    """The id follows from a key of the caller's, so another task may claim the same one."""
    flow: bool = False
    """A Python flow, which only `AcquireFlow` makes."""
    carried: CarriedHistory | None = None
    """What it knows of an ended task whose work it goes on with."""


class Submit(Command, frozen=True, gc=False):
    """Accept these tasks, all or none."""

    id: CommandId
    tasks: tuple[NewTask, ...]


@final
class Claim(Command, frozen=True, gc=False):
    """Give this agent up to `count` tasks it may hold; `length` is how often it promises to renew."""

    id: CommandId
    agent: AgentId
    roles: tuple[str, ...] | None = None
    """None: any role."""
    count: int = 1
    length: int | None = None
    outside: tuple[RunId, ...] = ()
    """Runs of which it takes nothing now."""
    task: TaskId | None = None
    """If set, this task and no other, for a caller that runs a task of its own."""
    after: Event | None = None
    """The task that was given up for this: reported together with the one that is taken instead, under `next`."""
    asked_as: tuple[str, ...] | None = None
    """The names under which it takes what is asked of an agent by name, where a key says so; None: those of `agent`."""


class CheckIn(Command, frozen=True, gc=False):
    """The holder renews its lease; with `progress`, a note or `proof` it also proves progress."""

    task: TaskId
    token: Token
    agent: AgentId
    proof: bool = True
    note: str = ""
    progress: float | None = None


class LeaseCommand(Command, frozen=True, gc=False):
    """What a holder says about its task: always with its token."""

    id: CommandId
    task: TaskId
    token: Token
    agent: AgentId


class Complete(LeaseCommand, frozen=True, gc=False):
    """The holder is done; `result` is JSON text."""

    result: str = "null"
    warning: str = ""
    """What a human should know of the attempt although it ended well: calls that were refused."""


class Verified(LeaseCommand, frozen=True, gc=False):
    """The verdict of the verification of the holder's work, from the attempt's supervisor or an operator."""

    passed: bool
    why: str
    """In words: `exit code 2`, that it took too long, that it could not be started."""
    said: str = ""
    """The end of what it printed."""
    elapsed: int = 0
    """How long it took, in milliseconds."""
    by: str = ""
    """Who ran it, where that was not the attempt's own supervisor."""
    result: str | None = None
    """What the holder brought, as JSON text; None: what it said when it said that it was done."""
    hold: bool = False
    """Whether the holder goes on with the task itself where it is to be mended: it runs its verification itself."""
    warning: str = ""
    """As of a completion."""


class Fail(LeaseCommand, frozen=True, gc=False):
    """The holder could not do it."""

    failure: Failure


class Release(LeaseCommand, frozen=True, gc=False):
    """The holder gives the task back; neither a failure nor a timeout."""

    reason: str = "released"
    delay: int = 0
    awaits: TaskId | None = None
    """A task that this one waits for from now on, however that ends."""


class Recover(LeaseCommand, frozen=True, gc=False):
    """The supervisor has ended a stalled agent for real: take its task back now (O8)."""


class EndIdle(LeaseCommand, frozen=True, gc=False):
    """The supervisor has ended an attempt that showed no progress for too long: take its task back now, counted."""

    idle: Millis | None = None
    """How long that was."""
    said: str = ""
    """What it printed last, for the human who is asked about it."""
    repeats: str = ""
    """What it did again and again, in words, where that was no progress."""


class RecordReceipt(LeaseCommand, frozen=True, gc=False):
    """An attempt has left a receipt; the journal shall know. It may come after the lease has ended."""

    receipt: str
    status: str
    path: str = ""


class Ask(LeaseCommand, frozen=True, gc=False):
    """The holder asks a human; with `hold` it keeps working, otherwise the task waits for the answer."""

    text: str
    options: tuple[Option, ...] = ()
    hold: bool = False
    denied: Denied | None = None
    """The calls that the holder's program has refused: those that can be allowed are options, too."""
    quota: Quota | None = None
    """What its attempt may put into the store; a server sets it for agents' keys, and the count is kept there."""
    result: str | None = None
    """What its attempt brought, as JSON text, where that has ended well with a question: a human may accept it."""


class CheckInAgain(LeaseCommand, frozen=True, gc=False):
    """A check-in that its lease alone could not settle: it came late, or the run's limit may have moved."""

    proof: bool = True
    note: str = ""
    progress: float | None = None


class Delegate(LeaseCommand, frozen=True, gc=False):
    """The holder hands a focused request to an expert, and keeps working; `timeout` counts from now (O5)."""

    request: NewTask
    timeout: Millis
    quota: Quota | None = None
    """As of `Ask`."""


class SendRequest(LeaseCommand, frozen=True, gc=False):
    """The holder asks something of another agent, of any agent of a role, or of an address (M1)."""

    request: NewTask
    spec: RequestSpec
    candidates: tuple[AgentId, ...] = ()
    """The holders that are known to be able to answer: slots of the agent that it is for, or those with the role. Of
    the latter not all may be meant (mesh/health.py)."""
    quota: Quota | None = None
    """As of `Ask`."""


class MoveOn(LeaseCommand, frozen=True, gc=False):
    """Who waits for a request asks how it stands; where that has blocked the task, what to do instead is claimed."""

    request: TaskId
    roles: tuple[str, ...] | None = None
    """Of what is claimed then; None: that of the task that asks."""
    length: int | None = None
    """As of a claim."""
    outside: tuple[RunId, ...] = ()
    claims: bool = True
    """Whether a task is claimed: the process that runs this agent may claim it itself."""


class Respond(Command, frozen=True, gc=False):
    """The answer to a request; `result` is JSON text."""

    id: CommandId
    request: TaskId
    agent: AgentId
    roles: tuple[str, ...] = ()
    """What roles it has, as it says: it may answer for them."""
    result: str = "null"
    asked_as: tuple[str, ...] | None = None
    """As of a claim."""


class Decline(Command, frozen=True, gc=False):
    """The refusal of a request by the agent that it is for, or by one that has the role that it is for."""

    id: CommandId
    request: TaskId
    agent: AgentId
    roles: tuple[str, ...] = ()
    """As of an answer."""
    reason: str = ""
    asked_as: tuple[str, ...] | None = None
    """As of a claim."""


class NoteListed(Command, frozen=True, gc=False):
    """These deliveries were shown to this agent: from now on they are not new to it."""

    id: CommandId
    requests: tuple[TaskId, ...]
    agent: AgentId


class Cancel(Command, frozen=True, gc=False):
    """Cancel a task, held or not."""

    id: CommandId
    task: TaskId
    reason: str = "cancelled"


class Answer(Command, frozen=True, gc=False):
    """A human's decision."""

    id: CommandId
    question: QuestionId
    option: str
    text: str = ""
    subtasks: tuple[NewTask, ...] = ()
    timeout: Millis | None = None
    by: str = ""
    max_cost: int | None = None
    """What the task may cost from now on, in millionths of a dollar."""
    max_tokens: int | None = None
    """How many tokens it may use from now on."""


class OpenRun(Command, frozen=True, gc=False):
    """Open a run; `timeout` counts from now."""

    id: CommandId
    run: RunId
    name: str
    timeout: Millis | None = None
    after: RunId | None = None
    """A run that has ended and goes on in this one."""


class EndRun(Command, frozen=True, gc=False):
    """End a run and everything in it that is still open."""

    id: CommandId
    run: RunId
    reason: str = "ended"


class AcquireFlow(Command, frozen=True, gc=False):
    """Hold a Python flow: a new one is made, with its run; one that is held is refused."""

    id: CommandId
    flow: NewTask
    agent: AgentId
    length: int
    """How often its holder promises to renew."""
    dead: Token | None = None
    """The holder of this token is known to have died, so that its time need not be waited out."""


class RecordStep(Command, frozen=True, gc=False):
    """A step of a Python flow is done: make it a finished task, with its result. Carries the flow's token."""

    id: CommandId
    flow: TaskId
    token: Token
    agent: AgentId
    run: RunId
    step: TaskId
    name: str
    payload: str
    """What it was called with, as JSON text."""
    result: str
    """JSON text."""
    elapsed: int
    """How long it took, in milliseconds, as its process measured it."""


class Admit(Command, frozen=True, gc=False):
    """May this service be called now? The first caller that finds its breaker half-open makes the probe (F8)."""

    id: CommandId
    service: str
    policy: BreakerPolicy


class Report(Command, frozen=True, gc=False):
    """What came of a call that was let through."""

    id: CommandId
    permit: Permit
    outcome: CallOutcome
    policy: BreakerPolicy


class Park(Command, frozen=True, gc=False):
    """No call to this service for so many milliseconds (F5)."""

    id: CommandId
    service: str
    delay: int


class Unpark(Command, frozen=True, gc=False):
    """A human says that a service can be called now, whatever it said before."""

    id: CommandId
    service: str
    by: str


class AskForHelp(Command, frozen=True, gc=False):
    """Calls to a service are given up for something that only a human can mend: ask, once per cause (F7)."""

    id: CommandId
    service: str
    cause: ErrorClass
    reason: str
    """Why it was given up."""
    message: str = ""
    """What the last call brought."""
    holds: bool = False
    """Whether it is an account of agents, which get nothing to do before the answer."""


class Notice(Command, frozen=True, gc=False):
    """A supervisor tells what it has seen and done; it changes nothing but the journal."""

    id: CommandId
    event: Event


HolderCommand = (
    Complete
    | Verified
    | Fail
    | Release
    | Recover
    | EndIdle
    | RecordReceipt
    | Ask
    | Delegate
    | SendRequest
    | CheckInAgain
)
ServiceCommand = Admit | Report | Park | AskForHelp


_OLDER_NAMES: Mapping[type[Command], str] = {RecordReceipt: "Keep", AcquireFlow: "TakeUp"}
"""Commands that travel, and are kept in notes of attempts, under the name that they had in the first version."""


def wire_name(kind: type[Command]) -> str:
    """The name under which a command travels and is kept."""
    return _OLDER_NAMES.get(kind, kind.__name__)

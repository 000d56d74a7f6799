"""The tasks of a flow: one for each member of each step, with ids that follow from the run and the member.

A task may need only so many others, and a matrix that needs a matrix would make a need of every pair. Where there would
be too many, gates stand between: tasks of their own (`report+1`) that need a part of them each, and do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allswell.domain.ids import RunId, TaskId
from allswell.domain.lease.claim import STEP_ROLE
from allswell.domain.receipts.step import Artifact
from allswell.domain.rules.command import NewTask
from allswell.domain.scopes import Timeouts
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.model import CarriedHistory, Policy
from allswell.domain.task.submit import NEEDS_MAX
from allswell.domain.values import nearest, to_json
from allswell.engine.ids import task_for_key
from allswell.errors import Refused
from allswell.flows.loader import Scalar
from allswell.flows.run.folder import RunBase
from allswell.flows.spec import (
    AgentPrompt,
    Flow,
    Function,
    InputSpec,
    OutputSpec,
    RunCommand,
    Step,
    StepMember,
    Work,
    used_steps,
)

# What the task of a step carries: all that is needed to do it, wherever it is claimed; and what it gives back.

PRINTED_MOST = 65_536
"""So many characters of what a command printed are a value for other steps; more belongs into a file."""


class MemberJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a step, ready to be done once its values are put in."""

    flow: str
    run: str
    """Names the run's folder."""
    home: str
    folder: str
    step: str
    id: str
    """Of the member: the step's own id where it has no matrix."""
    work: Work
    timeouts: Timeouts
    values: Mapping[str, Scalar] = {}
    inputs: Mapping[str, Scalar] = {}
    env: Mapping[str, str] = {}
    outputs: tuple[OutputSpec, ...] = ()
    audit: RunCommand | AgentPrompt | None = None
    verify: RunCommand | None = None
    uses: Mapping[str, TaskId | tuple[TaskId, ...]] = {}
    """The tasks whose results its values come from: one, or all members of a matrix."""
    tried: int = 0
    """Attempts in earlier runs of the same folder: they keep their numbers, and their files."""

    @property
    def agent(self) -> str:
        """Who does the work, as receipts name it."""
        match self.work:
            case AgentPrompt(agent, _):
                return agent
            case RunCommand():
                return "run"
            case Function():
                return "python"


class StepResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step that is done gives to those after it; the result of its task."""

    step: str
    stdout: str = ""
    printed_more: bool = False
    """Whether it printed more than `stdout` holds."""
    exit_code: int | None = None
    result: Any = None
    artifacts: tuple[Artifact, ...] = ()


_PAIRS_MOST = 5_000
"""So many needs between the members of a step and of those it needs are written down one by one."""


class CarriedSteps(msgspec.Struct, frozen=True):
    """What a step takes along from an earlier run that was ended."""

    known: CarriedHistory | None = None
    """What its last task knew: a human's words, how its last attempt ended, longer limits."""
    tried: int = 0
    """How many attempts at it have left something in the folder."""


class FlowPlan(msgspec.Struct, frozen=True):
    """A flow as tasks."""

    tasks: tuple[NewTask, ...]
    ids: Mapping[str, TaskId]
    """The task of every member, those that are done already too."""


def given_inputs(flow: Flow, given: Mapping[str, str]) -> dict[str, Scalar]:
    """The flow's inputs as they were given, or their defaults; a given text is read as the default's kind."""
    known = {one.name: one for one in flow.inputs}
    for name in given:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise Refused("unknown_input", f"the flow {flow.name} has no input {name!r}; {hint}", where=name)
    missing = [one.name for one in flow.inputs if one.required and one.name not in given]
    if missing:
        hint = " ".join(f"-i {name}=…" for name in missing)
        text = f"the flow {flow.name} needs {', '.join(missing)}; give {hint}"
        raise Refused("missing_input", text, where=missing[0])
    return {name: _read(one, given[name]) if name in given else one.default for name, one in known.items()}


def _read(one: InputSpec, text: str) -> Scalar:
    wanted = type(one.default)
    if one.default is None or wanted is str:
        return text
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return value
    if type(value) is wanted and isinstance(value, bool | int | float):
        return value
    kind = {bool: "true or false", int: "a whole number", float: "a number"}[wanted]
    raise Refused("bad_input", f"the input {one.name} must be {kind}, not {text!r}", where=one.name)


def plan(
    flow: Flow,
    base: RunBase,
    run: RunId,
    policy: Policy,
    *,
    done: Mapping[str, TaskId] = {},
    carried: Mapping[str, CarriedSteps] = {},
    parts: Mapping[str, Sequence[TaskId]] = {},
) -> FlowPlan:
    """The tasks of a flow in one run of the store; what is `done` already is needed by none and used by all.

    `parts` are needed in place of those of it that were split.
    """
    members = {step.id: list(step.members()) for step in flow.steps}
    ids = {
        member.id: done.get(member.id) or task_for_key(f"{run}/{member.id}")
        for some in members.values()
        for member in some
    }
    made: list[NewTask] = []
    for step in flow.steps:
        needed = [one.id for need in step.needs for one in members[need]]
        needs = tuple(id_ for one in needed for id_ in parts.get(one, () if one in done else (ids[one],)))
        if len(needs) > NEEDS_MAX or (len(needs) > 1 and len(needs) * len(members[step.id]) > _PAIRS_MOST):
            gates = _gates(flow, step, base, run, policy, needs)
            made += gates
            needs = tuple(gate.id for gate in gates)
        uses = {name: _tasks(members[name], ids, matrix=bool(_step(flow, name).matrix)) for name in used_steps(step)}
        made += [
            _task(flow, step, member, base, run, policy, needs, uses, ids, carried.get(member.id))
            for member in members[step.id]
            if member.id not in done
        ]
    return FlowPlan(tuple(made), ids)


def _gates(
    flow: Flow, step: Step, base: RunBase, run: RunId, policy: Policy, needs: tuple[TaskId, ...]
) -> list[NewTask]:
    """Tasks that stand between a step and too many others."""
    made = []
    for number, start in enumerate(range(0, len(needs), NEEDS_MAX), 1):
        gate = Step(f"{step.id}+{number}", Function(__name__, gathered.__name__))
        ids = {gate.id: task_for_key(f"{run}/{gate.id}")}
        part = needs[start : start + NEEDS_MAX]
        made.append(_task(flow, gate, StepMember(gate.id, {}), base, run, policy, part, {}, ids, None))
    return made


async def gathered() -> None:
    """What a gate does: nothing; all that it needs has ended well."""


def _step(flow: Flow, id_: str) -> Step:
    return next(step for step in flow.steps if step.id == id_)


def _tasks(members: list[StepMember], ids: Mapping[str, TaskId], *, matrix: bool) -> TaskId | tuple[TaskId, ...]:
    found = tuple(ids[member.id] for member in members)
    return found if matrix else found[0]


def _task(  # noqa: PLR0913, PLR0917 - a task is made of all of these, and only here
    flow: Flow,
    step: Step,
    member: StepMember,
    base: RunBase,
    run: RunId,
    policy: Policy,
    needs: tuple[TaskId, ...],
    uses: Mapping[str, TaskId | tuple[TaskId, ...]],
    ids: Mapping[str, TaskId],
    carried: CarriedSteps | None,
) -> NewTask:
    limit = flow.limit(step)
    known = None if carried is None else carried.known
    if known is not None and known.timeout_override is not None:
        limit = known.timeout_override
    record = base.record
    inputs: dict[str, Any] = record.inputs
    job = MemberJob(
        flow=flow.name,
        run=record.run,
        home=str(base.home),
        folder=record.folder,
        step=step.id,
        id=member.id,
        work=step.work,
        timeouts=flow.timeouts,
        values=member.values,
        inputs=inputs,
        env=step.env,
        outputs=step.outputs,
        audit=step.audit,
        verify=step.verify,
        uses=uses,
        tried=0 if carried is None else carried.tried,
    )
    return NewTask(
        ids[member.id],
        member.id,
        run,
        STEP_ROLE,
        needs=needs,
        payload=to_json(job, f"step {member.id}"),
        policy=policy_of(policy, step, limit),
        keyed=True,
        carried=known,
    )


def policy_of(usual: Policy, step: Step, limit: int) -> Policy:
    """How a step is limited and repeated.

    A command's exit code is its own verdict: without `retry:` it is not tried again. A number of retries that the step
    sets itself bounds its timeouts too. Steps are not asked for check-ins, which commands and functions know nothing
    of; their limit is what watches them.
    """
    retry: RetryPolicy = step.retry or usual.retry
    if step.retry is not None and step.retry.retries is not None:
        retry = msgspec.structs.replace(retry, timeouts=step.retry.retries)
    elif step.retry is None and isinstance(step.work, RunCommand):
        retry = msgspec.structs.replace(retry, retries=0)
    interval = max(usual.checkpoint_interval, limit)
    verify = () if step.verify is None else step.verify.argv
    changed = {"timeout": limit, "idle": None, "checkpoint_interval": interval, "retry": retry, "verify": verify}
    return msgspec.structs.replace(usual, **changed)

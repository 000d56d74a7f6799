"""A run: tasks with one common deadline and purpose; what it has cost; and a build, which is a run too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from allswell.domain.agents.cost import NOTHING_SPENT, Spent, SpentBy
from allswell.domain.build.state import BuildGlance, BuildStatus, ComponentState, ComponentStatus
from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.domain.run.run import Run
    from allswell.store.views import Views
    from allswell.views.artifacts import Artifacts


# What attempts have cost, in money and in tokens; null is unknown, never nought.


class SpentShape(Struct, frozen=True):
    """Sums of what agents reported: of `attempts` that said anything, `priced` said what they cost."""

    cost_usd: float | None
    given: int | None = field(name="tokens_in")
    written: int | None = field(name="tokens_out")
    attempts: int
    priced: int
    estimated: int = 0
    """Of how many of them the cost, or a part of it, is priced by a table of ours: their client has not reported it."""


class CostShape(Struct, frozen=True):
    """What one task, run, role or agent has cost; of all together the name is empty."""

    name: str
    spent: SpentShape


class CostsShape(Struct, frozen=True):
    """Sums of what agents reported since a moment (null: ever)."""

    by: SpentBy
    since_at: Moment | None
    costs: list[CostShape]

    @classmethod
    def of(cls, by: SpentBy, since: int, sums: Mapping[str, Spent]) -> CostsShape:
        """All of them."""
        costs = [CostShape(name, as_shape(spent, SpentShape)) for name, spent in sorted(sums.items())]
        return cls(by, moment(since or None), costs)


class RunShape(Struct, frozen=True):
    """A run. It went on in `next_run_id`, if in any; `flow_run_id` names the folder of its flow, if it has one."""

    run_id: str
    name: str
    created_at: Moment
    deadline: Moment | None
    stands_since_at: Moment | None
    stood_ms: int
    ended_at: Moment | None
    reason: str | None
    next_run_id: str | None
    flow_run_id: str | None
    spent: SpentShape

    @classmethod
    def of(cls, told: Run, last: Run | None = None, flow: str | None = None, spent: Spent = NOTHING_SPENT) -> RunShape:
        """A run; with the last one in which it went on, how it all stands."""
        last = last or told
        return cls(
            run_id=told.id,
            name=told.name,
            created_at=moment(told.created_at),
            deadline=None if last.deadline is None else moment(last.deadline + last.stood),
            stands_since_at=moment(last.stands_since),
            stood_ms=last.stood,
            ended_at=moment(last.ended_at),
            reason=last.end_text or None,
            next_run_id=told.continued_in,
            flow_run_id=flow,
            spent=as_shape(spent, SpentShape),
        )


class RunsShape(Struct, frozen=True):
    """Runs, the newest first."""

    runs: list[RunShape]


async def load_runs(views: Views, artifacts: Artifacts, most: int) -> RunsShape:
    """The last runs, each as it stands by itself."""
    runs = await views.view_runs(most)
    spent = await views.view_spent("run", [run.id for run in runs]) if runs else {}
    flows = await artifacts.flow_runs(most)
    return RunsShape([RunShape.of(run, None, flows.get(run.id), spent.get(run.id, NOTHING_SPENT)) for run in runs])


# A build for the outside: how each component stands, who has it, and what only a human can decide.


class BuildComponentShape(Struct, frozen=True):
    """A component; `agent_id` is null while no agent builds it, `url` is that of the last READY."""

    name: str
    state: ComponentState
    needs: tuple[str, ...]
    task_id: str | None
    agent_id: str | None
    in_audit: bool
    url: str | None
    audit: str | None
    """What its last audit has come to, in words; null: there was none."""

    @classmethod
    def of(cls, one: ComponentStatus) -> BuildComponentShape:
        """How it stands."""
        last = one.audits[-1] if one.audits else None
        verdict = None
        if last is not None:
            judged = {None: "open", True: f"passed by {last.by}", False: f"failed by {last.by}: {last.details}"}
            verdict = judged[last.passed].split("\n")[0]
        url = None if last is None else last.url
        return cls(one.name, one.state, one.needs, one.task, one.holder or None, one.in_audit is not None, url, verdict)


class BuildGlanceShape(Struct, frozen=True):
    """A build that is not over, at one glance; `counts` has how many components stand in each state."""

    run_id: str
    name: str
    coordinated: bool
    counts: dict[str, int]
    at_work: tuple[BuildComponentShape, ...]
    free: tuple[str, ...]
    asked: tuple[str, ...]
    next: tuple[str, ...]
    """What can begin once the components are merged that are claimed or could be claimed now."""

    @classmethod
    def of(cls, seen: BuildGlance) -> BuildGlanceShape:
        """What is to be seen."""
        at_work = [BuildComponentShape.of(one) for one in seen.at_work]
        return as_shape(seen, cls, run_id=seen.run, at_work=at_work)


class BuildShape(Struct, frozen=True):
    """A whole build."""

    run_id: str
    name: str
    complete: bool
    components: tuple[BuildComponentShape, ...]
    question_ids: tuple[str, ...]
    """Those that are open."""

    @classmethod
    def of(cls, run: str, name: str, standing: BuildStatus) -> BuildShape:
        """How it stands."""
        components = tuple(BuildComponentShape.of(one) for one in standing.components.values())
        asked = tuple(question.id for question in standing.questions if question.choice is None)
        return cls(run, name, standing.is_over and standing.has_merged, components, asked)


class BuildsShape(Struct, frozen=True):
    """The builds that are not over."""

    builds: list[BuildGlanceShape]

"""A build for the outside: how each component stands, who has it, and what only a human can decide."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.build.glance import BuildGlance
from allswell.domain.build.standing import ComponentStanding, ComponentState, Standing


class BuildComponentShape(Struct, frozen=True):
    """A component; `agent_id` is null while nobody builds it, `url` is that of the last READY."""

    name: str
    state: ComponentState
    needs: tuple[str, ...]
    task_id: str | None
    agent_id: str | None
    in_audit: bool
    url: str | None

    @classmethod
    def of(cls, one: ComponentStanding) -> BuildComponentShape:
        """How it stands."""
        url = one.audits[-1].url if one.audits else None
        return cls(one.name, one.state, one.needs, one.task, one.holder or None, one.in_audit is not None, url)


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
    """What can begin once that is merged which somebody has or could claim now."""

    @classmethod
    def of(cls, seen: BuildGlance) -> BuildGlanceShape:
        """What is to be seen."""
        held = tuple(BuildComponentShape.of(one) for one in seen.at_work)
        lists = tuple(seen.free), tuple(seen.asked), tuple(seen.next)
        return cls(seen.run, seen.name, seen.coordinated, seen.counts, held, *lists)


class BuildShape(Struct, frozen=True):
    """A whole build."""

    run_id: str
    name: str
    complete: bool
    components: tuple[BuildComponentShape, ...]
    question_ids: tuple[str, ...]
    """Those that are open."""

    @classmethod
    def of(cls, run: str, name: str, standing: Standing) -> BuildShape:
        """How it stands."""
        components = tuple(BuildComponentShape.of(one) for one in standing.components.values())
        asked = tuple(question.id for question in standing.questions if question.choice is None)
        return cls(run, name, standing.is_over, components, asked)


class BuildsShape(Struct, frozen=True):
    """The builds that are not over."""

    builds: list[BuildGlanceShape]

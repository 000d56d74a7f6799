"""A build as `show` tells it: how each component stands, who has it, what its audit says, and what it waits for.

`allswell` alone tells of each build that is not over in a few lines: how far it is, who is at what, what comes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.domain.build.glance import BuildGlance, work_on
from allswell.doors.cli.ink import prose
from allswell.doors.cli.render import Column, plain, table

if TYPE_CHECKING:
    from allswell.domain.build.standing import ComponentStanding, Standing
    from allswell.domain.run import Run
    from allswell.doors.shapes.build import BuildShape
    from allswell.store.views import Views

_COLUMNS = (Column("COMPONENT", 10), Column("STATE", 7), Column("BUILDER", 8), Column("AUDIT", 8), Column("NEEDS", 6))


_OTHERS = ("held", "free", "asked", "waiting", "skipped")
_MOST_NAMES = 5
"""So many names in one line; the others are counted."""


def glance_lines(seen: list[BuildGlance]) -> list[str]:
    """A build in a few lines, for the state of the watch."""
    lines: list[str] = []
    for build in seen:
        counts = build.counts
        total = len(build.standing.components)
        others = [f"{counts[state]:,} {state}" for state in _OTHERS if counts.get(state)]
        told = ", ".join([f"{counts.get('merged', 0):,} of {total:,} merged", *others])
        lines.append(prose(f"Build {plain(build.name)}: {told}", indent="  ", further="    "))
        parts = [f"{plain(one.holder)} has {one.name} ({work_on(one)})" for one in build.at_work]
        if parts:
            lines.append(prose(_listed(parts), indent="    "))
        ahead = [("Free", build.free), ("For a human", build.asked), ("Next", build.next)]
        told = ". ".join(f"{what}: {_listed(names)}" for what, names in ahead if names)
        if told:
            lines.append(prose(told, indent="    "))
    return lines


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


async def build_of(views: Views, run: Run) -> tuple[BuildShape | None, str]:
    """The build that a run is of, and what is told of it; nothing for a run that is of none."""
    from allswell.build.place import kept_spec

    spec = await kept_spec(views, run.id)
    if spec is None:
        return None, ""
    from allswell.build.rows import BuildRows
    from allswell.doors.shapes.build import BuildShape

    standing = await BuildRows(views, run.id).look(spec, run.created_at)
    rows = [_row(one, standing) for one in standing.components.values()]
    return BuildShape.of(run.id, spec.name, standing), "\n" + table(_COLUMNS, rows)


def _row(one: ComponentStanding, standing: Standing) -> list[str]:
    audit = one.audits[-1] if one.audits else None
    verdict = ""
    if audit is not None:
        verdict = {None: "open", True: f"passed by {audit.by}", False: f"failed by {audit.by}: {audit.details}"}[
            audit.passed
        ]
    missing = [need for need in one.needs if standing.components[need].state != "merged"]
    return [one.name, one.state, one.holder, plain(verdict.split("\n")[0]), ", ".join(missing)]

"""A flow as it will run: its steps in waves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from allswell.flows.layout import Layout, Node
    from allswell.flows.spec import Flow, Step


class NodeShape(Struct, frozen=True):
    """A step with its place: in which wave, on which row, and whether on the longest way through the flow."""

    step_id: str
    what: str
    limit_ms: int
    overridden: bool
    members: int
    needs: tuple[str, ...]
    wave: int
    row: int
    longest: bool
    audited: bool


class GraphShape(Struct, frozen=True):
    """A flow and all its steps."""

    flow: str
    limit_ms: int
    steps: list[NodeShape]

    @classmethod
    def of(cls, flow: Flow, layout: Layout) -> GraphShape:
        """A flow that was laid out."""
        steps = {step.id: step for step in flow.steps}
        return cls(flow.name, flow.timeouts.flow, [_node(flow, steps[node.id], node) for node in layout.nodes])


class PictureShape(Struct, frozen=True):
    """A picture was written, of so many steps."""

    file: str
    steps: int


def _node(flow: Flow, step: Step, node: Node) -> NodeShape:
    return NodeShape(
        step_id=node.id,
        what=node.what,
        limit_ms=flow.limit(step),
        overridden=step.timeout_override is not None,
        members=node.members,
        needs=node.needs,
        wave=node.wave,
        row=node.row,
        longest=node.longest,
        audited=node.audited,
    )

"""`allswell graph`: a flow as it will run, wave by wave, in text or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Frame, write
from allswell.doors.cli.options import Argument, Json, Option
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allswell.flows.layout import Layout, Node
    from allswell.flows.spec import Flow

_LISTED = 8
"""How many steps of the longest way are written out."""


def add_to(app: Commands) -> None:
    """Register the command."""
    app.add(
        LOOKING,
        "graph",
        graph,
        "allswell graph flow.yaml                 which steps wait for which",
        "allswell graph flow.yaml --svg flow.svg  the same as a picture",
    )


def graph(
    file: Annotated[str, Argument(metavar="FLOW", help="A flow (YAML), or `-` for standard input.")],
    svg: Annotated[
        str | None, Option("--svg", metavar="FILE", help="Write a picture; `-` for standard output.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw a flow: its steps in waves, what each needs, and the longest way through it."""
    from allswell.doors.cli.flowing import read_file
    from allswell.doors.shapes.graph import GraphShape, PictureShape
    from allswell.flows.layout import lay_out

    flow, _ = read_file(file)
    layout = lay_out(flow)
    nodes = layout.nodes
    frame = Frame(None, json=json)
    if svg is not None:
        _picture(svg, flow, layout)
        if svg != "-":
            frame.say(PictureShape(svg, len(nodes)), f"{svg}: {len(nodes):,} steps")
        return
    frame.say(GraphShape.of(flow, layout), None if json else _told(flow, nodes))


def _picture(file: str, flow: Flow, layout: Layout) -> None:
    from allswell.domain.duration import show
    from allswell.flows.drawing import draw

    drawn = draw(flow.name, show(flow.timeouts.flow), layout)
    if file == "-":
        write(drawn)
        return
    try:
        Path(file).write_text(drawn, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused("no_file", f"{file!r} cannot be written: {why}", where="--svg") from None


def _told(flow: Flow, nodes: Sequence[Node]) -> str:
    from allswell.domain.duration import show
    from allswell.doors.cli.render import Column, paint, plain, sentence, table

    waves = {node.wave for node in nodes}
    total = sum(node.members for node in nodes)
    head = f"{paint(plain(flow.name), 'bold')}  {_many(total, 'step')} in {_many(len(waves), 'wave')}"
    columns = (Column("WAVE"), Column("STEP", 12), Column("LIMIT"), Column("NEEDS", 12), Column("DOES", 16))
    rows = [
        [
            f"{node.wave + 1} {'●' if node.longest else ' '}",
            node.id + (f" ×{node.members:,}" if node.members > 1 else ""),
            node.limit,
            ", ".join(node.needs),
            node.what + (", then audited" if node.audited else ""),
        ]
        for node in nodes
    ]
    way = [node for node in nodes if node.longest]
    names = [node.id for node in way]
    if len(names) > _LISTED:
        names = [*names[:3], "…", *names[-2:]]
    end = f"● the longest way through it: {' → '.join(names)}; limit {show(flow.timeouts.flow)}"
    return "\n".join([head, "", table(columns, rows), "", sentence(paint(plain(end), "dim"))])


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"

"""From the tree of a flow file to the flow: every key, its shape, and what it refers to.

Nothing is guessed: a key that is unknown, a value of the wrong shape, a step that does nothing or two things at once,
and a `{{ }}` whose value cannot be there when it is needed are mistakes, each told with its line and column. A file is
read to its end, so that one look shows them all; only a file without any becomes a `Flow`.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.finding import Finding
from allswell.domain.deadline import ScopeKind, Timeouts
from allswell.flows.complaints import INCOMPLETE, Complaints
from allswell.flows.loading import MappingEntry, Node
from allswell.flows.spec import FLOW_NAME, MOST_STEPS, NAME, STEP_ID, Flow, Input, Step
from allswell.flows.steps import STEP_KEYS, Parts
from allswell.flows.timing import Figures, FlowStep
from allswell.flows.uses import check_uses
from allswell.settings.settings import Settings

TOP_KEYS = ("name", "description", "inputs", "timeouts", "steps")
_INPUT_KEYS = ("default", "description")


class FlowReading(msgspec.Struct, frozen=True):
    """What a file says."""

    timeouts: dict[ScopeKind, Figure]
    steps: tuple[FlowStep, ...]
    findings: tuple[Finding, ...]
    flow: Flow | None
    """None where something is wrong with the file itself; the arithmetic has its own say."""


def read_flow(root: Node, file: str, settings: Settings) -> FlowReading:
    """Read a flow file; the mistakes in it are findings."""
    return _Reader(file, settings).read(root)


class _Reader:
    def __init__(self, file: str, settings: Settings) -> None:
        self.said = Complaints(file)
        self.figures = Figures(self.said, settings)
        self.parts = Parts(self.said)
        self.steps: list[Step] = []
        self.timed: list[FlowStep] = []

    def read(self, root: Node) -> FlowReading:
        """Everything that the file says."""
        top = root.value
        if not isinstance(top, dict) or not {"timeouts", "steps"} & top.keys():
            self.said.wrong(root, "This is no flow: it has neither `timeouts:` nor `steps:`.", "Name a flow file.")
            return FlowReading(self.figures.timeouts(None), (), tuple(self.said.findings), None)
        self.said.known(top, TOP_KEYS, "a flow")
        timeouts = self.figures.timeouts(top.get("timeouts"))
        name = self._name(top.get("name"))
        description = self.parts.text(top["description"], "description") if "description" in top else ""
        inputs = self._inputs(top.get("inputs"))
        nodes = self._steps(top.get("steps"), root, timeouts[ScopeKind.STEP])
        flow = None
        if not self.said.mistakes:
            limits = Timeouts(**{kind.value: timeouts[kind].length for kind in ScopeKind})
            flow = Flow(name, limits, tuple(self.steps), inputs, description)
            check_uses(flow, nodes, self.said)
            self._check_size(flow, nodes)
        findings = tuple(self.said.findings)
        return FlowReading(timeouts, tuple(self.timed), findings, None if self.said.mistakes else flow)

    def _name(self, entry: MappingEntry | None) -> str:
        if entry is None:
            stem = PurePosixPath(self.said.file).stem
            return stem if FLOW_NAME.fullmatch(stem) else "flow"
        name = entry.node.value
        if isinstance(name, str) and FLOW_NAME.fullmatch(name):
            return name
        self.said.wrong(entry, "`name:` must be letters, digits, '_', '-' and '.'.", "It names a folder: at most 64.")
        return "flow"

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _inputs(self, entry: MappingEntry | None) -> tuple[Input, ...]:
        if entry is None:
            return ()
        given = self.said.mapping(entry, "inputs", "such as `branch: main`")
        return tuple(self._input(name, one) for name, one in given.items())

    def _input(self, name: str, entry: MappingEntry) -> Input:
        """`branch: main` has a default, `branch:` has none and must be given; a mapping can describe it."""
        path = f"inputs.{name}"
        if not NAME.fullmatch(name):
            self.said.wrong(entry, f"{name!r} cannot name an input.", "Use letters, digits and '_'.")
        value = entry.node.value
        if isinstance(value, list):
            self.said.wrong(entry, f"{path} must be a text, a number, true or false.", "Write its default.")
            return Input(name)
        if not isinstance(value, dict):
            return Input(name, value, required=value is None)
        self.said.known(value, _INPUT_KEYS, "an input")
        description = self.parts.text(value["description"], f"{path}.description") if "description" in value else ""
        if "default" not in value:
            return Input(name, None, required=True, description=description)
        default = value["default"].node.value
        if isinstance(default, list | dict):
            self.said.wrong(value["default"], f"{path}.default must be a text, a number, true or false.", "Write one.")
            default = None
        return Input(name, default, required=False, description=description)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _steps(self, entry: MappingEntry | None, root: Node, usual: Figure) -> dict[str, Node]:
        """Read every step into `steps` and `timed`; where each one stands."""
        if entry is None or entry.node.value in (None, []):
            self.said.wrong(entry or root, "The flow has no steps.", "Begin with `- id: NAME`.", rule=INCOMPLETE)
            return {}
        if not isinstance(entry.node.value, list):
            self.said.wrong(entry, "`steps:` must be a list.", "Begin each step with `- id: NAME`.")
            return {}
        nodes: dict[str, Node] = {}
        for number, node in enumerate(entry.node.value, 1):
            if not isinstance(node.value, dict):
                self.said.wrong(node, f"Step {number} must be a mapping.", "Begin it with `- id: NAME`.")
                continue
            self.said.known(node.value, STEP_KEYS, "a step")
            id_ = self._id(node, node.value, number)
            if id_ in nodes:
                line = nodes[id_].mark.line
                self.said.wrong(node, f"There are two steps {id_!r}; the first is on line {line}.", "Rename one.")
                continue
            nodes[id_] = node
            timed = self.figures.step(id_, node, node.value, usual)
            self.timed.append(timed)
            if made := self.parts.step(node, node.value, timed):
                self.steps.append(made)
        return nodes

    def _id(self, node: Node, step: dict[str, MappingEntry], number: int) -> str:
        entry = step.get("id")
        given = None if entry is None else entry.node.value
        if entry is None or isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
            self.said.wrong(entry or node, f"Step {number} has no id.", "Give it one: `id: NAME`.")
            return f"#{number}"
        if not STEP_ID.fullmatch(str(given)):
            said = f"{str(given)!r} cannot be the id of a step."
            self.said.wrong(entry, said, "Use at most 64 letters, digits, '_' and '-': it names files and values.")
        return str(given)

    def _check_size(self, flow: Flow, nodes: dict[str, Node]) -> None:
        total = 0
        for step in flow.steps:
            total += step.count()
            if total > MOST_STEPS:
                said = f"With step {step.id!r} the flow comes to more than {MOST_STEPS:,} steps."
                self.said.wrong(nodes[step.id], said, "Make its matrix smaller, or split the flow.")
                return

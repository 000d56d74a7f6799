"""Whether every `{{ }}` of a flow will have its value when the step that uses it begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from allswell.flows.complaints import Complaints, offer
from allswell.flows.loading import Node
from allswell.flows.spec import Command, Flow, Function, Step
from allswell.flows.values import OF_RUN, OF_STEP, OPEN, BadTemplate, Reference, parse, references

_ALWAYS = ("id", "needs", "timeout_override", "retry")
"""Parts of a step in which no value can stand."""


def check_uses(flow: Flow, nodes: Mapping[str, Node], said: Complaints) -> None:
    """Complain of every value that is unknown, and of every step whose values are used without being needed."""
    steps = {step.id: step for step in flow.steps}
    inputs = [one.name for one in flow.inputs]
    before = _Before(steps)
    for step in flow.steps:
        entries = nodes[step.id].value
        if not isinstance(entries, dict):
            continue
        for key, entry in entries.items():
            for node in () if key in _ALWAYS else _texts(entry.node):
                for reference, why in _found(str(node.value)):
                    wrong = why or _wrong(reference, step, steps, inputs, before)
                    if wrong is not None:
                        says, fix = wrong
                        said.wrong(node, f"steps.{step.id}.{key}: {says}.", fix)


def _texts(node: Node) -> Iterator[Node]:
    """Every text below a node that may hold a value."""
    if isinstance(node.value, str):
        if OPEN in node.value:
            yield node
    elif isinstance(node.value, list):
        for inner in node.value:
            yield from _texts(inner)
    elif isinstance(node.value, dict):
        for entry in node.value.values():
            yield from _texts(entry.node)


def _found(text: str) -> Iterator[tuple[Reference | None, tuple[str, str] | None]]:
    try:
        template = parse(text)
    except BadTemplate as error:
        yield None, (str(error), "docs/flows.md tells what can stand there.")
        return
    for reference in references(template):
        yield reference, None


def _wrong(
    reference: Reference | None, step: Step, steps: Mapping[str, Step], inputs: list[str], before: _Before
) -> tuple[str, str] | None:
    if reference is None:
        return None
    name = reference.path[0]
    match reference.root:
        case "inputs" if name not in inputs:
            return f"there is no input {name!r}", offer(name, inputs) if inputs else "Declare it under `inputs:`."
        case "matrix" if name not in step.matrix:
            return f"its matrix has no axis {name!r}", offer(name, list(step.matrix)) if step.matrix else "It has none."
        case "run" if name not in OF_RUN:
            return f"a run has no {name!r}", offer(name, OF_RUN)
        case "steps":
            return _of_step(reference, step, steps, before)
        case _:
            pass
    if len(reference.path) > 1:
        return f"{reference} goes too deep", f"Write {{{{ {reference.root}.{name} }}}}."
    return None


def _of_step(reference: Reference, step: Step, steps: Mapping[str, Step], before: _Before) -> tuple[str, str] | None:
    name, *rest = reference.path
    other = steps.get(name)
    if other is None:
        return f"there is no step {name!r}", offer(name, list(steps))
    if not before.reaches(step.id, name):
        return f"it uses {reference} and does not need step {name!r}", f"Add {name!r} to its needs."
    if not rest or rest[0] not in OF_STEP:
        what = rest[0] if rest else ""
        return f"a step gives no {what!r}", f"There are {', '.join(f'{name}.{one}' for one in OF_STEP)}."
    if rest[0] == "outputs":
        named = [output.name for output in other.outputs if output.name != output.path]
        if len(rest) != 2 or rest[1] not in named:
            fix = (
                offer(rest[1], named) if len(rest) > 1 and named else "Give its outputs names: `outputs: {NAME: path}`."
            )
            return f"step {name!r} has no such output", fix
    elif rest[0] != "result" and len(rest) > 1:
        return f"{reference} goes too deep", f"Write {{{{ steps.{name}.{rest[0]} }}}}."
    elif rest[0] == "result" and isinstance(other.work, Command):
        return f"step {name!r} is a command, which returns nothing", f"Write {{{{ steps.{name}.stdout }}}}."
    elif rest[0] in ("stdout", "exit_code") and isinstance(other.work, Function):
        return f"step {name!r} is a function, which prints nothing here", f"Write {{{{ steps.{name}.result }}}}."
    return None


class _Before:
    """What has ended when a step begins: all that it needs, and what that needs."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self._needs = {id_: [need for need in step.needs if need in steps] for id_, step in steps.items()}

    def reaches(self, id_: str, other: str) -> bool:
        """Whether a step has ended when this one begins; looked for along its needs, the nearest first."""
        seen = {id_}
        pending = deque([id_])
        while pending:
            for need in self._needs[pending.popleft()]:
                if need == other:
                    return True
                if need not in seen:
                    seen.add(need)
                    pending.append(need)
        return False

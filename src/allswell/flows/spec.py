"""A flow as values: what its file says, once nothing in it is wrong.

A step does one kind of work: it runs a command, gives a prompt to an agent, or calls a Python function. What is written
in `{{ }}` is still text here; `values.py` puts in what it stands for when the step begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

import msgspec

from allswell.domain.deadline import Timeouts
from allswell.domain.retry import RetryPolicy
from allswell.flows.loading import Scalar

MOST_STEPS = 20_000
"""What a flow may come to, every member of every matrix counted."""
STEP_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
"""What inputs, outputs, axes of a matrix and variables of the environment are called."""
FLOW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+=-]", re.ASCII)
_LONGEST_PART = 40


class Command(msgspec.Struct, frozen=True, tag_field="kind", tag="run"):
    """A program with its arguments; never a line for a shell."""

    argv: tuple[str, ...]


class Prompt(msgspec.Struct, frozen=True, tag_field="kind", tag="agent"):
    """Words for an agent that the settings know by name."""

    agent: str
    prompt: str


class Function(msgspec.Struct, frozen=True, tag_field="kind", tag="python", omit_defaults=True):
    """A Python function, called with the step's `inputs` as its keyword arguments."""

    module: str
    function: str
    inputs: Mapping[str, object] = {}


Work = Command | Prompt | Function


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that whoever starts the flow gives, or may give."""

    name: str
    default: Scalar = None
    required: bool = False
    description: str = ""


class Output(msgspec.Struct, frozen=True):
    """A file that a step leaves; its path counts from the folder in which the flow runs."""

    name: str
    path: str


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a flow."""

    id: str
    work: Work
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    outputs: tuple[Output, ...] = ()
    timeout_override: int | None = None
    """Milliseconds; the one limit that may be above its hard limit (F12)."""
    retry: RetryPolicy | None = None
    audit: Command | Prompt | None = None
    """What passes or fails the work, with the limits of C2."""
    matrix: Mapping[str, tuple[Scalar, ...]] = {}
    verify: Command | None = None
    """What must pass before it is done: an audit by a command that the store itself holds to, as for every task."""

    def members(self) -> Iterator[Member]:
        """What the step comes to: itself, or one member for each combination of its matrix."""
        if not self.matrix:
            yield Member(self.id, {})
            return
        axes = [[(value, _part(value)) for value in values] for values in self.matrix.values()]
        for chosen in product(*axes):
            values = {axis: value for axis, (value, _) in zip(self.matrix, chosen, strict=True)}
            yield Member(f"{self.id}@{','.join(part for _, part in chosen)}", values)

    def count(self) -> int:
        """How many members it has."""
        total = 1
        for values in self.matrix.values():
            total *= len(values)
        return total


class Member(msgspec.Struct, frozen=True, gc=False):
    """One step as it is run: `test@3.12,linux` is that member of `test`; its id can name a file."""

    id: str
    values: Mapping[str, Scalar]


class Flow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole flow."""

    name: str
    timeouts: Timeouts
    """What the file says, and where it says nothing the settings."""
    steps: tuple[Step, ...]
    inputs: tuple[Input, ...] = ()
    description: str = ""

    def limit(self, step: Step) -> int:
        """How long one attempt at a step may take, in milliseconds."""
        return self.timeouts.step if step.timeout_override is None else step.timeout_override

    def followers(self) -> dict[str, list[str]]:
        """Which steps need each step."""
        found: dict[str, list[str]] = {step.id: [] for step in self.steps}
        for step in self.steps:
            for need in step.needs:
                found[need].append(step.id)
        return found


def _part(value: Scalar) -> str:
    """A value of a matrix as a part of a name that is safe in a file and a shell, and still tells it apart."""
    text = text_of(value)
    safe = _UNSAFE.sub("_", text)[:_LONGEST_PART]
    if safe == text and safe:
        return safe
    from hashlib import blake2b

    return f"{safe}~{blake2b(text.encode(), digest_size=3).hexdigest()}"


def text_of(value: object) -> str:
    """A value as it stands in a text: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""A flow as values: what its file says, once nothing in it is wrong.

A step does one kind of work: it runs a command, gives a prompt to an agent, or calls a Python function. What is written
in `{{ }}` is still text here; `run/attempt.py` puts in what it stands for when the step begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product

import msgspec

from allswell.domain.scopes import Timeouts
from allswell.domain.service.retry import RetryPolicy
from allswell.flows.loader import Scalar

MOST_STEPS = 20_000
"""What a flow may come to, every member of every matrix counted."""
STEP_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
"""What inputs, outputs, axes of a matrix and variables of the environment are called."""
FLOW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+=-]", re.ASCII)
_LONGEST_PART = 40


class RunCommand(msgspec.Struct, frozen=True, tag_field="kind", tag="run"):
    """A program with its arguments; never a line for a shell."""

    argv: tuple[str, ...]


class AgentPrompt(msgspec.Struct, frozen=True, tag_field="kind", tag="agent"):
    """Words for an agent that the settings know by name."""

    agent: str
    prompt: str


class Function(msgspec.Struct, frozen=True, tag_field="kind", tag="python", omit_defaults=True):
    """A Python function, called with the step's `inputs` as its keyword arguments."""

    module: str
    function: str
    inputs: Mapping[str, object] = {}


Work = RunCommand | AgentPrompt | Function


class InputSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that whoever starts the flow gives, or may give."""

    name: str
    default: Scalar = None
    required: bool = False
    description: str = ""


class OutputSpec(msgspec.Struct, frozen=True):
    """A file that a step leaves; its path counts from the folder in which the flow runs."""

    name: str
    path: str


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a flow."""

    id: str
    work: Work
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    outputs: tuple[OutputSpec, ...] = ()
    timeout_override: int | None = None
    """Milliseconds; the one limit that may be above its hard limit (F12)."""
    retry: RetryPolicy | None = None
    audit: RunCommand | AgentPrompt | None = None
    """What passes or fails the work, with the limits of C2."""
    matrix: Mapping[str, tuple[Scalar, ...]] = {}
    verify: RunCommand | None = None
    """What must pass before it is done: an audit by a command that the store itself holds to, as for every task."""

    def members(self) -> Iterator[StepMember]:
        """What the step comes to: itself, or one member for each combination of its matrix."""
        if not self.matrix:
            yield StepMember(self.id, {})
            return
        axes = [[(value, _part(value)) for value in values] for values in self.matrix.values()]
        for chosen in product(*axes):
            values = {axis: value for axis, (value, _) in zip(self.matrix, chosen, strict=True)}
            yield StepMember(f"{self.id}@{','.join(part for _, part in chosen)}", values)

    def count(self) -> int:
        """How many members it has."""
        total = 1
        for values in self.matrix.values():
            total *= len(values)
        return total


class StepMember(msgspec.Struct, frozen=True, gc=False):
    """One step as it is run: `test@3.12,linux` is that member of `test`; its id can name a file."""

    id: str
    values: Mapping[str, Scalar]


class Flow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole flow."""

    name: str
    timeouts: Timeouts
    """What the file says, and where it says nothing the settings."""
    steps: tuple[Step, ...]
    inputs: tuple[InputSpec, ...] = ()
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


# `{{ }}`: what a step takes from the flow's inputs, its matrix and the steps before it.
#
#     {{ inputs.NAME }}          what the flow was started with
#     {{ matrix.AXIS }}          this member's value
#     {{ steps.ID.stdout }}      what a command printed, without the last line break
#     {{ steps.ID.result }}      what a function returned; {{ steps.ID.result.KEY.0 }} goes into it
#     {{ steps.ID.outputs.NAME }} the path of a file that it left
#     {{ run.id }}               also {{ run.base }} and {{ run.folder }}
#
# There are no expressions: a value is looked up and put in, and what it holds is never read again. A command's words
# are split before values are put in, so that no value can become two words, or an option, by the spaces in it. A value
# that stands alone keeps its type where a type can be kept (the inputs of a Python function); within a text it becomes
# text. `{{{{` stands for two braces.

OPEN, CLOSE = "{{", "}}"
_REFERENCE = re.compile(r"\s*([A-Za-z_]+(?:\.[A-Za-z0-9_-]+)+)\s*", re.ASCII)
ROOTS = ("inputs", "matrix", "steps", "run")
OF_STEP = ("stdout", "result", "outputs", "exit_code")
OF_RUN = ("id", "base", "folder")


class ValueReference(msgspec.Struct, frozen=True):
    """What stands between the braces."""

    root: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.root, *self.path))


Template = tuple[str | ValueReference, ...]
Lookup = Callable[[ValueReference], object]


class BadTemplate(Exception):
    """A text whose braces cannot be read; the message says what is wrong and what to write."""


def parse(text: str) -> Template:
    """The text and the references in it, in order."""
    parts: list[str | ValueReference] = []
    at = 0
    plain = ""
    while (start := text.find(OPEN, at)) >= 0:
        plain += text[at:start]
        if text.startswith(OPEN, start + len(OPEN)):
            plain += OPEN
            at = start + 2 * len(OPEN)
            continue
        end = text.find(CLOSE, start)
        if end < 0:
            raise BadTemplate(f"{OPEN} is not closed; write {OPEN} inputs.NAME {CLOSE}, or {OPEN}{OPEN} for two braces")
        parts += [plain] if plain else []
        parts.append(_reference(text[start + len(OPEN) : end]))
        plain, at = "", end + len(CLOSE)
    plain += text[at:]
    return tuple([*parts, plain] if plain or not parts else parts)


def _reference(inside: str) -> ValueReference:
    found = _REFERENCE.fullmatch(inside)
    if found is None:
        said = f"{OPEN}{inside}{CLOSE} names no value"
        raise BadTemplate(
            f"{said}; write such as {OPEN} steps.ID.stdout {CLOSE}, or {OPEN}{OPEN} where two braces are meant"
        )
    root, *path = found[1].split(".")
    if root not in ROOTS:
        raise BadTemplate(f"there is no value {found[1]!r}: values begin with {', '.join(ROOTS)}")
    return ValueReference(root, tuple(path))


def references(template: Template) -> Iterator[ValueReference]:
    """What a template refers to."""
    return (part for part in template if isinstance(part, ValueReference))


def texts(step: Step) -> Iterator[str]:
    """Every text of a step in which values may stand."""
    for work in (step.work, step.verify, step.audit):
        match work:
            case RunCommand(argv):
                yield from argv
            case AgentPrompt(_, prompt):
                yield prompt
            case Function(_, _, inputs):
                yield from _texts_in(inputs)
            case None:
                pass
    yield from step.env.values()
    yield from (output.path for output in step.outputs)


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_in(inner)


def used_steps(step: Step) -> list[str]:
    """The steps whose values a step uses, in order."""
    found = (reference for text in texts(step) if OPEN in text for reference in references(parse(text)))
    return list(dict.fromkeys(reference.path[0] for reference in found if reference.root == "steps"))


def fill_text(text: str, lookup: Lookup) -> str:
    """A text with its values put in."""
    if OPEN not in text:
        return text
    return "".join(part if isinstance(part, str) else text_of(lookup(part)) for part in parse(text))


def fill(value: object, lookup: Lookup) -> object:
    """A value with all the texts in it filled; a reference that stands alone keeps the type of what it names."""
    if isinstance(value, str):
        if OPEN not in value:
            return value
        template = parse(value)
        if len(template) == 1 and isinstance(template[0], ValueReference):
            return lookup(template[0])
        return fill_text(value, lookup)
    if isinstance(value, Mapping):
        return {key: fill(inner, lookup) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [fill(inner, lookup) for inner in value]
    return value

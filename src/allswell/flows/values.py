"""`{{ }}`: what a step takes from the flow's inputs, its matrix and the steps before it.

    {{ inputs.NAME }}          what the flow was started with
    {{ matrix.AXIS }}          this member's value
    {{ steps.ID.stdout }}      what a command printed, without the last line break
    {{ steps.ID.result }}      what a function returned; {{ steps.ID.result.KEY.0 }} goes into it
    {{ steps.ID.outputs.NAME }} the path of a file that it left
    {{ run.id }}, {{ run.base }}, {{ run.folder }}

There are no expressions: a value is looked up and put in, and what it holds is never read again. A command's words are
split before values are put in, so that no value can become two words, or an option, by the spaces in it. A value that
stands alone keeps its type where a type can be kept (the inputs of a Python function); within a text it becomes text.
`{{{{` stands for two braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from allswell.flows.spec import Command, Function, Prompt, Step, text_of

OPEN, CLOSE = "{{", "}}"
_REFERENCE = re.compile(r"\s*([A-Za-z_]+(?:\.[A-Za-z0-9_-]+)+)\s*", re.ASCII)
ROOTS = ("inputs", "matrix", "steps", "run")
OF_STEP = ("stdout", "result", "outputs", "exit_code")
OF_RUN = ("id", "base", "folder")


class Reference(msgspec.Struct, frozen=True):
    """What stands between the braces."""

    root: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.root, *self.path))


Template = tuple[str | Reference, ...]
Lookup = Callable[[Reference], object]


class BadTemplate(Exception):
    """A text whose braces cannot be read; the message says what is wrong and what to write."""


def parse(text: str) -> Template:
    """The text and the references in it, in order."""
    parts: list[str | Reference] = []
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


def _reference(inside: str) -> Reference:
    found = _REFERENCE.fullmatch(inside)
    if found is None:
        said = f"{OPEN}{inside}{CLOSE} names no value"
        raise BadTemplate(
            f"{said}; write such as {OPEN} steps.ID.stdout {CLOSE}, or {OPEN}{OPEN} where two braces are meant"
        )
    root, *path = found[1].split(".")
    if root not in ROOTS:
        raise BadTemplate(f"there is no value {found[1]!r}: values begin with {', '.join(ROOTS)}")
    return Reference(root, tuple(path))


def references(template: Template) -> Iterator[Reference]:
    """What a template refers to."""
    return (part for part in template if isinstance(part, Reference))


def texts(step: Step) -> Iterator[str]:
    """Every text of a step in which values may stand."""
    for work in (step.work, step.verify, step.audit):
        match work:
            case Command(argv):
                yield from argv
            case Prompt(_, prompt):
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
        if len(template) == 1 and isinstance(template[0], Reference):
            return lookup(template[0])
        return fill_text(value, lookup)
    if isinstance(value, Mapping):
        return {key: fill(inner, lookup) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [fill(inner, lookup) for inner in value]
    return value

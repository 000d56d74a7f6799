"""A hook as it is written down in `[hooks.NAME]`: who may post to it, and what becomes of what is posted.

A delivery is a task, or the answer to a question, by templates of its fields (`domain/template.py`). What a sender can
choose is what a template has a place for; role, run and priority are written down and not the sender's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from allswell.domain.sink_spec import no_variable
from allswell.domain.template import wrong_with_template

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,9}")
_TASKS = ("task", "role", "run", "priority", "payload")
_ANSWERS = ("question", "option", "text")
SOONEST, LATEST = 1_000, 3_600_000
BODY_MOST = 1 << 20


class HookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `[hooks]`; lengths of time are milliseconds."""

    name: str
    secret_env: tuple[str, ...] = ()
    """The variables that hold the secrets; any of them will do, so that one can be replaced."""
    secret_file: tuple[str, ...] = ()
    """Files that only their owner can read, with a secret in each."""
    types: tuple[str, ...] = ()
    """Only bodies whose `type` is one of these; others are taken and nothing is done. Empty: all."""
    tolerance: int = 300_000
    """How far a delivery's moment may be from ours."""
    max_body: int = 262_144
    task: str = ""
    """The name of the task that is made, a template."""
    role: str = ""
    run: str = ""
    """The run that it is put into, by id or by name: an open one, or a new one."""
    priority: int = 0
    payload: str = ""
    """The field of the body that is its payload; empty: the whole body."""
    question: str = ""
    """The id of the question that is answered, a template."""
    option: str = ""
    text: str = ""


def wrong_with_hook(spec: HookSpec, given: Iterable[str]) -> list[tuple[str, str]]:
    """Every rule that a hook breaks: the field, and what to do about it. `given` are the fields that were set."""
    if not _NAME.fullmatch(spec.name):
        return [("", f"a hook's name is small letters, digits, - and _, at most 40 of them, not {spec.name!r}")]
    found = [("secret_env", text) for name in spec.secret_env if (text := no_variable(name))]
    if not spec.secret_env and not spec.secret_file:
        text = 'what is posted must be signed: write secret_env = "NAME" of a variable, or secret_file = "FILE"'
        found.append(("secret_env", text))
    if bool(spec.task) == bool(spec.question):
        text = 'what becomes of it? either task = "name of {data.thing}", or question = "{data.id}" and option = "…"'
        found.append(("task" if spec.task else "", text))
    other, kind = (_ANSWERS, "a task") if spec.task else (_TASKS, "an answer")
    found += [(field, f"a hook that makes {kind} has no {field}") for field in given if field in other]
    if spec.question and not spec.option:
        found.append(("option", 'which option is chosen? write option = "{data.option}", or one by its key'))
    for field in ("task", "question", "option", "text"):
        if wrong := wrong_with_template(getattr(spec, field)):
            found.append((field, wrong))
    if spec.payload and not _PATH.fullmatch(spec.payload):
        found.append(("payload", "name a field by its path, such as data, or data.order"))
    if not SOONEST <= spec.tolerance <= LATEST:
        found.append(("tolerance", "must be from 1s to 1h"))
    if not 1 <= spec.max_body <= BODY_MOST:
        found.append(("max_body", f"must be from 1 to {BODY_MOST:,} bytes"))
    return found

"""What `{{ }}` stands for when a step begins."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allswell.errors import Refused
from allswell.flows.run.base import RunBase
from allswell.flows.run.job import Job, StepResult
from allswell.flows.spec import Command, Function, Output, Prompt
from allswell.flows.steps import outside
from allswell.flows.values import Lookup, Reference, fill, fill_text

Results = Mapping[str, StepResult | tuple[StepResult, ...]]
"""What the steps before gave: one result, or those of all members of a matrix."""


def lookup(job: Job, base: RunBase, results: Results) -> Lookup:
    """Finds the value of a reference; the loader has made sure that there is one, as far as a file can tell."""

    def find(reference: Reference) -> object:
        name = reference.path[0]
        match reference.root:
            case "inputs":
                return job.inputs[name]
            case "matrix":
                return job.values[name]
            case "run":
                return {"id": job.run, "base": str(base.path), "folder": job.folder}[name]
            case _:
                given = results[name]
                path = reference.path[1:]
                if isinstance(given, tuple):
                    return [_of(one, path, reference) for one in given]
                return _of(given, path, reference)

    return find


def _of(given: StepResult, path: tuple[str, ...], reference: Reference) -> object:
    match path[0]:
        case "stdout":
            if given.printed_more:
                text = f"{reference} is too long for a value; let {given.step} write it to a file, and use that"
                raise Refused("too_large", text, where=str(reference))
            return given.stdout
        case "exit_code":
            return given.exit_code
        case "outputs":
            return next(one.path for one in given.artifacts if one.name == path[1])
        case _:
            return _into(given.result, path[1:], reference)


def _into(value: object, path: tuple[str, ...], reference: Reference) -> object:
    for key in path:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            text = f"{reference} is not there: what the step returned has no {key!r}"
            raise Refused("no_value", text, where=str(reference))
    return value


def filled(job: Job, find: Lookup) -> Job:
    """The job with every value put in."""
    outputs = tuple(Output(one.name, _checked(fill_text(one.path, find))) for one in job.outputs)
    env = {name: fill_text(value, find) for name, value in job.env.items()}
    audit = job.audit
    if audit is not None:
        audit = _filled_text(audit, find)
    verify = job.verify
    if verify is not None:
        verify = Command(tuple(fill_text(word, find) for word in verify.argv))
    work = job.work
    if isinstance(work, Function):
        inputs = fill(work.inputs, find)
        work = msgspec.structs.replace(work, inputs=inputs if isinstance(inputs, dict) else {})
    else:
        work = _filled_text(work, find)
    return msgspec.structs.replace(job, work=work, env=env, outputs=outputs, audit=audit, verify=verify)


def _filled_text(work: Command | Prompt, find: Lookup) -> Command | Prompt:
    if isinstance(work, Command):
        return Command(tuple(fill_text(word, find) for word in work.argv))
    return Prompt(work.agent, fill_text(work.prompt, find))


def _checked(path: str) -> str:
    if why := outside(path):
        raise Refused("bad_output", f"the output {path!r} {why}", where=path)
    return path

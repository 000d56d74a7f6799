"""Steps that an agent does: the command of `[agents.NAME]`, with the step's prompt in its words.

The runner of a flow is no supervisor: it starts the agent's command for this one step, holds it to the step's limit
and to the agent's own idle limit, and does not ask for check-ins. Functions have `python:` for themselves, and a remote
agent claims by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from allswell.domain.fleet import AgentSpec, fill
from allswell.domain.meant import nearest
from allswell.engine.handle import Lease
from allswell.errors import Refused
from allswell.flows.run.job import Job
from allswell.flows.spec import Flow, Prompt
from allswell.runtime.attempt import AttemptLimits, order_for
from allswell.runtime.attempt.order import Order
from allswell.runtime.own_files import write_file

Agents = Mapping[str, AgentSpec]


def names_agents(flow: Flow) -> bool:
    """Whether any step of a flow is an agent's; the others do not care how agents are set up."""
    return any(isinstance(work, Prompt) for step in flow.steps for work in (step.work, step.audit))


def check_agents(flow: Flow, agents: Agents) -> None:
    """Refuse a flow that names an agent which nobody could start, before anything is done."""
    for step in flow.steps:
        for work in (step.work, step.audit):
            if isinstance(work, Prompt):
                find_agent(work.agent, agents, step.id)


def find_agent(name: str, agents: Agents, step: str) -> AgentSpec:
    """The agent of this name, if it is one that a step can start."""
    spec = agents.get(name)
    if spec is None:
        near = nearest(name, agents)
        hint = f"did you mean {near!r}?" if near else f"add [agents.{name}] to allswell.toml (docs/supervisor.md)"
        raise Refused(
            "no_agent", f"step {step} wants the agent {name!r}, and there is none of that name; {hint}", where=step
        )
    if spec.kind != "command":
        how = "call it with `python:`" if spec.kind == "function" else "let it claim the task by itself"
        raise Refused("no_agent", f"step {step} wants the agent {name!r}, which is a {spec.kind}; {how}", where=step)
    return spec


def words_for(
    spec: AgentSpec, job: Job, prompt: str, prompt_file: Path, lease: Lease
) -> tuple[list[str], dict[str, str]]:
    """The agent's command and variables, with what belongs to this step put in."""
    places = {
        "prompt": prompt,
        "prompt_file": str(prompt_file),
        "name": job.id,
        "payload": prompt,
        "handover": "",
        "task": lease.task,
        "attempt": str(lease.attempt),
        "agent": spec.name or job.agent,
        "role": lease.role,
        "folder": job.folder,
        "orders_file": str(prompt_file.with_suffix(".orders")),
    }
    env = {name: fill(value, places) for name, value in spec.env.items()}
    return [fill(word, places) for word in spec.command], env


def order_of_agent(spec: AgentSpec, job: Job, prompt: str, prompt_file: Path, lease: Lease) -> Order:
    """The order for an attempt by an agent; the prompt is in its file when this returns."""
    write_file(prompt_file, prompt.encode())
    argv, env = words_for(spec, job, prompt, prompt_file, lease)
    limits = AttemptLimits(idle=spec.idle, grace=spec.grace)
    return order_for(
        argv, cwd=job.folder, env={**env, **job.env}, hand_on=spec.pass_env, limits=limits, folder=job.folder
    )

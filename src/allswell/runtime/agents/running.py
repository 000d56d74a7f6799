"""The one protocol under which every attempt of a supervised agent runs."""

from __future__ import annotations

from typing import Protocol

from allswell.domain.evidence import Standing
from allswell.domain.fleet import AgentSpec
from allswell.domain.quota import Quota
from allswell.domain.receipt import End
from allswell.domain.retry import Failure
from allswell.engine.handle import Lease
from allswell.runtime.agents.brief import Brief
from allswell.runtime.agents.command import CommandRun
from allswell.runtime.agents.ears import Heard
from allswell.runtime.agents.function import FunctionRun, find_function
from allswell.runtime.attempt import Outcome, Tower
from allswell.runtime.contained import is_async
from allswell.runtime.receipts import Home
from allswell.timing.clock import Clock


class Running(Protocol):
    """One attempt by an agent, whatever kind it is; `run` is called once and raises nothing that the agent does."""

    lease: Lease
    result: object
    """What the task is completed with, once it has ended well."""
    failure: Failure | None
    """Why it failed, where the agent has said so better than an exit code does."""
    inbox: tuple[str, ...]
    """The requests of other agents that wait for its answer."""

    @property
    def standing(self) -> Standing:
        """What it has shown so far."""
        ...

    @property
    def waits_for(self) -> str | None:
        """Another agent's answer that it waits for."""
        ...

    async def run(self) -> Outcome:
        """From the order to the outcome."""
        ...

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Order the stop; what it was up to is kept first."""
        ...

    def ask(self, words: str) -> tuple[str, ...]:
        """Ask it for a check-in in every way it can hear; which these are."""
        ...

    def answered(self, note: str) -> None:
        """It has checked in, in its own output."""
        ...


def make_run(  # noqa: PLR0913 - three of them are keywords, and are the same for all
    spec: AgentSpec, brief: Brief, lease: Lease, home: Home, heard: Heard, *, tower: Tower, quota: Quota, clock: Clock
) -> Running:
    """An attempt of this agent, ready to run."""
    if spec.kind == "function" and is_async(find_function(spec)):
        return FunctionRun(spec, brief, lease, home, heard, clock)
    return CommandRun(spec, brief, lease, home, heard, tower, quota)

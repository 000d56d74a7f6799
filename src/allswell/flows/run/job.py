"""What the task of a step carries: all that is needed to do it, wherever it is claimed; and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.domain.deadline import Timeouts
from allswell.domain.names import TaskId
from allswell.domain.step_receipt import Artifact
from allswell.flows.loading import Scalar
from allswell.flows.spec import Command, Function, Output, Prompt, Work

PRINTED_MOST = 65_536
"""So many characters of what a command printed are a value for other steps; more belongs into a file."""


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a step, ready to be done once its values are put in."""

    flow: str
    run: str
    """Names the run's folder."""
    home: str
    folder: str
    step: str
    id: str
    """Of the member: the step's own id where it has no matrix."""
    work: Work
    timeouts: Timeouts
    values: Mapping[str, Scalar] = {}
    inputs: Mapping[str, Scalar] = {}
    env: Mapping[str, str] = {}
    outputs: tuple[Output, ...] = ()
    audit: Command | Prompt | None = None
    verify: Command | None = None
    uses: Mapping[str, TaskId | tuple[TaskId, ...]] = {}
    """The tasks whose results its values come from: one, or all members of a matrix."""
    tried: int = 0
    """Attempts in earlier runs of the same folder: they keep their numbers, and their files."""

    @property
    def agent(self) -> str:
        """Who does the work, as receipts name it."""
        match self.work:
            case Prompt(agent, _):
                return agent
            case Command():
                return "run"
            case Function():
                return "python"


class StepResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step that is done gives to those after it; the result of its task."""

    step: str
    stdout: str = ""
    printed_more: bool = False
    """Whether it printed more than `stdout` holds."""
    exit_code: int | None = None
    result: Any = None
    artifacts: tuple[Artifact, ...] = ()

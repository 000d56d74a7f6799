"""The lanes of tasks that are about to be made: a store interns them before the tasks are decided on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allswell.domain.command import Answer, Claim, Command, Delegate, NewTask, Submit, TakeUp
from allswell.domain.names import can_name

MAKING = (Submit, Answer, TakeUp, Delegate)
"""What makes tasks."""


def lanes_of(commands: Sequence[Command | Claim]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The lanes of the tasks that commands would make, as far as they have names that can be."""
    for command in commands:
        made = _made_by(command) if isinstance(command, MAKING) else ()
        for role, services in {(new.role, new.services): None for new in made}:  # a million tasks have few lanes
            if all(map(can_name, (role, *services))):
                yield role, services


def _made_by(command: Submit | Answer | TakeUp | Delegate) -> Sequence[NewTask]:
    if isinstance(command, TakeUp):
        return (command.flow,)
    if isinstance(command, Delegate):
        return (command.request,)
    return command.tasks if isinstance(command, Submit) else command.subtasks

"""Agents under one protocol, the same rules for all: a command, a function of Python, a remote holder.

`run` is the protocol, and a command that is started; `function` one that is called in our own loop, and what it gets
(sync ones are called in a process of their own: `called`). A remote holder claims by itself: nothing of it runs here.
"""

from allswell.runtime.agents.function import FunctionRun, find_function
from allswell.runtime.agents.run import CommandRun, Running, prepare_order

__all__ = [
    "CommandRun",
    "FunctionRun",
    "Running",
    "find_function",
    "prepare_order",
]

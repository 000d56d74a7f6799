"""Agents under one protocol, the same rules for all: a command, a function of Python, a remote holder.

`running` is the protocol, `brief` what an attempt is told, `command` one that is started, `function` one that is called
in our own loop (sync ones are called in a process of their own: `called`), `work` what a function gets, `ears` what is
listened for in an agent's output. A remote holder claims by itself: nothing of it runs here.
"""

from allswell.runtime.agents.brief import Brief, brief_for
from allswell.runtime.agents.command import CommandRun
from allswell.runtime.agents.ears import Ears, Heard
from allswell.runtime.agents.function import FunctionRun, find_function
from allswell.runtime.agents.running import Running, make_run

__all__ = ["Brief", "CommandRun", "Ears", "FunctionRun", "Heard", "Running", "brief_for", "find_function", "make_run"]

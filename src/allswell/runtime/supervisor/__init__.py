"""The supervisor: a fleet that is watched. `supervisor` is its life; the other files are each one of its duties.

presence     its name in the store, taken by one process at a time, and what can be looked at
dispatch     free slots and ready tasks are brought together
attending    one attempt, from the claim to what is said about it
asking       check-ins: who is asked, when, in which words
gauge        context and session: read, compact, pause, resume
resets       when a usage limit ends
worktree     a working tree for each task
"""

from allswell.runtime.supervisor.plan import Plan
from allswell.runtime.supervisor.supervisor import Supervisor

__all__ = ["Plan", "Supervisor"]

"""The supervisor: a fleet that is watched. `supervisor` is its life; each other module is one of its duties.

presence     its name in the store, held by one process at a time, and what others can see of it
recovery     what an earlier supervisor left: trees ended, work kept, leases given back
dispatch     brings free slots and ready tasks together
attempt      one attempt in a slot, from the claim to its report; how an agent is asked for a check-in
usage        context and session: read, compact, pause, resume; accounts that wait for a usage limit to end
worktrees    a working tree for each task
console      what the supervisor prints
"""

from allswell.runtime.supervisor.dispatch import SupervisorPlan
from allswell.runtime.supervisor.supervisor import Supervisor

__all__ = ["Supervisor", "SupervisorPlan"]

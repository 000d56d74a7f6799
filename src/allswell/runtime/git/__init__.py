"""Git as Allswell calls it, the one way: under a configuration of our own, so that nothing of a repository's ever runs.

`call` starts git and bounds it; `own_folder` is the git folder that it is given in place of the repository's. What does
need the repository's own programs (a checkout, a commit on a task's branch) is not done here: it runs inside the
attempt, as the agent's own commands do.
"""

from allswell.runtime.git.call import Git, GitFailed, scratch_folder

__all__ = ["Git", "GitFailed", "scratch_folder"]

"""A flow that runs: its folder, its tasks, the attempts at its steps, and how it goes on after it was cut off.

`base` is the run's folder and its files, `files` how those are written; `job` what a task of a step carries; `plan` the
tasks of a flow; `values` what `{{ }}` stands for; `attempt` one attempt at a step, `command` and `function` the work
itself, `timeouts` what is kept when its time runs out; `runner` the loop that claims and runs; `resume` going on.
"""

"""A flow that runs: its folder, its tasks, the attempts at its steps, and how it goes on after it was cut off.

`folder` is the run's folder and its files; `plan` the tasks of a flow, and what a task of a step carries; `context`
what all attempts of this process share; `attempt` one attempt at a step, and what `{{ }}` stands for; `command` and
`function` the work itself; `timeouts` what is kept when its time runs out; `runner` the loop that claims and runs;
`resume` going on.
"""

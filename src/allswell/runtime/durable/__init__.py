"""Durable Python flows: `flow(run_id=…)` and the steps that are called inside it.

`flow` is the block that holds a run, with the steps that are recorded in it and given back; `step` is one function as a
step (which call it is, how its result is written and read). Who the holder is, and whether one has died, is told by
`runtime.process.identity`. Nothing is imported here: a program without durable flows does not need the engine.
"""

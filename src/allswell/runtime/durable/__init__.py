"""Durable Python flows: `flow(run_id=…)` and the steps that are called inside it.

`flow` is the block that holds a run, `steps` what is recorded in it and given back, `step` one function as a step
(which call it is, how its result is written and read), `process` who the holder is and whether one has died, `inside`
the flow in effect. Nothing is imported here: a program without durable flows does not need the engine.
"""

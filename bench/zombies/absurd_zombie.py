"""Absurd: every claim that lapsed fails its run and makes a new one; a run's id is a fencing token."""

import subprocess
import sys
import time
from pathlib import Path

from absurd_sdk import Absurd
from story import ACCEPTED, REFUSED, Story

url = sys.argv[1]
story = Story("claim_timeout of 1 s")
subprocess.run([Path(sys.executable).parent / "absurdctl", "init", "-d", url], check=True, capture_output=True)
app = Absurd(url)
app.create_queue()
spawned = app.spawn("noop", {}, queue="default", max_attempts=5, retry_strategy={"kind": "none"})
(held,) = app.claim_tasks(claim_timeout=1, worker_id="A")
story.say("A", "app.claim_tasks(claim_timeout=1)", f"task {str(held['task_id'])[:8]}, run {str(held['run_id'])[:8]}")
time.sleep(1.3)
tasks = []
while not tasks:  # a claim fails the runs that have lapsed; the new run can be claimed by the next
    tasks = app.claim_tasks(claim_timeout=60, worker_id="B")
(again,) = tasks
story.say("B", "app.claim_tasks()", f"task {str(again['task_id'])[:8]}, run {str(again['run_id'])[:8]}")
assert held["task_id"] == again["task_id"]
query = "SELECT absurd.complete_run(%s, %s, %s)"  # what the SDK's worker sends when a handler returns
try:
    answer: object = app._conn.execute(query, ("default", held["run_id"], "null")).fetchone()  # noqa: SLF001
except Exception as error:  # noqa: BLE001 - whatever it says is the finding
    answer = error
story.say("A", "SELECT absurd.complete_run(queue, A's run)", answer)
state = app.fetch_task_result(str(spawned["task_id"]), "default").state
app._conn.execute(query, ("default", again["run_id"], "null"))  # noqa: SLF001
ended = app.fetch_task_result(str(spawned["task_id"]), "default").state
story.say("B", "SELECT absurd.complete_run(queue, B's run)", "done")
accepted = state == "completed"
story.end(ACCEPTED if accepted else REFUSED, f"after A's call the task is {state}, after B's {ended}")

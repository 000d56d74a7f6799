"""DBOS on PostgreSQL: workflow timeouts, and a queue of which one workflow runs at a time, counted in one of two ways.

`concurrency` counts workflows by their status in the database; `worker_concurrency` those that a worker really runs.
"""

import sys
import threading
import time

import stage
from dbos import DBOS, SetWorkflowTimeout

url, case, counted = sys.argv[1:4]
SETTING = f"SetWorkflowTimeout(1), {counted}=1, polling_interval_sec=0.1"


@DBOS.workflow(name="hang")
async def hang() -> None:
    """Async work."""
    await stage.hanging(case)


@DBOS.workflow(name="hang_sync")
def hang_sync() -> None:
    """Sync work."""
    stage.hanging_sync(case)


@DBOS.workflow(name="follow")
def follow() -> None:
    """The next one."""
    stage.following()


def watch(workflow: str) -> None:
    """Ask for its status until it is cancelled."""
    while DBOS.get_workflow_status(workflow).status != "CANCELLED":
        time.sleep(0.05)
    stage.note("noticed")


DBOS(
    config={
        "name": "hang",
        "system_database_url": url,
        "application_version": "1",
        "console_log_level": "CRITICAL",
    }
)
DBOS.launch()
DBOS.register_queue("slot", **{counted: 1}, polling_interval_sec=0.1)
stage.ready()
with SetWorkflowTimeout(stage.LIMIT):
    first = DBOS.enqueue_workflow("slot", hang_sync if stage.is_sync(case) else hang)
DBOS.enqueue_workflow("slot", follow)
threading.Thread(target=watch, args=(first.workflow_id,), daemon=True).start()
stage.tell(SETTING)

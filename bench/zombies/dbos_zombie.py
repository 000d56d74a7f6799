"""DBOS: a workflow of an executor given up for dead is recovered by another one; outcomes carry the owner's mark.

There is no lease: somebody (DBOS Conductor, or the operator) must say that an executor is dead. A runs in a process of
its own and is in the middle of a workflow when B, another process, is told to recover A's workflows. The two meet in a
folder: each leaves a note when its run of the workflow began, and returns from it when its gate is there.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dbos import DBOS
from story import ACCEPTED, REFUSED, Story

PATIENCE = 30.0
url, role, folder = sys.argv[1], *(sys.argv[2:] or ("B", tempfile.mkdtemp(prefix="zombie-")))
notes = Path(folder)


def awaited(name: str) -> str:
    """What a note says, once it is there."""
    until = time.monotonic() + PATIENCE
    while not (notes / name).exists():
        if time.monotonic() > until:
            raise SystemExit(f"{role} waited in vain for {name}")
        time.sleep(0.02)
    return (notes / name).read_text()


def leave(name: str, text: str = "") -> None:
    """Leave a note, whole or not at all."""
    (notes / f".{name}.{role}").write_text(text)
    (notes / f".{name}.{role}").rename(notes / name)


@DBOS.workflow()
def noop() -> str:
    """Say that it began, wait at the gate, say who ran it."""
    leave(f"{role} began")
    awaited(f"gate of {role}")
    return f"from {role}"


def as_a() -> None:
    """The holder that is given up for dead."""
    handle = DBOS.start_workflow(noop)
    leave("workflow", handle.workflow_id)
    try:
        answer = str(handle.get_result())
    except Exception as error:  # noqa: BLE001 - whatever it says is the finding
        answer = f"{type(error).__name__}: {error}"
    leave("answer to A", answer)


def as_b() -> None:
    """The one that tells the story."""
    story = Story("none by itself: recovery of executor A is asked for")
    first = subprocess.Popen([sys.executable, __file__, url, "A", folder])
    workflow = awaited("workflow")
    awaited("A began")
    story.say("A", "DBOS.start_workflow(noop)", f"workflow {workflow[:8]}, running")
    recovered = DBOS._recover_pending_workflows(["A"])  # noqa: SLF001 - what Conductor asks for
    story.say("-", "DBOS._recover_pending_workflows(['A'])", [f"workflow {one.workflow_id[:8]}" for one in recovered])
    awaited("B began")
    story.say("B", "(dequeues it and runs it)", f"workflow {workflow[:8]}, running")
    leave("gate of A")
    time.sleep(1.0)  # whatever A's return does, it has done
    status = DBOS.get_workflow_status(workflow)
    leave("gate of B")
    mine = DBOS.retrieve_workflow(workflow).get_result()
    story.say("A", "return 'from A'; handle.get_result()", awaited("answer to A"))
    story.say("B", "return 'from B'; handle.get_result()", mine)
    first.wait(PATIENCE)
    after = f"after A returned, while B ran, the workflow was {status.status} with output {status.output!r}"
    story.end(ACCEPTED if status.status == "SUCCESS" else REFUSED, after)


DBOS(
    config={
        "name": "zombie",
        "system_database_url": url,
        "executor_id": role,
        "application_version": "1",
        "console_log_level": "CRITICAL",
    }
)
DBOS.launch()
as_a() if role == "A" else as_b()
sys.stdout.flush()
os._exit(0)  # its threads may still wait for each other

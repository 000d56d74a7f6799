"""What this session holds, in step with what it does: Claude Code calls this after each tool, and when it would stop.

The lease is read off the answer to `claim`, and forgotten with `done`, `fail`, `release` and an `ask` that ends the
attempt. While there is one, every tool that is used is a check-in, at most one in half a minute; a lease that is lost
ends the session's work; and a session that would stop is told that it still holds a task. Under a supervisor the lease
is that of the attempt, and the supervisor sees to its end. Nothing here may get in the way: where the watch cannot be
reached, the work goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PREFIX = "mcp__allswell__"  # as an own server; of a plugin's, Claude Code puts the plugin's name before it
ENDS = ("done", "fail", "release")
EVERY = 30.0
"""Seconds between two check-ins."""
LOST = 4
"""What `allswell checkin` ends with when the lease is lost."""


def main() -> None:
    """Hear of one event, and answer it."""
    event = json.load(sys.stdin)
    folder = Path(os.environ.get("CLAUDE_PLUGIN_DATA") or Path.home() / ".cache" / "allswell")
    kept = folder / f"lease-{Path(event['session_id']).name}.json"
    supervised = "ALLSWELL_SOCKET" in os.environ
    held = json.loads(kept.read_text()) if kept.is_file() else None
    if held is None and supervised:
        held = {"task": os.environ["ALLSWELL_TASK"], "token": int(os.environ["ALLSWELL_TOKEN"]), "said": 0}
    if event["hook_event_name"] == "Stop":
        if held is not None and not supervised and not event.get("stop_hook_active"):
            why = f"You still hold {held['task']}: finish it with the tool done, or let it go with fail or release."
            print(json.dumps({"decision": "block", "reason": why}))
        return
    tool = event.get("tool_name", "")
    if PREFIX in tool.replace("plugin_allswell_", ""):
        after_own_tool(tool.rpartition("__")[2], event, kept)
    elif held is not None and time.time() - held["said"] >= EVERY:
        check_in(held, kept)


def after_own_tool(name: str, event: dict, kept: Path) -> None:
    """One of our own tools was called: it is a sign of life by itself, and tells what is held."""
    if name == "claim":
        for claim in answer_of(event).get("claims", ()):
            keep(kept, {"task": claim["task"]["task_id"], "token": claim["token"], "said": 0})
    elif name in ENDS or (name == "ask" and not event.get("tool_input", {}).get("hold")):
        kept.unlink(missing_ok=True)


def answer_of(event: dict) -> dict:
    """What a tool answered, however the client wraps it."""
    answer = event.get("tool_response")
    if isinstance(answer, dict) and "structuredContent" in answer:
        return answer["structuredContent"]
    if isinstance(answer, dict):
        answer = answer.get("content", answer)
    if isinstance(answer, list):
        answer = "".join(part.get("text", "") for part in answer if isinstance(part, dict))
    try:
        return json.loads(answer) if isinstance(answer, str) else answer or {}
    except ValueError:
        return {}


def check_in(held: dict, kept: Path) -> None:
    """Tell the watch that the work goes on."""
    command = ["allswell", "checkin", "--task", held["task"], "--token", str(held["token"]), "--json"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if said.returncode == LOST:
        kept.unlink(missing_ok=True)
        why = f"The lease on {held['task']} is lost: it is not yours any more. Stop working on it."
        print(json.dumps({"continue": False, "stopReason": why}))
        return
    keep(kept, {**held, "said": time.time()})
    orders = json.loads(said.stdout) if said.returncode == 0 else {}
    told = [f"{one['question_id']} was answered: {one['choice']} {one['answer']}" for one in orders.get("answers", ())]
    told += [f"{one} waits for your answer: call inbox" for one in orders.get("inbox", ())]
    if told:
        more = {"hookEventName": "PostToolUse", "additionalContext": "\n".join(told)}
        print(json.dumps({"hookSpecificOutput": more}))


def keep(kept: Path, held: dict) -> None:
    """Remember it, for the next event of the same session."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(held))
    kept.chmod(0o600)


if __name__ == "__main__":
    main()

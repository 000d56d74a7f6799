"""Answers Claude Code's `PreToolUse`: one call is allowed, every other one is left to Claude Code's own permissions.

It is run as a program of its own before each call of the tool, with the allowed call as its arguments: the tool, its
input as JSON, and the fields of an input that have no effect. It compares and matches nothing: the call is the same, or
it is not. What it cannot read it leaves alone, too. It imports nothing of ours, as it has to start quickly.
"""

from __future__ import annotations

import json
import sys


def is_allowed(event: object, tool: str, allowed: str, without_effect: list[str]) -> bool:
    """Whether this is the call that a human has allowed."""
    if not isinstance(event, dict) or event.get("tool_name") != tool or not isinstance(event.get("tool_input"), dict):
        return False
    acts = {name: value for name, value in event["tool_input"].items() if name not in without_effect}
    return json.dumps(acts, sort_keys=True) == json.dumps(json.loads(allowed), sort_keys=True)


def main() -> None:
    """Read the event from the standard input, and answer it on the standard output."""
    tool, allowed, *without_effect = sys.argv[1:]
    try:
        event = json.load(sys.stdin)
    except (ValueError, RecursionError):
        return
    if is_allowed(event, tool, allowed, without_effect):
        answer = {"permissionDecision": "allow", "permissionDecisionReason": "A human has allowed this call."}
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **answer}}))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()

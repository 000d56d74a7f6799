"""Answers Claude Code's `PreToolUse`: a call is allowed, refused, put off for a human, or left to its own permissions.

It is run as a program of its own before each call of a tool. The rules of the attempt are in a file: they tell what the
agent was told, and every user of the machine can read a command line. On that stand the file's path and the digest of
what was written there, since the agent could write it anew. The rules are read by `domain/agents/permission.py`, which
is loaded by its path: the package takes too long to import before each call. If this program fails while calls are to
be put off, or cannot know whether they are, it exits with 2: Claude Code makes no call then.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

_RULES = Path(__file__).parents[2] / "domain" / "agents" / "permission.py"


def main() -> int:
    """Read the event from the standard input, and answer it on the standard output."""
    rules: dict[str, object] = {"defer": True}
    try:
        rules = rules_in(*sys.argv[1:])
        spec = importlib.util.spec_from_file_location("permission", _RULES)
        assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it is a path of ours
        permission = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(permission)
        decision = permission.answer(json.load(sys.stdin), rules)
    except Exception as error:  # noqa: BLE001 - whatever it is, a call that should wait must not be made
        if not rules.get("defer"):
            return 0
        print(f"Allswell could not look at this call: {error}", file=sys.stderr)  # noqa: T201 - its answer
        return 2
    if decision:
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}))  # noqa: T201 - its answer
    return 0


def rules_in(path: str, digest: str) -> dict[str, object]:
    """The rules as they were written; `ValueError` if the file holds something else by now."""
    content = Path(path).read_bytes()
    if digest_of(content) != digest:
        raise ValueError(f"{path} was changed")
    rules: dict[str, object] = json.loads(content)
    return rules


def digest_of(content: bytes) -> str:
    """The digest of a file of rules."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


if __name__ == "__main__":
    sys.exit(main())

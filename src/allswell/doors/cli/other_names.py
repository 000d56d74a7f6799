"""What people type who come from other tools: other names of our commands, and words that mean one of them.

`status` and `ps` are typed by habit, so they are taken. The other words are not, for they mean something a little
different in each tool: whoever types one is told which command of ours it may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OTHER_NAMES: Mapping[str, str] = {"status": "", "ps": "agents"}
"""Names that are taken as they are typed; an empty one is `allswell` without a command."""
_MEANT: Mapping[str, Sequence[str]] = {
    "abort": ("cancel",),
    "add": ("submit",),
    "approve": ("answer",),
    "ack": ("dismiss",),
    "cat": ("logs", "show"),
    "create": ("submit", "init"),
    "delete": ("cancel",),
    "enqueue": ("submit",),
    "exec": ("run",),
    "history": ("events",),
    "ignore": ("dismiss",),
    "info": ("show",),
    "inspect": ("show",),
    "journal": ("events",),
    "kill": ("cancel",),
    "list": ("tasks",),
    "log": ("logs",),
    "ls": ("tasks",),
    "new": ("submit", "init"),
    "output": ("logs",),
    "queue": ("tasks",),
    "reply": ("answer",),
    "rerun": ("retry",),
    "restart": ("retry",),
    "resolve": ("answer",),
    "rm": ("cancel",),
    "serve": ("up",),
    "setup": ("init",),
    "start": ("up", "run"),
    "stop": ("cancel",),
    "tail": ("logs",),
    "top": ("watch",),
    "undo": ("recover",),
}


def by_our_name(words: Sequence[str]) -> list[str]:
    """A line as it is typed here: with our name for its command, where it begins with another one of it."""
    first, *rest = words or [""]
    if first == "help":
        return [*rest, "--help"]
    return [*OTHER_NAMES[first].split(), *rest] if first in OTHER_NAMES else list(words)


def meant_by(word: str, known: Sequence[str]) -> list[str]:
    """Commands of ours that somebody may mean who types this word."""
    return [name for name in _MEANT.get(word.casefold(), ()) if name in known]

"""Permissions for tool calls of Claude Code: which calls wait for a human, and which call a human has decided about.

Before each call Claude Code asks a program of ours (`runtime/attempt/permission_hook.py`). The program reads this file
by its path, without the rest of the package, because it must start quickly; so this file imports the standard library
alone.

The answer to one call, the first that fits:

    allow    it is the call that a human has allowed: the same tool, and the same input but for fields without effect
    deny     it is the call that a human has refused, compared in the same way
    defer    it matches a pattern of the agent's `defer`: Claude Code ends, and the call waits for a human
    nothing  all other calls: Claude Code's own permissions decide

A decision about a call that was deferred holds for that call alone: where the session goes on, its id must be the same.
Where the session could not go on, the agent has to make the call again, under another id; then tool and input decide.

A pattern is the name of a tool (`WebFetch`, `mcp__github__*`), or a name with what the call is about in brackets:
`Bash(git push*)`, `Edit(*.lock)`. `*` and `?` stand for any text and any sign. What stands in brackets is compared with
the fields that say most about a call (`_SPEAKS_FOR`). Of a shell command each part counts by itself, so that
`make && git push` matches `Bash(git push*)`. A shell has many ways to say the same thing, so a pattern keeps an honest
agent from a mistake; only the name alone (`Bash`) holds against an agent that means harm.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

PATTERNS_MOST = 50
PATTERN_LONGEST = 200
_COMPARED_MOST = 2 << 20
"""Characters of a call that are compared, parts included: the client waits for the answer for so long and no longer."""
_PATTERN = re.compile(r"([A-Za-z0-9_*?-]+)(?:\((.+)\))?", re.DOTALL)
_SPEAKS_FOR = ("command", "file_path", "path", "notebook_path", "url", "pattern", "query")
"""Which fields of an input a pattern is compared with, each that is there; else the whole input, as JSON."""
_SHELL_TOOLS = ("Bash", "PowerShell")
_BETWEEN_COMMANDS = re.compile(r"&&|\|\||[;|&\n(){}`]")
_PROGRAM = "claude"
_WITHOUT_HOOKS = ("--bare", "--safe-mode")


def why_no_hook(argv: Sequence[str]) -> str:
    """Why no hook of ours can decide about calls of an agent that is started so, in words; empty: one can."""
    if not argv or PurePath(argv[0]).name != _PROGRAM:
        return f"that takes a command that begins with {_PROGRAM}"
    for option in _WITHOUT_HOOKS:
        if option in argv:
            return f"{_PROGRAM} runs no hooks with {option}"
    if "--permission-mode=plan" in argv or ("--permission-mode", "plan") in itertools.pairwise(argv):
        return f"{_PROGRAM} only plans"
    return ""


PLUGIN = "allswell-permissions"
"""The plugin with our hook, by its name."""
_SETTINGS = "--settings"
_KEPT_ON: Mapping[str, object] = {
    "disableAllHooks": False,
    "enabledPlugins": {f"{PLUGIN}@inline": True},
    "env": {"CLAUDE_CODE_SIMPLE": "", "CLAUDE_CODE_SAFE_MODE": ""},
}
"""Settings without which files in the folder of an agent could switch our hook off: a clone's, or the agent's own."""


def without_settings(argv: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """A command without the settings that it names, and the last of these, which counts: a file, or JSON."""
    words, named, rest = [], "", iter(argv)
    for word in rest:
        if word == "--":
            words += [word, *rest]
        elif word == _SETTINGS:
            named = next(rest, "")
        elif word.startswith(f"{_SETTINGS}="):
            named = word.partition("=")[2]
        else:
            words.append(word)
    return tuple(words), named


def with_hooks_on(settings: str) -> str:
    """Settings, as JSON, with which no others can switch our hook off; `ValueError` if they are no object."""
    import json  # 1.5 ms, and what reads settings imports this module

    named = json.loads(settings or "{}")
    if not isinstance(named, dict):
        raise ValueError("not an object")  # noqa: TRY004 - as for what is no JSON at all
    for name, value in _KEPT_ON.items():
        own = named.get(name)
        named[name] = {**own, **value} if isinstance(value, dict) and isinstance(own, dict) else value
    return json.dumps(named)


def wrong_with_patterns(patterns: Sequence[str]) -> str:
    """What is wrong with the patterns of an agent's `defer`, in words; empty if nothing is."""
    if len(patterns) > PATTERNS_MOST:
        return f"{len(patterns)} patterns are too many; at most {PATTERNS_MOST}"
    for pattern in patterns:
        if len(pattern) > PATTERN_LONGEST or not _PATTERN.fullmatch(pattern):
            return f"{pattern[:80]!r} is not a tool such as WebFetch, or a call such as Bash(git push*)"
    return ""


def waits(patterns: Sequence[str], tool: str, call_input: object) -> bool:
    """Whether a call matches one of the patterns, and so waits for a human; one too long to be compared does."""
    matches = [match for pattern in patterns if (match := _PATTERN.fullmatch(pattern)) and _fits(tool, match[1])]
    if not matches or any(match[2] is None for match in matches):
        return bool(matches)
    texts = _texts(tool, call_input)
    if sum(map(len, texts)) > _COMPARED_MOST:
        return True
    fits = re.compile(
        "|".join(fnmatch.translate(_plain(match[2])) for match in matches)
    ).match  # at once: parts are many
    return any(map(fits, texts))


def _fits(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, _plain(pattern))


def _plain(pattern: str) -> str:
    return pattern.replace("[", "[[]")  # a bracket stands for itself


def _texts(tool: str, call_input: object) -> list[str]:
    import json  # 1.5 ms, and what reads settings imports this module

    fields = call_input if isinstance(call_input, dict) else {}
    texts = [value for name in _SPEAKS_FOR if isinstance(value := fields.get(name), str)]
    if not texts:
        return [json.dumps(call_input, sort_keys=True)]
    parts = [part.strip() for text in texts for part in _BETWEEN_COMMANDS.split(text)] if tool in _SHELL_TOOLS else []
    return [*texts, *parts]


def answer(event: object, rules: Mapping[str, object]) -> dict[str, str]:
    """What a hook answers to a call that is about to be made; empty: Claude Code's own permissions decide.

    `rules` are `hook_rules` as they were read; an event that is not one about a call is left alone.
    """
    if not isinstance(event, dict) or "tool_name" not in event:
        return {}
    tool, call_input = str(event["tool_name"]), event.get("tool_input")
    decision = rules.get("decision")
    if isinstance(decision, dict) and _is_decided(decision, tool, call_input, event.get("tool_use_id")):
        refused, context = str(decision.get("refused", "")), str(decision.get("context", ""))
        beside = {"additionalContext": context} if context else {}
        if refused:
            return {"permissionDecision": "deny", "permissionDecisionReason": refused, **beside}
        return {"permissionDecision": "allow", "permissionDecisionReason": "A human has allowed this call.", **beside}
    patterns = rules.get("defer")
    if isinstance(patterns, list) and waits(patterns, tool, call_input):
        return {"permissionDecision": "defer", "permissionDecisionReason": "This call waits for a human."}
    return {}


def _is_decided(decision: Mapping[str, object], tool: str, call_input: object, call_id: object) -> bool:
    import json  # 1.5 ms, and what reads settings imports this module

    if (
        not isinstance(call_input, dict)
        or decision.get("tool") != tool
        or decision.get("id") not in ("", None, call_id)
    ):
        return False
    without_effect = decision.get("without_effect")
    skipped = without_effect if isinstance(without_effect, list) else []
    acts = {name: value for name, value in call_input.items() if name not in skipped}
    decided = json.loads(str(decision.get("input")))
    return json.dumps(acts, sort_keys=True) == json.dumps(decided, sort_keys=True)

"""Calls that an agent's program refused to make for want of a permission: a remark beside the end of its attempt.

An agent works around most refusals, so a refused call says nothing about its task. It is told as a warning. Only where
the agent's own end says that it could not go on does a human decide (lease/holder.py), who may allow one call for the
next attempt. What may be allowed is that call and no other: its tool, and every field of its input that changes what it
does. A call is never turned into a pattern, so nothing in its text can widen what is allowed.

A call that a human cannot read whole in the question is not offered, nor is one that the user's own rules or hooks
refuse: those count more than a human's answer to us.

Claude Code lists its refusals in the last line (`permission_denials`), without their reasons. From 2.1.3 on each is
also told when it happens (`system/permission_denied`, `tool_result_meta`), with what refused it. Codex lists none.
All of it is read in output.py (`denied_in`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.permission import waits
from allswell.domain.ids import Token
from allswell.domain.values import end_of, start_of
from allswell.errors import Refused

CALLS_MOST = 5
"""Different calls that are kept of one attempt; the rest is counted."""
NAMED = 3
"""Calls that a remark names."""
INPUT_MOST = 600
"""Characters of a call that can be allowed: a human has to read all of them."""
REASON_MOST = 2_000
"""Characters of the answer to a call that was refused."""
CONTEXT_MOST = 16_000
"""Characters of what an agent is told along with a decision; what is newest stands last, and stays."""
SHOWN = 80
"""Characters of a call in a remark."""
_TOOL_MOST = 100
_TEXT_MOST = 4_000
SPEAKS_FOR = ("command", "file_path", "path", "notebook_path", "url", "pattern", "query")
"""Which field of an input is shown of a call, the first that is there; else all of it."""
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {"Bash": ("description", "timeout"), "WebFetch": ("prompt",)}
"""By tool: the fields that an agent words differently each time, and that do not change what the call does."""


class DeniedCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One call that was refused."""

    tool: str
    text: str
    """The call in a few words, on one line."""
    input: str = ""
    """What it does, whole, as JSON with sorted keys; empty where that is too long."""
    barred: str = ""
    """Why it cannot be allowed, in words; empty: it can be."""
    id: str = ""
    """Of a call that a hook has put off: by which the session knows it, and goes on with it."""


class Denied(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The calls that were refused in one attempt; `calls` are the different ones, at most `CALLS_MOST`."""

    calls: tuple[DeniedCall, ...] = ()
    count: int = 0
    no_allow: str = ""
    """Why none of them can be allowed, in words: how the agent is started decides that."""
    work: str = ""
    """Where the attempt has worked, in words."""


class DecidedCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A call that a human has allowed or refused, for one attempt."""

    token: Token
    """Of the attempt."""
    tool: str
    input: str
    """As of the denied call."""
    id: str = ""
    """Of a call that waited for the decision: by which the session knows it."""
    refused: str = ""
    """What the agent is answered, where the call was refused; empty: it was allowed."""


NOTHING_DENIED = Denied()


def denied_call(tool: str, given: object, barred: str = "") -> DeniedCall:
    """A refused call as it is kept: bounded, and exact where it can be allowed."""
    acts = given
    if isinstance(given, Mapping):
        acts = {name: value for name, value in given.items() if name not in WITHOUT_EFFECT.get(tool, ())}
    exact = msgspec.json.encode(acts, order="sorted").decode()
    if not isinstance(acts, dict) or not tool.isascii() or not tool.isprintable() or len(tool) > _TOOL_MOST:
        barred = barred or "it is not plain what it does"
    elif len(exact) > INPUT_MOST:
        barred = barred or "it is too long to be read whole"
    return DeniedCall(tool[:_TOOL_MOST], call_in_short(tool, acts), exact if len(exact) <= INPUT_MOST else "", barred)


_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def hook_rules(
    decision: DecidedCall | None, patterns: Sequence[str], *, same_session: bool, context: str = ""
) -> dict[str, object]:
    """What the hook of an attempt is told (`permission.answer` reads it).

    Only where the session goes on is a decision about a deferred call bound to the id of that call. `context` is what
    the agent is told along with the decision, where it gets no message of its own.
    """
    rules: dict[str, object] = {"defer": list(patterns)}
    if decision is not None:
        rules["decision"] = {
            "tool": decision.tool,
            "input": decision.input,
            "id": decision.id if same_session else "",
            "refused": decision.refused,
            "context": end_of(context, CONTEXT_MOST),
            "without_effect": list(WITHOUT_EFFECT.get(decision.tool, ())),
        }
    return rules


def is_call_id(text: object) -> bool:
    """Whether it can be the id of a call, as a client names it."""
    return isinstance(text, str) and _CALL_ID.fullmatch(text) is not None


def waiting_call(denied: Denied) -> DeniedCall | None:
    """The call that waits for a human, and that a human can decide about here."""
    return None if denied.no_allow else next((call for call in denied.calls if call.id and not call.barred), None)


def waiting_by_our_hook(denied: Denied, patterns: Sequence[str]) -> Denied:
    """Refused calls, where our hook has put one off: it can be decided about here, unless it cannot be read whole."""
    calls = tuple(_ours(call) if call.id and _matches(call, patterns) else call for call in denied.calls)
    return replace(denied, calls=calls)


def _matches(call: DeniedCall, patterns: Sequence[str]) -> bool:
    given = _decoded(call.input)
    return isinstance(given, dict) and waits(patterns, call.tool, given)


def _ours(call: DeniedCall) -> DeniedCall:
    return replace(denied_call(call.tool, _decoded(call.input)), id=call.id)


def call_in_short(tool: str, acts: object) -> str:
    """A call in a few words, on one line."""
    text: object = ""
    if isinstance(acts, Mapping):
        text = next((acts[name] for name in SPEAKS_FOR if isinstance(acts.get(name), str)), acts or "")
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    name, shown = _on_one_line(tool[:_TEXT_MOST])[:_TOOL_MOST], _on_one_line(text[:_TEXT_MOST])  # each sign takes time
    shown = start_of(shown, SHOWN)
    return f"{name}({shown})" if shown else name


def _on_one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def check_denied(denied: Denied) -> None:
    """Refuse what cannot be the refused calls of an attempt: it comes from a supervisor, which may be elsewhere."""
    texts = (denied.no_allow, denied.work, *(part for call in denied.calls for part in (call.text, call.barred)))
    if len(denied.calls) > CALLS_MOST or any(len(text) > _TEXT_MOST or not text.isprintable() for text in texts):
        raise Refused("bad_denied", "these are too many refused calls, or they are not plain", where="denied")
    for call in denied.calls:
        if call.id and not is_call_id(call.id):
            raise Refused("bad_denied", "the id of a call has 1 to 100 of A-Z a-z 0-9 _ -", where="denied")
        if not call.barred and denied_call(call.tool, _decoded(call.input)) != replace(call, barred="", id=""):
            raise Refused("bad_denied", f"{call.tool[:_TOOL_MOST]!r} is not spelled out", where="denied")


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


# --- in words ---------------------------------------------------------------------------------------------------------


def call_text(call: DeniedCall) -> str:
    """A call as a permission rule would name it; of one that can be allowed it says everything.

    What is not printable, or would read as something else, is shown as JSON with escapes.
    """
    if call.barred:
        return call.text
    given = msgspec.json.decode(call.input, type=dict[str, object])
    command = given.get("command")
    if len(given) == 1 and isinstance(command, str) and _is_plain(command):
        return f"{call.tool}({command})"
    escaped = "".join(char if char.isascii() and char.isprintable() else _escape(char) for char in call.input)
    return f"{call.tool}({escaped})"


def _is_plain(command: str) -> bool:
    """Whether a command reads between brackets as what it is."""
    odd = not command.isascii() or not command.isprintable() or command != command.strip()
    return not odd and not set("()\\") & set(command)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def remark(denied: Denied) -> str:
    """That calls were refused, and which, in a sentence; empty if none were."""
    if not denied.count:
        return ""
    names = list(dict.fromkeys(call.text for call in denied.calls))
    more = ", …" if len(names) > NAMED or len(denied.calls) == CALLS_MOST else ""
    which = f": {', '.join(names[:NAMED])}{more}" if names else ""
    return f"1 call was refused{which}" if denied.count == 1 else f"{denied.count} calls were refused{which}"


def refused_note(call: DeniedCall) -> str:
    """What the next holder is told of a call that a human has refused."""
    return f"This call is refused: {call_text(call)}. Do not make it in another way."


def allowed_note(attempt: int, call: DeniedCall) -> str:
    """What the next holder is told of a call that a human has allowed."""
    return f"In attempt {attempt}, and in no later one, this call is allowed, exactly as written: {call_text(call)}"

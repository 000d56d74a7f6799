"""What Claude Code or Codex tells Allswell, and what it is answered: it starts this program at its events.

Inside an attempt (`ALLSWELL_SOCKET`) it speaks to the supervisor. Each call of a tool is reported, as evidence of
progress; an attempt that has lost its lease is stopped at its next tool; what came for the agent is told to it; and
what waits for a human is reported at once.

A session of its own that has claimed a task with our tools holds a lease: it is read off the answer to `claim`, and
forgotten with `done`, `fail`, `release` and an `ask` that ends the attempt. Every tool that is used is a check-in, at
most one in half a minute; a lease that is lost ends the session's work; a session that would stop is told once that it
still holds a task.

Claude Code ends a turn when it is told to. Codex goes on with what it was answered: there a session that is to stop is
refused every further call, until its next prompt.

A session that a human has started in a folder that has a watch is listed, and that it waits for its human is told
once: another process does that, which the session does not wait for. Programs that start a client (`claude -p`) are no
humans.

Nothing here may get in the way of a session: this program imports little and nothing of the package, takes a few
milliseconds, ends by itself after `PATIENCE` seconds, and says nothing where anything is wrong. No text of an event
becomes part of a command.
"""

from __future__ import annotations

import _socket  # what `socket` imports beside it takes as long as all the rest
import json
import os
import re
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PATIENCE = 5
"""Seconds after which it ends without an answer."""
EVENT_MOST = 4 << 20
"""Bytes of an event; of a longer one nothing is known but that a tool was called."""
PART_MOST = 64 << 10
"""Characters that are passed on of the input of a call, and of its answer."""
NAME_MOST = 200
TEXT_MOST = 1_000
REPLY_MOST = 1 << 20
EVERY = 30.0
"""Seconds between two check-ins of a session that has claimed a task."""
LOST = 4
"""What `allswell checkin` ends with when the lease is lost."""
OURS = "mcp__allswell__"
PLUGGED = "plugin_allswell_"
"""What Claude Code puts before the name of a server that a plugin brings."""
LAST_WORDS = ("done", "fail", "release")
TOOL_EVENTS = ("PostToolUse", "PostToolUseFailure")
CHANGES = {
    "SessionStart": "begins",
    "Notification": "waits",
    "StopFailure": "waits",
    "UserPromptSubmit": "goes_on",
    **dict.fromkeys(TOOL_EVENTS, "goes_on"),
    "SessionEnd": "ends",
}
"""What an event means for a session that a human has started."""
NOT_WAITING = ("auth_success", "elicitation_complete", "elicitation_response", "push_notification")
"""Notifications by which nothing waits for its human."""
CODEX = "codex"
STARTED_BY_HUMAN = re.compile(rb'"source":"(cli|vscode)"')
"""In what Codex keeps of a session: a human has started it, no program (`exec`) and no agent."""
HEAD = 4 << 10
"""Bytes of that, its beginning."""
DIFFERS = ("durationMs", "durationSeconds", "duration_ms", "totalDurationMs")
"""Fields of an answer that differ although it is the same."""


def main() -> None:
    """Hear of one event, and answer it; the first word is its program, the others start Allswell."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.alarm(PATIENCE)
    try:
        answer = hear(sys.stdin.buffer.read(EVENT_MOST), sys.argv[1], sys.argv[2:])
        if answer:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    except Exception:  # noqa: BLE001, S110 - whatever it is, the session goes on
        pass


def hear(text: bytes, client: str, allswell: Sequence[str]) -> dict[str, Any] | None:
    """The answer to an event, if there is one; `allswell` are the words that start Allswell."""
    event = json.loads(text) if len(text) < EVENT_MOST else {"hook_event_name": TOOL_EVENTS[0]}
    session = event.get("session_id")
    if not isinstance(session, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", session):
        session = ""
    if client == CODEX:
        return hear_codex(event, session, allswell)
    if os.environ.get("ALLSWELL_SOCKET"):
        return in_attempt(event)
    if not session:
        return None
    if not os.environ.get("CLAUDE_CODE_ENTRYPOINT", "cli").startswith("sdk"):
        report(event, client, session, allswell)
    return with_lease(event, session, allswell)


# --- Codex ------------------------------------------------------------------------------------------------------------


def hear_codex(event: dict[str, Any], session: str, allswell: Sequence[str]) -> dict[str, Any] | None:
    """The same for Codex, which has other events, and goes on where a hook says that it must not."""
    kind, ended = event.get("hook_event_name"), f"{data_folder()}/ended-{session}"
    if kind == "PreToolUse":
        return refusal() if session and os.path.exists(ended) else None
    if session and kind in ("UserPromptSubmit", "SessionEnd"):
        remove(ended)
    path = event.get("transcript_path")
    if kind == "PermissionRequest":
        event = as_notification("permission_request", f"Codex needs your permission to use {event.get('tool_name')}")
    if os.environ.get("ALLSWELL_SOCKET"):
        answer = in_attempt(event)
    elif session:
        answer = with_lease(event, session, allswell)
        if kind == "Stop" and answer is None:
            event = as_notification("turn_ended", "Codex has ended its turn, and waits for your next message")
        if has_human(path):
            report(event, CODEX, session, allswell)
    else:
        return None
    if session and answer is not None and answer.get("continue") is False:
        keep(ended, {})
    return answer


def as_notification(why: str, text: str) -> dict[str, Any]:
    """That it waits for a human, as Claude Code says it."""
    return {"hook_event_name": "Notification", "notification_type": why, "message": text}


def refusal() -> dict[str, Any]:
    """No call of a tool is made any more."""
    why = "Allswell: this session was told to stop: its task is not its own any more. Stop working."
    decision = {"permissionDecision": "deny", "permissionDecisionReason": why}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def has_human(path: object) -> bool:
    """Whether a human sits at a session of Codex, as far as its own record of it says so."""
    if not isinstance(path, str):
        return False
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return STARTED_BY_HUMAN.search(file.read(HEAD)) is not None
    except OSError:
        return False


# --- inside an attempt ------------------------------------------------------------------------------------------------


def in_attempt(event: dict[str, Any]) -> dict[str, Any] | None:
    """Report the event to the supervisor; what its answer means for the session."""
    kind = event.get("hook_event_name")
    if kind in TOOL_EVENTS:
        return after_tool(say(tool_of(event)))
    if kind == "Notification":
        text, why = event.get("message"), event.get("notification_type")
    elif kind == "StopFailure":
        text, why = event.get("error_details") or event.get("last_assistant_message"), event.get("error")
    else:
        return None
    say({"verb": "notice", "kind": short(why, NAME_MOST), "text": short(text, TEXT_MOST), "event": kind})
    return None


def tool_of(event: dict[str, Any]) -> dict[str, Any]:
    """A call of a tool as the supervisor is told of it."""
    answer = event.get("tool_response", event.get("error"))
    if isinstance(answer, dict):
        answer = {name: value for name, value in answer.items() if name not in DIFFERS}
    call_input = event.get("tool_input")
    if len(json.dumps(call_input)) > PART_MOST:
        call_input = part(call_input)
    return {
        "verb": "tool",
        "name": short(event.get("tool_name"), NAME_MOST),
        "call": short(event.get("tool_use_id"), NAME_MOST),
        "input": call_input,
        "answer": part(answer),
        "failed": event.get("hook_event_name") != TOOL_EVENTS[0],
    }


def part(value: object) -> str:
    """As much of a value as is passed on; of two that differ, what is passed on differs in most cases."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if len(text) > PART_MOST:
        text = f"{len(text)} {text[: PART_MOST // 2]}{text[-PART_MOST // 2 :]}"
    return text.replace("\0", "")


def short(value: object, most: int) -> str:
    """A text of an event, not longer than that."""
    return value[:most].replace("\0", "") if isinstance(value, str) else ""


def say(message: dict[str, Any]) -> dict[str, Any]:
    """Send a message to the supervisor of this attempt, and read its answer."""
    message["secret"] = os.environ.get("ALLSWELL_SECRET", "")
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.connect(os.environ["ALLSWELL_SOCKET"])
    line.sendall(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    pieces = bytearray()
    while not pieces.endswith(b"\n") and len(pieces) < REPLY_MOST and (piece := line.recv(65_536)):
        pieces += piece
    reply: dict[str, Any] = json.loads(pieces)
    return reply


def after_tool(reply: dict[str, Any]) -> dict[str, Any] | None:
    """Stop the session where its lease is lost or it is being ended; else tell it what came for it."""
    stop = (reply.get("orders") or {}).get("stop")
    if reply.get("error") == "LeaseLost":
        stop = f"the lease on this task is lost ({reply.get('message')}): it is not yours any more"
    if stop:
        return {"continue": False, "stopReason": f"Allswell: {short(stop, TEXT_MOST)}. Stop working."}
    news = [short(text, TEXT_MOST) for text in reply.get("news") or ()]
    return with_news(news)


def with_news(news: Sequence[str]) -> dict[str, Any] | None:
    """Tell the session what came for it."""
    if not news:
        return None
    return {"hookSpecificOutput": {"hookEventName": TOOL_EVENTS[0], "additionalContext": "\n".join(news)}}


# --- a session that a human has started -------------------------------------------------------------------------------


def report(event: dict[str, Any], client: str, session: str, allswell: Sequence[str]) -> None:
    """Have the session listed; that it waits is reported once, until it goes on."""
    kind, waiting = event.get("hook_event_name"), f"{data_folder()}/waits-{session}"
    change = CHANGES.get(str(kind))
    why = short(event.get("notification_type") or event.get("error") or kind, NAME_MOST)
    if change is None or (change == "waits" and why in NOT_WAITING):
        return
    if change == ("waits" if os.path.exists(waiting) else "goes_on") or not has_watch(os.getcwd()):
        return
    if change == "waits":
        keep(waiting, {})
    else:
        remove(waiting)
    text = short(event.get("message") or event.get("error_details"), TEXT_MOST)
    words = ["session", change, f"--client={client}", f"--id={session}", f"--pid={os.getppid()}"]
    if change == "waits":
        words += [f"--kind={why}", f"--text={text}"]
    start([*allswell, *words])


def has_watch(folder: str) -> bool:
    """Whether Allswell could be in use here: it looks closer before it touches anything."""
    if os.environ.get("ALLSWELL_STORE"):
        return True
    home = os.path.expanduser("~")
    while not any(os.path.exists(f"{folder}/{name}") for name in (".allswell", "allswell.toml")):
        above = os.path.dirname(folder)
        if folder in (home, above):
            config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
            return os.path.exists(f"{config}/allswell/allswell.toml")
        folder = above
    return True


def start(words: list[str]) -> None:
    """Start a command that goes on by itself, in a session of its own, and says nothing."""
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    os.posix_spawnp(words[0], words, os.environ, file_actions=nowhere, setsid=True)


# --- a session that has claimed a task with our tools -----------------------------------------------------------------


def with_lease(event: dict[str, Any], session: str, allswell: Sequence[str]) -> dict[str, Any] | None:
    """Keep the lease of a session that claims tasks in step with what it does."""
    kind = event.get("hook_event_name")
    kept = f"{data_folder()}/lease-{session}.json"
    if kind == "SessionEnd":
        remove(kept)
        return None
    held = read(kept)
    if kind == "Stop":
        if held is None or event.get("stop_hook_active"):
            return None
        why = f"You still hold {held['task']}: finish it with the tool done, or let it go with fail or release."
        return {"decision": "block", "reason": why}
    if kind not in TOOL_EVENTS:
        return None
    tool = str(event.get("tool_name"))
    if OURS in tool.replace(PLUGGED, ""):
        after_own_tool(tool.rpartition("__")[2], event, kept)
    elif held is not None and not 0 <= time.time() - held["said"] < EVERY:
        return check_in(held, kept, allswell)
    return None


def after_own_tool(name: str, event: dict[str, Any], kept: str) -> None:
    """One of our own tools was called: it is a sign of life by itself, and tells what is held."""
    if name == "claim":
        for claim in answer_of(event).get("claims", ()):
            keep(kept, {"task": str(claim["task"]["task_id"]), "token": int(claim["token"]), "said": 0})
    elif name in LAST_WORDS or (name == "ask" and not event.get("tool_input", {}).get("hold")):
        remove(kept)


def answer_of(event: dict[str, Any]) -> dict[str, Any]:
    """What a tool answered, however the client wraps it."""
    answer = event.get("tool_response")
    if isinstance(answer, dict) and isinstance(answer.get("structuredContent"), dict):
        return dict(answer["structuredContent"])
    if isinstance(answer, dict):
        answer = answer.get("content", answer)
    if isinstance(answer, list):
        answer = "".join(item.get("text", "") for item in answer if isinstance(item, dict))
    read_answer = json.loads(answer) if isinstance(answer, str) else answer
    return read_answer if isinstance(read_answer, dict) else {}


def check_in(held: dict[str, Any], kept: str, allswell: Sequence[str]) -> dict[str, Any] | None:
    """Tell the watch that the work goes on; what its answer means for the session."""
    import subprocess

    command = [*allswell, "checkin", "--task", held["task"], "--token", str(held["token"]), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE - 1, check=False)
    if done.returncode == LOST:
        remove(kept)
        why = f"The lease on {held['task']} is lost: it is not yours any more. Stop working on it."
        return {"continue": False, "stopReason": why}
    keep(kept, {**held, "said": time.time()})
    orders = json.loads(done.stdout) if done.returncode == 0 else {}
    news = [
        f"{item['question_id']} was answered: {item['choice']} {item['answer']}" for item in orders.get("answers", ())
    ]
    news += [f"{request} waits for your answer: call inbox" for request in orders.get("inbox", ())]
    return with_news([short(text, TEXT_MOST) for text in news])


def data_folder() -> str:
    """Where the client lets a plugin keep something; without a plugin, a folder of ours."""
    return os.environ.get("CLAUDE_PLUGIN_DATA") or os.path.expanduser("~/.cache/allswell")


def read(path: str) -> dict[str, Any] | None:
    """What was kept there; None if nothing was."""
    try:
        with open(path, "rb") as file:
            kept = json.loads(file.read(TEXT_MOST))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) and {"task", "token", "said"} <= kept.keys() else None


def keep(path: str, held: dict[str, Any]) -> None:
    """Remember it, for the next event of the same session."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    opened = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(opened, "w", encoding="utf-8") as file:
        json.dump(held, file)
    os.replace(f"{path}.new", path)


def remove(path: str) -> None:
    """Forget it."""
    try:
        os.remove(path)
    except OSError:
        pass


if __name__ == "__main__":
    main()

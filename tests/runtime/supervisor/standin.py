"""A scripted stand-in for a coding agent: it speaks the output formats of the real ones, and misbehaves as they do.

Run as `python -I -S standin.py PART`, so that it starts at once; it imports nothing of ours. A PART is what to do, with
arguments after colons; several stand one after the other, with commas: `claude:init,sleep:0.2,claude:result`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ME = f"session-{os.getpid()}"


def out(line: object) -> None:
    sys.stdout.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    sys.stdout.flush()


def say(**word: object) -> object:
    """Speak to the supervisor, as `allswell checkin` would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(os.environ["ALLSWELL_SOCKET"])
        line.sendall(json.dumps({"secret": os.environ["ALLSWELL_SECRET"], **word}).encode() + b"\n")
        return json.loads(line.makefile().readline())


USE = {"command": "touch x"}
ENDS: dict[str, dict[str, object]] = {
    "result": {"api_error_status": None, "permission_denials": [], "terminal_reason": "completed"},
    "denied": {"permission_denials": [{"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": USE}]},
    "deferred": {"terminal_reason": "tool_deferred", "deferred_tool_use": {"name": "Bash", "input": USE}},
    "stopped": {"terminal_reason": "hook_stopped"},
    "429": {"is_error": True, "api_error_status": 429, "result": "API Error: Request rejected (429)"},
    "500": {"is_error": True, "api_error_status": 500, "result": "API Error: 500"},
}
"""The last line of Claude Code 2.1, by how it ended; each of them comes with exit code 0."""


def claude(what: str = "result", *more: str) -> None:
    """Lines as `claude -p --output-format stream-json` prints them."""
    if what == "init":
        out({"type": "system", "subtype": "init", "session_id": ME, "tools": []})
    elif what == "tool":
        use = {"type": "tool_use", "name": "Bash", "input": {}}
        out({"type": "assistant", "session_id": ME, "message": {"content": [use]}})
    elif what == "text":
        text = {"type": "text", "text": ":".join(more).replace("|", "\n")}
        out({"type": "assistant", "session_id": ME, "message": {"content": [text]}})
    elif what == "lifecycle":
        out({"type": "command_lifecycle", "command_uuid": "u", "state": "completed", "session_id": ME})
    elif what == "limit":
        info = {"status": "rejected", "resetsAt": int(time.time()) + int(more[0]), "rateLimitType": "five_hour"}
        out({"type": "rate_limit_event", "session_id": ME, "rate_limit_info": info})
    elif what == "used":
        info = {"status": "allowed_warning", "utilization": float(more[0]), "resetsAt": int(time.time()) + 3600}
        out({"type": "rate_limit_event", "session_id": ME, "rate_limit_info": info})
    else:
        out(
            {"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": ME} | ENDS[what]
        )


def codex(what: str = "done", *more: str) -> None:
    """Lines as `codex exec --json` prints them."""
    if what == "failed":
        out({"type": "thread.started", "thread_id": ME})
        out({"type": "turn.failed", "error": {"message": f"unexpected status {more[0]}: no"}})
        return
    if what == "limit":
        text = f"You've hit your usage limit. Try again in {more[0]} seconds."
        out({"type": "error", "message": text})
        out({"type": "turn.failed", "error": {"message": text}})
        sys.exit(1)
    out({"type": "thread.started", "thread_id": ME})
    out({"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": "done"}})
    out({"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}})


def plain(*words: str) -> None:
    """Text as any program prints it; `|` is a line's end."""
    out(":".join(words).replace("|", "\n"))


def talk(seconds: str = "60") -> None:
    """Reports one step after the other, as an agent at work does, and writes a file with each."""
    end, number = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        number += 1
        use = {"type": "tool_use", "name": "Bash", "id": f"toolu_{number}", "input": {}}
        out({"type": "assistant", "session_id": ME, "message": {"content": [use]}})
        Path("talked.txt").write_text(str(number))
        time.sleep(0.1)


def circle(times: str = "100000", pause: str = "0.02") -> None:
    """Calls one tool with the same arguments, and gets the same answer, so many times."""
    for number in range(int(times)):
        use = {"type": "tool_use", "name": "Read", "id": f"r{number}", "input": {"file_path": "/src/lexer.py"}}
        got = {"type": "tool_result", "tool_use_id": f"r{number}", "content": "1\tx = 1"}
        out({"type": "assistant", "session_id": ME, "message": {"content": [use]}})
        out({"type": "user", "session_id": ME, "message": {"content": [got]}})
        time.sleep(float(pause))


def spends(times: str = "100000", model: str = "claude-sonnet-4-5", pause: str = "0.05") -> None:
    """Prints messages that take tokens, 25,500 millionths of a dollar each."""
    took = {"input_tokens": 1000, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 30000}
    for number in range(int(times)):
        said = {"id": f"m{number}", "model": model, "content": [], "usage": {**took, "output_tokens": 400}}
        out({"type": "assistant", "session_id": ME, "message": said})
        time.sleep(float(pause))


def wait_for(name: str) -> None:
    """Waits until a file is there."""
    while not Path(name).exists():
        time.sleep(0.02)


def sleep(seconds: str = "0.1") -> None:
    time.sleep(float(seconds))


def hang() -> None:
    """Nothing any more, for ever."""
    while True:
        time.sleep(3600)


def spin() -> None:
    """A spinner that repaints for ever: output, and no progress."""
    while True:
        for sign in "|/-\\":
            sys.stdout.write(f"\r{sign} thinking")
            sys.stdout.flush()
            time.sleep(0.05)


def crash(code: str = "1") -> None:
    """Ends with an exit code; 0 means by a signal."""
    if code == "0":
        os.kill(os.getpid(), signal.SIGSEGV)
    sys.stderr.write("it broke\n")
    sys.exit(int(code))


def flood(megabytes: str = "20") -> None:
    """Prints far more than anybody reads."""
    line = ("x" * 1023 + "\n") * 1024
    for _ in range(int(megabytes)):
        sys.stdout.write(line)


def stubborn() -> None:
    """Ignores SIGTERM, and its children too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal,time\nsignal.signal(15, 1)\ntime.sleep(3600)"])


def daemon() -> None:
    """Leaves somebody behind: a double fork in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)


def write(name: str, text: str = "half of it") -> None:
    """A file in the folder it works in."""
    Path(name).write_text(text)


def torn(name: str) -> None:
    """Stops in the middle of a file."""
    with Path(name).open("w") as file:
        while True:
            file.write("line after line\n")
            file.flush()
            time.sleep(0.01)


def checkin(note: str = "still at it", progress: str = "") -> None:
    """Checks in by its socket."""
    word: dict[str, object] = {"verb": "checkin", "note": note}
    if progress:
        word["progress"] = float(progress)
    say(**word)


def listen(seconds: str = "5") -> None:
    """Answers each line on its input with a checkpoint, for so long."""
    signal.alarm(int(float(seconds)))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
    for line in sys.stdin:
        out(
            f"CHECKPOINT: {os.environ['ALLSWELL_TASK']}\nStatus: heard {line[:20].strip()!r}\nEstimated Progress: 30%\n"
        )


def read(seconds: str = "5") -> None:
    """Looks into the file that names its orders, and answers each new one with a checkpoint."""
    place, seen = Path(sys.argv[2]), ""
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        if place.exists() and (text := place.read_text()) != seen and text:
            seen = text
            out(f"CHECKPOINT: {os.environ['ALLSWELL_TASK']}\nStatus: read it\nEstimated Progress: 30%\n")
        time.sleep(0.05)


def obey(seconds: str = "5") -> None:
    """Asks for its orders again and again, and checks in when one is asked for."""
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        told = say(verb="look")
        assert isinstance(told, dict)
        if "order" in told["orders"].get("more", {}):
            say(verb="checkin", note="as you asked", progress=0.4)
        time.sleep(0.05)


def ask(text: str = "which one?", hold: str = "") -> None:
    """Asks a human."""
    say(verb="ask", text=text, hold=bool(hold))


def request(role: str) -> None:
    """Asks another agent."""
    say(verb="request", role=role, name="help me")


PARTS = {
    function.__name__: function
    for function in (
        *(
            claude,
            codex,
            plain,
            talk,
            circle,
            spends,
            wait_for,
            sleep,
            hang,
            spin,
            crash,
            flood,
            stubborn,
            daemon,
            write,
            torn,
        ),
        *(checkin, listen, read, obey, ask, request),
    )
}


def main() -> None:
    for part in sys.argv[1].split(","):
        name, *arguments = part.split(":")
        PARTS[name](*arguments)


if __name__ == "__main__":
    main()

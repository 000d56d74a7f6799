"""Stands between our client and an agent that speaks ACP, and writes down what passes, each message with who sent it.

    python tap.py FILE -- claude-agent-acp …

A line of the file is `{"by": "client" or "agent", "frame": …}`. Nothing is changed on the way. `tests/clients/wire.py`
reads such files, and makes recordings of them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

_LOCK = threading.Lock()


def pass_on(by: str, source: IO[bytes], sink: IO[bytes], log: Path) -> None:
    """Hand on line by line, and note each that is a message."""
    for line in source:
        try:
            note = json.dumps({"by": by, "frame": json.loads(line)})
        except ValueError:
            note = json.dumps({"by": by, "text": line.decode("utf-8", "replace")})
        with _LOCK, log.open("a") as file:
            file.write(note + "\n")
        try:
            sink.write(line)
            sink.flush()
        except OSError:
            break
    sink.close()


def main() -> int:
    """Start the agent, and stand between until it has ended."""
    log, command = Path(sys.argv[1]), sys.argv[3:]
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
    asked = threading.Thread(target=pass_on, args=("client", sys.stdin.buffer, agent.stdin, log), daemon=True)
    asked.start()
    pass_on("agent", agent.stdout, sys.stdout.buffer, log)
    return agent.wait()


if __name__ == "__main__":
    sys.exit(main())

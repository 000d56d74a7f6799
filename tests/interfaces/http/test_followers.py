"""Followers of the journal that have nothing to hear: a thousand of them cost next to nothing (`make chaos`)."""

import contextlib
import os
import resource
import socket
import time
from pathlib import Path

import pytest

from tests.interfaces.http.served import Served, serving
from tests.interfaces.http.test_api import submit

FOLLOWERS = int(os.environ.get("ALLSWELL_FOLLOWERS", "100"))
IDLE = float(os.environ.get("ALLSWELL_FOLLOWERS_SECONDS", "2"))
MEMORY = 250 << 20
SHARE = 0.1


def used(served: Served) -> float:
    """Seconds of processor that the server has used."""
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _warm(served: Served) -> None:
    """A server gets ready for MCP by itself, a second after it began: half a second of processor, once."""
    with contextlib.closing(served.connect()) as connection:
        connection.request("POST", "/mcp", b"{}", {"Authorization": f"Bearer {served.keys['viewer']}"})
        connection.getresponse().read()


@pytest.mark.realtime
def test_followers_that_hear_nothing_cost_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8_192)), hard))
    with serving(tmp_path) as served, contextlib.ExitStack() as open_:
        asked = (
            f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {served.keys['viewer']}\r\n\r\n"
        ).encode()
        _warm(served)
        followers = []
        for _ in range(FOLLOWERS):
            one = open_.enter_context(socket.create_connection(served.place, timeout=60))
            one.sendall(asked)
            followers.append(one)
        for one in followers:
            while b": here" not in one.recv(4_096):
                pass
        before, began = used(served), time.monotonic()
        time.sleep(IDLE)
        share = (used(served) - before) / (time.monotonic() - began)
        print(f"{FOLLOWERS} followers: {served.memory >> 20} MB, {share:.1%} of a processor")  # noqa: T201 - a figure
        assert served.memory < MEMORY
        assert share < SHARE
        submit(served, "something happens")
        for one in followers:
            while b"task_submitted" not in one.recv(65_536):
                pass

"""The thin proxy by itself, on virtual time: what it passes on, what it repeats, what it tells when nobody answers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from allswell.errors import Unavailable
from allswell.interfaces.mcp.proxy import AWAY_SECONDS, LINE_MOST, StdioProxy
from allswell.remote.connection import HttpAnswer, NotSent
from allswell.testing.loop import run, running_loop

Post = Callable[[bytes, dict[str, str]], Awaitable[HttpAnswer]]
META = "io.modelcontextprotocol/protocolVersion"


def line(method: str, id_: object = 1, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


def talk(post: Post, *lines: bytes) -> list[dict[str, Any]]:
    """What a client that says these lines is answered."""
    said: list[bytes] = []

    async def main() -> None:
        proxy = StdioProxy(post, said.append)
        for one in lines:
            proxy.hear(one)
            await asyncio.sleep(20)
        await proxy.finish()

    run(main(), seed=1)
    assert all(one.endswith(b"\n") and one.count(b"\n") == 1 for one in said)
    return [json.loads(one) for one in said]


def answering(*answers: HttpAnswer | Exception) -> tuple[Post, list[tuple[float, dict[str, str]]]]:
    left, heard = list(answers), list[tuple[float, dict[str, str]]]()

    async def post(_: bytes, headers: dict[str, str]) -> HttpAnswer:
        heard.append((running_loop().time(), headers))
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return post, heard


def in_json(result: object) -> HttpAnswer:
    return HttpAnswer(200, {"content-type": "application/json"}, json.dumps(result).encode())


def test_it_starts_without_the_sdk() -> None:
    script = "import sys, allswell.interfaces.mcp.proxy; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {
        "mcp",
        "mcp_types",
        "pydantic",
        "starlette",
        "httpx",
        "allswell.domain.rules.command",
        "allswell.engine.watch",
    }
    assert heavy & set(done.stdout.split()) == set()


def test_headers_are_read_off_each_message() -> None:
    """Of a message that names its version; and after a handshake, of the version that was agreed upon."""
    begun = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18"}}
    post, heard = answering(in_json(begun))
    now = {"_meta": {META: "2026-07-28"}}
    said = talk(
        post,
        line("initialize"),
        line("tools/list"),
        line("tools/call", name="claim", **now),
        line("resources/read", uri="allswell://tasks/é", **now),
    )
    assert said[0] == begun
    first, second, third, fourth = (headers for _, headers in heard)
    assert "MCP-Protocol-Version" not in first
    assert second["MCP-Protocol-Version"] == "2025-06-18"
    assert (third["MCP-Protocol-Version"], third["Mcp-Method"], third["Mcp-Name"]) == (
        "2026-07-28",
        "tools/call",
        "claim",
    )
    assert fourth["Mcp-Name"].startswith("=?base64?")


def test_a_stream_of_events_becomes_lines() -> None:
    body = b'event: message\r\ndata: {"jsonrpc":"2.0",\r\ndata: "id":1}\r\n\r\n: ping\r\n\r\ndata: {"id":2}\r\n\r\n'
    post, _ = answering(HttpAnswer(200, {"content-type": "text/event-stream; charset=utf-8"}, body))
    assert talk(post, line("tools/list")) == [{"jsonrpc": "2.0", "id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    "tool, error, sent",
    [
        ("done", Unavailable("it hung up"), "again"),
        ("answers", Unavailable("it hung up"), "again"),
        ("claim", Unavailable("it hung up"), "once"),
        ("submit", Unavailable("it hung up"), "once"),
        ("submit", NotSent("nobody is there"), "again"),
    ],
)
def test_a_call_is_repeated_where_nothing_can_be_done_twice(tool: str, error: Exception, sent: str) -> None:
    """And not for ever: then the model is told what to do."""
    post, heard = answering(error)
    (said,) = talk(post, line("tools/call", name=tool))
    assert said["result"]["isError"]
    assert "Go on with your work" in said["result"]["content"][0]["text"]
    assert (len(heard) == 1) == (sent == "once")
    assert heard[-1][0] - heard[0][0] <= AWAY_SECONDS + 1
    back, heard = answering(error, in_json({"jsonrpc": "2.0", "id": 1, "result": {}}))
    (said,) = talk(back, line("tools/call", name=tool))
    assert (said["result"] == {}) == (sent == "again")


def test_what_is_no_tools_call_fails_as_the_protocol_has_it() -> None:
    problem = b'{"type": "x", "title": "x", "status": 401, "detail": "the key was revoked", "hint": "ask for another"}'
    post, _ = answering(HttpAnswer(401, {"content-type": "application/problem+json"}, problem))
    (said,) = talk(post, line("tools/list", "a"))
    assert (said["id"], said["error"]["message"]) == ("a", "Refused: the key was revoked. Ask for another.")
    post, _ = answering(HttpAnswer(200, {"content-type": "text/html"}, b"<html>"))
    assert "allswell serve" in talk(post, line("tools/list"))[0]["error"]["message"]


def test_what_is_no_message_is_answered_and_the_next_one_heard() -> None:
    post, heard = answering(in_json({"jsonrpc": "2.0", "id": 2, "result": {}}))
    said = talk(post, b"{", b"[1]", b"[" * 100_000, b"x" * (LINE_MOST + 1), b'{"id": 1}', line("ping", 2))
    assert [one.get("error", {}).get("code") for one in said] == [-32_700] * 4 + [None]
    assert len(heard) == 1


def test_a_call_that_is_cancelled_hangs_up() -> None:
    ended: list[str] = []

    async def post(_: bytes, __: dict[str, str]) -> HttpAnswer:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("hung up")
        raise AssertionError

    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    other = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    assert talk(post, line("tools/call", name="claim"), json.dumps(other).encode(), json.dumps(cancel).encode()) == []
    assert ended == ["hung up"]

"""`/mcp` on a real server over a real socket: the SDK's client, both eras of the protocol, keys, limits, hang-ups."""

import asyncio
import json
import random
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from allswell.interfaces.http.request_context import BODY_MOST
from allswell.interfaces.mcp.arguments import HINTS
from allswell.remote.discovery import known
from tests.interfaces.cli.upkeep import environment
from tests.interfaces.http.served import Served
from tests.interfaces.mcp.scene import Agent
from tests.patience import SECONDS

HANDSHAKE = "2025-06-18"
NOW = "2026-07-28"
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def connected(served: Served, key: str) -> AsyncIterator[Agent]:
    headers = {"Authorization": f"Bearer {served.keys[key]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
    ):
        yield Agent(client)


def post(served: Served, message: object, *, key: str | None = "ada", **headers: str) -> tuple[int, dict[str, Any]]:
    """One message, as a client of the older protocol posts it; what was answered."""
    with closing(served.connect()) as connection:
        shown = {} if key is None else {"Authorization": f"Bearer {served.keys.get(key, key)}"}
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        connection.request("POST", "/mcp", body, {**JSON, **shown, **headers})
        got = connection.getresponse()
        text = got.read()
        if "event-stream" in got.headers.get("content-type", ""):
            (text,) = [line.removeprefix(b"data: ") for line in text.splitlines() if line.startswith(b"data: ")]
        return got.status, json.loads(text or b"{}")


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.row("O2", "O10")
def test_agents_work_with_their_keys(served: Served) -> None:
    """Claimed, checked in, asked, answered by an operator over HTTP, done; another's key has no part in it."""

    async def day() -> None:
        async with connected(served, "ada") as ada, connected(served, "bob") as bob:
            (id_,) = served.ok("POST", "/tasks", {"tasks": [{"name": "by mcp", "role": "test"}]})["task_ids"]
            (claim,) = (await ada.do("claim", role="test", wait_s=5))["claims"]
            lease = {"task": id_, "token": claim["token"]}
            assert claim["task"]["task_id"] == id_
            asked = await ada.do("ask", **lease, text="May I?", hold=True)
            waiting = asyncio.ensure_future(ada.do("answers", ids=[asked["question_id"]], wait_s=45))
            await asyncio.sleep(0)
            assert (await bob.refused("done", **lease))[0] == "unknown_task"
            assert (await bob.refused("answers", ids=[asked["question_id"]]))[0] == "unknown_question"
            path = f"/questions/{asked['question_id']}/answer"
            await asyncio.to_thread(served.ok, "POST", path, {"option": "reply", "text": "yes"})
            (answered,) = (await waiting)["questions"]
            assert (answered["answer"], answered["answered_by"]) == ("yes", "key admin")
            assert (await ada.do("checkin", **lease, note="nearly"))["answers"][0]["answer"] == "yes"
            await ada.do("done", **lease, result={"pages": 3})
            assert (await ada.refused("checkin", **lease))[0] == "lease_lost"
            shown = served.ok("GET", f"/tasks/{id_}")
            assert (shown["task"]["state"], shown["result"]) == ("done", {"pages": 3})

    asyncio.run(day())


def test_both_eras_of_the_protocol_are_spoken(served: Served) -> None:
    """With a handshake, as Codex does, and without one; neither opens a session."""
    begin = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    status, said = post(served, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin})
    assert (status, said["result"]["protocolVersion"]) == (200, HANDSHAKE)
    version = {"MCP-Protocol-Version": HANDSHAKE}
    assert post(served, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **version)[0] == 202
    _, listed = post(served, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, **version)
    assert [tool["name"] for tool in listed["result"]["tools"]] == list(HINTS)
    _, said = post(served, call("claim", role="none"), **version)
    assert "not for 'none'" in said["result"]["content"][0]["text"]

    async def now() -> str:
        async with connected(served, "ada") as ada:
            return ada.client.protocol_version

    assert asyncio.run(now()) == NOW


def test_the_doorkeeper_stands_before_it(served: Served) -> None:
    """No key, a wrong or a revoked one, a foreign Host or Origin, another method, too large a body."""
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for key, code in ((None, "no_key"), ("nonsense", "bad_key"), ("gone", "key_revoked"), ("short", "key_expired")):
        status, problem = post(served, listing, key=key)
        assert (status, problem["code"]) == (401, code)
    assert post(served, listing, Host="evil.example")[0] == 421
    assert post(served, listing, Origin="https://evil.example")[0] == 403
    with closing(served.connect()) as connection:
        for method in ("GET", "DELETE", "PUT", "OPTIONS"):
            connection.request(method, "/mcp", headers={"Authorization": f"Bearer {served.keys['ada']}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 405, method
    assert post(served, b"x" * 10, **{"Content-Length": str(BODY_MOST + 1)})[0] == 413


def test_what_makes_no_sense_is_refused_and_nothing_else_happens(served: Served) -> None:
    """Bodies that are no messages, deep ones, odd ones, random ones: answered, and the server is none the worse."""
    chance = random.Random(8)
    bodies: list[bytes] = [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'"x"']
    bodies += [bytes(chance.randrange(256) for _ in range(chance.randrange(300))) for _ in range(60)]
    odd: list[Any] = [{}, [], None, "x", {"name": "claim", "arguments": 5}, {"name": "\x00" * 9}, {"uri": "x" * 9_999}]
    bodies += [
        json.dumps(
            {"jsonrpc": "2.0", "id": chance.choice([1, "a", None, 1.5, []]), "method": method, "params": params}
        ).encode()
        for method in ("tools/call", "initialize", "resources/read", "nix", "", "server/discover")
        for params in odd
    ]
    before = served.memory
    with closing(served.connect()) as connection:
        for number, body in enumerate(bodies):
            headers = {**JSON, "Authorization": f"Bearer {served.keys['ada']}"}
            if number % 3:
                headers["MCP-Protocol-Version"] = NOW if number % 3 == 1 else HANDSHAKE
            connection.request("POST", "/mcp", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 500, (body[:200], answer.status)
    assert served.memory - before < 100 << 20
    assert post(served, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})[0] == 200


def test_a_proxy_on_a_clients_own_machine(served: Served, tmp_path: Path) -> None:
    """`allswell mcp` with a server's URL: the SDK's client on its standard input and output, in both eras."""
    env = environment(ALLSWELL_STORE=served.url, ALLSWELL_KEY=served.keys["ada"])
    started = StdioServerParameters(command=sys.executable, args=["-m", "allswell", "mcp"], cwd=str(tmp_path), env=env)

    async def day(mode: Literal["auto", "legacy"]) -> None:
        async with Client(stdio_client(started), mode=mode) as client:
            ada = Agent(client)
            (id_,) = served.ok("POST", "/tasks", {"tasks": [{"name": f"by proxy {mode}", "role": "test"}]})["task_ids"]
            waiting = asyncio.ensure_future(ada.do("claim", role="none", wait_s=1, lease_s=5))
            with pytest.raises(AssertionError, match="lease_s"):
                await waiting
            (claim,) = (await ada.do("claim", role="test", wait_s=30))["claims"]
            assert claim["task"]["task_id"] == id_
            await ada.do("done", task=id_, token=claim["token"], result=mode)
            assert served.ok("GET", f"/tasks/{id_}")["result"] == mode
            shown = await client.read_resource(f"allswell://tasks/{id_}")
            assert mode in str(shown.contents[0])

    asyncio.run(day("auto"))
    asyncio.run(day("legacy"))


def test_a_server_is_known_in_its_folder(served: Served) -> None:
    """It has left a note that only its user can read, by which `allswell mcp` finds it."""
    folder = Path(served.store.removeprefix("sqlite:///")).parent
    assert known(folder) == served.url
    assert stat.S_IMODE((folder / "server.json").stat().st_mode) == 0o600
    begin = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}, {**call("status"), "id": 2}]
    done = subprocess.run(
        [sys.executable, "-m", "allswell", "mcp"],
        cwd=folder,
        env=environment(ALLSWELL_KEY=served.keys["ada"]),
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    said = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert "the key ada may not look at everything" in said[2]["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", [None, HANDSHAKE, NOW])
def test_a_claim_that_is_hung_up_on_takes_nothing(served: Served, version: str | None) -> None:
    """In every era the server notices, and the task is there for the next one who asks."""
    message: dict[str, Any] = call("claim", role="build", wait_s=45)
    headers = {**JSON, "Authorization": f"Bearer {served.keys['bob']}"}
    if version is not None:
        headers["MCP-Protocol-Version"] = version
    if version == NOW:
        key = "io.modelcontextprotocol/"
        message["params"]["_meta"] = {f"{key}protocolVersion": NOW, f"{key}clientCapabilities": {}}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "claim"}
    with closing(served.connect()) as connection:
        connection.request("POST", "/mcp", json.dumps(message).encode(), headers)
        come_round(served)
    come_round(served)
    (id_,) = served.ok("POST", "/tasks", {"tasks": [{"name": "hung up", "role": "build"}]})["task_ids"]
    wanted = {"agent_id": "bob", "roles": ["build"], "wait_ms": 5_000}
    (claim,) = served.ok("POST", "/claims", wanted, key="bob")["claims"]
    assert (claim["task"]["task_id"], claim["token"]) == (id_, 1)
    served.ok("POST", f"/tasks/{id_}/leases/1/done", {}, key="bob")


def come_round(served: Served) -> None:
    """What was sent before this is being carried out after it: the server does one thing after another."""
    for _ in range(5):
        assert post(served, call("status", task="t_nix"))[0] == 200

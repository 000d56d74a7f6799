"""`allswell mcp` as clients start it: on a store, and inside a supervised attempt, which speaks for itself alone."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.interfaces.cli.upkeep import environment
from tests.interfaces.mcp.scene import Agent
from tests.patience import SECONDS

AGENT = r"""
import json, os, subprocess, sys

served = subprocess.Popen([sys.executable, "-m", "allswell", "mcp"], stdin=-1, stdout=-1, text=True)
number = 0

def say(method, **params):
    global number
    number += 1
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    served.stdin.write(json.dumps(message) + "\n"); served.stdin.flush()
    answer = json.loads(served.stdout.readline())
    assert answer["id"] == number, answer
    return answer.get("result") or answer["error"]

def call(tool, **arguments):
    result = say("tools/call", name=tool, arguments=arguments)
    if "content" not in result:
        return result["message"]
    return result["content"][0]["text"] if result["isError"] else result["structuredContent"]

who = {"name": "a", "version": "1"}
say("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=who)
told = {
    "tools": [tool["name"] for tool in say("tools/list")["tools"]],
    "checkin": call("checkin", note="half", progress=0.5),
    "other": call("checkin", task="t_other", token=1),
    "claim": call("claim", agent="me"),
    "ask": call("ask", text="May I?", hold=True),
}
told["answers"] = call("answers", ids=[told["ask"]["question_id"]])
told["status"] = call("status")
told["inbox"] = call("inbox")
told["wrong"] = call("checkin", progress=7)
past = {name: value for name, value in os.environ.items() if name != "ALLSWELL_SOCKET"}
alone = subprocess.run([sys.executable, "-m", "allswell", "mcp"], env=past, stdin=-3, stderr=-1, text=True)
told["past"] = alone.stderr
told["done"] = call("done", result={"pages": 3})
json.dump(told, open("told.json", "w"))
served.stdin.close()
assert served.wait(60) == 0
"""


@pytest.mark.row("O2")
def test_inside_an_attempt_it_speaks_for_that_attempt_alone(tmp_path: Path) -> None:
    """Nothing but the environment of a supervised agent; no store, no key, no task to be named."""
    (tmp_path / "agent.py").write_text(AGENT)
    shell = Shell(tmp_path, os.urandom(8).hex())
    shell("run", "--name", "night", "--", sys.executable, "agent.py", timeout=SECONDS)
    told = json.loads((tmp_path / "told.json").read_text())
    assert "claim" not in told["tools"]
    assert "There is no tool 'claim'" in told["claim"]
    assert told["checkin"]["remaining_ms"] is None  # `run` has no limit unless one is asked for
    assert told["other"].startswith("Refused: ")
    assert told["answers"]["questions"][0]["closed_at"] is None
    assert told["status"]["stop"] is None
    assert told["inbox"] == {"requests": []}
    assert "progress" in told["wrong"]
    assert "in Codex: env_vars" in told["past"], "nobody speaks past the supervisor"
    assert told["done"]["said"] == "done"
    shown = shell.json("show", "night")
    assert (shown["task"]["state"], shown["result"]) == ("done", {"pages": 3})
    assert [question["text"] for question in shown["questions"]] == ["May I?"]


def test_on_a_store_it_serves_by_itself(tmp_path: Path) -> None:
    """An agent's whole day on a folder's own store; what one process writes, the command line sees."""
    shell = Shell(tmp_path, os.urandom(8).hex())
    id_ = shell("submit", "by itself").stdout.strip()

    async def day() -> None:
        command = [*ALLSWELL[1:], "mcp", "--agent", "ada"]
        started = StdioServerParameters(
            command=ALLSWELL[0], args=command, cwd=str(tmp_path), env={**shell.env, "ALLSWELL_AGENT": "nobody"}
        )
        async with Client(stdio_client(started)) as client:
            ada = Agent(client)
            assert (await ada.refused("claim", agent="eve"))[0] == "not_allowed"
            (claim,) = (await ada.do("claim"))["claims"]
            assert (claim["task"]["task_id"], claim["agent_id"]) == (id_, "ada")
            await ada.do("checkin", task=id_, token=1, note="half")
            why = await client.read_resource(f"allswell://tasks/{id_}/why")
            assert '"state":"held"' in str(why.contents[0])
            await ada.do("done", task=id_, token=1, result="ok")

    asyncio.run(day())
    assert shell.json("show", id_)["result"] == "ok"
    (claimed,) = shell("events", "--json", "--kind", "task_claimed").stdout.splitlines()
    assert json.loads(claimed)["data"]["key"] == "(stdio)"


def test_what_is_wrong_is_told_on_standard_error(tmp_path: Path) -> None:
    """Nothing but messages goes to standard output, where a client reads."""

    def mcp(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ALLSWELL, "mcp", *options],
            cwd=tmp_path,
            env=environment(**env),
            input="",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    for said, code, words in (
        (mcp(), 75, "there is no store"),
        (mcp("--role", "build"), 2, "--role needs --agent"),
        (mcp("--store", "http://127.0.0.1:9"), 2, "a server wants a key"),
        (mcp("--store", "http://127.0.0.1:9", ALLSWELL_KEY="x"), 2, "not a key"),
        (mcp(ALLSWELL_SOCKET="/nowhere", ALLSWELL_TOKEN="x"), 2, "ALLSWELL_TOKEN"),
    ):
        assert (said.returncode, said.stdout) == (code, ""), said
        assert words in said.stderr
        assert "Traceback" not in said.stderr

"""Real clients that hang, repeat themselves, are killed, cost too much, or are called off. A column of the table each.

`make clients` runs this, and writes the table of docs/agents.md of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

import pytest

from allswell.testing.provider import Hang, Reply
from tests.clients.roster import PROMPT, ClientFleet, SceneProvider, fleet, provider, took

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
__all__ = ["fleet", "provider"]
WARM = "This goes on with your own session"
READ = "read-before-the-kill"
TURNS = {"gemini": 12}
"""How many calls a client makes in the turn in which it is capped, where that is not thirty: more look like a loop."""
ESCALATES = "timeout_escalation = 1"
"""A human is asked after the first timeout, where otherwise three would be tried."""


def test_hangs_in_its_model(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.always(Hang())
    fleet.works(provider, top=ESCALATES, idle=fleet.client.idle)
    receipt = fleet.receipt()
    assert fleet.question()["kind"] == "repeated_timeout", fleet.questions()
    assert receipt["status"] == "idle", receipt
    attempt = fleet.shown()["attempts"][0]
    cancelled = ", its turn cancelled first" if fleet.client.acp and "session/cancel" in fleet.wire.read_text() else ""
    fleet.cell("hangs in model", f"idle: ended after {took(attempt)} (limit {fleet.client.idle}){cancelled}")


def test_hangs_in_a_tool(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.script(fleet.client.hangs(), Reply("I am back."))
    fleet.works(provider, top=ESCALATES, idle=fleet.client.idle)
    fleet.until(lambda: "tail" in commands(fleet) or fleet.receipts())
    receipt = fleet.receipt()
    assert receipt["status"] == "idle", receipt
    fleet.until(lambda: "tail" not in commands(fleet))
    attempt = fleet.shown()["attempts"][0]
    named = f"“{receipt['open_call']}”" if receipt["open_call"] else "the call is not known"
    fleet.cell("hangs in tool", f"idle: ended after {took(attempt)} with the call's own processes; {named}")


def test_repeats_itself(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.always(fleet.client.types("cat lexer.py"))
    fleet.works(provider, "--timeout", "200s", top=f"{ESCALATES}\nrepeat_limit = 3", idle="60s")
    fleet.until(lambda: fleet.questions() or fleet.shown()["attempts"], 300)
    if not fleet.questions():
        (attempt, *_) = fleet.shown()["attempts"]
        assert attempt["outcome"].startswith("failed"), attempt
        assert "Loop detected" in attempt["detail"], attempt
        printed = fleet.shell("logs", "night", "--attempt", "1", "--json").stdout.splitlines()
        rounds = sum(json.loads(line)["kind"] == "tool" for line in printed)
        stopped = f"its own program stops it after {rounds} rounds, and ends well"
        fleet.cell("repeats itself", f"{stopped}: not done, and tried again")
        return
    (question,) = fleet.questions()
    if question["kind"] == "repeated_timeout":
        fleet.cell("repeats itself", "not seen: ended at the limit of its attempt (200 s), and a human is asked")
        return
    (called,) = re.findall(r"it called (.*) times, same answer", question["text"])
    fleet.cell("repeats itself", f"not progress after 3 rounds; asked after {called.rpartition(' ')[2]}, with the call")


def test_killed_and_gone_on_with(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.script(fleet.client.types(f"echo {READ}"), Hang(), Reply("Hello again."))
    fleet.works(provider, idle=fleet.client.idle)
    fleet.until(lambda: fleet.state() == "done")
    *_, last = fleet.heard()
    outcomes = [one["outcome"] for one in fleet.shown()["attempts"]]
    assert outcomes[-1] == "done", outcomes
    if "goes on with its own session" in fleet.lines:
        assert last.count(PROMPT) == 1, last
        assert last.index(PROMPT) < last.index(READ) < last.index(WARM), last
        fleet.cell("warm", "its second attempt goes on with its session, and the handover is its next message")
    else:
        assert READ not in last, last
        why = re.search(r"the last one is not gone on with, ([^.]*?) \d\d:", fleet.lines)
        reason = why[1] if why else "it names no session"
        fleet.cell("warm", f"cold, with the handover in its prompt: {reason}")


def test_capped(fleet: ClientFleet, provider: SceneProvider) -> None:
    """Each answer of the model takes two tokens."""
    calls = [fleet.client.types(f"echo {number}; sleep 0.3") for number in range(TURNS.get(fleet.client.name, 30))]
    provider.script(*calls, Reply("All of it is made."))
    fleet.works(provider, "--max-tokens", "9", idle="60s")
    fleet.until(lambda: fleet.questions() or fleet.state() == "done")
    spent = fleet.shown()["spent"]
    used = (spent["tokens_in"] or 0) + (spent["tokens_out"] or 0)
    if fleet.questions():
        assert fleet.questions()[0]["kind"] == "token_limit"
        within = "within its turn, " if used < 50 else "at the end of its turn, where it first reports them, "
        fleet.cell("capped", f"{within}at {used} tokens of 9 that are allowed; a human is asked")
    else:
        fleet.cell("capped", f"not within its turn: it reports its tokens ({used} of 9) when it is done")


def test_fenced(fleet: ClientFleet, provider: SceneProvider) -> None:
    """Its supervisor stands still until its lease has lapsed, and another agent has the task: nothing of it counts."""
    provider.script(fleet.client.hangs("touch begun; "), Reply("All of it is made."))
    fleet.works(provider, top='[fleet]\nlease = "8s"', idle="120s")
    fleet.until((fleet.shell.folder / "begun").exists)
    assert "tail" in commands(fleet)
    with fleet.stands_still():
        other = fleet.shell.json("claim", "--agent", "other", "--wait", "60s")
        began = time.monotonic()
    fleet.until(lambda: "tail" not in commands(fleet))
    receipt = fleet.receipt()
    length = time.monotonic() - began
    assert receipt["status"] == "lease_lost", receipt
    fleet.shell("done", "--task", other["task"]["task_id"], "--token", str(other["token"]), "--agent", "other")
    attempts = [(one["agent_id"], one["outcome"]) for one in fleet.shown()["attempts"]]
    assert attempts == [("one", "lease_lapsed"), ("other", "done")], attempts
    fleet.cell(
        "fenced",
        f"ended with its command {length:.0f} s after another agent was given its task; that agent's result counts",
    )


def commands(fleet: ClientFleet) -> set[str]:
    """The names of the programs that run in its folder."""
    names = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == fleet.shell.folder:
                names.add((process / "comm").read_text().strip())
    return names

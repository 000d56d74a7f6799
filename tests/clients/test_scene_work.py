"""What comes of the work of real clients: finished, claimed and not done, denied, asked. A column of the table each.

`make clients` runs this, and writes the table of docs/agents.md of it.
"""

from __future__ import annotations

import msgspec
import pytest

from allswell.testing.provider import Reply
from tests.clients.roster import ENDED, STRICT, ClientFleet, SceneProvider, fleet, provider, took

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
__all__ = ["fleet", "provider"]
MADE = "All of it is made."


def test_finishes(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.script(fleet.client.types("echo hi > made.txt"), Reply(MADE))
    fleet.works(provider, worktree=True, idle="60s")
    shown = fleet.ends()
    assert shown["task"]["state"] == "done", fleet.told()
    assert shown["result"]["message"] == MADE, shown["result"]
    assert [one["path"] for one in shown["work"]["changed"]] == ["made.txt"], shown["work"]
    session = "its session is kept" if shown["result"].get("session") else "it names no session"
    (attempt,) = shown["attempts"]
    cost = "its cost" if attempt["cost_usd"] is not None else "its tokens" if attempt["tokens_in"] else "no cost"
    fleet.cell(
        "finishes",
        f"done after {took(attempt)}; its last message is the result, its file is on a branch; {session}, and {cost}",
    )


def test_claims_to_be_done(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.always(Reply(MADE))
    fleet.works(provider, "--verify", "test -e made.txt", top="verify_attempts = 2", idle="60s")
    question = fleet.question()
    shown = fleet.shown()
    assert question["kind"] == "not_verified", question
    assert len(shown["attempts"]) == 2, shown["attempts"]
    fleet.cell("undone", "not believed: its `--verify` failed twice, and a human is asked")


def test_denied(fleet: ClientFleet, provider: SceneProvider) -> None:
    strict = msgspec.structs.replace(fleet.client, **STRICT[fleet.client.name])
    provider.script(strict.types("""python3 -c 'open("made.txt", "w")'"""), Reply("I could not."))
    fleet.works(provider, "--retries", "0", client=strict, idle="60s")
    fleet.until(lambda: fleet.questions() or fleet.state() in ENDED)
    text = ""
    if fleet.questions() and fleet.questions()[0]["text"].startswith("The agent asks for permission"):
        (question,) = fleet.questions()
        fleet.shell("answer", question["question_id"], "reject_once")
        fleet.until(lambda: fleet.state() in ENDED)
        text = "a question with the exact call, while its session waits; the refusal reached it, and it went on"
    shown = fleet.shown()
    assert not (fleet.shell.folder / "made.txt").exists()
    (attempt,) = shown["attempts"]
    if fleet.questions():
        assert attempt["outcome"].startswith("failed"), attempt
        text = f"not done, although it ended with exit code 0: “{attempt['detail']}”; a human is asked"
    elif not text and attempt["warning"]:
        text = f"done, with the warning that {attempt['warning'].partition(':')[0]}"
    elif not text:
        text = "done: to its model the call has failed, and no more is known"
    fleet.cell("denied", text)


def test_asks(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.script(fleet.client.asks("Which one?"), Reply("I wait."))
    fleet.works(provider, idle="60s")
    question = fleet.question()
    assert question["text"] == "Which one?", fleet.told()
    fleet.until(fleet.receipts)
    provider.recover()
    provider.always(Reply("The second it is."))
    fleet.shell("answer", question["question_id"], "the second one")
    fleet.until(lambda: fleet.state() == "done")
    heard = fleet.heard()
    assert "the second one" in heard[-1], heard
    warm = "its own session" if "goes on with its own session" in fleet.lines else "a new session"
    shown = fleet.shown()
    assert [one["outcome"] for one in shown["attempts"]] == ["asked", "done"], shown["attempts"]
    fleet.cell("asks", f"asked, with no slot held; the answer reached its next attempt, in {warm}")

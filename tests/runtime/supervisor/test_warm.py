"""Under `up`, the next attempt goes on with its agent's own session: stand-ins that print what the real ones print."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from allswell import Policy
from allswell.domain.service.retry import RetryPolicy
from tests.interfaces.cli.test_warm_retry import CLAUDE, WARM, calls, client, session
from tests.runtime.supervisor.stage import Night, night, standin

QUICK = Policy(retry=RetryPolicy(backoff=50))


def test_the_next_attempt_is_warm_and_its_prompt_is_what_is_new(tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")
        assert (await stage.ended(task)).state == "done"
        first, second = calls(folder)
        assert "the whole prompt" in first[1]
        assert second[:3] == ["--resume", session(CLAUDE), "-p"]
        assert second[3].startswith(WARM)
        assert "the whole prompt" not in second[3]
        (event,) = await stage.told("agent_resumed")
        assert event.data["session"] == session(CLAUDE)
        assert any("goes on with its own session at “mend it”" in line for line in stage.lines)

    program = client(folder := tmp_path / "bin", CLAUDE)
    night(tmp_path, scene, standin("a", command=(program, "-p", "{prompt}")), policies={"": QUICK})


def test_a_client_that_refuses_is_started_anew_within_the_attempt(tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")
        assert (await stage.ended(task)).state == "done"
        _, refused, cold = calls(folder)
        assert session(CLAUDE) in refused
        assert "the whole prompt" in cold[1]
        assert "its client has refused to go on with it" in cold[1]
        (event,) = await stage.told("agent_restarted")
        assert event.data["why"] == "its client has refused to go on with it"
        assert len(await stage.watch.attempts(task)) == 2
        assert stage.home.receipts.find(f"rc_{task.removeprefix('t_')}.2") is None, "an attempt that is done failed not"

    program = client(folder := tmp_path / "bin", CLAUDE, then=f"touch {tmp_path}/bin/lost {tmp_path}/bin/works; exit 1")
    night(tmp_path, scene, standin("a", command=(program, "-p", "{prompt}")), policies={"": QUICK})


def test_what_a_human_has_answered_is_the_next_message_of_the_session(tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")

        async def asked() -> object:
            return await stage.watch.questions()

        await stage.until(asked)
        (question,) = await stage.watch.questions()
        await stage.watch.answer(question.id, "reply", text="tabs, please", by="ada")
        assert (await stage.ended(task)).state == "done"
        _, second = calls(folder)
        assert second[:2] == ["--resume", session(CLAUDE)]
        assert "tabs, please" in second[3]

    folder = tmp_path / "bin"
    program = client(folder, CLAUDE, then=f"{sys.executable} -m allswell ask 'tabs or spaces?'; exit 0")
    night(tmp_path, scene, standin("a", command=(program, "-p", "{prompt}"), pass_env=("PATH",)), policies={"": QUICK})


def test_an_agent_in_another_folder_begins_anew(tmp_path: Path) -> None:
    """Claude Code finds a session only from the folder in which it began."""

    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")
        await stage.event("task_retried")
        (kept,) = stage.home.receipts.of_task(task)
        moved = msgspec.structs.replace(kept.receipt, cwd="/elsewhere")
        stage.home.receipts.write(moved)
        event = await stage.event("agent_restarted")
        assert event.data["why"] == "it worked in another folder"

    program = client(tmp_path / "bin", CLAUDE)
    slow = Policy(retry=RetryPolicy(backoff=1_500))
    night(tmp_path, scene, standin("a", command=(program, "-p", "{prompt}")), policies={"": slow})

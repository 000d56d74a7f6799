"""What a supervisor says about its agents is true: who works, who hangs, and who is done."""

import asyncio
from pathlib import Path

import pytest

from allswell import Policy
from allswell.domain.agents.usage import UsageLevel
from allswell.domain.service.retry import RetryPolicy
from allswell.engine.status.agents import presences
from allswell.runtime.supervisor.presence import dismiss, register
from tests.engine.stage import Stage, play
from tests.runtime.supervisor.stage import Night, night, standin


@pytest.mark.realtime
@pytest.mark.row("O2")
def test_a_talking_agent_answers_every_check_in_and_keeps_no_sleeper_in_its_folder_alive(tmp_path: Path) -> None:
    policy = Policy(checkpoint_interval=700, checkpoint_timeout=500, stall_threshold=1)

    async def scene(night: Night) -> None:
        talks = await night.watch.submit("talks", payload="talk", role="talker")
        sleeps = await night.watch.submit("sleeps", payload="hang", role="sleeper")
        idle = await night.event("agent_idle")
        assert idle.task == sleeps
        (found,) = night.home.receipts.of_task(sleeps)
        assert f"attempt {talks}.1 works in the same folder" in found.receipt.reason

        async def asked() -> bool:
            return len([event for event in await night.told("checkin_asked") if event.task == talks]) >= 3

        await night.until(asked)
        assert [event for event in await night.told("checkpoint_timeout") if event.task == talks] == []
        assert (await night.task(talks)).record.stalls == 0
        for id_ in (talks, sleeps):
            await night.watch.cancel(id_)

    agents = standin("talker", role="talker"), standin("sleeper", role="sleeper", idle=1_000)
    told = night(tmp_path, scene, *agents, policies={"": policy, "sleeper": Policy()})
    assert "talker may share its folder" in told.lines[0]
    assert "with sleeper: meanwhile changes there are no sign of progress" in told.lines[0]


def test_exit_code_0_is_not_done_where_the_last_line_says_so(tmp_path: Path) -> None:
    policy = Policy(retry=RetryPolicy(retries=0))

    async def scene(night: Night) -> None:
        parts = {
            "deferred": ("claude:deferred", "it waits for a permission: Bash"),
            "resumed": ("claude:lifecycle,claude:deferred,claude:lifecycle", "it waits for a permission: Bash"),
            "stopped": ("claude:stopped", "a hook stopped it"),
        }
        ids = {name: await night.watch.submit(name, payload=part) for name, (part, _) in parts.items()}

        async def asked() -> dict[str, str] | None:
            found = {question.task or "": question.text for question in await night.watch.questions()}
            return found if len(found) == len(ids) else None

        texts = await night.until(asked)
        assert texts is not None
        for name, (_, said) in parts.items():
            assert said in texts[ids[name]]
            (found,) = night.home.receipts.of_task(ids[name])
            assert (found.receipt.status, found.receipt.exit_code) == ("failed", 0)
            assert found.receipt.reason.startswith("exit code 0, but it was not done: ")
        broken = await night.watch.submit("broken", payload="claude:500")
        assert (await night.ended(broken)).state == "failed"
        denied = await night.watch.submit("denied", payload="claude:init,claude:denied")
        assert (await night.ended(denied)).state == "done"
        gone_on = await night.watch.submit("went on", payload="claude:500,plain:and then it was mended")
        assert (await night.ended(gone_on)).state == "done"
        assert not await night.told("usage_limit")

    told = night(tmp_path, scene, standin(concurrency=4), policies={"": policy})
    end = "has done “denied”; 1 call was refused: Bash(touch x); it says: “done”"
    assert [line for line in told.lines if line.endswith(end)]
    assert len([line for line in told.lines if "was refused" in line]) == 1


@pytest.mark.realtime
@pytest.mark.row("O9")
def test_what_the_supervisor_tells_the_store_of_an_agent_is_no_sign_of_that_agent(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("hangs", payload="claude:init,sleep:0.2,claude:tool,hang")
        await night.event("agent_idle")
        (found,) = night.home.receipts.of_task(id_)
        assert "checkin" not in [one.sign for one in found.receipt.evidence]
        assert "claude: tool_use Bash" in [one.what for one in found.receipt.evidence]
        assert found.receipt.open_call.startswith("calling: Bash, ")
        await night.watch.cancel(id_)

    night(tmp_path, scene, standin(idle=3_000))


@pytest.mark.parametrize("part", ["claude:init,claude:429", "codex:failed:429"])
def test_a_429_in_the_last_line_parks_the_account_and_costs_no_attempt(tmp_path: Path, part: str) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("limited", payload=part, retries=0)
        limit = await night.event("usage_limit")
        assert limit.data["account"] == "acme"
        (service,) = await night.watch.services()
        assert service.state.parked_until is not None
        task = await night.task(id_)
        assert (task.state, dict(task.record.failures)) == ("open", {})

    night(tmp_path, scene, standin(account="acme"))


@pytest.mark.realtime
@pytest.mark.row("O9")
def test_a_question_about_idleness_shows_the_last_output_and_more_idle_lets_it_finish(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("slow")
        asked = await night.event("question_asked")
        assert "has shown no progress once, the last time for 3s." in asked.data["text"]
        assert "It printed last:\nwaiting for the lock\n" in asked.data["text"]
        await night.watch.answer(asked.data["question"], "increase_idle", timeout="1m")
        (tmp_path / "unlocked").touch()
        assert (await night.ended(id_)).state == "done"

    # A shell, and seconds: on a busy machine a Python may print its first line only after a short limit.
    waits = ("sh", "-c", "echo waiting for the lock; while [ ! -e unlocked ]; do sleep 0.1; done")
    night(tmp_path, scene, standin(command=waits, idle=3_000), policies={"": Policy(timeout_escalation=1)})


def test_a_prompt_that_begins_with_a_dash_is_no_option_and_other_words_are_refused(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        done = await night.watch.submit("- name", payload="--dangerously", role="prompt")
        assert (await night.ended(done)).state == "done"
        lines = (tmp_path / "got").read_bytes().split(b"\0")
        assert lines[:-1] == [b"\n- name\n\n--dangerously", b"--", b"--dangerously"]
        bad = await night.watch.submit("n", payload="--dangerously", role="payload")
        assert (await night.ended(bad)).state == "failed"
        (failed,) = await night.told("task_failed")
        assert "{payload} begins with a dash here" in failed.data["message"]
        assert 'put a word "--" before it' in failed.data["message"]

    save = ("sh", "-c", 'printf "%s\\0" "$@" > got', "sh")
    agents = (
        standin("prompt", role="prompt", command=(*save, "{prompt}", "--", "{payload}")),
        standin("payload", role="payload", command=(*save, "{payload}")),
    )
    night(tmp_path, scene, *agents)


def test_a_dismissed_supervisor_that_speaks_again_is_back() -> None:
    async def scene(stage: Stage) -> None:
        views = stage.watch.views
        registered, _ = await register(stage.watch, "night", "ship", 5_000)
        await asyncio.sleep(20)
        await dismiss(stage.watch, "night", "grace")
        assert [one.gone for one in await presences(views, lambda _: False)] == [True]
        for _ in range(2):  # the first finds that its word was changed
            await registered.beat(UsageLevel(), ())
        (back,) = await presences(views, lambda _: False)
        assert (back.gone, back.dismissed_by) == (False, "")

    play(scene)

"""What a supervisor says about its agents is true: who works, who hangs, and who is done."""

from pathlib import Path

import pytest

from allswell import Policy
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
    assert "with sleeper: meanwhile what changes there is no proof of progress" in told.lines[0]

"""A command whose run's limit is reached is not ended while the run's clock stands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from allswell.runtime.attempt import End
from tests.runtime.attempt.stage import stage


@pytest.mark.row("O9")
def test_a_command_goes_on_beside_a_question_past_its_run_s_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            watch = here.watch
            run = await watch.open_run("flow", timeout="10m")
            ids = [await watch.submit(name, run=run, timeout="1h") for name in ("asks", "works")]
            asking, working = [await watch.claim(agent="ada", task=id_, lease="10m") for id_ in ids]
            assert asking is not None
            assert working is not None
            assert working.by_run
            attempt = await here.attempt(here.order("sh", "-c", "until [ -e go ]; do sleep 0.05; done"), working)
            await asking.ask("Which one?")
            judge = attempt._judge
            judge._lease_at = judge._clock.monotonic()  # as if the ten minutes were over
            running = asyncio.ensure_future(attempt.run())
            await here.until(lambda: not working.by_run)
            assert working.deadline > asking.deadline + 49 * 60_000, "it has asked, and has an hour of its own"
            (here.folder / "go").touch()
            assert (await running).end is End.DONE

    asyncio.run(main())

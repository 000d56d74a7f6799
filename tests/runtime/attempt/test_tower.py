"""What several attempts share."""

import asyncio
import math
import os
from pathlib import Path

from allswell.runtime.attempt import SharedSampler
from allswell.runtime.attempt.progress import FolderComparison
from allswell.testing.loop import run


class Counted(FolderComparison):
    """A folder, and how often it was looked at."""

    looks = 0

    def look(self) -> dict[str, tuple[int, int, int]]:
        Counted.looks += 1
        return dict(super().look())


def test_who_works_in_the_same_folder_shares_a_look_that_is_new_enough(tmp_path: Path) -> None:
    async def main() -> None:
        tower = SharedSampler()
        now = asyncio.get_running_loop().time
        looks = [Counted(tmp_path) for _ in range(20)]
        Counted.looks = 0
        began = now()
        for seen in await asyncio.gather(*(tower.look_at_work(look, since=began) for look in looks)):
            assert seen.prints == {}
        assert Counted.looks == 1
        (tmp_path / "new.txt").write_text("x")
        assert (await tower.look_at_work(looks[0], since=began)).prints == {}
        assert set((await tower.look_at_work(looks[0], since=now())).prints) == {"new.txt"}
        assert Counted.looks == 2
        elsewhere = Counted(tmp_path / "elsewhere")
        await tower.look_at_work(elsewhere, since=began)
        assert Counted.looks == 3

    asyncio.run(main())


def test_one_who_waits_no_more_takes_nobody_along(tmp_path: Path) -> None:
    async def main() -> None:
        tower = SharedSampler()
        waiting = [asyncio.ensure_future(tower.look_at_work(FolderComparison(tmp_path), since=0.0)) for _ in range(2)]
        trees = [asyncio.ensure_future(tower.look_at(os.getpid())) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        trees[0].cancel()
        assert (await waiting[1]).prints == {}
        assert os.getpid() in [pid for pid, _ in await trees[1]]

    asyncio.run(main())


def test_long_pauses_end_together_and_short_ones_when_they_are_over() -> None:
    async def main() -> None:
        tower, now = SharedSampler(), asyncio.get_running_loop().time

        async def end(delay: float, pause: float) -> float:
            await asyncio.sleep(delay)
            await tower.pause(pause)
            return now()

        began = math.ceil(now())
        await asyncio.sleep(began - now())
        ends = await asyncio.gather(*(end(delay, 5) for delay in (0.2, 0.5, 0.9)), end(0.25, 0.5))
        assert [round(end - began, 3) for end in ends] == [5, 5, 5, 0.75]

    run(main(), seed=1)

"""A store that cannot be reached: work pauses and goes on, nothing is done twice, and nobody waits without a bound."""

import asyncio

import pytest

from allswell import LeaseLost, Unavailable
from allswell.domain.ids import TaskId
from allswell.engine.timings import Timings
from tests.engine.stage import Stage, Weather, play


def test_an_outage_pauses_work_and_goes_on_by_itself() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit("a", timeout="1m")
        lease = await watch.claim(agent="bob")
        assert lease is not None
        weather.down = True
        asked = [asyncio.ensure_future(watch.submit("b")), asyncio.ensure_future(lease.checkin("still here"))]
        await asyncio.sleep(20)
        assert not any(one.done() for one in asked)
        weather.down = False
        await asyncio.gather(*asked)
        assert 20 <= stage.seconds <= 22
        weather.down = True
        await asyncio.sleep(60)
        weather.down = False
        await asyncio.sleep(2)
        assert await watch.counts() == {"ready": 2}, "what fell due meanwhile is caught up with"
        assert len(await stage.told("agent_timeout")) == 1

    play(scene, faults=weather)


def test_a_caller_is_told_when_its_patience_is_over() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("a")
        weather.down = True
        with pytest.raises(Unavailable, match="cannot be reached; gave up after store_patience 30 s"):
            await stage.watch.submit("b")
        assert 30 <= stage.seconds <= 31.1
        weather.down = False
        await stage.watch.submit("c")
        assert await stage.watch.counts() == {"ready": 2}

    play(scene, faults=weather)


def test_store_patience_is_a_setting_and_holds_for_those_in_the_queue_too() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        weather.down = True
        first = asyncio.ensure_future(stage.watch.submit("a"))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(stage.watch.submit("b"))
        told = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in told] == [Unavailable] * 2
        assert stage.seconds <= 5
        weather.down = False

    play(scene, faults=weather, pace=Timings(store_patience=2))


@pytest.mark.parametrize("took_place", [True, False])
def test_a_lost_answer_to_a_commit_is_settled_and_the_command_done_once(took_place: bool) -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit_many([{"name": "a"}, {"name": "b"}])
        weather.lost = [took_place]
        lease = await watch.claim(agent="bob")
        assert lease is not None
        assert await watch.counts() == {"held": 1, "ready": 1}
        weather.lost = [took_place]
        await lease.complete("fine")
        assert await watch.counts() == {"done": 1, "ready": 1}
        assert len(await stage.told("task_completed")) == 1
        weather.lost = [took_place]
        await watch.submit("c")
        assert await watch.counts() == {"done": 1, "ready": 2}
        assert weather.lost == []

    play(scene, faults=weather)


@pytest.mark.parametrize("took_place", [True, False])
def test_a_lost_answer_is_never_guessed_even_if_the_store_stays_away(took_place: bool) -> None:
    weather = Weather()

    async def stay_away(statement: str) -> None:
        if statement == "outcome" and stage_seconds() < 10:
            raise Unavailable("the store cannot be reached")

    def stage_seconds() -> float:
        return asyncio.get_running_loop().time()

    async def scene(stage: Stage) -> None:
        await stage.watch.submit_many([{"name": "a"}, {"name": "b"}])
        weather.lost, weather.on = [took_place], stay_away
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        assert stage.seconds >= 10
        assert await stage.watch.counts() == {"held": 1, "ready": 1}

    play(scene, faults=weather)


def test_a_caller_does_not_wait_for_ever_for_a_lost_answer_and_neither_do_those_behind_it() -> None:
    weather = Weather()

    async def stay_away(statement: str) -> None:
        if statement == "outcome":
            raise Unavailable("the store cannot be reached")

    async def scene(stage: Stage) -> None:
        weather.lost, weather.on = [True], stay_away
        first = asyncio.ensure_future(stage.watch.submit("a"))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(stage.watch.submit("b"))
        with pytest.raises(Unavailable, match="gave up after store_patience"):
            await first
        assert await second
        assert stage.seconds <= 33

    play(scene, faults=weather)


def test_what_was_acknowledged_survives_whatever_the_weather() -> None:
    """Many answers are lost, whether or not the commit took place; every acknowledged task is there, once."""
    weather = Weather()

    async def scene(stage: Stage) -> None:
        weather.lost = [True, False, False, True] * 20
        made = await asyncio.gather(*(stage.watch.submit(f"{number}") for number in range(50)))
        done: list[TaskId] = []
        while lease := await stage.watch.claim(agent="bob"):
            await lease.complete()
            done.append(lease.task)
        assert sorted(done) == sorted(made)
        assert await stage.watch.counts() == {"done": 50}
        assert weather.lost == []

    for seed in range(3):
        play(scene, seed=seed, faults=weather)


def test_a_holder_cut_off_from_the_store_stops_trusting_its_lease_before_it_is_given_away() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("a")
        async with stage.another(seed=2, faults=weather) as cut_off:
            lease = await cut_off.claim(agent="bob", lease="10s")
            assert lease is not None
            await asyncio.sleep(30)
            assert lease.remaining > 6_000, "renewed at a third of its length"
            weather.down = True
            other = asyncio.ensure_future(stage.watch.claim(agent="ann", wait="1m"))
            while lease.remaining > 0:
                assert not other.done()
                await asyncio.sleep(0.01)
            taken = await other
            assert taken is not None
            weather.down = False
            with pytest.raises(LeaseLost):
                await lease.complete("mine")
            await taken.complete("hers")
            assert await stage.watch.result(taken.task) == "hers"

    play(scene)

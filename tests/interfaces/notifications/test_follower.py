"""A sink's follower: everything once and in order, whatever fails, and in nobody's way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence

import pytest

from allswell import Watch, make_watch
from allswell.domain.notify.delivery import Delivery, DeliveryFailure, DeliveryFilter, DeliveryRetries, follower_name
from allswell.domain.rules.event import Entry
from allswell.engine.timings import Timings
from allswell.errors import Unavailable
from allswell.interfaces.notifications.follower import Follower
from allswell.interfaces.notifications.sink import SinkMessage
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.postgres import PostgresStore
from allswell.store.sqlite import SqliteStore
from allswell.store.views import Views
from tests.engine.stage import Stage, Weather, play
from tests.interfaces.notifications.listener import Listener

DOWN = DeliveryFailure("connection refused")
HOUR = 3_600


@contextlib.asynccontextmanager
async def following(watch: Watch, sink: Listener, marker: str = "one") -> AsyncIterator[None]:
    running = asyncio.ensure_future(Follower(watch, sink, marker).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def submit(stage: Stage, *names: str) -> None:
    for name in names:
        await stage.watch.submit(name)


def test_everything_is_delivered_once_and_in_order() -> None:
    async def scene(stage: Stage) -> None:
        sink = Listener()
        async with following(stage.watch, sink):
            await stage.watch.submit_many([{"name": f"{number}"} for number in range(1_200)])
            await asyncio.sleep(10)
        assert sink.heard == [f"{number}" for number in range(1_200)]
        assert len({one.id for one in sink.got}) == 1_200
        assert await stage.watch.outbox.view_deliveries(DeliveryFilter()) == []
        assert await stage.told("delivery_made", "delivery_given_up", "sink_down") == []

    play(scene)


def test_a_new_sink_hears_of_what_happens_from_now_on_unless_it_wants_all() -> None:
    async def scene(stage: Stage) -> None:
        await submit(stage, "before")
        new, old = Listener("new"), Listener("old")
        new.begins = "now"
        async with following(stage.watch, new), following(stage.watch, old):
            await asyncio.sleep(1)
            await submit(stage, "after")
            await asyncio.sleep(1)
        await submit(stage, "while nobody followed")
        async with following(stage.watch, new):
            await asyncio.sleep(1)
        assert new.heard == ["after", "while nobody followed"]
        assert old.heard == ["before", "after"]

    play(scene)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_new_sink_on_a_new_store_hears_of_the_very_first_event(kind: str, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        store = store_of(kind, request)
        sink = Listener()
        sink.begins = "now"
        async with make_watch(store, pace=Timings(follow_poll=0.02)) as watch:
            async with following(watch, sink, "one"):
                while await watch.recall(f"{follower_name('web')}.begun") is None:
                    await asyncio.sleep(0.01)
            await watch.submit("first")
            async with following(watch, sink, "two"):
                while not sink.heard:
                    await asyncio.sleep(0.01)
        assert sink.heard == ["first"]

    asyncio.run(asyncio.wait_for(main(), 60))


def store_of(kind: str, request: pytest.FixtureRequest) -> Store:
    if kind == "memory":
        return MemoryStore(strict=False)
    if kind == "sqlite":
        return SqliteStore(request.getfixturevalue("tmp_path") / "watch.db")
    return PostgresStore(request.getfixturevalue("pg_url"))


def test_a_webhook_that_fails_twice_is_delivered_on_retry_2() -> None:
    """The seed's second example."""

    async def scene(stage: Stage) -> None:
        sink = Listener()
        sink.fails = lambda one: DOWN if one.tries < 2 else None
        async with following(stage.watch, sink):
            await submit(stage, "a")
            await asyncio.sleep(100)
        first, second, third = (at for at, _ in sink.tried)
        assert 29.9 < second - first < 31
        assert 29.9 < third - second < 31
        (told,) = await stage.told("delivery_made")
        assert told.data == {
            "sink": "web",
            "delivery": sink.got[0].id,
            "tries": 2,
            "says": "✅ Delivered on retry 2",
        }

    play(scene)


def test_a_target_that_is_down_for_an_hour_gets_everything_in_order_and_holds_up_nobody() -> None:
    async def scene(stage: Stage) -> None:
        sink = Listener(targets=("a", "b"))
        sink.fails = lambda one: DOWN if one.target == "a" and stage.seconds < HOUR else None
        async with following(stage.watch, sink):
            for number in range(30):
                await submit(stage, f"a{number}", f"b{number}")
                await asyncio.sleep(60)
            assert [one for one in sink.heard if one[0] == "b"] == [f"b{number}" for number in range(30)]
            waiting = await stage.watch.outbox.view_deliveries(DeliveryFilter("web"))
            assert [one.body for one in waiting] == [f'"a{number}"' for number in range(30)]
            await asyncio.sleep(HOUR)
        assert [one for one in sink.heard if one[0] == "a"] == [f"a{number}" for number in range(30)]
        assert len(await stage.told("sink_down")) == 1
        assert len(await stage.told("delivery_made")) == 1

    play(scene)


def test_a_sink_that_hangs_is_left_after_its_limit() -> None:
    async def scene(stage: Stage) -> None:
        sink = Listener()
        sink.fails = lambda one: None if one.tries else asyncio.sleep(HOUR)
        async with following(stage.watch, sink):
            await submit(stage, "a")
            await asyncio.sleep(25)
            assert sink.heard == []
            await asyncio.sleep(60)
        assert sink.heard == ["a"]
        assert [round(at) for at, _ in sink.tried] == [0, 60]

    play(scene)


def test_what_is_given_up_is_listed_and_holds_up_nobody() -> None:
    async def scene(stage: Stage) -> None:
        sink = Listener()
        sink.fails = lambda one: DeliveryFailure("410 Gone", final=True) if one.body == '"bad"' else None
        async with following(stage.watch, sink):
            await submit(stage, "a", "bad", "b")
            await asyncio.sleep(1)
            assert sink.heard == ["a", "b"]
            (left,) = await stage.watch.outbox.view_deliveries(DeliveryFilter(given_up=True))
            assert (left.body, left.reason) == ('"bad"', "410 Gone")
            (told,) = await stage.told("delivery_given_up")
            assert told.data == {"sink": "web", "delivery": left.id, "reason": "410 Gone"}

    play(scene)


def test_what_waits_for_a_target_that_is_gone_is_given_up() -> None:
    async def scene(stage: Stage) -> None:
        before, after = Listener(targets=("a", "b")), Listener(targets=("b",))
        before.fails = lambda _: DOWN
        async with following(stage.watch, before):
            await submit(stage, "a1", "b1")
            await asyncio.sleep(1)
        async with following(stage.watch, after):
            await asyncio.sleep(60)
        assert after.heard == ["b1"]
        (left,) = await stage.watch.outbox.view_deliveries(DeliveryFilter())
        assert (left.body, left.given_up, left.reason) == ('"a1"', True, "its target is no longer set up")
        assert len(await stage.told("delivery_given_up")) == 1

    play(scene)


def test_what_may_not_be_told_now_waits_whenever_it_happened_and_however_often_it_failed() -> None:
    async def scene(stage: Stage) -> None:
        class Sleeper(Listener):
            together = 10

            def free_at(self, target: str, now: int) -> int:
                night = 60_000 <= now - begun < 3_600_000
                return begun + 3_600_000 if night else now

        begun = await stage.watch.now()
        sink = Sleeper()
        sink.fails = lambda _: DOWN if stage.seconds < HOUR else None
        async with following(stage.watch, sink):
            await submit(stage, "a")
            await asyncio.sleep(120)
            await submit(stage, "b")
            await asyncio.sleep(120)
            waiting = await stage.watch.outbox.view_deliveries(DeliveryFilter("web"))
            assert waiting[0].next_at == begun + 3_600_000, "people can see until when"
            await asyncio.sleep(HOUR)
        assert [round(at) for at, _ in sink.tried] == [0, 30, 3600, 3601]
        assert sink.heard == ["a", "b"]

    play(scene)


def test_what_may_go_together_is_gathered() -> None:
    async def scene(stage: Stage) -> None:
        class Gatherer(Listener):
            together = 10

            async def send(self, batch: Sequence[Delivery]) -> None:
                await super().send(batch)
                sizes.append(len(batch))

        sizes: list[int] = []
        async with following(stage.watch, Gatherer()):
            for number in range(40):
                await submit(stage, f"{number}")
                await asyncio.sleep(0.1)
            await asyncio.sleep(5)
        assert sum(sizes) == 40
        assert len(sizes) <= 6, "a storm is a few messages"

    play(scene)


def test_what_a_sink_remembers_is_kept_with_what_it_has_taken_in() -> None:
    async def scene(stage: Stage) -> None:
        class Counter(Listener):
            async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
                if entry.event.kind != "task_submitted":
                    return ()
                self.memory = str(int(self.memory or 0) + 1)
                return [SinkMessage(f'"{self.memory}"')]

        weather = Weather()
        failing = 5

        async def lose(statement: str) -> None:
            nonlocal failing
            if statement == "enlist" and failing > 0:
                failing -= 1
                raise Unavailable("the store cannot be reached")

        weather.on = lose
        heard = []
        async with stage.another(seed=5, faults=weather) as other:
            for life in range(3):
                sink = Counter()
                async with following(other, sink, f"{life}"):
                    await submit(stage, "a", "b")
                    await asyncio.sleep(60)
                heard += sink.heard
        assert heard == ["1", "2", "3", "4", "5", "6"]

    play(scene)


def test_a_sink_that_was_forgotten_begins_anew() -> None:
    async def scene(stage: Stage) -> None:
        sink = Listener()
        sink.begins = "now"
        async with following(stage.watch, sink):
            await asyncio.sleep(1)
            await submit(stage, "a")
            await asyncio.sleep(1)
            await stage.watch.outbox.forget(follower_name("web"), "web")
            await asyncio.sleep(30)
            await submit(stage, "b")
            await asyncio.sleep(30)
        assert sink.heard[0] == "a"
        assert sink.heard.count("a") == 1, "what it was told is not told again"
        assert sink.heard in (["a"], ["a", "b"])

    play(scene)


def test_one_follower_at_a_time_and_the_next_takes_over() -> None:
    async def scene(stage: Stage) -> None:
        first, second = Listener(), Listener()
        async with stage.another(seed=2) as other, following(other, second, "two"):
            running = asyncio.ensure_future(Follower(stage.watch, first, "one").run())
            await submit(stage, "a")
            await asyncio.sleep(1)
            assert sorted(first.heard + second.heard) == ["a"]
            at_work = first if first.heard else second
            await submit(stage, "b")
            await asyncio.sleep(30)
            assert at_work.heard == ["a", "b"]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await asyncio.sleep(10)
            await submit(stage, "c")
            await asyncio.sleep(10)
            assert second.heard[-1] == "c"
            assert sorted(first.heard + second.heard) == ["a", "b", "c"]

    play(scene)


def test_whoever_dies_is_followed_by_another_after_a_few_seconds() -> None:
    async def scene(stage: Stage) -> None:
        sink = Listener()
        await stage.watch.swap(follower_name("web"), None, f'{{"marker":"dead","said_at":{await stage.watch.now()}}}')
        async with following(stage.watch, sink):
            await submit(stage, "a")
            await asyncio.sleep(14)
            assert sink.heard == []
            await asyncio.sleep(10)
            assert sink.heard == ["a"]

    play(scene)


def test_a_store_that_goes_and_comes_doubles_nothing() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        sink = Listener()
        calls = 0

        async def now_and_then(statement: str) -> None:
            nonlocal calls
            if statement in ("enlist", "revise", "view_deliveries", "journal", "cursor", "view_agenda", "swap"):
                calls += 1
                if calls % 3 == 0:
                    raise Unavailable("the store cannot be reached")

        async with stage.another(seed=3, faults=weather) as other:
            weather.on = now_and_then
            async with following(other, sink):
                await submit(stage, *(f"{number}" for number in range(50)))
                await asyncio.sleep(60)
            weather.on = None
        assert sink.heard == [f"{number}" for number in range(50)]

    play(scene)


async def cut_off(stage: Stage, sink: Listener, cut: int) -> bool:
    """Follow with a process that stops for good before its n-th statement, or right after a sending; whether it did."""
    left = cut
    dead = asyncio.Event()
    weather = Weather()

    async def die(_: str = "") -> None:
        nonlocal left
        left -= 1
        if left == 0:
            dead.set()
            await asyncio.Event().wait()

    def sent(one: Delivery) -> Awaitable[None]:
        sink.got.append(one)
        return die()

    async with stage.another(seed=4, faults=weather) as doomed:
        sink.fails = sent
        weather.on = die
        running = asyncio.ensure_future(Follower(doomed, sink, "doomed").run())
        waiting = asyncio.ensure_future(dead.wait())
        await asyncio.wait([waiting], timeout=40)
        weather.on = None
        left = 0
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
    return dead.is_set()


def test_killed_at_every_point_nothing_is_lost_and_repetitions_have_the_same_id() -> None:
    async def scene(stage: Stage) -> None:
        await submit(stage, "a", "b")
        cut, died = 0, True
        while died and cut < 60:
            cut += 1
            doomed, survivor = Listener(f"web{cut}"), Listener(f"web{cut}")
            died = await cut_off(stage, doomed, cut)
            async with following(stage.watch, survivor, "survivor"):
                await asyncio.sleep(40)
            told = {one.id: one.body for one in (*doomed.got, *survivor.got)}
            assert sorted(told.values()) == ['"a"', '"b"'], "each event has one id, and was delivered"
            assert len(survivor.got) == len({one.id for one in survivor.got})
        assert cut > 20

    play(scene, max_steps=20_000_000)


def test_a_sink_does_not_hear_of_itself() -> None:
    async def scene(stage: Stage) -> None:
        class Everything(Listener):
            async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
                return [SinkMessage(f'"{entry.event.kind}"')]

        sink = Everything(patience=DeliveryRetries(retries=0, apart=1_000))
        sink.fails = lambda one: DOWN if one.tries < 1 else None
        async with following(stage.watch, sink):
            await submit(stage, "a")
            await asyncio.sleep(60)
        assert sink.heard == ["task_submitted"]
        assert await stage.told("sink_down", "delivery_made") != []

    play(scene)

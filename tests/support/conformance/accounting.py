"""Nothing hangs silently: each way in which an open task is accounted for, and each way in which it is not."""

from __future__ import annotations

from allswell.domain.ids import Millis, Token
from allswell.domain.task.model import State
from allswell.store.port import LockKind, RowChanges, Store
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place, ids, write


async def _unaccounted(store: Store) -> list[str]:
    return sorted(await store.view_orphans())


async def who_is_accounted_for(place: Place) -> None:
    """A live lease with a timer, a place in the pool, a timer, or something alive that is waited for."""
    changes = rows.new_tasks(
        rows.task("t_ready"),
        rows.task("t_delayed"),
        rows.task("t_held"),
        rows.task("t_held_waiting"),
        rows.task("t_needs_open"),
        rows.task("t_needs_spread"),
        rows.task("t_needs_one_alive"),
        rows.task("t_asks"),
        rows.task("t_of_ended_run", run="r_over"),
        rows.task("t_spreading", state=State.DONE),
        rows.task("t_ended", state=State.FAILED),
    )
    changes.new_ready = [rows.ready("t_ready")]
    changes.new_leases = [rows.lease("t_held"), rows.lease("t_held_waiting")]
    changes.timers = [("t_delayed", Millis(AT)), ("t_held", Millis(AT)), ("t_held_waiting", Millis(AT))]
    changes.new_questions = [rows.question("q_asks.1", "t_asks"), rows.question("q_held.1", "t_held", closed=True)]
    changes.new_waits = [
        rows.need("t_held_waiting", "t_ended"),
        rows.need("t_needs_open", "t_ready"),
        rows.need("t_needs_spread", "t_spreading"),
        rows.need("t_needs_one_alive", "t_ended"),
        rows.need("t_needs_one_alive", "t_ready"),
        rows.asks("t_asks", "q_asks.1"),
    ]
    changes.new_spreads = [rows.spread("t_spreading"), rows.spread("r_over", "cancelled")]
    async with place.store() as store:
        assert await _unaccounted(store) == []
        await write(store, changes)
        assert await _unaccounted(store) == []


async def who_is_not_accounted_for(place: Place) -> None:
    """Nothing at all, a lease that no timer ends, and waiting for what is over."""
    lost = (
        "t_nowhere",
        "t_lease_only",
        "t_needs_ended",
        "t_asks_closed",
        "t_timer_but_waits",
        "t_of_open_run",
    )
    changes = rows.new_tasks(
        *(rows.task(id_) for id_ in lost[:-1]),
        rows.task("t_of_open_run", run="r_open"),
        rows.task("t_ended", state=State.DONE),
        rows.task("t_ready"),
    )
    changes.new_runs = [rows.run("r_open")]
    changes.new_ready = [rows.ready("t_ready")]
    changes.new_leases = [rows.lease("t_lease_only")]
    changes.timers = [("t_timer_but_waits", Millis(AT)), ("r_open", Millis(AT))]
    changes.new_questions = [rows.question("q_asks_closed.1", "t_asks_closed", closed=True)]
    changes.new_waits = [
        rows.need("t_needs_ended", "t_ended"),
        rows.need("t_timer_but_waits", "t_ended"),
        rows.asks("t_asks_closed", "q_asks_closed.1"),
    ]
    async with place.store() as store:
        await write(store, changes)
        assert await _unaccounted(store) == sorted(lost)
        assert len(await store.view_orphans(2)) == 2


async def the_account_follows_what_happens(place: Place) -> None:
    """Whoever loses what accounted for it shows up, and is gone again when it is back."""
    changes = rows.new_tasks(
        rows.task("t_1"), rows.task("t_2"), rows.task("t_3", run="r_1"), rows.task("t_4"), rows.task("t_5")
    )
    changes.new_ready = [rows.ready("t_1")]
    changes.new_questions = [rows.question("q_4.1", "t_4")]
    changes.new_waits = [rows.need("t_2", "t_1"), rows.asks("t_4", "q_4.1")]
    changes.new_leases = [rows.lease("t_5")]
    changes.timers = [("t_5", Millis(AT))]
    changes.new_spreads = [rows.spread("r_1")]
    one = {LockKind.TASK: ["t_1"]}
    five = {LockKind.TASK: ["t_5"], LockKind.LEASE: ["t_5"]}
    steps: list[tuple[RowChanges, dict[LockKind, list[str]], list[str]]] = [
        (changes, {}, []),
        (RowChanges(drop_timers=["t_5"]), five, ["t_5"]),
        (RowChanges(drop_leases=[(ids("t_5")[0], Token(1))]), five, ["t_5"]),
        (RowChanges(timers=[("t_5", Millis(AT))]), five, []),
        (RowChanges(drop_ready=[rows.ready("t_1")]), one, ["t_1"]),
        (
            RowChanges(tasks=[(rows.task("t_1", state=State.DONE), None)], new_spreads=[rows.spread("t_1")]),
            one,
            [],
        ),
        (RowChanges(drop_spreads=["t_1"]), {LockKind.SPREAD: ["t_1"]}, ["t_2"]),
        (RowChanges(drop_waits=[rows.need("t_2", "t_1")], new_ready=[rows.ready("t_2")]), {LockKind.TASK: ["t_2"]}, []),
        (RowChanges(drop_spreads=["r_1"]), {LockKind.SPREAD: ["r_1"]}, ["t_3"]),
        (RowChanges(tasks=[(rows.task("t_3", run="r_1", state=State.CANCELLED), None)]), {LockKind.TASK: ["t_3"]}, []),
        (RowChanges(questions=[rows.question("q_4.1", "t_4", closed=True)]), {LockKind.QUESTION: ["q_4.1"]}, ["t_4"]),
    ]
    async with place.store() as store:
        for number, (change, locks, expected) in enumerate(steps):
            await write(store, change, locks)
            assert await _unaccounted(store) == expected, f"after step {number}"


CASES: tuple[Case, ...] = (
    who_is_accounted_for,
    who_is_not_accounted_for,
    the_account_follows_what_happens,
)

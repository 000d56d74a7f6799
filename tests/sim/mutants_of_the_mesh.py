"""Planted bugs in the rules of requests between agents: one for each."""

# ruff: noqa: ANN401 - a planted bug passes on whatever it was given

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.lease import claim, holder
from allswell.domain.mesh import delivery, health, request, respond
from allswell.domain.mesh import request as circle
from allswell.domain.task import fanout
from allswell.domain.task.aggregate import TaskChange, end_task, requeue
from allswell.domain.task.model import RequestRecord
from allswell.store.memory import tables
from allswell.store.memory.transaction import MemoryTransaction
from tests.sim.planting import everywhere

Mutant = Callable[[], contextlib.AbstractContextManager[object]]
MESH_MUTANTS: dict[str, tuple[Mutant, str]] = {}


def mutant(breaks: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    """Enter a generator function as a planted bug, with the promise that it breaks."""

    def enter(make: Callable[[], Iterator[None]]) -> None:
        MESH_MUTANTS[make.__name__] = (contextlib.contextmanager(make), breaks)

    return enter


@mutant("no request is open past its schedule")
def retries_never_run_out() -> Iterator[None]:
    right = delivery._deliver

    def deliver(out: Any, attempt: int, last: int, timeout: int, now: Any) -> None:
        right(out, attempt, last + 1, timeout, now)

    with patch.object(delivery, "_deliver", deliver):
        yield


@mutant("a delivery never expires early")
def deliveries_are_half_as_long() -> Iterator[None]:
    def early(since: Millis, due: Millis, **more: Any) -> RequestRecord:
        return RequestRecord(since, Millis(since + (due - since) // 2), **more)

    with patch.object(request, "RequestRecord", early):
        yield


@mutant("the mesh is asked once")
def the_mesh_is_asked_with_each_delivery() -> Iterator[None]:
    def always(spec: Any, stand: Any) -> bool:
        del spec, stand
        return True

    with everywhere("asks_mesh", always, request, delivery):
        yield


@mutant("it blocks after the mesh was asked, and nobody answered")
def the_mesh_is_never_asked() -> Iterator[None]:
    with everywhere("asks_mesh", lambda _spec, _stand: False, request, delivery):
        yield


@mutant("a request blocks before the asking lease's limit")
def the_schedule_is_not_fitted() -> Iterator[None]:
    with everywhere("time_for", lambda spec, _lease, _now: spec.timeout, request, delivery):
        yield


@mutant("an answer counts once")
def an_answer_is_told_twice() -> Iterator[None]:
    right = end_task

    def twice(out: TaskChange, *given: Any, **more: Any) -> None:
        right(out, *given, **more)
        out.events.append(out.events[-1])

    with patch.object(respond, "end_task", twice):
        yield


@mutant("nothing hangs silently")
def a_late_answer_queues_nothing() -> Iterator[None]:
    right = fanout.need_ended

    def deaf(case_: Any, spread: Any, *more: Any) -> Any:
        if str(spread.id).startswith("m_"):
            return TaskChange(case_)
        return right(case_, spread, *more)

    with patch.object(fanout, "need_ended", deaf):
        yield


@mutant("only who was asked answers")
def anybody_may_answer() -> Iterator[None]:
    with patch.object(respond, "check_may_answer", lambda *_: None):
        yield


@mutant("agents never wait for each other in a circle")
def circles_are_not_looked_for() -> Iterator[None]:
    with patch.object(holder, "refuse_circle", lambda *_: None):
        yield


@mutant("agents never wait for each other in a circle")
def those_who_ask_at_once_do_not_see_each_other() -> Iterator[None]:
    async def blind(self: Any) -> list[Any]:
        del self
        return []

    with patch.object(MemoryTransaction, "find_asking", blind):
        yield


@mutant("only who waits is in a circle")
def who_lost_its_lease_waits_on() -> Iterator[None]:
    def all_of_them(requests: Any, tokens_of: Any) -> list[Any]:
        del tokens_of
        return sorted(one for task in requests if (one := circle._awaited(task)) is not None)

    with patch.object(tables, "awaited_requests", all_of_them):
        yield


@mutant("an answer is handed to the next attempt")
def a_refusal_is_handed_to_nobody() -> Iterator[None]:
    right = respond._entered

    def silent(*given: Any, declined: bool = False) -> Any:
        return [] if declined else right(*given)

    with patch.object(respond, "_entered", silent):
        yield


@mutant("what is addressed to an agent is offered to nobody else")
def requests_lie_in_everybody_s_pool() -> Iterator[None]:
    with patch.object(claim, "agent_of", lambda _role: None):
        yield


@mutant("a request blocks its task once")
def a_block_is_told_by_both() -> Iterator[None]:
    right = respond._something_else

    def again(situation: Any, command: Any, outcomes: Any) -> Any:
        told = [event for blocked in outcomes[1:] for event in blocked.events]
        decision = right(situation, command, outcomes)
        decision.events = [*decision.events, *told]
        return decision

    with patch.object(respond, "_something_else", again):
        yield


@mutant("a late answer counts once")
def a_late_answer_is_not_counted() -> Iterator[None]:
    right = respond._answered

    def silent(*given: Any) -> Any:
        steps = right(*given)
        for out in steps:
            out.events = [event for event in out.events if event.kind != "request_resolved"]
        return steps

    with patch.object(respond, "_answered", silent):
        yield


@mutant("one next for each request")
def moving_on_twice_claims_twice() -> Iterator[None]:
    right = delivery.with_stand

    def forgets(task: Any, stand: Any) -> Any:
        return right(task, replace(stand, moved_on=False))

    with patch.object(respond, "with_stand", forgets), patch.object(respond, "_next", _next_of_command):
        yield


def _next_of_command(command: Any) -> Any:
    return f"next.{command.id}"


@mutant("one next for each attempt")
def each_request_of_an_attempt_has_a_next_of_its_own() -> Iterator[None]:
    with patch.object(respond, "_next", lambda command: f"next.{command.request}"):
        yield


@mutant("who waits comes back when its task is blocked")
def a_block_releases_only_who_waits_for_that_request() -> Iterator[None]:
    with patch.object(respond, "BLOCKED", "something else"):
        yield


@mutant("an answer is handed to the next attempt")
def answers_are_not_entered() -> Iterator[None]:
    with everywhere("answer_entered", lambda _situation, _out: [], respond, holder):
        yield


# --- webhooks ---------------------------------------------------------------------------------------------------------


@mutant("a webhook is posted once for each delivery")
def a_webhook_is_posted_with_its_block() -> Iterator[None]:
    with patch.object(delivery, "_webhook_at_rest", requeue):
        yield


@mutant("a webhook is posted with each delivery")
def a_webhook_that_failed_is_not_posted_again() -> Iterator[None]:
    def put_off(case: Any, now: Any) -> Any:
        return requeue(case, now, until=case.task.record.request.due + 1)

    with patch.object(delivery, "_webhook_at_rest", put_off):
        yield


# --- M3 ---------------------------------------------------------------------------------------------------------------


@mutant("each delivery that nobody answers is told")
def an_expiry_is_not_told() -> Iterator[None]:
    right = delivery._tell

    def silent(out: Any, kind: str, **more: Any) -> None:
        if kind != "request_expired" or more["attempt"] == 1:
            right(out, kind, **more)

    with patch.object(delivery, "_tell", silent):
        yield


# --- M6 ---------------------------------------------------------------------------------------------------------------


@mutant("a long block is told")
def a_long_block_is_never_told() -> Iterator[None]:
    right = delivery._tell_if_long

    def silent(out: Any, asking: Any, now: Any) -> None:
        told = len(out.events)
        right(out, asking, now)
        del out.events[told:]

    with patch.object(delivery, "_tell_if_long", silent):
        yield


@mutant("a long block is told once, and again when it is time")
def a_long_block_is_told_at_every_look() -> Iterator[None]:
    right = delivery._tell_if_long

    def again_soon(out: Any, asking: Any, now: Any) -> None:
        right(out, asking, now)
        _, stand, _ = delivery._parts(out.case)
        if stand.alerts and stand.alert_at is not None:
            delivery._stand(out, replace(stand, alert_at=Millis(now + 60_000)))

    with patch.object(delivery, "_tell_if_long", again_soon):
        yield


@mutant("a long block is told once, and again when it is time")
def a_block_is_told_before_it_is_long() -> Iterator[None]:
    right = delivery._block

    def early(out: Any, asking: Any, lease: Any, now: Any) -> Any:
        blocked = right(out, asking, lease, now)
        _, stand, _ = delivery._parts(out.case)
        delivery._stand(out, replace(stand, alert_at=Millis(now + 60_000)))
        return blocked

    with patch.object(delivery, "_block", early):
        yield


@mutant("a long block is told")
def a_reminder_takes_the_place_of_the_first_word() -> Iterator[None]:
    right = delivery._block

    def later(out: Any, asking: Any, lease: Any, now: Any) -> Any:
        blocked = right(out, asking, lease, now)
        spec, stand, _ = delivery._parts(out.case)
        delivery._stand(out, replace(stand, alert_at=Millis(now + (spec.remind or 0))))
        return blocked

    with patch.object(delivery, "_block", later):
        yield


# --- M7 ---------------------------------------------------------------------------------------------------------------


@mutant("a degraded agent is passed over while another can serve")
def a_degraded_agent_is_asked_like_any_other() -> Iterator[None]:
    with patch.object(holder, "passed_over", lambda *_: ()):
        yield


@mutant("somebody is left to serve")
def where_all_are_degraded_all_are_passed_over() -> Iterator[None]:
    def every(can_serve: Any, now: Any) -> Any:
        return tuple(agent for agent, row in can_serve.items() if health.is_degraded(row, now))

    with patch.object(holder, "passed_over", every):
        yield


@mutant("nobody is passed over who is not degraded")
def one_expiry_is_enough_to_be_passed_over() -> Iterator[None]:
    def strict(can_serve: Any, now: Any) -> Any:
        return tuple(agent for agent, row in can_serve.items() if health.held_against(row, now))

    with patch.object(holder, "passed_over", strict):
        yield


@mutant("nobody is given what it asked itself")
def who_asks_may_be_given_it() -> Iterator[None]:
    right = holder._routed

    def open_to_all(situation: Any, command: Any) -> Any:
        routed = right(situation, command)
        barred = tuple(agent for agent in routed.request.barred if agent != command.agent)
        return replace(routed, request=replace(routed.request, barred=barred))

    with patch.object(holder, "_routed", open_to_all):
        yield


@mutant("an agent is degraded by more than three expiries in a day")
def impatience_counts() -> Iterator[None]:
    with everywhere("counts", lambda _had, _default: True, health, health):
        yield


@mutant("an agent is degraded by more than three expiries in a day")
def the_third_expiry_degrades() -> Iterator[None]:
    with patch.object(health, "TOO_MANY", 2):
        yield


@mutant("an agent is degraded by more than three expiries in a day")
def expiries_age_out_within_minutes() -> Iterator[None]:
    with patch.object(health, "DAY", 300_000):
        yield


# --- M8 ---------------------------------------------------------------------------------------------------------------


@mutant("an expiry is of whoever was asked")
def an_expiry_costs_the_one_who_asked() -> Iterator[None]:
    uncharged = patch.object(health, "_who", lambda _: "")
    with uncharged, patch.object(delivery, "_against", lambda case: case.task.spec.origin.agent):
        yield

"""Mistakes planted into the rules of a build, one for each: the scenes that prove the rule find them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from allswell.build import coordinator
from allswell.domain.build import claims, due, graph, hearing
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.standing import ComponentStanding
from allswell.domain.build.step import CollectClaim, GiveVerdict, IgnoreLine
from tests.build import test_coordinator as scenes
from tests.build import test_kills as kills


def everybodys_failures(self: ComponentStanding, _builder: str) -> int:
    return sum(one.passed is False for one in self.audits)


def anybody_audits(component: ComponentStanding, who: str, *_: object, passed: bool, details: str) -> list[Any]:
    audit = component.in_audit
    return [] if audit is None else [GiveVerdict(component.name, audit, who, passed, details)]


def as_they_came(given: Sequence[CollectClaim]) -> list[CollectClaim]:
    return list(given)


def no_lines_about_the_held(*_: object) -> list[Any]:
    return []


PLANTED: dict[str, tuple[object, str, object, Callable[[], None]]] = {
    "C1: one miss too many is forgiven": (
        BuildLimits,
        "silence",
        property(lambda limits: limits.progress_every * (limits.misses + 1)),
        scenes.test_a_builder_that_is_silent_for_three_check_ins_loses_its_component,
    ),
    "C2: failures of all builders are counted together": (
        ComponentStanding,
        "failures",
        everybodys_failures,
        scenes.test_after_three_failures_another_builder_has_to_do_it,
    ),
    "C2: anybody's verdict counts": (
        hearing,
        "_audit",
        anybody_audits,
        scenes.test_only_the_first_verdict_of_somebody_who_may_audit_counts,
    ),
    "C2: a builder in audit must go on saying PROGRESS": (
        due,
        "_about_the_held",
        no_lines_about_the_held,
        scenes.test_what_nobody_audits_is_announced_again_and_its_builder_keeps_it,
    ),
    "C3: whoever is heard first wins": (
        claims,
        "in_order",
        as_they_came,
        lambda: scenes.test_of_two_claims_the_earlier_by_the_servers_clock_wins("@b"),
    ),
    "C3: an earlier claim that comes late is forgotten": (
        hearing,
        "_dispute",
        lambda *_: IgnoreLine("", ""),
        lambda: scenes.test_an_earlier_claim_that_comes_after_the_ack_is_for_a_human("keep"),
    ),
    "C4: no cycle is ever seen": (
        graph,
        "cycle_in",
        lambda _: None,
        scenes.test_a_cycle_halts_the_build_and_a_corrected_spec_goes_on,
    ),
    "C5: aborts are not counted": (
        ComponentStanding,
        "aborts",
        property(lambda _: 0),
        scenes.test_giving_back_is_neither_timeout_nor_failure_and_the_third_time_asks_a_human,
    ),
    "C6: whoever has lost it is not told why": (
        hearing,
        "why_not_held",
        lambda *_: "no",
        scenes.test_a_late_ready_is_refused_with_the_reason,
    ),
    "C7: nobody minds the limit": (
        due,
        "_about_the_build",
        lambda *_: [],
        lambda: scenes.test_past_its_limit_one_question_is_asked_and_nothing_new_is_begun("stop"),
    ),
    "C8: what was perhaps said is said again": (
        coordinator,
        "still_owed",
        lambda owed, _: owed,
        lambda: kills.test_killed_again_and_again_the_build_goes_on_and_says_everything_once(0),
    ),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong, scene = PLANTED[mistake]
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises((AssertionError, TimeoutError, ValueError, pytest.fail.Exception)):
        scene()

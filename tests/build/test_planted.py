"""Mistakes planted into the rules of a build, one for each: the scenes that prove the rule find them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from allswell.build import coordinator, state
from allswell.domain.build import announcements, hearing
from allswell.domain.build import component as graph
from allswell.domain.build import hearing as claims
from allswell.domain.build import hearing as due
from allswell.domain.build.component import BuildGraph
from allswell.domain.build.hearing import KnownMessages
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import TimeoutLine, write
from allswell.domain.build.state import (
    AnswerQuestion,
    BuildAudit,
    BuildStatus,
    CollectClaim,
    ComponentStatus,
    GiveVerdict,
    IgnoreLine,
    RequestAudit,
)
from allswell.domain.ids import Millis, TaskId
from allswell.domain.lease.audit import AfterAudit
from tests.build import test_coordinator as scenes
from tests.build import test_kills as kills
from tests.build import test_late_lines as late


def everybodys_failures(self: ComponentStatus, _builder: str) -> int:
    return sum(one.passed is False for one in self.audits)


def anybody_audits(component: ComponentStatus, who: str, *_: object, passed: bool, details: str) -> list[Any]:
    audit = component.in_audit
    return [] if audit is None else [GiveVerdict(component.name, audit, who, passed, details)]


def disputed_by_anybody(
    standing: BuildStatus, component: ComponentStatus, speaker: hearing.Speaker, *_: object
) -> list[Any]:
    if component.claimed is not None and speaker.mark < component.claimed:
        return [hearing._dispute(standing, component, speaker.who)]
    return [CollectClaim(component.name, speaker.who, speaker.mark)]


def anybody_hands_in(component: ComponentStatus, speaker: hearing.Speaker, url: str) -> list[Any]:
    return [RequestAudit(component.name, BuildAudit(9, TaskId(""), url, speaker.who, component.token))]


_about_the_build = due._about_the_build


def asked_twice(standing: BuildStatus, limits: BuildLimits, now: Millis) -> list[Any]:
    once = len(standing.questions) == 1
    without = msgspec.structs.replace(standing, questions=()) if once else standing
    return _about_the_build(without, limits, now)


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
        ComponentStatus,
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
    "C3: claims are collected by our clock alone": (
        claims.ClaimWindow,
        "is_over",
        lambda window, length, now, _: now >= window.opened + length,
        scenes.test_claims_are_collected_for_a_second_of_the_servers_clock,
    ),
    "C2: a verdict counts for a READY that it does not name": (
        ComponentStatus,
        "is_of_an_earlier",
        lambda *_: False,
        late.test_a_verdict_that_names_a_replaced_ready_is_not_about_the_newer_one,
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
        ComponentStatus,
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
        state,
        "still_owed",
        lambda owed, _: owed,
        lambda: kills.test_killed_again_and_again_the_build_goes_on_and_says_everything_once(0),
    ),
    "C2: whoever has failed three times may claim it again": (
        hearing,
        "may_never_claim",
        lambda *_: "",
        scenes.test_after_three_failures_another_builder_has_to_do_it,
    ),
    "C2: a verdict is about whatever is in audit when it arrives": (
        hearing,
        "why_no_verdict",
        lambda *_, **__: "",
        late.test_a_verdict_from_before_ready_is_about_an_earlier_one,
    ),
    "C3: a tie goes to whoever is heard first": (
        claims,
        "in_order",
        lambda given: sorted(given, key=lambda one: one.mark.at),
        lambda: scenes.test_an_exact_tie_is_settled_the_same_way_every_time(("m2", "m1")),
    ),
    "C3: whoever lost a dispute is not told": (
        announcements,
        "GIVEN_TO",
        "never",
        late.test_whoever_loses_a_dispute_is_told_to_stop,
    ),
    "C3: a barred builder disputes": (
        hearing,
        "_claim",
        disputed_by_anybody,
        late.test_an_earlier_claim_of_a_barred_builder_is_no_dispute,
    ),
    "C4: a component is offered before what it needs": (
        BuildGraph,
        "has_its_needs",
        lambda *_: True,
        scenes.test_a_build_goes_from_its_first_component_to_its_last,
    ),
    "C4: a cycle halts nothing": (
        BuildStatus,
        "stands_still",
        lambda _: False,
        scenes.test_a_cycle_halts_the_build_and_a_corrected_spec_goes_on,
    ),
    "C5: what is given back is a timeout": (
        announcements,
        "_ending",
        lambda component, _: [TimeoutLine(component.name)],
        scenes.test_giving_back_is_neither_timeout_nor_failure_and_the_third_time_asks_a_human,
    ),
    "C6: a READY counts whoever says it": (
        hearing,
        "_ready",
        anybody_hands_in,
        scenes.test_a_late_ready_is_refused_with_the_reason,
    ),
    "C6: an old ABORT ends a new lease": (
        hearing,
        "_is_about_an_earlier_lease",
        lambda *_: False,
        late.test_what_was_said_under_an_earlier_lease_is_not_about_this_one,
    ),
    "C7: nobody is asked when all have failed": (
        due,
        "after_verdict",
        lambda **_: AfterAudit.REASSIGN,
        scenes.test_when_all_known_builders_have_failed_a_human_is_asked,
    ),
    "C7: past the limit it is asked a second time": (
        due,
        "_about_the_build",
        asked_twice,
        lambda: scenes.test_past_its_limit_one_question_is_asked_and_nothing_new_is_begun("extend"),
    ),
    "C7: an agent's answer counts": (
        hearing,
        "_answer",
        lambda _, line, who, __: AnswerQuestion(line.question, line.option, line.text, who),
        lambda: scenes.test_an_earlier_claim_that_comes_after_the_ack_is_for_a_human("keep"),
    ),
    "C8: what was not said yet is forgotten": (
        state,
        "still_owed",
        lambda *_: (),
        late.test_what_was_decided_and_not_said_is_said_by_the_next_life,
    ),
    "C8: a message that comes twice counts twice": (
        KnownMessages,
        "is_new",
        lambda *_: True,
        late.test_a_message_that_comes_twice_is_acted_on_once_though_nobody_says_that_it_is_a_replay,
    ),
    "C8: each announcement waits to be said, however many there are": (
        coordinator,
        "owe",
        lambda owed, lines, _: (*owed, *map(write, lines)),
        late.test_announcements_that_nobody_could_hear_are_made_once,
    ),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong, scene = PLANTED[mistake]
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises((AssertionError, TimeoutError, ValueError, pytest.fail.Exception)):
        scene()

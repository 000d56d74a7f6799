"""What a build needs next, read off how it stands: rules that need no line to be said.

They look at the state alone, so it does not matter what was interrupted when: a coordinator that was killed between two
steps finds the second one due again.
"""

from __future__ import annotations

from allswell.domain.audit import AfterAudit, after_verdict
from allswell.domain.build.hearing import ABOUT_COMPONENT, Rights
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.standing import (
    AUDIT_FAILED,
    CYCLE_OPTIONS,
    GIVEN_TO,
    LIMIT_OPTIONS,
    ClaimMark,
    ComponentStanding,
    Standing,
)
from allswell.domain.build.step import (
    AskAboutBuild,
    AskAboutComponent,
    BuildStep,
    GiveBackComponent,
    GrantClaim,
    HoldComponent,
    MergeComponent,
    OfferComponent,
)
from allswell.domain.duration import show
from allswell.domain.names import Millis
from allswell.domain.question import Act, Option

_BY_A_HUMAN = ClaimMark(Millis(0), "a human")
"""No claim is earlier than what a human decided."""
_EXTEND = Option("extend", "Go on for as long again", Act.RETRY)
_STOP = Option("stop", "Stop the build", Act.SKIP)
_RECHECK = Option("recheck", "The spec is corrected: read it again", Act.RETRY)


def due_steps(standing: Standing, rights: Rights, limits: BuildLimits, now: Millis) -> list[BuildStep]:
    """Everything that is due now."""
    steps: list[BuildStep] = [*_about_the_build(standing, limits, now)]
    offers = not steps and not standing.stands_still()
    for component in standing.components.values():
        if component.state == "waiting":
            if offers and component.task is None and component.has_its_needs:
                steps.append(OfferComponent(component.name))
        elif component.state == "free" and component.task is not None and component.past:
            heir = component.past[-1].detail.removeprefix(GIVEN_TO)
            if heir != component.past[-1].detail:
                steps.append(GrantClaim(component.name, component.task, heir, _BY_A_HUMAN))
        elif component.state == "held":
            steps += _about_the_held(standing, component, rights, limits, now)
    return steps


def _about_the_build(standing: Standing, limits: BuildLimits, now: Millis) -> list[BuildStep]:
    """A cycle halts the build (C4); past its limit a human is asked once, and once more after each extension (C7)."""
    if standing.is_over:
        return []
    asked = [question for question in standing.questions if not question.component]
    if standing.cycle:
        if any(one.choice is None and one.options == CYCLE_OPTIONS for one in asked):
            return []
        text = f"The build is halted: dependency cycle detected: {standing.cycle}. Correct the spec."
        return [AskAboutBuild(text, (_RECHECK, _STOP))]
    about_time = [one for one in asked if one.options == LIMIT_OPTIONS]
    extended = sum(one.choice == "extend" for one in about_time)
    length = limits.build * (1 + extended)
    if now < standing.started_at + length or any(one.choice is None for one in about_time):
        return []
    text = f"The build has taken longer than {show(length)}. What is held goes on, and nothing new is begun."
    return [AskAboutBuild(text, (_EXTEND, _STOP))]


def _about_the_held(
    standing: Standing, component: ComponentStanding, rights: Rights, limits: BuildLimits, now: Millis
) -> list[BuildStep]:
    if component.task is None:
        return []
    task, token, holder = component.task, component.token, component.holder
    for question in standing.questions:
        dispute = question.dispute
        if dispute and question.choice == "give" and (dispute.component, dispute.token) == (component.name, token):
            return [GiveBackComponent(task, token, holder, GIVEN_TO + dispute.agent)]
    audit = component.current
    if audit is None:
        return []
    if audit.passed and not rights.wait_for_merge:
        return [MergeComponent(component.name, task, token, holder, audit)]
    if audit.passed is not False:
        # Nobody expects PROGRESS of a builder that waits for an audit or a merge, so the coordinator renews for it.
        return [HoldComponent(task, token, holder)] if now - component.heard_at >= limits.silence // 3 else []
    most = limits.audit_failures
    others = any(component.failures(one) < most for one in standing.builders)
    follows = after_verdict(passed=False, failed=component.failures(holder), others=others, most=most)
    if follows is AfterAudit.MEND:
        return []
    if follows is AfterAudit.REASSIGN:
        return [GiveBackComponent(task, token, holder, f"{AUDIT_FAILED}{holder} has failed {most} audits")]
    text = f"All known builders have failed {component.name} {most} times. The last audit said: "
    text += f"{audit.details or 'nothing'}. How should we proceed?"
    return [AskAboutComponent(task, token, holder, text, ABOUT_COMPONENT)]

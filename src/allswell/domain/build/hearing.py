"""What follows from a line that somebody said: the rules of a build for its builders, auditors and humans.

Who speaks is known from the channel, never from the text. A line that does not count is answered with a REJECT and the
reason where its speaker can do something about it, and is otherwise ignored; the log has the reason.

    CLAIM      what is free and not barred is collected, then decided by the server's clock (claims.py)       C3
    PROGRESS   renews the holder's lease; anybody else is told that it must claim again                       C1, C6
    READY      opens an audit; from somebody who has lost the lease it is refused with the reason             C6
    AUDIT      the first verdict counts of somebody who did not build it, and who may audit                   C2
    ABORT      gives the component back, neither timeout nor failure; the third time a human is asked         C5
    ANSWER     counts from a human                                                                            C7

Lines can be late. What somebody said before it claimed the component that it has now is about an earlier lease, and a
verdict from before READY is about an earlier READY: neither counts. Both moments are the channel's. Whoever judges may
not have heard of the newest READY yet. So a verdict may begin with the address that it is about, and then it does not
count for another one; our own auditors name it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from allswell.domain.audit import why_no_verdict
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import (
    AbortLine,
    AckLine,
    AnswerLine,
    AuditLine,
    BlockedLine,
    ClaimLine,
    Line,
    MergedLine,
    ProgressLine,
    ReadyLine,
    RejectLine,
)
from allswell.domain.build.standing import (
    ABORTED,
    AUDIT_FAILED,
    SILENT,
    BuildAudit,
    ClaimMark,
    ComponentStanding,
    Dispute,
    Standing,
)
from allswell.domain.build.step import (
    AnswerQuestion,
    AskAboutBuild,
    AskAboutComponent,
    BuildStep,
    CollectClaim,
    GiveBackComponent,
    GiveVerdict,
    HandIn,
    HoldComponent,
    IgnoreLine,
    MergeComponent,
    SayLine,
)
from allswell.domain.names import Millis, QuestionId, TaskId
from allswell.domain.question import CLARIFY, RETRY, SKIP, Act, Option

ABOUT_COMPONENT = (RETRY, CLARIFY, SKIP)
_KEEP = Option("keep", "Whoever has it keeps it", Act.RETRY)
_GIVE = Option("give", "The earlier claim gets it", Act.RETRY)
ALREADY_CLAIMED = "already claimed"
NO_SUCH_COMPONENT = "there is no such component"


class Rights(msgspec.Struct, frozen=True):
    """Who may do what in this build."""

    humans: Collection[str] = ()
    auditors: Collection[str] = ()
    """Where some are listed, nobody else's verdict counts."""
    require_keys: bool = False
    wait_for_merge: bool = False


class Speaker(msgspec.Struct, frozen=True):
    """Who said something, and when, as the channel knows it."""

    who: str
    at: Millis
    id: str = ""
    keyed: bool = True

    @property
    def mark(self) -> ClaimMark:
        """By what a claim of theirs is told from others."""
        return ClaimMark(self.at, self.id or self.who)


def follow_line(
    standing: Standing, line: Line, speaker: Speaker, rights: Rights, limits: BuildLimits
) -> list[BuildStep]:
    """What a line comes to."""
    who = speaker.who
    if isinstance(line, AnswerLine):
        return [_answer(standing, line, who, rights)]
    if isinstance(line, MergedLine) and who not in rights.humans:
        return [IgnoreLine(who, "only a human says MERGED")]
    if not isinstance(line, ClaimLine | ProgressLine | BlockedLine | ReadyLine | AuditLine | AbortLine | MergedLine):
        return [IgnoreLine(who, "only the coordinator says that")]
    component = standing.named(line.component)
    if component is None:
        return [_reject(line.component, who, NO_SUCH_COMPONENT)]
    match line:
        case ClaimLine():
            return _claim(standing, component, speaker, rights, limits)
        case ProgressLine(_, percent, note):
            return _progress(component, who, note, None if percent is None else percent / 100)
        case BlockedLine(_, dependency):
            return _progress(component, who, f"blocked: it needs {dependency}", None)
        case ReadyLine(_, url):
            return _ready(component, speaker, url)
        case AuditLine(_, passed, details):
            return _audit(component, speaker, rights, passed=passed, details=details)
        case AbortLine(_, reason):
            return _abort(component, speaker, reason, limits)
        case MergedLine():
            return _merged(component, who, rights)


def _reject(component: str, who: str, why: str) -> SayLine:
    return SayLine(RejectLine(component, who, why))


# --- claims -----------------------------------------------------------------------------------------------------------


def _claim(
    standing: Standing, component: ComponentStanding, speaker: Speaker, rights: Rights, limits: BuildLimits
) -> list[BuildStep]:
    who, name = speaker.who, component.name
    if component.holder == who:
        if component.claimed == speaker.mark:
            return [IgnoreLine(who, f"this very claim was granted {name} before")]
        return [SayLine(AckLine(name, who))]  # it has not heard the first one
    barred = may_never_claim(component, speaker, rights, limits)
    late = component.state == "held" and component.claimed is not None and speaker.mark < component.claimed
    if late and not barred:
        return [_dispute(standing, component, who)]
    why = cannot_claim(standing, component, speaker, rights, limits)
    if why:
        return [_reject(name, who, why)]
    return [CollectClaim(name, who, speaker.mark)]


def _dispute(standing: Standing, component: ComponentStanding, who: str) -> BuildStep:
    """An earlier claim that came after the ACK: who is right, only a human can say. Once for each of them."""
    dispute = Dispute(who, component.name, component.holder, component.token)
    if any(question.dispute == dispute for question in standing.questions):
        return IgnoreLine(who, f"its claim on {component.name} is in dispute already")
    return AskAboutBuild(dispute.in_words(), (_KEEP, _GIVE))


def may_never_claim(component: ComponentStanding, speaker: Speaker, rights: Rights, limits: BuildLimits) -> str:
    """Why somebody could not have a component even if it were free; empty if they could."""
    if rights.require_keys and not speaker.keyed:
        return "claims need a key here"
    if component.failures(speaker.who) >= limits.audit_failures:
        return f"your work on it has failed {limits.audit_failures} audits; leave it to another builder"
    return ""


def cannot_claim(
    standing: Standing, component: ComponentStanding, speaker: Speaker, rights: Rights, limits: BuildLimits
) -> str:
    """Why somebody cannot have a component now; empty if they can."""
    if why := may_never_claim(component, speaker, rights, limits):
        return why
    if component.state in {"merged", "skipped"}:
        return f"it is {component.state}"
    if standing.cycle:
        return f"the build is halted: dependency cycle detected: {standing.cycle}"
    if component.state == "held":
        return ALREADY_CLAIMED
    if component.state == "asked":
        return "a human decides about it first"
    if standing.stands_still():
        return "nothing new is begun until a human has decided about the build"
    if component.state == "waiting":
        open_needs = [need for need in component.needs if standing.components[need].state != "merged"]
        return f"it needs {', '.join(open_needs[:5])} first" if open_needs else "it is not offered yet"
    return ""


# --- the holder -------------------------------------------------------------------------------------------------------


def why_not_held(component: ComponentStanding, who: str) -> str:
    """Why somebody does not have a component (any more), in words that say what to do (C6)."""
    if component.state in {"merged", "skipped"}:
        return f"it is {component.state}"
    own = [one for one in component.past if one.agent == who]
    what = "you do not have it"
    if own:
        last = own[-1]
        if last.outcome == SILENT:
            what = "you were silent for too long and have lost it"
        elif last.detail.startswith(ABORTED):
            what = "you have given it back"
        elif last.detail.startswith(AUDIT_FAILED):
            return "your work on it has failed its audits; leave it to another builder"
    return f"{what}; {component.holder} has it now" if component.holder else f"{what}; claim it again"


def _progress(component: ComponentStanding, who: str, note: str, share: float | None) -> list[BuildStep]:
    if component.holder != who:
        return [_reject(component.name, who, why_not_held(component, who))]
    return [HoldComponent(_task(component), component.token, who, note, share)]


def _is_about_an_earlier_lease(component: ComponentStanding, speaker: Speaker) -> bool:
    return component.claimed is not None and speaker.at < component.claimed.at


def _ready(component: ComponentStanding, speaker: Speaker, url: str) -> list[BuildStep]:
    who = speaker.who
    if component.holder != who:
        return [_reject(component.name, who, why_not_held(component, who))]
    if _is_about_an_earlier_lease(component, speaker):
        return [IgnoreLine(who, f"this READY is older than its claim on {component.name}")]
    last = component.current
    if last is not None and last.passed:
        return [IgnoreLine(who, f"{component.name} has passed already")]
    if last is not None and last.passed is None and last.url == url:
        return [IgnoreLine(who, f"{component.name} is in audit already")]
    number = component.audits[-1].number + 1 if component.audits else 1
    audit = BuildAudit(number, TaskId(""), url, who, component.token, said_at=speaker.at)
    replaced = last.task if last is not None and last.passed is None else None
    return [HandIn(component.name, audit, replaced), HoldComponent(_task(component), component.token, who)]


def _abort(component: ComponentStanding, speaker: Speaker, reason: str, limits: BuildLimits) -> list[BuildStep]:
    who = speaker.who
    if component.holder != who:
        if any(one.agent == who for one in component.past):  # it does not want it, and does not have it
            return [IgnoreLine(who, f"{component.name} is not its any more")]
        return [_reject(component.name, who, why_not_held(component, who))]
    if _is_about_an_earlier_lease(component, speaker):
        return [IgnoreLine(who, f"this ABORT is older than its claim on {component.name}")]
    task, token = _task(component), component.token
    if component.aborts + 1 < limits.aborts:
        return [GiveBackComponent(task, token, who, ABORTED + reason)]
    text = f"{component.name} was given back {limits.aborts} times, the last time by {who}: {reason or 'no reason'}."
    return [AskAboutComponent(task, token, who, f"{text} How should we proceed?", ABOUT_COMPONENT)]


# --- audits -----------------------------------------------------------------------------------------------------------


def _audit(
    component: ComponentStanding, speaker: Speaker, rights: Rights, *, passed: bool, details: str
) -> list[BuildStep]:
    audit, who = component.in_audit, speaker.who
    if audit is None:
        return [IgnoreLine(who, f"{component.name} waits for no audit")]
    listed = rights.auditors
    if why := why_no_verdict(who, audit.builder, listed=listed, said_at=speaker.at, handed_in_at=audit.said_at):
        return [_reject(component.name, who, why)]
    if rights.require_keys and not speaker.keyed and who not in rights.auditors:
        return [_reject(component.name, who, "verdicts need a key here")]
    named, _, rest = details.partition(" ")
    if component.is_of_an_earlier(named):
        return [_reject(component.name, who, f"that is about {named}; what is to be judged is {audit.url}")]
    return [GiveVerdict(component.name, audit, who, passed, rest.strip() if named == audit.url else details)]


def _merged(component: ComponentStanding, who: str, rights: Rights) -> list[BuildStep]:
    audit = component.current
    if not rights.wait_for_merge or audit is None or not audit.passed:
        return [_reject(component.name, who, "it waits for no merge")]
    return [MergeComponent(component.name, _task(component), component.token, component.holder, audit)]


# --- humans -----------------------------------------------------------------------------------------------------------


def _answer(standing: Standing, line: AnswerLine, who: str, rights: Rights) -> BuildStep:
    if who not in rights.humans:
        return IgnoreLine(who, "only a human answers")
    question = next((one for one in standing.questions if one.id == line.question), None)
    if question is None:
        return IgnoreLine(who, f"there is no question {line.question} in this build")
    if question.choice is not None:
        return IgnoreLine(who, f"question {line.question} is closed: {question.choice}")
    return AnswerQuestion(QuestionId(line.question), line.option, line.text, who)


def _task(component: ComponentStanding) -> TaskId:
    assert component.task is not None  # noqa: S101 - it is held
    return component.task

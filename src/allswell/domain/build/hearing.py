"""What follows from a line that somebody said: the rules of a build for its builders, auditors and humans.

Who speaks is known from the channel, never from the text. A line that does not count is answered with a REJECT and the
reason where its speaker can do something about it, and is otherwise ignored; the log has the reason.

    CLAIM      what is free and not barred is collected, then decided by the server's clock (`due`)            C3
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

from collections import OrderedDict
from collections.abc import Collection, Sequence

import msgspec

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
from allswell.domain.build.state import (
    ABORTED,
    ALL_FAILED,
    AUDIT_FAILED,
    CYCLE_OPTIONS,
    GIVEN_TO,
    LIMIT_OPTIONS,
    NEWCOMER,
    SILENT,
    AnswerQuestion,
    AskAboutBuild,
    AskAboutComponent,
    BuildAudit,
    BuildStatus,
    BuildStep,
    ClaimMark,
    CollectClaim,
    ComponentStatus,
    Dispute,
    EndSilent,
    GiveBackComponent,
    GiveVerdict,
    GrantClaim,
    HoldComponent,
    IgnoreLine,
    MergeComponent,
    OfferComponent,
    RequestAudit,
    SayLine,
)
from allswell.domain.duration import show
from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.lease.audit import AfterAudit, after_verdict, why_no_verdict
from allswell.domain.question import CLARIFY, RETRY, SKIP, AnswerAction, Option, full_stop

ABOUT_COMPONENT = (RETRY, CLARIFY, SKIP)
_KEEP = Option("keep", "Its builder keeps it", AnswerAction.RETRY)
_GIVE = Option("give", "The earlier claim gets it", AnswerAction.RETRY)
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
    standing: BuildStatus, line: Line, speaker: Speaker, rights: Rights, limits: BuildLimits
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
    standing: BuildStatus, component: ComponentStatus, speaker: Speaker, rights: Rights, limits: BuildLimits
) -> list[BuildStep]:
    who, name = speaker.who, component.name
    if component.holder == who:
        if component.claimed == speaker.mark:
            return [IgnoreLine(who, f"this very claim was granted {name} before")]
        return [SayLine(AckLine(name, who, limits.progress_every))]  # it has not heard the first one
    barred = may_never_claim(component, speaker, rights, limits)
    failed = next((one for one in standing.questions if one.component == name and one.is_about_failures), None)
    if component.state == "asked" and failed is not None and failed.choice is None and not barred:
        # It was asked because all builders that were known had failed it; now there is another one.
        answer = AnswerQuestion(failed.id, RETRY.key, f"{who} has not failed it", NEWCOMER)
        return [answer, CollectClaim(name, who, speaker.mark)]
    late = component.state == "held" and component.claimed is not None and speaker.mark < component.claimed
    if late and not barred:
        return [_dispute(standing, component, who)]
    why = cannot_claim(standing, component, speaker, rights, limits)
    if why:
        return [_reject(name, who, why)]
    return [CollectClaim(name, who, speaker.mark)]


def _dispute(standing: BuildStatus, component: ComponentStatus, who: str) -> BuildStep:
    """An earlier claim that came after the ACK: who is right, only a human can say. Once for each of them."""
    dispute = Dispute(who, component.name, component.holder, component.token)
    if any(question.dispute == dispute for question in standing.questions):
        return IgnoreLine(who, f"its claim on {component.name} is in dispute already")
    return AskAboutBuild(dispute.in_words(), (_KEEP, _GIVE))


def may_never_claim(component: ComponentStatus, speaker: Speaker, rights: Rights, limits: BuildLimits) -> str:
    """Why somebody could not have a component even if it were free; empty if they could."""
    if rights.require_keys and not speaker.keyed:
        return "claims need a key here"
    if component.failures(speaker.who) >= limits.audit_failures:
        return f"your work on it has failed {limits.audit_failures} audits; leave it to another builder"
    return ""


def cannot_claim(
    standing: BuildStatus, component: ComponentStatus, speaker: Speaker, rights: Rights, limits: BuildLimits
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


def why_not_held(component: ComponentStatus, who: str) -> str:
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


def _progress(component: ComponentStatus, who: str, note: str, share: float | None) -> list[BuildStep]:
    if component.holder != who:
        return [_reject(component.name, who, why_not_held(component, who))]
    return [HoldComponent(component.name, _task(component), component.token, who, note, share)]


def _is_about_an_earlier_lease(component: ComponentStatus, speaker: Speaker) -> bool:
    return component.claimed is not None and speaker.at < component.claimed.at


def _ready(component: ComponentStatus, speaker: Speaker, url: str) -> list[BuildStep]:
    who = speaker.who
    if component.holder != who:
        return [_reject(component.name, who, why_not_held(component, who))]
    if _is_about_an_earlier_lease(component, speaker):
        return [IgnoreLine(who, f"this READY is older than its claim on {component.name}")]
    last = component.current
    url = url or ("" if last is None else last.url)
    if last is not None and last.passed:
        return [IgnoreLine(who, f"{component.name} has passed already")]
    if last is not None and last.passed is None and last.url == url:
        return [IgnoreLine(who, f"{component.name} is in audit already")]
    number = component.audits[-1].number + 1 if component.audits else 1
    audit = BuildAudit(number, TaskId(""), url, who, component.token, said_at=speaker.at)
    replaced = last.task if last is not None and last.passed is None else None
    holds = HoldComponent(component.name, _task(component), component.token, who)
    return [RequestAudit(component.name, audit, replaced), holds]


def _abort(component: ComponentStatus, speaker: Speaker, reason: str, limits: BuildLimits) -> list[BuildStep]:
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
    last = full_stop(reason or "no reason")
    text = f"{component.name} was given back {limits.aborts} times, the last time by {who}: {last}"
    return [AskAboutComponent(task, token, who, f"{text} How should we proceed?", ABOUT_COMPONENT)]


# --- audits -----------------------------------------------------------------------------------------------------------


def _audit(
    component: ComponentStatus, speaker: Speaker, rights: Rights, *, passed: bool, details: str
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


def _merged(component: ComponentStatus, who: str, rights: Rights) -> list[BuildStep]:
    audit = component.current
    if not rights.wait_for_merge or audit is None or not audit.passed:
        return [_reject(component.name, who, "it waits for no merge")]
    return [MergeComponent(component.name, _task(component), component.token, component.holder, audit)]


# --- humans -----------------------------------------------------------------------------------------------------------


def _answer(standing: BuildStatus, line: AnswerLine, who: str, rights: Rights) -> BuildStep:
    if who not in rights.humans:
        return IgnoreLine(who, "only a human answers")
    question = next((one for one in standing.questions if one.id == line.question), None)
    if question is None:
        return IgnoreLine(who, f"there is no question {line.question} in this build")
    if question.choice is not None:
        return IgnoreLine(who, f"question {line.question} is closed: {question.choice}")
    return AnswerQuestion(QuestionId(line.question), line.option, line.text, who)


def _task(component: ComponentStatus) -> TaskId:
    assert component.task is not None  # noqa: S101 - it is held
    return component.task


# What was heard in a channel, and how something that is replayed is known again (C8).
#
# Whoever joins a channel is told its last messages once more. They are what one missed while one was away, and also
# much that one has heard before; so each message has a mark by which it is known. Who said it is the word of the
# server, never a name in the text.

_RECALLED = 120
"""So much of a message without an id is enough to know it again."""


class HeardMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message."""

    who: str
    """Who said it, as the server or the bridge knows them."""
    text: str
    at: Millis
    """When, by the server's clock; on stdio the order in which it was read."""
    id: str = ""
    """The server's name for the message; some give none."""
    replay: bool = False
    keyed: bool = True
    """Whether this speaker keeps its name when it comes back: one without a key is somebody else then."""
    ago: int = 0
    """How many milliseconds before it was heard it was said, by the server's clock alone."""

    @property
    def mark(self) -> str:
        """By what this message is known again. Without an id it is who said what when."""
        return f"{self.at} {self.who} {(self.id or self.text)[:_RECALLED]}"


class ChannelCoverage(msgspec.Struct, frozen=True):
    """How complete what was heard is: a channel that was away is told what it missed, as far as its server kept it."""

    is_current: bool = True
    """Whether everything that was said until now was heard."""
    since: Millis | None = None
    """The oldest message that was told again when the channel was joined first; None: nothing was."""
    gaps: int = 0
    """How often the channel was away for so long that the server may have forgotten lines."""


class KnownMessages:
    """The messages heard so far. The oldest are forgotten: a server replays a few hundred at most."""

    def __init__(self, most: int = 5_000) -> None:
        self._most = most
        self._marks: OrderedDict[str, None] = OrderedDict()

    def is_new(self, mark: str) -> bool:
        """Whether this is heard for the first time; from now on it is known."""
        if mark in self._marks:
            return False
        self._marks[mark] = None
        if len(self._marks) > self._most:
            self._marks.popitem(last=False)
        return True


# What a build needs next, read off how it stands: rules that need no line to be said.
#
# They look at the state alone, so it does not matter what was interrupted when: a coordinator that was killed between
# two steps finds the second one due again.

NEVER = Millis(1 << 53)
_BY_A_HUMAN = ClaimMark(Millis(0), "a human")
"""No claim is earlier than what a human decided."""
_EXTEND = Option("extend", "Go on for as long again", AnswerAction.RETRY)
_STOP = Option("stop", "Stop the build", AnswerAction.SKIP)
_RECHECK = Option("recheck", "The spec is corrected: read it again", AnswerAction.RETRY)


def due_steps(
    standing: BuildStatus, rights: Rights, limits: BuildLimits, now: Millis, *, heard_all: bool = True
) -> list[BuildStep]:
    """Everything that is due now. Silence counts only where we have `heard_all` that was said until now."""
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
            if heard_all and component.task is not None and now >= lapses_at(component, limits):
                steps.append(EndSilent(component.task, component.token, component.holder))
    return steps


def lapses_at(component: ComponentStatus, limits: BuildLimits) -> Millis:
    """When the holder of a component loses it unless it is heard before (C1); never while an audit or a merge is open.

    The watch does not end the lease by itself: what was said while its coordinator was away counts first.
    """
    audit = component.current
    if audit is not None and audit.passed is not False:
        return NEVER
    return Millis(component.heard_at + limits.silence)


def _about_the_build(standing: BuildStatus, limits: BuildLimits, now: Millis) -> list[BuildStep]:
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
    standing: BuildStatus, component: ComponentStatus, rights: Rights, limits: BuildLimits, now: Millis
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
        return (
            [HoldComponent(component.name, task, token, holder)]
            if now - component.heard_at >= limits.silence // 3
            else []
        )
    most = limits.audit_failures
    others = any(component.failures(one) < most for one in standing.builders)
    follows = after_verdict(passed=False, failed=component.failures(holder), others=others, most=most)
    if follows is AfterAudit.MEND:
        return []
    if follows is AfterAudit.REASSIGN:
        return [GiveBackComponent(task, token, holder, f"{AUDIT_FAILED}{holder} has failed {most} audits")]
    text = f"{ALL_FAILED}{component.name} {most} times. The last audit said: "
    text += f"{full_stop(audit.details or 'nothing')} How should we proceed?"
    return [AskAboutComponent(task, token, holder, text, ABOUT_COMPONENT)]


# Claims for one component that come close together: the earlier one wins, by the server's clock (C3).
#
# Claims are collected until a second after the first of them, by the server's clock, and then decided together: the
# earliest gets the component, of two at the same moment the one with the smaller message id. That the server's clock
# has come so far is known in one of two ways: it dates a message so, or a second of ours is over since the first claim
# was heard, which cannot have been before it was made. So the two clocks are never compared, and lines that come all at
# once after an absence are decided as they would have been in time. A claim that is earlier and comes after the
# decision is a dispute (`hearing.py`).


def in_order(claims: Sequence[CollectClaim]) -> list[CollectClaim]:
    """Claims from the earliest on, each agent once: whoever claims twice has claimed when it did so first."""
    first: dict[str, CollectClaim] = {}
    for claim in sorted(claims, key=lambda one: one.mark):
        first.setdefault(claim.agent, claim)
    return list(first.values())


class ClaimWindow(msgspec.Struct):
    """The claims for one component that are not decided yet."""

    opened: Millis
    """When the first was heard, by our clock."""
    claims: list[CollectClaim]

    def is_over(self, length: int, now: Millis, dated: Millis | None) -> bool:
        """Whether its time is up: by our clock, or because the server dates something after it."""
        return now >= self.opened + length or (dated is not None and dated > self._first + length)

    @property
    def _first(self) -> Millis:
        return min(claim.mark.at for claim in self.claims)


class ClaimWindows:
    """The windows that are open. Moments are handed in."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._open: dict[str, ClaimWindow] = {}

    def add(self, claim: CollectClaim, now: Millis) -> None:
        """A claim was heard."""
        self._open.setdefault(claim.component, ClaimWindow(now, [])).claims.append(claim)

    def closes_at(self) -> Millis | None:
        """When the next window closes, whatever is heard."""
        return min((Millis(window.opened + self._length) for window in self._open.values()), default=None)

    def closed(self, now: Millis, dated: Millis | None = None) -> list[list[CollectClaim]]:
        """The claims whose windows have closed, for each component in order; they are not held here any more.

        `dated` is the server's moment of the message that is looked at next.
        """
        done = [name for name, window in self._open.items() if window.is_over(self._length, now, dated)]
        return [in_order(self._open.pop(name).claims) for name in done]

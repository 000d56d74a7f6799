"""How a build stands: what its rows in the store come to, as one value that every rule of the build reads.

A build is a run of tasks. Each component that can be built is a task, held by its builder. Each READY is a task too,
an audit: its builder is barred from it, and its result is the verdict. Nothing else about a component needs to be kept:
how often a builder has failed and how often it was given back follow from those. What a human decided about a component
begins a new count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import msgspec

from allswell.domain.ids import Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.audit import AuditHistory, AuditVerdict, HumanDecision, failed_audits
from allswell.domain.question import Option, full_stop

if TYPE_CHECKING:
    from allswell.domain.build.line import Line

ABORTED = "aborted: "
"""How an attempt's reason begins that its builder gave back by ABORT."""
AUDIT_FAILED = "audit failed: "
"""How an attempt's reason begins that was ended by failed audits."""
GIVEN_TO = "given to "
"""How an attempt's reason begins that a human gave to somebody who had claimed earlier."""
SILENT = "agent_idle"
"""How the attempt of a builder ends that was silent for too long."""

ASKED = "asked"
"""How an attempt ends after which a human decides."""

ALL_FAILED = "All known builders have failed "
"""How the question begins that is asked when no builder is left for a component."""
NEWCOMER = "allswell"
"""Who answers it when another builder comes: what humans decide begins a new count, this does not."""
STOPPED = "the build was stopped by a human"
NOTHING_MERGED = "the build is over and nothing is merged: everything was skipped"
BUILD_OVER = frozenset((STOPPED, NOTHING_MERGED))
"""What is said with ERROR when a build ends otherwise than complete."""

LIMIT_OPTIONS = ("extend", "stop")
CYCLE_OPTIONS = ("recheck", "stop")
DISPUTE_OPTIONS = ("keep", "give")

ComponentState = Literal["waiting", "free", "held", "asked", "merged", "skipped"]
"""Waiting: something that it needs is not merged. Asked: a human has to decide about it."""


class ClaimMark(msgspec.Struct, frozen=True, order=True):
    """When a claim was made, by the server's clock; of two at the same moment the smaller id goes first (C3)."""

    at: Millis
    id: str
    """The server's id of the message, or the agent's where there is none."""


class BuildAudit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One READY, and the verdict on it once there is one."""

    number: int
    task: TaskId
    url: str
    builder: str
    token: Token
    """Of the lease under which it was built."""
    at: Millis = Millis(0)
    said_at: Millis = Millis(0)
    """When READY was said, by the channel's clock: no verdict before that is about it."""
    passed: bool | None = None
    by: str = ""
    details: str = ""


class PastAttempt(msgspec.Struct, frozen=True):
    """A lease on a component that is over."""

    token: Token
    agent: str
    outcome: str
    detail: str = ""


class ComponentStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one component stands."""

    name: str
    state: ComponentState
    needs: tuple[str, ...] = ()
    task: TaskId | None = None
    holder: str = ""
    token: Token = Token(0)
    claimed: ClaimMark | None = None
    heard_at: Millis = Millis(0)
    """When its holder last showed progress."""
    audits: tuple[BuildAudit, ...] = ()
    replaced: tuple[str, ...] = ()
    """Addresses of READYs that nobody had judged when something newer was handed in."""
    past: tuple[PastAttempt, ...] = ()
    has_its_needs: bool = False
    """Whether all that it needs is merged."""

    @property
    def _since(self) -> int:
        """The last attempt after which a human decided: what was before does not count any more."""
        return max((one.token for one in self.past if one.outcome == ASKED), default=0)

    @property
    def history(self) -> AuditHistory:
        """The verdicts on it, and where a human decided about it, in order."""
        found: list[tuple[int, AuditVerdict | HumanDecision]] = []
        found += [(one.token, AuditVerdict(one.builder, one.passed)) for one in self.audits if one.passed is not None]
        found += [(one.token, HumanDecision()) for one in self.past if one.outcome == ASKED]
        return [what for _, what in sorted(found, key=itemgetter(0))]  # of one lease, its verdicts come first

    @property
    def current(self) -> BuildAudit | None:
        """The last READY of the present holder."""
        last = self.audits[-1] if self.audits else None
        return last if last is not None and self.state == "held" and last.token == self.token else None

    @property
    def in_audit(self) -> BuildAudit | None:
        """The READY that waits for a verdict."""
        last = self.current
        return last if last is not None and last.passed is None else None

    def is_of_an_earlier(self, url: str) -> bool:
        """Whether this is the address of a READY before the one that waits for a verdict."""
        earlier = {*self.replaced, *(one.url for one in self.audits[:-1])}
        return url in earlier and url != self.audits[-1].url

    def failures(self, builder: str) -> int:
        """How often the work of this builder on this component has failed its audit."""
        return failed_audits(self.history, builder)

    @property
    def aborts(self) -> int:
        """How often builders have given it back."""
        return sum(one.detail.startswith(ABORTED) and one.token > self._since for one in self.past)


class Dispute(msgspec.Struct, frozen=True):
    """An earlier claim that came after another one was granted (C3)."""

    agent: str
    component: str
    holder: str
    token: int
    """Of the lease that is disputed."""

    def in_words(self) -> str:
        """As a human is asked; `BuildQuestion.dispute` reads it back."""
        text = f"{self.agent} has claimed {self.component} before {self.holder}, who has it by now (lease {self.token})"
        return f"{text}: the earlier claim came late. Who builds it?"


_DISPUTE = re.compile(r"(\S+) has claimed (\S+) before (\S+), who has it by now \(lease (\d+)\): ")


class BuildQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question of this build: about one of its components, or about the build as a whole."""

    id: QuestionId
    text: str
    options: tuple[str, ...]
    component: str = ""
    choice: str | None = None
    """None while it is open."""
    answer: str = ""
    """What was said with it."""
    by: str = ""

    @property
    def is_about_failures(self) -> bool:
        """Whether it was asked because all known builders had failed its component."""
        return self.text.startswith(ALL_FAILED)

    @property
    def dispute(self) -> Dispute | None:
        """What it is about, if that is a dispute."""
        found = _DISPUTE.match(self.text) if self.options == DISPUTE_OPTIONS else None
        return None if found is None else Dispute(found[1], found[2], found[3], int(found[4]))


class BuildStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a whole build stands."""

    components: Mapping[str, ComponentStatus]
    started_at: Millis = Millis(0)
    cycle: str = ""
    """A dependency cycle in the spec, in words; while there is one, nothing is offered (C4)."""
    questions: tuple[BuildQuestion, ...] = ()
    builders: tuple[str, ...] = ()
    """Everybody who is known to build here."""
    stopped: bool = False
    """Whether a human has stopped the build before its end."""

    def named(self, name: str) -> ComponentStatus | None:
        """A component, in small letters or large ones."""
        found = self.components.get(name)
        if found is not None:
            return found
        return next((one for one in self.components.values() if one.name.lower() == name.lower()), None)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to build."""
        return bool(self.components) and all(one.state in {"merged", "skipped"} for one in self.components.values())

    @property
    def has_merged(self) -> bool:
        """Whether anything was built to its end."""
        return any(one.state == "merged" for one in self.components.values())

    @property
    def free(self) -> list[str]:
        """What can be claimed, in the order of the spec."""
        return [one.name for one in self.components.values() if one.state == "free"]

    def stands_still(self) -> bool:
        """Whether a question about the build itself is open: then nothing new is offered."""
        return bool(self.cycle) or any(
            question.choice is None and question.options in {LIMIT_OPTIONS, CYCLE_OPTIONS}
            for question in self.questions
        )


# A build at one glance: how far it is, who is at what, and what comes next.


class BuildGlance(msgspec.Struct, frozen=True):
    """A build that is not over."""

    run: RunId
    name: str
    coordinated: bool
    """Whether a coordinator is there: without one nothing is given, and nothing is taken back."""
    standing: BuildStatus

    @property
    def counts(self) -> dict[str, int]:
        """How many components stand in each state, without those in which none does."""
        return dict(Counter(str(one.state) for one in self.standing.components.values()))

    @property
    def at_work(self) -> list[ComponentStatus]:
        """What somebody has, in the order of the spec."""
        return [one for one in self.standing.components.values() if one.state == "held"]

    @property
    def asked(self) -> list[str]:
        """What a human has to decide about."""
        return [one.name for one in self.standing.components.values() if one.state == "asked"]

    @property
    def free(self) -> list[str]:
        """What can be claimed."""
        return [] if self.standing.stands_still() else self.standing.free

    @property
    def next(self) -> list[str]:
        """What can begin once that is merged which somebody has or could claim now."""
        components = self.standing.components
        near = {"merged", "held", "free"}
        return [
            one.name
            for one in components.values()
            if one.state == "waiting" and all(components[need].state in near for need in one.needs)
        ]


def work_on(one: ComponentStatus) -> str:
    """What its builder is at: building it, waiting for its audit or its merge, or mending it."""
    audit = one.current
    if audit is None:
        return "building"
    return {None: "in audit", True: "passed, to be merged", False: "fixing it after an audit"}[audit.passed]


def told_of(one: ComponentStatus, standing: BuildStatus) -> list[str]:
    """How a component stands, in sentences: what it waits for, what its audit says, and who may not have it again."""
    says = [_where(one, standing)]
    failed = [audit for audit in one.audits if audit.passed is False]
    if failed and one.state != "merged":
        last = failed[-1]
        says.append(f"{last.by} has failed it last: {full_stop(last.details or 'without a reason')}")
    barred = dict.fromkeys(past.agent for past in one.past if past.detail.startswith(AUDIT_FAILED))
    says += [f"{agent} may not claim it again: its work on it has failed too many audits." for agent in barred]
    return says


def _where(one: ComponentStatus, standing: BuildStatus) -> str:
    audit = one.current
    match one.state:
        case "waiting":
            missing = [
                f"{need} ({standing.components[need].state})" for need in one.needs if need in standing.components
            ]
            return f"It is offered when all that it needs is merged: {', '.join(missing[:5])}."
        case "held" if audit is None:
            return f"{one.holder} builds it, and loses it when it says no PROGRESS for too long."
        case "held" if audit is not None and audit.passed is None:
            where = f" ({audit.url})" if audit.url else ""
            return f"{one.holder} has handed it in{where}; another agent has to say AUDIT {one.name} PASS or FAIL."
        case "held" if audit is not None and audit.passed:
            return f"It has passed its audit by {audit.by} and waits to be merged."
        case "held":
            return f"{one.holder} fixes it after an audit."
        case "free":
            return f"Any builder may say CLAIM {one.name}."
        case "asked":
            return "A human decides about it: `allswell questions`."
        case _:
            return f"It is {one.state}."


# What a coordinator does: steps as values, decided by the rules of the build and carried out on the watch.


class OfferComponent(msgspec.Struct, frozen=True):
    """It can be built now: make it a task."""

    component: str


class CollectClaim(msgspec.Struct, frozen=True):
    """Somebody wants it; others may have been quicker, so the decision waits for the window to close."""

    component: str
    agent: str
    mark: ClaimMark


class GrantClaim(msgspec.Struct, frozen=True):
    """Give it to this agent; whoever else claimed it is told."""

    component: str
    task: TaskId
    agent: str
    mark: ClaimMark
    losers: tuple[str, ...] = ()


class HoldComponent(msgspec.Struct, frozen=True):
    """Its holder, or the audit that it waits for, is alive: renew the lease."""

    component: str
    task: TaskId
    token: Token
    agent: str
    note: str = ""
    progress: float | None = None


class EndSilent(msgspec.Struct, frozen=True):
    """Its holder was silent for too long and has lost it (C1)."""

    task: TaskId
    token: Token
    agent: str


class RequestAudit(msgspec.Struct, frozen=True):
    """It is built: have it audited."""

    component: str
    audit: BuildAudit
    instead_of: TaskId | None = None
    """The READY that this one replaces."""


class GiveVerdict(msgspec.Struct, frozen=True):
    """Somebody has audited it."""

    component: str
    audit: BuildAudit
    by: str
    passed: bool
    details: str = ""


class MergeComponent(msgspec.Struct, frozen=True):
    """It has passed, and is in."""

    component: str
    task: TaskId
    token: Token
    agent: str
    audit: BuildAudit


class GiveBackComponent(msgspec.Struct, frozen=True):
    """Its holder does not build it any more; it is free again."""

    task: TaskId
    token: Token
    agent: str
    reason: str


class AskAboutComponent(msgspec.Struct, frozen=True):
    """Its holder does not build it any more, and a human has to decide."""

    task: TaskId
    token: Token
    agent: str
    text: str
    options: tuple[Option, ...]


class AskAboutBuild(msgspec.Struct, frozen=True):
    """A human has to decide about the build; what is held goes on."""

    text: str
    options: tuple[Option, ...]


class AnswerQuestion(msgspec.Struct, frozen=True):
    """A human has decided, in the channel."""

    question: QuestionId
    option: str
    text: str
    by: str


class SayLine(msgspec.Struct, frozen=True):
    """Tell the channel."""

    line: Line


class IgnoreLine(msgspec.Struct, frozen=True):
    """What was said changes nothing; the log knows why."""

    who: str
    why: str


BuildStep = (
    OfferComponent
    | CollectClaim
    | GrantClaim
    | HoldComponent
    | EndSilent
    | RequestAudit
    | GiveVerdict
    | MergeComponent
    | GiveBackComponent
    | AskAboutComponent
    | AskAboutBuild
    | AnswerQuestion
    | SayLine
    | IgnoreLine
)

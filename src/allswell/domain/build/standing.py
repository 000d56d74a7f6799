"""How a build stands: what its rows in the store come to, as one value that every rule of the build reads.

A build is a run of tasks. Each component that can be built is a task, held by its builder. Each READY is a task too,
an audit: its builder is barred from it, and its result is the verdict. Nothing else about a component needs to be kept:
how often a builder has failed and how often it was given back follow from those. What a human decided about a component
begins a new count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Literal

import msgspec

from allswell.domain.audit import AuditHistory, Decided, Judged, failed_audits
from allswell.domain.names import Millis, QuestionId, TaskId, Token

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


class ComponentStanding(msgspec.Struct, frozen=True, omit_defaults=True):
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
        found: list[tuple[int, Judged | Decided]] = []
        found += [(one.token, Judged(one.builder, one.passed)) for one in self.audits if one.passed is not None]
        found += [(one.token, Decided()) for one in self.past if one.outcome == ASKED]
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

    @property
    def dispute(self) -> Dispute | None:
        """What it is about, if that is a dispute."""
        found = _DISPUTE.match(self.text) if self.options == DISPUTE_OPTIONS else None
        return None if found is None else Dispute(found[1], found[2], found[3], int(found[4]))


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a whole build stands."""

    components: Mapping[str, ComponentStanding]
    started_at: Millis = Millis(0)
    cycle: str = ""
    """A dependency cycle in the spec, in words; while there is one, nothing is offered (C4)."""
    questions: tuple[BuildQuestion, ...] = ()
    builders: tuple[str, ...] = ()
    """Everybody who is known to build here."""
    stopped: bool = False
    """Whether a human has stopped the build before its end."""

    def named(self, name: str) -> ComponentStanding | None:
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
    def free(self) -> list[str]:
        """What can be claimed, in the order of the spec."""
        return [one.name for one in self.components.values() if one.state == "free"]

    def stands_still(self) -> bool:
        """Whether a question about the build itself is open: then nothing new is offered."""
        return bool(self.cycle) or any(
            question.choice is None and question.options in {LIMIT_OPTIONS, CYCLE_OPTIONS}
            for question in self.questions
        )

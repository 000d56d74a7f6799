"""Carrying out what the rules of a build have decided, on the watch.

Each step is a word to the watch that changes nothing when it comes too late: the lease it names is over, the question
is answered, the audit has its verdict. Then the next look shows how things stand, and the rules decide again. What is
touched here is read anew by that look.
"""

from __future__ import annotations

import logging
from typing import assert_never

import msgspec

from allswell.build.merging import Merge
from allswell.build.rows import AuditJob, BuildRows, write_mark
from allswell.domain.audit import Audited
from allswell.domain.build.hearing import ALREADY_CLAIMED
from allswell.domain.build.limits import PLAIN_POLICY, BuildLimits, component_policy
from allswell.domain.build.line import ErrorLine, Line, RejectLine
from allswell.domain.build.roles import AUDIT_ROLE, COMPONENT_ROLE
from allswell.domain.build.step import (
    AnswerQuestion,
    AskAboutBuild,
    AskAboutComponent,
    BuildStep,
    CollectClaim,
    GiveBackComponent,
    GiveVerdict,
    GrantClaim,
    HandIn,
    HoldComponent,
    IgnoreLine,
    MergeComponent,
    OfferComponent,
    SayLine,
)
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import Bug, LeaseLost, Refused

_log = logging.getLogger("allswell.build")


class Deeds:
    """What a coordinator does to the rows of its build."""

    def __init__(
        self, watch: Watch, rows: BuildRows, build: Lease, limits: BuildLimits, merge: Merge | None = None
    ) -> None:
        self._watch = watch
        self._rows = rows
        self._run = rows.run
        self._build = build
        self._policy = component_policy(limits)
        self._merge = merge

    async def carry_out(self, step: BuildStep) -> list[Line]:
        """Do it; the lines that have to be said because of it."""
        try:
            return await self._do(step)
        except (LeaseLost, Refused) as refused:
            _log.info("too late: %s", refused)
            # A human who mistyped an option is told; everybody else sees from the next lines how things stand.
            return [ErrorLine(str(refused))] if isinstance(step, AnswerQuestion) else []

    async def _do(self, step: BuildStep) -> list[Line]:
        match step:
            case OfferComponent(component):
                key = f"{self._run}.component.{component}"
                role, policy = COMPONENT_ROLE, self._policy
                self._rows.touch(await self._watch.submit(component, run=self._run, role=role, policy=policy, key=key))
            case GrantClaim():
                return await self._grant(step)
            case HoldComponent(task, token, agent, note, progress):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).checkin(note, progress=progress)
            case HandIn():
                await self._hand_in(step)
            case GiveVerdict():
                await self._judge(step)
            case MergeComponent(_, task, token, agent, audit):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).complete({"url": audit.url, "audited_by": audit.by})
            case GiveBackComponent(task, token, agent, reason):
                self._rows.touch(task)
                await self._watch.held(task, token, agent).release(reason)
            case _:
                return await self._ask_or_say(step)
        return []

    async def _ask_or_say(
        self, step: AskAboutComponent | AskAboutBuild | AnswerQuestion | SayLine | IgnoreLine | CollectClaim
    ) -> list[Line]:
        match step:
            case AskAboutComponent(task, token, agent, text, options):
                self._rows.touch(task)
                self._rows.touch(question=await self._watch.held(task, token, agent).ask(text, options))
            case AskAboutBuild(text, options):
                self._rows.touch(question=await self._build.ask(text, options, hold=True))
            case AnswerQuestion(question, option, text, by):
                self._rows.touch(question=question)
                await self._watch.answer(question, option, text, by=by)
            case SayLine(line):
                return [line]
            case IgnoreLine(who, why):
                _log.info("%s is not heard: %s", who, why)
            case CollectClaim():
                raise Bug("a claim is collected by the coordinator")
            case _:
                assert_never(step)
        return []

    async def _grant(self, step: GrantClaim) -> list[Line]:
        """Give it to the winner. The ACK follows from how it stands then, so that it is said once."""
        self._rows.touch(step.task)
        granted = await self._watch.claim(agent=step.agent, task=step.task, command=write_mark(step.mark))
        rejected = step.losers if granted is not None else (step.agent, *step.losers)
        return [RejectLine(step.component, agent, ALREADY_CLAIMED) for agent in rejected]

    async def _hand_in(self, step: HandIn) -> None:
        audit = step.audit
        task = await self._watch.submit(
            f"audit of {step.component}",
            run=self._run,
            role=AUDIT_ROLE,
            policy=PLAIN_POLICY,
            barred=[audit.builder],
            payload=msgspec.to_builtins(AuditJob(step.component, audit)),
            key=f"{self._run}.audit.{step.component}.{audit.number}",
        )
        self._rows.touch(task)
        if step.instead_of is not None:
            self._rows.touch(step.instead_of)
            await self._watch.cancel(step.instead_of, "its builder has handed in something newer")

    async def _judge(self, step: GiveVerdict) -> None:
        """Enter a verdict. Whoever was killed while doing so has left the audit held; then it is finished for them."""
        passed, details = step.passed, step.details
        if passed and self._merge is not None and (why := await self._merge(step.component)):
            passed, details = False, why
        self._rows.touch(step.audit.task)
        verdict = msgspec.to_builtins(Audited(passed, step.by, details))
        lease = await self._watch.claim(agent=step.by, task=step.audit.task)
        if lease is not None:
            await lease.complete(verdict)
            return
        row = await self._watch.task(step.audit.task)
        if row is not None and row.lease is not None:
            await self._watch.held(row.task.id, row.lease.token, row.lease.agent).complete(verdict)

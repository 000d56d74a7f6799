"""What a supervisor says as things happen: as a person would tell it, with the command to type where there is one."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.agents.result import CHANGED_NOTHING_AND_ASKS
from allswell.domain.agents.session import Warmth
from allswell.domain.duration import felt, show
from allswell.domain.lease.audit import AfterAudit
from allswell.domain.lease.verification import AfterCheck, shown
from allswell.domain.question import AnswerAction, Question, in_order, without_output
from allswell.domain.receipts.receipt import End, Receipt, left_running, where_it_is
from allswell.domain.values import on_one_line, start_of
from allswell.runtime.attempt import AttemptOutcome
from allswell.runtime.attempt.output import last_said
from allswell.runtime.process import held_back

_LONGEST = 300
"""Characters of a question, or of a reason, that are repeated."""
_ENDS_OF_SENTENCE = (".”", "!”", "?”", "…”")
_MESSAGE = 160
"""Characters of a last message that are repeated."""
_NAMED = 12
"""Variables that are named."""


class ConsoleReporter:
    """Tells what happens to the agents of one supervisor; what need be said once is said once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._asked: set[str] = set()
        self._failed: set[str] = set()

    def took(self, agent: str, name: str, attempt: int) -> None:
        """An agent takes a task."""
        self._tell(f"{agent} takes “{name}”" + (f" (attempt {attempt})" if attempt > 1 else ""))

    def session(self, agent: str, name: str, warmth: Warmth) -> None:
        """Whether an attempt goes on with its agent's own session; nothing where there is none to go on with."""
        if warmth.session:
            self._tell(f"{agent} goes on with its own session at “{name}”")
        elif warmth.why_cold:
            self._tell(f"{agent} begins a new session at “{name}”: the last one is not gone on with, {warmth.why_cold}")

    def asks(self, question: Question | None, *, about: str | None = None) -> None:
        """An agent asks a human; printed once for each question, and only about that task, if one is named."""
        if question is not None and question.id not in self._asked and about in (None, question.task):
            self._asked.add(question.id)
            self._tell(asks(question))

    def not_handed_on(self, spec: AgentSpec) -> None:
        """An agent has failed: which variables of ours it did not get, said once for each agent."""
        names = held_back(spec.pass_env) if spec.argv and spec.name not in self._failed else []
        self._failed.add(spec.name)
        if names:
            shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
            where = f"pass_env of [agents.{spec.name}]"
            self._tell(f"{spec.name} does not see these variables of yours: {shown}; {where} hands one on")


def asks(question: Question) -> str:
    """An agent asks a human."""
    text = without_output(question.text)
    replies = any(option.act is AnswerAction.REPLY for option in question.options)
    keys = [option.key for option in in_order(question.options) if option.act is not AnswerAction.REPLY]
    choice = "your answer" if replies or not keys else keys[0]
    others = f" (or {', '.join(keys[1:])})" if not replies and len(keys) > 1 else ""
    typed = shlex.join(["allswell", "answer", question.id, choice])
    return f"{question.asked_by or 'allswell'} asks: “{start_of(text, _LONGEST)}” → {typed}{others}"


def ended(
    agent: str, name: str, outcome: AttemptOutcome, followed: AfterCheck | None = None, *, final: bool = False
) -> str:
    """How an attempt has ended, and where its work is; `followed` is what came of its verification.

    With `final`, its task has ended with it.
    """
    receipt = outcome.receipt
    took_ = f" after {felt(receipt.elapsed_ms)}" if receipt is not None else ""
    why = start_of(outcome.reason, _LONGEST)
    match outcome.end:
        case End.DONE:
            check = outcome.verification
            passed = "" if check is None else f"; `{shown(check.argv)}` passed"
            refused = f"; {outcome.warning}" if outcome.denied.count else ""
            return _brought_home(f"{agent} has done “{name}”{passed}{refused}{_message(outcome)}", receipt)
        case End.UNVERIFIED:
            check = outcome.verification
            what = why if check is None else f"`{shown(check.argv)}` failed ({check.why})"
            said = f"{agent} said that “{name}” is done; {what}{_sent_back(followed)}"
        case End.FAILED | End.SIGNALLED:
            last = "; it is not tried again" if final else ""
            return f"{agent} failed at “{name}”{took_}: {why}{_said(receipt, why, last)}"
        case End.IDLE:
            silent = "too long" if receipt is None or receipt.limit_ms is None else show(receipt.limit_ms)
            circle = "" if outcome.standing is None else outcome.standing.repeats
            how = f"{circle}, for {silent} without progress" if circle else f"was silent for {silent}"
            said = f"{agent} {how} at “{name}” and was {_stopped(receipt)}"
        case End.TIMEOUT | End.COSTLY:
            said = f"{agent} was {_stopped(receipt)} at “{name}”{took_}: {why}"
        case End.STALLED:
            said = f"{agent} did not answer at “{name}” and was {_stopped(receipt)}: {why}"
        case End.INTERRUPTED:
            told_ = "stopped" if receipt is None or not receipt.survivors else _stopped(receipt)
            said = f"{agent} was {told_} at “{name}”: {why}"
        case End.ASKED:
            return f"{agent} waits for an answer about “{name}”, and has let go of it"
        case End.RELEASED:
            said = f"{agent} gave “{name}” back: {why}"
        case End.NOT_STARTED:
            return f"{agent} could not be started for “{name}”: {why}"
        case End.CANCELLED | End.LEASE_LOST:
            said = f"{agent} had to let go of “{name}”: {why}"
        case _:
            said = f"{agent} was lost at “{name}”: {why}"
    return said + _running(receipt) + _work(receipt)


def _message(outcome: AttemptOutcome) -> str:
    """What an agent that is done has said last; of a question after no change, the end."""
    line = on_one_line(" ".join(outcome.message.split()))
    if not line or outcome.said is not None:
        return ""
    if outcome.seems_to_ask:
        asked = line if len(line) <= _MESSAGE else f"…{line[1 - _MESSAGE :]}"
        return f"; {CHANGED_NOTHING_AND_ASKS}: “{asked}”"
    return f"; it says: “{line if len(line) <= _MESSAGE else line[: _MESSAGE - 1] + '…'}”"


def _stopped(receipt: Receipt | None) -> str:
    """It was ended only if nothing of it is known to run."""
    return "ended" if receipt is None or not receipt.survivors else "told to stop"


def _running(receipt: Receipt | None) -> str:
    left = "" if receipt is None else left_running(receipt)
    return f"; {left}" if left else ""


def given_back(agent: str, name: str, account: str, outcome: AttemptOutcome) -> str:
    """An attempt whose account its provider refuses: its task is as it was, and no attempt is spent."""
    return f"{agent} gave “{name}” back: its provider refuses the account {account}{_work(outcome.receipt)}"


def handed_over(agent: str, name: str, why: str, role: str, resolver: str) -> str:
    """An attempt that could not begin with the work of its needs; its task waits until another agent has merged it."""
    why = start_of(why, _LONGEST)
    return f"{agent} gave “{name}” back: {why}; an agent of the role {role} is to resolve it: {resolver}"


def met_limit(agent: str, name: str, said: str, outcome: AttemptOutcome) -> str:
    """An attempt that ended by itself at a usage limit: its account is parked, and no attempt is spent."""
    return f"{agent} gave back “{name}”: usage limit: {start_of(said, _LONGEST)}{_work(outcome.receipt)}"


def _sent_back(followed: AfterCheck | None) -> str:
    if followed is None:
        return ""
    if followed.follows is AfterAudit.MEND:
        return f", sent back, {followed.failed} of {followed.most}"
    return f", {followed.failed} of {followed.most}: you are asked"


def too_late(agent: str, name: str, outcome: AttemptOutcome, why: str) -> str:
    """An attempt has ended whose task is not its own any more; what it brought is kept (O10)."""
    if outcome.end is not End.DONE and not outcome.by_itself:
        return ended(agent, name, outcome)
    return f"{agent} came too late with “{name}” ({start_of(outcome.reason, _LONGEST)}): {why}; what it brought is kept"


def _said(receipt: Receipt | None, why: str, then: str) -> str:
    """What it said last, what comes then, and where its work is, or, without work, where to read on."""
    if receipt is None:
        return then
    last = "".join(last_said(receipt, 1))
    said = f"; it said: {start_of(last, _LONGEST)}" if last and last not in why else ""
    return said + then + (_work(receipt) or f" → allswell logs {receipt.task}")


def _brought_home(said: str, receipt: Receipt | None) -> str:
    """With where the work of an attempt in a worktree of its own is, and what brings it into the branch one is on."""
    if receipt is None or receipt.branch is None:
        return said
    where = " ".join(where_it_is(receipt.branch, receipt.files)).rstrip(".")
    stop = "" if said.endswith(_ENDS_OF_SENTENCE) else "."
    return f"{said}{stop} {where}{''.join(f' → {one}' for one in receipt.advice.merge)}"


def _work(receipt: Receipt | None) -> str:
    files = 0 if receipt is None else receipt.files
    if receipt is None or not files:
        return ""
    return f"; its work ({files} file{'' if files == 1 else 's'}) → allswell diff {receipt.id}"

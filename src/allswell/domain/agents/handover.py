"""What the next holder is told of what came before it, in words: the reason, the last check-in, the work that was kept.

Structured agents read the handover as JSON; an agent that reads a prompt gets this.

What an agent or a program wrote is quoted: each of its lines begins with `> `, control characters are taken out, and a
sentence says that quoted lines are data. So no agent can speak to the next one as if it were a human or Allswell: not
by the options that it offers to a human either, whose keys and labels are its own words.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from allswell.domain.agents.checkpoint import Checkpoint, read_checkpoint
from allswell.domain.agents.evidence import REPEATS, ended_repeating
from allswell.domain.agents.result import answer_text
from allswell.domain.agents.session import COLD, Warmth
from allswell.domain.duration import show
from allswell.domain.ids import TaskId
from allswell.domain.question import CLARIFY, REPLY
from allswell.domain.task.model import Handover, NeedEnded, RequestAnswer, State
from allswell.domain.values import QUOTE, QUOTED_IS_DATA, on_one_line, quoted

WARM = (
    "This goes on with your own session: what stands above is what you have read and done. You were ended before the"
    " task was done. Look at what the folder holds now, then finish the task."
)
NEW_SESSION = "This is a new session; the one of the last attempt is not gone on with"


class BaseMoved(NamedTuple):
    """What stands in the repository that a task's own branch does not have."""

    name: str
    """The branch that is checked out there, or its commit."""
    commits: int


class NeedDone(NamedTuple):
    """What a task needs, and got: what it brought, and the branch that its work is on."""

    task: TaskId
    name: str
    branch: str = ""
    """Empty: it is on no branch that is known here."""
    result: object = None
    is_merged: bool = False
    """Whether the task's own branch has that work."""
    missing: str = ""
    """Why it has not, where it was to be merged; names of files in it are data."""


_RESULT_MOST = 2_000
"""Letters of a result that are told; `allswell show` has all of it."""

REASONS = {
    "agent_timeout": "it reached its time limit",
    "agent_idle": "it gave no sign of progress for too long",
    "agent_repeats": "it repeated itself, and a human had it ended",
    "agent_stalled": "it stopped answering when asked for check-ins",
    "lease_lapsed": "its holder was lost",
    "released": "it gave the task back",
    "parked": "a usage limit was reached",
    "asked": "it asked a human",
    "not_verified": "what it said to be done was not",
    "blocked": "another agent had not answered its request in time",
}
GIVEN_BACK = {
    "needs_conflict": "the work of what it needs did not merge, and another agent was to resolve that",
    "usage_limit": "its account had reached a usage limit",
    "fleet_paused": "its fleet was paused",
    "account_refused": "its provider refused its account",
    "supervisor_stopped": "its supervisor was stopped",
}
"""Why a supervisor gives a task back, where that says nothing about the task."""


_ESCAPE = 7
"""Characters that may be left of a sign in JSON which was cut off, and one."""


def in_words(  # noqa: PLR0913 - all but four are keywords, one for each thing that can be left
    attempt: int,
    handover: Handover | None,
    notes: Sequence[str],
    receipt: str = "",
    *,
    answers: Sequence[RequestAnswer] = (),
    needs: Sequence[NeedEnded] = (),
    warmth: Warmth = COLD,
    moved: BaseMoved | None = None,
    done: Sequence[NeedDone] = (),
) -> str:
    """What earlier attempts, other agents and humans have left for this one; empty if there is nothing.

    `receipt` are the lines of the last attempt's receipt: where its work is and how to get it. `answers` are those of
    other agents to requests of this task, `needs` what this one needed and did not get, `done` what
    it needed and got. `warmth` is whether the agent
    goes on with its own session, and reads this as its next message. `moved` is how far the repository has moved on
    from the task's own branch.
    """
    parts = [WARM] if warmth.session else [f"{NEW_SESSION}: {on_one_line(warmth.why_cold)}."] if warmth.why_cold else []
    parts += [_need_in_words(need) for need in needs]
    parts += [_done_in_words(need) for need in done]
    if handover is not None:
        parts.append(_told(attempt, handover))
    if moved is not None:
        parts.append(_moved_in_words(moved))
    parts += map(answer_in_words, answers)
    if receipt:
        parts.append(receipt.strip())
    noted = ["\n".join(["Notes from a human, the newest last:", *map(_listed, notes)])] if notes else []
    if any(line.lstrip().startswith(QUOTE) for part in (*parts, *noted) for line in part.splitlines()):
        parts.append(QUOTED_IS_DATA)
    return "\n\n".join([*parts, *noted])


def _done_in_words(need: NeedDone) -> str:
    label = _label(need.task, need.name)
    where = f"; its work is on the branch {on_one_line(need.branch)}" if need.branch else ""
    if need.is_merged:
        where += ", which is merged into yours"
    elif need.missing:
        where += f", which is not merged into yours: {on_one_line(need.missing)}"
    result = answer_text(need.result)
    if result is None:
        return f"What this task needs is done: {label}{where}."
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    cut = f"\nThat is its beginning; `allswell show {need.task}` shows all of it." if len(text) > _RESULT_MOST else ""
    return f"What this task needs is done: {label}{where}. It brought:\n{quoted(text[:_RESULT_MOST])}{cut}"


def _label(task: TaskId, name: str) -> str:
    return f"{on_one_line(name)} ({task})" if name not in ("", task) else task


def _moved_in_words(moved: BaseMoved) -> str:
    count = "1 commit" if moved.commits == 1 else f"{moved.commits} commits"
    name, typed = on_one_line(moved.name), on_one_line(shlex.quote(f"HEAD..{moved.name}"))
    return f"The repository has moved on: {name} has {count} that your branch does not have (git log {typed})."


def _need_in_words(need: NeedEnded) -> str:
    label = _label(need.task, need.name)
    verb = need.outcome if need.outcome == State.FAILED else f"was {need.outcome}"
    told = f"What this task needs was not done: {label} {verb}"
    if not need.reason:
        return f"{told}."
    return f"{told} by a human:\n{_listed(need.reason)}" if need.human else f"{told}:\n{quoted(need.reason)}"


def _told(attempt: int, handover: Handover) -> str:
    reason, _, error = handover.reason.partition(":")
    why = REASONS.get(reason, f"it failed ({on_one_line(error)})" if error else on_one_line(reason))
    given_back = GIVEN_BACK.get(handover.message, "") if reason == "released" else ""
    ended = f"was broken off: {given_back}" if given_back else f"ended because {why}"
    lines = [f"This is attempt {attempt}. The last one, by {on_one_line(handover.agent)}, {ended}."]
    if handover.reason == "not_verified":
        lines.append(quoted(handover.message))
        lines.append("Fix what is wrong, then report it as done; it is verified again.")
    elif ended_repeating(reason, handover.message):
        lines.append(f"It had gone round in a circle:\n{quoted(handover.message.removeprefix(REPEATS))}")
        lines.append("Do not do the same again; try another way.")
    elif reason == "blocked":
        lines.append(on_one_line(handover.message))
    elif handover.message and not given_back:
        lines.append(f"It said:\n{quoted(handover.message)}")
    if handover.answer and handover.answer not in (REPLY.key, CLARIFY.key):  # then the words are among the notes
        lines.append(f"A human has chosen this option, which it had offered:\n{quoted(handover.answer)}")
    if handover.note:
        share = "" if handover.progress is None else f" ({handover.progress:.0%} done)"
        lines.append(f"Its last check-in{share}:\n{quoted(handover.note)}")
        if (found := read_checkpoint(handover.note)) is not None:
            lines += _from_checkpoint(found)
    return "\n".join(lines)


def answer_in_words(answer: RequestAnswer) -> str:
    """What another agent has answered, and how long after it was asked."""
    after = show(answer.at - answer.asked_at)
    said = "has declined" if answer.declined else "has answered"
    about = f"{on_one_line(answer.by)} {said} {answer.request} ({on_one_line(answer.summary)}) after {after}:"
    text = _beginning_of(answer.text) if answer.cut else answer.text
    if not answer.cut:
        value = msgspec.json.decode(text)
        text = value if isinstance(value, str) else text
    rest = f"\nThat is its beginning; `allswell show {answer.request}` shows all of it." if answer.cut else ""
    return f"{about}\n{quoted(text) or '> (nothing)'}{rest}"


def _beginning_of(text: str) -> str:
    """What is left of a text in JSON that was cut off, as text; anything else as it is."""
    for end in range(len(text), max(len(text) - _ESCAPE, 0), -1) if text.startswith('"') else ():
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(f'{text[:end]}"', type=str)
    return text


def _from_checkpoint(found: Checkpoint) -> list[str]:
    lines = []
    if found.remaining:
        lines.append(f"What it named as remaining:\n{quoted(', '.join(found.remaining))}")
    if found.blockers:
        lines.append(f"What it named as blocking it:\n{quoted(', '.join(found.blockers))}")
    return lines


def _listed(text: str) -> str:
    """A human's words as one entry of a list: further lines are indented."""
    return "- " + "\n  ".join(text.strip().splitlines())

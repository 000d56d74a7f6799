"""What the channel has to be told: the difference between what it was told last and how the build stands now.

What was told is kept in the store, together with the lines that are still to be said (`owe`). A coordinator that
was killed goes on from there, so that a line is said again only if nobody knows whether it arrived, and then word for
word.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import (
    AckLine,
    AuditLine,
    ClarifyLine,
    CompleteLine,
    ErrorLine,
    EscalateLine,
    Line,
    MergedLine,
    ReadyLine,
    RejectLine,
    RetryLine,
    TasksLine,
    TimeoutLine,
    skipped_line,
    tasks_lines,
    write,
)
from allswell.domain.build.state import (
    ASKED,
    AUDIT_FAILED,
    GIVEN_TO,
    NOTHING_MERGED,
    SILENT,
    BuildQuestion,
    BuildStatus,
    ComponentStatus,
    PastAttempt,
)
from allswell.domain.ids import Millis, QuestionId
from allswell.domain.question import CLARIFY


class AnnouncedComponent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the channel knows of a component."""

    holder: str = ""
    token: int = 0
    """Of the last lease that was told of."""
    audits: int = 0
    """How many verdicts were told."""
    announced: int = 0
    """The READY that was announced last, by its number, and when."""
    announced_at: Millis = Millis(0)
    merged: bool = False


class Announced(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the channel knows."""

    components: Mapping[str, AnnouncedComponent] = {}
    """Those of which something was told and more is to come."""
    merged: tuple[str, ...] = ()
    """Those of which nothing more is to be told."""
    free: tuple[str, ...] = ()
    free_at: Millis = Millis(0)
    """When that was said last."""
    questions: tuple[QuestionId, ...] = ()
    closed: tuple[QuestionId, ...] = ()
    """Those of which it was told how they were decided."""
    skipped: tuple[str, ...] = ()
    cycle: str = ""
    complete: bool = False


_UNTOLD = AnnouncedComponent()


def news(
    told: Announced, standing: BuildStatus, limits: BuildLimits, url: str, now: Millis, *, again: bool = True
) -> tuple[list[Line], Announced]:
    """The lines to say, those about what can be claimed last, and what the channel knows once they have arrived.

    Without `again` nothing is said only because it was said long ago: perhaps the answer to it was not heard yet.
    """
    lines: list[Line] = []
    components = dict(told.components)
    merged = dict.fromkeys(told.merged)
    returned = False
    for component in standing.components.values():
        if component.task is None or component.name in merged:
            continue  # there is nothing to tell of it, or nothing more
        before = components.get(component.name, _UNTOLD)
        said, after, freed = _about(before, component, limits, now, again=again)
        lines += said
        returned = returned or freed
        if after.merged:
            components.pop(component.name, None)
            merged[component.name] = None
        elif after is not before:
            components[component.name] = after
    for question in standing.questions:
        if question.choice is None and question.id not in told.questions:
            if standing.cycle and question.options[:1] == ("recheck",):
                lines.append(ErrorLine(f"dependency cycle detected: {standing.cycle}"))
            lines.append(EscalateLine(question.text, question.id, question.options))
    closed = tuple(question.id for question in standing.questions if question.choice is not None)
    for question in standing.questions:
        if question.choice is not None and question.id not in told.closed:
            lines += _decided(question)
    skipped = tuple(one.name for one in standing.components.values() if one.state == "skipped")
    lines += _skipped(standing, [name for name in skipped if name not in told.skipped])
    free = () if standing.stands_still() else tuple(standing.free)
    free_at = told.free_at
    if free and (returned or not set(free) <= set(told.free) or (again and now >= free_at + limits.tasks_every)):
        lines += tasks_lines(url, free, limits.progress_every)
        free_at = now
    complete = standing.is_over and bool(standing.components)
    if complete and not told.complete:
        lines.append(CompleteLine(url) if standing.has_merged else ErrorLine(NOTHING_MERGED))
    questions = tuple(question.id for question in standing.questions)
    return lines, Announced(
        components, tuple(merged), free, free_at, questions, closed, skipped, standing.cycle, complete
    )


def _decided(question: BuildQuestion) -> list[Line]:
    """What a decision means to builders: what was clarified, and who has lost a dispute."""
    dispute = question.dispute
    if dispute is not None and question.choice == "keep":
        why = f"a human has decided that {dispute.holder} keeps it"
        return [RejectLine(dispute.component, dispute.agent, why)]
    if question.component and question.choice == CLARIFY.key and question.answer:
        return [ClarifyLine(question.component, question.answer)]
    return []


def _skipped(standing: BuildStatus, names: list[str]) -> list[Line]:
    """What a human has left out, and what is left out with it because it needs it."""
    needed_by: dict[str, list[str]] = {}
    for name in names:
        for need in standing.components[name].needs:
            needed_by.setdefault(need, []).append(name)
    roots = [name for name in names if standing.components[name].task is not None]
    told = set(roots)
    lines: list[Line] = []
    for root in roots:
        todo, others = [root], []
        while todo:
            new = [name for name in needed_by.get(todo.pop(), ()) if name not in told]
            told.update(new)
            todo += new
            others += new
        lines.append(skipped_line(root, others))
    return lines


def _about(
    before: AnnouncedComponent, component: ComponentStatus, limits: BuildLimits, now: Millis, *, again: bool
) -> tuple[list[Line], AnnouncedComponent, bool]:
    """The lines about one component, in the order in which it happened; whether it has become free again."""
    name = component.name
    verdicts = [audit for audit in component.audits if audit.passed is not None]
    failed = [audit for audit in verdicts[before.audits :] if not audit.passed]
    lines: list[Line] = []
    freed = False
    token = before.token
    for lease in _leases(component):
        if lease.token > before.token:
            lines.append(AckLine(name, lease.agent, limits.progress_every))
        lines += [AuditLine(name, passed=False, details=one.details) for one in failed if one.token == lease.token]
        if lease.outcome and (lease.token > before.token or (lease.token == before.token and before.holder)):
            freed = component.state == "free"
            lines += _ending(component, lease)
        token = max(token, lease.token)
    merged = component.state == "merged"
    if merged and not before.merged:
        lines.append(MergedLine(name))
    announced, announced_at = before.announced, before.announced_at
    audit = component.in_audit
    if audit is not None and audit.number > announced:
        announced, announced_at = audit.number, now  # its builder has just said so
    elif again and audit is not None and now >= announced_at + limits.audit_timeout:
        lines.append(ReadyLine(name, audit.url))
        announced_at = now
    after = AnnouncedComponent(component.holder, token, len(verdicts), announced, announced_at, merged)
    return lines, before if after == before else after, freed


def _leases(component: ComponentStatus) -> list[PastAttempt]:
    """Every lease there was, in order; the one that there is has no outcome yet."""
    held = [PastAttempt(component.token, component.holder, "")] if component.holder else []
    return [*component.past, *held]


def _ending(component: ComponentStatus, lease: PastAttempt) -> list[Line]:
    """What is said of a lease that is over, so that its builder stops; an abort was said by itself."""
    name = component.name
    if lease.outcome == SILENT:
        return [TimeoutLine(name)]
    if lease.detail.startswith(AUDIT_FAILED):
        return [RetryLine(name)]
    if lease.detail.startswith(GIVEN_TO):
        return [RejectLine(name, lease.agent, f"a human has given it to {lease.detail.removeprefix(GIVEN_TO)}")]
    if lease.outcome == ASKED and any(one.token == lease.token and one.passed is False for one in component.audits):
        return [RejectLine(name, lease.agent, "your work on it has failed, and a human decides about it")]
    return []


# The lines that a coordinator has yet to say, in order, word for word.
#
# They are kept in the store together with the decisions that they tell of, and are taken off when they have arrived. So
# a coordinator that is killed owes the channel exactly what its next life says, except for what the replay shows.
#
#     TASKS      is always the whole list: a newer one takes the place of those that nobody has heard yet.
#     READY      that is announced again is said once, however long the channel was away.
#     REJECT     of one message at most so many, lest one stranger's nonsense keep everybody else waiting.

MOST_REFUSALS = 10
"""So many refusals are told of one message; the log has the others."""
_TASKS = "TASKS "
_REDACTED = re.compile(r"\[REDACTED[^\]]*\]")
"""What servers put in the place of a secret."""


def owe(owed: Sequence[str], lines: Iterable[Line], under_way: int = 0) -> tuple[str, ...]:
    """What is to be said once these lines are too; the first `under_way` are being said at this moment."""
    said, waiting = list(owed[:under_way]), list(owed[under_way:])
    given = list(lines)
    if any(isinstance(line, TasksLine) for line in given):
        waiting = [text for text in waiting if not text.startswith(_TASKS)]
    for line in given:
        text = write(line)
        if not isinstance(line, ReadyLine) or text not in waiting:
            waiting.append(text)
    return (*said, *waiting)


def still_owed(owed: Sequence[str], said: Iterable[str]) -> tuple[str, ...]:
    """What is left to be said after a restart; `said` are our lines that the replay shows, as the server has them."""
    left = list(owed)
    for line in said:
        place = next((place for place, text in enumerate(left) if _is_echo(text, line)), None)
        if place is not None:
            del left[place]
    return tuple(left)


def _is_echo(text: str, line: str) -> bool:
    """Whether a line is this one, perhaps with its secrets replaced."""
    if text == line or not _REDACTED.search(line):
        return text == line
    first, *middle, last = _REDACTED.split(line)
    if not text.startswith(first) or not text.endswith(last):
        return False
    place = len(first)
    for part in middle:  # one after the other: a pattern of many gaps can be tried in more ways than there is time
        place = text.find(part, place + 1)
        if place < 0:
            return False
        place += len(part)
    return place < len(text) - len(last)


def few_refusals(replies: Sequence[Line]) -> tuple[list[Line], int]:
    """Answers to one message, with the first refusals only; how many were left out."""
    kept: list[Line] = []
    refusals = 0
    for line in replies:
        refusals += isinstance(line, RejectLine)
        if not isinstance(line, RejectLine) or refusals <= MOST_REFUSALS:
            kept.append(line)
    return kept, len(replies) - len(kept)


# What waits to be said in a chat: as fast as its server allows, in order, in few messages, and nothing lost (C8).
#
# A chat server takes one message a second from each speaker and throws away what comes faster. It sends every message
# it took back to its speaker: the echo. So one message is under way at a time, and the next one goes out a second after
# the echo of the last. Meanwhile lines gather, and those for the same place go out together, as many as fit into a
# message. Whatever the server says in our name is therefore the echo of that one message; its text may differ, since
# servers replace what looks like a secret.
#
#     limited     the server said that it threw the message away: it is sent again, later each time.
#     held        the server said until when it throws everything of ours away: it is sent again then.
#     overdue     neither echo nor complaint came: the connection is not to be trusted, and is given up.
#     cut off     nobody knows whether the message was taken. On joining again the server replays what was said last:
#                 if there is something newer of ours, that is its echo (`echoed`); if the replay ends without one
#                 (`caught_up`), it is sent again, word for word.
#
# Order is kept for each receiver: a line to one agent may overtake a line to another, but none overtakes a line to a
# channel, where both may be listening.

MESSAGE_BYTES = 4_000
"""No message is longer; servers take 4,096."""
_MOST_PATIENCE = 4
"""How often the pause after a message that was thrown away doubles."""


class AnnouncePace(msgspec.Struct, frozen=True):
    """How a server wants to be spoken to, in milliseconds."""

    spacing: int = 1_000
    """Between two messages."""
    echo: int = 10_000
    """So long may an echo take."""


class AnnouncedMessage(msgspec.Struct, frozen=True):
    """Lines for one place, as they are sent."""

    place: str
    content: str
    lines: int
    """How many lines those are."""


class Outgoing:
    """The lines that one speaker has yet to say. It never looks at a clock: moments are handed in."""

    def __init__(self, pace: AnnouncePace | None = None) -> None:
        self._pace = pace or AnnouncePace()
        self._waiting: deque[tuple[str, str]] = deque()
        self._message: AnnouncedMessage | None = None
        self._sent_at: Millis | None = None
        self._not_before = Millis(0)
        self._limited = 0
        self._cut_off = False

    def __len__(self) -> int:
        """How many lines have not arrived yet."""
        return len(self._waiting) + (0 if self._message is None else self._message.lines)

    def put(self, place: str, line: str) -> None:
        """Have a line said when its turn comes."""
        self._waiting.append((place, line))

    # --- sending ------------------------------------------------------------------------------------------------------

    def due_at(self) -> Millis | None:
        """When `take` has something to send, or the echo is overdue; None while only others can change that."""
        if self._cut_off or not len(self):
            return None
        if self._sent_at is not None:
            return Millis(self._sent_at + self._pace.echo)
        return self._not_before

    def take(self, now: Millis) -> AnnouncedMessage | None:
        """The message to send now, if there is one; it counts as sent."""
        if self._cut_off or self._sent_at is not None or now < self._not_before:
            return None
        if self._message is None:
            self._message = self._gathered()
        if self._message is not None:
            self._sent_at = now
        return self._message

    def is_overdue(self, now: Millis) -> bool:
        """Whether the echo has taken so long that the connection cannot be trusted."""
        return self._sent_at is not None and not self._cut_off and now >= self._sent_at + self._pace.echo

    def _gathered(self) -> AnnouncedMessage | None:
        """The first waiting line, and those that may go out with it."""
        if not self._waiting:
            return None
        place = self._waiting[0][0]
        lines: list[str] = []
        size = 0
        left: deque[tuple[str, str]] = deque()
        while self._waiting:
            to, line = self._waiting[0]
            length = len(line.encode()) + (1 if lines else 0)
            if to == place and lines and size + length > MESSAGE_BYTES:
                break
            if to != place and (_is_channel(to) or _is_channel(place)):
                break
            self._waiting.popleft()
            if to == place:
                lines.append(line)
                size += length
            else:
                left.append((to, line))
        self._waiting.extendleft(reversed(left))
        return AnnouncedMessage(place, "\n".join(lines), len(lines))

    # --- what came of it ----------------------------------------------------------------------------------------------

    @property
    def is_in_doubt(self) -> bool:
        """Whether a message was sent of which it is not known what came of it."""
        return self._message is not None and self._sent_at is not None

    def echoed(self, now: Millis) -> int:
        """The server has said something in our name; how many lines have arrived with it, none if none were sent."""
        message = self._message
        if message is None or self._sent_at is None:
            return 0
        self._message = None
        self._sent_at = None
        self._limited = 0
        self._not_before = Millis(now + self._pace.spacing)
        return message.lines

    def limited(self, now: Millis) -> None:
        """The server threw the message away: it came too soon."""
        if self._sent_at is None:
            return
        self._sent_at = None
        self._not_before = Millis(now + self._pace.spacing * 2 ** min(self._limited, _MOST_PATIENCE))
        self._limited += 1

    def held(self, until: Millis) -> None:
        """The server takes nothing of ours before a moment."""
        if self._sent_at is not None:
            self._sent_at = None
            self._not_before = until

    def cut_off(self) -> None:
        """The connection is gone: nothing is sent before `caught_up`."""
        self._cut_off = True

    def caught_up(self, now: Millis) -> None:
        """There is a connection again, and its replay is over: what has no echo by now was not taken."""
        self._cut_off = False
        self._sent_at = None
        self._not_before = Millis(max(self._not_before, now + self._pace.spacing))


def _is_channel(place: str) -> bool:
    return place.startswith("#")

"""What one attempt costs, as its lines tell it: a fold over what it prints (output.py).

Claude Code tells the tokens of each message as they come, and a session's total at its end; one total after the other,
where a session has several turns. Codex tells at the end of each turn what its thread has taken in all, and goes on
counting where another process goes on with the thread. What comes twice must not count twice, so each session is one
part of the sum: its last total, and beside it, as an estimate (cost.py), the messages since then.

The parts are bounded: what a program prints must not fill the memory of its supervisor. One thread feeds it at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from allswell.domain.agents.cost import MOST, NAME_MOST, PRICES, TOKENS_MOST, Expense, Price, TokenUse, price_of, sum_of
from allswell.domain.agents.cost import estimated as estimate
from allswell.domain.agents.output import AgentLine, MessageUsage, SessionSpent, StepEnded, TurnEnded

SESSIONS_MOST = 1_000
"""Sessions of one attempt that are told apart: what a program prints must not fill the memory of its supervisor."""
SESSION_MOST = 200
"""Characters of a session's id that are looked at."""


class UsageCounter:
    """Adds up what the lines of one attempt say, and what is said outright.

    A session's last total counts: it replaces what its messages were priced at until then. Of a message the largest
    figures count, since several lines tell of one. What a thread had cost before this attempt is no part of it.
    """

    def __init__(
        self, prices: Callable[[], Mapping[str, Price]] = lambda: PRICES, before: Mapping[str, Expense] | None = None
    ) -> None:
        """`prices` is called when a message is priced.

        `before`: what sessions had cost that the attempt goes on with, where their totals go on, too.
        """
        self.total: Expense | None = None
        """All of it so far; None if nothing was said."""
        self.unpriced: tuple[str, ...] = ()
        """Models that the table does not name; of their messages only the tokens are known until the end."""
        self._prices = prices
        self._before = before or {}
        self._sessions: dict[str, Expense] = {}
        self._unfinished: dict[str, _Messages] = {}
        """By session, what its messages took since its last total."""
        self._turns = Expense()
        self._said = Expense()
        self._sum = [0] * 7
        self._thread = ""
        """The thread of Codex that goes on: the lines in which its turns end do not name it."""

    def hear_line(self, line: AgentLine) -> bool:
        """Take note of a line of a protocol; whether it says anything of what the attempt costs."""
        if line.dialect == "codex" and line.session:
            self._thread = line.session
        heard = False
        for event in line.events:
            if isinstance(event, MessageUsage):
                heard |= self.hear_message(line.session or "", event)
            elif isinstance(event, SessionSpent):
                heard |= self.hear(line.session or "", event.expense)
            elif isinstance(event, StepEnded):
                heard |= self.hear("", event.expense)
            elif isinstance(event, TurnEnded):
                session = event.session or (self._thread if event.goes_on else "")
                heard |= self.hear(session, event.expense, goes_on=event.goes_on)
        return heard

    def add(self, more: Expense) -> None:
        """Something was said outright, which the lines do not say."""
        self._said = self._put(self._said, _both(self._said, more))

    def hear(self, session: str, expense: Expense, *, goes_on: bool = False) -> bool:
        """Take note of what the end of a turn says; whether it said anything. Without a session it is the turn's.

        With `goes_on` the figures count from the session's beginning, however many processes went on with it.
        """
        if not session:
            self._turns = self._put(self._turns, _both(self._turns, expense))
            return expense != Expense()
        if goes_on:
            if expense == Expense():
                return False
            expense = _less(expense, self._before.get(session))
        session = session[:SESSION_MOST]
        messages = self._unfinished.pop(session, None)
        earlier = self._sessions.get(session, Expense())
        if messages is not None:
            self._put(messages.expense, Expense())
            earlier = _both(earlier, messages.expense)
            if expense.cost is None:  # it tells tokens, and no money
                expense = replace(expense, cost=earlier.cost, estimated=earlier.estimated)
        if expense.given is None and expense.written is None:  # it tells money, and no tokens
            expense = replace(expense, given=earlier.given, written=earlier.written)
        self._note(session, expense)
        return True

    def hear_message(self, session: str, usage: MessageUsage) -> bool:
        """Take note of what a message took, as far as it has come; whether that is news."""
        session = session[:SESSION_MOST]
        messages = self._unfinished.get(session)
        if messages is None:
            if len(self._unfinished) >= SESSIONS_MOST:
                oldest = self._unfinished.pop(next(iter(self._unfinished)))
                self._put(oldest.expense, Expense())
                self.add(oldest.expense)
            messages = self._unfinished[session] = _Messages()
        before = messages.expense
        messages.hear(usage, self._prices())
        if messages.expense == before:
            return False
        self._put(before, messages.expense)
        if usage.model and len(self.unpriced) < _MODELS_MOST and price_of(usage.model, self._prices()) is None:
            self.unpriced = tuple(dict.fromkeys((*self.unpriced, usage.model[:NAME_MOST])))
        return True

    def _note(self, session: str, spent: Expense) -> None:
        """A session's last word; of too many sessions the oldest is added to what was said outright."""
        if session not in self._sessions and len(self._sessions) >= SESSIONS_MOST:
            oldest = self._sessions.pop(next(iter(self._sessions)))
            self._put(oldest, Expense())
            self.add(oldest)
        self._sessions[session] = self._put(self._sessions.get(session, Expense()), spent)

    def _put(self, old: Expense, new: Expense) -> Expense:
        """Have one part of the sum replaced by another; a sum of thousands is not made anew for each line."""
        for sign, part in ((-1, old), (1, new)):
            for place, figure in enumerate(_figures(part)):
                if figure is not None:
                    self._sum[place] += sign * figure
                    self._sum[place + 3] += sign
            self._sum[6] += sign * part.estimated
        known = [amount if count else None for amount, count in zip(self._sum[:3], self._sum[3:6], strict=True)]
        found = _of_figures(known, estimated=self._sum[6] > 0)
        self.total = None if found == Expense() else found
        return new


_MESSAGES_MOST = 64
"""Messages of one session of which newer figures may come; older ones are added up."""
_MODELS_MOST = 16
_PARENTS_MOST = 64


class _Messages:
    """The messages of one session since its last total."""

    def __init__(self) -> None:
        self.expense = Expense()
        self._open: dict[str, tuple[str, TokenUse]] = {}
        self._closed: dict[str, TokenUse] = {}
        """Sums by model."""
        self._begun: dict[str, str] = {}
        """The message that was begun last, by whose it is."""

    def hear(self, usage: MessageUsage, prices: Mapping[str, Price]) -> None:
        parent = usage.parent[:SESSION_MOST]
        id_ = usage.id[:SESSION_MOST] or self._begun.get(parent, "")
        if not id_:
            return
        self._begun[parent] = id_
        if len(self._begun) > _PARENTS_MOST:
            del self._begun[next(iter(self._begun))]
        model, before = self._open.pop(id_, ("", TokenUse()))
        self._open[id_] = (usage.model[:NAME_MOST] or model, before.at_least(usage.use))
        if len(self._open) > _MESSAGES_MOST:
            old, use = self._open.pop(next(iter(self._open)))
            old = old if old in self._closed or len(self._closed) < _MODELS_MOST else ""
            self._closed[old] = self._closed.get(old, TokenUse()).plus(use)
        self.expense = self._priced(prices)

    def _priced(self, prices: Mapping[str, Price]) -> Expense:
        parts = [*self._open.values(), *self._closed.items()]
        priced = [(use, price_of(model, prices)) for model, use in parts]
        costs = [estimate(use, price) for use, price in priced if price is not None]
        given, written = sum(use.prompt for use, _ in priced), sum(use.written for use, _ in priced)
        cost = min(sum(costs), MOST) if costs else None
        return Expense(cost, min(given, TOKENS_MOST), min(written, TOKENS_MOST), estimated=cost is not None)


def _both(one: Expense, other: Expense) -> Expense:
    figures = [sum_of(pair) for pair in zip(_figures(one), _figures(other), strict=True)]
    return _of_figures(figures, estimated=one.estimated or other.estimated)


def _less(total: Expense, before: Expense | None) -> Expense:
    """What is left of a total without what came before; a figure that is not known there takes nothing away."""
    if before is None:
        return total
    pairs = zip(_figures(total), _figures(before), strict=True)
    return _of_figures([None if now is None else max(now - (then or 0), 0) for now, then in pairs])


def _of_figures(figures: Sequence[int | None], *, estimated: bool = False) -> Expense:
    cost, given, written = figures
    return Expense(cost, given, written, estimated)


def _figures(one: Expense) -> tuple[int | None, int | None, int | None]:
    return one.cost, one.given, one.written

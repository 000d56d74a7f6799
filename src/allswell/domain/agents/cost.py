"""What attempts cost, in money and in tokens, as the agents themselves report it.

Claude Code says in its `result` what its session has cost so far (`total_cost_usd`) and which tokens that took; Codex
says at the end of each turn which tokens it took, and nothing of money. What is not reported is not known: it is None
here and "unknown" to people, never nought. There is no table of prices.

Money is counted in millionths of a dollar, as whole numbers, so that sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.domain.receipts.step import Tokens
from allswell.errors import Refused

# How many tokens a model was given and wrote, as providers and agents report it.
#
# An answer of a provider carries `usage` under names of its own: Anthropic's messages count what came from its cache
# apart, OpenAI's older interface calls the two sides prompt and completion, Gemini has `usageMetadata`. In a stream the
# figures come in events, each with the newest ones. Agents report the same on their standard output: Claude Code in its
# `result`, Codex at the end of every turn. What says nothing of it is None, never nought.

_GIVEN = ("prompt_tokens", "input_tokens", "promptTokenCount")
_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")
"""What Anthropic does not count among `input_tokens`."""
_WRITTEN = ("completion_tokens", "output_tokens", "candidatesTokenCount")
_LONGEST = 1 << 20


def of_answer(body: object) -> Tokens | None:
    """What one answer of a provider cost."""
    return tokens_in(_usage(body)) if isinstance(body, Mapping) else None


def of_events(raw: bytes) -> Tokens | None:
    """What an answer cost that came as a stream of events (`data: {…}`)."""
    newest: dict[str, Any] = {}
    for line in raw.splitlines():
        if line.startswith(b"data:") and (body := _model_usage_object(line[5:])) is not None:
            for part in (body, body.get("message"), body.get("response")):
                if isinstance(part, Mapping):
                    newest |= _usage(part)
    return tokens_in(newest)


def plus(one: Tokens | None, other: Tokens | None) -> Tokens | None:
    """Both together; what is not known adds nothing."""
    if one is None or other is None:
        return one or other
    return Tokens(one.prompt + other.prompt, one.completion + other.completion, one.total + other.total)


def _model_usage_object(line: bytes) -> Mapping[str, Any] | None:
    if len(line) > _LONGEST:
        return None
    try:
        body = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return body if isinstance(body, Mapping) else None


def _usage(body: Mapping[str, Any]) -> dict[str, Any]:
    found = body.get("usage") or body.get("usageMetadata")
    return {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else {}


def tokens_in(usage: Mapping[str, Any]) -> Tokens | None:
    """What a `usage` says, under the names of whichever provider; None if it says nothing."""
    given, written = _first(usage, _GIVEN), _first(usage, _WRITTEN)
    if given is None and written is None:
        return None
    prompt = (given or 0) + sum(_first(usage, (name,)) or 0 for name in _CACHED)
    return Tokens(prompt, written or 0, prompt + (written or 0))


def _first(usage: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOKENS_MOST:
            return value
    return None


USD = 1_000_000
"""Millionths."""
MOST = 1_000_000 * USD
"""What nobody's session costs: a larger figure is a mistake."""
TOKENS_MOST = 10**12
UNCOUNTED = 1 << 62
"""What stands for a sum that could not be made: more than any limit, so that what it is held to shuts."""
SpentBy = Literal["task", "run", "role", "agent", "all"]
"""What sums are told of."""


class Expense(msgspec.Struct, frozen=True, omit_defaults=True):
    """What something cost; None where nobody has said."""

    cost: int | None = None
    """Millionths of a dollar."""
    given: int | None = None
    """Tokens that went in, those from a cache included."""
    written: int | None = None
    """Tokens that came out."""


def tokens_of(expense: Expense | None) -> Tokens | None:
    """The tokens of an expense; None where it names none."""
    if expense is None or (expense.given is None and expense.written is None):
        return None
    return Tokens(expense.given or 0, expense.written or 0, (expense.given or 0) + (expense.written or 0))


class ExpenseRow(msgspec.Struct, frozen=True):
    """What one attempt has cost so far, with all that sums are made of."""

    task: TaskId
    token: Token
    agent: AgentId
    role: str
    run: RunId | None
    told_at: Millis
    cost: int | None
    given: int | None
    written: int | None


class Spent(msgspec.Struct, frozen=True):
    """What several attempts cost together."""

    attempts: int = 0
    """Those that have reported anything."""
    priced: int = 0
    """Those of them that said what they cost."""
    cost: int | None = None
    given: int | None = None
    written: int | None = None

    @property
    def tokens(self) -> int | None:
        """All tokens; None where nobody has reported any."""
        return None if self.given is None and self.written is None else (self.given or 0) + (self.written or 0)


NOTHING_SPENT = Spent()


def together(rows: Iterable[ExpenseRow]) -> Spent:
    """The sum of what attempts cost; what was not reported adds nothing, and is counted."""
    found = list(rows)
    return Spent(
        len(found),
        sum(row.cost is not None for row in found),
        _sum(counted(row.cost) for row in found),
        _sum(counted(row.given) for row in found),
        _sum(counted(row.written) for row in found),
    )


def add_up(sums: Iterable[Spent]) -> Spent:
    """The sum of sums."""
    parts = list(sums)
    return Spent(
        sum(part.attempts for part in parts),
        sum(part.priced for part in parts),
        _sum(part.cost for part in parts),
        _sum(part.given for part in parts),
        _sum(part.written for part in parts),
    )


def counted(figure: int | None) -> int | None:
    """What a figure adds to a sum: one that was kept before there were bounds neither takes away nor overflows."""
    return None if figure is None else min(max(figure, 0), MOST)


def _sum(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def usd(cost: int | None) -> float | None:
    """Money in dollars, for the outside."""
    return None if cost is None else cost / USD


def from_usd(amount: float) -> int | None:
    """Money of the outside; None where it is no such figure."""
    return round(amount * USD) if math.isfinite(amount) and 0 <= amount * USD <= MOST else None


def told_expense(cost_usd: float | None, tokens_in: int | None, tokens_out: int | None) -> Expense:
    """What somebody says outright that something cost; `Refused` where a figure is none."""
    cost = None if cost_usd is None else from_usd(cost_usd)
    if cost_usd is not None and cost is None:
        raise Refused("bad_cost", f"cost_usd must be an amount of dollars, not {cost_usd}", where="cost_usd")
    for name, figure in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
        if figure is not None and not 0 <= figure <= TOKENS_MOST:
            raise Refused("bad_cost", f"{name} must be a number of tokens, not {figure}", where=name)
    return Expense(cost, tokens_in, tokens_out)


def shown(cost: int | None) -> str:
    """Money for people: cents where it is more than one, and all of it where it is less."""
    if cost is None:
        return "unknown"
    if cost >= UNCOUNTED:
        return "more than can be counted"
    return f"${cost / USD:,.2f}" if cost >= USD // 100 or cost == 0 else f"${cost / USD:.6f}".rstrip("0")


SESSIONS_MOST = 1_000
"""Sessions of one attempt that are told apart: what a program prints must not fill the memory of its supervisor."""
SESSION_MOST = 200
"""Characters of a session's id that are looked at."""


class UsageCounter:
    """Adds up what the lines of one attempt say. A session's last word counts, and each turn by itself."""

    def __init__(self) -> None:
        self._sessions: dict[str, Expense] = {}
        self._turns = Expense()
        self._said = Expense()

    @property
    def total(self) -> Expense | None:
        """All of it so far; None if nothing was said."""
        parts = [*self._sessions.values(), self._turns, self._said]
        cost, given, written = (_sum(figures) for figures in zip(*map(_figures, parts), strict=True))
        found = Expense(cost, given, written)
        return None if found == Expense() else found

    def add(self, more: Expense) -> None:
        """Something was said outright, which the lines do not say."""
        figures = [_sum(pair) for pair in zip(_figures(self._said), _figures(more), strict=True)]
        self._said = Expense(*figures)

    def hear(self, session: str, expense: Expense) -> bool:
        """Take note of what the end of a turn says; whether it said anything. Without a session it is the turn's."""
        if session:
            self._note(session[:SESSION_MOST], expense)
            return True
        if expense == Expense():
            return False
        before = self._turns
        self._turns = Expense(
            None, (before.given or 0) + (expense.given or 0), (before.written or 0) + (expense.written or 0)
        )
        return True

    def _note(self, session: str, spent: Expense) -> None:
        """A session's last word; of too many sessions the oldest is added to what was said outright."""
        if session not in self._sessions and len(self._sessions) >= SESSIONS_MOST:
            self.add(self._sessions.pop(next(iter(self._sessions))))
        self._sessions[session] = spent


def _figures(one: Expense) -> tuple[int | None, int | None, int | None]:
    return one.cost, one.given, one.written

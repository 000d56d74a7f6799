"""What attempts cost, in money and in tokens, as the agents themselves report it.

Claude Code says in its `result` what its session has cost so far (`total_cost_usd`) and which tokens that took; Codex
says at the end of each turn which tokens its thread has taken, and nothing of money. What is not reported is not known:
it is None here and "unknown" to people, never nought.

Until a session's end Claude Code tells the tokens of each message. They are counted as they come, and priced by a table
(at the top): such a cost is an estimate, and marked as one, until the client's own total replaces it. So limits bind
within an attempt, and one that was killed has cost what it cost.

Money is counted in millionths of a dollar, as whole numbers, so that sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from allswell.domain.ids import AgentId, Millis, RunId, TaskId, Token
from allswell.errors import Refused


class Tokens(msgspec.Struct, frozen=True):
    """What a model was given and what it wrote."""

    prompt: int
    completion: int
    total: int


# What models cost by the token: an estimate for as long as a client has not told its own total.
#
# Claude Code tells what a session has cost only when it ends, and Codex tells tokens alone. What was used until then
# is priced by this table, so that limits bind within an attempt, and one that is killed has cost what it cost. A price
# of the table is an estimate, and marked as such wherever it is shown (`estimated`); the client's own total replaces
# it.
#
# The table is of 2026-11-18, Anthropic's prices as Claude Code 2.1.197 counts them, and it is small; rows in the
# settings (`[prices]`) outweigh it. A model that no row names has tokens and no price: then nothing is guessed.

_LONG_STORED = 2.0
"""How many times the price of a token that goes in one costs that is put into the cache for an hour."""
NAME_MOST = 100


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens of one model cost, in dollars."""

    input: float
    output: float
    cached: float
    """Those that came from the cache."""
    cache_write: float
    """Those that were put into the cache."""


def _anthropic(given: float, written: float) -> Price:
    return Price(input=given, output=written, cached=given / 10, cache_write=given * 1.25)


def _other(given: float, written: float, cached: float) -> Price:
    return Price(input=given, output=written, cached=cached, cache_write=given)


PRICES: Mapping[str, Price] = {
    "claude-opus-4": _anthropic(5, 25),
    "claude-opus-4-0": _anthropic(15, 75),
    "claude-opus-4-1": _anthropic(15, 75),
    "claude-opus-4-2": _anthropic(15, 75),  # claude-opus-4-20250514
    "claude-opus-5": _anthropic(5, 25),
    "claude-sonnet-4": _anthropic(3, 15),
    "claude-sonnet-5": _anthropic(3, 15),
    "claude-haiku-4": _anthropic(1, 5),
    "claude-3-7-sonnet": _anthropic(3, 15),
    "claude-3-5-sonnet": _anthropic(3, 15),
    "claude-3-5-haiku": _anthropic(0.8, 4),
    "gpt-5": _other(1.25, 10, 0.125),
    "gpt-5-mini": _other(0.25, 2, 0.025),
    "gpt-5-nano": _other(0.05, 0.4, 0.005),
    "gemini-2.5-pro": _other(1.25, 10, 0.125),
    "gemini-2.5-flash": _other(0.3, 2.5, 0.03),
}
"""By how the names of models begin; the longest one that fits counts."""


def with_own(own: Mapping[str, Price]) -> Mapping[str, Price]:
    """The table with rows of one's own, which count before all of its rows that they fit."""
    rows = {name.casefold(): price for name, price in own.items()}
    return {start: price for start, price in PRICES.items() if not start.startswith(tuple(rows))} | rows


class TokenUse(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The tokens of one message of a model, by what each kind of them costs."""

    given: int = 0
    """Those that went in and were in no cache."""
    written: int = 0
    cached: int = 0
    """Those that came from the cache."""
    stored: int = 0
    """Those that were put into the cache."""
    stored_long: int = 0
    """How many of these for an hour."""

    @property
    def prompt(self) -> int:
        """All that went in."""
        return self.given + self.cached + self.stored

    def at_least(self, other: TokenUse) -> TokenUse:
        """The larger figures of both: those of one message only grow."""
        return TokenUse(*map(max, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def plus(self, other: TokenUse) -> TokenUse:
        """Both together."""
        return TokenUse(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


def price_of(model: str, prices: Mapping[str, Price] = PRICES) -> Price | None:
    """What a model costs; None where no row of the table names it."""
    name = model[:NAME_MOST].rpartition("/")[2].casefold()
    fits = [start for start in prices if name.startswith(start) and _is_same(name, start)]
    return prices[max(fits, key=len)] if fits else None


def _is_same(name: str, start: str) -> bool:
    """Whether what follows the beginning is a date or a variant: `gpt-5` fits neither `gpt-50` nor `gpt-5.1`."""
    rest = name[len(start) :]
    within_date = start.endswith("-2") and len(rest) == 7 and rest.isdigit()  # claude-opus-4-20250514
    return not rest or rest[0] in "-@[:" or within_date


def estimated(use: TokenUse, price: Price) -> int:
    """What tokens cost, in millionths of a dollar."""
    dollars = (
        use.given * price.input
        + use.written * price.output
        + use.cached * price.cached
        + (use.stored - min(use.stored_long, use.stored)) * price.cache_write
        + min(use.stored_long, use.stored) * price.input * _LONG_STORED
    )
    return round(dollars)


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


def use_in(usage: Mapping[str, Any]) -> TokenUse:
    """The tokens of a `usage` of Anthropic's, by what each kind of them costs."""
    given, written, stored, cached = (
        _first(usage, names) or 0 for names in (_GIVEN, _WRITTEN, *((name,) for name in _CACHED))
    )
    kinds = usage.get("cache_creation")
    long = _first(kinds, ("ephemeral_1h_input_tokens",)) or 0 if isinstance(kinds, Mapping) else 0
    return TokenUse(given, written, cached, stored, min(long, stored))


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
    estimated: bool = False
    """Whether the money, or a part of it, is priced by a table and not told by the client."""


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
    estimated: bool = False


class Spent(msgspec.Struct, frozen=True):
    """What several attempts cost together."""

    attempts: int = 0
    """Those that have reported anything."""
    priced: int = 0
    """Those of them that said what they cost."""
    cost: int | None = None
    given: int | None = None
    written: int | None = None
    estimated: int = 0
    """Those of which the cost is an estimate, or holds one."""

    @property
    def cost_usd(self) -> float | None:
        """What they cost; None is unknown, never nought."""
        return usd(self.cost)

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
        sum_of(counted(row.cost) for row in found),
        sum_of(counted(row.given) for row in found),
        sum_of(counted(row.written) for row in found),
        sum(row.estimated for row in found),
    )


def add_up(sums: Iterable[Spent]) -> Spent:
    """The sum of sums."""
    parts = list(sums)
    return Spent(
        sum(part.attempts for part in parts),
        sum(part.priced for part in parts),
        sum_of(part.cost for part in parts),
        sum_of(part.given for part in parts),
        sum_of(part.written for part in parts),
        sum(part.estimated for part in parts),
    )


def counted(figure: int | None) -> int | None:
    """What a figure adds to a sum: one that was kept before there were bounds neither takes away nor overflows."""
    return None if figure is None else min(max(figure, 0), MOST)


def sum_of(figures: Iterable[int | None]) -> int | None:
    """Those that are known, together; None where none is."""
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


def shown(cost: int | None, *, estimated: bool = False) -> str:
    """Money for people: cents where it is more than one, and all of it where it is less."""
    if cost is None:
        return "unknown"
    if estimated:
        return f"{shown(cost)} (estimated)"
    if cost >= UNCOUNTED:
        return "more than can be counted"
    return f"${cost / USD:,.2f}" if cost >= USD // 100 or cost == 0 else f"${cost / USD:.6f}".rstrip("0")


def in_words(expense: Expense | None) -> str:
    """What something cost, in money and in tokens."""
    if expense is None:
        return "unknown"
    tokens = tokens_of(expense)
    money = shown(expense.cost, estimated=expense.estimated)
    return money if tokens is None else f"{money}, {tokens.total:,} tokens"


_NUMBER_MOST = 1 << 50
"""Larger than any figure that is meant: JSON has figures that no float can hold."""


def number_of(value: object) -> float | None:
    """A figure; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _NUMBER_MOST:
        return None
    return value


def count_of(value: object) -> int | None:
    """How many; None if it is no such figure."""
    return value if isinstance(value, int) and 0 <= value <= _NUMBER_MOST else None


def expense_of(cost: int | None, usage: object) -> Expense:
    """What a session has cost, with the tokens of its `usage`, where it has one."""
    tokens = tokens_in(usage) if isinstance(usage, Mapping) else None
    return Expense(cost) if tokens is None else Expense(cost, tokens.prompt, tokens.completion)

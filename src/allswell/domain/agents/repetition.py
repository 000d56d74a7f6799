"""Busy is not progress: the same call of a tool with the same answer, again and again, or two such calls in turn.

An agent that goes round in circles prints a step of its protocol every few seconds, so every clock that goes by its
protocol is content with it. `RepetitionFinder` hears the events of one stream (output.py) and finds such circles: from
`repeat_limit` rounds on, neither what the agent prints nor the processor time of its processes is evidence of progress
(evidence.py); after twice as many rounds a human is asked (`runtime/attempt/control.py`). A call with other arguments,
or with another answer, ends the circle at once: an agent that reads one file after another explores. Calls of Allswell
itself are left out: an agent that waits for an answer asks for it again and again, and check-ins are evidence of their
own. Circles of three or more calls are not looked for.

Only digests of calls and answers are kept, of a few calls, so it costs the same whatever an agent prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.denied import SPEAKS_FOR, WITHOUT_EFFECT
from allswell.domain.agents.evidence import REPEAT_LIMIT
from allswell.domain.agents.output import AgentEvent, ToolCall, ToolCallResult, TurnEnded, words_of
from allswell.domain.values import on_one_line, start_of

_OPEN_MOST = 64
"""Calls whose answers are waited for; of more, the oldest are forgotten."""
_ID_MOST = 200
_NAME_MOST = 60
_ABOUT_MOST = 60
_PATHS = ("file_path", "path", "notebook_path")
_OURS = re.compile(r"(?:^|[_.])allswell(?:__|\.)")
"""Tools of Allswell's, as Claude Code (`mcp__allswell__checkin`) and Codex (`allswell` and a dot) name them."""
_OUR_COMMAND = re.compile(r"(?:/bin/(?:ba)?sh -l?c )?['\"]?allswell ")
"""The command line, as it is and as Codex shows it."""


class Repetition(msgspec.Struct, frozen=True, gc=False):
    """A circle that an agent goes round in."""

    rounds: int
    first: str
    """The call, in a few words of the agent's."""
    second: str = ""
    """The call that comes in turn with it, where there is one."""

    @property
    def words(self) -> str:
        """What repeats: "called Read lexer.py 14 times, same answer"."""
        if not self.second:
            return f"called {self.first} {self.rounds} times, same answer"
        if self.first == self.second:
            return f"called {self.first} {2 * self.rounds} times, the same two answers in turn"
        return f"called {self.first} and {self.second} in turn, {self.rounds} times each, same answers"


class _Step(msgspec.Struct, frozen=True, gc=False):
    """A call with its answer, as digests."""

    call: str
    answer: str
    label: str

    def is_like(self, other: _Step | None) -> bool:
        return other is not None and (self.call, self.answer) == (other.call, other.answer)


class RepetitionFinder:
    """Finds circles in the events of one stream; it is fed each event once, in order."""

    def __init__(self, limit: int | None = REPEAT_LIMIT) -> None:
        """`limit`: from how many rounds on it is a circle; None: nothing is looked for."""
        self.found: Repetition | None = None
        """The circle that the agent goes round in now, from `limit` rounds on."""
        self._limit = limit
        self._open: dict[str, tuple[str, str]] = {}
        """The calls that have no answer yet, by id: digest and label."""
        self._last: _Step | None = None
        self._before: _Step | None = None
        self._same = 0
        """How many steps in a row are like the last one."""
        self._in_turn = 0
        """How many steps in a row are each like the step two before: A B A B counts 4, and A B alone counts 2."""

    def hear(self, event: AgentEvent) -> None:
        """Take note of an event; those that are neither calls nor answers say nothing about it."""
        if self._limit is None:
            return
        if isinstance(event, ToolCall):
            self._begin(event)
        elif isinstance(event, ToolCallResult):
            begun = self._open.pop(event.id[:_ID_MOST], None)
            if begun is not None:
                self._finish(_Step(begun[0], event.digest, begun[1]), self._limit)
        elif isinstance(event, TurnEnded):  # what comes next was asked for anew
            self._open.clear()
            self._last = self._before = self.found = None
            self._same = self._in_turn = 0

    def _begin(self, call: ToolCall) -> None:
        if _is_ours(call):
            return
        try:
            digest = replace(call, input=_effective_input(call)).digest
        except RecursionError:  # nested too deep to look at: such a call counts as unlike any other
            digest = ""
        known = (step.call for step in (self._last, self._before) if step is not None)
        if not digest or digest not in known:
            self._same = self._in_turn = 0
            self.found = None
        self._open.pop(call.id[:_ID_MOST], None)
        if digest:
            self._open[call.id[:_ID_MOST]] = (digest, _label(call))
        if len(self._open) > _OPEN_MOST:
            del self._open[next(iter(self._open))]

    def _finish(self, step: _Step, limit: int) -> None:
        last, before = self._last, self._before
        self._same = self._same + 1 if step.is_like(last) else 1
        self._in_turn = self._in_turn + 1 if step.is_like(before) else 1 if last is None else 2
        self._last, self._before = step, last
        if self._same >= limit:
            self.found = Repetition(self._same, step.label)
        elif last is not None and self._in_turn >= 2 * limit:
            self.found = Repetition(self._in_turn // 2, last.label, step.label)
        else:
            self.found = None


def _is_ours(call: ToolCall) -> bool:
    """Whether it calls Allswell: asking again for an answer is no circle."""
    if _OURS.search(call.name):
        return True
    command = call.input.get("command") if isinstance(call.input, Mapping) else call.input
    return isinstance(command, str) and _OUR_COMMAND.match(command) is not None


def _effective_input(call: ToolCall) -> object:
    """The arguments of a call, without descriptions: agents word those differently each time, and they do nothing."""
    ignored = WITHOUT_EFFECT.get(call.name, ())
    if not isinstance(call.input, Mapping) or not ignored:
        return call.input
    return {name: value for name, value in call.input.items() if name not in ignored}


def _label(call: ToolCall) -> str:
    """A call in a few words, on one line; a file by its name."""
    about: object = call.input
    if isinstance(about, Mapping):
        key = next((key for key in SPEAKS_FOR if isinstance(about.get(key), str)), None)
        about = words_of(about if key is None else about[key]) if about else ""
        if key in _PATHS and isinstance(about, str):
            about = about.rstrip("/").rpartition("/")[2] or about
    try:  # JSON that could be read may be nested too deep to be shown
        shown = " ".join(on_one_line(words_of(about)[: 4 * _ABOUT_MOST]).split())
    except RecursionError:
        shown = ""
    shown = start_of(shown, _ABOUT_MOST)
    return f"{on_one_line(call.name[:_NAME_MOST]).strip() or 'a tool'} {shown}".rstrip()

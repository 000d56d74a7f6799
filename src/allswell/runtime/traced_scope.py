"""A scope that is seen from outside: the use of a tool is a span, from its beginning to its end.

What the tool does inside goes on with its trace, and so do the processes that it starts. Where nobody wants spans, this
is one look (timing/tracing.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager

from allswell.domain.deadline import DEFAULT, ScopeKind
from allswell.domain.duration import Duration
from allswell.domain.span_names import EXECUTE_TOOL, OPERATION, TOOL_NAME
from allswell.domain.spending import label
from allswell.timing.scope import Scope
from allswell.timing.tracing import NOTHING, Traced, Value, is_wanted, traced


class TracedScope(Scope):
    """A scope which, where it is a tool's, has a span."""

    __slots__ = ("_seen", "_span")

    def __init__(
        self, timeout: float | Duration | None, *, kind: str = "scope", name: str = "", grace_ms: int = DEFAULT.grace
    ) -> None:
        super().__init__(timeout, kind=kind, name=name, grace_ms=grace_ms)
        self._span: AbstractContextManager[Traced] | None = None
        self._seen = NOTHING

    def note(self, attributes: Mapping[str, Value | None]) -> None:
        """What is known by now of what is done inside."""
        self._seen.note(attributes)

    def _opened(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        opened = super()._opened(loop)
        if opened and self.kind == ScopeKind.TOOL and is_wanted():
            about: dict[str, Value | None] = {OPERATION: EXECUTE_TOOL, TOOL_NAME: self.name}
            self._span = traced(EXECUTE_TOOL, about, title=self.name)
            self._seen = self._span.__enter__()
        return opened

    def _leave(self, error: BaseException | None) -> None:
        if self._span is None:
            super()._leave(error)
            return
        ended_by = error
        try:
            super()._leave(error)
        except BaseException as raised:
            ended_by = raised
            raise
        finally:
            if ended_by is None and self.now() >= self.deadline:
                self._seen.failed(f"{label(self.kind, self.name)} reached its limit")
            self._span.__exit__(
                None if ended_by is None else type(ended_by),
                ended_by,
                None if ended_by is None else ended_by.__traceback__,
            )

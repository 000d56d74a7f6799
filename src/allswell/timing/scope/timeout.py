"""The error of a scope whose time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.domain.spending import TimeoutReport
from allswell.errors import AllswellError

if TYPE_CHECKING:
    from allswell.timing.scope.scope import Scope


class ScopeTimeout(AllswellError, TimeoutError):
    """A scope's time is up. It is raised where that scope is left, never by the scopes that it ended inside.

    It is not a failure of what was called: `scope` says whose limit it was, `explain()` where the time went.
    """

    def __init__(self, scope: Scope, report: TimeoutReport) -> None:
        super().__init__(report.sentence())
        self.scope = scope
        self.report = report

    @property
    def abandoned(self) -> bool:
        """Whether the work did not stop within its grace, and still runs somewhere, fenced off."""
        return self.report.abandoned

    def explain(self) -> str:
        """One sentence, and a tree of how the time was spent."""
        return f"{self.report.sentence()}\n{self.report.tree()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_restored, (self.report,))


def _restored(report: TimeoutReport) -> ScopeTimeout:
    """From another process, the scope comes as what is left of it: its names and figures."""
    from allswell.timing.scope.scope import Scope

    return ScopeTimeout(Scope(report.timeout_ms, kind=report.kind, name=report.name), report)

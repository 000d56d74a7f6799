"""What guards ask of a watch and tell it: the breakers of services, which every process on one store shares."""

from __future__ import annotations

from allswell.domain.breaker import BreakerPolicy, Outcome, Permit
from allswell.domain.command import Admit, AskForHelp, Park, Report
from allswell.domain.retry import ErrorClass
from allswell.domain.serving import Told
from allswell.engine.backend import Backend
from allswell.engine.ids import Ids
from allswell.engine.looking import Looking


class Guarding(Looking):
    """A watch as guards have it."""

    def __init__(self, engine: Backend, ids: Ids) -> None:
        super().__init__(engine)
        self._ids = ids

    async def admit(self, service: str, policy: BreakerPolicy) -> Told:
        """May this service be called now? Whoever finds its breaker half-open is the probe."""
        return _told(await self._engine.do(Admit(self._ids.command(), service, policy)))

    async def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> Told:
        """What came of a call that was let through."""
        return _told(await self._engine.do(Report(self._ids.command(), permit, outcome, policy)))

    async def park(self, service: str, delay: int) -> Told:
        """Nobody calls this service for so many milliseconds."""
        return _told(await self._engine.do(Park(self._ids.command(), service, delay)))

    async def ask_for_help(self, service: str, cause: ErrorClass, reason: str, message: str = "") -> None:
        """Calls to a service are given up for something that only a human can mend: ask, once per cause."""
        await self._engine.do(AskForHelp(self._ids.command(), service, cause, reason, message))


def _told(answer: object) -> Told:
    assert isinstance(answer, Told)  # noqa: S101 - for the type checker
    return answer

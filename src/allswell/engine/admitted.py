"""A backend for one key: every command and every look passes the rules of access, whichever door it came by.

A server has nothing else to give to a caller, so a route that forgets to ask has nothing to forget. What is decided is
decided in `domain/access.py`; here it is only asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from msgspec.structs import replace

from allswell.domain.access import NO_POLICIES, admitted
from allswell.domain.address import agent_of
from allswell.domain.claim import Granted
from allswell.domain.command import CheckIn, Claim, Command, MoveOn, RecordStep, SendRequest
from allswell.domain.hold import Orders
from allswell.domain.key import Key
from allswell.domain.paying import Spend
from allswell.domain.policy import Policy
from allswell.domain.question import NOTHING_HELD_BACK, HeldBack
from allswell.engine.backend import Backend, Claimed
from allswell.engine.budgeting import NO_BUDGETS, Budgets, hold_to_budgets
from allswell.engine.ids import Ids
from allswell.engine.known_agents import KnownAgents
from allswell.engine.pace import Pace
from allswell.engine.sight import Sight
from allswell.engine.signal import Signal
from allswell.errors import AllswellError, Bug
from allswell.timing.clock import Clock

C = TypeVar("C", bound=Command)


class Admitted:
    """What is behind it, as far as a key allows it."""

    def __init__(
        self,
        behind: Backend,
        ids: Ids,
        key: Key,
        known: KnownAgents | None = None,
        policies: Mapping[str, Policy] = NO_POLICIES,
        budgets: Budgets = NO_BUDGETS,
    ) -> None:
        self._behind = behind
        self._ids = ids
        self._budgets = budgets
        self._key = key
        self._policies = policies
        self._known = known
        """Who can be asked: looked up here, since a key need not show who there is."""
        self._sight = Sight(behind.store, key)

    @property
    def store(self) -> Sight:
        """What the key may look at."""
        return self._sight

    @property
    def pace(self) -> Pace:
        """How patient it is."""
        return self._behind.pace

    @property
    def clock(self) -> Clock:
        """The clock of this process."""
        return self._behind.clock

    @property
    def ready(self) -> Signal:
        """Fired when a task may have become ready."""
        return self._behind.ready

    @property
    def journal(self) -> Signal:
        """Fired when the journal may have grown."""
        return self._behind.journal

    def draw(self) -> float:
        """A number by chance, from 0 to 1."""
        return self._behind.draw()

    async def __aenter__(self) -> object:
        raise Bug("what is behind a key is opened once, for all keys")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Nothing goes on for a caller that has its answer."""
        work.close()
        raise Bug(f"{name} cannot be started for a key")

    def hear(self) -> None:
        """Hear what other processes tell, from now on."""
        self._behind.hear()

    async def sweep(self) -> bool:
        """What is due is seen to without callers."""
        return True

    # --- commands -----------------------------------------------------------------------------------------------------

    async def do(self, command: Command) -> object:
        """Have a command decided and committed, if the key allows it."""
        ready = await self._ready(command)
        if isinstance(ready, AllswellError):
            raise ready
        answer = await self._behind.do(ready)
        await self._hold_to_budgets([ready])
        return answer

    async def do_many(self, commands: Sequence[Command]) -> list[object]:
        """Have commands decided together; an answer or an error for each."""
        ready = [await self._ready(command) for command in commands]
        allowed = [one for one in ready if not isinstance(one, AllswellError)]
        refused = [one if isinstance(one, AllswellError) else None for one in ready]
        answers = await self._behind.do_many(allowed) if allowed else []
        await self._hold_to_budgets(allowed)
        return _placed(refused, answers)

    async def _hold_to_budgets(self, done: Sequence[Command]) -> None:
        """Hold what was spent to its limits here: callers may not see what others have spent.

        What they said is done by now; where a limit cannot be asked about, the next expense asks again.
        """
        for command in done:
            if isinstance(command, Spend):
                with contextlib.suppress(AllswellError):
                    row = await self._behind.store.view_task(command.task)
                    if row is not None:
                        await hold_to_budgets(self._behind, self._ids, row.task.role, row.task.run, self._budgets)

    async def check_in(self, command: CheckIn) -> Orders:
        """Renew a lease; the orders for its holder."""
        return await self._behind.check_in(admitted(self._key, command))

    async def check_in_many(self, commands: Sequence[CheckIn]) -> list[object]:
        """Renew leases together; orders or an error for each."""
        allowed, answers = self._sorted(commands)
        return _placed(answers, await self._behind.check_in_many(allowed) if allowed else [])

    async def claim(self, claim: Claim, *, wait: float = 0.0) -> Claimed:
        """Claim tasks, waiting up to `wait` seconds for the first to be there."""
        return await self._behind.claim(admitted(self._key, claim), wait=wait)

    async def claim_each(self, claims: Sequence[Claim]) -> tuple[list[list[Granted] | AllswellError], float]:
        """Claims that name their tasks, decided together: what was granted, or an error, for each; when it was sent."""
        allowed, refused = self._sorted(claims)
        if not allowed:
            return [error for error in refused if error is not None], asyncio.get_running_loop().time()
        granted, sent = await self._behind.claim_each(allowed)
        served = iter(granted)
        return [next(served) if error is None else error for error in refused], sent

    async def held_back(self) -> HeldBack:
        """What open questions hold back is asked here, for each command, and not by callers."""
        return NOTHING_HELD_BACK

    async def _ready(self, command: Command) -> Command | AllswellError:
        """The command as it is carried out, or what is wrong with it."""
        try:
            signed = admitted(self._key, await self._kept_back(command), self._policies)
            if isinstance(signed, SendRequest) and self._known is not None:
                await self._known.note(signed.agent)
                if (to := agent_of(signed.request.role)) is not None:
                    await self._known.check(to)
        except AllswellError as error:
            return error
        return signed

    async def _kept_back(self, command: Command) -> Command:
        """A command that may claim something, kept from what open questions hold back here."""
        if not isinstance(command, MoveOn):
            return command
        back = await self._behind.held_back()
        return replace(command, outside=back.runs, claims=command.claims and not back.everything)

    async def record(self, step: RecordStep) -> None:
        """Have a step of a flow recorded."""
        await self._behind.record(admitted(self._key, step))

    def record_here(self, step: RecordStep) -> bool:  # noqa: ARG002 - as a backend has it
        """From elsewhere there is no short way."""
        return False

    def _sorted(self, commands: Sequence[C]) -> tuple[list[C], list[AllswellError | None]]:
        """The commands that the key allows, and for each of all of them what is wrong, or None."""
        allowed: list[C] = []
        errors: list[AllswellError | None] = []
        for command in commands:
            try:
                allowed.append(admitted(self._key, command, self._policies))
                errors.append(None)
            except AllswellError as error:
                errors.append(error)
        return allowed, errors


def _placed(refused: Sequence[AllswellError | None], answers: Sequence[object]) -> list[object]:
    served = iter(answers)
    return [next(served) if error is None else error for error in refused]

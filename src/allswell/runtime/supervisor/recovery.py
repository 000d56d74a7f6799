"""What an earlier supervisor left: trees ended, work kept, leases given back.

An agent of its own that had said it was done, and was being verified when the supervisor died, is not begun anew: its
work lies here, in the folder that the note of its attempt names, and the verification is run again by the process that
settles it. That takes as long as it takes, so it goes on beside everything else; until there is a verdict the note
stays.

What counts as done by a human's word, wherever that was said, is put on its branch here too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from allswell.domain.agents.status import Presence, named
from allswell.domain.duration import show
from allswell.domain.ids import TaskId
from allswell.domain.lease.audit import AfterAudit
from allswell.domain.lease.verification import shown, verify_of
from allswell.domain.receipts.receipt import End
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.runtime.attempt.orphans import OrphanedAttempt, repeat_reports, settle_left
from allswell.runtime.attempt.verification import claim_to_verify, verify_left
from allswell.runtime.deadlines import limits
from allswell.runtime.process import allowed_environment
from allswell.runtime.process.leftovers import end_orphans
from allswell.runtime.supervisor.dispatch import Slot, SupervisorPlan, give_back
from allswell.runtime.supervisor.worktrees import bring_home_accepted
from allswell.runtime.workspace.worktree import in_worktree

_AGAIN = 10.0
"""Seconds between two looks at the worktrees of tasks that are done."""
_MOST = 1_000


class SupervisorRecovery:
    """Settles what was left under the names of these slots, and in the home of a plan."""

    def __init__(self, watch: Watch, plan: SupervisorPlan, slots: Sequence[Slot]) -> None:
        self._watch = watch
        self._plan = plan
        self._slots = {slot.holder: slot for slot in slots}
        self._claims: list[OrphanedAttempt] = []
        """Attempts that had said they were done."""

    async def settle(self, before: Presence | None) -> int:
        """End and keep what was left, then give back the leases of the last owner of our name, if that is gone.

        How many there were. One that has only fallen silent may be cut off, its agents at work: its leases lapse.
        """
        plan = self._plan
        if orphans := await asyncio.to_thread(end_orphans, limits().grace):
            plan.tell(f"{named(orphans)} of a function whose supervisor died: ended")
        settled = await settle_left(self._watch, plan.home, plan.tell, places=self._places)
        for one in settled:
            plan.tell(f"kept what was left of “{one.flight.name}”: `allswell show {one.receipt.id}`")
            for doubt in one.doubts:
                plan.tell(f"not touched: {doubt}")
            if await self._can_be_verified(one):
                self._claims.append(one)
                continue
            await self._file(one)
            one.clear()
        if before is None or not (before.gone or before.died):
            if before is not None:
                since = show(max(await self._watch.now() - before.beaten_at, 0))
                where = f"the last supervisor named {before.name!r} (process {before.pid} on {before.host})"
                plan.tell(f"{where} has been silent for {since}; what it holds is free when its leases lapse")
            return len(settled)
        # No other process can hold under the names of our slots, so what is held under them was the dead supervisor's.
        kept = {one.flight.task for one in self._claims}
        return await give_back(self._watch, list(self._slots), but=kept) + len(settled)

    @property
    def _places(self) -> list[str]:
        """The folders in which agents of the plan work."""
        return [spec.cwd for spec in self._plan.fleet.agents.values()]

    @property
    def is_busy(self) -> bool:
        """Whether something that was left is still being verified."""
        return bool(self._claims)

    async def work(self, attended: Callable[[], Collection[TaskId]]) -> None:
        """Verify what was said to be done; then, for ever, bring home what counts by a human's word.

        Reports that other processes of this home have left for the store are sent, too (`attempt/outcome.py`).
        `attended` are the tasks that are being worked on here: their worktrees are not touched.
        """
        await self._verify_all()
        while True:
            with contextlib.suppress(AllswellError, OSError):
                await repeat_reports(self._watch, self._plan.home, self._plan.tell, places=self._places)
            with contextlib.suppress(AllswellError, OSError):
                await self._bring_home(attended())
            await asyncio.sleep(_AGAIN)

    async def _bring_home(self, attended: Collection[TaskId]) -> None:
        """What lies in worktrees here of tasks that are done: answered on the page, or from elsewhere."""
        home = self._plan.home
        names = await in_worktree(lambda: sorted(path.parent.name for path in home.worktrees.glob("t_*/.git")))
        ids = tuple(TaskId(name) for name in names if name not in attended)[:_MOST]
        for row in await self._watch.tasks(TaskFilter(ids=ids, states=("done",), limit=_MOST)) if ids else ():
            receipt = await bring_home_accepted(home, row.task)
            if receipt is not None and receipt.branch is not None:
                self._plan.tell(f"the work of “{row.task.name}” is on the branch {receipt.branch.name}")

    async def _verify_all(self) -> None:
        while self._claims:
            one = self._claims[0]
            try:
                await self._verify(one)
            except AllswellError as error:  # it goes the way of everything that was left
                self._plan.tell(f"“{one.flight.name}” could not be verified: {error}")
                await self._file(one)
            one.clear()
            self._claims.pop(0)

    async def _can_be_verified(self, one: OrphanedAttempt) -> bool:
        """Whether it said that it was done, nothing of it is left, and it was an agent of ours in a folder of ours."""
        if one.doubts or one.flight.agent not in self._slots:
            return False
        try:
            if not await in_worktree(Path(one.flight.cwd).is_dir):
                return False
        except Unavailable:
            return False
        try:
            _, held = await claim_to_verify(self._watch, one.flight.task)
        except Refused:
            return False
        return held.token == one.flight.token

    async def _verify(self, one: OrphanedAttempt) -> None:
        flight, spec = one.flight, self._slots[one.flight.agent].spec
        row, held = await claim_to_verify(self._watch, flight.task)
        argv = shown(verify_of(row.task))
        self._plan.tell(f"“{flight.name}” was reported as done; verifying: {argv}")
        env = allowed_environment(spec.env, more=spec.pass_env)
        came, followed = await verify_left(self._watch, row, held, agent=flight.argv, folder=flight.cwd, env=env)
        with contextlib.suppress(AllswellError):
            await held.keep(one.receipt.id, one.receipt.status.value, str(one.path or ""))
        status = End.DONE if came.passed else End.UNVERIFIED
        receipt = replace(
            one.receipt, status=status, reason=f"{one.receipt.reason}, and it said done", verification=came
        )
        self._plan.home.receipts.write(receipt)
        if not came.passed:
            sent = "; sent back" if followed.follows is AfterAudit.MEND else "; you are asked"
            self._plan.tell(f"“{flight.name}” is not done: `{argv}` failed ({came.why}){sent}")
            return
        self._plan.tell(f"“{flight.name}” is done; `{argv}` passed")
        done = await self._watch.task(flight.task)
        if done is not None:
            await bring_home_accepted(self._plan.home, done.task, came)

    async def _file(self, one: OrphanedAttempt) -> None:
        """Let the journal know of a receipt, and give its lease back, if that is still there."""
        held = self._watch.held(one.flight.task, one.flight.token, one.flight.agent)
        with contextlib.suppress(AllswellError):
            await held.keep(one.receipt.id, one.receipt.status.value, str(one.path or ""))
        with contextlib.suppress(AllswellError):
            await held.release("supervisor_died")

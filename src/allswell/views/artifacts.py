"""What lies beside a store: receipts, branches, worktrees, folders of flows, logs, diffs, queues.

A view that tells of such things is given one of these: the folder on this machine (`Artifacts`), the same on a server
(`ServedArtifacts`), or the server that has the store (`ServerArtifacts`). Which one it is, is chosen once, where a door
opens. Little is imported here, since the command line starts with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote as quoted

from allswell.domain.ids import TaskId, is_file_name
from allswell.domain.question import Question
from allswell.domain.receipts.receipt import receipt_id
from allswell.errors import Refused

if TYPE_CHECKING:
    import asyncio

    from allswell.domain.task.model import Task
    from allswell.store.views import Views
    from allswell.views.flow import FlowShape
    from allswell.views.log import KeptLog
    from allswell.views.receipt import DiffShape, ReceiptPageShape, ReceiptShape, TaskArtifacts, WorkShape
    from allswell.views.worker import QueueShape

T = TypeVar("T")
_AT_ONCE = 2
"""Looks of a server that may run git at the same time."""
_LOOK_MOST = 120.0
"""Seconds for one of them: it may lead into the folder of an agent, which need not answer."""
_PAGE_MOST = 1_000


class Artifacts:
    """What lies in a folder of ours on this machine."""

    def __init__(self, home: Path, url: str = "", *, alerts: bool = False, full: bool = True) -> None:
        self.home = home
        self._url = url
        self._alerts = alerts
        """Whether alerts about questions are sent."""
        self._full = full
        """Whether the reader may read all of it; other readers see the ids of the receipts only."""

    async def _look(self, look: Callable[..., T], *arguments: object) -> T:
        return look(*arguments)

    async def of_task(self, task: str, tokens: Sequence[int]) -> TaskArtifacts:
        """What the attempts with these tokens have left, and where the work of the task is."""
        from allswell.views.receipt import TaskArtifacts

        ids = [receipt_id(TaskId(task), token) for token in tokens]
        files = {id_: self.home / "receipts" / f"{id_}.json" for id_ in ids if is_file_name(id_)}
        kept = await self._look(lambda: [id_ for id_, file in files.items() if file.is_file()])
        worktree = (self.home / "worktrees" / task).absolute()
        there = self._full and is_file_name(task) and await self._look((worktree / ".git").exists)
        return TaskArtifacts(kept, await self._look(self._work, task), str(worktree) if there else None)

    async def work(self, task: str) -> WorkShape | None:
        """Where the work of a task is, if it is on a branch."""
        return await self._look(self._work, task)

    async def has_log(self, task: Task) -> bool:
        """Whether something is kept of what attempts at a task have printed."""
        from allswell.views.log import PrintedLog

        return bool(await self._look(PrintedLog(self.home, task).attempts))

    def log(self, *, raw: bool = False) -> KeptLog:
        """What attempts have printed, page by page; with `raw`, byte for byte."""
        from allswell.views.log import KeptLog

        return KeptLog(self.home, raw=raw)

    async def flow(self, run: str) -> FlowShape | None:
        """The folder of a run, where it is a flow's."""
        from allswell.flows.run.folder import find_base
        from allswell.views.flow import FlowShape

        try:
            return await self._look(lambda: FlowShape.of(find_base(self.home, run))) if self._full else None
        except Refused:
            return None

    async def flow_runs(self, most: int) -> Mapping[str, str]:
        """Which of the last runs are a flow's: the run that its folder is named after, by the run's id."""
        del most
        from allswell.flows.run.folder import all_records

        return {run: record.run for record in await self._look(all_records, self.home) for run in record.runs}

    async def untold(self, views: Views, questions: Sequence[Question]) -> list[str]:
        """Of these questions, the open ones of which no alert has gone out."""
        if not self._alerts:
            return [str(question.id) for question in questions if question.closed_at is None]
        from allswell.engine.status.journal import untold_questions

        return await untold_questions(views, questions)

    async def receipts(self, task: str | None = None, after: str = "", limit: int = _PAGE_MOST) -> ReceiptPageShape:
        """A page of receipts, the newest first."""
        from allswell.runtime.receipts import Receipts
        from allswell.views.receipt import ReceiptPageShape, ReceiptShape

        kept = (await self._look(Receipts(self.home / "receipts").all))[::-1]
        named = [read for read in kept if task in (None, read.receipt.task, read.receipt.name)]
        ids = [read.receipt.id for read in named]
        if after and after not in ids:
            raise Refused("bad_cursor", f"{after[:60]!r} is no receipt; give the `next` of a page", where="after")
        named = named[ids.index(after) + 1 :] if after else named
        page = [ReceiptShape.of(read.receipt, read.path) for read in named[:limit]]
        return ReceiptPageShape(page, page[-1].receipt_id if len(named) > len(page) else None)

    async def receipt(self, name: str) -> ReceiptShape | None:
        """The receipt with this id, or in this file of this machine; `Refused` if no receipt has this id."""
        receipt = await self._look(self._receipt, name)
        if receipt is None and name.startswith("rc_"):
            text = f"there is no receipt {name!r}; `allswell receipts` lists them"
            raise Refused("unknown_receipt", text, where="receipt")
        return receipt

    async def last_lines(self, receipt: ReceiptShape, most: int) -> list[str]:
        """The last words of its attempt: what its agent did or said last, or the last lines that it printed."""
        from allswell.runtime.attempt.output import last_printed

        stdout, stderr = (None if stream is None else Path(stream.path) for stream in (receipt.stdout, receipt.stderr))
        return await self._look(lambda: last_printed(stdout, stderr, most, receipt.open_call or ""))

    async def diff(self, task: str, attempt: int | None, *, stat: bool) -> tuple[DiffShape, bytes]:
        """What an attempt has changed, and the difference byte for byte."""
        from allswell.runtime.receipts import StateDir
        from allswell.runtime.workspace.diff import changes_of
        from allswell.views.receipt import DiffShape

        home = StateDir(self.home)
        changes = await self._look(lambda: changes_of(home, TaskId(task), attempt, stat=stat))
        return DiffShape.of(task, changes), changes.difference.text

    async def queues(self) -> list[QueueShape]:
        """The queues of messages in the store's database."""
        if not self._full or not self._url.startswith("postgresql:"):
            return []
        from allswell.views.worker import QueueShape, queues_at

        return [QueueShape.of(queue) for queue in await self._look(queues_at, self._url)]

    # --- files --------------------------------------------------------------------------------------------------------

    def _work(self, task: str) -> WorkShape | None:
        if not self._full or not is_file_name(task):
            return None
        names = {path.stem for path in (self.home / "receipts").glob(f"{receipt_id(TaskId(task), '*')}.json")}
        ids = sorted(names, key=lambda id_: int(number) if (number := id_.rpartition(".")[2]).isdecimal() else 0)
        for id_ in reversed(ids):
            receipt = self._receipt(id_)
            if receipt is not None and receipt.branch is not None:
                from allswell.runtime.workspace.worktree import is_merged
                from allswell.views.receipt import WorkShape

                branch = receipt.branch
                known = branch.commit != branch.base
                return WorkShape.of(receipt, branch, is_merged(branch.repository, branch.commit) if known else None)
        return None

    def _receipt(self, name: str) -> ReceiptShape | None:
        from allswell.runtime.receipts import Receipts
        from allswell.views.receipt import ReceiptShape

        stored = Receipts(self.home / "receipts").find(name)
        return None if stored is None else ReceiptShape.of(stored.receipt, stored.path)


class ServedArtifacts(Artifacts):
    """The same on a server: looked at in threads, two at a time."""

    async def _look(self, look: Callable[..., T], *arguments: object) -> T:
        from allswell.runtime.calls import in_time

        async with _turns():
            return await in_time(partial(look, *arguments), _LOOK_MOST, "what lies beside the store")


@cache
def _turns() -> asyncio.Semaphore:
    import asyncio

    return asyncio.Semaphore(_AT_ONCE)


def quote(part: str) -> str:
    """A part of a path, or what stands behind a question mark, as it is sent."""
    return quoted(part, safe="")


class ServerArtifacts(Artifacts):
    """What lies beside a store that is reached over HTTP: its server is asked.

    Attempts that ran on this machine have left their files here, so those come first.
    """

    def __init__(self, home: Path, ask: Callable[[str, type[Any]], Awaitable[Any]]) -> None:
        super().__init__(home)
        self._ask = ask

    async def of_task(self, task: str, tokens: Sequence[int]) -> TaskArtifacts:
        """What the attempts with these tokens have left, and where the work of the task is."""
        from allswell.views.receipt import TaskArtifacts

        here = await super().of_task(task, tokens)
        there = await self._ask(f"/tasks/{quote(task)}", TaskArtifacts)
        ids = dict.fromkeys((*there.receipt_ids, *here.receipt_ids))
        return TaskArtifacts(list(ids), here.work or there.work, here.worktree or there.worktree)

    async def work(self, task: str) -> WorkShape | None:
        """Where the work of a task is, if it is on a branch."""
        return (await self.of_task(task, ())).work

    async def has_log(self, task: Task) -> bool:
        """Whether something is kept of what attempts at a task have printed."""
        from allswell.views.log import LogsShape

        try:
            await self._ask(f"/tasks/{quote(task.id)}/log?limit=1", LogsShape)
        except Refused:
            return False
        return True

    def log(self, *, raw: bool = False) -> KeptLog:
        """What attempts have printed, page by page; `Refused` with `raw`."""
        from allswell.views.log import ServedLog

        if raw:
            text = "--raw is what was printed, byte for byte: it is shown where the store is"
            raise Refused("not_remote", text, where="--raw")
        return ServedLog(self._ask)

    async def flow(self, run: str) -> FlowShape | None:
        """The folder of a run, where it is a flow's."""
        from allswell.views.detail import ShownRunShape

        here = await super().flow(run)
        return here or (await self._ask(f"/runs/{quote(run)}", ShownRunShape)).flow

    async def flow_runs(self, most: int) -> Mapping[str, str]:
        """Which of the last runs are a flow's: the run that its folder is named after, by the run's id."""
        from allswell.views.run import RunsShape

        listed = (await self._ask(f"/runs?limit={min(most, _PAGE_MOST)}", RunsShape)).runs
        there = {run.run_id: run.flow_run_id for run in listed if run.flow_run_id is not None}
        return {**there, **await super().flow_runs(most)}

    async def untold(self, views: Views, questions: Sequence[Question]) -> list[str]:
        """Of these questions, the open ones of which no alert has gone out."""
        del views
        from allswell.views.question import QuestionsShape

        listed = await self._ask(f"/questions?limit={_PAGE_MOST}", QuestionsShape)
        return [str(question.id) for question in questions if question.id in listed.untold]

    async def receipts(self, task: str | None = None, after: str = "", limit: int = _PAGE_MOST) -> ReceiptPageShape:
        """A page of receipts, the newest first."""
        from allswell.views.receipt import ReceiptPageShape

        which = [f"limit={min(limit, _PAGE_MOST)}", f"after={quote(after)}"]
        which += [] if task is None else [f"task={quote(task)}"]
        there = await self._ask(f"/receipts?{'&'.join(which)}", ReceiptPageShape)
        here = await super().receipts(task, limit=limit)
        every = {receipt.receipt_id: receipt for receipt in (*there.receipts, *here.receipts)}.values()
        newest = sorted(every, key=lambda receipt: (receipt.ended_at, receipt.receipt_id), reverse=True)
        return ReceiptPageShape(newest[:limit], there.next)

    async def receipt(self, name: str) -> ReceiptShape | None:
        """The receipt with this id, or in this file of this machine; `Refused` if no receipt has this id."""
        try:
            return await super().receipt(name)
        except Refused:
            from allswell.views.detail import ShownReceiptShape

            shown: ShownReceiptShape = await self._ask(f"/receipts/{quote(name)}", ShownReceiptShape)
            return shown.receipt

    async def last_lines(self, receipt: ReceiptShape, most: int) -> list[str]:
        """The last lines that its attempt printed on the stream for errors, or else on the other."""
        from allswell.views.log import LogsShape

        if Path(receipt.path).is_relative_to(self.home):
            return await super().last_lines(receipt, most)
        try:
            which = f"/tasks/{quote(receipt.task_id)}/log?attempt={receipt.attempt}"
            printed = (await self._ask(which, LogsShape)).lines
        except Refused:
            return []
        lines = {stream: [line.text for line in printed if line.stream == stream] for stream in ("stderr", "stdout")}
        return (lines["stderr"] or lines["stdout"])[-most:]

    async def diff(self, task: str, attempt: int | None, *, stat: bool) -> tuple[DiffShape, bytes]:
        """What an attempt has changed, and the difference as the server tells it."""
        from allswell.views.receipt import DiffShape

        try:
            return await super().diff(task, attempt, stat=stat)
        except Refused:
            which = f"stat={'true' if stat else 'false'}" + ("" if attempt is None else f"&attempt={attempt}")
            difference = await self._ask(f"/tasks/{quote(task)}/diff?{which}", DiffShape)
            return difference, difference.diff.encode()

    async def queues(self) -> list[QueueShape]:
        """The queues of messages in the store's database."""
        from allswell.views.worker import QueuesShape

        listed: QueuesShape = await self._ask("/queues", QueuesShape)
        return listed.queues

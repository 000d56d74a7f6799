"""What an operator can do: each verb once, over a watch.

Command line, HTTP, page and live view read what was typed, call a verb of `Operator`, and show what it answers: a
struct of `views` for programs, and words for people, which are the same at every door. Names in these words are shown
as they are, so each door escapes them as it escapes all text from outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from allswell.domain.agents.fleet import as_agent
from allswell.domain.agents.status import still_run
from allswell.domain.duration import Duration, parse, with_unit
from allswell.domain.ids import QuestionId, RunId, TaskId
from allswell.domain.lease.verification import shown, verify_of
from allswell.domain.notify.delivery import Delivery, DeliveryFilter, again, follower_name
from allswell.domain.question import AnswerAction, OptionInput, Question, choose, takes
from allswell.domain.receipts.receipt import Verification, receipt_id
from allswell.domain.task.model import State
from allswell.domain.task.resubmit import way_back
from allswell.engine.access.keys import Keyring, LinkService, make_link
from allswell.engine.lease import Held
from allswell.engine.lookup import did_you_mean, find, find_question, find_run, find_task
from allswell.engine.status.agents import free
from allswell.engine.status.explanation import many
from allswell.engine.status.services import in_short, named
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused
from allswell.store.files import user_name
from allswell.timing.moment import moment
from allswell.views.attempt import VerifiedShape
from allswell.views.delivery import RevisedShape, SinkForgottenShape, removed_sinks
from allswell.views.fields import named as ids_of
from allswell.views.question import DecidedShape
from allswell.views.settings import KeyShape, LinksRevokedShape, LoginLinkShape, NewKeyShape
from allswell.views.status import UnparkedShape
from allswell.views.task import CancelledShape, DismissedShape, DismissedSupervisorShape, RetriedShape

if TYPE_CHECKING:
    from allswell.views.receipt import SurvivorsShape

S_co = TypeVar("S_co", bound=Struct, covariant=True)
_DELIVERIES = 1_000_000
_LISTED = 20
_PARTS = re.compile(r"[;\n]")


@dataclass(frozen=True)
class Performed(Generic[S_co]):
    """What came of a verb."""

    shape: S_co
    """For programs."""
    says: str
    """For people, in sentences."""


def human(by: str | None = None) -> str:
    """Who decides at this machine: the name that is given, and the user that it runs as, which cannot be made up."""
    user = user_name(os.geteuid())
    return user if by in (None, "", user) else f"{by} ({user})"


class Operator:
    """A human, or a program of theirs, that decides about the work of a watch."""

    def __init__(self, watch: Watch, by: str = "", command: str | None = None, home: Path | None = None) -> None:
        self._watch = watch
        self._by = by
        """Who decides, beside the key where one is shown."""
        self._command = command
        """The caller's id for what it asks: asked again under it, a verb counts once."""
        self._home = home
        """The folder with worktrees and receipts, where it is this operator's own. A server has none: it runs no git
        for a caller, and its supervisor puts accepted work on its branch."""

    # --- questions ----------------------------------------------------------------------------------------------------

    async def answer(
        self,
        question: str,
        option: str,
        text: str = "",
        *,
        subtasks: Iterable[Mapping[str, Any]] = (),
        timeout: Duration | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
    ) -> Performed[DecidedShape]:
        """Decide a question; the option acts."""
        id_ = await find_question(self._watch.views, question)
        await self._watch.answer(
            id_,
            option,
            text,
            subtasks=subtasks,
            timeout=timeout,
            max_cost_usd=max_cost_usd,
            max_tokens=max_tokens,
            by=self._by,
            command=self._command,
        )
        closed = await self._watch.question(id_)
        choice = option if closed is None else closed.choice or option
        follows = [] if closed is None else await self._follows(closed)
        return Performed(DecidedShape(id_, choice), " ".join([f"Answered: {choice}.", *follows]))

    async def answer_as_typed(self, question: str, key: str, words: str) -> Performed[DecidedShape]:
        """Decide a question, with what was typed beside the option: it is read as what that option takes."""
        asked = await self._watch.question(await find_question(self._watch.views, question))
        wanted = None if asked is None or asked.closed_at is not None else takes(choose(asked, key).act)
        typed = words.strip()
        match wanted:
            case OptionInput.TASKS:
                parts = [{"name": name} for part in _PARTS.split(typed) if (name := part.strip())]
                return await self.answer(question, key, subtasks=parts)
            case OptionInput.TIME:
                return await self.answer(question, key, timeout=_length(typed))
            case OptionInput.MONEY:
                return await self.answer(question, key, max_cost_usd=_dollars(typed))
            case OptionInput.TOKENS:
                return await self.answer(question, key, max_tokens=_tokens(typed))
            case _:
                return await self.answer(question, key, typed)

    async def _follows(self, closed: Question) -> list[str]:
        """What an answer has come to so far."""
        views = self._watch.views
        if closed.service is not None:
            service = (await views.view_services()).get(closed.service)
            now = (await views.view_agenda()).now
            return [] if service is None else [_sentence(f"{named(closed.service)} {in_short(service, now)}")]
        if closed.message is not None:
            return ["A worker carries it out; until then `allswell worker status` shows it as answered."]
        row = None if closed.task is None else await views.view_task(closed.task)
        if row is None:
            return []
        task = row.task
        says = [f"{task.name} is {row.state}."]
        back = way_back(task) if task.state == State.SKIPPED else None
        if back is not None:
            says.append(f"To take it back: {back}.")
        accepted = any(one.key == closed.choice and one.act is AnswerAction.ACCEPT for one in closed.options)
        if accepted and self._home is not None:
            says += await bring_home(self._watch, self._home, task.id)
        return says

    # --- tasks and runs -----------------------------------------------------------------------------------------------

    async def cancel(self, what: str, reason: str = "") -> Performed[CancelledShape]:
        """Call off a task, whichever agent holds it, or a run with all its tasks."""
        views, why = self._watch.views, reason.strip() or "cancelled"
        id_ = await find(views, what)
        if id_.startswith("q_"):
            raise Refused("not_a_task", f"{id_} is a question; answer it, or cancel its task", where="ID")
        if id_.startswith("r_"):
            await self._watch.end_run(id_, why, command=self._command)
            run = await views.view_run(RunId(id_))
            name = id_ if run is None else run.name
            shape = CancelledShape(None, id_, cancelled=True)
            return Performed(shape, f"The run {name} is cancelled, with all of its open tasks.")
        row = await views.view_task(TaskId(id_))
        await self._watch.cancel(id_, why, command=self._command)
        says = f"{id_ if row is None else row.task.name} is cancelled."
        if row is not None and row.lease is not None:
            says += " The agent that held it is refused from now on."
        return Performed(CancelledShape(id_, None, cancelled=True), says)

    async def retry(
        self, task: str, *, dependents: bool = False, again: bool = False, run: str | None = None
    ) -> Performed[RetriedShape]:
        """Submit an ended task again, as a new one that carries its history; one that is done only with `again`."""
        views = self._watch.views
        id_ = await find_task(views, task)
        into = None if run is None else await find_run(views, run)
        made = await self._watch.retry(
            id_, dependents=dependents, again=again, run=into, by=self._by, command=self._command
        )
        row = await views.view_task(id_)
        first, *others = made.values()
        says = f"{id_ if row is None else row.task.name} is submitted again, as {first}."
        if others:
            listed = ", ".join(others[:_LISTED]) + (" …" if len(others) > _LISTED else "")
            says += f" So are tasks that were skipped because of it: {listed}."
        return Performed(RetriedShape.of({str(old): str(new) for old, new in made.items()}), says)

    async def verify(self, what: str, folder: str | None, begins: Callable[[str], None]) -> Performed[VerifiedShape]:
        """Run the command that verifies a task that is reported as done, and record its verdict.

        It runs in this folder; without one where the attempt worked, if its receipt is here, else in the present one.
        `begins` is called with the command, and where it runs, before that.
        """
        from allswell.runtime.attempt.verification import claim_to_verify, environment_by_hand, limit_of, verify

        task = await find_task(self._watch.views, what)
        row, held = await claim_to_verify(self._watch, task)
        place, agent = self._worked_in(held) if folder is None else (folder, ())
        argv = verify_of(row.task)
        begins(f"{shown(argv)}, in {place}")
        limit = await limit_of(self._watch, row)
        came = await verify(as_agent(agent, argv), folder=place, env=environment_by_hand(), limit=limit)
        followed = await held.verified(
            passed=came.passed, why=came.why, said=came.output, elapsed=came.elapsed_ms, by=self._by
        )
        shape = VerifiedShape.of(task, place, came, followed)
        stands = {
            "accept": f"{row.task.name} is done",
            "mend": f"{row.task.name} goes back to its agent ({followed.failed} of {followed.most})",
            "ask": f"{row.task.name} still waits for you: `allswell questions`",
        }
        says = [f"{shape.verification.says}; {stands[shape.follows]}"]
        if self._home is not None and row.lease is None and came.passed:  # else its supervisor may be at work there
            says += await bring_home(self._watch, self._home, task, came)
        return Performed(shape, ". ".join(says))

    def _worked_in(self, held: Held) -> tuple[str, tuple[str, ...]]:
        """Where an attempt worked, and the command of its agent, as far as its receipt here says that."""
        from allswell.runtime.receipts import StateDir

        kept = None if self._home is None else StateDir(self._home).receipts.find(receipt_id(held.task, held.token))
        if kept is None or not kept.receipt.cwd or not Path(kept.receipt.cwd).is_dir():
            return str(Path.cwd()), ()
        return kept.receipt.cwd, kept.receipt.argv

    async def dismiss(self, what: str) -> Performed[DismissedShape]:
        """Note that a question, or the end of a task, was seen. Of a task that waits for an answer: its question."""
        views = self._watch.views
        id_ = await self._seen(what)
        await self._watch.dismiss(id_, self._by, command=self._command)
        ids = ids_of(id_)
        if id_.startswith("q_"):
            question = await views.view_question(QuestionId(id_))
            by = "" if question is None else question.dismissed_by
            says = f"{id_} is dismissed: it stays open, and is no longer listed as needing you."
            if question is not None and (question.waited or question.service is not None):
                says += " What waits for it still waits."
        else:
            row = await views.view_task(TaskId(id_))
            seen = None if row is None else row.task.record.dismissed
            by = "" if seen is None else seen.by
            name = id_ if row is None else row.task.name
            says = f"{name} is dismissed: it is no longer listed as needing you."
        return Performed(DismissedShape(ids["task_id"], ids["question_id"], by or self._by), says)

    async def _seen(self, what: str) -> str:
        views = self._watch.views
        services = {question.service for question in await views.view_questions()} - {None}
        id_ = await find_question(views, what) if what in services else await find(views, what)
        if id_.startswith("r_"):
            raise Refused("not_a_task", f"{id_} is a run; dismiss a task of it, or `allswell cancel {id_}`", where="ID")
        row = None if id_.startswith("q_") else await views.view_task(TaskId(id_))
        asks = row is not None and any(wait.kind == "question" for wait in row.waits)
        return await find_question(views, id_) if asks else id_

    # --- services, supervisors, processes -----------------------------------------------------------------------------

    async def unpark(self, service: str) -> Performed[UnparkedShape]:
        """Have a service called again that was paused."""
        await self._watch.unpark(service, self._by, command=self._command)
        return Performed(UnparkedShape(service, self._by), f"{service} is used again.")

    async def dismiss_supervisor(self, name: str) -> Performed[DismissedSupervisorShape]:
        """Wait no more for a supervisor that is silent: its machine is gone."""
        from allswell.runtime.supervisor.presence import dismiss

        seen = await dismiss(self._watch, name, self._by)
        says = f"The supervisor {seen.name} on {seen.host} is not waited for any more."
        return Performed(DismissedSupervisorShape(seen.name, seen.host, self._by), says)

    async def free_process(self, pid: int) -> Performed[SurvivorsShape]:
        """Free the folder and the slot that a process keeps; in the files beside this store, too, if it is there."""
        from allswell.runtime.attempt.orphans import forget, still_running
        from allswell.runtime.receipts import StateDir
        from allswell.views.receipt import SurvivorsShape

        freed = await free(self._watch, pid, self._by)
        if self._home is not None:
            forget(StateDir(self._home), freed)
        now = still_running(freed)
        left = f"{still_run(now.processes)}; " if now.processes else ""
        place = f" and {freed.folder}" if freed.folder else ""
        return Performed(SurvivorsShape.of(freed), _sentence(f"{left}{freed.holder}{place} are free again"))

    # --- deliveries ---------------------------------------------------------------------------------------------------

    async def revise(
        self, did: Literal["retried", "dropped"], ids: Sequence[str] | None, sink: str | None, where: str
    ) -> Performed[RevisedShape]:
        """Try deliveries again at once, or drop them: those with these ids, else all that were given up or fail."""
        kept = await self._watch.views.view_deliveries(DeliveryFilter(sink, limit=_DELIVERIES))
        if ids is None:
            found = [one for one in kept if one.given_up or one.tries]
        else:
            found = [_delivery(kept, id_, where) for id_ in dict.fromkeys(ids)]
        changed, gone = ([again(one) for one in found], []) if did == "retried" else ([], found)
        await self._watch.outbox.revise(changed, gone)
        says = f"{did.capitalize()}: {many(len(found), 'delivery', 'deliveries')}."
        shape = RevisedShape(did, [one.id for one in found])
        return Performed(shape, says if found else f"Nothing is to be {did}.")

    async def forget_sink(self, name: str, set_up: Collection[str]) -> Performed[SinkForgottenShape]:
        """Forget a sink that is not `set_up` any more, with what waits for it; or a follower of the user's own."""
        if name in set_up:
            text = f"the sink {name} is set up here: remove [sinks.{name}] from the settings first"
            raise Refused("sink_set_up", text, where="NAME")
        views, outbox = self._watch.views, self._watch.outbox
        gone, waiting = await removed_sinks(views, set_up), list[Delivery]()
        if name in await views.view_cursors():
            await outbox.forget(name, "")
        elif name in gone:
            waiting = await outbox.view_deliveries(DeliveryFilter(name, limit=_DELIVERIES))
            await outbox.forget(follower_name(name), name)
        else:
            hint = did_you_mean(name, gone) or (f"; there are: {', '.join(gone)}" if gone else "")
            raise Refused("unknown_sink", f"nothing is stored for a sink {name!r}{hint}", where="NAME")
        dropped = len(waiting)
        says = f"Forgotten: {name}, with {many(dropped, 'delivery', 'deliveries')} that waited for it."
        return Performed(SinkForgottenShape(name, dropped), says)

    # --- keys ---------------------------------------------------------------------------------------------------------

    async def create_key(
        self,
        name: str,
        rights: Sequence[str],
        *,
        roles: Sequence[str] = (),
        agents: Sequence[str] = (),
        expires: Duration | None = None,
    ) -> Performed[NewKeyShape]:
        """Make a key; its secret is in this answer, and nowhere else."""
        lasts = None if expires is None else parse(expires, where="expires")
        keys = Keyring(self._watch)
        key, secret = await keys.create(name, rights, roles=roles, agents=agents, lasts=lasts, by=self._by)
        return Performed(NewKeyShape(KeyShape.of(key, key.created_at), secret), secret)

    async def revoke_key(self, name: str) -> Performed[KeyShape]:
        """End a key: it is refused from now on."""
        key = await Keyring(self._watch).revoke(name, by=self._by)
        return Performed(KeyShape.of(key, await self._watch.now()), f"The key {key.name} is revoked.")

    async def make_login_link(self, name: str, address: str) -> Performed[LoginLinkShape]:
        """Make a link that opens the page with a key, once."""
        url = f"{address.rstrip('/')}/enter?link={await make_link(self._watch, name, by=self._by)}"
        return Performed(LoginLinkShape(name, url), url)

    async def revoke_links(self) -> Performed[LinksRevokedShape]:
        """End all answer links that were sent so far; alerts that are sent from now on have new ones."""
        made = await LinkService(self._watch).revoke_all(self._by)
        says = "All answer links in alerts that were sent so far have stopped working."
        return Performed(LinksRevokedShape(moment(made.made_at), made.by), says)


async def bring_home(watch: Watch, home: Path, task: TaskId, came: Verification | None = None) -> list[str]:
    """Put the work of a task that a human has accepted on its branch, if its worktree is here; and say where it is."""
    from allswell.runtime.receipts import StateDir
    from allswell.runtime.supervisor.worktrees import bring_home_accepted

    row = await watch.task(task)
    try:
        receipt = None if row is None else await bring_home_accepted(StateDir(home), row.task, came)
    except (AllswellError, OSError) as error:
        return [f"Its work stays in its worktree: {error}"]
    if receipt is None or receipt.branch is None:
        return []
    branch = receipt.branch
    place = f"on the branch {branch.name}" if branch.name else f"in {branch.worktree}"
    return [f"Its work is {place} → {receipt.advice.merge[0]}" if receipt.advice.merge else f"Its work is {place}."]


def _delivery(kept: Sequence[Delivery], id_: str, where: str) -> Delivery:
    """The delivery that an id, or its beginning, names; `Refused` where it names none or several."""
    matching = [one for one in kept if one.id == id_] or [one for one in kept if id_ and one.id.startswith(id_)]
    if len(matching) != 1:
        why = f"{len(matching)} messages begin with this" if matching else "no message has this id, or it was delivered"
        raise Refused("unknown_delivery", f"{id_!r}: {why}; `allswell deliveries` lists them", where=where)
    return matching[0]


def _length(typed: str) -> str | None:
    """A length of time as a human types it: a bare number is seconds, as on the command line."""
    try:
        return with_unit(typed) or None
    except ValueError:
        text = f"{typed[:40]!r} could be seconds or milliseconds: write the unit, such as 15m or 2h"
        raise Refused("bad_duration", text, where="timeout") from None


def _dollars(typed: str) -> float | None:
    try:
        return float(typed.removeprefix("$")) if typed else None
    except ValueError:
        text = f"{typed[:40]!r} is not an amount in dollars, such as 2.50"
        raise Refused("bad_cost", text, where="max_cost_usd") from None


def _tokens(typed: str) -> int | None:
    try:
        return int(typed.replace(",", "")) if typed else None
    except ValueError:
        text = f"{typed[:40]!r} is not a number of tokens, such as 200000"
        raise Refused("bad_tokens", text, where="max_tokens") from None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

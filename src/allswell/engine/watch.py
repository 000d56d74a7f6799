"""The Python face of the watch: what programs and all other front doors call.

It translates (names to ids, durations to milliseconds, objects to JSON) and decides nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.command import Answer, Cancel, Claim, EndRun, NewTask, OpenRun, Submit
from allswell.domain.duration import parse
from allswell.domain.hold import Orders
from allswell.domain.meant import nearest
from allswell.domain.names import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, RunId, TaskId
from allswell.domain.plain_data import to_json
from allswell.domain.policy import DEFAULT, Policy
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt
from allswell.engine.claims import Granted
from allswell.engine.engine import Engine
from allswell.engine.follow import events, follow
from allswell.engine.handle import Lease
from allswell.engine.ids import Ids, run_for_key, task_for_key
from allswell.engine.renewing import Renewing, say_many
from allswell.errors import AllswellError, Refused
from allswell.store.port import Entry, Position, TaskFilter, TaskRow


class Form(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """What a caller may say of a new task; what is `Any` here is looked at by name."""

    name: str
    payload: Any = None
    role: str = ""
    priority: int = 0
    services: Any = ()
    needs: Any = ()
    barred: Any = ()
    run: RunId | None = None
    not_before: Millis | None = None
    critical: bool = False
    if_need_fails: Literal["skip", "run"] = "skip"
    policy: Any = None
    timeout: Any = None
    idle: Any = None
    retries: Any = None
    key: Any = None


def _listed(value: object, where: str) -> tuple[Any, ...]:
    """A list of names without repetitions, in order; a string is not a list of its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Refused("bad_field", f"{where} must be a list", where=where)
    names = []
    for name in value:
        if not isinstance(name, str):
            raise Refused("bad_field", f"{where} must be a list of names, and {name!r} is none", where=where)
        names.append(name)
    return tuple(dict.fromkeys(names))


def _what_is_wrong(given: Mapping[str, Any], place: int, error: msgspec.ValidationError) -> Refused:
    """The error for a task that could not be read, in words of the caller's."""
    name = given.get("name")
    if not isinstance(name, str):
        return Refused("bad_name", f"task number {place + 1} has no name", where="name")
    for field in given:
        if field not in Form.__struct_fields__:
            near = nearest(str(field), Form.__struct_fields__)
            hint = f"; did you mean {near!r}?" if near else ""
            return Refused("unknown_field", f"a task has no field {field!r}{hint}", where=str(field))
    return Refused("bad_field", f"task {name!r}: {error}", where=name)


class Watch:
    """An open watch: submit work, hold it, answer questions, look."""

    def __init__(self, engine: Engine, ids: Ids, *, policies: Mapping[str, Policy] | None = None) -> None:
        self.engine = engine
        self._ids = ids
        self.new_command: Callable[[], CommandId] = ids.command
        """Gives an id for a command of one's own."""
        self.new_run: Callable[[], RunId] = ids.run
        """Gives an id for a run that is to be opened by a command of one's own."""
        self.new_task: Callable[[], TaskId] = ids.task
        """Gives an id for a task of one's own."""
        self._policies = policies or {}
        self._default = self._policies.get("", DEFAULT)
        self._renewing = Renewing(engine)

    async def __aenter__(self) -> Self:
        await self.engine.__aenter__()
        self.engine.start(self._renewing.work(), name="renewals")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.engine.__aexit__(kind, error, trace)

    # --- work -------------------------------------------------------------------------------------------------------

    def _new_task(self, form: Form) -> NewTask:
        name, key = form.name, form.key
        return NewTask(
            self._ids.task() if key is None else task_for_key(str(key)),
            name,
            form.run,
            form.role,
            # Sorted: one lane, however they were listed.
            tuple(sorted(_listed(form.services, f"services of {name!r}"))) if form.services != () else (),
            form.priority,
            _listed(form.needs, f"needs of {name!r}") if form.needs != () else (),
            _listed(form.barred, f"barred of {name!r}") if form.barred != () else (),
            "null" if form.payload is None else to_json(form.payload, f"payload of {name!r}"),
            form.not_before,
            form.critical,
            form.if_need_fails,
            self._policy(form),
            key is not None,
        )

    def _policy(self, form: Form) -> Policy:
        """The task's own policy, or its role's, or the default; with what the task sets by itself."""
        if form.policy is None:
            policy = self._policies.get(form.role, self._default)
        else:
            policy = msgspec.convert(msgspec.to_builtins(form.policy), Policy)
        if form.timeout is form.idle is form.retries is None:
            return policy
        changed: dict[str, Any] = {}
        if form.timeout is not None:
            changed["timeout"] = parse(form.timeout, where="timeout")
        if form.idle is not None:
            changed["idle"] = parse(form.idle, where="idle")
        if form.retries is not None:
            retries = msgspec.convert(form.retries, int)
            changed["retry"] = msgspec.structs.replace(policy.retry, retries=retries)
        return msgspec.structs.replace(policy, **changed)

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._policies.get(role, self._default)

    async def submit(  # noqa: PLR0913 - all keywords, each a field of the task
        self,
        name: str,
        *,
        payload: object = None,
        role: str = "",
        services: Iterable[str] = (),
        priority: int = 0,
        needs: Iterable[str] = (),
        barred: Iterable[str] = (),
        run: str | None = None,
        not_before: int | None = None,
        critical: bool = False,
        if_need_fails: Literal["skip", "run"] = "skip",
        policy: Policy | None = None,
        timeout: int | str | None = None,
        idle: int | str | None = None,
        retries: int | None = None,
        key: str | None = None,
    ) -> TaskId:
        """Hand a task to the watch; when this returns, it is durable. Under the same `key` it is made once."""
        fields = {
            "payload": payload,
            "role": role,
            "services": services,
            "priority": priority,
            "needs": needs,
            "barred": barred,
            "run": run,
            "not_before": not_before,
            "critical": critical,
            "if_need_fails": if_need_fails,
            "policy": policy,
            "timeout": timeout,
            "idle": idle,
            "retries": retries,
            "key": key,
        }
        return (await self.submit_many([{"name": name, **fields}]))[0]

    def new_tasks(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings; a need is an id, or the name of another one of them."""
        made = []
        names: dict[str, TaskId] = {}
        needy = False
        for place, given in enumerate(tasks):
            try:
                form = msgspec.convert(given if isinstance(given, dict) else dict(given), Form)
                new = self._new_task(form)
            except msgspec.ValidationError as error:
                raise _what_is_wrong(given, place, error) from None
            made.append(new)
            names.setdefault(form.name, new.id)
            needy = needy or bool(new.needs)
        if not needy:
            return tuple(made)
        return tuple(
            msgspec.structs.replace(new, needs=tuple(names.get(need, need) for need in new.needs)) if new.needs else new
            for new in made
        )

    async def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[TaskId]:
        """Hand over many tasks at once, all or none."""
        made = self.new_tasks(tasks)
        if made:
            await self.engine.do(Submit(self._ids.command(), made))
        return [new.id for new in made]

    async def claim(
        self,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: float | str = 0.0,
        lease: int | str | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> Lease | None:
        """Take one task, or None if there is none within `wait` (seconds, or a duration such as "30s").

        With `task` it is that one or none.
        """
        got = await self.claim_many(1, agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task)
        return got[0] if got else None

    async def claim_many(
        self,
        count: int,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: float | str = 0.0,
        lease: int | str | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> list[Lease]:
        """Take up to `count` tasks. With `lease`, they are renewed for as long as this watch is open, or else lapse."""
        seconds = parse(wait, where="wait") / 1000 if isinstance(wait, str) else wait
        length = None if lease is None else parse(lease, where="lease")
        if isinstance(roles, str):
            raise Refused("bad_field", "roles must be a list", where="roles")
        wanted = {
            "id": command or NO_COMMAND,
            "agent": agent,
            "roles": None if roles is None else tuple(roles),
            "count": count,
            "length": length,
            "task": task,
        }
        try:
            claim = msgspec.convert(wanted, Claim)
        except msgspec.ValidationError as error:
            raise Refused("bad_field", f"this cannot be claimed: {error}", where="claim") from None
        granted = await self.engine.claim(claim, wait=seconds)
        return [self.hold(one, granted.sent) for one in granted.granted]

    async def claim_each(
        self, tasks: Sequence[TaskId], *, agent: str, lease: int | None = None
    ) -> list[Lease | AllswellError | None]:
        """Take these tasks, each if it can be had; a lease, None, or what is wrong, for each."""
        claims = [Claim(NO_COMMAND, AgentId(agent), length=lease, task=task) for task in tasks]
        answers, sent = await self.engine.claim_each(claims)
        got: list[Lease | AllswellError | None] = []
        for answer in answers:
            if isinstance(answer, AllswellError):
                got.append(answer)
            else:
                got.append(self.hold(answer[0], sent) if answer else None)
        return got

    def hold(self, granted: Granted, sent: float) -> Lease:
        """A handle on what was granted when this was sent; renewed for as long as this watch is open, if it need be."""
        held = Lease(self.engine, self._ids, granted, sent, self._policies)
        if held.length is not None:
            self._renewing.hold(held)
        return held

    async def checkin_many(self, leases: Sequence[Lease]) -> list[Orders | AllswellError]:
        """Prove progress on many leases at once; orders, or what went wrong, for each."""
        return await say_many(self.engine, leases, proof=True)

    async def renew_many(self, leases: Sequence[Lease]) -> list[Orders | AllswellError]:
        """Renew many leases at once, without proof of progress; orders, or what went wrong, for each."""
        return await say_many(self.engine, leases, proof=False)

    async def complete_many(self, done: Sequence[tuple[Lease, object]]) -> list[AllswellError | None]:
        """Complete many tasks at once, each with its result; what went wrong, or None, for each."""
        # One word about many tasks: each knows it again by its own lease. Of the same task twice it would be two words.
        one = self._ids.command() if len({lease.task for lease, _ in done}) == len(done) else None
        commands = [lease.completion(result, one or self._ids.command()) for lease, result in done]
        answers = await self.engine.do_many(commands)
        return [lease.ended(answer) for (lease, _), answer in zip(done, answers, strict=True)]

    async def cancel(self, task: str, reason: str = "cancelled") -> None:
        """Call a task off, whoever holds it."""
        await self.engine.do(Cancel(self._ids.command(), TaskId(task), reason))

    async def open_run(self, name: str, *, timeout: int | str | None = None, key: str | None = None) -> RunId:
        """Open a run; nothing in it outlives its timeout. Under the same `key` it is opened once."""
        limit = None if timeout is None else parse(timeout, where="timeout")
        run = self._ids.run() if key is None else run_for_key(key)
        command = self._ids.command() if key is None else CommandId(f"open.{run}")
        return RunId(str(await self.engine.do(OpenRun(command, run, name, limit))))

    async def end_run(self, run: str, reason: str = "ended") -> None:
        """End a run and everything in it that is still open."""
        await self.engine.do(EndRun(self._ids.command(), RunId(run), reason))

    async def answer(
        self,
        question: str,
        option: str,
        text: str = "",
        *,
        subtasks: Iterable[Mapping[str, Any]] = (),
        timeout: int | str | None = None,
        by: str = "",
    ) -> None:
        """Decide a question; the option acts."""
        row = await self.engine.store.view_question(QuestionId(question))
        run = row.run if row is not None else None
        made = self.new_tasks([{"run": run, **fields} for fields in subtasks])
        limit: Millis | None = None if timeout is None else parse(timeout, where="timeout")
        id_ = self._ids.command()
        await self.engine.do(Answer(id_, QuestionId(question), option, text, made, limit, by))

    # --- looking ----------------------------------------------------------------------------------------------------

    async def task(self, task: str) -> TaskRow | None:
        """One task as it stands."""
        return await self.engine.store.view_task(TaskId(task))

    async def result(self, task: str) -> Any:  # noqa: ANN401 - whatever the holder gave
        """What a finished task's holder gave as its result."""
        _, result = await self.engine.store.view_payload(TaskId(task))
        return None if result is None else msgspec.json.decode(result)

    async def tasks(self, which: TaskFilter | None = None) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return await self.engine.store.view_tasks(which or TaskFilter())

    async def attempts(self, task: str) -> list[Attempt]:
        """How each attempt at a task ended."""
        return await self.engine.store.view_attempts(TaskId(task))

    async def counts(self) -> dict[str, int]:
        """How many tasks stand where."""
        return await self.engine.store.view_counts()

    async def questions(self, *, open_only: bool = True) -> list[Question]:
        """What waits for a human, the oldest first."""
        return await self.engine.store.view_questions(open_only=open_only)

    async def runs(self) -> list[Run]:
        """Runs, the newest first."""
        return await self.engine.store.view_runs()

    async def agents(self) -> list[Agent]:
        """Agents that have missed check-ins."""
        return await self.engine.store.view_agents()

    async def services(self) -> list[ServiceRow]:
        """Services that something is, or was, held against."""
        return list((await self.engine.store.view_services()).values())

    async def unaccounted(self) -> list[TaskId]:
        """Open tasks that nothing will ever move again. There are none: that is the promise, and this checks it."""
        return await self.engine.store.view_unaccounted()

    def events(self, *, after: Position | None = None, follow: bool = False) -> AsyncIterator[Entry]:
        """The journal, from the start or after a position; with `follow`, it goes on as things happen."""
        return events(self.engine, after or Position(), follow=follow)

    def follow(self, name: str, handler: Callable[[Sequence[Entry]], Awaitable[None]]) -> None:
        """Hand the journal to `handler` from where it last was, for as long as this watch is open."""
        self.engine.start(follow(self.engine, name, handler), name=f"follower {name}")

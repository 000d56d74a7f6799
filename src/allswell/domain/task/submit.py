"""Accepting tasks: what is wrong with a submission is found here, before anything is written.

A submission is all or nothing. Needs must name tasks that exist or are submitted together, so a cycle can only lie
within one submission. A need that has already ended counts at once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import LONGEST
from allswell.domain.ids import NO_COMMAND, Millis, RunId, TaskId
from allswell.domain.rules.command import NewTask, Submit
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, LaneKey, ReadSet, RowSnapshot, Rule
from allswell.domain.run.run import Run
from allswell.domain.task.aggregate import NewRequest, TaskAggregate, TaskChange, end_task, event, requeue
from allswell.domain.task.model import (
    OPEN,
    PRIORITY_MAX,
    UNBLOCKS_MAX,
    CarriedHistory,
    NeedEnded,
    Spec,
    State,
    Task,
    TaskHistory,
    WaitState,
    rank,
)
from allswell.domain.values import check_json
from allswell.errors import Refused

# What needs what: cycles are found before anything is offered, and named with every member (C4).


def find_cycle(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """One dependency cycle as its members in order, or None; the same graph always gives the same cycle.

    Needs that are not keys of the mapping are leaves: they exist already and so cannot depend on what is new.
    """
    done: set[str] = set()
    for start in sorted(needs):
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start: 0}
        pending = [iter(sorted(needs[start]))]
        while pending:
            following = next(pending[-1], None)
            if following is None:
                pending.pop()
                left = path.pop()
                del on_path[left]
                done.add(left)
            elif following in on_path:
                return path[on_path[following] :]
            elif following in needs and following not in done:
                on_path[following] = len(path)
                path.append(following)
                pending.append(iter(sorted(needs[following])))
    return None


def describe_cycle(members: Sequence[str]) -> str:
    """The cycle in words: `A <-> B` for two, `A -> B -> C -> A` for more, `A -> A` for a self-loop."""
    if len(members) == 2:
        return f"{members[0]} <-> {members[1]}"
    return " -> ".join([*members, members[0]])


NAME_MAX = 200
PAYLOAD_MAX = 1 << 20
NEEDS_MAX = 1_000
NOTES_MAX = 1_000
ID_MAX = 64
LISTED_MAX = 1_000
WEBHOOKS = "(webhooks)"
"""The role of requests to an address; the process that delivers webhooks takes them."""
BUDGETS = "budget:"
"""What the names of budgets begin with (lease/cost.py)."""
_TASK_ID = re.compile(r"t_[A-Za-z0-9_-]+", re.ASCII)
_REQUEST_ID = re.compile(r"m_[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_NOTHING_YET = TaskHistory()
LATEST = 1 << 42
"""The last moment that a task can wait for, in 2109: later ones are mistakes, such as microseconds."""


def check_name(name: str, where: str) -> None:
    """Refuse names that could not be shown, stored or typed."""
    if 0 < len(name) <= NAME_MAX and name.isprintable() and not name.isspace():
        return
    if not name or name.isspace():
        raise Refused("bad_name", f"{where} must not be empty", where=where)
    if len(name) > NAME_MAX:
        raise Refused("bad_name", f"{where} has {len(name)} characters; at most {NAME_MAX} are allowed", where=where)
    place = next(place for place, character in enumerate(name) if not character.isprintable())
    kind = "control" if unicodedata.category(name[place]).startswith("C") else "unprintable"
    text = f"{where} has the {kind} character U+{ord(name[place]):04X} at position {place}"
    raise Refused("bad_name", text, where=where)


def check_text(text: str, where: str, most: int = PAYLOAD_MAX) -> None:
    """Refuse text that is too long or that no store can hold."""
    if len(text) * 4 <= most and text.isascii() and "\0" not in text:
        return  # nearly all there is
    if len(text) > most or (len(text) * 4 > most and len(text.encode("utf-8", "surrogatepass")) > most):
        raise Refused("too_large", f"{where} is larger than {most} bytes", where=where)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise Refused("bad_text", f"{where} is not valid Unicode: it contains a lone surrogate", where=where)
    if "\0" in text:
        raise Refused("bad_text", f"{where} contains a NUL character", where=where)


def check_id(id_: TaskId, prefix: str = "t_") -> None:
    """Refuse ids that could not be typed or stored, or that could lead elsewhere as part of a path.

    A request's id contains that of the task that asks, with a dot between them; a task's has no dot.
    """
    spelled = _TASK_ID if prefix == "t_" else _REQUEST_ID
    if len(id_) > ID_MAX or not spelled.fullmatch(id_):
        what = "task" if prefix == "t_" else "request"
        letters = "letters, digits, '_' and '-'" + ("" if prefix == "t_" else ", and dots between them")
        text = f"a {what}'s id starts with {prefix!r} and has at most {ID_MAX} characters: {letters}"
        raise Refused("bad_id", text, where="id")


def check_service(service: str, where: str) -> None:
    """Refuse what is no name of a service; a budget looks like one to the store, and only the watch moves it."""
    check_name(service, where)
    if service.startswith(BUDGETS):
        raise Refused("bad_service", f"{where}: {service!r} is a budget, not a service", where="service")


def check_task(new: NewTask, prefix: str = "t_", *, flow: bool = False) -> None:
    """Refuse what is wrong with one new task by itself; the id of a request has a prefix of its own."""
    check_id(new.id, prefix)
    check_name(new.name, "name")
    where = new.name
    if new.flow is not flow:
        told = "is not a flow" if flow else "cannot be said to be a flow: running its program makes it one"
        raise Refused("bad_flow", f"{where} {told}", where="flow")
    if new.role:
        check_name(new.role, f"role of {where}")
        if new.role == WEBHOOKS and prefix == "t_":
            raise Refused("bad_role", f"{WEBHOOKS} is for requests to an address, and {where} is not one", where="role")
    if len(new.services) > LISTED_MAX or len(new.barred) > LISTED_MAX:
        raise Refused("too_many", f"{where} names more than {LISTED_MAX} services or barred agents", where="services")
    for service in new.services:
        check_service(service, f"service of {where}")
    for agent in new.barred:
        check_name(agent, f"barred agent of {where}")
    if not 0 <= new.priority <= PRIORITY_MAX:
        raise Refused(
            "bad_priority", f"priority of {where} is {new.priority}; it must be 0 to {PRIORITY_MAX}", where="priority"
        )
    if new.not_before is not None and not 0 <= new.not_before <= LATEST:
        text = f"not_before of {where} is {new.not_before}; it must be milliseconds since 1970, before 2109"
        raise Refused("bad_time", text, where="not_before")
    check_text(new.payload, f"payload of {where}")
    check_json(new.payload, f"payload of {where}")
    if len(new.needs) > NEEDS_MAX:
        raise Refused("too_many_needs", f"{where} needs {len(new.needs)} tasks; at most {NEEDS_MAX}", where="needs")
    new.policy.validated()
    if new.carried is not None:
        _check_carried(new.carried, where)


def _check_carried(before: CarriedHistory, where: str) -> None:
    """Refuse what no ended task could have left."""
    count = max(len(before.notes), len(before.answers))
    if count > NOTES_MAX:
        raise Refused("too_many", f"{where} carries {count} notes or answers; at most {NOTES_MAX}", where="carried")
    for note in before.notes:
        check_text(note, f"a note of {where}")
    for answer in before.answers:
        check_name(answer.by, f"who answered {where}")
        for text in (answer.summary, answer.to, answer.text):
            check_text(text, f"an answer to {where}")
    for length in (before.timeout_override, before.idle_override):
        if length is not None and not 1 <= length <= LONGEST:
            raise Refused("bad_duration", f"a limit that {where} carries is {length} ms", where="carried")
    last = before.handover
    if last is not None:
        check_name(last.agent, f"the last agent of {where}")
        for text in (last.reason, last.message, last.note, last.answer):
            check_text(text, f"what {where} was left with")


def check_needs(tasks: Sequence[NewTask]) -> None:
    """Refuse ids given twice and dependency cycles, with every member named."""
    if len(tasks) == 1 and not tasks[0].needs:
        return
    names: dict[str, str] = {}
    for new in tasks:
        if new.id in names:
            raise Refused("duplicate_id", f"{new.name} and {names[new.id]} have the same id {new.id}", where="id")
        names[new.id] = new.name
    if not any(new.needs for new in tasks):
        return
    cycle = find_cycle({new.id: new.needs for new in tasks})
    if cycle:
        members = describe_cycle([names[member] for member in cycle])
        raise Refused("cycle", f"dependency cycle detected: {members}", where="needs")


def awaited_among(tasks: Sequence[NewTask]) -> dict[TaskId, int]:
    """The ids of tasks that are new together, each with how many of them wait for it, at one remove or several.

    Each way from one to the other counts, so a task at the end of two ways counts twice: it is an order, not a census.
    """
    counted: dict[TaskId, int] = dict.fromkeys((new.id for new in tasks), 0)
    needs = {new.id: new.needs for new in tasks if new.needs}
    if not needs:
        return counted
    for id_ in _last_first(needs):
        for need in needs[id_]:
            if need in counted:
                counted[need] = min(counted[need] + 1 + counted[id_], UNBLOCKS_MAX)
    return counted


def _last_first(needs: Mapping[TaskId, tuple[TaskId, ...]]) -> list[TaskId]:
    """Tasks that need something, those that no task waits for first; there is no cycle among them."""
    waiting = dict.fromkeys(needs, 0)
    for needed in needs.values():
        for need in needed:
            if need in waiting:
                waiting[need] += 1
    order = [id_ for id_, count in waiting.items() if count == 0]
    for id_ in order:
        for need in needs[id_]:
            if need in waiting:
                waiting[need] -= 1
                if waiting[need] == 0:
                    order.append(need)
    return order


def check_run(run: Run | None, wanted: RunId) -> None:
    """Refuse tasks for a run that is unknown or over."""
    if run is None:
        raise Refused("unknown_run", f"there is no run {wanted}", where="run")
    if run.ended_at is not None:
        raise Refused("run_ended", f"run {run.id} has ended ({run.end_text}); open another", where="run")


def digest(new: NewTask) -> str:
    """A short print of a submission, to tell a repetition from another task under the same key."""
    if not new.keyed:
        return ""
    from hashlib import blake2b  # most tasks have no key, and who only looks has none at all

    # Not what follows from settings or from the moment: the same words said again are the same task.
    said = (new.name, new.run, new.role, new.services, new.priority, new.payload, new.critical, new.if_need_fails)
    return blake2b(msgspec.json.encode(said), digest_size=8).hexdigest()


_REASON_TOLD = 2_000
"""Characters of why a need was not met."""


def ended_need(task: Task) -> NeedEnded:
    """What a dependent task gets to know of a task that has ended without being done.

    A human's command ends it with their words: it was skipped, or cancelled. A task that is skipped for another task,
    or cancelled with its run, ends by no command.
    """
    by_hand = task.state in (State.SKIPPED, State.CANCELLED) and task.record.ended_by != NO_COMMAND
    return NeedEnded(task.id, task.state, cut_reason(task.record.reason), human=by_hand, name=task.name)


def cut_reason(reason: str) -> str:
    """Why a need was not met, within what its dependents keep of it."""
    return reason if len(reason) <= _REASON_TOLD else f"{reason[:_REASON_TOLD]}…"


def accept(
    new: NewTask,
    lane: int,
    limit_at: Millis | None,
    needed: Mapping[TaskId, Task],
    fresh: Mapping[TaskId, int],
    now: Millis,
    asked: NewRequest | None = None,
) -> TaskChange:
    """A new task's case.

    `needed` are the existing tasks it needs; `fresh` are those that are new together with it, each with how many of
    them wait for it; `asked` says whose request it is, if it is one, and `limit_at` is then its limit, if it has one.
    """
    waits: list[WaitState] = []
    broken: Task | None = None
    ended: list[NeedEnded] = []
    unblocks = fresh[new.id]
    for need in sorted(set(new.needs)) if new.needs else ():
        if need in fresh:
            waits.append(WaitState(new.id, "need", need))
            continue
        other = needed.get(need)
        if other is None:
            raise Refused("unknown_need", f"{new.name} needs {need}, which does not exist", where="needs")
        if other.state == OPEN:
            waits.append(WaitState(new.id, "need", need))
        elif other.state == State.SPLIT:
            text = f"{new.name} needs {other.name}, which was split; let it need the subtasks instead"
            raise Refused("need_split", text, where="needs")
        elif other.state != State.DONE:
            broken = broken or other
            ended.append(ended_need(other))
    spec = Spec(
        new.services,
        new.needs,
        new.critical,
        new.if_need_fails,
        new.policy,
        new.not_before,
        limit_at,
        digest(new),
        new.flow,
        None if asked is None else asked.origin,
        unblocks,
        None if asked is None else asked.spec,
    )
    record = _NOTHING_YET if asked is None else TaskHistory(request=asked.stand)
    if ended and new.if_need_fails == "run":
        record = replace(record, needs_ended=tuple(ended[-16:]))
    if (before := new.carried) is not None:
        record = replace(
            record,
            notes=before.notes,
            handover=before.handover,
            timeout_override=before.timeout_override,
            idle_override=before.idle_override,
            answers=before.answers,
        )
    place = rank(new.priority, now, unblocks)
    task = Task(new.id, new.name, new.run, new.role, lane, new.priority, OPEN, now, None, spec, record, place)
    case = TaskAggregate(task, None, None, None, tuple(waits), None, unblocks > 0)
    out = TaskChange(requeue(case, now), task.id, made=new)
    out.events.append(Event("task_submitted", task.id, task.run, None, None, {"name": task.name}))
    if broken is not None and new.if_need_fails == "skip":
        reason = f"{broken.name} was {broken.state}" if broken.state != State.FAILED else f"{broken.name} failed"
        end_task(out, State.SKIPPED, reason, now)
        out.events.append(event(task, "task_skipped", reason=reason))
    return out


def accept_among(situation: RowSnapshot, new: NewTask, fresh: Mapping[TaskId, int]) -> TaskChange:
    """A new task's case, by what the situation knows of its needs and its lane."""
    cases = situation.cases
    needed = {need: cases[need].task for need in new.needs if need in cases} if new.needs else {}
    return accept(new, situation.lanes[(new.role, new.services)], None, needed, fresh, situation.now)


def accept_request(situation: RowSnapshot, asked: NewRequest) -> TaskChange:
    """The case of a task that is made for another agent; it needs nothing, and nothing of its making waits for it."""
    new = asked.new
    lane = situation.lanes[(new.role, new.services)]
    return accept(new, lane, asked.limit, {}, {new.id: 0}, situation.now, asked)


# --- the command ------------------------------------------------------------------------------------------------------


def submit(situation: RowSnapshot, command: Submit) -> Decision:
    """Accept tasks, all or none; those that were accepted before are known by their ids."""
    tasks, cases = command.tasks, situation.cases
    check_needs(tasks)
    fresh = awaited_among([new for new in tasks if new.id not in cases])
    accepted = []
    for new in tasks:
        known = cases.get(new.id)
        if known is not None:
            if known.task.spec.digest != digest(new):
                raise Refused("id_taken", f"task {new.id} exists already and is a different one", where="id")
            continue
        if new.run is not None:
            check_run(situation.runs.get(new.run), new.run)
        accepted.append(accept_among(situation, new, fresh))
    return Decision([new.id for new in tasks], outcomes=accepted)


def lanes_of(tasks: Iterable[NewTask]) -> Collection[LaneKey]:
    """The lanes of new tasks: a million tasks have few."""
    return {(new.role, new.services): None for new in tasks}


def _names(command: Submit) -> ReadSet:
    made: list[TaskId] = []
    concerned: list[TaskId] = []
    runs: list[RunId] = []
    for new in command.tasks:
        (concerned if new.keyed else made).append(new.id)
        if new.needs:
            concerned += new.needs
        if new.run is not None:
            runs.append(new.run)
    return ReadSet(made=made, tasks=concerned, runs_shared=runs, lanes=lanes_of(command.tasks))


RULES = (Rule(Submit, submit, _names),)

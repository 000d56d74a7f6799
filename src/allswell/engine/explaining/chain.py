"""From a task down to what really holds it up.

A task that waits is held up by the worst of what it waits for: a question before a pause, a pause before work that is
being done. The chain follows that one to its end and names the others in short. It is safe against circles, which a
store should not hold, and says so if it meets one.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from allswell.domain.listing import TaskRow
from allswell.domain.names import QuestionId, TaskId
from allswell.domain.task import OPEN, State
from allswell.engine.explaining.facts import LOOK_MOST, Facts, targets
from allswell.engine.explaining.past import spent
from allswell.engine.explaining.shapes import Explanation, Link, Next, Standing, Todo
from allswell.engine.explaining.standing import (
    NO_SWEEPER,
    NOWHERE,
    OVERDUE,
    STUCK,
    SWEEP,
    is_late,
    stand,
    stand_question,
    state_of,
)
from allswell.engine.explaining.words import ago, clean, listed, many, quoted, typed

BESIDE_MOST = 4
"""How many of the other things a task waits for are named."""
CHAIN_MOST = 8
"""How many links are told in full; of a longer chain, the first and the last ones."""


def explain(root: TaskRow, facts: Facts) -> Explanation:
    """Why a task stands where it stands."""
    now = facts.now
    worst = _worst(root, facts)
    path = _path(root, worst)
    links: list[Link] = []
    for place, id_ in enumerate(path):
        standing = _standing(id_, facts)
        says = standing.says
        if place + 1 < len(path) and id_ in facts.rows:
            says = _waits(facts.rows[TaskId(id_)], facts)
        links.append(_link(id_, standing, says, facts))
    leaf = _standing(path[-1], facts)
    if path[-1] in path[:-1]:
        leaf = _circle(path, facts)
        links[-1] = _link(path[-1], leaf, leaf.says, facts)
    links[0] = _asked_in_passing(links[0], facts)
    task = root.task
    if task.spec.retry_of is not None:
        links[0] = replace(links[0], says=(*links[0].says, f"It is {task.spec.retry_of}, handed over again."))
    todo = list(leaf.todo)
    if len(path) > 1 and task.state == OPEN:
        todo.append(Todo(f"Call {quoted(task.name, 40)} off", typed("cancel", task.id)))
    return Explanation(
        task.id,
        "task",
        clean(task.name),
        links[0].state,
        now,
        tuple(_shortened(links)),
        _beside(root, path, worst, facts),
        (*leaf.next, *_afterwards(path, facts)) if task.state == OPEN else (),
        tuple(dict.fromkeys(todo)),
        tuple(spent(root, facts)),
    )


# --- which way the chain goes ---------------------------------------------------------------------------------------


def _worst(root: TaskRow, facts: Facts) -> dict[str, tuple[int, str]]:
    """For everything below the task: how bad the worst end below it is, and which way it lies."""
    worst: dict[str, tuple[int, str]] = {}
    on_the_way: set[str] = set()
    stack: list[tuple[str, bool]] = [(root.task.id, False)]
    while stack:
        id_, seen_below = stack.pop()
        below = _below(id_, facts)
        if seen_below:
            on_the_way.discard(id_)
            found = [(STUCK if target in on_the_way else worst.get(target, (0, ""))[0], target) for target in below]
            worst[id_] = max(found, key=lambda one: one[0])
        elif id_ in worst or id_ in on_the_way:
            continue
        elif not below:
            worst[id_] = (_standing(id_, facts).trouble, "")
        else:
            on_the_way.add(id_)
            stack.append((id_, True))
            stack.extend((target, False) for target in below)
    return worst


def _below(id_: str, facts: Facts) -> list[str]:
    row = facts.rows.get(TaskId(id_))
    if row is None:
        return []
    known = [target for _, target in targets(row)]
    if row.task.state != OPEN:
        return [target for target in known if target in facts.rows and _ended_badly(facts.rows[TaskId(target)])]
    return [t for t in known if t in facts.rows or t in facts.missing or t in facts.questions]


def _ended_badly(row: TaskRow) -> bool:
    return row.task.state in (State.FAILED, State.CANCELLED, State.SKIPPED)


def _path(root: TaskRow, worst: dict[str, tuple[int, str]]) -> list[str]:
    """From the task to what holds it up; if that leads back to itself, the repeated one ends it."""
    path: list[str] = []
    id_ = str(root.task.id)
    while id_:
        path.append(id_)
        if id_ in path[:-1]:
            break
        id_ = worst.get(id_, (0, ""))[1]
    return path


# --- what is said ---------------------------------------------------------------------------------------------------


def _standing(id_: str, facts: Facts) -> Standing:
    row = facts.rows.get(TaskId(id_))
    if row is not None:
        standing = stand(row, facts)
        if row.task.state != OPEN and id_ in facts.awaited:
            return _untold(row, standing, facts)
        if standing.state == "waiting" and not _below(id_, facts):
            return Standing("waiting", (f"{quoted(row.task.name)} waits as well; it was not looked at further.",), 10)
        return standing
    question = facts.questions.get(QuestionId(id_))
    if question is not None:
        return stand_question(question, facts.now)
    says = (f"{clean(id_)} does not exist any more, so nothing will end this wait. Please report it.",)
    return Standing("missing", says, STUCK, None, (), (Todo("Check the whole watch", "allswell doctor"),))


def _untold(row: TaskRow, standing: Standing, facts: Facts) -> Standing:
    """Something has ended, and those who wait for it are still to be told: a sweeper does that at once."""
    if not is_late(row.task.ended_at, facts.now):
        says = (*standing.says, "Those who wait for it are about to be told.")
        return Standing(standing.state, says, 5, row.task.ended_at)
    says = (*standing.says, f"Those who wait for it have not been told. {NO_SWEEPER}.")
    return Standing(standing.state, says, OVERDUE, row.task.ended_at, (), (SWEEP,))


def _link(id_: str, standing: Standing, says: tuple[str, ...], facts: Facts) -> Link:
    row = facts.rows.get(TaskId(id_))
    if row is not None:
        return Link(id_, "task", clean(row.task.name), standing.state, says, standing.since or row.task.created_at)
    return Link(id_, "question", id_, standing.state, says, standing.since)


def _waits(row: TaskRow, facts: Facts) -> tuple[str, ...]:
    """What is said about a link that waits for the next one."""
    task = row.task
    if task.state != OPEN:
        return stand(row, facts).says
    needs = [wait.target for wait in row.waits if wait.kind == "need"]
    requests = [wait.target for wait in row.waits if wait.kind == "request"]
    asked = len(row.waits) - len(needs) - len(requests)
    parts = []
    if requests:
        parts.append(listed([_awaited(request, facts) for request in requests]))
    if asked:
        parts.append("an answer" if asked == 1 else many(asked, "answer"))
    if needs:
        part = many(len(needs), "task")
        wanted = len(task.spec.needs)
        parts.append(
            f"{part} of the {wanted} it needs" if wanted > len(needs) and set(needs) <= {*task.spec.needs} else part
        )
    says = [f"{quoted(task.name)} is waiting for {' and '.join(parts)}."]
    if len(row.waits) > 1:
        says.append(f"{_tally(row, facts)}. What holds it up most:")
    return tuple(says)


def _awaited(request: str, facts: Facts) -> str:
    """A request that has blocked a task, and whom it is for."""
    row = facts.rows.get(TaskId(request))
    spec = None if row is None else row.task.spec.request
    return f"the request {request}" if spec is None else f"{clean(spec.to, 40)} to answer {request}"


def _tally(row: TaskRow, facts: Facts) -> str:
    count: Counter[str] = Counter()
    for wait in row.waits:
        if wait.target in facts.questions:
            count["for you to answer"] += 1
        elif wait.target in facts.rows:
            count[state_of(facts.rows[TaskId(wait.target)]) or NOWHERE] += 1
        else:
            count["not looked at"] += 1
    return "Of these, " + listed([f"{number:,} {state}" for state, number in count.most_common()])


def _circle(path: list[str], facts: Facts) -> Standing:
    names = [quoted(facts.rows[TaskId(id_)].task.name, 40) for id_ in path[path.index(path[-1]) : -1]]
    round_ = " → ".join((*names[:CHAIN_MOST], *(("…",) if len(names) > CHAIN_MOST else ()), names[0]))
    says = (f"It waits in a circle, which never ends by itself: {round_}.",)
    todo = (Todo("Break the circle: call one of them off", typed("cancel", path[-1])),)
    return Standing("circle", says, STUCK, None, (), todo)


def _asked_in_passing(link: Link, facts: Facts) -> Link:
    """A holder may ask and work on; that question is part of the picture, though nothing waits for it."""
    if link.state == "waiting":
        return link
    says = [
        f"Its holder asked {ago(question.asked_at, facts.now)} and works on: {quoted(question.text)}"
        f" (answer with {typed('answer', question.id)} …)"
        for question in facts.asked
        if question.closed_at is None
    ]
    return Link(link.id, link.kind, link.name, link.state, (*link.says, *says), link.since)


def _afterwards(path: list[str], facts: Facts) -> list[Next]:
    """What follows, link by link, once the last one is out of the way."""
    told: list[str] = []
    for id_ in [] if path[-1] in path[:-1] else path[-2::-1]:
        row = facts.rows[TaskId(id_)]
        rest = len(row.waits) - 1
        name = quoted(row.task.name, 60)
        free = f"{name} is over" if row.task.spec.flow else f"{name} can be claimed"
        told.append(f"{name} still waits for {many(rest, 'more thing')}" if rest else free)
        if rest:
            break
    if told:
        told[0] = f"{_once(path[-1], facts)}, {told[0]}"
    if len(told) > 3:
        told = [told[0], f"{many(len(told) - 2, 'task follows', 'tasks follow')}, one after the other", told[-1]]
    return [Next(None, one) for one in told]


def _once(id_: str, facts: Facts) -> str:
    if id_ in facts.questions:
        return "after the answer"
    ended = id_ in facts.rows and facts.rows[TaskId(id_)].task.state != OPEN
    return "as soon as somebody sweeps" if ended else f"when {_name(id_, facts)} is done"


def _name(id_: str, facts: Facts) -> str:
    row = facts.rows.get(TaskId(id_))
    return clean(id_) if row is None else quoted(row.task.name, 60)


def _beside(root: TaskRow, path: list[str], worst: dict[str, tuple[int, str]], facts: Facts) -> tuple[str, ...]:
    """The other things the task itself waits for, the worst first."""
    if root.task.state != OPEN:
        return ()
    others = [wait.target for wait in root.waits if wait.target not in path]
    known = [target for target in others if target in worst]
    known.sort(key=lambda target: -worst[target][0])
    lines = []
    for target in known[:BESIDE_MOST]:
        if target in facts.questions:
            lines.append(f"an answer to {target}")
        else:
            lines.append(f"{_name(target, facts)} ({target}), {_standing(target, facts).state}")
    if len(others) > len(lines):
        lines.append(f"and {many(len(others) - len(lines), 'more thing')}")
    if facts.unseen:
        lines.append(f"(looked at the first {LOOK_MOST} tasks only; at least {facts.unseen:,} more stand in the way)")
    return tuple(lines)


def _shortened(links: list[Link]) -> list[Link]:
    if len(links) <= CHAIN_MOST:
        return links
    head, tail = links[: CHAIN_MOST // 2], links[-CHAIN_MOST // 2 + 1 :]
    left = len(links) - len(head) - len(tail)
    more = Link("", "more", "", "waiting", (f"… {many(left, 'task')} more, each waiting for the next …",))
    return [*head, more, *tail]

"""The answer to "why?": whatever is asked about, its explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from allswell.domain.agents.status import named
from allswell.domain.ids import Millis, QuestionId, TaskId, is_request
from allswell.domain.lease.cost import is_budget, said
from allswell.domain.question import Pause, Question, full_stop, without_output
from allswell.domain.run.run import Run, last_of, time_left
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import OPEN, State, TaskFilter, TaskRow
from allswell.engine.status.agents import StillRun, as_said, view_survivors
from allswell.engine.status.explanation import (
    Explanation,
    Link,
    StatusText,
    SuggestedAction,
    UpcomingStep,
    ago,
    clean,
    listed,
    many,
    quoted,
    rough,
    time_stands,
    typed,
    upcoming,
)
from allswell.engine.status.services import LOOK_MOST, TaskFacts, gather, in_short, targets
from allswell.engine.status.task import (
    NO_SWEEPER,
    OVERDUE,
    STUCK,
    SWEEP,
    is_late,
    stand,
    stand_question,
)
from allswell.engine.status.timeline import spent
from allswell.errors import Refused
from allswell.store.views import Views

# From a task down to what really holds it up.
#
# A task that waits is held up by the worst of what it waits for: a question before a pause, a pause before work that is
# being done. The chain follows that one to its end and names the others in short. It is safe against circles, which a
# store should not hold, and says so if it meets one.

BESIDE_MOST = 4
"""How many of the other things a task waits for are named."""
CHAIN_MOST = 8
"""How many links are shown in full; of a longer chain, the first and the last ones."""


def explain(root: TaskRow, facts: TaskFacts) -> Explanation:
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
        links[0] = replace(links[0], says=(*links[0].says, f"It is {task.spec.retry_of}, submitted again."))
    todo = list(leaf.todo)
    if len(path) > 1 and task.state == OPEN:
        todo.append(SuggestedAction(f"Cancel {quoted(task.name, 40)}", typed("cancel", task.id)))
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


def _worst(root: TaskRow, facts: TaskFacts) -> dict[str, tuple[int, str]]:
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


def _below(id_: str, facts: TaskFacts) -> list[str]:
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


def _standing(id_: str, facts: TaskFacts) -> StatusText:
    row = facts.rows.get(TaskId(id_))
    if row is not None:
        standing = stand(row, facts)
        if row.task.state != OPEN and id_ in facts.awaited:
            return _untold(row, standing, facts)
        if standing.state == "waiting" and not _below(id_, facts):
            return StatusText("waiting", (f"{quoted(row.task.name)} waits as well; it was not looked at further.",), 10)
        return standing
    question = facts.questions.get(QuestionId(id_))
    if question is not None:
        return stand_question(question, facts.now)
    says = (f"{clean(id_)} does not exist any more, so nothing will end this wait. Please report it.",)
    return StatusText("missing", says, STUCK, None, (), (SuggestedAction("Check everything", "allswell doctor"),))


def _untold(row: TaskRow, standing: StatusText, facts: TaskFacts) -> StatusText:
    """Something has ended, and the tasks that wait for it are still to be updated: a sweeper does that at once."""
    if not is_late(row.task.ended_at, facts.now):
        says = (*standing.says, "Tasks that wait for it are updated in a moment.")
        return StatusText(standing.state, says, 5, row.task.ended_at)
    says = (*standing.says, f"Tasks that wait for it were not updated. {NO_SWEEPER}.")
    return StatusText(standing.state, says, OVERDUE, row.task.ended_at, (), (SWEEP,))


def _link(id_: str, standing: StatusText, says: tuple[str, ...], facts: TaskFacts) -> Link:
    row = facts.rows.get(TaskId(id_))
    if row is not None:
        return Link(id_, "task", clean(row.task.name), standing.state, says, standing.since or row.task.created_at)
    return Link(id_, "question", id_, standing.state, says, standing.since)


def _waits(row: TaskRow, facts: TaskFacts) -> tuple[str, ...]:
    """What is said about a link that waits for the next one."""
    task = row.task
    if task.state != OPEN:
        return stand(row, facts).says
    requests = [wait.target for wait in row.waits if is_request(wait.target)]
    needs = [wait.target for wait in row.waits if wait.kind != "question" and wait.target not in requests]
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
        says.append(f"{_tally(row, facts)}. The longest wait:")
    return tuple(says)


def _awaited(request: str, facts: TaskFacts) -> str:
    """A request that has blocked a task, and whom it is for."""
    row = facts.rows.get(TaskId(request))
    spec = None if row is None else row.task.spec.request
    return f"the request {request}" if spec is None else f"{clean(spec.to, 40)} to answer {request}"


def _tally(row: TaskRow, facts: TaskFacts) -> str:
    count: Counter[str] = Counter()
    for wait in row.waits:
        if wait.target in facts.questions:
            count["for you to answer"] += 1
        elif wait.target in facts.rows:
            count[facts.rows[TaskId(wait.target)].state] += 1
        else:
            count["not looked at"] += 1
    return "Of these, " + listed([f"{number:,} {state}" for state, number in count.most_common()])


def _circle(path: list[str], facts: TaskFacts) -> StatusText:
    names = [quoted(facts.rows[TaskId(id_)].task.name, 40) for id_ in path[path.index(path[-1]) : -1]]
    round_ = " → ".join((*names[:CHAIN_MOST], *(("…",) if len(names) > CHAIN_MOST else ()), names[0]))
    says = (f"It waits in a circle, which does not end by itself: {round_}.",)
    todo = (SuggestedAction("Break the circle: cancel one of them", typed("cancel", path[-1])),)
    return StatusText("circle", says, STUCK, None, (), todo)


def _asked_in_passing(link: Link, facts: TaskFacts) -> Link:
    """A holder may ask and work on; that question is part of the picture, though nothing waits for it."""
    if link.state == "waiting":
        return link
    says = [
        f"Its holder asked {ago(question.asked_at, facts.now)} and works on: {quoted(without_output(question.text))}"
        f" (answer with {typed('answer', question.id)} …)"
        for question in facts.asked
        if question.closed_at is None
    ]
    return Link(link.id, link.kind, link.name, link.state, (*link.says, *says), link.since)


def _afterwards(path: list[str], facts: TaskFacts) -> list[UpcomingStep]:
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
    return [upcoming(None, one) for one in told]


def _once(id_: str, facts: TaskFacts) -> str:
    if id_ in facts.questions:
        return "after the answer"
    ended = id_ in facts.rows and facts.rows[TaskId(id_)].task.state != OPEN
    return "as soon as a process enforces time limits" if ended else f"when {_name(id_, facts)} is done"


def _name(id_: str, facts: TaskFacts) -> str:
    row = facts.rows.get(TaskId(id_))
    return clean(id_) if row is None else quoted(row.task.name, 60)


def _beside(root: TaskRow, path: list[str], worst: dict[str, tuple[int, str]], facts: TaskFacts) -> tuple[str, ...]:
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
        lines.append(f"(looked at the first {LOOK_MOST} tasks only; at least {facts.unseen:,} more are before it)")
    return tuple(lines)


def _shortened(links: list[Link]) -> list[Link]:
    if len(links) <= CHAIN_MOST:
        return links
    head, tail = links[: CHAIN_MOST // 2], links[-CHAIN_MOST // 2 + 1 :]
    left = len(links) - len(head) - len(tail)
    more = Link("", "more", "", "waiting", (f"… {many(left, 'task')} more, each waiting for the next …",))
    return [*head, more, *tail]


# Why a run, or a question, stands where it stands.

PAGE = 1_000
QUESTIONS_NAMED = 3
TASKS_MOST = 10_000
"""How many of a run's tasks are counted."""


async def explain_question(store: Views, question: Question) -> Explanation:
    """Why a question is there, and what its task or service would do with an answer."""
    row = None if question.task is None else await store.view_task(question.task)
    now = (await store.view_agenda()).now
    standing = stand_question(question, now)
    link = Link(question.id, "question", clean(question.text, 60), standing.state, standing.says, question.asked_at)
    if question.service is not None:
        service = (await store.view_services()).get(question.service, ServiceRow(question.service))
        what = said(service.id) if is_budget(service.id) else f"the service {quoted(service.id)}"
        says = f"It is about {what}, which {in_short(service, now)}."
        link = Link(link.id, link.kind, link.name, link.state, (*link.says, says), link.since)
    if question.message is not None:
        says = "It is about message {1} of the queue {0}, which waits outside it.".format(*question.message)
        link = Link(link.id, link.kind, link.name, link.state, (*link.says, says), link.since)
    if row is None:
        return Explanation(question.id, "question", link.name, standing.state, now, (link,), (), (), standing.todo)
    task = explain(row, await gather(store, row))
    waits = any(wait.target == question.id for wait in row.waits)
    about = Link(row.task.id, "task", task.name, task.state, (_about(row, waits=waits),), row.task.created_at)
    ahead = (upcoming(None, f"after the answer, {quoted(task.name, 60)} goes on"),) if waits else ()
    return Explanation(
        question.id, "question", link.name, standing.state, now, (link, about), (), ahead, standing.todo, task.spent
    )


def _about(row: TaskRow, *, waits: bool) -> str:
    name = quoted(row.task.name)
    if waits:
        return f"It is about {name}, which waits for the answer."
    if row.task.state == OPEN:
        return f"It is about {name}, which does not wait for the answer."
    return f"It is about {name}, which has ended: {row.task.state}."


async def explain_run(store: Views, run: Run, most: int = TASKS_MOST, pause: Pause = "task") -> Explanation:
    """Why a run is not over yet, or how it ended; where it went on in another, how that one stands."""
    now = (await store.view_agenda()).now
    *_, last = last_of(run, {one.id: one for one in await store.view_runs()})
    if last is not run:
        link = Link(
            run.id, "run", clean(run.name), "ended", (_runs_standing(run, quoted(run.name), now),), run.created_at
        )
        after = await explain_run(store, last, most, pause)
        chain = (link, *after.chain)
        return Explanation(run.id, "run", link.name, after.state, now, chain, (), after.next, after.todo)
    rows: list[TaskRow] = []
    while len(rows) < most:
        room = min(PAGE, most - len(rows))
        page = await store.view_tasks(TaskFilter(run=run.id, after=rows[-1].task.id if rows else "", limit=room))
        rows += page
        if len(page) < room:
            break
    facts = TaskFacts(now)
    facts.agents = {agent.id: agent for agent in await store.view_agents()}
    facts.services = await store.view_services()
    facts.runs = {run.id: run}
    counted = Counter(stand(row, facts).state for row in rows)
    still = [row for row in rows if row.task.state == OPEN]
    name = quoted(run.name)
    links = [Link(run.id, "run", clean(run.name), "ended" if run.ended_at else "open", (), run.created_at)]
    tally = listed([f"{count:,} {state}" for state, count in counted.most_common()])
    of_all = f"Of its {many(len(rows), 'task')}" if len(rows) < most else f"Of the first {len(rows):,} of its tasks"
    says = [_runs_standing(run, name, now), f"{of_all}: {tally}." if rows else "It has no tasks."]
    ahead: tuple[UpcomingStep, ...] = ()
    todo: list[SuggestedAction] = []
    limit = run.limit
    if run.ended_at is None and run.stands_since is not None:
        says.append(await _why_it_stands(store, run, now))
    elif run.ended_at is None and limit is not None:
        if run.stood > 0:
            says.append(f"Its time limit was paused for {rough(run.stood)} while questions were open.")
        if is_late(limit, now):
            says.append(f"Its deadline passed {ago(limit, now)}, but it was not ended. {NO_SWEEPER}.")
            todo.append(SWEEP)
        else:
            ahead = (upcoming(limit, "the run's deadline is reached: whatever is still open fails"),)
    links[0] = Link(run.id, "run", clean(run.name), links[0].state, tuple(says), run.created_at)
    if still:
        worst = max(still, key=lambda row: (_urgency(row, facts), -row.task.created_at))
        below = explain(worst, await gather(store, worst, pause))
        links += below.chain
        ahead = tuple(sorted((*ahead, *below.next), key=lambda one: (one.at is None, one.at or 0)))
        todo += below.todo
    else:
        todo += [
            SuggestedAction(f"See why {quoted(row.task.name, 40)} failed", typed("why", row.task.id))
            for row in [row for row in rows if row.task.state == State.FAILED][:3]
        ]
    return Explanation(
        run.id, "run", clean(run.name), links[0].state, Millis(now), tuple(links), (), ahead, tuple(dict.fromkeys(todo))
    )


async def _why_it_stands(store: Views, run: Run, now: int) -> str:
    asked = waited_for(run, await store.view_questions())
    left = "" if run.deadline is None else f"; {rough(time_left(run, now) or 0)} are left of its time"
    named = listed([clean(id_) for id_ in asked[:QUESTIONS_NAMED]]) or "a question"
    more = f" and {len(asked) - QUESTIONS_NAMED:,} more" if len(asked) > QUESTIONS_NAMED else ""
    are = "is" if len(asked) <= 1 else "are"
    return f"Its time limit is paused while {named}{more} {are} open{left}."


def waited_for(run: Run, questions: Sequence[Question]) -> list[QuestionId]:
    """The open questions that keep a run's clock standing."""
    return [asked.id for asked in questions if asked.run == run.id and asked.waited and asked.closed_at is None]


def _runs_standing(run: Run, name: str, now: int) -> str:
    if run.ended_at is None:
        return f"The run {name} has been open for {rough(now - run.created_at)}."
    reason = clean(run.end_text).replace("run_timeout", "its deadline was reached")
    return f"The run {name} was ended {ago(run.ended_at, now)}: {full_stop(reason)}"


def _urgency(row: TaskRow, facts: TaskFacts) -> int:
    """How urgently an open task of a run needs a human; one that waits for an answer needs one most."""
    if row.lease is None and any(wait.kind == "question" for wait in row.waits):
        return 90
    return stand(row, facts).trouble


async def why(
    views: Views, id_: str, most: int = TASKS_MOST, *, pause: Pause = "task", still_running: StillRun = as_said
) -> Explanation:
    """Why a task, a question or a run stands where it stands; while time stands still, nothing is promised.

    Of a run, so many tasks are looked at as `most` says; `pause` is what an open question holds back here, and
    `still_running` says which processes of earlier attempts still run.
    """
    told = await _explained(views, id_, most, pause)
    if told.kind == "task":
        told = await _with_survivors(views, told, still_running)
    stands = (await views.view_agenda()).stands
    if not stands:
        return told
    go_on = SuggestedAction("Let time limits run again", "allswell watch")
    return replace(told, next=(upcoming(None, time_stands(stands)),), todo=(go_on, *told.todo))


async def _with_survivors(views: Views, told: Explanation, still_running: StillRun) -> Explanation:
    """The sentences about a task, with the processes of its attempts that still run."""
    try:
        left = [one for one in await view_survivors(views, still_running) if one.task == told.id]
    except Refused:  # an agent's key does not see what the watch keeps about itself
        return told
    beside = [
        f"the end of {named(one.processes)} on {clean(one.host, 40)}, which attempt {one.attempt} left running"
        for one in left
    ]
    todo = [
        SuggestedAction("Free its folder and its slot although that runs", typed("dismiss", str(one.processes[0].pid)))
        for one in left
    ]
    return replace(told, beside=(*beside, *told.beside), todo=(*todo, *told.todo))


async def _explained(views: Views, id_: str, most: int, pause: Pause) -> Explanation:
    if id_.startswith("q_"):
        question = await views.view_question(QuestionId(id_))
        if question is not None:
            return await explain_question(views, question)
    elif id_.startswith("r_"):
        for run in await views.view_runs():
            if run.id == id_:
                return await explain_run(views, run, most, pause)
    else:
        row = await views.view_task(TaskId(id_))
        if row is not None:
            return explain(row, await gather(views, row, pause))
    raise Refused("unknown_id", f"there is no {id_}", where="id")

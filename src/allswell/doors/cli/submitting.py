"""`submit`: one task from options, or many from JSON lines.

Many are read and checked as a whole before the first is handed over, so a mistake in line 9,000 leaves nothing behind.
Then they go in parcels, those that are needed before those that need them; a parcel is accepted whole or not at all. Of
very many, no more than a parcel is held at once (`lines`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Frame, write
from allswell.doors.cli.given import json_of, moment
from allswell.doors.cli.joining import Joining
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.errors import AllswellError, Refused, Unavailable

if TYPE_CHECKING:
    from allswell.domain.command import NewTask
    from allswell.domain.names import TaskId
    from allswell.doors.cli.lines import Ids, Lines, Survey
    from allswell.engine.watch import Watch

Fields = dict[str, Any]
"""What `Watch.new_tasks` takes: whatever JSON can say, checked there."""
_PARCEL = 1_000
_FEW = 10_000
"""So many lines are simply held: to look at each twice would take longer."""
Line = tuple[int | None, Fields]
"""A task with the number of the line it stood on, if it stood on one."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        WORKING,
        "submit",
        submit,
        'allswell submit "write the changelog" --timeout 30m',
        """allswell submit fetch --payload '{"url": "https://x.org"}' --key fetch-1""",
        "allswell submit report --needs fetch --role writer --priority 5",
        "allswell submit report --run night --run-timeout 8h",
        """printf '{"name": "a"}\\n{"name": "b", "needs": ["a"]}\\n' | allswell submit -""",
    )


def submit(
    name: Annotated[str, Argument(metavar="NAME", help="What is to be done; - reads tasks as JSON lines.")] = "",
    payload: Annotated[
        str | None, Option("--payload", metavar="JSON", help="What the holder gets: JSON, @file, or -.")
    ] = None,
    role: Annotated[str | None, Option("--role", "-r", metavar="ROLE", help="Who can do it.")] = None,
    needs: Annotated[
        list[str] | None, Option("--needs", metavar="TASK", help="What must be done first; repeatable.", of=("task",))
    ] = None,
    priority: Annotated[int | None, Option("--priority", "-p", metavar="N", help="Higher goes first.")] = None,
    service: Annotated[list[str] | None, Option("--service", metavar="NAME", help="What it calls; repeatable.")] = None,
    bar: Annotated[list[str] | None, Option("--bar", metavar="AGENT", help="Who may not hold it; repeatable.")] = None,
    run: Annotated[
        str | None,
        Option("--run", metavar="RUN", help="The run it belongs to, by name or id; a new name opens one.", of=("run",)),
    ] = None,
    run_timeout: Annotated[
        str | None, Option("--run-timeout", metavar="TIME", help="For a new run: how long all of it may take.")
    ] = None,
    timeout: Annotated[str | None, Option("--timeout", metavar="TIME", help="The limit of an attempt.")] = None,
    idle: Annotated[str | None, Option("--idle", metavar="TIME", help="The longest without a check-in.")] = None,
    retries: Annotated[int | None, Option("--retries", metavar="N", help="How often it is tried again.")] = None,
    not_before: Annotated[
        str | None, Option("--not-before", metavar="WHEN", help="10m from now, or 2026-01-31T08:00.")
    ] = None,
    critical: Annotated[bool, Option("--critical", help="Its failure is worth waking someone.")] = False,
    key: Annotated[str | None, Option("--key", metavar="KEY", help="The same key makes one task only.")] = None,
    if_need_fails: Annotated[
        Literal["skip", "run"] | None, Option("--if-need-fails", help="What to do when a need ends badly.")
    ] = None,
    lines: Annotated[bool, Option("--lines", help="Read tasks as JSON lines; options are defaults.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Hand over a task, or many as JSON lines.

    Once its id is printed, a task is durable.
    """
    from allswell.doors.shapes.submitted import SubmittedShape

    frame = Frame(store, json=json)
    many = lines or name == "-"
    if not many and not name:
        raise Refused("no_name", "what is to be done? give a NAME, or - for JSON lines", where="NAME")
    given: Fields = {
        "role": role,
        "needs": needs,
        "priority": priority,
        "services": service,
        "barred": bar,
        "run": run,
        "timeout": timeout,
        "idle": idle,
        "retries": retries,
        "not_before": not_before,
        "critical": critical or None,
        "key": key,
        "if_need_fails": if_need_fails,
    }
    fields = {field: value for field, value in given.items() if value is not None}
    if many:
        if key is not None or payload == "-":
            raise Refused(
                "bad_lines", "--key and --payload - are for one task; give each line its own", where="--lines"
            )
        if payload is not None:
            fields["payload"] = json_of(payload, "--payload")
        from allswell.doors.cli.lines import opened

        with opened("-" if name in ("-", "") else name, fields) as given_lines:
            _submit_lines(frame, given_lines, run_timeout)
        return
    fields["payload"] = json_of(payload, "--payload")

    async def work(watch: Watch) -> tuple[TaskId, Joining]:
        joining = Joining(watch, run_timeout)
        (new,) = await _checked(watch, [(None, {**fields, "name": name})], joining)
        await joining.open()
        await _hand_over(watch, [new], frame)
        return new.id, joining

    id_, joining = frame.run(work, making=True)
    frame.say(SubmittedShape(id_, name, joining.told()), id_)
    frame.hint(f"{joining.words()}submitted; `allswell why {id_}` tells how it stands")
    _hint_at_role(frame, role or "")


def _hint_at_role(frame: Frame, role: str) -> None:
    """Where agents are set up and none of them takes this role, say so: it may be a slip, or somebody else's work."""
    from allswell.doors.cli.ids import did_you_mean

    roles = {spec.role for spec in frame.settings.known_agents.values()}
    if roles and None not in roles and role not in roles:
        known = sorted(one for one in roles if one)
        what = f"the role {role!r}" if role else "tasks without a role"
        frame.hint(f"No agent of allswell.toml takes {what}{did_you_mean(role, known)}")


async def _resolve(watch: Watch, fields: Fields, joining: Joining, fellows: frozenset[str] = frozenset()) -> None:
    """Put ids where names stand, and an instant where a delay does; `fellows` are names of tasks that are new too."""
    from allswell.doors.cli.ids import find_task

    if isinstance(fields.get("not_before"), str):
        fields["not_before"] = moment(fields["not_before"], await watch.now(), "not_before")
    if isinstance(fields.get("run"), str):
        fields["run"] = await joining.find(fields["run"])
    needs = fields.get("needs")
    if isinstance(needs, list) and all(isinstance(need, str) for need in needs):
        fields["needs"] = [need if need in fellows else await find_task(watch.views, need, "needs") for need in needs]


# --- many -------------------------------------------------------------------------------------------------------------


def _submit_lines(frame: Frame, lines: Lines, run_timeout: str | None) -> None:
    from allswell.doors.cli.lines import Ids

    few = list(islice(lines, _FEW + 1))
    many = len(few) > _FEW
    if many:
        few.clear()

    async def work(watch: Watch) -> tuple[Ids, Joining]:
        ids, joining = Ids(json=frame.json), Joining(watch, run_timeout)
        survey = await _surveyed(watch, lines, joining, frame) if many else None
        if survey is not None:
            await joining.open()
            await _stream(watch, lines, survey, joining, frame, ids)
            return ids, joining
        made = await _checked(watch, list(lines) if many else few, joining)
        await joining.open()
        await _hand_over(watch, made, frame)
        write(ids.add([new.id for new in made]) if made else "")
        return ids, joining

    ids, joining = frame.run(work, making=True)
    if frame.json:
        from allswell.doors.shapes.submitted import SubmittedManyShape

        frame.say(SubmittedManyShape(ids.count, ids.list(), joining.told()))
    frame.hint(f"{joining.words()}{ids.count:,} submitted; `allswell tasks` lists them")


async def _surveyed(watch: Watch, lines: Lines, joining: Joining, frame: Frame) -> Survey | None:
    """Look at every line, one after the other; None where they have to be put in order first."""
    from asyncio import sleep

    from allswell.domain.submit import check_task
    from allswell.doors.cli.ids import find_task
    from allswell.doors.cli.lines import Survey

    survey = Survey()
    for number, fields in lines:
        with _named(number):
            alone = survey.add(number, fields)
            needs = alone.pop("needs", [])
            await _resolve(watch, alone, joining)
            (new,) = watch.new_tasks([{**alone, "needs": needs}])
            check_task(new)
            survey.made(new)
        if survey.total % _PARCEL == 0:
            _show(frame, f"{survey.total:,} lines looked at")
            await sleep(0)
    survey.name(lines)
    if not survey.in_order:
        return None
    for number, needs in survey.needy:
        with _named(number):
            for need in needs:
                if need not in survey.first:
                    await find_task(watch.views, need, "needs")
    joining.check()
    return survey


async def _stream(watch: Watch, lines: Lines, survey: Survey, joining: Joining, frame: Frame, ids: Ids) -> None:
    """Hand lines over in the order in which they stand, no more than a parcel at a time."""
    known: dict[str, TaskId] = {}
    fellows = frozenset(survey.first)
    parcel: list[Fields] = []
    numbered = iter(lines)
    while parcel := [fields for _, fields in islice(numbered, _PARCEL)]:
        for fields in parcel:
            await _resolve(watch, fields, joining, fellows)
            if fields.get("needs"):
                fields["needs"] = [known.get(need, need) for need in fields["needs"]]
        made = watch.new_tasks(parcel)
        for new in made:
            if new.name in fellows:
                known.setdefault(new.name, new.id)
        await _send(watch, made, ids.count, survey.total)
        write(ids.add([new.id for new in made]))
        _show(frame, f"{ids.count:,} of {survey.total:,} submitted")
    _show(frame, "")


def _show(frame: Frame, text: str) -> None:
    """How far it has come, for somebody at a terminal whose ids go elsewhere."""
    if not frame.json and sys.stderr.isatty() and not sys.stdout.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")


async def _checked(watch: Watch, lines: Sequence[Line], joining: Joining) -> tuple[NewTask, ...]:
    """The tasks of all lines, in order; the first line that cannot be is refused by its number."""
    from allswell.domain.submit import check_needs, check_task

    named = [fields["name"] for number, fields in lines if number is not None and isinstance(fields.get("name"), str)]
    fellows = frozenset(named)  # not of one that comes alone: it may need an older task of its name
    for number, fields in lines:
        with _named(number):
            await _resolve(watch, fields, joining, fellows)
    try:
        made = watch.new_tasks([fields for _, fields in lines])
    except Refused:
        for number, fields in lines:  # which one it was
            with _named(number):
                watch.new_tasks([fields])
        raise
    for (number, _), new in zip(lines, made, strict=True):
        with _named(number):
            check_task(new)
    check_needs(made)
    joining.check()
    return made


@contextmanager
def _named(number: int | None) -> Iterator[None]:
    """What is refused in here is refused because of this line."""
    try:
        yield
    except Refused as error:
        if number is None:
            raise
        raise Refused(error.code, f"line {number}: {error.message}", where=f"line {number}") from None


async def _hand_over(watch: Watch, made: Sequence[NewTask], frame: Frame) -> None:
    ordered = _ordered(made) if len(made) > _PARCEL else made
    showing = len(made) > _PARCEL and not frame.json and sys.stderr.isatty()
    for start in range(0, len(ordered), _PARCEL):
        await _send(watch, ordered[start : start + _PARCEL], start, len(made))
        if showing:
            sys.stderr.write(f"\r{min(start + _PARCEL, len(made)):,} of {len(made):,} submitted ")
    if showing:
        sys.stderr.write("\r\x1b[K")


async def _send(watch: Watch, parcel: Sequence[NewTask], before: int, total: int) -> None:
    """One parcel, whole or not at all."""
    try:
        await watch.submit_prepared(parcel)
    except (Refused, Unavailable) as error:
        if total == 1:
            raise
        raise _with_count(error, before, total) from None


def _with_count(error: Refused | Unavailable, before: int, total: int) -> AllswellError:
    """The same error, saying how much was accepted before it."""
    text = (
        f"{error}; {before:,} of {total:,} tasks were submitted before that"
        if before
        else f"{error}; none was submitted"
    )
    return Refused(error.code, text, where=error.where) if isinstance(error, Refused) else Unavailable(text)


def _ordered(made: Sequence[NewTask]) -> list[NewTask]:
    """What is needed before what needs it."""
    from graphlib import TopologicalSorter

    of = {new.id: new for new in made}
    graph = {new.id: [need for need in new.needs if need in of] for new in made}
    return [of[id_] for id_ in TopologicalSorter(graph).static_order()]

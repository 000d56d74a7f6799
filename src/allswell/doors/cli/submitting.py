"""`submit`: one task from options, or many from JSON lines.

What was typed is handed to the watch, which looks at all of it before it takes any: a mistake in line 9,000 leaves
nothing behind (`engine/bulk.py`). Of very many lines no more than a parcel is held at once (`lines`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Frame, write
from allswell.doors.cli.given import json_of, moment
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import plain
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.names import TaskId
    from allswell.doors.cli.lines import Lines
    from allswell.doors.shapes.submitted import JoinedRunShape
    from allswell.engine.bulk import Submitted
    from allswell.engine.watch import Watch

Fields = dict[str, Any]
"""What the watch takes: whatever JSON can say, checked there."""


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
        """allswell submit "mend the parser" --verify 'make test'""",
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
    max_cost_usd: Annotated[
        float | None, Option("--max-cost-usd", metavar="USD", min=0, help="What its attempts may cost together.")
    ] = None,
    verify: Annotated[
        str | None,
        Option("--verify", metavar="CMD", help="A command that must pass before done counts; no shell reads it."),
    ] = None,
    run_max_cost_usd: Annotated[
        float | None, Option("--run-max-cost-usd", metavar="USD", min=0, help="For a new run: what it may cost.")
    ] = None,
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
        "max_cost_usd": max_cost_usd,
        "verify": verify,
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
            _submit_lines(frame, given_lines, run_timeout, run_max_cost_usd)
        return
    fields["payload"] = json_of(payload, "--payload")

    limit = _limit(run_timeout)

    async def work(watch: Watch) -> tuple[TaskId, Submitted]:
        if not_before is not None:
            fields["not_before"] = moment(not_before, await watch.now(), "--not-before")
        ids: list[TaskId] = []
        wanted = [{**fields, "name": name}]
        submitted = await watch.submit_all(wanted, run_timeout=limit, run_cost=run_max_cost_usd, told=ids.extend)
        return ids[0], submitted

    id_, submitted = frame.run(work, making=True)
    frame.say(SubmittedShape(id_, name, _runs(submitted)), id_)
    frame.hint(f"{_opened(submitted)}submitted; `allswell why {id_}` tells how it stands")
    _hint_at_role(frame, role or "")


def _limit(run_timeout: str | None) -> int | None:
    from allswell.domain.duration import parse

    return None if run_timeout is None else parse(run_timeout, where="--run-timeout")


def _runs(submitted: Submitted) -> list[JoinedRunShape]:
    """Each run by the name it was called, and which of them are new."""
    from allswell.doors.shapes.submitted import JoinedRunShape

    return [JoinedRunShape(id_, name, name in submitted.opened) for name, id_ in submitted.runs.items()]


def _opened(submitted: Submitted) -> str:
    """What is worth saying: that a run was opened, which a mistyped name would do too."""
    opened = ", ".join(map(plain, submitted.opened))
    return f"opened the run {opened}; " if opened else ""


def _hint_at_role(frame: Frame, role: str) -> None:
    """Where agents are set up and none of them takes this role, say so: it may be a slip, or somebody else's work."""
    from allswell.engine.finding import did_you_mean

    roles = {spec.role for spec in frame.settings.known_agents.values()}
    if roles and None not in roles and role not in roles:
        known = sorted(one for one in roles if one)
        what = f"the role {role!r}" if role else "tasks without a role"
        frame.hint(f"No agent of allswell.toml takes {what}{did_you_mean(role, known)}")


# --- many -------------------------------------------------------------------------------------------------------------


def _submit_lines(frame: Frame, lines: Lines, run_timeout: str | None, run_max_cost_usd: float | None) -> None:
    from allswell.doors.cli.lines import Ids

    ids, limit = Ids(json=frame.json), _limit(run_timeout)

    async def work(watch: Watch) -> Submitted:
        lines.now = await watch.now()
        try:
            return await watch.submit_all(
                lines,
                run_timeout=limit,
                run_cost=run_max_cost_usd,
                told=lambda some: write(ids.add(some)),
                progress=lambda count, total: _show(frame, count, total),
            )
        except Refused as error:
            raise error if error.place is None else lines.refused(error, error.place) from None

    submitted = frame.run(work, making=True)
    if frame.json:
        from allswell.doors.shapes.submitted import SubmittedManyShape

        frame.say(SubmittedManyShape(ids.count, ids.list(), _runs(submitted)))
    frame.hint(f"{_opened(submitted)}{ids.count:,} submitted; `allswell tasks` lists them")


def _show(frame: Frame, count: int, total: int | None) -> None:
    """How far it has come, for somebody at a terminal whose ids go elsewhere."""
    if not frame.json and sys.stderr.isatty() and not sys.stdout.isatty():
        text = f"{count:,} lines looked at" if total is None else f"{count:,} of {total:,} submitted"
        sys.stderr.write("\r\x1b[K" + ("" if count == total else text))

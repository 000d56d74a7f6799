"""`retry`: hand an ended task over again, as a new one that carries its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.commands import DECIDING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import paint, plain, sentence

if TYPE_CHECKING:
    from allswell.engine.watch import Watch

_LISTED = 20


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        DECIDING,
        "retry",
        retry,
        "allswell retry t_…",
        'allswell retry "write the changelog" --with-dependents',
        "allswell retry t_… --run tonight         its own run has ended",
    )


def retry(
    task: Annotated[
        str, Argument(metavar="TASK", help="A task that has ended, by id or by its only name.", of=("task",))
    ],
    with_dependents: Annotated[
        bool, Option("--with-dependents", help="Those that were skipped because of it, too.")
    ] = False,
    again: Annotated[bool, Option("--again", help="Even if it is done.")] = False,
    run: Annotated[
        str | None,
        Option("--run", metavar="RUN", help="Into this run. Default: its own, if that is open.", of=("run",)),
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Hand an ended task over again, as a new one that carries its history; the ended one stays ended.

    The new task is what the old one was asked to be. Its holder is told what the last attempt left and what humans
    noted; limits that were raised stay raised. `show` and `why` of both name the other.
    """
    from allswell.doors.cli.people import deciding
    from allswell.doors.shapes.retried import RetriedShape

    frame = Frame(store, json=json)
    frame.for_humans("retry")
    who = deciding(None)

    async def work(watch: Watch) -> tuple[dict[str, str], str]:
        from allswell.engine.finding import find_run, find_task

        views = watch.views
        id_ = await find_task(views, task)
        into = None if run is None else await find_run(views, run, "--run")
        made = await watch.retry(id_, dependents=with_dependents, again=again, run=into, by=who)
        row = await views.view_task(id_)
        return {str(old): str(new) for old, new in made.items()}, task if row is None else row.task.name

    made, name = frame.run(work)
    first, *others = made.values()
    lines = [f"{paint(plain(name), 'bold')} is handed over again, as {first}"]
    if others:
        listed = ", ".join(others[:_LISTED]) + (" …" if len(others) > _LISTED else "")
        lines.append(f"with what was skipped because of it: {listed}")
    lines.append(paint(typed_here(f"allswell why {first}"), "dim"))
    frame.say(RetriedShape.of(made), "\n".join(sentence(line) for line in lines))

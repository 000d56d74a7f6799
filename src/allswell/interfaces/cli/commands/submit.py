"""`submit`: one task from options, or many from JSON lines.

What was typed is handed to the watch, which looks at all of it before it takes any: a mistake in line 9,000 leaves
nothing behind (`engine/submission.py`). Of very many lines no more than a parcel is held at once (`JsonLines`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from allswell.domain.duration import parse
from allswell.domain.ids import TaskId
from allswell.errors import Refused
from allswell.interfaces.cli.arguments import json_of, moment, object_of, why_not
from allswell.interfaces.cli.context import CliContext, write
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import WORKING, Commands
from allswell.interfaces.cli.rendering import plain

if TYPE_CHECKING:
    from allswell.engine.submission import Submitted
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
        """allswell submit "fix the parser" --verify 'make test'""",
        """printf '{"name": "a"}\\n{"name": "b", "needs": ["a"]}\\n' | allswell submit -""",
    )


def submit(
    name: Annotated[
        str, Argument(metavar="NAME", help="What to do; - reads tasks as JSON lines from standard input.")
    ] = "",
    payload: Annotated[
        str | None, Option("--payload", metavar="JSON", help="Data for the agent: JSON, @file, or -.")
    ] = None,
    role: Annotated[
        str | None,
        Option(
            "--role", "-r", metavar="ROLE", help="Only agents with this role take it. Default: agents without a role."
        ),
    ] = None,
    needs: Annotated[
        list[str] | None,
        Option("--needs", metavar="TASK", help="A task that must be done first; repeatable.", of=("task",)),
    ] = None,
    priority: Annotated[
        int | None, Option("--priority", "-p", metavar="N", help="Higher numbers go first. Default: 0.")
    ] = None,
    service: Annotated[
        list[str] | None,
        Option("--service", metavar="NAME", help="A service that it calls; it waits while that is down. Repeatable."),
    ] = None,
    bar: Annotated[
        list[str] | None, Option("--bar", metavar="AGENT", help="An agent that must not take it; repeatable.")
    ] = None,
    run: Annotated[
        str | None,
        Option("--run", metavar="RUN", help="Run it belongs to, by name or id; a new name opens a run.", of=("run",)),
    ] = None,
    run_timeout: Annotated[
        str | None, Option("--run-timeout", metavar="TIME", help="Time limit of a new run as a whole. Default: none.")
    ] = None,
    timeout: Annotated[
        str | None,
        Option("--timeout", metavar="TIME", help="Time limit of each attempt. Default: agent_timeout (15m)."),
    ] = None,
    idle: Annotated[
        str | None,
        Option("--idle", metavar="TIME", help="Time without a check-in after which it is taken back. Default: off."),
    ] = None,
    retries: Annotated[
        int | None,
        Option("--retries", metavar="N", help="Number of retries. Default: by kind of error (3; rate limits 5)."),
    ] = None,
    max_cost_usd: Annotated[
        float | None,
        Option(
            "--max-cost-usd",
            metavar="USD",
            min=0,
            help="Cost limit of all attempts together. Default: max_cost_usd (off).",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="Token limit of all attempts together, in and out. Default: max_tokens (off).",
        ),
    ] = None,
    verify: Annotated[
        str | None,
        Option(
            "--verify",
            metavar="CMD",
            help="A command that must pass before it counts as done; it is run without a shell.",
        ),
    ] = None,
    run_max_cost_usd: Annotated[
        float | None, Option("--run-max-cost-usd", metavar="USD", min=0, help="Cost limit of a new run. Default: none.")
    ] = None,
    not_before: Annotated[
        str | None,
        Option("--not-before", metavar="WHEN", help="Not before 10m from now, or 2026-01-31T08:00. Default: at once."),
    ] = None,
    critical: Annotated[bool, Option("--critical", help="Alert people at once if it fails.")] = False,
    key: Annotated[
        str | None, Option("--key", metavar="KEY", help="A second submit with the same key changes nothing.")
    ] = None,
    if_need_fails: Annotated[
        Literal["skip", "run"] | None,
        Option("--if-need-fails", help="What to do if a task of --needs is not done. Default: skip."),
    ] = None,
    lines: Annotated[bool, Option("--lines", help="Read tasks as JSON lines; options are their defaults.")] = False,
    *,
    context: CliContext,
) -> None:
    """Submit a task, or many as JSON lines.

    Once its id is printed, the task is on disk.
    """
    from allswell.views.task import SubmittedShape, joined_runs

    many = lines or name == "-"
    if not many and not name:
        raise Refused("no_name", "what is the task? Write a NAME, or - for JSON lines", where="NAME")
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
        "max_tokens": max_tokens,
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
        with opened("-" if name in ("-", "") else name, fields) as given_lines:
            _submit_lines(context, given_lines, run_timeout, run_max_cost_usd)
        return
    fields["payload"] = json_of(payload, "--payload")
    _check_runs_nothing(context, role)

    limit = _limit(run_timeout)

    async def work(watch: Watch) -> tuple[TaskId, Submitted]:
        if not_before is not None:
            fields["not_before"] = moment(not_before, await watch.now(), "--not-before")
        ids: list[TaskId] = []
        wanted = [{**fields, "name": name}]
        submitted = await watch.submit_all(wanted, run_timeout=limit, run_cost=run_max_cost_usd, told=ids.extend)
        return ids[0], submitted

    id_, submitted = context.run(work, making=True)
    context.say(SubmittedShape(id_, name, joined_runs(submitted)), id_)
    context.hint(f"{_opened(submitted)}submitted; `allswell why {id_}` shows its state")
    _hint_at_role(context, role or "")


def _check_runs_nothing(context: CliContext, role: object) -> None:
    """Refuse to an agent a task whose payload is a command: `allswell run --resume` would run it as whoever types that.

    For keys the same rule is in `domain/access/rights.py`, for requests in `domain/mesh/request.py`.
    """
    from allswell.domain.lease.claim import COMMAND_ROLES

    if isinstance(role, str) and role in COMMAND_ROLES:
        context.for_humans(f"submit --role {role}")


def _limit(run_timeout: str | None) -> int | None:
    return None if run_timeout is None else parse(run_timeout, where="--run-timeout")


def _opened(submitted: Submitted) -> str:
    """What is worth saying: that a run was opened, which a mistyped name would do too."""
    opened = ", ".join(map(plain, submitted.opened))
    return f"opened the run {opened}; " if opened else ""


def _hint_at_role(context: CliContext, role: str) -> None:
    """Where agents are set up and none of them takes this role, say so: it may be a slip, or somebody else's work."""
    from allswell.engine.lookup import did_you_mean

    roles = {spec.role for spec in context.settings.known_agents.values()}
    if roles and None not in roles and role not in roles:
        known = sorted(one for one in roles if one)
        what = f"the role {role!r}" if role else "tasks without a role"
        context.hint(f"No agent of allswell.toml takes {what}{did_you_mean(role, known)}")


# --- many -------------------------------------------------------------------------------------------------------------


def _submit_lines(
    context: CliContext, lines: JsonLines, run_timeout: str | None, run_max_cost_usd: float | None
) -> None:
    ids, limit = SubmittedIds(json=context.json), _limit(run_timeout)
    lines.check_role = partial(_check_runs_nothing, context)

    async def work(watch: Watch) -> Submitted:
        lines.now = await watch.now()
        try:
            return await watch.submit_all(
                lines,
                run_timeout=limit,
                run_cost=run_max_cost_usd,
                told=lambda some: write(ids.add(some)),
                progress=lambda count, total: _show(context, count, total),
            )
        except Refused as error:
            raise error if error.place is None else lines.refused(error, error.place) from None

    submitted = context.run(work, making=True)
    if context.json:
        from allswell.views.task import SubmittedManyShape, joined_runs

        context.say(SubmittedManyShape(ids.count, ids.list(), joined_runs(submitted)))
    context.hint(f"{_opened(submitted)}{ids.count:,} submitted; `allswell tasks` lists them")


def _show(context: CliContext, count: int, total: int | None) -> None:
    """How far it has come, for somebody at a terminal whose ids go elsewhere."""
    if not context.json and sys.stderr.isatty() and not sys.stdout.isatty():
        text = f"{count:,} lines read" if total is None else f"{count:,} of {total:,} submitted"
        sys.stderr.write("\r\x1b[K" + ("" if count == total else text))


# Tasks as JSON lines, however many: read line by line, as often as need be, and never held all at once.
#
# Nothing is handed over before everything was looked at, so they are read at least twice (`engine/submission.py`). What
# comes through a pipe is therefore put into a temporary file.

LONGEST_TASK_LINE = 8 << 20
"""Bytes of a line; no task is as large."""
_CHUNK = 1 << 20


class JsonLines:
    """JSON objects, one on each line, that can be read more than once."""

    def __init__(self, content: IO[bytes], source: str, defaults: Fields) -> None:
        self._content = content
        self._source = source
        self._defaults = defaults
        self.now = 0
        """The store's clock, from which delays count."""
        self.check_role: Callable[[object], None] = lambda _: None
        """Refuses a role that its caller may not hand anything over for."""

    def __iter__(self) -> Iterator[Fields]:
        """Each with what holds for all of them."""
        return (fields for _, fields in self._numbered())

    def refused(self, error: Refused, place: int) -> Refused:
        """The same error, about the line on which the task of this place stands."""
        number = next(number for number, _ in islice(self._numbered(), place, None))
        return _about_line(error, number)

    def _numbered(self) -> Iterator[tuple[int, Fields]]:
        """Each with the number of its line; empty lines are passed over."""
        self._content.seek(0)
        number = 0
        while line := self._content.readline(LONGEST_TASK_LINE + 1):
            number += 1
            if len(line) > LONGEST_TASK_LINE:
                text = f"lines, line {number}, is longer than {LONGEST_TASK_LINE >> 20} MiB, which no task can be"
                raise Refused("bad_line", text, where=f"line {number}")
            if line.strip():
                fields = {**self._defaults, **self._object(line, number)}
                self.check_role(fields.get("role"))
                yield number, self._timed(fields, number)

    def _timed(self, fields: Fields, number: int) -> Fields:
        """With an instant where a delay stands."""
        if isinstance(fields.get("not_before"), str):
            try:
                fields["not_before"] = moment(fields["not_before"], self.now, "not_before")
            except Refused as error:
                raise _about_line(error, number) from None
        return fields

    def _object(self, line: bytes, number: int) -> Fields:
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            said = f"lines: {self._source} is not UTF-8 text (line {number}, byte {error.start})"
            raise Refused("not_text", said, where="lines") from None
        value = object_of(text, "lines", number)
        if "run_id" in value:  # as it is printed
            value.setdefault("run", value.pop("run_id"))
        return value


def _about_line(error: Refused, number: int) -> Refused:
    return Refused(error.code, f"line {number}: {error.message}", where=f"line {number}", hint=error.hint)


@contextmanager
def opened(name: str, defaults: Fields) -> Iterator[JsonLines]:
    """The lines of a file, or of standard input (`-`); what cannot be read twice is put into a temporary file."""
    if name == "-":
        with _kept(sys.stdin.buffer) as kept:
            yield JsonLines(kept, "standard input", defaults)
        return
    try:
        content: IO[bytes] = open(name, "rb")  # noqa: PTH123, SIM115 - a name that was typed; closed below
        if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            with content:
                content = _kept(content)
    except (OSError, ValueError) as error:
        raise Refused("no_file", f"lines: {name!r} cannot be read: {why_not(error)}", where="lines") from None
    with content:
        yield JsonLines(content, name, defaults)


def _kept(content: IO[bytes]) -> IO[bytes]:
    """A temporary file with the same content."""
    from tempfile import TemporaryFile

    kept = TemporaryFile()  # noqa: SIM115 - closed by whoever reads it
    while chunk := content.read(_CHUNK):
        kept.write(chunk)
    return kept


class SubmittedIds:
    """The ids of what was submitted: printed as they come, or kept as one JSON list."""

    def __init__(self, *, json: bool) -> None:
        self._json = bytearray() if json else None
        self.count = 0

    def add(self, ids: Sequence[TaskId]) -> str:
        """Take more of them; returned is what is to be printed now."""
        self.count += len(ids)
        if self._json is None:
            return "\n".join(ids) + "\n"
        for id_ in ids:
            self._json += b"," if self._json else b""
            self._json += msgspec.json.encode(id_)
        return ""

    def list(self) -> msgspec.Raw:
        """All of them."""
        return msgspec.Raw(b"[" + (self._json or b"") + b"]")
